"""What may be tried again.

A step that failed may be tried again where that cannot do the same thing twice. The outcome of a
call is unknown when it gave no answer in time, was interrupted or cancelled, or its server was lost
meanwhile: it may have taken effect. A read and an idempotent call may be repeated all the same; of
the others, with real tools none, and in a simulated world all but the irreversible. A decision to
RETRY what may not be repeated is no decision, whoever takes it, unless it says that it repeats what
is unknown: ``retry(k, unknown="repeat")`` does, and so does the oracle, to which it is known.
"""

from __future__ import annotations

from typing import Literal

from agentlab.minds.base import Kit
from agentlab.plans.task_plan import ActionType
from agentlab.state.decisions import ReplanAction, ReplanDecision
from agentlab.state.state import State
from agentlab.tools.tool import REPEATABLE, Effect

Unknown = Literal["refuse", "repeat"]
"""What a retry does about a call whose outcome is unknown."""

_CALLS = frozenset({ActionType.CALL_TOOL.value, ActionType.MCP_CALL.value})
_WITHOUT_EFFECT = frozenset(
    {ActionType.LLM_GENERATE.value, ActionType.RAG_QUERY.value, ActionType.AGGREGATE.value}
)


def not_again(decision: ReplanDecision, state: State, kit: Kit) -> str | None:
    """Return what a decision wants to try again that must not be, or None."""
    if decision.action is not ReplanAction.RETRY:
        return None
    if state.rejected(decision.step_id):
        return "what a person rejected"
    if not decision.repeats_unknown and may_stand(state, kit, decision.step_id):
        return "a call that may have taken effect"
    return None


def may_stand(state: State, kit: Kit, step_id: str | None) -> bool:
    """Say whether a step may have done something that must not be done twice, though it failed."""
    if not state.outcome_unknown(step_id):
        return False
    plan = state.task_plan
    step = plan.step(step_id) if step_id and plan is not None and step_id in plan else None
    if step is None or step.action_type not in _CALLS:
        return step is None or step.action_type not in _WITHOUT_EFFECT
    tool = kit.tools.get(step.target_resource)
    if tool is None:
        return True
    if tool.service == "environment":
        return tool.effect is Effect.IRREVERSIBLE
    return tool.effect not in REPEATABLE
