"""The strategies that ship, each a line of trigger × scope × budget × when_spent."""

from __future__ import annotations

from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.state.decisions import ReplanAction
from agentlab.state.events import Severity

CONTINUE, ABORT = ReplanAction.CONTINUE, ReplanAction.ABORT


def _named(name: str, *arguments: object, **named: object) -> str:
    shown = [repr(a) for a in arguments] + [f"{k}={v!r}" for k, v in named.items()]
    return f"{name}({', '.join(shown)})" if shown else name


def never() -> Strategy:
    """Go through the plan once, whatever happens."""
    return Strategy("never", triggers.never, scopes.nothing, Budget(replans=0), CONTINUE)


def retry(k: int = 2, wait: float = 0.0, *, repeat_irreversible: bool = False) -> Strategy:
    """Try a failed step again, up to k times; then give up (see ``scopes.step``)."""
    extra: dict[str, object] = {"wait": wait} if wait else {}
    extra |= {"repeat_irreversible": True} if repeat_irreversible else {}
    return Strategy(
        _named("retry", k, **extra), triggers.after_failure,
        scopes.step(k, wait, repeat_irreversible), Budget(replans=0), ABORT,
    )  # fmt: skip


def retry_then_replan(
    k: int = 2, replans: int = 3, wait: float = 0.0, *, repeat_irreversible: bool = False
) -> Strategy:
    """Try a failed step again, up to k times (see ``scopes.step``); then plan the rest anew."""
    extra: dict[str, object] = {"replans": replans} if replans != 3 else {}
    extra |= {"wait": wait} if wait else {}
    extra |= {"repeat_irreversible": True} if repeat_irreversible else {}
    return Strategy(
        _named("retry_then_replan", k, **extra), triggers.after_failure,
        scopes.first(scopes.step(k, wait, repeat_irreversible), scopes.rest),
        Budget(replans=replans), ABORT,
    )  # fmt: skip


def on_error(replans: int = 3) -> Strategy:
    """Plan the rest anew when a step fails."""
    extra = {"replans": replans} if replans != 3 else {}
    return Strategy(
        _named("on_error", **extra), triggers.after_failure, scopes.rest, Budget(replans=replans),
        ABORT,
    )  # fmt: skip


def ask_on_error(replans: int = 3) -> Strategy:
    """Ask the language model what to do when a step fails."""
    extra = {"replans": replans} if replans != 3 else {}
    return Strategy(
        _named("ask_on_error", **extra), triggers.after_failure, scopes.ask,
        Budget(replans=replans), ABORT, needs_model=True,
    )  # fmt: skip


def every_step(replans: int = 50) -> Strategy:
    """Plan the rest anew after every step, failed or not (Plan-and-Act, arXiv 2503.09572)."""
    extra = {"replans": replans} if replans != 50 else {}
    return Strategy(
        _named("every_step", **extra), triggers.every(1), scopes.rest, Budget(replans=replans),
        CONTINUE,
    )  # fmt: skip


def every(n: int = 3, replans: int = 50) -> Strategy:
    """Plan the rest anew after every n-th execution of a step."""
    extra = {"replans": replans} if replans != 50 else {}
    return Strategy(
        _named("every", n, **extra), triggers.every(n), scopes.rest, Budget(replans=replans),
        CONTINUE,
    )  # fmt: skip


def reflect_on_total_failure(replans: int = 3, executions: int = 20) -> Strategy:
    """Ask the reflector when a whole plan failed: the rule of the autonomous workflow."""
    extra: dict[str, object] = {"replans": replans} if replans != 3 else {}
    extra |= {"executions": executions} if executions != 20 else {}
    return Strategy(
        _named("reflect_on_total_failure", **extra), triggers.total_failure, scopes.reflect,
        Budget(replans=replans, executions=executions), ABORT,
    )  # fmt: skip


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
    given = {"threshold": str(threshold), "batch": batch, "milestones": milestones}
    given |= {"decider": decider, "replans": replans}
    usual = ("WARNING", 3, True, "rules", 3)
    extra = {k: v for (k, v), u in zip(given.items(), usual, strict=True) if v != u}
    return Strategy(
        _named("event_driven", **extra),
        triggers.changes(Severity(threshold), batch, milestones), scopes.supervise(decider == "lm"),
        Budget(replans=replans), ABORT, needs_model=decider == "lm", watches=True,
    )  # fmt: skip


def oracle(replans: int = 50) -> Strategy:
    """Repair at every delivered fault, seen or silent, with knowledge of it (privileged)."""
    extra = {"replans": replans} if replans != 50 else {}
    return Strategy(
        _named("oracle", **extra), triggers.delivered_fault, scopes.informed,
        Budget(replans=replans), ABORT,
    )  # fmt: skip
