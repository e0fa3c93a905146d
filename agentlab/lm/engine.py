"""What an engine is, and what wraps one.

An engine is dspy's own contract, synchronous: ``complete(request) -> response``,
``stream(request)`` yields events, ``close()``. It raises the ``LMError`` branch of
``agentlab.errors``. What only an engine deep inside knows of a call (served from a recording? how
many attempts? which fault?) it leaves in ``notes()``, a context variable that lives for one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from agentlab.base.documents import Json, digest
from agentlab.lm.serde import Event, Request, Response, request_document

SUPPORTS = ("response_format", "response_schema", "function_calling", "reasoning")
"""What an endpoint may be able to do: JSON replies, a JSON schema, tools, thinking."""


class Engine(Protocol):
    """One attempt to get a reply. It may be shared between threads."""

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield one start event, deltas, one end event."""

    def close(self) -> None:
        """Give connections and files back."""


class Wrapper:
    """An engine around an engine; override what changes.

    Parameters
    ----------
    inner : Engine
    """

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""
        return self.inner.complete(request)

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events."""
        return iter(self.inner.stream(request))

    def close(self) -> None:
        """Close what is wrapped."""
        self.inner.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


@dataclass(slots=True, eq=False)
class Notes:
    """What engines know of the call under way, beside the reply."""

    request: Request = None
    document: dict[str, Json] = field(default_factory=dict, init=False)
    key: str = field(default="", init=False)
    served: bool = False
    """True: from a recording or journal; nothing was asked, nothing is billed."""
    cost: float | None = None
    """US dollars that the call costs when it is made; None: unknown."""
    attempts: int = 1
    apart: float = 0.0
    """Wall seconds spent on what is no part of the call."""
    occurrence: int | None = None
    """Which repetition of the request in the run, from 0, where it was counted."""
    counted: str = field(default="", init=False)
    """Key that was counted: of the request that reached the recording."""
    faults: list[str] = field(default_factory=list)
    """Kinds of the faults that were delivered."""

    def __post_init__(self) -> None:
        if self.request is not None:
            self.document = request_document(self.request)
            self.key = self.counted = digest(self.document)


_notes: ContextVar[Notes | None] = ContextVar("agentlab_lm_notes", default=None)


def notes() -> Notes:
    """Return the notes of the call under way (outside of one: notes that nobody reads)."""
    return _notes.get() or Notes()


def identify(request: Request) -> tuple[dict[str, Json], str]:
    """Return a request's document and key, the digest of it; computed once for a call."""
    current = _notes.get()
    if current is None or current.request is not request:
        current = Notes(request)
    return current.document, current.key


@contextmanager
def noting(current: Notes) -> Iterator[None]:
    """Make these the notes of the call under way."""
    token = _notes.set(current)
    try:
        yield
    finally:
        _notes.reset(token)
