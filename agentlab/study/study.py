"""A study: arms × scenarios × fault rates × seeds, run, stored and read as DataFrames.

Every cell is keyed by all that its outcome depends on, so a study goes on where it was stopped and
grows when its grid does. Workers only compute; the parent alone writes, a batch of finished cells
in one transaction. A killed study loses the cells under way and nothing else.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.base.arguments import Flag, takes
from agentlab.base.documents import Json
from agentlab.base.shown import shown_by
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.guard import guarded
from agentlab.environments.named import get_environment
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite
from agentlab.errors import StudyError, seen
from agentlab.lab.named import connected
from agentlab.lm.recording import Recording
from agentlab.runs.trust import Answer, agree, approve, in_replay
from agentlab.study.bounds import check_cells, seeds_of, several
from agentlab.study.cells import ARM, CEILING, CRASHED, FLOOR, INFRASTRUCTURE, Cell, Runner
from agentlab.study.endpoints import MAX_LM_ERRORS, Streaks, check_access, stopped
from agentlab.study.given import flag_of, folder_of, plan_of, rates_of, suite_of
from agentlab.study.grid import Arm, arm_from_json, check_arms, tell_apart
from agentlab.study.pool import computed
from agentlab.study.progress import Tally, showing
from agentlab.study.provenance import code_fingerprint, versions
from agentlab.study.results import Results
from agentlab.study.sample_size import Design
from agentlab.study.trusted import study_uses
from agentlab.trace.packing import reading
from agentlab.trace.store import Store
from agentlab.trace.stored import CellResult

if TYPE_CHECKING:
    import pandas as pd


class Study(Results):
    """Arms on a suite, at fault rates, with seeds.

    Parameters
    ----------
    arms : Arm or sequence of Arm
        Made by ``agentlab.grid``.
    suite : str, Path, Suite or sequence of Scenario
        A name, a JSONL file or scenarios.
    fault_rate : float or sequence of float
        Probabilities, 0 to 1, that a call meets a fault.
    seeds : int or sequence of int
        A number n stands for 0 ... n-1.
    faults : FaultPlan, optional
        What may go wrong, instead of what the scenarios say; its rate does not matter.
    out : str or Path, optional
        Folder of the results; default: a fresh temporary folder.
    controls : bool
        Add floor, ceiling and fault-free twin cells.
    traces : bool
        Keep every span.
    record : str or Path, optional
        Serve language models from this recording, and write there the calls it does not have.

    Raises
    ------
    StudyError, UnknownNameError, ConfigError, ScenarioError
        The grid cannot be built.
    """

    def __init__(
        self,
        arms: Arm | Sequence[Arm],
        suite: str | Path | Suite | Sequence[Scenario],
        *,
        fault_rate: float | Sequence[float] = 0.0,
        seeds: int | Sequence[int] = 10,
        faults: FaultPlan | None = None,
        out: str | Path | None = None,
        controls: bool = True,
        traces: bool = True,
        record: str | Path | None = None,
    ) -> None:
        arms = check_arms(arms)
        if out is not None:
            _tell_unclear(arms)
        self._hold(arms, suite, fault_rate, seeds, faults, out, controls, traces, record)
        _check_reviews(self.arms, self.suite)

    def _hold(
        self, arms: Sequence[Arm], suite: str | Path | Suite | Sequence[Scenario],
        fault_rate: float | Sequence[float], seeds: int | Sequence[int], faults: FaultPlan | None,
        out: str | Path | None, controls: bool, traces: bool = True,
        record: str | Path | None = None,
    ) -> None:  # fmt: skip
        self.arms = tuple(arms)
        tell_apart(self.arms)
        self.suite = suite_of(suite)
        self.fault_rates = rates_of(fault_rate)
        self.seeds = seeds_of(seeds)
        check_cells(len(self.arms), len(self.suite), len(self.fault_rates), len(self.seeds))
        self.faults = plan_of(faults)
        self.controls = flag_of("controls", controls)
        self.traces = flag_of("traces", traces)
        self.record = folder_of("record", record)
        self._trust: Answer | None = None  # the user made it
        self.out = folder_of("out", out) or Path(tempfile.mkdtemp(prefix="agentlab-"))

    def __repr__(self) -> str:
        return (
            f"Study({len(self.arms)} arms × {self.suite.name} ({len(self.suite)}) × "
            f"{len(self.fault_rates)} rates × {len(self.seeds)} seeds in {self.out})"
        )

    _repr_html_ = shown_by("agentlab.views.page.records:study_page")

    # ---- the cells -------------------------------------------------------------------------

    def cells(self) -> Iterator[Cell]:
        """Yield every cell: controls first, then scenario by scenario, so that pairs come close."""
        rates = list(self.fault_rates)
        for scenario in self.suite:
            plan = scenario.faults if self.faults is None else self.faults
            twins = self.controls and not (plan.by_rate_alone and 0.0 in rates)
            if self.controls:
                yield Cell(FLOOR, None, scenario, 0.0, 0, asked=False)
                for rate in rates:
                    for seed in self.seeds:
                        yield Cell(CEILING, None, scenario, rate, seed, asked=False)
            for arm in self.arms:
                for seed in self.seeds:
                    if twins:
                        struck = not plan.by_rate_alone  # also at rate 0
                        yield Cell(ARM, arm, scenario, 0.0, seed, asked=False, fault_free=struck)
                    for rate in rates:
                        yield Cell(ARM, arm, scenario, rate, seed)

    def _design(self) -> Design:
        clusters = {scenario.cluster or scenario.id for scenario in self.suite}
        return Design(len(clusters), len(self.suite) / len(clusters), len(self.seeds))

    # ---- running ---------------------------------------------------------------------------

    @takes(
        backend=str,
        progress=bool | Callable[..., Any] | None,
        allow_mixed=Flag,
        retry_failed=Flag,
        retry_crashed=Flag,
        lock=Flag,
    )
    def run(
        self,
        *,
        processes: int | None = None,
        threads: int | None = None,
        backend: str = "loky",
        progress: bool | Callable[[int, int, float], None] | None = None,
        allow_mixed: bool = False,
        retry_failed: bool = False,
        retry_crashed: bool = False,
        max_lm_errors: int | None = MAX_LM_ERRORS,
        lock: bool = True,
    ) -> pd.DataFrame:
        """Run what is not yet run, and return the ``runs`` frame.

        Parameters
        ----------
        processes : int, optional
            Workers; default: the number of processors. 1 runs in this process.
        threads : int, optional
            Runs of arms that ask a language model under way at once, in all processes together;
            more than 16 are shared out among the processes. Planner and strategy of an arm are
            shared by its threads. Default: 8, or as many as there are processes where the models
            are scripts, recordings or servers on this machine.
        backend : str
            A joblib backend: "loky", "threading", or "dask", "ray" when registered with joblib.
        progress : bool or callable, optional
            True shows a bar with the running success rate (the default where someone looks); a
            callable is told (finished, all, success rate so far).
        allow_mixed : bool
            Add to results that another version of the code made.
        retry_failed : bool
            Run again the cells that crashed or whose language model's endpoint failed.
        retry_crashed : bool
            The same, by its old name.
        max_lm_errors : int, optional
            Stop when so many LM calls of one endpoint, each after its retries, failed for
            infrastructure without a reply between, in all workers together; 0 or None: never.
        lock : bool
            See to it that nobody else runs cells in the folder meanwhile; False where the file
            system has no locks (see ``agentlab.trace.owner``).

        Returns
        -------
        DataFrame
            A row a run (see ``agentlab.study.frames.RUNS``).

        Raises
        ------
        StoreError, StudyError
            The results folder cannot be used, an endpoint denies access or does not know its model
            (asked before the first cell), or one failed too often; what was finished is kept.
        KeyboardInterrupt
            Ctrl-C; what was finished is kept.
        """
        self._forget()
        workers = several(os.cpu_count() or 1 if processes is None else processes, "processes")
        if threads is not None:
            several(threads, "threads")
        self._agreed()
        streaks = Streaks(max_lm_errors)
        with Store(self.out, lock=lock) as store:
            store.study_owner().claim()  # until the store is closed
            self._register(store, allow_mixed)
            tape = self._recording()
            done = store.cells()
            todo = self._todo(done, retry_failed or retry_crashed)
            if arms := {c.arm.label: c.arm for _, c in todo if c.arm is not None}:
                check_arms(arms.values())  # those of a folder have only been read so far
                check_access(arms.values(), tape)
                _tell_seedless(arms.values(), tape, self.seeds)
            with showing(progress, len(todo)) as tell:
                tally = Tally()
                runner = Runner(self.faults, self.traces, tape, streaks.limit)
                with closing(computed(todo, runner, workers, threads, backend)) as batches:
                    for batch in batches:
                        store.add_cells(batch)
                        tally.add(batch)
                        tell(tally.finished, len(todo), tally.rate, tally.failed)
                        if row := streaks.broken(call for r in batch for call in r.calls):
                            raise stopped(row, self.out)
        if tape is not None:
            tape.close()
        return self.runs

    def _todo(self, done: dict[str, CellResult], retry: bool) -> list[tuple[str, Cell]]:
        todo = []
        for key, cell in self._keyed().items():
            before = done.get(key)
            if before is None:
                todo.append((key, cell))
            elif retry and before.status in (CRASHED, INFRASTRUCTURE):
                todo.append((key, replace(cell, attempt=before.attempt + 1)))
        return todo

    def _register(self, store: Store, allow_mixed: bool) -> None:
        """Write down what is needed to reproduce; refuse results of other code."""
        meta = store.meta()
        if "definition" not in meta and store.run_ids():
            raise StudyError(f"{self.out}: holds kept runs and no study; choose another folder")
        code = code_fingerprint()
        before = meta.get("code", [])
        if before and code not in before and not allow_mixed:
            raise StudyError(
                f"{self.out}: these results were made by another version of the code "
                f"({', '.join(before)}; this is {code}); choose another folder, or pass "
                "allow_mixed=True (--allow-mixed) to add to them"
            )
        known = meta.get("definition")
        definition = self.definition()
        if known != definition or code not in before:
            scenarios = {**meta.get("scenarios", {}), **{s.digest: s.to_json() for s in self.suite}}
            store.add_meta(
                code=sorted({*before, code}), definition=definition, scenarios=scenarios,
                versions=versions(),
            )  # fmt: skip
        approve(study_uses(self.arms, self.suite))

    def _agreed(self, replay: bool = False) -> None:
        if self._trust is not None:
            uses = study_uses(self.arms, self.suite)
            agree(self.out, in_replay(uses) if replay else uses, self._trust)

    def definition(self) -> dict[str, Json]:
        """Return the study as JSON: enough to open it again elsewhere."""
        return {
            "arms": [a.to_json() for a in self.arms],
            "suite": self.suite.name,
            "scenarios": [s.digest for s in self.suite],
            "fault_rates": list(self.fault_rates),
            "seeds": list(self.seeds),
            "faults": None if self.faults is None else self.faults.to_json(),
            "controls": self.controls,
        }

    @classmethod
    def open(cls, out: str | Path, *, trust: Answer = False) -> Study:
        """Open a study from its results folder, to read it or to go on with it.

        Nothing of it is looked up or imported: reading needs no object of anyone. What an arm is
        made of is looked up when it is run.

        Parameters
        ----------
        out : str or Path
        trust : bool or callable
            Whether the user agrees to what it names, where another made it, when cells are run or
            replayed (see ``agentlab.runs.trust``); else that is a TrustError.

        Raises
        ------
        StudyError, StoreError
            The folder holds no study.
        """
        with Store(out, read_only=True) as store:
            meta = store.meta()
        if "definition" not in meta:
            raise StudyError(f"{out}: holds no study")
        with reading(out):
            study = cls._stored(out, meta)
        study._trust = trust
        return study

    @classmethod
    def _stored(cls, out: str | Path, meta: dict[str, Any]) -> Study:
        known = meta["definition"]
        scenarios = [Scenario.model_validate(meta["scenarios"][d]) for d in known["scenarios"]]
        study = cls.__new__(cls)
        faults = known["faults"]
        study._hold(
            [arm_from_json(a) for a in known["arms"]], Suite(known["suite"], scenarios),
            known["fault_rates"], known["seeds"],
            None if faults is None else FaultPlan.model_validate(faults), out, known["controls"],
        )  # fmt: skip
        return study


def _check_reviews(arms: Sequence[Arm], suite: Suite) -> None:
    """Refuse arms that would wait for people where a tool of a world needs approval."""
    for name in dict.fromkeys(s.environment for s in suite):
        asks = [t.name for t in guarded(get_environment(name)).tools() if t.needs_approval]
        waits = next((a for a in arms if a.review is None), None) if asks else None
        if waits is not None:
            raise StudyError(
                f"arm {seen(waits.label)}: {asks[0]} of {seen(name)} needs approval, and a study "
                "asks nobody: give review='approve', 'reject' or a function"
            )


def _tell_unclear(arms: Iterable[Arm]) -> None:
    """Say at once what a study cannot be resumed for, and what to do about it."""
    found = dict.fromkeys(text for arm in arms for text in arm.unclear())
    if found:
        warnings.warn(
            "this study cannot be resumed by another process, as these objects cannot be told "
            f"from others there: {'; '.join(found)}. Give such an object a name, by "
            "agentlab.register(kind, name, ...) and that name in the grid, or by an attribute "
            "'name'; or a method arm_key() that returns what tells it from others, as JSON",
            UserWarning,
            stacklevel=3,
        )


def _tell_seedless(arms: Iterable[Arm], tape: Recording | None, seeds: Sequence[int]) -> None:
    """Say which recordings give every seed the same reply: those made before lines had seeds."""
    if len(seeds) < 2:
        return
    named = {lm for a in arms if isinstance(lm := a.lm, str) and lm.partition(":")[0] == "recorded"}
    for known in (tape, *(connected(lm).recording for lm in sorted(named))):
        alike = 0 if known is None else sum(line.get("seed") is None for line in known.lines())
        if known is not None and alike:
            warnings.warn(
                f"{known.path}: {alike} of {len(known)} calls were recorded without a seed, and "
                f"{len(seeds)} seeds are served them: one draw of the model, no repetitions of it",
                UserWarning,
                stacklevel=3,
            )
