"""Triggers: when a strategy is asked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, takewhile

from agentlab.environments.fault_plan import FaultKind, Visibility
from agentlab.errors import seen
from agentlab.minds.strategies.base import TriggerRule
from agentlab.plans.task_plan import StepStatus, TaskStep
from agentlab.state.decisions import TriggerPoint
from agentlab.state.events import REACT, ChangeType, ContextChangeEvent, Severity
from agentlab.state.records import DeliveredFault
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
        raise ValueError(f"expected an integer n of at least 1, got {seen(n)}")

    def trigger(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
        if point is not TriggerPoint.AFTER_STEP:
            return None
        ended = state.executions - len(state.under_way)
        executed = bool(state.task_results) and state.task_results[-1].attempt > 0
        if n > 1 and (not executed or ended % n):
            return None
        return f"{ended} steps executed"

    return trigger


def struck(state: State, step_id: str | None) -> DeliveredFault | None:
    """Return the fault that the last execution of a step met, seen or not (privileged)."""
    for fault in reversed(state.delivered):
        if fault.at < state.now:
            break
        if fault.step_id == step_id and fault.fault.kind is not FaultKind.LATENCY_SPIKE:
            found: DeliveredFault = fault
            return found
    return None


def unseen_events(state: State) -> list[DeliveredFault]:
    """Return what happened in the world, untold, since the last call began (privileged)."""
    since = state.calls[-1].started if state.calls else 0.0
    recent = takewhile(lambda d: d.at >= since, reversed(state.delivered))
    hidden = [d for d in recent if d.step_id is None and d.fault.visibility is Visibility.SILENT]
    return hidden[::-1]


def delivered_fault(point: TriggerPoint, state: State, step_id: str | None) -> str | None:
    """Ask when the last execution of the step met a fault, seen or not, or it failed (privileged).

    What an agent cannot know is whether a call that looked right was struck, or whether the world
    changed meanwhile; this trigger does.
    """
    if point is not TriggerPoint.AFTER_STEP:
        return None
    met = struck(state, step_id)
    if met is not None:
        return f"step {step_id} met a {met.fault.visibility} {met.fault.kind}"
    happened = ", ".join(event.tool for event in unseen_events(state))
    return f"unseen: {happened}" if happened else after_failure(point, state, step_id)


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
