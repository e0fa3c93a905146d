"""The strategies that ship, each a line of trigger × scope × budget × when_spent.

Those that replan take ``when_no_plan``: "stop" the run when a replan gives no plan, or "keep" the
old plan (see ``Strategy``).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Literal

from agentlab.base.arguments import Flag, Positive, takes
from agentlab.base.values import Amount, Count
from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy, WhenNoPlan
from agentlab.minds.strategies.repeats import Unknown
from agentlab.state.decisions import ReplanAction
from agentlab.state.events import Severity

Decided = Literal["rules", "lm"]

CONTINUE, ABORT = ReplanAction.CONTINUE, ReplanAction.ABORT


def _named(preset: Callable[..., Strategy], *always: object, **given: object) -> str:
    """Return a strategy's name with the arguments that are not what they are by default."""
    usual = signature(preset).parameters
    shown = [f"{k}={v!r}" for k, v in given.items() if v != usual[k].default]
    shown = [*map(repr, always), *shown]
    return f"{preset.__name__}({', '.join(shown)})" if shown else preset.__name__


def never() -> Strategy:
    """Go through the plan once, whatever happens."""
    return Strategy("never", triggers.never, scopes.nothing, Budget(replans=0), CONTINUE)


@takes(k=Count, wait=Amount, unknown=Unknown)
def retry(k: int = 2, wait: float = 0.0, *, unknown: Unknown = "refuse") -> Strategy:
    """Try a failed step again, up to k times; then give up (see ``scopes.step``)."""
    name = _named(retry, k, wait=wait, unknown=unknown)
    scope = scopes.step(k, wait, unknown)
    return Strategy(name, triggers.after_failure, scope, Budget(replans=0), ABORT)


@takes(k=Count, replans=Count, wait=Amount, unknown=Unknown, when_no_plan=WhenNoPlan)
def retry_then_replan(
    k: int = 2, replans: int = 3, wait: float = 0.0, *, unknown: Unknown = "refuse",
    when_no_plan: WhenNoPlan = "stop",
) -> Strategy:  # fmt: skip
    """Try a failed step again, up to k times (see ``scopes.step``); then plan the rest anew."""
    name = _named(
        retry_then_replan, k, replans=replans, wait=wait, unknown=unknown,
        when_no_plan=when_no_plan,
    )  # fmt: skip
    scope = scopes.first(scopes.step(k, wait, unknown), scopes.rest)
    return Strategy(
        name, triggers.after_failure, scope, Budget(replans=replans), ABORT,
        when_no_plan=when_no_plan,
    )  # fmt: skip


@takes(replans=Count, when_no_plan=WhenNoPlan)
def on_error(replans: int = 3, *, when_no_plan: WhenNoPlan = "stop") -> Strategy:
    """Plan the rest anew when a step fails."""
    return Strategy(
        _named(on_error, replans=replans, when_no_plan=when_no_plan), triggers.after_failure,
        scopes.rest, Budget(replans=replans), ABORT, when_no_plan=when_no_plan,
    )  # fmt: skip


@takes(replans=Count, when_no_plan=WhenNoPlan)
def ask_on_error(replans: int = 3, *, when_no_plan: WhenNoPlan = "stop") -> Strategy:
    """Ask the language model what to do when a step fails."""
    return Strategy(
        _named(ask_on_error, replans=replans, when_no_plan=when_no_plan), triggers.after_failure,
        scopes.ask, Budget(replans=replans), ABORT, needs_model=True, when_no_plan=when_no_plan,
    )  # fmt: skip


@takes(replans=Count, when_no_plan=WhenNoPlan)
def every_step(replans: int = 50, *, when_no_plan: WhenNoPlan = "stop") -> Strategy:
    """Plan the rest anew after every step, failed or not (Plan-and-Act, arXiv 2503.09572).

    It asks for many plans, so it is the one that a planner which sometimes has none ends most
    often; ``when_no_plan="keep"`` lets it go on with the plan that it has.
    """
    return Strategy(
        _named(every_step, replans=replans, when_no_plan=when_no_plan), triggers.every(1),
        scopes.rest, Budget(replans=replans), CONTINUE, when_no_plan=when_no_plan,
    )  # fmt: skip


@takes(n=Positive, replans=Count, when_no_plan=WhenNoPlan)
def every(n: int = 3, replans: int = 50, *, when_no_plan: WhenNoPlan = "stop") -> Strategy:
    """Plan the rest anew after every n-th execution of a step."""
    return Strategy(
        _named(every, n, replans=replans, when_no_plan=when_no_plan), triggers.every(n),
        scopes.rest, Budget(replans=replans), CONTINUE, when_no_plan=when_no_plan,
    )  # fmt: skip


@takes(replans=Count, executions=Count)
def reflect_on_total_failure(replans: int = 3, executions: int = 20) -> Strategy:
    """Ask the reflector when a whole plan failed: the rule of the autonomous workflow.

    Nothing of such a plan is left to keep, so there is no ``when_no_plan``.
    """
    name = _named(reflect_on_total_failure, replans=replans, executions=executions)
    budget = Budget(replans=replans, executions=executions)
    return Strategy(name, triggers.total_failure, scopes.reflect, budget, ABORT)


@takes(
    threshold=Literal["INFO", "WARNING", "CRITICAL"],
    batch=Positive,
    milestones=Flag,
    decider=Decided,
    replans=Count,
    when_no_plan=WhenNoPlan,
)
def event_driven(
    threshold: str = "WARNING", batch: int = 3, milestones: bool = True, decider: str = "rules",
    replans: int = 3, *, when_no_plan: WhenNoPlan = "stop",
) -> Strategy:  # fmt: skip
    """Decide about events: at once when critical, in batches, and whenever a phase is done.

    Parameters
    ----------
    threshold : {"INFO", "WARNING", "CRITICAL"}
        What counts for a batch.
    batch : int
        Events since the last decision, at least 1.
    milestones : bool
        Decide at the end of each phase of the plan.
    decider : {"rules", "lm"}
    replans : int
    when_no_plan : {"stop", "keep"}
    """
    name = _named(
        event_driven, threshold=str(threshold), batch=batch, milestones=milestones,
        decider=decider, replans=replans, when_no_plan=when_no_plan,
    )  # fmt: skip
    return Strategy(
        name, triggers.changes(Severity(threshold), batch, milestones),
        scopes.supervise(decider == "lm"), Budget(replans=replans), ABORT,
        needs_model=decider == "lm", watches=True, when_no_plan=when_no_plan,
    )  # fmt: skip


@takes(replans=Count, when_no_plan=WhenNoPlan)
def oracle(replans: int = 50, *, when_no_plan: WhenNoPlan = "stop") -> Strategy:
    """Repair at every delivered fault, seen or silent, with knowledge of it (privileged)."""
    return Strategy(
        _named(oracle, replans=replans, when_no_plan=when_no_plan), triggers.delivered_fault,
        scopes.informed, Budget(replans=replans), ABORT, when_no_plan=when_no_plan,
    )  # fmt: skip
