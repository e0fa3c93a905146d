"""What goes wrong at the call seam, and when.

A fault is drawn once, when a call is submitted: by a fault that stands on the tool, a scheduled
outage, a target, or by rate, in this order. The rate's draw depends on (seed, scenario, tool,
digest of the arguments, occurrence of that pair in the run) and is compared with the rate, so the
same logical call meets the same fault in every arm and order, and faults at a low rate are a
subset of those at a higher one. Kind, persistence and visibility come from draws of their own
under the same key.

A fault is delivered when the call finishes. Announced: an error comes back. Silent: the result,
and what is learned from it, is false. A permanent fault stands on the tool from its delivery on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentlab.base.documents import Json, composed, digest, merge_patch
from agentlab.base.randomness import choose, uniform
from agentlab.base.trail import More
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment, Outcome, breach
from agentlab.environments.fault_plan import (
    LM_KINDS,
    SPOILS_RESULT,
    FaultKind,
    FaultPlan,
    Outage,
    Persistence,
    TargetedFault,
    Visibility,
    WorldEvent,
)
from agentlab.lab.falsify import emptied, falsify
from agentlab.state.events import SEVERITY, ChangeType, ContextChangeEvent
from agentlab.state.records import DeliveredFault, Fault
from agentlab.state.state import State
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool

ALWAYS_ANNOUNCED = frozenset(
    {FaultKind.TIMEOUT, FaultKind.TIMEOUT_AFTER_COMMIT, FaultKind.RATE_LIMIT}
)
NOT_EXECUTED = frozenset({FaultKind.ERROR, FaultKind.TIMEOUT, FaultKind.RATE_LIMIT})


def fault_for(state: State, tool: str, arguments: Json, key: str, step_id: str) -> Fault | None:
    """Return the fault that a call submitted now will meet, or None.

    Parameters
    ----------
    state : State
        With fault plan, standing faults and occurrence counters.
    tool : str
    arguments : JSON
        Resolved.
    key : str
        Digest of the arguments.
    step_id : str
        Who calls.
    """
    plan = state.fault_plan
    standing: Fault | None = state.standing.get(tool)
    if standing is not None and (standing.until is None or state.now < standing.until):
        return standing
    down = outage_of(state, tool)
    if down is not None:
        return down
    occurrence = state.occurrences.get(f"{tool}:{key}", 0)
    for target in plan.targets:
        aimed = target_fault(target, state, tool, arguments, occurrence, step_id)
        if aimed is not None:
            return aimed
    if plan.rate and (not plan.tools or tool in plan.tools):
        drawn = rate_fault(plan, state.seed, state.scenario_id, tool, key, occurrence)
        return None if drawn is not None and drawn.kind in LM_KINDS else drawn
    return None


def rate_fault(
    plan: FaultPlan, seed: int, scenario: str, tool: str, key: str, occurrence: int
) -> Fault | None:
    """Return the rate-based fault of one logical call, or None."""
    names = (seed, scenario, tool, key, occurrence)
    if uniform(*names) >= plan.rate:
        return None
    return _normal(
        choose(plan.kinds, uniform(*names, "kind")),
        choose(plan.persistence, uniform(*names, "persistence")),
        choose(plan.visibility, uniform(*names, "visibility")),
        "rate",
        uniform(*names, "detail"),
    )


def _normal(
    kind: FaultKind, persistence: Persistence, visibility: Visibility, source: str, draw: float
) -> Fault:
    if kind in ALWAYS_ANNOUNCED:
        visibility = Visibility.ANNOUNCED
    if kind is FaultKind.RATE_LIMIT and persistence is Persistence.TRANSIENT:
        persistence = Persistence.UNTIL  # a limit that is gone at once limits nothing
    return Fault.made(
        kind=kind, persistence=persistence, visibility=visibility, source=source, draw=draw
    )


def target_fault(
    target: TargetedFault, state: State, tool: str, arguments: Json, occurrence: int, step: str
) -> Fault | None:
    """Return the fault of a target where it strikes a call, or None."""
    strikes = (
        target.tool == tool
        and target.kind not in LM_KINDS  # these strike LMs
        and (target.step is None or target.step == step)
        and (target.occurrence is None or target.occurrence == occurrence)
        and (target.after is None or state.now >= target.after)
        and (target.before is None or state.now < target.before)
        and all(k in arguments and arguments[k] == v for k, v in (target.arguments or {}).items())
    )
    if not strikes:
        return None
    return _normal(target.kind, target.persistence, target.visibility, "target", 0.5)


def outage_of(state: State, tool: str) -> Fault | None:
    """Return the fault that calls of a tool meet while it is down, or None."""
    for outage in state.fault_plan.outages:
        if outage.tool == tool and _is_down(state, outage):
            return Fault(kind=FaultKind.ERROR, source="outage", until=_outage_end(outage))
    return None


def _outage_end(outage: Outage) -> float | None:
    return None if outage.seconds is None else outage.start + outage.seconds


def _is_down(state: State, outage: Outage) -> bool:
    end = _outage_end(outage)
    if state.now < outage.start or (end is not None and state.now >= end):
        return False
    return uniform(state.seed, state.scenario_id, "outage", outage.name) < outage.chance


def duration(fault: Fault | None, tool: Tool, seconds: float) -> float:
    """Return the simulated seconds that a call takes under its fault."""
    if fault is None:
        return seconds
    if fault.kind in (FaultKind.TIMEOUT, FaultKind.TIMEOUT_AFTER_COMMIT):
        return tool.timeout
    if fault.kind is FaultKind.LATENCY_SPIKE:
        return seconds * (3.0 + 7.0 * fault.draw)
    return seconds


@dataclass(frozen=True, slots=True)
class Struck:
    """What a call under a fault came to."""

    outcome: Outcome
    committed: bool
    delivered: bool = True
    truth: dict[str, Any] | None = None
    """What puts the belief right: what the call would have taught, or that it taught falsely."""


def strike(
    fault: Fault,
    environment: Environment | None,
    tool: Tool,
    call: Call,
    world: Document,
    execute: Callable[[Document], Outcome],
) -> Struck:
    """Carry out a call under a fault.

    Parameters
    ----------
    fault : Fault
    environment : Environment or None
        None for tools outside a simulated world.
    tool, call, world
        What is called, on which world.
    execute : callable
        Carries the call out on a world, for real; called at most once.
    """
    kind = fault.kind
    if kind in NOT_EXECUTED:
        if fault.visibility is Visibility.ANNOUNCED:
            return Struck(Outcome(world, error=_error(fault, tool)), committed=False)
        return _silent_failure(environment, tool, call, world)
    if kind in (FaultKind.WORLD_CHANGE, FaultKind.NEW_CONSTRAINT):
        return _changed_world(fault, environment, call, world, execute)
    done = execute(world)
    if done.error is not None or kind is FaultKind.LATENCY_SPIKE:
        return Struck(done, committed=done.committed, delivered=done.error is None)
    announced = fault.visibility is Visibility.ANNOUNCED
    if kind is FaultKind.TIMEOUT_AFTER_COMMIT or (kind in SPOILS_RESULT and announced):
        told = Outcome(done.world, error=_error(fault, tool))
        return Struck(told, committed=True, truth=done.learned)
    result, learned = falsify(done.result, done.learned, kind, fault.draw)
    if tool.effect is Effect.READ and kind is not FaultKind.WRONG_RESULT:
        learned = {} if kind is not FaultKind.RENAMED_FIELD else learned
    told = Outcome(done.world, result=result, learned=learned)
    if (result, learned) == (done.result, done.learned):  # nothing in it that could be false
        return Struck(done, committed=True, delivered=False)
    return Struck(
        told, committed=True, truth=composed(_as_it_is(done.world, learned), done.learned)
    )


def _silent_failure(
    environment: Environment | None, tool: Tool, call: Call, world: Document
) -> Struck:
    """Nothing happened, and the agent is told that it did."""
    if environment is None or tool.service != "environment":
        return Struck(Outcome(world, result={}), committed=False)
    with breach(environment, f"apply of {tool.name}"):
        would = environment.apply(world, call)
    if would.error is not None:  # it would have failed anyway: nothing to hide
        return Struck(Outcome(world, error=would.error), committed=False, delivered=False)
    if tool.effect is Effect.READ:
        return Struck(Outcome(world, result=emptied(would.result)), committed=False)
    told = Outcome(world, result=would.result, learned=would.learned)
    return Struck(told, committed=False, truth=_as_it_is(world, would.learned))


def _as_it_is(world: Document, learned: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that takes back what was falsely learned."""
    return {
        k: _as_it_is(world[k], v)
        if isinstance(v, dict) and isinstance(world.get(k), dict)
        else world.get(k)
        for k, v in learned.items()
    }


