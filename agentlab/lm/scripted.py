"""A language model that says what it is told to: for tests and for teaching.

A script is a list of replies, a list of rules, or a function; it needs no endpoint, and what it
does is written where it is used::

    scripted(["first", "second"])                          in this order
    scripted([(r"weather", "sunny"), (r"", "what?")])      the first rule whose pattern is found
    scripted(lambda request, n: f"call {n}")               anything

A reply is a string or what ``say``, ``cut_off``, ``refused``, ``rate_limited``, ``unavailable`` and
``timed_out`` make, or ``{"text": ..., "tool_calls": [{"name": ..., "arguments": {...}}]}``; an
exception is raised. Tokens are counted as words.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import InstanceOf

from agentlab.base import arrived
from agentlab.base.arguments import Flag, takes
from agentlab.base.strict_json import read_json_file
from agentlab.base.values import Amount, record
from agentlab.errors import (
    ConfigError,
    LMRateLimited,
    LMTimeout,
    LMUnavailable,
    ScriptExhausted,
    seen,
)
from agentlab.lm.model import Model
from agentlab.lm.outcome import reply_parts
from agentlab.lm.serde import (
    Event,
    Request,
    Response,
    events_of,
    lm15,
    prompt_text,
    request_document,
    text_response,
)

NAME = "scripted/model"
"""What a scripted model is called unless it is given a name."""


@record
class Reply:
    """One scripted reply."""

    text: InstanceOf[str]  # as it is: half a surrogate pair too
    finish: Literal["stop", "tool_call", "length", "content_filter"] = "stop"
    """"stop", "tool_call", "length" (cut off) or "content_filter" (refused)."""
    delay: Amount = 0.0
    """Wall seconds before the reply, or before each token of a stream its share of them."""
    chunks: tuple[int, ...] | None = None
    """Characters of each piece of a stream; None: a word each."""
    error: Exception | None = None
    """Raised instead, after the delay."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Each ``name`` and ``arguments``, and ``id`` where it matters."""


Answer: TypeAlias = str | Reply | Mapping[str, Any] | Exception
Rule: TypeAlias = tuple[str, "Answer | Callable[[Request, int], Answer]"]
Script: TypeAlias = "Sequence[Answer] | Sequence[Rule] | Callable[[Request, int], Answer]"


@takes(
    text=str,
    delay=Amount,
    chunks=Sequence[int] | None,
    tool_calls=list[Mapping[str, Any]] | tuple[Mapping[str, Any], ...],
)
def say(
    text: str, *, delay: float = 0.0, chunks: Sequence[int] | None = None,
    tool_calls: Sequence[Mapping[str, Any]] = (),
) -> Reply:  # fmt: skip
    """Reply with ``text`` and calls, after ``delay`` wall seconds, streamed in such pieces."""
    return _reply({"text": text, "tool_calls": list(tool_calls)}, delay, chunks)


def cut_off(text: str, *, delay: float = 0.0) -> Reply:
    """Reply with ``text`` and stop there, at the token limit."""
    return Reply(text, finish="length", delay=delay)


def refused(text: str = "I can't help with that.") -> Reply:
    """Decline with these words."""
    return Reply(text, finish="content_filter")


def rate_limited(retry_after: float | None = None) -> Reply:
    """Fail as an endpoint that has too many requests; ``retry_after`` in seconds."""
    wait = "" if retry_after is None else f"; it asks to wait {retry_after:g} s"
    error = LMRateLimited(
        f"the script had too many requests{wait}", status=429, retry_after=retry_after
    )
    return Reply("", error=error)


def unavailable(status: int = 503) -> Reply:
    """Fail as an endpoint that is down."""
    return Reply("", error=LMUnavailable(f"the script failed: HTTP {status}", status=status))


def timed_out(delay: float = 0.0) -> Reply:
    """Fail as an endpoint that gives no reply in time."""
    return Reply("", delay=delay, error=LMTimeout("the script gave no reply in time"))


