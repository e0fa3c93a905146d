"""Results of a study: what its folder holds, as frames, comparisons and single runs.

Nothing is written here, and what was read is kept until the study runs again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from agentlab.base.arguments import Flag, Number, takes
from agentlab.environments.fault_plan import FaultPlan
from agentlab.errors import StudyError, UnknownNameError, seen
from agentlab.lm.recording import Recording
from agentlab.runs.run import Run
from agentlab.study import frames
from agentlab.study.cells import ARM, Cell, called, make_lab
from agentlab.study.compare import Options, compare
from agentlab.study.grid import workflow_of
from agentlab.study.leaderboard import leaderboard
from agentlab.study.sample_size import Design, power_table, seeds_table
from agentlab.trace.compare import ReplayReport, first_difference
from agentlab.trace.packing import reading
from agentlab.trace.served import served_calls
from agentlab.trace.span import Span
from agentlab.trace.store import Store

if TYPE_CHECKING:
    import pandas as pd

FRAMES = {
    "runs": "runs", "steps": "steps", "spans": "spans", "decisions": "decisions",
    "faults": "faults_delivered", "lm_calls": "lm_calls",
}  # fmt: skip
"""Name of a frame to the attribute that holds it."""

PILOT = ("arm", "scenario", "cluster", "fault_rate", "seed", "success", "infrastructure")
"""Columns that a pilot must have."""


class Results(ABC):
    """The results of the cells of a study."""

    out: Path
    faults: FaultPlan | None
    record: Path | None

    @abstractmethod
    def cells(self) -> Iterator[Cell]:
        """Yield every cell."""

    @abstractmethod
    def _design(self) -> Design:
        """Return the size of the study."""

    def _keyed(self) -> dict[str, Cell]:
        return {cell.key(self.faults): cell for cell in self.cells()}

    def _recording(self) -> Recording | None:
        return None if self.record is None else Recording(self.record, "replay_or_call")

    def _store(self) -> Store:
        return Store(self.out, read_only=True)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a run of this study's grid, with floor, ceiling and twin (``frames.RUNS``)."""
        mine = self._keyed()
        with self._store() as store:
            results = [r for key, r in store.cells().items() if key in mine]
        with reading(self.out):
            for r in results:
                r.row.update(called(mine[r.cell]), asked=mine[r.cell].asked)
            return frames.runs_frame(results)

    @cached_property
    def spans(self) -> pd.DataFrame:
        """A row a span."""
        return self._joined()

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row an execution of a step."""
        return self._joined("step")

    @cached_property
    def decisions(self) -> pd.DataFrame:
        """A row a decision: trigger, events, action, reasoning, and what became of the plan."""
        return frames.decisions_frame(self._joined("decision"))

    @cached_property
    def faults_delivered(self) -> pd.DataFrame:
        """A row a delivered fault, with kind, persistence, visibility and source."""
        spans = self._joined("fault").drop(columns=["kind"]).rename(columns={"name": "fault"})
        return frames.unpacked(spans, "output")

    @cached_property
    def lm_calls(self) -> pd.DataFrame:
        """A row a call of a language model, with prompt, reply, tokens and cost."""
        return frames.lm_calls_frame(self._joined("lm"))

    def _joined(self, *kinds: str) -> pd.DataFrame:
        with self._store() as store:
            spans = frames.spans_frame(store, kinds)
        return frames.joined(spans, self.runs)

    def _forget(self) -> None:
        """Read the frames anew when they are next asked for."""
        for name in FRAMES.values():
            self.__dict__.pop(name, None)

    @takes(name=str)
    def frame(self, name: str) -> pd.DataFrame:
        """Return a frame: "runs", "steps", "spans", "decisions", "faults" or "lm_calls".

        Raises
        ------
        UnknownNameError
            There is no such frame.
        """
        if name not in FRAMES:
            raise UnknownNameError("frame", name, FRAMES)
        frame: pd.DataFrame = getattr(self, FRAMES[name])
        return frame

    def compare(
        self, metric: str = "success", by: str = "strategy", baseline: str | None = None,
        **options: Unpack[Options],
    ) -> pd.DataFrame:  # fmt: skip
        """Compare the levels of a factor, paired by task (see ``agentlab.study.compare``)."""
        return compare(self.runs, metric, by, baseline, **options)

    @takes(count_infrastructure=Flag)
    def leaderboard(self, *, count_infrastructure: bool = False) -> pd.DataFrame:
        """Rank the arms (see ``agentlab.study.leaderboard``)."""
        return leaderboard(self.runs, count_infrastructure=count_infrastructure)

    def power(self, pilot: Results | pd.DataFrame | None = None) -> pd.DataFrame:
        """Say what a study of this size tells, judged by a pilot.

        Parameters
        ----------
        pilot : Study or DataFrame, optional
            A study, or its ``runs`` frame, of any size from 2 clusters and 2 seeds on; default:
            the runs of this one.

        Returns
        -------
        DataFrame
            A row an arm of the pilot (b is missing) and a row a pair: a, b; the variances cluster,
            task and seed of success, or of a minus b; half_width, the expected half width of its
            own 95 % interval; smallest_difference, what all pairs together show with 80 % power.

        Raises
        ------
        StudyError
            The pilot is too small.
        """
        return power_table(self._pilot(pilot), self._design())

    @takes(width=Number)
    def seeds_for(self, width: float, pilot: Results | pd.DataFrame | None = None) -> pd.DataFrame:
        """Say how many seeds a task would give intervals of a width.

        Parameters
        ----------
        width : float
            Of a 95 % interval, from end to end, in (0, 2]; 0.1 is ± 5 points.
        pilot : Study or DataFrame, optional
            As for ``power``.

        Returns
        -------
        DataFrame
            A row an arm and a row a pair, as in ``power``: a, b; width, what this study's seeds
            give; seeds (missing: no number of seeds does it); clusters, how many would with this
            study's seeds; advice in words.

        Raises
        ------
        StudyError
            The pilot is too small, or there is no such width.
        """
        return seeds_table(self._pilot(pilot), self._design(), width)

    def _pilot(self, pilot: Results | pd.DataFrame | None) -> pd.DataFrame:
        if pilot is None:
            return self.runs
        frame = pilot.runs if isinstance(pilot, Results) else pilot
        frames.check_frame(frame, "pilot", PILOT, "a study, or its runs frame")
        return frame

    # ---- single runs -----------------------------------------------------------------------

    @takes(cell=str)
    def find(self, cell: str) -> tuple[str, Cell]:
        """Return the cell whose key starts with ``cell``.

        Raises
        ------
        StudyError
            None does, or several do.
        """
        found = [(k, c) for k, c in self._keyed().items() if k.startswith(cell) and c.role == ARM]
        if len(found) != 1:
            some = ", ".join(list(self.runs["cell"][:3]))
            problem = f"{len(found)} runs of this study start" if found else "no run of it starts"
            problem = f"{problem} with {seen(cell)}" if cell else "expected the key of a run"
            raise StudyError(
                f"{self.out}: {problem}; keys look like {some} (column 'cell' of the runs frame)"
            )
        return found[0]

    def trace(self, cell: str) -> list[Span]:
        """Return the stored spans of a run."""
        key, _ = self.find(cell)
        with self._store() as store:
            return store.trace(key)

    def rerun(self, cell: str) -> Run:
        """Return a fresh run of a cell, not yet started: to step, fork or finish.

        A TrustError where the study was opened and the user has not agreed to what it names.
        """
        return self._fresh(cell, replay=False)

    @abstractmethod
    def _agreed(self, replay: bool = False) -> None:
        """Go on if the user agrees to what a folder names (``agentlab.study.trusted``)."""

    def _fresh(self, cell: str, *, replay: bool) -> Run:
        _, found = self.find(cell)
        self._agreed(replay)
        assert found.arm is not None
        lab = make_lab(found, self.faults, self._recording())
        return Run.start(workflow_of(found.arm), lab)

    def replay(self, cell: str) -> ReplayReport:
        """Run a stored cell again and compare it with its stored spans.

        Language models are not asked: the stored spans hold what they said.
        """
        stored = self.trace(cell)
        recorded = [s.row() for s in stored]
        if not recorded:
            raise StudyError("this run has no stored trace (it crashed, or traces were off)")
        fresh, raised = self._fresh(cell, replay=True), None
        served = served_calls(stored)
        run = Run(fresh.workflow, fresh.lab, [fresh.state], [], journal=served)
        try:
            run.finish()
        except Exception as e:  # the recorded run raised nothing, so this is where they part
            raised = f"visit {len(run.visited)}: now raises {type(e).__name__}: {e}"
        visits = 1 + max(row[4] for row in recorded)
        now = [s.row() for s in run.spans]
        same = recorded[1:] if raised is None else recorded[1 : len(now)]
        problem = first_difference(same, now[1:]) or raised
        if problem is None:
            return ReplayReport(True, visits, visits, served.served)
        matched = 0
        for visit in range(visits):
            pair = [[row for row in rows[1:] if row[4] == visit] for rows in (recorded, now)]
            if first_difference(*pair) is not None:
                break
            matched += 1
        return ReplayReport(False, visits, matched, served.served, problem)
