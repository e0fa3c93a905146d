"""What type checkers see of the package: a user's program passes, and an unknown name does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentlab.study.grid import AXES, Axes

PROGRAM = Path(__file__).parent / "typed" / "program.py"
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--no-incremental"],
    "pyright": [sys.executable, "-m", "basedpyright", "--level", "error"],
}


def checked(checker, path):
    pytest.importorskip({"mypy": "mypy", "pyright": "basedpyright"}[checker])
    done = subprocess.run(
        [*CHECKERS[checker], str(path)], capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_program_passes(checker):
    code, said = checked(checker, PROGRAM)
    assert code == 0, said


def test_the_program_runs():
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


WRONG = """\
import agentlab as al

al.nothing
al.planners.nothing
al.grid(planer="search")
al.tool(efect="read")
"""


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_wrong_is_flagged(checker, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    code, said = checked(checker, path)
    assert code != 0
    for line in range(3, 7):
        assert f"wrong.py:{line}:" in said, said


def test_the_axes_for_type_checkers_are_those_of_an_arm():
    assert tuple(Axes.__annotations__) == AXES