def _changed_world(
    fault: Fault,
    environment: Environment | None,
    call: Call,
    world: Document,
    execute: Callable[[Document], Outcome],
) -> Struck:
    """The world changes under the call's hands, just before it takes effect."""
    patch = None
    if environment is not None:
        change = fault.kind is FaultKind.WORLD_CHANGE
        with breach(environment, f"a fault of {call.tool}"):
            patch = (
                environment.disturb(world, call, fault.draw)
                if change
                else environment.constrain(world, fault.draw)
            )
    if not patch:
        done = execute(world)
        return Struck(done, committed=done.committed, delivered=False)
    done = execute(dict(merge_patch(world, patch)))
    if fault.visibility is Visibility.ANNOUNCED:
        learned = merge_patch(patch, done.learned)
        done = Outcome(done.world, done.result, done.error, learned)
    return Struck(done, committed=done.committed, truth=patch)


def _error(fault: Fault, tool: Tool) -> ToolError:
    permanent = fault.persistence is Persistence.PERMANENT
    again = ""
    if permanent:
        again = " for good"
    elif fault.until is not None:
        again = f" until {fault.until:g} s"
    code, text = {
        FaultKind.ERROR: ("unavailable", f"{tool.name} is unavailable{again}"),
        FaultKind.RATE_LIMIT: ("rate_limit", f"{tool.name}: too many requests{again}"),
        FaultKind.TIMEOUT: ("timeout", f"{tool.name} gave no answer in {tool.timeout:g} s"),
        FaultKind.TIMEOUT_AFTER_COMMIT: (
            "timeout",
            f"{tool.name} gave no answer in {tool.timeout:g} s",
        ),
    }.get(fault.kind, ("malformed_result", f"{tool.name} returned something unreadable{again}"))
    return ToolError.made(code=code, message=text, permanent=permanent)


