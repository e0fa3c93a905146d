"""Messages of a conversation, as a run keeps them.

A message is what one side said. What a model wants carried out stands in it as tool calls, each
with an id of ours (providers repeat theirs), and a message of role "tool" says how one of them
ended. ``to_lm`` and ``from_lm`` are the ways to the form in which a model is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from agentlab.base.documents import Json
from agentlab.base.values import Document, Value, validated
from agentlab.lm.outcome import ToolCall as AskedCall


class Role(StrEnum):
    """Who said it."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Part(Value):
    """A piece of what was said."""

    type: str = "text"
    """"text", or what else a model may say ("thinking")."""
    text: str = ""


class ToolCall(Value):
    """A call that a model wants made."""

    call_id: str
    """Of ours: the id of the step that carries it out."""
    name: str
    arguments: Document = {}
    problem: str | None = None
    """Why the arguments could not be read; None: they could."""


class Message(Value):
    """One message."""

    role: Role
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant wants carried out."""
    call_id: str = ""
    """Role "tool": the call whose end it tells."""
    is_error: bool = False
    """Role "tool": whether the call failed."""

    @property
    def text(self) -> str:
        """What was said, without what was only thought."""
        return "".join(p.text for p in self.parts if p.type in ("text", "refusal"))

    def to_lm(self) -> dict[str, Json]:
        """Return the message in the form in which a language model is asked: always the same."""
        cached: dict[str, Json] | None = self.__dict__.get("_lm")
        if cached is None:  # a conversation is asked with again and again, and shared
            cached = self.__dict__["_lm"] = self._to_lm()
        return cached

    def _to_lm(self) -> dict[str, Json]:
        parts: list[Json] = [p.to_json() for p in self.parts]
        if self.role is Role.TOOL:
            result = {"type": "tool_result", "id": self.call_id, "content": parts}
            return {"role": "tool", "parts": [{**result, "is_error": self.is_error}]}
        for call in self.tool_calls:
            given = {"id": call.call_id, "name": call.name, "input": call.arguments}
            parts.append({"type": "tool_call", **given})
        return {"role": self.role.value, "parts": parts}

    @classmethod
    def from_lm(
        cls, document: dict[str, Json], call_id: Callable[[int], str] = "call_{}".format
    ) -> Message:
        """Read a message of a language model.

        Parameters
        ----------
        document : dict
            The ``message`` of a response.
        call_id : callable
            Number of a call in the message, from 0, to its id.
        """
        given = document.get("parts", ())
        wanted = (p for p in given if p["type"] == "tool_call")
        calls = [AskedCall(p.get("id", ""), p["name"], p.get("input") or {}) for p in wanted]
        kept = [p for p in given if "text" in p]
        return cls(
            role=document["role"],
            parts=tuple(Part(type=p["type"], text=p["text"]) for p in kept),
            tool_calls=tuple(
                ToolCall(call_id=call_id(i), name=c.name, arguments=c.arguments, problem=c.problem)
                for i, c in enumerate(calls)
            ),
        )


def said(text: str, role: Role = Role.USER) -> Message:
    """Return the message that says a text."""
    return Message.made(role=role, parts=(Part.made(text=validated(Part, "text", text)),))


def told(call_id: str, text: str, *, is_error: bool = False) -> Message:
    """Return the message that tells how a call ended."""
    return Message(role=Role.TOOL, parts=(Part(text=text),), call_id=call_id, is_error=is_error)
