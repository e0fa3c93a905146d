"""Tool calls by text, for a model that takes no tools: what comes is what native calls give.

The tools stand in the system prompt, and a call is a tag around JSON, the form that most open
models were trained on (Hermes); several may come in one reply, after a text or without one::

    <tool_call>{"name": "look", "arguments": {"place": "hall"}}</tool_call>

A reply that is nothing but such an object, or a list of them, is taken for calls too, with a code
fence around it or without, where the names are of tools that were offered. Earlier calls and their
results are told the same way. The response has the text around the calls, a part a call, and the
finish reason "tool_call", or "length" where it was cut off; ids are given here.

Within a tag, arguments that cannot be read are kept as text (see ``agentlab.lm.outcome``); a tag in
which not even a name is found is no call but text.

This goes inside the faults and outside the recording: faults strike calls and not their spelling,
and a recording holds what was sent. A request that has to do with no tools passes as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agentlab.base.documents import Json, canonical
from agentlab.base.strict_json import read_json
from agentlab.lm.engine import Engine, Wrapper, identify
from agentlab.lm.outcome import PARTIAL, fresh_ids
from agentlab.lm.serde import Event, Request, Response, calls_of, lm15, response_of, text_of
from agentlab.lm.thinking import Thoughts, apart

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(rf"{_OPEN}(.*?)(?:{_CLOSE}|(?={_OPEN})|\Z)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(.*)\Z', re.DOTALL)


class TextTools(Wrapper):
    """An engine whose calls of tools go by text, unless its model turns out to take tools.

    Parameters
    ----------
    inner : Engine
    native : callable
        Says whether the model takes tools; asked when a request has to do with some.
    apart : Engine, optional
        The inner one with thinking kept apart, which is no place for a call.
    """

    def __init__(
        self, inner: Engine, native: Callable[[], bool], apart: Engine | None = None
    ) -> None:
        super().__init__(inner)
        self._native, self._apart = native, apart or Thoughts(inner)

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""
        if not _about_tools(request) or self._native():
            return self._apart.complete(request)
        return called(self._apart.complete(as_text(request)), request)

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events; of the text what is certain to be no call, as it comes."""
        if not _about_tools(request) or self._native():
            yield from self._apart.stream(request)
            return
        events, text, told, asked = [], "", 0, as_text(request)
        for event in self._apart.stream(asked):
            events.append(event)
            if event.type == "start":
                yield event
            elif event.type == "delta" and event.delta.type == "text":
                text += event.delta.text
                if (safe := _certain(text)) > told:
                    yield _text_event(text[told:safe], event.delta.part_index)
                    told = safe
        whole = response_of(asked, events)
        response = apart(whole)
        told = told if response is whole else 0  # what was told may have been thinking
        response = called(response, request)
        for event in lm15().response_to_events(response):
            if event.type == "delta" and event.delta.type == "text":
                if event.delta.text[told:]:
                    yield _text_event(event.delta.text[told:], event.delta.part_index)
            elif event.type != "start":
                yield event


def _text_event(text: str, index: int) -> Event:
    types = lm15()
    return types.StreamDeltaEvent(delta=types.TextDelta(text=text, part_index=index))


def _certain(text: str) -> int:
    """Return how many characters are text whatever follows."""
    if not text.strip() or text.lstrip()[0] in "{[`":
        return 0
    end = text.find(_OPEN)
    if end < 0:
        tail = next((n for n in range(len(_OPEN) - 1, 0, -1) if text.endswith(_OPEN[:n])), 0)
        end = len(text) - tail
    return len(text[:end].rstrip())


def _about_tools(request: Request) -> bool:
    kinds = ("tool_call", "tool_result")
    return bool(request.tools) or any(p.type in kinds for m in request.messages for p in m.parts)


def by_text(document: Mapping[str, Json]) -> bool | None:
    """Say whether a recorded request called tools by text; None: it had to do with none."""
    if document.get("tools"):
        return False
    system = document.get("system") or ""
    whole = system if isinstance(system, str) else "".join(p.get("text", "") for p in system)
    return True if FORM in whole else None


# ---- the request -----------------------------------------------------------------------------


def as_text(request: Request) -> Request:
    """Return a request whose tools, calls and results are text."""
    types, choice = lm15(), request.config.tool_choice
    names = {p.id: p.name for m in request.messages for p in m.parts if p.type == "tool_call"}
    messages = [_message_as_text(message, names) for message in request.messages]
    config = replace(request.config, tool_choice=None)
    told = _told(request.tools, choice)
    system = request.system
    if told and system and not isinstance(system, str):
        system = (*system, types.TextPart(f"\n\n{told}"))
    elif told:
        system = f"{system}\n\n{told}" if system else told
    return replace(request, messages=tuple(messages), system=system, tools=(), config=config)


