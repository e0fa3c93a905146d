"""A study folder has one owner: a second that would run cells there is refused before any cell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

import agentlab as al
from agentlab.errors import OwnedError
from agentlab.trace.store import Store

SLOW = """
import sys, time, agentlab as al
class Slow:
    name = "slow"
    def plan(self, request, kit):
        open(sys.argv[1] + "/asked", "a").write("x")
        time.sleep(600)
if __name__ == "__main__":
    al.register("planner", "slow", Slow())
    arms = al.grid(planner="slow", strategy="never")
    study = al.Study(arms, al.load_suite("chain")[:4], seeds=2, out=sys.argv[1] + "/out")
    study.run(processes=2, progress=False)
"""


def study(out: Path) -> al.Study:
    arms = al.grid(planner="reference", strategy="never")
    return al.Study(arms, al.load_suite("chain")[:2], seeds=1, out=out, controls=False)


def test_a_second_is_refused_and_readers_are_not(tmp_path):
    mine = study(tmp_path)
    mine.run(processes=1, progress=False)
    with Store(tmp_path) as store:
        store.study_owner().claim()
        for again in ({}, {"retry_failed": True}, {"retry_crashed": True}):
            with pytest.raises(OwnedError, match=f"the study in .* pid {os.getpid()} on"):
                study(tmp_path).run(processes=1, progress=False, **again)
        assert len(al.Study.open(tmp_path).runs) == 2
    study(tmp_path).run(processes=1, progress=False)
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX signals")
def test_a_killed_study_holds_nothing_while_its_workers_live_on(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    running = subprocess.Popen([sys.executable, str(script), str(tmp_path)], start_new_session=True)
    try:
        end = time.monotonic() + 120
        while not (tmp_path / "asked").exists() and time.monotonic() < end:
            time.sleep(0.05)
        with pytest.raises(OwnedError, match=f"pid {running.pid} on"):
            study(tmp_path / "out").run(processes=1, progress=False)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert len(study(tmp_path / "out").run(processes=1, progress=False)) == 2
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # its own session: the workers
        running.wait()


def test_without_locks_a_parameter_goes_on(tmp_path, monkeypatch):
    import errno

    fcntl = import_module("fcntl")

    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "none here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(al.errors.StoreError, match="--no-lock"):
        study(tmp_path).run(processes=1, progress=False)
    assert len(study(tmp_path).run(processes=1, progress=False, lock=False)) == 2