class Scripted:
    """The engine of a script; thread-safe.

    Parameters
    ----------
    script : list of replies, list of (pattern, reply), or callable
        A pattern is a regular expression, searched in the whole prompt (``.`` matches newlines).
        A callable is given (request, n), n counting the calls from 0.
    sleep : callable
        Waits, in seconds.

    Attributes
    ----------
    requests : list of Request
        Every request, in the order in which they came.

    Raises
    ------
    ConfigError
        The script mixes replies and rules, or a pattern is no regular expression.
    """

    def __init__(self, script: Script, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._rules: list[tuple[re.Pattern[str], Any]] | None = None
        self._script: Any = script
        if not callable(script):
            if not isinstance(script, Iterable) or isinstance(script, (str, bytes, Mapping)):
                raise arrived.refused("a script", "a list of replies, or a function", script)
            self._script = list(script)
            rules = [isinstance(item, tuple) for item in self._script]
            if any(rules):
                if not all(rules):
                    raise ConfigError("a script is a list of replies or of (pattern, reply)")
                self._rules = [(_pattern(p), answer) for p, answer in self._script]

    def __repr__(self) -> str:
        kind = "a function" if callable(self._script) else f"{len(self._script)} replies"
        return f"Scripted({'rules' if self._rules is not None else kind})"

    def arm_key(self) -> Any:
        """Return what tells it from other scripts, whatever it has been asked."""
        return self._rules or self._script

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def prompts(self) -> list[str]:
        """The text of every request."""
        return [prompt_text(request) for request in self.requests]

    def complete(self, request: Request) -> Response:
        """Return the next reply."""
        reply = self._next(request)
        if reply.delay:
            self._sleep(reply.delay)
        return _response(reply, request)

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the next reply's events, its delay spread over them."""
        reply = self._next(request)
        if reply.error is not None and reply.delay:
            self._sleep(reply.delay)
        events = list(events_of(_response(reply, request), reply.chunks))
        for event in events:
            if event.type == "delta" and reply.delay:
                self._sleep(reply.delay / (len(events) - 2))
            yield event

    def close(self) -> None:
        """Do nothing."""

    def _next(self, request: Request) -> Reply:
        with self._lock:
            n = len(self.requests)
            self.requests.append(request)
        answer: Any
        if self._rules is not None:
            answer = self._by_rule(request)
        elif callable(self._script):
            answer = self._script
        elif n < len(self._script):
            answer = self._script[n]
        else:
            raise ScriptExhausted(
                f"the script has {len(self._script)} replies and this is call {n + 1}; its prompt "
                f"ends {prompt_text(request)[-120:]!r}",
                model=request.model,
            )
        if callable(answer):
            answer = answer(request, n)
        return _reply(answer)

    def _by_rule(self, request: Request) -> Any:
        prompt = prompt_text(request)
        assert self._rules is not None
        for pattern, answer in self._rules:
            if pattern.search(prompt):
                return answer
        raise ScriptExhausted(
            f"none of the script's {len(self._rules)} patterns is found in the prompt, which ends "
            f"{prompt[-120:]!r}: {', '.join(repr(p.pattern) for p, _ in self._rules[:5])}",
            model=request.model,
        )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.DOTALL)
    except (re.error, TypeError, RecursionError, OverflowError) as e:
        raise ConfigError(f"script pattern {seen(text)}: {e}") from e


def _reply(answer: Any, delay: float = 0.0, chunks: Sequence[int] | None = None) -> Reply:
    if isinstance(answer, Exception):
        return Reply("", error=answer)
    if isinstance(answer, Reply):
        return answer
    told = {"text": answer} if isinstance(answer, str) else answer
    try:
        finish: Any = reply_parts(told)[1]
    except ValueError as e:
        raise ConfigError(
            f"a scripted reply is one, say(...) or its like, or an exception: {e}"
        ) from e
    calls = tuple(told.get("tool_calls", ()))
    pieces = None if chunks is None else tuple(chunks)
    return Reply(told.get("text", ""), finish, delay, pieces, tool_calls=calls)


