"""Triggers: when a strategy is asked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from agentlab.minds.strategies.base import TriggerRule
from agentlab.plans.task_plan import StepStatus, TaskStep
from agentlab.state.decisions import TriggerPoint
from agentlab.state.events import REACT, ChangeType, ContextChangeEvent, Severity
from agentlab.state.state import State
from agentlab.state.undecided import undecided

BROKEN = frozenset({StepStatus.FAILED, StepStatus.INTERRUPTED})


def planned(state: State, step_id: str | None) -> TaskStep | None:
    """Return the step of that id, where the plan has it."""
    plan = state.task_plan
    place = None if step_id is None or plan is None else plan.listed.shape.place.get(step_id)
    return None if plan is None or place is None else plan.steps[place]


def never(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
    """Never ask."""
    return None


def after_failure(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
    """Ask when a step that may not be skipped failed or was interrupted."""
    step = planned(state, step_id)
    if point is not TriggerPoint.AFTER_STEP or step is None or step.skippable:
        return None
    return f"step {step_id} {step.status}: {step.error}" if step.status in BROKEN else None


def total_failure(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
    """Ask at the end of a plan of which nothing completed and something failed."""
    if point is not TriggerPoint.PLAN_END or state.task_plan is None:
        return None
    plan = state.task_plan
    if plan.count(StepStatus.COMPLETED) or not plan.count(*BROKEN):
        return None
    return f"none of {len(plan)} steps completed"


def every(n: int) -> TriggerRule:
    """Ask after every n-th execution of a step, counted over all plans (n at least 1).

    With n = 1 also after a step that was settled without having been executed.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"expected an integer n of at least 1, got {n!r}")

    def trigger(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
        if point is not TriggerPoint.AFTER_STEP:
            return None
        ended = state.executions - len(state.under_way)
        executed = bool(state.task_results) and state.task_results[-1].attempt > 0
        if n > 1 and (not executed or ended % n):
            return None
        return f"{ended} steps executed"

    return trigger


def delivered_fault(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
    """Ask when the last execution of the step met a fault, seen or not, or it failed (privileged).

    What an agent cannot know is whether a call that looked right was struck; this trigger does.
    """
    if point is not TriggerPoint.AFTER_STEP:
        return None
    if state.delivered and state.delivered[-1].step_id == step_id:
        last = state.delivered[-1]
        if last.at == state.now and last.fault.kind not in ("latency_spike",):
            return f"step {step_id} met a {last.fault.visibility} {last.fault.kind}"
    return after_failure(point, state, step_id)


def changes(threshold: Severity, batch: int, milestones: bool) -> TriggerRule:
    """Ask at once about a critical event, about ``batch`` that matter, and at milestones.

    Counted is since the last decision. Somebody who asks for a decision gets one. A plan that is
    done ends, whatever else happened, unless that was critical.
    """

    def trigger(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
        found = undecided(state)
        if point is TriggerPoint.EVENT:
            critical = [e for e in found.by_severity[Severity.CRITICAL] if state.is_news(e)]
            if critical:
                return told(critical)
            heavy = [found.by_severity[s] for s in Severity if s.reaches(threshold)]
            few = sum(map(len, heavy)) < batch or sum(map(state.is_news, chain(*heavy))) < batch
            if few or state.done:
                return None
            return told(e for e in state.fresh_events if e.severity.reaches(threshold))
        if point is TriggerPoint.PHASE_END and not state.done:
            reached = [found.asking, *([found.milestones] if milestones else [])]
            if any(map(state.is_news, chain(*reached))):
                return told(
                    e
                    for e in state.fresh_events
                    if e.payload.get(REACT)
                    or (milestones and e.type is ChangeType.MILESTONE_REACHED)
                )
        return None

    return trigger


def told(events: Iterable[ContextChangeEvent]) -> str:
    """Return events as one line."""
    return "; ".join(
        f"{e.type}{f' at {e.task_id}' if e.task_id else ''}: {e.description}" for e in events
    )
