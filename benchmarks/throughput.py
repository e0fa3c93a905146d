"""An LM-free study, every trace stored: runs a second a process.

``reference × retry(1)`` on the chain suite at fault rate 0.1. The honest figure counts the runs
that were asked for, without controls, over the time of ``study.run()`` (plan, run, pack, write,
read back, frame) times the number of processes. Workers are started afresh each time, and that is
in it. With controls each run brings a ceiling and a fault-free twin, and each scenario a
floor; both ways of counting are shown.

No clock can tell what two processes would have done on an idle machine: on a busy one, look at the
line below it, the same over the processor time of all processes together.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable

from joblib.externals.loky import get_reusable_executor
from measure import Row, clock, found_in, interleaved, medians, report

import agentlab as al

Store = found_in("Store", "trace.store")

SEEDS = {False: 250, True: 50}
"""Without and with controls: 5,000 and 1,000 runs that are asked for."""
REPETITIONS = 3
TARGET = 500


def study(out: str, controls: bool, seeds: int) -> al.Study:
    arms = al.grid(planner="reference", strategy="retry(1)")
    return al.Study(arms, "chain", fault_rate=0.1, seeds=seeds, controls=controls, out=out)


def busy() -> float:
    """Return the processor seconds of this process and of those that have ended."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(processes: int, controls: bool, others: dict[str, list[float]]) -> float:
    """Run a study; return the asked runs a second a process, and note the other ways to count."""
    get_reusable_executor().shutdown(wait=True)
    with tempfile.TemporaryDirectory() as out:
        made = study(out, controls, SEEDS[controls])
        wall, used = clock(), busy()
        runs = made.run(processes=processes, progress=False)
        wall = clock() - wall
        get_reusable_executor().shutdown(wait=True)  # else its processor time is not known
        used = busy() - used
        with Store(out, read_only=True) as store:
            cells = store.cells()
            assert {c.status for c in cells.values()} == {"done"}
            assert sum(1 for _ in store.traces()) == sum(
                c.row["role"] == "arm" for c in cells.values()
            )
    assert len(runs) == SEEDS[controls] * 20
    for name, value in (("cells", len(cells) / wall / processes), ("busy", len(runs) / used)):
        others.setdefault(f"{name} {processes} {controls}", []).append(value)
    return len(runs) / wall / processes


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as out:  # imports, bytecode, caches
        study(out, False, seeds=2).run(processes=2, progress=False)
    noted: dict[str, list[float]] = {}
    programs: dict[str, Callable[[], float]] = {
        f"{p} {c}": lambda p=p, c=c: timed(p, c, noted) for c in SEEDS for p in (1, 2)
    }
    found = medians(interleaved(programs, REPETITIONS))
    other = medians(noted)
    rows = []
    for p in (1, 2):
        rate = found[f"{p} False"]
        what = f"study, runs a second a process, {p} process{'es' if p > 1 else ''}"
        rows += [
            Row(what, rate, "/s", TARGET, "limit", f"≥ {TARGET}", rate >= TARGET),
            Row("... over processor time", other[f"busy {p} False"], "/s", TARGET, "limit"),
            Row("... with controls, asked runs only", found[f"{p} True"], "/s"),
            Row("... with controls, every cell", other[f"cells {p} True"], "/s"),
        ]
    return rows


if __name__ == "__main__":
    report(rows())
