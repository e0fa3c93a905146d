"""``reflection``: judge what happened, and decide how to go on."""

from __future__ import annotations

from functools import partial
from typing import Any

from agentlab.base.documents import merge_patch
from agentlab.base.persistent import pvector
from agentlab.base.trail import At, Gone
from agentlab.environments.fault_plan import Persistence
from agentlab.lab.bench import Bench
from agentlab.lab.tool_door import counted
from agentlab.minds.returned import decision_of
from agentlab.minds.rules import counts
from agentlab.minds.strategies.repeats import not_again
from agentlab.minds.strategies.triggers import told
from agentlab.plans.task_plan import PlanStatus, StepStatus
from agentlab.runs.graph import node
from agentlab.state.decisions import (
    REPLANS,
    ReflectionResult,
    ReplanAction,
    ReplanDecision,
    TriggerPoint,
)
from agentlab.state.records import DeliveredFault
from agentlab.state.state import EXECUTE_NEXT_TASK, FINAL_RESPONSE, REPLAN, State
from agentlab.tools.calls import ToolError


@node
def reflection(state: State, lab: Bench) -> State:
    """Count what completed, failed and was skipped; let the strategy decide; write the next action.

    A spent budget bars replanning. A decision put in by a person or a fork is taken as it is.
    """
    fresh, known = state.fresh_events, len(state.events)
    with lab.stage("reflection", "Reflecting"):
        number = counts(state)
        text = (
            f"{number[StepStatus.COMPLETED]} completed, {number[StepStatus.FAILED]} failed, "
            f"{number[StepStatus.SKIPPED]} skipped"
        )
        lab.emit("on_thinking_content", "reflection", text)
        heard = partial(lab.emit, "on_thinking_content", "reflection")
        with lab.asking(state, on_token=heard) as talk:
            decision = decide(state, lab).checked(state.task_plan)
        if fresh:
            decision = decision.put(events=fresh)
        if decision.action is ReplanAction.CONTINUE and _stuck(state):
            text = f"{decision.reasoning}; but nothing runs and nothing can start"
            decision = decision.put(action=ReplanAction.ABORT, reasoning=text)
        state = talk.charged(state)
        if lab.strategy.watches:
            told = f"{decision.action}: {decision.reasoning}"
            lab.emit("on_thinking_content", "reflection", told)
    lab.recorder.mark(
        "decision", decision.action.value, visit=state.visit, step_id=decision.step_id or "",
        now=state.now, input=_asked(state), output=_told(decision),
    )  # fmt: skip
    result = decision.reflection or ReflectionResult.made(
        analysis=f"{text}; {decision.reasoning}" if decision.reasoning else text,
        goal_achieved=number[StepStatus.COMPLETED] > 0
        and not number[StepStatus.FAILED]
        and not number[StepStatus.INTERRUPTED],
        need_replan=decision.action in REPLANS,
        replan_reason=decision.reasoning if decision.action in REPLANS else "",
        suggestions=decision.new_context_hints,
    )
    state = state.put(
        reflection=result,
        need_replan=decision.action in REPLANS,
        last_decision=decision,
        forced_decision=None,
        trigger=None,
        events_decided=known,
    )
    return carry_out(state, lab, decision)


def decide(state: State, lab: Bench) -> ReplanDecision:
    """Return the decision for this state: forced, barred by a budget, or the strategy's."""
    if state.forced_decision is not None:
        return state.forced_decision
    if state.stopped_by is not None:
        return ReplanDecision.made(
            action=ReplanAction.CONTINUE,
            reasoning=f"the budget of {state.stopped_by} is spent",
            spent=state.stopped_by,
        )
    trigger = state.trigger
    if trigger is None:
        trigger = lab.strategy.triggered(TriggerPoint.PLAN_END, state)
    if trigger is None:
        return ReplanDecision.made(action=ReplanAction.CONTINUE)
    decision = decision_of(lab.strategy.decide(trigger, state, lab), lab.strategy)
    barred = not_again(decision, state, lab)  # a strategy may be anybody's
    if barred is None:
        return decision
    text = f"{decision.reasoning}; but it wants to retry {barred}"
    return decision.put(action=ReplanAction.ABORT, reasoning=text, spent="retries")


