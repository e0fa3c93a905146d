"""kill -9: a study is killed at twenty random moments; what was finished stays, once.

The test runs this file as a script, in a session of its own: it runs the study in two worker
processes (now and then threads, which start sooner) until someone kills it. Every other time the
parent alone is killed, so that its workers are orphans when the next one starts: they must hold
nothing and do nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import agentlab as al
from agentlab.study import study as module

KILLS = 20
PATIENCE = 60.0  # seconds to wait for a process before the test is given up


def make(out: Path) -> al.Study:
    """Return the study that is killed: 1,700 cells of a few milliseconds each."""
    suite = al.load_suite("travel")
    return al.Study(
        al.grid(planner=["search", "reference"], strategy=["never", "retry(1)"]),
        [suite[i] for i in range(0, 60, 3)],
        fault_rate=[0.1, 0.3], seeds=6, faults=al.FaultPlan(), out=out,
    )  # fmt: skip


def main(out: Path, backend: str) -> None:
    """Run the study; say how many cells were left to run, and that it is complete."""
    module.code_fingerprint = lambda: "the code of this test"  # it is not what is tested here
    told: list[int] = []

    def tell(finished: int, total: int, rate: float) -> None:
        if not told:
            told.append(total)
            (out / "telling").write_text(str(total))
            (out / "telling").rename(out / "left")  # there whole or not at all

    make(out).run(processes=2, backend=backend, progress=tell)
    (out / "complete").touch()


def stored(out: Path) -> dict[str, tuple[Any, ...]]:
    """Return every row of the cells that are on disk, traces with them."""
    if not (out / "study.db").exists():
        return {}
    connection = sqlite3.connect(out / "study.db")
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'traces'").fetchall():
            return {}
        rows = connection.execute(
            "SELECT cell, attempt, status, row, spans FROM cells LEFT JOIN traces USING (seq)"
        ).fetchall()
    finally:
        connection.close()
    assert len({row[0] for row in rows}) == len(rows)  # none is there twice
    return {row[0]: row[1:] for row in rows}


def count(out: Path) -> int:
    """Return how many cells are on disk at this moment."""
    connection = sqlite3.connect(f"file:{out / 'study.db'}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM cells").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def start(out: Path, backend: str = "loky") -> subprocess.Popen[bytes]:
    with (out / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, __file__, str(out), backend], start_new_session=True, stderr=stderr
        )


def group(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the living processes of a session."""
    living = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == process.pid and fields[0] != "Z":
            living.append(int(path.parent.name))
    return living


def holds(pid: int, out: Path) -> bool:
    """Return whether a process has a file of the study open."""
    files = (os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir())
    return any(f.startswith(str(out / "study.db")) for f in files)


def busy(pids: list[int], after: float = 0.0) -> list[list[str]]:
    """Return the processor time that processes have used, in ticks."""
    time.sleep(after)
    stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
    return [s.rpartition(")")[2].split()[11:13] for s in stats]


def killed(out: Path, rng: Random, number: int) -> subprocess.Popen[bytes]:
    """Start the study and kill it: at any moment at first, then while cells are being finished."""
    backend = "threading" if number % 5 in (3, 4) else "loky"
    process, before = start(out, backend), count(out) if (out / "study.db").exists() else 0
    more = 0 if number < 3 else rng.choice([0, 1, 20])
    deadline = time.monotonic() + PATIENCE
    if number < 3:
        time.sleep(rng.uniform(0.0, 1.5))
    else:
        while not (out / "study.db").exists() or count(out) < before + more + (more == 0):
            assert process.poll() is None, (out / "stderr").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.05))
    if number % 2:
        os.kill(process.pid, signal.SIGKILL)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return process


def results(study: al.Study) -> list[list[Any]]:
    """Return the runs but for their wall times."""
    runs = study.runs.drop(columns="wall_seconds").astype(object)
    return runs.where(runs.notna(), None).to_numpy().tolist()


def spans(study: al.Study) -> list[list[Any]]:
    columns = ["cell", "kind", "name", "visit", "step_id", "attempt", "input", "output", "error"]
    frame = study.spans.sort_values(["cell", "span_id"])
    return frame[[*columns, "sim_start", "sim_end"]].to_numpy().tolist()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_study_killed_twenty_times_is_the_study_that_was_never_killed(tmp_path):
    out, calm = tmp_path / "killed", tmp_path / "undisturbed"
    out.mkdir()
    rng, parents, begun, before, moments = Random(0), [], [], {}, []
    grid = make(out)._keyed()
    try:
        for number in range(KILLS):
            (out / "left").unlink(missing_ok=True)
            parents.append(killed(out, rng, number))
            after = stored(out)
            assert before.items() <= after.items()  # nothing lost, nothing changed
            if (out / "left").exists():  # it had begun: with what was not finished, nothing else
                assert int((out / "left").read_text()) == len(grid) - len(before)
                begun.append(parents[-1])
            moments.append(len(after) - len(before))
            before = after
        assert not (out / "complete").exists()
        assert 0 < len(before) < len(grid)
        assert sum(more > 0 for more in moments) >= 12  # it was in the middle of it most times
        last = start(out)
        parents.append(last)
        assert last.wait(PATIENCE) == 0, (out / "stderr").read_text()
        deadline = time.monotonic() + 10
        for parent in begun:  # workers that were given something end soon after their parent
            while group(parent) and time.monotonic() < deadline:
                time.sleep(0.1)
        assert sum(bool(group(parent)) for parent in begun) <= 1  # one may have been just starting
        idle = [pid for p in parents for pid in group(p)]
        assert not any(holds(pid, out) for pid in idle)
        assert busy(idle) == busy(idle, after=0.3)
    finally:
        for parent in parents:
            for pid in group(parent):
                os.kill(pid, signal.SIGKILL)
    assert (out / "complete").exists()
    after = stored(out)
    assert before.items() <= after.items()
    assert after.keys() == grid.keys()
    assert all(row[:2] == (1, "done") for row in after.values())
    calm_study = make(calm)
    calm_study.run(processes=1)
    assert results(make(out)) == results(calm_study)
    assert spans(make(out)) == spans(calm_study)
    told = json.loads(next(iter(after.values()))[2])
    assert {"role", "success", "wall_seconds"} <= told.keys()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
