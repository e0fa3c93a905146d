"""The events that no decision knows yet, told apart as they come.

A strategy that watches is asked at every visit. To look through all that is undecided each time
would cost a run the square of its events, so what a state found it hands on to the states that
follow it, and they look at what came since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentlab.base.persistent import PersistentVector, pvector
from agentlab.base.trail import More, since
from agentlab.state.events import REACT, ChangeType, ContextChangeEvent, Severity
from agentlab.state.state import State

Events = PersistentVector[ContextChangeEvent]
KEPT = "_undecided"
"""Where a state keeps what it found: beside its fields, as its trail."""


class Undecided(NamedTuple):
    """Undecided events; ``State.is_news`` says which of them are none any more."""

    by_severity: dict[Severity, Events]
    asking: Events
    """Somebody asks for a decision (``REACT``)."""
    milestones: Events


NOTHING = Undecided({s: pvector() for s in Severity}, pvector(), pvector())


def undecided(state: State) -> Undecided:
    """Return the events since the last decision; the cost is that of what came since last asked."""
    trail = state.__dict__.setdefault("_trail", ([], 0))
    number, found = state.events_decided, NOTHING
    if KEPT in state.__dict__:
        earlier, decided, known, before = state.__dict__[KEPT]
        entries = since(trail, earlier)
        if decided == number and entries is not None and _only_more(entries):
            number, found = known, before
    new = (state.events[i] for i in range(number, len(state.events)))
    found = _with(found, new)
    state.__dict__[KEPT] = (trail, state.events_decided, len(state.events), found)
    return found


def _only_more(entries: Iterable[list[tuple[str, object]]]) -> bool:
    """Say whether events were appended, and nothing else was done to them."""
    return all(place is More for entry in entries for name, place in entry if name == "events")


def _with(found: Undecided, events: Iterable[ContextChangeEvent]) -> Undecided:
    sorted_, asking, milestones = dict(found.by_severity), found.asking, found.milestones
    for event in events:
        sorted_[event.severity] = sorted_[event.severity].append(event)
        if event.payload.get(REACT):
            asking = asking.append(event)
        elif event.type is ChangeType.MILESTONE_REACHED:
            milestones = milestones.append(event)
    return Undecided(sorted_, asking, milestones)
