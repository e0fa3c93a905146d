"""What a strategy that watches is told of: phases that ended, dependencies that are gone, a stall.

Execution publishes these as events, and the strategy is asked about them and about all others that
have come since its last decision.
"""

from __future__ import annotations

from agentlab.lab.bench import Bench
from agentlab.lab.hearing import published
from agentlab.minds.strategies.triggers import told
from agentlab.plans import graph
from agentlab.plans.task_plan import TaskStep
from agentlab.state.decisions import Trigger, TriggerPoint
from agentlab.state.events import ChangeType, ContextChangeEvent, Severity
from agentlab.state.state import State


def broken(state: State, lab: Bench, step: TaskStep) -> tuple[State, str]:
    """Publish that what a step depends on is gone."""
    assert state.task_plan is not None
    missing = graph.unmet(state.task_plan, step, state.results)
    text = f"dependency not met: {', '.join(missing)}"
    event = ContextChangeEvent(
        session_id=state.session_id, task_id=step.step_id, type=ChangeType.DEPENDENCY_BROKEN,
        severity=Severity.WARNING if step.skippable else Severity.CRITICAL,
        description=text, occurred_at=state.now,
    )  # fmt: skip
    return published(state, lab, event), text


def _milestones(state: State, lab: Bench, before: int) -> State:
    """Publish the phases (levels of the dependency graph) that the last results brought to an end.

    A phase with a step that failed and may not be skipped has not come to its end.
    """
    plan = state.task_plan
    assert plan is not None
    ended = {r.step_id for r in state.task_results[before:]}
    shape, left = plan.listed.shape, plan.listed.standing.left
    phases = sorted({shape.phase(shape.place[i]) for i in ended if i in shape.place})
    for phase in (p for p in phases if not left[p]):
        steps, of = [plan.steps[i] for i in shape.phases[phase]], len(shape.phases)
        if all(map(state.settled_well, steps)):
            names = ", ".join(s.step_id for s in steps)
            event = ContextChangeEvent(
                session_id=state.session_id, type=ChangeType.MILESTONE_REACHED,
                description=f"phase {phase + 1} of {of} is done: {names}",
                payload={"phase": phase + 1, "of": of}, occurred_at=state.now,
            )  # fmt: skip
            state = published(state, lab, event)
    return state


def _stalled(state: State, lab: Bench) -> tuple[State, Trigger | None]:
    """Say whether nothing runs and nothing can start, and publish the dependencies that are gone.

    Steps that may be skipped are no reason: they will be.
    """
    plan = state.task_plan
    assert plan is not None
    if state.under_way or state.held or any(graph.starting(plan, state.results)) or state.done:
        return state, None
    stuck = list(graph.never_starting(plan, state.results))
    if any(s.skippable for s in stuck):
        return state, None
    for step in stuck:
        state, _ = broken(state, lab, step)
    rest = ", ".join(s.step_id for s in plan.steps if not state.settled_well(s))
    reason = f"{told(state.fresh_events) or rest}; nothing runs and nothing can start"
    return state, Trigger(point=TriggerPoint.STALL, reason=reason)


def watched(state: State, lab: Bench, before: int) -> tuple[State, Trigger | None]:
    """Ask a strategy that watches about what happened and about phases that ended."""
    state, trigger = _stalled(_milestones(state, lab, before), lab)
    for point in (TriggerPoint.EVENT, TriggerPoint.PHASE_END):
        trigger = trigger or lab.strategy.triggered(point, state)
    return state, trigger
