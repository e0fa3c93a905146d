"""One cell of a study: an arm on a scenario at a fault rate with a seed, or a control beside it."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentlab.base.documents import Json, canonical, digest, is_json
from agentlab.base.fields import thaw
from agentlab.environments.fault_plan import FaultPlan, Visibility
from agentlab.environments.scenario import Scenario
from agentlab.errors import StudyError, raised
from agentlab.lab.lab import Lab
from agentlab.lab.named import connected
from agentlab.lm.model import Model
from agentlab.lm.recording import Recording
from agentlab.minds.strategies.triggers import BROKEN
from agentlab.plans.graph import critical_path
from agentlab.plans.task_plan import TaskPlan
from agentlab.runs.people import waits_for
from agentlab.runs.run import Run
from agentlab.state.records import DeliveredFault, Fault
from agentlab.study.controls import ceiling, floor
from agentlab.study.endpoints import Streaks, endpoint_calls
from agentlab.study.grid import AXES, Arm, workflow_of
from agentlab.study.plan_scores import parallel_efficiency, speed_up
from agentlab.tools.tool import Effect
from agentlab.trace.packing import pack_spans
from agentlab.trace.span import Span
from agentlab.trace.stored import CellResult

ARM, FLOOR, CEILING = "arm", "floor", "ceiling"
DONE, CRASHED, INFRASTRUCTURE = "done", "crashed", "infrastructure"
LABS = 256
"""How many labs a runner keeps."""


@dataclass(frozen=True)
class Cell:
    """One cell.

    Parameters
    ----------
    role : {"arm", "floor", "ceiling"}
    arm : Arm or None
        None for the controls.
    scenario : Scenario
    fault_rate : float
    seed : int
    asked : bool
        False when the study added it as a control: a fault-free twin, a floor, a ceiling.
    attempt : int
        1, or more when a cell that failed is run again.
    fault_free : bool
        No fault strikes, whatever the fault plan orders beside its rate.
    """

    role: str
    arm: Arm | None
    scenario: Scenario
    fault_rate: float
    seed: int
    asked: bool = True
    attempt: int = 1
    fault_free: bool = False

    def key(self, faults: FaultPlan | None) -> str:
        """Return the identity of the cell: a hash of all that its outcome depends on."""
        return digest(
            [
                self.role,
                None if self.arm is None else self.arm.key(),
                self.scenario.digest,
                None if faults is None else faults.digest,
                self.fault_rate,
                self.seed,
                *(["fault-free"] if self.fault_free else []),
            ]
        )

    def faults(self, study: FaultPlan | None) -> FaultPlan:
        """Return what may go wrong here, in a study with or without a fault plan of its own."""
        plan = self.scenario.faults if study is None else study
        if self.fault_free:
            return plan.fault_free()
        return plan if plan.rate == self.fault_rate else plan.replace(rate=self.fault_rate)


class Runner:
    """Runs cells, in any thread; what crashes is a result too. In another process it is a new one.

    Parameters
    ----------
    faults : FaultPlan or None
        Instead of the scenarios' own.
    with_traces : bool
        Keep the spans.
    record : Recording, optional
        See ``make_lab``.
    max_lm_errors : int
        Calls in a row that an endpoint may fail in cells run one after the other; 0: any number.
    """

    def __init__(
        self, faults: FaultPlan | None, with_traces: bool = True, record: Recording | None = None,
        max_lm_errors: int = 0,
    ) -> None:  # fmt: skip
        self.faults, self.with_traces, self.record = faults, with_traces, record
        self.max_lm_errors = max_lm_errors
        self._labs: dict[tuple[int, str], Lab] = {}
        self._running: set[Run] = set()
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Runner, (self.faults, self.with_traces, self.record, self.max_lm_errors)

    def run_all(self, cells: Iterable[tuple[str, Cell]]) -> list[CellResult]:
        """Run cells, each with its key, one after the other, up to where an endpoint fails."""
        results, streaks = [], Streaks(self.max_lm_errors)
        for key, cell in cells:
            results.append(self.run(key, cell))
            if streaks.broken(results[-1].calls):
                break
        return results

    def run(self, key: str, cell: Cell) -> CellResult:
        """Run a cell and return what it came to."""
        started = time.perf_counter()
        row = _identity(cell, self.faults)
        spans, status, run = b"", DONE, None
        asked: list[Span] = []
        try:
            if cell.role == ARM:
                run = self._started(cell)
                run.recorder.sinks = (*run.recorder.sinks, asked.append)  # a crash drops spans
                self._finish(run)
                measured = _measured(run)
                if not is_json(measured):  # it crashes this cell and not its whole batch
                    canonical(measured)
                row |= measured
                spans = pack_spans(run.spans) if self.with_traces else b""
            else:
                row |= _control(cell, self.faults)
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # SystemExit, for one: it ends this cell and nothing else
            status = CRASHED
            row |= {
                "success": False,
                "error": raised(e),
                "traceback": traceback.format_exc(limit=-8),
            }
        calls = () if run is None else endpoint_calls(run.lab.model, asked)
        causes = [call.cause for call in calls if call.cause is not None]
        if causes:  # whatever the run came to, a crash too, tells nothing of its arm
            status = INFRASTRUCTURE
            row |= {"success": False, INFRASTRUCTURE: causes[0]}
        row["wall_seconds"] = time.perf_counter() - started
        return CellResult(key, status, row, spans, cell.attempt, calls)

    def pause(self) -> None:
        """Let the runs under way end after the node that they are in."""
        for run in list(self._running):
            run.pause()

    def _started(self, cell: Cell) -> Run:
        assert cell.arm is not None
        lab = self._lab(cell)
        plan = cell.faults(self.faults)
        return Run.start(workflow_of(cell.arm), lab.bind(seed=cell.seed, faults=plan))

    def _finish(self, run: Run) -> None:
        self._running.add(run)
        try:
            run.finish()
        finally:
            self._running.discard(run)
        if not run.finished:
            raise StudyError(f"{waits_for(run.waiting)}; in a study, give the arm a review")

    def _lab(self, cell: Cell) -> Lab:
        """Return a cell's lab; cells that differ in nothing but seed and rate share one."""
        assert cell.arm is not None
        like = (id(cell.scenario), cell.arm.label)
        with self._lock:  # threads that come at once must not connect to one model twice
            if like not in self._labs:
                if len(self._labs) >= LABS:  # cells come scenario by scenario
                    self._labs.clear()
                self._labs[like] = make_lab(cell, self.faults, self.record)
            return self._labs[like]


