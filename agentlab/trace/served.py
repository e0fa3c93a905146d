"""LM calls that a trace tells of, as the entries of a journal that serves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentlab.base.arrived import seen
from agentlab.base.documents import Json, digest
from agentlab.errors import RunError
from agentlab.lm.outcome import reply_parts
from agentlab.trace.journal import Address, Entry, ReplayJournal
from agentlab.trace.span import Span


def served_calls(spans: Iterable[Span]) -> ReplayJournal:
    """Return a journal that serves the LM calls which these spans tell of."""
    return ReplayJournal(call_entries(spans))


def call_entries(spans: Iterable[Span]) -> list[Entry]:
    """Return what a journal would know of the LM calls which these spans tell of."""
    entries, made = [], Counter[tuple[int, str, int, str]]()
    for span in spans:
        if span.kind == "lm":
            talk = span.attributes.get("talk", "")
            place = (span.visit, span.step_id, span.attempt, talk)
            made[place] += 1
            told = ("occurrence", "faults", "cost", "counted")
            noted = {k: span.attributes[k] for k in told if k in span.attributes}
            entries.append(
                Entry(
                    Address(*place[:3], made[place], talk), f"lm:{span.name}",
                    digest(span.input), True,
                    {"response": span.output, **noted}, span.error,
                )
            )  # fmt: skip
    return entries


def answered(
    calls: Sequence[Span],
    replies: Mapping[int, str | Mapping[str, Json]],
    known: Iterable[Entry] = (),
) -> list[Entry]:
    """Return what a journal must know for one visit to get other replies.

    Parameters
    ----------
    calls : sequence of Span
        The visit's LM calls; those before the last that is changed keep their replies.
    replies : mapping of int to str or mapping
        Number of the call, from 0, to the text it is answered by, or to ``{"text": ...,
        "tool_calls": [{"name": ..., "arguments": {...}}]}``.
    known : iterable of Entry
        The journal's, which alone tells the addresses of calls inside a sub-agent.

    Raises
    ------
    RunError
        There is no such call, or these are no replies.
    """
    if not isinstance(replies, Mapping):
        raise RunError(f"expected replies such as {{0: 'text'}}, got {seen(replies)}")
    for number in replies:
        if not isinstance(number, int) or not 0 <= number < len(calls):
            raise RunError(
                f"expected the number of one of the visit's {len(calls)} LM calls, got {number}"
            )
    left = list(known)
    entries = [_placed(e, left) for e in call_entries(calls[: max(replies) + 1])]
    for number, reply in replies.items():
        entry = entries[number]
        try:
            parts, finish = reply_parts(reply, calls[number].input)
        except ValueError as e:
            raise RunError(str(e)) from e
        response = {
            **(entry.result["response"] or {"model": entry.name.partition(":")[2]}),
            "message": {"role": "assistant", "parts": parts},
            "finish_reason": finish,
        }
        told = {**entry.result, "response": response, "faults": []}
        entries[number] = replace(entry, result=told, error=None)
    return entries


def _placed(entry: Entry, left: list[Entry]) -> Entry:
    """Return an entry at the address that the first of the same request has, and take that out."""
    for i, one in enumerate(left):
        if (one.name, one.request) == (entry.name, entry.request):
            return replace(entry, address=left.pop(i).address)
    return entry
