"""Records of a run: a visit of a node, and where a run was forked from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentlab.state.state import State
from agentlab.trace.span import Span


@dataclass(frozen=True, slots=True)
class Visit:
    """One execution of a node in a run."""

    index: int
    node: str
    before: State
    after: State
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """Wall time of the visit."""
        return next((s.seconds for s in self.spans if s.kind == "node"), 0.0)

    def changes(self) -> dict[str, Any]:
        """Return the fields that the visit changed, with their new values."""
        before, after = self.before.flat(), self.after.flat()
        return {k: v for k, v in after.items() if v is not before.get(k) and v != before.get(k)}

    def __repr__(self) -> str:
        return f"<visit {self.index} {self.node}: {', '.join(self.changes())}>"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a run was forked from."""

    run_id: str
    at: int
    """Visit before which it was forked."""
    edits: tuple[str, ...] = ()
    """What was changed: "plan", "state", "decision", "replies", "seed", "lab", "review"."""
