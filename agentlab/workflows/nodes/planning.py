"""``planning``: a plan for the task, or a new one for what remains."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

from agentlab.base.documents import digest
from agentlab.environments.scenario import Goal
from agentlab.errors import LMError, PlanError, PlanParseError
from agentlab.lab.approval import still_held
from agentlab.lab.bench import Bench
from agentlab.minds.base import FULL, INITIAL, REMAINING, Noted, PlanRequest
from agentlab.minds.returned import noted
from agentlab.plans import graph
from agentlab.plans.references import references
from agentlab.plans.task_plan import PlanStatus, StepStatus, TaskPlan, TaskStep
from agentlab.runs.graph import node
from agentlab.state.decisions import ReplanAction, ReplanRecord, TriggerPoint
from agentlab.state.events import OUTSIDE, ChangeType, ContextChangeEvent
from agentlab.state.state import EXECUTE_NEXT_TASK, FINAL_RESPONSE, REFLECT, State
from agentlab.tools.calls import call_text
from agentlab.tools.tool import Effect

PARSE_LIMIT = 2
"""Replies that do not parse before there is no plan."""

SHOWN = 4000
"""Characters of a reply that did not parse, shown to the model when it is asked again."""

GUARD_LIMIT = 2
"""Replans that lead to the same plan in the same situation before the run is aborted."""


@node
def planning(state: State, lab: Bench) -> State:
    """Ask the planner; on a replan keep what is done and put the new steps in place of the rest.

    A planner that has no plan is data, not an exception: at first ``error`` says so, on a replan
    ``stopped_by`` does, unless the strategy wants to decide about it or keeps the old plan.
    """
    state = cancelled(state, lab) if lab.strategy.watches else state
    request = plan_request(state, lab)
    with lab.stage("planning", "Planning" if request.scope == INITIAL else "Replanning"):
        lab.emit("on_thinking_content", "planning", "analysing the task and making a plan")
        with (
            lab.recorder.span(
                "decision", "plan", visit=state.visit, now=state.now, input={"scope": request.scope}
            ) as span,
            lab.asking(
                state, on_token=partial(lab.emit, "on_thinking_content", "planning")
            ) as talk,
        ):
            asked, unparsed = _asked(request, lab)
            made = asked.plan if isinstance(asked, Noted) else asked
            notes = asked.notes if isinstance(asked, Noted) else {}
            if isinstance(made, TaskPlan):
                span.output = _shown(made)
            else:
                span.error = f"{type(made).__name__}: {made}"
            if unparsed:
                span.attributes = {"parse_failures": unparsed}
        state = talk.charged(state)
    state = state.put(plans=state.plans + 1, parse_failures=state.parse_failures + len(unparsed))
    state = state.replace(notes=state.notes.update(notes)) if notes else state
    if not isinstance(made, TaskPlan):
        old, state = state.task_plan, _no_plan(state, lab, request, made)
        if old is not None and state.next_action == EXECUTE_NEXT_TASK:  # with the old plan
            span.output = asdict(graph.diff(old, state.task_plan or old))
        return state
    if request.scope == INITIAL:
        return _started(state, lab, made)
    state = _replanned(state, lab, made, request.scope)
    record = state.replan_history[-1]
    span.output = {**span.output, **asdict(graph.diff(record.before, record.after))}
    return state


def _asked(request: PlanRequest, lab: Bench) -> tuple[Noted | PlanError | LMError, list[str]]:
    """Ask the planner; a reply that does not parse is asked for once more with the parse error.

    Returns
    -------
    tuple of Noted or error, list of str
        The plan or why there is none, and what was wrong with each reply that did not parse.
    """
    unparsed: list[str] = []
    while True:
        try:
            return noted(lab.planner.plan(request, lab), lab.planner, request, lab), unparsed
        except PlanParseError as e:
            unparsed.append(str(e))
            if len(unparsed) == PARSE_LIMIT:
                return e, unparsed
            hint = f"the reply before was {e}"
            if e.reply is not None:
                hint += f"\n  The reply was: {e.reply[:SHOWN]}"
            hints = (*request.hints, hint)
            request = replace(request, hints=hints, attempt=len(unparsed))
        except (PlanError, LMError) as e:
            return e, unparsed


def plan_request(state: State, lab: Bench) -> PlanRequest:
    """Return what the planner is asked in this state."""
    decision, plan = state.last_decision, state.task_plan
    scope = INITIAL
    if plan is not None and decision is not None:
        scope = FULL if decision.action is ReplanAction.REPLAN_FULL else REMAINING
    done: tuple[TaskStep, ...] = ()
    kept: tuple[TaskStep, ...] = ()
    if plan is not None and decision is not None and scope == REMAINING:
        done = tuple(s for s in plan.steps if s.status is StepStatus.COMPLETED)
        stay = _kept(state, plan, scope, decision.steps_to_cancel)
        kept = tuple(s for s in stay if s.status is StepStatus.PENDING)
    return PlanRequest(
        user_input=state.user_input,
        goal=lab.scenario.goal if lab.scenario is not None else Goal(),
        belief=state.belief,
        done=done,
        under_way=() if plan is None else _under_way(state, plan),
        results=_results(state),
        failures=tuple(state.failures),
        hints=(*(decision.new_context_hints if decision is not None else ()), *map(_stays, kept)),
        changes=_changes(state),
        staying=kept,
        persona=state.persona,
        notes=state.notes,
        scope=scope,
        number=state.plans,
        seed=state.seed,
        taken=_taken(state),
        replans_left=state.replans_left,
        earlier=plan,
        side_effects=_side_effects(state, lab) if scope != INITIAL else (),
        reflection=state.reflection,
        world=state.world if getattr(lab.planner, "privileged", False) else None,
    )


def _changes(state: State) -> tuple[ContextChangeEvent, ...]:
    """Return what happened since the decision before the last, after the constraints that stand."""
    decision = state.last_decision
    recent = () if decision is None else decision.events
    wanted = OUTSIDE if decision is None else (ChangeType.NEW_CONSTRAINT,)
    held = (e for e in state.events if e.type in wanted and e not in recent)
    return (*held, *recent)


def _under_way(state: State, plan: TaskPlan) -> tuple[TaskStep, ...]:
    return tuple(plan.step(u.step_id).replace(parameters=u.arguments) for u in state.under_way)


def _stays(step: TaskStep) -> str:
    return f"{step.step_id} ({step.label}) stays in the plan; do not plan it again"


def _results(state: State) -> dict[str, Any]:
    """Return the completed results in the order in which they came."""
    order = (r.step_id for r in state.task_results if r.step_id in state.results)
    return {step_id: state.results[step_id] for step_id in order}


def _side_effects(state: State, lab: Bench) -> tuple[str, ...]:
    """Return what stands in the world by the agent's doing, as it knows: a line a completed call.

    So does a call that ended well and returned what cannot be used. Whether a call that looked
    completed took effect is what the agent cannot know.
    """
    return tuple(
        call_text(c.tool, c.arguments)
        for c in state.calls
        if (c.error is None or c.error.took_effect) and lab.tools[c.tool].effect is not Effect.READ
    )


def _taken(state: State) -> frozenset[str]:
    ids = {r.step_id for r in state.task_results}
    if state.task_plan is not None:
        ids |= {s.step_id for s in state.task_plan.steps}
    for record in state.replan_history:
        ids |= {s.step_id for s in record.before.steps}
    return frozenset(ids)


def _shown(plan: TaskPlan) -> dict[str, Any]:
    return {
        "plan_id": plan.plan_id,
        "steps": [[s.step_id, s.label, s.parameters] for s in plan.steps],
    }


def _started(state: State, lab: Bench, plan: TaskPlan) -> State:
    lab.emit("on_overall_progress", 0, len(plan.steps), 0.0)
    return state.put(
        task_plan=plan,
        current_task_index=0,
        next_action=EXECUTE_NEXT_TASK if plan.steps else FINAL_RESPONSE,
    )


def cancelled(state: State, lab: Bench) -> State:
    """Interrupt the steps under way that the decision to replan cancels.

    Of a whole new plan that is all of them; of a new rest, those that it names.
    """
    plan, decision = state.task_plan, state.last_decision
    if plan is None or decision is None or not state.under_way:
        return state
    indices: tuple[int, ...] = decision.steps_to_cancel
    if decision.action is ReplanAction.REPLAN_FULL:
        indices = tuple(s.step_index for s in plan.steps)
    running = {u.step_id for u in state.under_way}
    ids = [plan.step(i).step_id for i in indices if plan.step(i).step_id in running]
    return lab.executor.cancel(state, lab, ids, f"{decision.action}: {decision.reasoning}")


def _replanned(state: State, lab: Bench, made: TaskPlan, scope: str) -> State:
    old, decision = state.task_plan, state.last_decision
    assert old is not None
    assert decision is not None
    kept = _kept(state, old, scope, decision.steps_to_cancel)
    merged = made.replace(replan_count=state.replan_count, user_intent=old.user_intent)
    merged = merged.with_steps((*kept, *made.steps))
    if merged.answer is None and _still_resolves(old.answer, merged, state):
        merged = merged.replace(answer=old.answer)
    record = ReplanRecord(
        at=state.now, visit=state.visit, decision=decision, before=old, after=merged
    )
    state = state.replace(
        task_plan=merged,
        current_task_index=merged.current_index,
        replan_history=state.replan_history.append(record),
        next_action=EXECUTE_NEXT_TASK if merged.steps else FINAL_RESPONSE,
    )
    return _guarded(still_held(state, old), lab)


def _kept(state: State, old: TaskPlan, scope: str, cancel: tuple[int, ...]) -> list[TaskStep]:
    """Return the steps that stay: completed ones, those under way, those not cancelled.

    A step goes with what it depends on.
    """
    if scope == FULL:
        return [s for s in old.steps if s.status is StepStatus.RUNNING]
    stay, ids = list[TaskStep](), set(state.results)
    for s in old.steps:  # plan order is topological
        waits = cancel and s.status is StepStatus.PENDING and s.step_index not in cancel
        going = s.status in (StepStatus.COMPLETED, StepStatus.RUNNING)
        if going or (waits and ids.issuperset(s.dependencies)):
            stay.append(s)
            ids.add(s.step_id)
    return stay


def _still_resolves(answer: str | None, plan: TaskPlan, state: State) -> bool:
    if answer is None:
        return False
    ids = {s.step_id for s in plan.steps} | set(state.results)
    return all(r.step in ids for r in references(answer))


def _guarded(state: State, lab: Bench) -> State:
    """Abort when replanning has led to the same plan in the same situation before.

    The plan's ids are ignored; failures count, so a plan that is tried once more after another
    failure is progress of a kind. So is a plan made after somebody said something new.
    """
    assert state.task_plan is not None
    failures = [[f.tool, f.arguments, f.code, f.count] for f in state.failures]
    news = sum(e.type in OUTSIDE for e in state.events)
    signature = digest([state.task_plan.signature(), state.belief, failures, news])
    times = state.guard.get(signature, 0) + 1
    plan = state.task_plan
    state = state.replace(guard=state.guard.set(signature, times))
    if times < GUARD_LIMIT:
        return state
    lab.recorder.mark(
        "decision", "no_progress", visit=state.visit, now=state.now,
        output={"action": ReplanAction.ABORT.value, "reasoning": "same plan, same situation"},
    )  # fmt: skip
    return state.replace(
        task_plan=plan.replace(status=PlanStatus.ABORTED),
        stopped_by="no_progress",
        next_action=FINAL_RESPONSE,
    )


def _no_plan(state: State, lab: Bench, request: PlanRequest, error: PlanError | LMError) -> State:
    reason = str(error)
    trigger = lab.strategy.triggered(TriggerPoint.PLANNING_FAILED, state)
    if trigger is not None and state.task_plan is not None:
        return state.replace(trigger=trigger, next_action=REFLECT)
    if request.scope != INITIAL and lab.strategy.when_no_plan == "keep":
        kept = _kept_plan(state, request.scope)
        good = kept.count(StepStatus.COMPLETED, StepStatus.SKIPPED) == len(kept)
        if state.under_way or not kept.over or good:
            return _going_on(state, lab, kept, reason)
    lab.emit("on_error", reason)
    if request.scope == INITIAL:
        return state.replace(error=reason, stopped_by="no_plan", next_action=FINAL_RESPONSE)
    assert state.task_plan is not None
    plan = state.task_plan.replace(status=PlanStatus.FAILED)
    if isinstance(error, (PlanParseError, LMError)):  # to have no plan is no error, a bad reply is
        state = state.replace(error=reason)
    return state.replace(task_plan=plan, stopped_by="no_plan", next_action=FINAL_RESPONSE)


def _kept_plan(state: State, scope: str) -> TaskPlan:
    """Return the old plan, without the pending steps that the decision cancels by name."""
    plan, decision = state.task_plan, state.last_decision
    assert plan is not None
    assert decision is not None
    if scope == REMAINING and decision.steps_to_cancel:
        stay = {s.step_id for s in _kept(state, plan, scope, decision.steps_to_cancel)}
        plan = plan.with_steps(s for s in plan.steps if s.settled or s.step_id in stay)
        if not _still_resolves(plan.answer, plan, state):
            plan = plan.put(answer=None)
    return plan.put(status=PlanStatus.EXECUTING)


def _going_on(state: State, lab: Bench, kept: TaskPlan, reason: str) -> State:
    """Go on with the old plan, as if no replan had been decided; it counts as one all the same."""
    told = f"no new plan: {reason}; the old plan is kept"
    lab.emit("on_thinking_content", "planning", told)
    lab.recorder.mark(
        "decision", "keep_plan", visit=state.visit, now=state.now,
        output={"action": ReplanAction.CONTINUE.value, "reasoning": told},
    )  # fmt: skip
    old = state.task_plan
    state = state.replace(
        task_plan=kept, current_task_index=kept.current_index, next_action=EXECUTE_NEXT_TASK
    )
    return still_held(state, old)