def _identity(cell: Cell, faults: FaultPlan | None) -> dict[str, Json]:
    scenario = cell.scenario
    return {
        "role": cell.role,
        "asked": cell.asked,
        **called(cell),
        "scenario": scenario.id,
        "environment": scenario.environment,
        "difficulty": scenario.difficulty,
        "cluster": scenario.cluster or scenario.id,
        "fault_rate": cell.fault_rate,
        "fault_free": cell.fault_rate == 0 and cell.faults(faults).by_rate_alone,
        "seed": cell.seed,
    }


def called(cell: Cell) -> dict[str, Json]:
    """Return the columns that say what a cell's arm is called; that may change as a study grows."""
    if cell.arm is None:
        return {"arm": cell.role, **dict.fromkeys(AXES)}
    return {"arm": cell.arm.label, **cell.arm.factors}


def make_lab(cell: Cell, faults: FaultPlan | None, record: Recording | None = None) -> Lab:
    """Return the lab of an arm's cell.

    Parameters
    ----------
    cell : Cell
    faults : FaultPlan or None
    record : Recording, optional
        Serve the model's calls from this recording, and write there those it does not have.
    """
    assert cell.arm is not None
    cell.arm.check_made()
    model: str | Model | None = cell.arm.lm
    if model is not None and record is not None:
        model = connected(model) if isinstance(model, str) else model
        model = model.recorded(record, cell.arm.asked_at)
    return Lab(
        cell.scenario, seed=cell.seed, faults=cell.faults(faults),
        **{**cell.arm.options, "lm": model},
    )  # fmt: skip


