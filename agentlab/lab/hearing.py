"""The inbox: events that other threads publish, until the run hears of them.

To hear is a contact with the outside: what was heard is written to the journal under the visit, so
a replay and a resumed run hear the same events at the same visit, and a fork has in its state what
was heard before it. An event leaves the inbox only when it is written down.
"""

from __future__ import annotations

from agentlab.base.documents import merge_patch
from agentlab.base.trail import More
from agentlab.lab.bench import Bench
from agentlab.state.events import LEARNED, ContextChangeEvent
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
    events: tuple[ContextChangeEvent, ...] = ()
    if known is not None:
        events = tuple(map(ContextChangeEvent.model_validate, known.result))
    if known is None or last:  # a last visit that is made again also takes what came since
        new = bench.inbox.waiting(close=last)
        events += new
        if new:
            bench.journal.finish(address, "inbox", "", [e.to_json() for e in events], None)
            bench.inbox.drop(len(new))
    for event in events:
        state = published(state, bench, event)
        learned = event.payload.get(LEARNED)
        if isinstance(learned, dict):
            state = state.put(belief=merge_patch(state.belief, learned))
    return state


def published(state: State, bench: Bench, event: ContextChangeEvent) -> State:
    """Return the state with one more event, and record it."""
    bench.recorder.mark(
        "event", event.type, visit=state.visit, step_id=event.task_id or "", now=state.now,
        output={"severity": event.severity.value, "description": event.description},
    )  # fmt: skip
    return state.put(events=More((event,)))
