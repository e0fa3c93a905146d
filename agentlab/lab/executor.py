"""The executor: carries steps out. One interface: submit, wait for the next finished, cancel.

This one lives in simulated time. What is under way is data in the state: a step is checked when it
starts and takes effect when it finishes; ``wait`` moves time on to the next finish, ties broken by
submission number. A step that needs resources takes them all at once or does not start: it stays
pending, nothing is counted and no fault is drawn, until it is submitted when they are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from agentlab.base.documents import Json
from agentlab.base.schemas import check_schema
from agentlab.base.trail import At, More
from agentlab.base.values import validated
from agentlab.errors import (
    EnvironmentContractError,
    ReferenceError_,
    ReplayError,
    raised,
    seen,
    suggest,
)
from agentlab.lab.approval import admitted
from agentlab.lab.bench import Bench, StepOutcome
from agentlab.lab.faults import advance
from agentlab.lab.hearing import published
from agentlab.lab.scheduling import capacities, lacking, startable, waits
from agentlab.plans.references import resolve
from agentlab.plans.task_plan import InterruptionContext, PlanStatus, StepStatus, TaskStep
from agentlab.state.events import SEVERITY, ChangeType, ContextChangeEvent, Severity
from agentlab.state.records import TaskResult, UnderWay
from agentlab.state.state import State


class SimulatedExecutor:
    """Carries steps out in simulated time; everything it knows is in the state."""

    wall = False
    abandoned: Sequence[Any] = ()

    def for_run(self) -> SimulatedExecutor:
        """Return this one."""
        return self

    def submit(self, state: State, bench: Bench, step: TaskStep) -> State:
        """Start a step, or fail it at once when it cannot start."""
        if step.action_type not in bench.actions:  # put in by an edit: planners are checked
            near = suggest(step.action_type, bench.actions)
            text = f"unknown action type {seen(step.action_type)}; {near}"
            return settle(state, bench, step.step_id, StepOutcome(error=text), ran=False)
        try:
            parameters = resolve(step.parameters, state.results)
        except ReferenceError_ as e:
            return settle(state, bench, step.step_id, StepOutcome(error=str(e)), ran=False)
        if waits(state, step):
            return state
        attempt = state.attempts.get(step.step_id, 0) + 1
        action = bench.actions[step.action_type]
        if action.needs_approval(step, bench):
            state, allowed, ended = admitted(state, bench, step, parameters, attempt)
            if ended is not None:
                return settle(state, bench, step.step_id, ended, ran=False)
            if allowed is None:
                return state
            parameters = allowed
        assert state.task_plan is not None
        running = step.put(status=StepStatus.RUNNING, result=None, error=None)
        plan = state.task_plan.put_step(step.step_id, running)
        started = state.put(
            attempts=At(step.step_id, attempt),
            executions=state.executions + 1,
            submissions=state.submissions + 1,
            task_plan=plan if plan.status is PlanStatus.EXECUTING else plan.put(
                status=PlanStatus.EXECUTING
            ),
        )  # fmt: skip
        try:
            begun, under_way = action.begin(started, bench, step, parameters, attempt)
        except (ReplayError, EnvironmentContractError):
            raise
        except Exception as e:
            return settle(started, bench, step.step_id, StepOutcome(error=raised(e)))
        if under_way.holds:
            there = capacities(state.world, bench)
            if lacking(under_way.holds, (), there) is not None:
                text = f"needs {', '.join(under_way.holds)}, which is more than there is"
                return settle(state, bench, step.step_id, StepOutcome(error=text), ran=False)
            if lacking(under_way.holds, (r for u in state.under_way for r in u.holds), there):
                return state
        return begun.put(under_way=begun.under_way.append(under_way))

    def wait(self, state: State, bench: Bench) -> State:
        """Move time on to the next finish and carry its effect out."""
        index, under_way = min(
            enumerate(state.under_way),
            key=lambda item: (item[1].finishes, item[1].submission),
            default=(0, None),
        )
        wakes = next_try(state, bench)
        if wakes is not None and (under_way is None or wakes < under_way.finishes):
            return advance(state, wakes)
        if under_way is None:
            return state
        rest = state.under_way.delete(index)
        return finished(advance(state, under_way.finishes, under_way=rest), bench, under_way)

    def cancel(self, state: State, bench: Bench, step_ids: Iterable[str], reason: str) -> State:
        """Interrupt steps under way: they never take effect, and what they held is free again."""
        for step_id in step_ids:
            state = interrupted(state, bench, step_id, reason)
        return state

    def notify(self) -> None:
        """Do nothing: simulated waiting takes no wall time."""

    def stood(self, state: State) -> None:
        """Do nothing: simulated time stands by itself."""

    def rest(self) -> None:
        """Do nothing: all is in the state."""

    def close(self) -> None:
        """Do nothing: all is in the state."""


def next_try(state: State, bench: Bench) -> float | None:
    """Return when the next step that waits to be tried again may start; None: none may."""
    if not state.not_before or state.task_plan is None or len(state.under_way) >= bench.workers:
        return None
    later = sorted((at, i) for i, at in state.not_before.items() if at > state.now)
    waiting = {s.step_id for s in startable(state)} if later else ()
    return next((at for at, step_id in later if step_id in waiting), None)


def finished(state: State, bench: Bench, under_way: UnderWay) -> State:
    """Carry out the effect of what was under way until now, and settle its step."""
    assert state.task_plan is not None
    step = state.task_plan.step(under_way.step_id)
    with bench.recorder.span(
        "step", step.name or step.step_id, visit=state.visit, step_id=step.step_id,
        attempt=under_way.attempt, input=step.parameters, now=under_way.started,
    ) as span:  # fmt: skip
        action = bench.actions[under_way.action_type]
        with bench.recorder.span(
            "action", action.type, visit=state.visit, step_id=step.step_id,
            attempt=under_way.attempt, input=under_way.arguments, now=under_way.started,
        ) as inner:  # fmt: skip
            state, outcome = _carried_out(action, state, bench, under_way)
            inner.output, inner.error, inner.sim_end = outcome.result, outcome.error, state.now
        outcome = replace(_held(step, outcome, bench), started=under_way.started)
        state = settle(state, bench, step.step_id, outcome)
        span.output, span.error, span.sim_end = outcome.result, outcome.error, state.now
    return state


def interrupted(state: State, bench: Bench, step_id: str, reason: str) -> State:
    """Take a step off what is under way and settle it as interrupted; others stay as they are."""
    found = [(i, u) for i, u in enumerate(state.under_way) if u.step_id == step_id]
    if not found:
        return state
    assert state.task_plan is not None
    [(index, under_way)] = found
    step = state.task_plan.step(step_id)
    state = state.put(under_way=state.under_way.delete(index))
    with bench.recorder.span(
        "step", step.name or step_id, visit=state.visit, step_id=step_id,
        attempt=under_way.attempt, input=step.parameters, now=under_way.started,
    ) as span:  # fmt: skip
        ended = StepOutcome(error=reason, interrupted=True, started=under_way.started)
        state = settle(state, bench, step_id, ended)
        span.error, span.sim_end = reason, max(state.now, under_way.started)
    return state


def _carried_out(
    action: Any, state: State, bench: Bench, under_way: UnderWay
) -> tuple[State, StepOutcome]:
    """Finish an action; an exception of its own fails the step and never ends the run."""
    try:
        after: tuple[State, StepOutcome] = action.finish(state, bench, under_way)
        return after
    except (ReplayError, EnvironmentContractError):
        raise  # neither a replay that diverged nor a world that is broken must go on
    except Exception as e:
        return state, StepOutcome(error=raised(e))


def _held(step: TaskStep, outcome: StepOutcome, bench: Bench) -> StepOutcome:
    """Fail a step whose expectation is enforced and not met; what came is kept."""
    if not step.enforced or outcome.error is not None:
        return outcome
    problem = unexpected(step, outcome.result, bench)
    return outcome if problem is None else StepOutcome(result=outcome.result, error=problem)


def settle(
    state: State, bench: Bench, step_id: str, outcome: StepOutcome, *, ran: bool = True
) -> State:
    """Write how a step ended into plan, results and log; publish what it means.

    Parameters
    ----------
    ran : bool
        False when it was settled without its action having run.
    """
    assert state.task_plan is not None
    step = state.task_plan.step(step_id)
    changes: dict[str, Any] = {"error": outcome.error, "result": outcome.result}
    if outcome.interrupted:
        changes["status"] = StepStatus.INTERRUPTED
        changes["interruption_context"] = InterruptionContext(
            reason=str(outcome.error), attempt=state.attempts.get(step_id, 0),
            tool=step.target_resource, started=outcome.started, at=state.now,
        )  # fmt: skip
    else:
        changes["status"] = StepStatus.COMPLETED if outcome.error is None else StepStatus.FAILED
    attempt = state.attempts.get(step_id, 0) if ran else 0
    if outcome.error is not None:
        validated(TaskResult, "error", outcome.error)  # an action may be anybody's
    record = TaskResult.made(
        step_id=step_id, name=step.name, status=changes["status"], result=outcome.result,
        error=outcome.error, attempt=attempt,
    )  # fmt: skip
    updates: dict[str, Any] = {
        "task_plan": state.task_plan.put_step(step_id, step.put(**changes)),
        "task_results": More((record,)),
    }
    if outcome.error is None:
        updates["results"] = At(step_id, outcome.result)
    event = _event(state, bench, step, outcome)
    state = state.put(**updates)
    return state if event is None else published(state, bench, event)


def _event(
    state: State, bench: Bench, step: TaskStep, outcome: StepOutcome
) -> ContextChangeEvent | None:
    if outcome.interrupted:
        kind, text = ChangeType.TASK_INTERRUPTED, outcome.error
    elif outcome.error is not None:
        kind, text = ChangeType.TASK_FAILED, outcome.error
    else:
        problem = unexpected(step, outcome.result, bench)
        if problem is None:
            return None
        kind, text = ChangeType.TASK_UNEXPECTED_RESULT, problem
    severity = SEVERITY[kind]
    if kind is ChangeType.TASK_FAILED and step.skippable:
        severity = Severity.WARNING
    return ContextChangeEvent(
        session_id=state.session_id, task_id=step.step_id, type=kind, severity=severity,
        description=text or "", occurred_at=state.now,
    )  # fmt: skip


def unexpected(step: TaskStep, result: Json, bench: Bench) -> str | None:
    """Return how a result fails the step's expectation (default: the tool's schema), or None.

    An expectation that cannot be judged (no JMESPath, no schema, wrong types) is not met.
    """
    try:
        return _unexpected(step, result, bench)
    except (ValueError, RecursionError) as e:
        return f"the expectation of {seen(step.step_id)} cannot be judged: {e}"


def _unexpected(step: TaskStep, result: Json, bench: Bench) -> str | None:
    expectation = step.expectation
    if expectation is None:
        if step.target_resource not in bench.tools:
            return None
        expectation = bench.tools[step.target_resource].returns
        if not expectation:
            return None
    if isinstance(expectation, str):
        from agentlab.plans.paths import evaluate  # takes a while to load

        if evaluate(expectation, result):
            return None
        return f"result of {seen(step.step_id)} does not satisfy {seen(expectation)}"
    return check_schema(expectation, result, f"result of {seen(step.step_id)}")
