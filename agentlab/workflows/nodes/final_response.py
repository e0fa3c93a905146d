"""``final_response``: the plan's answer as a value, and what the user is told."""

from __future__ import annotations

from agentlab.base.documents import Json
from agentlab.base.trail import More
from agentlab.base.values import validated
from agentlab.errors import ReferenceError_
from agentlab.lab.bench import Bench
from agentlab.lab.hearing import heard
from agentlab.minds.returned import response_of
from agentlab.minds.rules import TemplateResponder
from agentlab.plans.references import resolve
from agentlab.plans.task_plan import PlanStatus, StepStatus
from agentlab.runs.graph import node
from agentlab.state.messages import Role, said
from agentlab.state.state import Outcome, State


@node
def final_response(state: State, lab: Bench) -> State:
    """Resolve the plan's answer, write the response, and tell the handler.

    After an error the template answers, whoever the lab's responder is.
    """
    state = _closed(state, lab)
    state = state.put(answer=plan_answer(state))
    responder = lab.responder if state.error is None else TemplateResponder()
    told: list[str] = []

    def on_token(text: str) -> None:
        told.append(text)
        lab.emit("on_token", text)

    with lab.asking(state, on_token=on_token) as talk:
        text = response_of(responder.respond(state, lab), responder)
    state = talk.charged(state)
    heard_so_far = "".join(told)
    if heard_so_far != text:  # by template, after what a model had begun to say
        lab.emit("on_token", f"\n\n{text}" if heard_so_far else text)
    lab.emit("on_complete", text, state.session_id)
    answer = said(text, Role.ASSISTANT)
    state = state.put(
        final_response=validated(State, "final_response", text), next_action="",
        outcome=outcome_of(state), messages=More((answer,)),
    )  # fmt: skip
    return heard(state, lab, last=True)


def _closed(state: State, lab: Bench) -> State:
    """Interrupt what is still under way (after an ABORT), and say how the plan ended."""
    running = [u.step_id for u in state.under_way]
    state = lab.executor.cancel(state, lab, running, "the run ended while it was under way")
    plan = state.task_plan
    if plan is None:
        return state
    if plan.status not in (PlanStatus.COMPLETED, PlanStatus.FAILED, PlanStatus.ABORTED):
        whole = plan.count(StepStatus.COMPLETED, StepStatus.SKIPPED) == len(plan)
        unfinished = PlanStatus.FAILED if state.stopped_by is None else PlanStatus.ABORTED
        plan = plan.put(status=PlanStatus.COMPLETED if whole else unfinished)
    return state.put(task_plan=plan)


def outcome_of(state: State) -> Outcome:
    """Return how the run ended: as its plan did, or well where it needed none."""
    if state.error is not None:
        return Outcome.FAILED
    plan = state.task_plan
    return Outcome.COMPLETED if plan is None else Outcome(plan.status.value)


def plan_answer(state: State) -> Json:
    """Return the plan's answer template resolved, or None when it does not resolve."""
    plan = state.task_plan
    if plan is None or plan.answer is None:
        return None
    try:
        return resolve(plan.answer, state.results)
    except ReferenceError_:
        return None
