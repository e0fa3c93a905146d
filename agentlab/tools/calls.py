"""Calls as data: why one failed, and the record of a finished one."""

from __future__ import annotations

from agentlab.base.documents import Json, canonical
from agentlab.base.values import Document, Value


class ToolError(Value):
    """Why a call failed, as the agent sees it."""

    code: str
    """Machine-readable: "unavailable", "timeout", "rate_limit", "bad_arguments", "denied", ..."""
    message: str
    permanent: bool = False
    """True when the tool says that calling again cannot help."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


UNKNOWN_OUTCOME = frozenset({"timeout", "interrupted", "cancelled", "lost"})
"""Codes of errors after which nobody knows whether the call took effect."""


class CallRecord(Value):
    """A finished call, as a goal checker sees it."""

    tool: str
    arguments: Document = {}
    result: Json = None
    """What the agent was told."""
    error: ToolError | None = None
    committed: bool = True
    """Whether it took effect in the world."""
    faulted: bool = False
    """Whether a fault was delivered on it."""
    step_id: str = ""
    started: float = 0.0
    """Simulated seconds."""
    finished: float = 0.0


def call_text(tool: str, arguments: Json) -> str:
    """Return a call as one line: ``tool({...})``."""
    return f"{tool}({canonical(arguments)})"
