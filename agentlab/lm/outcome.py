"""What came of asking a model with a typed request: a value that a workflow routes on.

``finish_reason`` says how it ended: "stop" (a text), "tool_call" (calls of tools, perhaps with a
text), "length" (cut off at the token limit), "content_filter" (declined) or "too_long" (the prompt
did not fit, and there is no reply). That no reply came for another reason is an error.

A call whose arguments could not be read keeps them as text, under ``partial_json``: from a model
that wrote what is no JSON, or was cut off within it. Its ``problem`` says so; carried out all the
same it fails its tool's schema.

A reply made by hand (a script's, a fork's) is a text, or ``{"text": ..., "tool_calls": [{"name":
..., "arguments": {...}}]}``, which ``reply_parts`` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentlab.base.documents import Json

PARTIAL = "partial_json"
"""Name under which arguments stand that are no JSON; dspy's client does the same."""

FINISHES = ("stop", "tool_call", "length", "content_filter")
"""How a reply ends."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for."""

    id: str
    """As the model's endpoint names it; a result is sent back under it."""
    name: str
    arguments: dict[str, Json]

    @property
    def problem(self) -> str | None:
        """What is wrong with the arguments before any schema is asked; None: nothing."""
        if set(self.arguments) != {PARTIAL}:
            return None
        return f"the arguments of {self.name} are no JSON object: {self.arguments[PARTIAL]!r}"


@dataclass(frozen=True, slots=True)
class LMOutcome:
    """How a request ended, and what was said."""

    finish_reason: str
    """"stop", "tool_call", "length", "content_filter" or "too_long"."""
    response: dict[str, Json] | None
    """The response document; None: the prompt was too long."""
    error: str | None = None
    """What the endpoint said of a prompt that is too long."""

    @property
    def message(self) -> dict[str, Json] | None:
        """The assistant's message, to be sent back with the next request."""
        return None if self.response is None else dict(self.response["message"])

    @property
    def text(self) -> str:
        """What was said, refusals included."""
        return "".join(p["text"] for p in self._parts() if p["type"] in ("text", "refusal"))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls asked for, in order; of a reply that was cut off the last may be partial."""
        called = (p for p in self._parts() if p["type"] == "tool_call")
        return tuple(ToolCall(p["id"], p["name"], p["input"]) for p in called)

    @property
    def usage(self) -> dict[str, int]:
        """Tokens as reported: ``input_tokens``, ``output_tokens``, ...; {}: not reported."""
        return dict((self.response or {}).get("usage", {}))

    def _parts(self) -> list[dict[str, Json]]:
        return [] if self.response is None else list(self.response["message"]["parts"])


def reply_parts(
    reply: object, request: Mapping[str, Json] | None = None
) -> tuple[list[dict[str, Json]], str]:
    """Return the parts of a reply made by hand, and how it ends.

    Parameters
    ----------
    reply : str or mapping
        ``text``, ``tool_calls`` (each ``name``, ``arguments``, and ``id`` where it matters) and
        ``finish_reason`` (default: "tool_call" where there are calls, else "stop").
    request : mapping, optional
        The request document, so that an id is not given twice in a conversation.

    Raises
    ------
    ValueError
        It is neither.
    """
    told: Json = {"text": reply} if isinstance(reply, str) else reply
    fields = {"text", "tool_calls", "finish_reason"}
    if not isinstance(told, Mapping) or not told or set(told) - fields:
        raise ValueError(
            "expected a reply such as 'text' or {'text': ..., 'tool_calls': [{'name': ..., "
            f"'arguments': {{...}}}}]}}, got {reply!r}"
        )
    text, calls = told.get("text", ""), told.get("tool_calls", ())
    finish = told.get("finish_reason", "tool_call" if calls else "stop")
    if not isinstance(text, str) or finish not in FINISHES:
        raise ValueError(f"expected a text, and one of {', '.join(FINISHES)}, got {reply!r}")
    parts = [{"type": "text", "text": text}] if text or not calls else []
    return parts + _calls(calls, request), finish


def _calls(calls: Json, request: Mapping[str, Json] | None) -> list[dict[str, Json]]:
    parts: list[dict[str, Json]] = []
    fresh = fresh_ids(request)
    for call in calls if isinstance(calls, (list, tuple)) else [calls]:
        good = isinstance(call, Mapping) and not set(call) - {"id", "name", "arguments"}
        if not good or not isinstance(call.get("name"), str) or not call["name"]:
            raise ValueError(f"expected a call {{'name': ..., 'arguments': {{...}}}}, got {call!r}")
        given = call.get("arguments", {})
        if isinstance(given, str):  # as a model wrote it that forgot its form
            given = {PARTIAL: given}
        if not isinstance(given, Mapping):
            raise ValueError(f"expected the arguments of {call['name']} by name, got {given!r}")
        parts.append({
            "type": "tool_call", "id": call.get("id") or next(fresh), "name": call["name"],
            "input": dict(given),
        })  # fmt: skip
    return parts


def fresh_ids(request: Mapping[str, Json] | None) -> Iterator[str]:
    """Yield ids of calls that are not in a request document yet."""
    messages = (request or {}).get("messages", ())
    used = {p["id"] for m in messages for p in m["parts"] if p.get("type") == "tool_call"}
    number = len(used)
    while True:
        number += 1
        if f"call_{number}" not in used:
            yield f"call_{number}"