def _stuck(state: State) -> bool:
    """Say whether steps remain that can never start, as those who watch were told."""
    stalled = state.trigger is not None and state.trigger.point is TriggerPoint.STALL
    return stalled and state.task_plan is not None and not state.task_plan.over


def _asked(state: State) -> dict[str, Any] | None:
    return None if state.trigger is None else state.trigger.to_json()


def _told(decision: ReplanDecision) -> dict[str, Any]:
    return {
        "action": decision.action.value, "reasoning": decision.reasoning, "spent": decision.spent,
        "wait": decision.wait, "confidence": decision.confidence,
        "events": [told([e]) for e in decision.events],
    }  # fmt: skip


def _told_of(state: State, fault: DeliveredFault) -> State:
    """Put right what a fault made the agent think of a step and its tool.

    Where nothing took effect the step failed. A false result counts as a failure, as if it had been
    told; it stays where it is, for it need not be false in all. A tool that takes effect in spite
    of its fault is not broken, whatever its errors say.
    """
    plan, step_id = state.task_plan, fault.step_id
    if plan is None or step_id is None or step_id not in plan:
        return state
    step = plan.step(step_id)
    if step.status is not StepStatus.COMPLETED:
        failures = (
            f.put(permanent=False) if f.tool == fault.tool and f.permanent else f
            for f in state.failures
        )
        return state.put(failures=pvector(failures)) if fault.committed else state
    if fault.committed:
        error = ToolError.made(
            code="malformed_result", message=f"{fault.tool} told something false"
        )
        return state.put(failures=counted(state, fault.tool, fault.arguments, error))
    permanent = fault.fault.persistence is Persistence.PERMANENT
    text = f"{fault.tool} did nothing, though it said otherwise"
    error = ToolError.made(code="unavailable", message=text, permanent=permanent)
    failed = step.put(status=StepStatus.FAILED, result=None, error=text)
    return state.put(
        failures=counted(state, fault.tool, fault.arguments, error),
        task_plan=plan.put_step(step_id, failed),
        results=Gone(step_id),
    )


def carry_out(state: State, lab: Bench, decision: ReplanDecision) -> State:
    """Write what a decision means into the state: the next action, and what it takes."""
    plan = state.task_plan
    if decision.correction:
        state = state.put(belief=merge_patch(state.belief, decision.correction))
    if decision.exposed is not None:
        state = _told_of(state, decision.exposed)
        plan = state.task_plan
    if decision.action is ReplanAction.RETRY and decision.step_id is not None and plan is not None:
        afresh = plan.step(decision.step_id).put(
            status=StepStatus.PENDING, result=None, error=None, interruption_context=None
        )
        again = plan.put_step(decision.step_id, afresh).put(status=PlanStatus.EXECUTING)
        return state.put(
            task_plan=again,
            not_before=At(decision.step_id, state.now + decision.wait),
            accepted=tuple(i for i in state.accepted if i != decision.step_id),
            results=Gone(decision.step_id),
            current_task_index=again.current_index,
            next_action=EXECUTE_NEXT_TASK,
        )
    if decision.action in REPLANS and plan is not None:
        count = state.replan_count + 1
        lab.emit("on_replan_required", decision.reasoning, count)
        return state.put(
            task_plan=plan.put(status=PlanStatus.REPLANNING),
            replan_count=count,
            loop_count=count,
            next_action=REPLAN,
        )
    if decision.action is ReplanAction.ABORT and plan is not None:
        return state.put(
            task_plan=plan.put(status=PlanStatus.ABORTED),
            stopped_by="abort" if decision.spent in (None, "retries") else decision.spent,
            next_action=FINAL_RESPONSE,
        )
    barred = state.stopped_by is not None
    more = plan is not None and (state.under_way or not plan.over) and not barred
    if lab.strategy.watches and plan is not None and not barred:
        bad = (plan.steps[i].step_id for i in plan.listed.standing.broken)
        state = state.put(accepted=tuple(dict.fromkeys((*state.accepted, *bad))))
        if state.done and not more:
            state = state.put(task_plan=plan.put(status=PlanStatus.COMPLETED))
    return state.put(next_action=EXECUTE_NEXT_TASK if more else FINAL_RESPONSE)
