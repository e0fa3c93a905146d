"""What the benchmarks share: a clock, interleaved repetitions, and a table with ratios and targets.

Two programs that are compared are run in turn, several times, and the medians are compared: what
the machine does beside hits both. Ratios travel between machines; absolute times do not.

``clock`` leaves out the time that the thread was ready to run and waited for a processor, which
Linux counts. So other work on the machine does not count as ours; waiting for the disk does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    ours: float
    unit: str
    peer: float | None = None
    """The same of the peer, or the limit."""
    peer_name: str = ""
    target: str = ""
    met: bool | None = None
    """None: reported without a target."""

    @property
    def ratio(self) -> float | None:
        """Peer over ours: how many times under the peer we are (for rates: ours over theirs)."""
        if not self.peer or not self.ours:
            return None
        return self.ours / self.peer if self.unit.endswith("/s") else self.peer / self.ours


def found_in(name: str, *modules: str) -> Any:
    """Return what the package calls ``name``, from the first of these modules that has it.

    What ``import agentlab as al`` does not offer has moved between revisions, and a benchmark also
    runs on an earlier one (``run.py --before``).
    """
    for module in modules:
        try:
            return getattr(import_module(f"agentlab.{module}"), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"no {name!r} in {', '.join(modules)} of agentlab")


def clock() -> float:
    """Return seconds of wall time, less those that this thread waited for a processor (Linux)."""
    now = time.perf_counter()
    try:
        with open("/proc/thread-self/schedstat") as file:
            return now - int(file.read().split()[1]) / 1e9
    except OSError:
        return now


def interleaved(
    programs: Mapping[str, Callable[[], float]], repetitions: int
) -> dict[str, list[float]]:
    """Run every program in turn, ``repetitions`` times; return what each returned."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repetitions):
        for name, program in programs.items():
            gc.collect()
            found[name].append(program())
    return found


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each."""
    return {name: median(values) for name, values in found.items()}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text: what, ours, peer or limit, ratio, target, met."""
    lines = [("what", "ours", "peer or limit", "ratio", "target", "met")]
    for r in rows:
        peer = "" if r.peer is None else f"{_number(r.peer)} {r.peer_name}"
        ratio = "" if r.ratio is None else f"{_number(r.ratio)}×"
        met = {True: "yes", False: "NO", None: ""}[r.met]
        lines.append((r.what, f"{_number(r.ours)} {r.unit}", peer, ratio, r.target, met))
    return _aligned(lines)


def compared(pairs: Sequence[tuple[Sequence[Row], Sequence[Row]]]) -> tuple[str, bool]:
    """Return before : after of every figure as text, and whether one is slower by a twentieth.

    Parameters
    ----------
    pairs : sequence of (rows before, rows after)
        One a round. The ratio is the median of the rounds' own, so what the machine does beside
        hits both; more is better throughout.
    """
    lines, worse = [("what", "before", "after", "before : after", "")], False
    earlier = [{r.what: r for r in before} for before, _ in pairs]
    for row in pairs[0][1]:
        now = [next(r for r in after if r.what == row.what).ours for _, after in pairs]
        then = [rows[row.what].ours for rows in earlier if row.what in rows]
        if len(then) < len(now) or not all(then) or not all(now):
            lines.append((row.what, "", f"{_number(median(now))} {row.unit}", "", ""))
            continue
        ratio = median(a / b for a, b in zip(then, now, strict=True))
        ratio = 1 / ratio if row.unit.endswith("/s") else ratio
        worse |= ratio < 0.95
        before, after = (f"{_number(median(side))} {row.unit}" for side in (then, now))
        lines.append((row.what, before, after, f"{ratio:.2f}", "SLOWER" if ratio < 0.95 else ""))
    return _aligned(lines), worse


def _aligned(lines: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * w for w in widths))
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
                     for line in lines)  # fmt: skip


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def load() -> str:
    """Say how busy the machine is: on a busy one, wall times are too long."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def report(rows: Sequence[Row]) -> None:
    """Print the rows: as JSON lines when ``run.py`` asks for them, else as a table."""
    if "--json" in sys.argv:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        print(table(rows))
        print(load())
