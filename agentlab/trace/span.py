"""A span: one timed thing in a run. It holds references; nothing is copied or coerced.

Kinds: run, node, step, action, tool, lm, retrieval, decision, event, fault.
"""

from __future__ import annotations

import json
from typing import Any

from agentlab.base.documents import Json
from agentlab.base.fields import thaw

KINDS = (
    "run", "node", "step", "action", "tool", "lm", "retrieval", "decision", "event", "fault",
)  # fmt: skip

COLUMNS = (
    "span_id", "parent_id", "kind", "name", "visit", "step_id", "attempt", "input", "output",
    "error", "started", "seconds", "sim_start", "sim_end", "attributes",
)  # fmt: skip
"""Names of a span's row, in order; also the columns of the ``spans`` frame."""


class Span:
    """One timed thing.

    Attributes
    ----------
    span_id, parent_id : int
        Numbers within the trace, from 1; parent 0 is no span.
    kind, name : str
    visit, step_id, attempt : int, str, int
        The address: where in the run it happened; attempt 0 is no attempt.
    input, output : JSON or record
    error : str or None
    started, seconds : float
        Wall time: seconds since the epoch, and duration.
    sim_start, sim_end : float
        Simulated seconds.
    attributes : dict
        What else is known (tokens, effect class, ...).
    """

    __slots__ = COLUMNS

    def __init__(
        self, span_id: int, parent_id: int, kind: str, name: str, visit: int, step_id: str,
        attempt: int, input: Any, sim_start: float, started: float,
    ) -> None:  # fmt: skip
        self.span_id, self.parent_id, self.kind, self.name = span_id, parent_id, kind, name
        self.visit, self.step_id, self.attempt = visit, step_id, attempt
        self.input, self.output, self.error = input, None, None
        self.started, self.seconds = started, 0.0
        self.sim_start, self.sim_end = sim_start, sim_start
        self.attributes: dict[str, Any] = {}

    output: Any
    error: str | None

    def row(self) -> list[Json]:
        """Return the span as JSON data in the order of ``COLUMNS``."""
        return [
            self.span_id, self.parent_id, self.kind, self.name, self.visit, self.step_id,
            self.attempt, thaw(self.input), thaw(self.output), self.error, self.started,
            self.seconds, self.sim_start, self.sim_end, self.attributes,
        ]  # fmt: skip

    @classmethod
    def from_row(cls, row: list[Json]) -> Span:
        """Make a span of what ``row`` returned."""
        span = cls.__new__(cls)
        for name, value in zip(COLUMNS, row, strict=True):
            setattr(span, name, value)
        return span

    def messages(self) -> list[tuple[str, str]]:
        """Return the prompt of an LM call: role and text, the system's first; else nothing."""
        asked = self.input if isinstance(self.input, dict) else {}
        told = asked.get("messages")
        listed = [m for m in told if isinstance(m, dict)] if isinstance(told, list) else []
        system = [("system", content_text(asked["system"]))] if asked.get("system") else []
        return system + [
            (str(m.get("role", "message")), content_text(m.get("parts", m.get("content"))))
            for m in listed
        ]

    @property
    def prompt(self) -> str:
        """The prompt of an LM call as text; empty for other kinds."""
        return "\n\n".join(f"[{role}]\n{text}" for role, text in self.messages())

    @property
    def reply(self) -> str:
        """The reply of an LM call as text; empty where none came."""
        said = self.output if isinstance(self.output, dict) else {}
        message = said.get("message")
        return content_text(message.get("parts") if isinstance(message, dict) else self.output)

    def __repr__(self) -> str:
        where = f" {self.step_id}#{self.attempt}" if self.step_id else ""
        return f"<span {self.span_id} {self.kind} {self.name}{where} visit {self.visit}>"


def content_text(content: Any) -> str:
    """Return the text of a message: a string, or parts of which those of text are joined."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return "".join(map(_part, parts))


def _part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    document = isinstance(part, dict) and part.get("type") == "data" and "value" in part
    return json_of(part["value"] if document else part)


def json_of(value: Any) -> str:
    """Return any value as one line of JSON; what is none as Python spells it."""
    return json.dumps(value, ensure_ascii=False, default=repr, skipkeys=True)
