"""Scopes: what a decision touches."""

from __future__ import annotations

from typing import Any, get_args

from agentlab.base.documents import composed
from agentlab.environments.fault_plan import SPOILS_RESULT, Persistence
from agentlab.errors import seen
from agentlab.minds.base import Kit
from agentlab.minds.returned import reflection_of
from agentlab.minds.strategies.base import Scope
from agentlab.minds.strategies.repeats import Unknown, may_stand, not_again
from agentlab.minds.strategies.triggers import BROKEN, planned, struck, told, unseen_events
from agentlab.state.decisions import ReplanAction, ReplanDecision, Trigger, TriggerPoint
from agentlab.state.events import Severity
from agentlab.state.state import State
from agentlab.tools.calls import CallRecord


def step(k: int, wait: float = 0.0, unknown: Unknown = "refuse") -> Scope:
    """Try the step again, up to ``k`` times after its first execution.

    Only a step whose action ran is tried again: what failed because a dependency was unmet or a
    reference did not resolve would fail the same way. So would a call whose error says permanent.
    What a person rejected is not tried again, and a call whose outcome is unknown, so that it may
    have taken effect (see ``agentlab.minds.strategies.repeats``), only where that is asked for.

    Parameters
    ----------
    k : int
        Retries of one step, at least 0.
    wait : float
        Simulated seconds before each retry.
    unknown : {"refuse", "repeat"}
        Offer nothing about a call whose outcome is unknown, or make it again all the same.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ValueError(f"expected a number of retries k of at least 0, got {seen(k)}")
    if wait < 0:
        raise ValueError(f"expected a wait of at least 0 seconds, got {seen(wait)}")
    if unknown not in get_args(Unknown):
        raise ValueError(f"expected unknown 'refuse' or 'repeat', got {seen(unknown)}")

    def scope(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
        attempts = state.attempts.get(trigger.step_id, 0) if trigger.step_id else 0
        last = state.task_results[-1] if state.task_results else None
        ran = last is not None and last.step_id == trigger.step_id and last.attempt > 0
        if not ran or attempts > k or _permanent(state, trigger.step_id):
            return None
        if unknown == "refuse" and may_stand(state, kit, trigger.step_id):
            return None
        return ReplanDecision(
            action=ReplanAction.RETRY,
            step_id=trigger.step_id,
            wait=wait,
            repeats_unknown=unknown == "repeat",
            reasoning=f"{trigger.reason}; retry {attempts} of {k}",
        )

    return scope


def _permanent(state: State, step_id: str | None) -> bool:
    last = _last_call(state, step_id)
    error = None if last is None else last.error
    return state.rejected(step_id) or (error is not None and error.permanent)


def _last_call(state: State, step_id: str | None) -> CallRecord | None:
    """Return a step's own last call; with several workers another step's may have come since."""
    own = (c for c in reversed(state.calls) if step_id is not None and c.step_id == step_id)
    return next(own, None)


def rest(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
    """Plan anew what remains."""
    return ReplanDecision(
        action=ReplanAction.REPLAN_REMAINING, step_id=trigger.step_id, reasoning=trigger.reason
    )


def whole(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
    """Plan anew from where the world stands."""
    return ReplanDecision(
        action=ReplanAction.REPLAN_FULL, step_id=trigger.step_id, reasoning=trigger.reason
    )


def nothing(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
    """Do nothing."""
    return ReplanDecision(action=ReplanAction.CONTINUE, reasoning=trigger.reason)


def first(*scopes: Scope) -> Scope:
    """Take the first scope that has something to offer: an escalation ladder."""

    def scope(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
        for one in scopes:
            decision = one(trigger, state, kit)
            if decision is not None:
                return decision
        return None

    return scope


def reflect(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
    """Ask the reflector; plan anew when it says so."""
    reflection = reflection_of(kit.reflector.reflect(state, kit), kit.reflector)
    if not reflection.need_replan:
        return ReplanDecision(
            action=ReplanAction.CONTINUE, reasoning=reflection.analysis, reflection=reflection
        )
    return ReplanDecision(
        action=ReplanAction.REPLAN_FULL,
        reasoning=reflection.replan_reason or reflection.analysis,
        new_context_hints=reflection.suggestions,
        reflection=reflection,
    )


def ask(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
    """Ask the decider; plan the rest anew where it gives no decision, and say why it gave none.

    It may not retry a step that would fail the same way, nor one that must not be repeated: that is
    no decision either.
    """
    found = "there is no decider" if kit.decider is None else None
    if kit.decider is not None:
        told = kit.decider.decide(trigger, state, kit)
        if isinstance(told, str):
            found = told
        elif told.action is ReplanAction.RETRY and told.step_id is None:
            found = f"it wants to retry, and no step failed: {told.reasoning}"
        elif told.action is ReplanAction.RETRY and _permanent(state, told.step_id):
            found = f"it wants to retry a call that is permanently refused: {told.reasoning}"
        elif (barred := not_again(told, state, kit)) is not None:
            found = f"it wants to retry {barred}: {told.reasoning}"
        else:
            return told
    return ReplanDecision(
        action=ReplanAction.REPLAN_REMAINING, step_id=trigger.step_id,
        reasoning=f"{trigger.reason} (by rule, since {found})",
    )  # fmt: skip


def supervise(by_model: bool) -> Scope:
    """Decide about what happened: go on at a mere milestone, else plan the rest anew.

    What is critical when no replan is left aborts without anybody being asked.

    Parameters
    ----------
    by_model : bool
        Ask the language model; the rule decides where it gives no decision, and says so.
    """

    def scope(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
        fresh = state.fresh_events
        critical = any(e.severity is Severity.CRITICAL for e in fresh)
        if critical and not state.replans_left:
            return ReplanDecision(
                action=ReplanAction.ABORT, spent="replans",
                reasoning=f"{trigger.reason}; no replan is left",
            )  # fmt: skip
        note = ""
        if by_model:
            found = None if kit.decider is None else kit.decider.decide(trigger, state, kit)
            if isinstance(found, ReplanDecision):
                barred = not_again(found, state, kit)
                if barred is None:
                    return found
                found = f"it wants to retry {barred}: {found.reasoning}"
            note = f" (by rule, since {found or 'there is no decider'})"
        harmless = trigger.point is TriggerPoint.PHASE_END
        return ReplanDecision(
            action=ReplanAction.CONTINUE if harmless else ReplanAction.REPLAN_REMAINING,
            reasoning=trigger.reason + note,
            new_context_hints=() if harmless else tuple(told([e]) for e in fresh),
        )

    return scope


def informed(trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | None:
    """Repair with knowledge of the fault: correct the belief, then retry or plan the rest anew.

    A step struck by a passing fault that did not take effect is tried again, also where it was told
    that it did; a tool that failed silently is known to have failed. A result that was falsified is
    taken back and put right in the belief, and the rest is planned from there. What is unknown to
    an agent is known here, unless the step's last call failed for a reason of its own.
    """
    met, correction = struck(state, trigger.step_id), dict[str, Any]()
    for event in unseen_events(state):
        correction = composed(correction, event.truth)
    action, exposed = ReplanAction.REPLAN_REMAINING, None
    if met is not None:
        correction = composed(correction, met.truth)
        fault = met.fault  # an outage may last: trying again at once could go on without end
        passing = fault.persistence is Persistence.TRANSIENT and fault.source != "outage"
        step = planned(state, trigger.step_id)
        failed = step is not None and step.status in BROKEN
        spoilt = fault.kind in SPOILS_RESULT
        if step is not None and (met.committed == failed or spoilt):  # not as it was told
            exposed = met
        if passing and not met.committed and (failed or exposed is not None):
            action = ReplanAction.RETRY
    last = _last_call(state, trigger.step_id)
    known = last is not None and last.faulted
    return ReplanDecision(
        action=action, step_id=trigger.step_id, reasoning=trigger.reason, correction=correction,
        exposed=exposed, repeats_unknown=known and action is ReplanAction.RETRY,
    )  # fmt: skip
