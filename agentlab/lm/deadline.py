"""Until when a call of a language model may take: one moment for all that is waited for.

An endpoint that sends a byte now and then keeps every single wait short, and the call has no end.
So a call has a moment, not each wait a time: it holds for the look-up of the name, the connection,
every byte in either direction, and the pauses between attempts. It is a context variable: what lies
between who knows the moment and who waits has no place for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from agentlab.errors import AgentLabError

T = TypeVar("T")

_until: ContextVar[float] = ContextVar("agentlab_lm_until", default=float("inf"))


class Late(AgentLabError):
    """The moment has come; no endpoint's and no system's error."""


class TooMuch(AgentLabError):
    """An endpoint sent more than a reply can be."""


class Elsewhere(AgentLabError):
    """An endpoint sends the request on to another address."""


def now() -> float:
    """Return the clock that deadlines are of, in seconds."""
    return time.monotonic()


def left() -> float:
    """Return the seconds until the moment; none: infinity.

    Raises
    ------
    Late
        There are none.
    """
    seconds = _until.get() - now()
    if seconds <= 0:
        raise Late
    return seconds


@contextmanager
def until(moment: float) -> Iterator[None]:
    """Let what is done take until a moment; an earlier one that holds already goes on to hold."""
    token = _until.set(min(moment, _until.get()))
    try:
        yield
    finally:
        _until.reset(token)


def each_until(moment: float, parts: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields, each part within the moment; who takes them is not bound."""
    while True:
        with until(moment):
            try:
                part = next(parts)
            except StopIteration:
                return
        yield part
