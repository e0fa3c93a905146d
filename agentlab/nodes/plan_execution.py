"""``plan_execution``: one step of the plan a visit (with workers, one finish a visit)."""

from __future__ import annotations

from agentlab.actions.base import StepOutcome
from agentlab.bench import Bench
from agentlab.decisions import TriggerPoint
from agentlab.events import SEVERITY, ChangeType, ContextChangeEvent
from agentlab.executor import settle
from agentlab.nodes.base import node
from agentlab.plans import graph
from agentlab.plans.task_plan import PlanStatus, StepStatus, TaskPlan, TaskStep
from agentlab.scheduling import to_start
from agentlab.state import EXECUTE_NEXT_TASK, REFLECT, State, TaskResult


@node
def plan_execution(state: State, lab: Bench) -> State:
    """Carry the next step out, then ask the strategy whether it wants to decide something.

    Ready steps are submitted while workers and resources are free, and one is waited for (what
    starts first where they are short: see ``agentlab.scheduling``). A step whose
    dependency can no longer complete is skipped when it may be, and failed otherwise. Nothing left,
    a trigger, or a spent budget leads to reflection.
    """
    plan = state.task_plan
    if plan is None or (not plan.remaining and not state.under_way):
        return state.replace(next_action=REFLECT, trigger=None)
    with lab.stage("task_execution", "Executing the plan"):
        before = len(state.task_results)
        stopped = None
        while len(state.task_results) == before:
            state, stopped = _submitted(state, lab)
            if len(state.task_results) > before:  # one was settled at once
                break
            if not state.under_way and (stopped or not _may_start(state)):
                state = state if stopped else _blocked(state, lab)
                break
            state = lab.executor.wait(state, lab)
    return _routed(state, lab, stopped)


def _may_start(state: State) -> bool:
    assert state.task_plan is not None
    return bool(graph.ready(state.task_plan, state.results))


def _submitted(state: State, lab: Bench) -> tuple[State, str | None]:
    """Submit the steps to start now; return what stops further ones, if anything."""
    if len(state.under_way) >= lab.workers or not _may_start(state):
        return state, None
    before = len(state.task_results)
    spent = lab.strategy.budget.spent(state)
    for step in to_start(state, lab) if spent is None else ():
        spent = lab.strategy.budget.spent(state)
        if spent is not None:
            break
        started = lab.executor.submit(state, lab, step)
        if started is not state and state.task_plan is not None:
            text = f"executing {step.step_index + 1}/{len(state.task_plan.steps)}: {step.name}"
            lab.emit("on_thinking_content", "task_execution", text)
        state = started
        if len(state.task_results) > before:
            break  # it was settled at once: that is this visit's step
    return state, spent


def _blocked(state: State, lab: Bench) -> State:
    """Settle the first step that can never start."""
    assert state.task_plan is not None
    plan = state.task_plan
    for step in plan.steps:
        if step.status is StepStatus.PENDING:
            missing = graph.unmet(plan, step, state.results)
            if missing:
                return _settle_blocked(state, lab, step, missing)
    raise AssertionError("a plan whose pending steps neither are ready nor can be settled")


def _settle_blocked(state: State, lab: Bench, step: TaskStep, missing: tuple[str, ...]) -> State:
    text = f"dependency not met: {', '.join(missing)}"
    kind = ChangeType.DEPENDENCY_BROKEN
    event = ContextChangeEvent(
        session_id=state.session_id, task_id=step.step_id, type=kind, severity=SEVERITY[kind],
        description=text, occurred_at=state.now,
    )  # fmt: skip
    state = state.replace(events=state.events.append(event))
    if not step.skippable:
        return settle(state, lab, step.step_id, StepOutcome(error=text), ran=False)
    assert state.task_plan is not None
    record = TaskResult(step_id=step.step_id, name=step.name, status=StepStatus.SKIPPED, error=text)
    return state.replace(
        task_plan=state.task_plan.with_step(step.step_id, status=StepStatus.SKIPPED, error=text),
        task_results=state.task_results.append(record),
    )


def _routed(state: State, lab: Bench, stopped: str | None) -> State:
    """Write where to go: a trigger, a spent budget or the end of the plan lead to reflection."""
    assert state.task_plan is not None
    plan: TaskPlan = state.task_plan
    settled = sum(s.settled for s in plan.steps)
    lab.emit("on_overall_progress", settled, len(plan.steps), 100.0 * settled / len(plan.steps))
    changes: dict[str, object] = {"current_task_index": plan.current_index, "trigger": None}
    last = state.task_results[-1].step_id if state.task_results else None
    trigger = None
    if stopped is None:
        trigger = lab.strategy.triggered(TriggerPoint.AFTER_STEP, state, last)
    if stopped is not None and not state.under_way:
        changes |= {"stopped_by": stopped, "next_action": REFLECT}
    elif trigger is not None:
        changes |= {"trigger": trigger, "next_action": REFLECT}
    elif plan.remaining or state.under_way:
        changes |= {"next_action": EXECUTE_NEXT_TASK}
    else:
        whole = all(s.status is not StepStatus.FAILED for s in plan.steps)
        status = PlanStatus.COMPLETED if whole else PlanStatus.FAILED
        changes |= {"task_plan": plan.replace(status=status), "next_action": REFLECT}
    return state.replace(**changes)
