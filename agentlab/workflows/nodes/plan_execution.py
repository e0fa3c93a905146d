"""``plan_execution``: one step of the plan a visit (with workers, one finish a visit)."""

from __future__ import annotations

from agentlab.base.trail import More
from agentlab.base.values import validated
from agentlab.lab.bench import Bench, StepOutcome
from agentlab.lab.executor import settle
from agentlab.lab.hearing import heard
from agentlab.lab.scheduling import startable, to_start
from agentlab.minds.strategies.triggers import BROKEN
from agentlab.plans import graph
from agentlab.plans.task_plan import SETTLED, PlanStatus, StepStatus, TaskPlan
from agentlab.runs.graph import node
from agentlab.state.decisions import TriggerPoint
from agentlab.state.records import TaskResult
from agentlab.state.state import EXECUTE_NEXT_TASK, REFLECT, WAIT_FOR_REVIEW, State
from agentlab.workflows.nodes.watching import broken, watched


@node(listens=True)
def plan_execution(state: State, lab: Bench) -> State:
    """Carry the next step out, then ask the strategy whether it wants to decide something.

    Ready steps are submitted while workers and resources are free, and one is waited for (what
    starts first where they are short: see ``agentlab.lab.scheduling``). A step whose
    dependency can no longer complete is skipped when it may be, and failed otherwise. Nothing left,
    a trigger, or a spent budget leads to reflection. What was published is looked at first.
    """
    plan = state.task_plan
    if plan is None or (plan.over and not state.under_way):
        return state.put(next_action=REFLECT, trigger=None)
    before, known = len(state.task_results), state.events
    state = heard(state, lab)
    if lab.strategy.watches and state.events is not known:
        return routed(state, lab, None, before)
    with lab.stage("task_execution", "Executing the plan"):
        stopped, settled = None, state.task_results
        while state.task_results is settled:
            state, stopped = submitted(state, lab)
            if state.task_results is not settled:  # one was settled at once
                break
            if stopped is None and waits_for_people(state, lab):
                return state.replace(next_action=WAIT_FOR_REVIEW, trigger=None)
            if not state.under_way and (stopped or not may_start(state)):
                state = state if stopped else blocked(state, lab)
                break
            state = lab.executor.wait(state, lab)
    return routed(state, lab, stopped, before)


def may_start(state: State) -> bool:
    """Say whether a step is ready."""
    return next(startable(state), None) is not None


def waits_for_people(state: State, lab: Bench) -> bool:
    """Say whether nothing is under way or may start, and somebody's answer is waited for."""
    if not state.held or state.under_way or may_start(state):
        return False
    assert state.task_plan is not None
    lost = graph.never_starting(state.task_plan, state.results)
    return not any(s.skippable or not lab.strategy.watches for s in lost)


def submitted(state: State, lab: Bench) -> tuple[State, str | None]:
    """Submit the steps to start now; return what stops further ones, if anything."""
    if len(state.under_way) >= lab.workers:
        return state, None
    spent = lab.strategy.budget.spent(state)
    if spent is not None:
        return state, spent if may_start(state) else None
    settled = state.task_results
    for step in to_start(state, lab):
        spent = lab.strategy.budget.spent(state)
        if spent is not None:
            break
        started = lab.executor.submit(state, lab, step)
        held = started.under_way is state.under_way and started.task_results is settled
        if lab.handler is not None and not held and state.task_plan is not None:
            text = f"executing {step.step_index + 1}/{len(state.task_plan.steps)}: {step.name}"
            lab.emit("on_thinking_content", "task_execution", text)
        state = started
        if state.task_results is not settled:
            break  # one was settled at once: that is this visit's step
    return state, spent


def blocked(state: State, lab: Bench) -> State:
    """Settle the first step that can never start; a strategy that watches keeps it, and is told."""
    assert state.task_plan is not None
    found = graph.never_starting(state.task_plan, state.results)
    if lab.strategy.watches:
        found = (s for s in found if s.skippable)
    step = next(found, None)
    if step is None and lab.strategy.watches:
        return state
    assert step is not None, "a plan without a cycle has a step that starts, or one that never can"
    state, text = broken(state, lab, step)
    if not step.skippable:
        return settle(state, lab, step.step_id, StepOutcome(error=text), ran=False)
    assert state.task_plan is not None
    record = TaskResult(step_id=step.step_id, name=step.name, status=StepStatus.SKIPPED, error=text)
    skipped = step.put(status=StepStatus.SKIPPED, error=text)
    plan = state.task_plan.put_step(step.step_id, skipped)
    return state.put(task_plan=plan, task_results=More((record,)))


def routed(state: State, lab: Bench, stopped: str | None, before: int) -> State:
    """Write where to go: a trigger, a spent budget or the end of the plan lead to reflection.

    Parameters
    ----------
    stopped : str or None
        The budget that stops further steps.
    before : int
        Results that there were before this visit.
    """
    ended = len(state.task_results) > before
    trigger = None
    if stopped is None and ended:
        last = state.task_results[-1].step_id
        trigger = lab.strategy.triggered(TriggerPoint.AFTER_STEP, state, last)
    if stopped is None and trigger is None and lab.strategy.watches:
        state, trigger = watched(state, lab, before)
    assert state.task_plan is not None
    plan: TaskPlan = state.task_plan
    if lab.handler is not None:
        settled, whole = plan.count(*SETTLED), len(plan.steps)
        lab.emit("on_overall_progress", settled, whole, 100.0 * settled / whole)
    changes: dict[str, object] = {"current_task_index": plan.current_index, "trigger": None}
    if stopped is not None and not state.under_way:
        changes |= {"stopped_by": stopped, "next_action": REFLECT}
    elif trigger is not None:
        trigger = validated(State, "trigger", trigger)  # a strategy may be anybody's
        changes |= {"trigger": trigger, "next_action": REFLECT}
    elif state.under_way or not plan.over:
        changes |= {"next_action": EXECUTE_NEXT_TASK}
    else:
        good = state.done if lab.strategy.watches else not plan.count(*BROKEN)
        status = PlanStatus.COMPLETED if good else PlanStatus.FAILED
        changes |= {"task_plan": plan.put(status=status), "next_action": REFLECT}
    return state.put(**changes)