def _response(reply: Reply, request: Request) -> Response:
    if reply.error is not None:
        raise reply.error
    told = {"text": reply.text, "tool_calls": list(reply.tool_calls)}
    parts, finish = reply_parts(told, request_document(request) if reply.tool_calls else None)
    called = [lm15().ToolCallPart(p["id"], p["name"], p["input"]) for p in parts if "id" in p]
    words = [reply.text, *(f"{c.name} {json.dumps(c.input)}" for c in called)]
    return text_response(
        reply.text,
        request.model,
        calls=called,
        finish=reply.finish if reply.finish != "stop" else finish,
        input_tokens=len(prompt_text(request).split()),
        output_tokens=sum(len(w.split()) for w in words),
    )


def scripted(
    script: Script, *, name: str = NAME, response_schema: bool = True,
    function_calling: bool = False, sleep: Callable[[float], None] = time.sleep,
) -> Model:  # fmt: skip
    """Return a model that follows a script; ``model.engine.requests`` holds what it was asked.

    Parameters
    ----------
    script : list of replies, list of (pattern, reply), or callable
        See ``Scripted``.
    name : str
        What it is called.
    response_schema, function_calling : bool
        What it claims to support; dspy's adapters go by it.
    sleep : callable
        Waits, in seconds.

    Examples
    --------
    >>> lm = scripted([(r"capital of France", "Paris")]).lm()
    >>> lm("What is the capital of France?")
    ['Paris']
    """
    return Model(
        name, Scripted(script, sleep), supports=_supports(response_schema, function_calling)
    )


@takes(response_schema=Flag, function_calling=Flag)
def _supports(response_schema: bool, function_calling: bool) -> tuple[str, ...]:
    supports = ["response_format", "response_schema"] if response_schema else []
    return (*supports, *(["function_calling"] if function_calling else []))


def read_script(path: str | Path) -> Model:
    """Return the model of a script in a JSON file.

    The file holds a list of strings, or of objects: ``{"when": pattern, "say": text}``, with
    ``tool_calls`` (beside ``say`` or in its place), ``finish`` ("stop", "length",
    "content_filter") and ``delay`` (seconds) where wanted. Either all have ``when`` or none.

    Raises
    ------
    ConfigError
        The file cannot be read or says something else.
    """
    items = read_json_file(path, ConfigError)
    if not isinstance(items, list) or not items:
        raise ConfigError(f"{path}: expected a list of replies")
    script = [_item(path, index, item) for index, item in enumerate(items)]
    if len({isinstance(item, tuple) for item in script}) > 1:
        raise ConfigError(f"{path}: expected 'when' in each reply or in none")
    return scripted(script)


def _item(path: str | Path, index: int, item: Any) -> Any:
    if isinstance(item, str):
        return item
    called = isinstance(item, Mapping) and item.get("tool_calls")
    if not isinstance(item, Mapping) or not isinstance(
        item.get("say", "" if called else None), str
    ):
        raise ConfigError(f"{path}, reply {index}: expected a string or {{'say': ...}}")
    extra = sorted(set(item) - {"when", "say", "finish", "delay", "tool_calls"})
    if extra:
        raise ConfigError(f"{path}, reply {index}: unknown field {seen(extra[0])}")
    try:
        reply = _reply({"text": item.get("say", ""), "tool_calls": item.get("tool_calls", [])})
    except ConfigError as e:
        raise ConfigError(f"{path}, reply {index}: {e}") from e
    try:
        delay = item.get("delay", 0.0)
        reply = replace(reply, finish=item.get("finish", reply.finish), delay=delay)
        if "when" in item:
            _pattern(item["when"])
    except ConfigError as e:
        raise ConfigError(f"{path}, reply {index}: {e}") from e
    return (item["when"], reply) if "when" in item else reply