def _measured(run: Run) -> dict[str, Json]:
    """Return what a finished run came to: the columns of the ``runs`` frame."""
    state, verdict = run.state, run.verdict
    plan, tools = state.task_plan, run.lab.tools
    executed = [r for r in state.task_results if r.attempt]
    failed = sum(r.status in BROKEN for r in executed)
    silent = sum(d.fault.visibility is Visibility.SILENT for d in state.delivered)
    return {
        "success": verdict.success,
        "reasons": "; ".join(verdict.reasons),
        "stopped_by": state.stopped_by,
        "error": state.error,
        "answer": thaw(state.answer),
        "replans": state.replan_count,
        "plans": state.plans,
        "plan_steps": 0 if plan is None else len(plan.steps),
        "executions": state.executions,
        "failed_executions": failed,
        "retries": sum(n - 1 for n in state.attempts.values()),
        "tool_calls": state.tool_calls,
        "lm_calls": state.lm_calls,
        "lm_tokens": state.lm_tokens,
        "lm_misses": sum(
            (s.error or "").startswith("RecordingMiss:") for s in run.recorder.of_kind("lm")
        ),
        "parse_failures": state.parse_failures,
        "sim_seconds": state.now,
        **timing(run),
        "visits": len(run.visited),
        "faults_delivered": len(state.delivered),
        "faults_new": new_faults(state.delivered),
        "faults_silent": silent,
        "first_fault": fault_class(state.delivered[0].fault) if state.delivered else None,
        "changed_state": any(
            c.committed and tools[c.tool].effect is not Effect.READ  # whatever was told
            for c in state.calls
        ) or any(d.committed for d in state.delivered if d.tool in tools
                 and tools[d.tool].effect is not Effect.READ),
    }  # fmt: skip


def new_faults(delivered: Iterable[DeliveredFault]) -> int:
    """Count the faults delivered that did not stand yet; an outage is one, whatever it meets."""
    found = list(delivered)
    outages = {(d.tool, d.fault.until) for d in found if d.fault.source == "outage"}
    return len(outages) + sum(d.fault.source not in ("standing", "outage") for d in found)


def fault_class(fault: Fault) -> str:
    """Return kind × persistence × visibility of a fault."""
    return f"{fault.kind} × {fault.persistence} × {fault.visibility}"


def timing(run: Run) -> dict[str, float | None]:
    """Return how parallel a run was, from its step spans: seconds, and ratios.

    Returns
    -------
    dict
        ``makespan``: from the first start of a step to the last end; ``critical_path``: the longest
        chain of dependent steps, over all plans of the run, attempts of a step added up;
        ``parallel_efficiency``: critical path over makespan, in [0, 1]; ``speed_up``: the time of
        all attempts over the makespan. Ratios are None where nothing took time.
    """
    plans = [r.before for r in run.state.replan_history]
    plans += [run.state.task_plan] if run.state.task_plan is not None else []
    steps = {s.step_id: s for plan in plans for s in plan.steps}  # in a topological order
    spans = [s for s in run.recorder.of_kind("step") if s.step_id in steps]  # no sub-agent's
    seconds: dict[str, float] = {}
    for span in spans:
        seconds[span.step_id] = seconds.get(span.step_id, 0.0) + span.sim_end - span.sim_start
    makespan = max((s.sim_end for s in spans), default=0.0)
    makespan -= min((s.sim_start for s in spans), default=0.0)
    whole = plans[0] if len(plans) == 1 else TaskPlan(steps=tuple(steps.values()))
    _, path = critical_path(whole, lambda s: seconds.get(s.step_id, 0.0))
    efficient = parallel_efficiency(path, makespan) if makespan else None
    return {
        "makespan": makespan, "critical_path": path, "parallel_efficiency": efficient,
        "speed_up": speed_up(seconds.values(), makespan) if makespan else None,
    }  # fmt: skip


def _control(cell: Cell, faults: FaultPlan | None) -> dict[str, Any]:
    if cell.role == FLOOR:
        return {"success": floor(cell.scenario)}
    found = ceiling(cell.scenario, cell.seed, cell.fault_rate, faults)
    return {
        "success": found.success,
        "sim_seconds": found.seconds,
        "found_by": found.found_by,
    }