def _told(tools: Iterable[Any], choice: Any) -> str:
    """Say which tools there are and how they are called."""
    if choice is not None and choice.mode == "none":
        return ""
    allowed = choice.allowed if choice is not None else ()
    offered = [t for t in tools if t.type == "function" and (not allowed or t.name in allowed)]
    if not offered:
        return ""
    lines = [json.dumps(_function(t), ensure_ascii=False) for t in offered]
    must = MUST if choice is not None and choice.mode == "required" else ""
    return OFFERED.replace("{tools}", "\n".join(lines)) + FORM + must


def _function(tool: Any) -> dict[str, Json]:
    told = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters}
    return {"type": "function", "function": told}


def _message_as_text(message: Any, names: Mapping[str, str]) -> Any:
    if not any(p.type in ("tool_call", "tool_result") for p in message.parts):
        return message
    types, said = lm15(), []
    for part in message.parts:
        if part.type == "tool_call":
            given = part.input.get(PARTIAL) if set(part.input) == {PARTIAL} else None
            arguments = canonical(part.input) if given is None else str(given)
            name = json.dumps(part.name, ensure_ascii=False)
            said.append(f'{_OPEN}{{"name": {name}, "arguments": {arguments}}}{_CLOSE}')
        elif part.type == "tool_result":
            text = "".join(p.text for p in part.content if p.type == "text")
            told = {"name": part.name or names.get(part.id, ""), "result": text}
            if part.is_error:
                told["error"] = told.pop("result")
            said.append(f"<tool_response>{json.dumps(told, ensure_ascii=False)}</tool_response>")
        elif part.type == "text" and part.text:
            said.append(part.text)
    role = "user" if message.role == "tool" else message.role
    return types.Message(role=role, parts=(types.TextPart("\n".join(said)),))


# ---- the reply -------------------------------------------------------------------------------


def called(response: Response, request: Request) -> Response:
    """Return a reply with the calls that its text spells; one without any is left as it is."""
    text, names = text_of(response), {t.name for t in request.tools}
    if calls_of(response) or response.finish_reason == "content_filter":
        return response
    outside, found = _parted(text) if _OPEN in text else ("", _bare(text, names))
    if not found:
        return response
    types, ids = lm15(), fresh_ids(identify(request)[0])
    calls = [types.ToolCallPart(next(ids), name, given) for name, given in found]
    said = [types.TextPart(outside)] if outside else []
    others = [p for p in response.message.parts if p.type != "text"]
    finish = "tool_call" if response.finish_reason == "stop" else response.finish_reason
    message = types.Message.assistant([*others, *said, *calls])
    return replace(
        response, message=message, finish_reason=finish, logprobs=None, logprobs_complete=True
    )


Call = tuple[str, dict[str, Json]]


def _parted(text: str) -> tuple[str, list[Call]]:
    """Return the text outside of tags, and the calls in them."""
    outside, calls, at = [], [], 0
    for block in _BLOCK.finditer(text):
        call = _read(block[1])
        if call is None:
            continue
        outside.append(text[at : block.start()])
        calls.append(call)
        at = block.end()
    first, *rest = [*outside, text[at:]]
    return "\n".join([first.rstrip(), *(r.strip() for r in rest if r.strip())]), calls


def _read(block: str) -> Call | None:
    """Return the call in a tag; None: not even its name can be read."""
    try:
        return _call(read_json(block))
    except ValueError:
        name = _NAME.search(block)
        if name is None:
            return None
        rest = _ARGUMENTS.search(block)
        return name[1], {PARTIAL: (rest[1] if rest else block).strip()}


def _bare(text: str, names: set[str]) -> list[Call]:
    """Return the calls of a reply that is nothing else."""
    from agentlab.lm.adapters import unfenced

    try:
        told = read_json(unfenced(text))
        calls = [_call(item) for item in (told if isinstance(told, list) else [told])]
    except ValueError:
        return []
    return calls if all(name in names for name, _ in calls) else []


def _call(told: Json) -> Call:
    if not isinstance(told, dict) or set(told) - {"name", "arguments"}:
        raise ValueError("no call")
    name, given = told.get("name"), told.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise ValueError("no name")
    return name, given if isinstance(given, dict) else {"value": given}


OFFERED = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

"""

FORM = """\
For each function call, return a json object with function name and arguments within
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
"""Word for word what Qwen's and Hermes' own templates say. It also shows that a recorded request
called by text: a change of it is another form."""

MUST = "\n\nNow you must call at least one function."