def stand(state: State, tool: str, fault: Fault) -> Fault | None:
    """Return the fault that stands on a tool after ``fault`` was delivered, or None."""
    if fault.source in ("standing", "outage") or fault.persistence is Persistence.TRANSIENT:
        return None
    if fault.persistence is Persistence.PERMANENT:
        return fault.put(source="standing")
    return fault.put(source="standing", until=state.now + state.fault_plan.duration)


def set_times(state: State) -> list[float]:
    """Return the simulated times at which the faults of a run change by the clock, in order.

    They are the beginnings and ends of outages, the bounds of targets, and the events that happen.
    """
    plan, times = state.fault_plan, set[float]()
    for outage in plan.outages:
        if _is_down(state.put(now=outage.start), outage):
            times |= {outage.start, _outage_end(outage) or 0.0}
    for target in plan.targets:
        times |= {target.after or 0.0, target.before or 0.0}
    times |= {event_time(state, event) or 0.0 for event in plan.events}
    return sorted(times - {0.0})


# ---- what happens in the world by itself ---------------------------------------------------


def event_time(state: State, event: WorldEvent) -> float | None:
    """Return the simulated time at which a world event happens in this run, or None."""
    chance = state.fault_plan.rate if event.chance is None else event.chance
    names = (state.seed, state.scenario_id, "event", event.name)
    if uniform(*names) >= chance:
        return None
    start, end = event.between
    return start + (end - start) * uniform(*names, "time")


def advance(state: State, to: float, **fields: Any) -> State:
    """Move simulated time on; what happens in the world meanwhile happens.

    Parameters
    ----------
    **fields
        What else to put into the state that comes out.
    """
    due = []
    if state.fault_plan.events:
        for event in state.fault_plan.events:
            if event.name not in state.world_events_done:
                at = event_time(state, event)
                if at is not None and at <= to:
                    due.append((at, event))
    for at, event in sorted(due, key=lambda item: item[0]):
        state = _happen(state, event, max(at, state.now))  # drawn anew, it may lie in the past
    if to > state.now:
        fields["now"] = to
    return state.put(**fields) if fields else state


def _happen(state: State, event: WorldEvent, at: float) -> State:
    announced = event.visibility is Visibility.ANNOUNCED
    fault = Fault(kind=event.kind, visibility=event.visibility, source="event")
    delivered = DeliveredFault(
        fault=fault, tool=event.name, arguments=digest(event.patch), at=at, truth=event.patch
    )
    changes: dict[str, Any] = {
        "world": merge_patch(state.world, event.patch),
        "delivered": More((delivered,)),
        "world_events_done": (*state.world_events_done, event.name),
    }
    if announced:
        kind = (
            ChangeType.NEW_CONSTRAINT
            if event.kind is FaultKind.NEW_CONSTRAINT
            else ChangeType.EXTERNAL_SIGNAL
        )
        notice = ContextChangeEvent(
            type=kind,
            severity=SEVERITY[kind],
            description=event.description or event.name,
            payload=event.patch,
            occurred_at=at,
            session_id=state.session_id,
        )
        changes["belief"] = merge_patch(state.belief, event.patch)
        changes["events"] = More((notice,))
    return state.put(**changes)
