"""Nobody reads the output any more, or there is no room for it: no traceback, and an exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMAND = f"{sys.executable} -c 'from agentlab.views.cli.cli import main; main()'"
"""A command line of sh, as what is closed is closed by the shell."""


def told(line: str) -> tuple[int, str]:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("set -o pipefail; {} suites | true", 0, ""),
        ("{} --help >&-", 0, ""),
        ("{} suites >&-", 0, ""),
        ("{} suites 2>&- >/dev/null", 0, ""),
        ("{} show nowhere 2>&-", 2, ""),
        ("{} suites > /dev/full", 2, "No space left"),
    ],
)
def test_an_output_that_is_closed(line, code, said):
    found, stderr = told(line.format(COMMAND))
    assert (found, "Traceback" in stderr, said in stderr) == (code, False, True), stderr
