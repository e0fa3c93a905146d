"""The strategies that ship, each a line of trigger × scope × budget × when_spent."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.state.decisions import ReplanAction
from agentlab.state.events import Severity

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


def retry(k: int = 2, wait: float = 0.0, *, repeat_irreversible: bool = False) -> Strategy:
    """Try a failed step again, up to k times; then give up (see ``scopes.step``)."""
    name = _named(retry, k, wait=wait, repeat_irreversible=repeat_irreversible)
    scope = scopes.step(k, wait, repeat_irreversible)
    return Strategy(name, triggers.after_failure, scope, Budget(replans=0), ABORT)


def retry_then_replan(
    k: int = 2, replans: int = 3, wait: float = 0.0, *, repeat_irreversible: bool = False
) -> Strategy:
    """Try a failed step again, up to k times (see ``scopes.step``); then plan the rest anew."""
    named = {"replans": replans, "wait": wait, "repeat_irreversible": repeat_irreversible}
    name = _named(retry_then_replan, k, **named)
    scope = scopes.first(scopes.step(k, wait, repeat_irreversible), scopes.rest)
    return Strategy(name, triggers.after_failure, scope, Budget(replans=replans), ABORT)


def on_error(replans: int = 3) -> Strategy:
    """Plan the rest anew when a step fails."""
    name = _named(on_error, replans=replans)
    return Strategy(name, triggers.after_failure, scopes.rest, Budget(replans=replans), ABORT)


def ask_on_error(replans: int = 3) -> Strategy:
    """Ask the language model what to do when a step fails."""
    name, budget = _named(ask_on_error, replans=replans), Budget(replans=replans)
    return Strategy(name, triggers.after_failure, scopes.ask, budget, ABORT, needs_model=True)


def every_step(replans: int = 50) -> Strategy:
    """Plan the rest anew after every step, failed or not (Plan-and-Act, arXiv 2503.09572)."""
    name = _named(every_step, replans=replans)
    return Strategy(name, triggers.every(1), scopes.rest, Budget(replans=replans), CONTINUE)


def every(n: int = 3, replans: int = 50) -> Strategy:
    """Plan the rest anew after every n-th execution of a step."""
    name = _named(every, n, replans=replans)
    return Strategy(name, triggers.every(n), scopes.rest, Budget(replans=replans), CONTINUE)


def reflect_on_total_failure(replans: int = 3, executions: int = 20) -> Strategy:
    """Ask the reflector when a whole plan failed: the rule of the autonomous workflow."""
    name = _named(reflect_on_total_failure, replans=replans, executions=executions)
    budget = Budget(replans=replans, executions=executions)
    return Strategy(name, triggers.total_failure, scopes.reflect, budget, ABORT)


def event_driven(
    threshold: str = "WARNING", batch: int = 3, milestones: bool = True, decider: str = "rules",
    replans: int = 3,
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
    """
    if threshold not in list(Severity):
        raise ValueError(f"expected a threshold of {', '.join(Severity)}, got {threshold!r}")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"expected a batch of at least 1 event, got {batch!r}")
    if decider not in ("rules", "lm"):
        raise ValueError(f"expected decider 'rules' or 'lm', got {decider!r}")
    name = _named(
        event_driven, threshold=str(threshold), batch=batch, milestones=milestones,
        decider=decider, replans=replans,
    )  # fmt: skip
    return Strategy(
        name, triggers.changes(Severity(threshold), batch, milestones),
        scopes.supervise(decider == "lm"), Budget(replans=replans), ABORT,
        needs_model=decider == "lm", watches=True,
    )  # fmt: skip


def oracle(replans: int = 50) -> Strategy:
    """Repair at every delivered fault, seen or silent, with knowledge of it (privileged)."""
    name = _named(oracle, replans=replans)
    return Strategy(name, triggers.delivered_fault, scopes.informed, Budget(replans=replans), ABORT)
