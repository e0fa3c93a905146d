"""dspy's records as JSON and back: the one place that touches dspy's private serialiser.

A request or response *document* is the canonical JSON of dspy's ``lm15`` types: empty optional
fields are left out, provider data (the raw reply, with its headers) is never in it. Nothing here
imports dspy before it is called, and ``load_dspy`` sees to it that no model prices are fetched
from the internet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from agentlab.base.documents import Json
from agentlab.base.fields import thaw
from agentlab.base.surrogates import spelled
from agentlab.errors import ConfigError, RunError

Request: TypeAlias = Any
"""A ``dspy.lm15.Request``: model, messages, system, tools, config."""
Response: TypeAlias = Any
"""A ``dspy.lm15.Response``: message, finish_reason, usage."""
Event: TypeAlias = Any
"""A ``dspy.lm15`` stream event: one start, deltas, one end."""

_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+|\s+\Z")


@cache
def load_dspy() -> Any:
    """Import dspy, without its look-up of model prices on the internet, and return it.

    Raises
    ------
    ConfigError
        dspy is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import dspy
    except ImportError as e:
        raise ConfigError("language models need dspy: pip install 'dspy>=3.4'") from e
    return dspy


@cache
def _serde() -> Any:
    load_dspy()
    from dspy._vendor.lm15 import serde  # private: request_to_dict has no public name in 3.4

    return serde


@cache
def lm15() -> Any:
    """Return ``dspy.lm15``, the module of requests, responses and errors."""
    load_dspy()
    return import_module("dspy.lm15")


def request_document(request: Request) -> dict[str, Json]:
    """Return a request as canonical JSON: model, messages, system, tools, config."""
    document: dict[str, Json] = _serde().request_to_dict(request)
    return document


def request_from(document: dict[str, Json]) -> Request:
    """Return the request that ``request_document`` wrote."""
    return _serde().request_from_dict(document)


def typed_request(
    given: Mapping[str, Json] | Request, model: str, settings: Mapping[str, Json]
) -> Request:
    """Return the request that a document, perhaps without its model, stands for.

    Parameters
    ----------
    given : mapping or Request
        Persistent vectors and maps in it are taken as lists and objects; tools may be objects with
        name, description and parameters.
    model : str
        Who is asked.
    settings : mapping
        What the request's own ``config`` goes before.

    Raises
    ------
    RunError
        It is no request.
    """
    try:
        document = dict(thaw(given) if isinstance(given, Mapping) else request_document(given))
        tools = [_tool(t) for t in document.pop("tools", ())]
        config = {**settings, **document.get("config", {})}
        more = {k: v for k, v in (("tools", tools), ("config", config)) if v}
        return request_from({**spelled(document), "model": model, **spelled(more)})
    except (TypeError, ValueError, KeyError, AttributeError) as e:
        raise RunError(f"expected a request of messages, system, tools and config: {e!r}") from e


def _tool(given: Any) -> dict[str, Json]:
    if isinstance(given, Mapping):
        return {"type": "function", **given}
    return {
        "type": "function", "name": given.name, "description": given.description,
        "parameters": given.parameters,
    }  # fmt: skip


def response_document(response: Response) -> dict[str, Json]:
    """Return a response as JSON, without provider data."""
    document: dict[str, Json] = _serde().response_to_dict(response)
    return document


def response_from(document: dict[str, Json]) -> Response:
    """Return the response that ``response_document`` wrote."""
    return _serde().response_from_dict(document)


def text_response(
    text: str, model: str, *, calls: Sequence[Any] = (), finish: str = "stop",
    input_tokens: int | None = None, output_tokens: int | None = None,
) -> Response:  # fmt: skip
    """Return a response that says ``text``, and calls tools.

    Parameters
    ----------
    text, model : str
    calls : sequence of ToolCallPart
    finish : {"stop", "length", "tool_call", "content_filter", "error"}
    input_tokens, output_tokens : int, optional
        None: not reported.
    """
    types = lm15()
    return types.Response(
        id=None,
        model=model,
        message=_message(text, calls),
        finish_reason=finish,
        usage=types.Usage(input_tokens=input_tokens, output_tokens=output_tokens),
    )


def _message(text: str, calls: Sequence[Any]) -> Any:
    types = lm15()
    said = [types.TextPart(text)] if text or not calls else []
    return types.Message.assistant([*said, *calls])


def with_text(
    response: Response, text: str, calls: Sequence[Any] = (), *, finish: str | None = None
) -> Response:
    """Return ``response`` with this text, these calls and nothing else; its usage stays."""
    return replace(
        response,
        message=_message(text, calls),
        finish_reason=finish or response.finish_reason,
        logprobs=None,
        logprobs_complete=True,
    )


def text_of(response: Response) -> str:
    """Return what a response says, refusals included."""
    return "".join(part.text for part in response.message.parts if part.type in ("text", "refusal"))


def calls_of(response: Response) -> list[Any]:
    """Return the calls of tools that a response asks for."""
    return [part for part in response.message.parts if part.type == "tool_call"]


def refusal_of(response: Response) -> str | None:
    """Return the words with which a model or a filter declined, or None when none did."""
    declined = [part.text for part in response.message.parts if part.type == "refusal"]
    if declined:
        return "".join(declined)
    return text_of(response) if response.finish_reason == "content_filter" else None


def prompt_text(request: Request) -> str:
    """Return all text of a request: system, then every message, parted by blank lines."""
    system = request.system or ""
    if not isinstance(system, str):
        system = "".join(part.text for part in system)
    texts = [system, *map(_said, request.messages)]
    return "\n\n".join(text for text in texts if text)


def _said(message: Any) -> str:
    results = (part for part in message.parts if part.type == "tool_result")
    return message.text or "\n".join(p.text for r in results for p in r.content if p.type == "text")


def events_of(response: Response, sizes: Sequence[int] | None = None) -> Iterator[Event]:
    """Return a response as stream events.

    Parameters
    ----------
    response : Response
    sizes : sequence of int, optional
        Characters of each text delta, as recorded; None: a word each.
    """
    types = lm15()
    for event in types.response_to_events(_streamable(response)):
        delta = event.delta if event.type == "delta" else None
        if delta is None or delta.type != "text" or delta.logprobs:
            yield event
            continue
        for piece in _pieces(delta.text, sizes):
            text = types.TextDelta(text=piece, part_index=delta.part_index)
            yield types.StreamDeltaEvent(delta=text)


def _streamable(response: Response) -> Response:
    """A refusal has no delta of its own: it streams as text that a filter ended."""
    if refusal_of(response) is None:
        return response
    return with_text(response, text_of(response), finish="content_filter")


def _pieces(text: str, sizes: Sequence[int] | None) -> list[str]:
    if sizes is None or sum(sizes) != len(text):
        return _WORD.findall(text) or [text]
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return pieces


def response_of(request: Request, events: Iterable[Event]) -> Response:
    """Return the response that stream events add up to.

    Raises
    ------
    dspy.lm15.LM15Error
        The stream breaks off, or holds an error.
    """
    return lm15().materialize_response(iter(events), request)


def text_sizes(events: Iterable[Event]) -> list[int]:
    """Return the characters of each text delta."""
    deltas = (event.delta for event in events if event.type == "delta")
    return [len(delta.text) for delta in deltas if delta.type == "text"]
