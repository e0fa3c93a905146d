"""The inbox: events that other threads publish, until the run hears of them.

To hear is a contact with the outside: what was heard is written to the journal under the visit, so
a replay and a resumed run hear the same events at the same visit, and a fork has in its state what
was heard before it. An event leaves the inbox only when it is written down.
"""

from __future__ import annotations

from typing import Any

from agentlab.base.documents import merge_patch
from agentlab.base.trail import More
from agentlab.environments.base import breach
from agentlab.lab.bench import Bench
from agentlab.state.events import LEARNED, OUTSIDE, REACT, ContextChangeEvent
from agentlab.state.state import State
from agentlab.trace.journal import Address

PLACE = "(inbox)"
"""Stands for the step id in the addresses of what was heard."""


def heard(state: State, bench: Bench, *, last: bool = False) -> State:
    """Return the state with what was published since.

    Parameters
    ----------
    last : bool
        Nobody will hear of anything published later.
    """
    address = Address(state.visit, PLACE)
    known = bench.journal.recorded(address)
    times: list[str] = []
    events: tuple[ContextChangeEvent, ...] = ()
    if known is not None:
        events = tuple(map(ContextChangeEvent.model_validate, known.result))
    if known is None or last:  # a last visit that is made again also takes what came since
        new = bench.inbox.waiting(close=last)
        events += new
        if new:
            bench.journal.finish(address, "inbox", "", [e.to_json() for e in events], None)
            times = bench.inbox.times(len(new))
            bench.inbox.drop(len(new))
    moments = [None] * (len(events) - len(times)) + times
    for event, moment in zip(events, moments, strict=True):
        state = published(state, bench, event, moment)
        if moment is not None:
            bench.emit("on_context_change", event, moment)
        learned = _learned(state, bench, event)
        if learned:
            state = state.put(belief=merge_patch(state.belief, learned))
    return state


def _learned(state: State, bench: Bench, event: ContextChangeEvent) -> dict[str, Any] | None:
    """Return what is believed from now on: as the event says, or as the world understands it."""
    said = event.payload.get(LEARNED)
    if isinstance(said, dict):
        return said
    payload = {k: v for k, v in event.payload.items() if k not in (REACT, LEARNED)}
    if not payload or event.type not in OUTSIDE or bench.environment is None:
        return None
    with breach(bench.environment, "understood"):
        return bench.environment.understood(state.belief, payload)


def published(
    state: State, bench: Bench, event: ContextChangeEvent, moment: str | None = None
) -> State:
    """Return the state with one more event, and record it.

    ``moment`` is when it was published by the wall clock. It stands in the span and never in the
    state, which is the same in a replay, a fork and another day's run.
    """
    span = bench.recorder.mark(
        "event", event.type, visit=state.visit, step_id=event.task_id or "", now=state.now,
        output={"severity": event.severity.value, "description": event.description},
    )  # fmt: skip
    if moment is not None:
        span.attributes = {"occurredAt": moment}
    return state.put(events=More((event,)))
