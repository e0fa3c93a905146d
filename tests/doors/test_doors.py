"""Whatever comes in from outside is read or refused by an error of ours (see ``fuzz.py``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a child process is bounded by POSIX means")
def test_every_door_reads_or_refuses(tmp_path):
    minutes = os.environ.get("AGENTLAB_FUZZ_MINUTES", "0.75")
    seed = os.environ.get("AGENTLAB_FUZZ_SEED", "0")
    command = [sys.executable, "-W", "ignore", str(FUZZ), "--minutes", minutes, "--seed", seed]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "faults")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
