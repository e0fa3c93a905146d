"""``final_response``: the plan's answer as a value, and what the user is told."""

from __future__ import annotations

from agentlab.bench import Bench
from agentlab.errors import ReferenceError_
from agentlab.nodes.base import node
from agentlab.plans.references import resolve
from agentlab.state import State
from agentlab.values import Json


@node
def final_response(state: State, lab: Bench) -> State:
    """Resolve the plan's answer, write the response, and tell the handler."""
    state = state.replace(answer=plan_answer(state))
    text = lab.responder.respond(state, lab)
    lab.emit("on_token", text)
    lab.emit("on_complete", text, state.session_id)
    return state.replace(final_response=text, next_action="")


def plan_answer(state: State) -> Json:
    """Return the plan's answer template resolved, or None when it does not resolve."""
    plan = state.task_plan
    if plan is None or plan.answer is None:
        return None
    try:
        return resolve(plan.answer, state.results)
    except ReferenceError_:
        return None
