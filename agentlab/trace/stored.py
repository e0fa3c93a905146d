"""What is read back from a store: a cell's result, and a durable run as it got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from agentlab.base.documents import Json
from agentlab.state.state import State
from agentlab.trace.journal import MemoryJournal
from agentlab.trace.span import Span


class EndpointCall(NamedTuple):
    """How a call of a language model ended for the endpoint that was asked."""

    endpoint: str
    """Its address, or the vendor."""
    cause: str | None
    """Why it failed for infrastructure; None: a reply came."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class CellResult:
    """What one cell of a study came to."""

    cell: str
    """Key of the cell."""
    status: str
    """"done", "crashed" or "infrastructure" (a model's endpoint failed: it measures nothing)."""
    row: dict[str, Json]
    spans: bytes = b""
    """Packed span rows (see ``pack``)."""
    attempt: int = 1
    calls: tuple[EndpointCall, ...] = ()
    """What became of its LM calls; for who runs the study, and not stored."""


@dataclass
class StoredRun:
    """A durable run as it was at its last checkpoint."""

    run: str
    workflow: str
    states: list[State]
    visited: list[str] = field(default_factory=list)
    spans: list[list[Span]] = field(default_factory=list)
    """Of each visit of its own."""
    edits: dict[int, State] = field(default_factory=dict)
    """Visit to the edited state that it started from."""
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    parent: str | None = None
    """The run it was forked from."""
    origin: int = 0
    """Visits that were made before it was forked."""
