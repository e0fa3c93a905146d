"""Events: what a run tells while it goes on, and what happens to it from outside.

``Handler`` has one method for each stream event, all doing nothing; subclass it, or pass any
object that has some of them. ``ContextChangeEvent`` is what changes a run's situation.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from agentlab.base.documents import canonical
from agentlab.base.values import Document, Value


class Severity(StrEnum):
    """How much an event matters: INFO < WARNING < CRITICAL."""

    INFO = "INFO"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"

    def reaches(self, threshold: Severity) -> bool:
        """Say whether it is at least ``threshold``."""
        order = list(Severity)
        return order.index(self) >= order.index(threshold)


class ChangeType(StrEnum):
    """What changed."""

    TASK_FAILED = "TASK_FAILED"
    TASK_INTERRUPTED = "TASK_INTERRUPTED"
    TASK_UNEXPECTED_RESULT = "TASK_UNEXPECTED_RESULT"
    NEW_CONSTRAINT = "NEW_CONSTRAINT"
    DEPENDENCY_BROKEN = "DEPENDENCY_BROKEN"
    EXTERNAL_SIGNAL = "EXTERNAL_SIGNAL"
    MILESTONE_REACHED = "MILESTONE_REACHED"


SEVERITY = {
    ChangeType.TASK_FAILED: Severity.CRITICAL,
    ChangeType.TASK_INTERRUPTED: Severity.WARNING,
    ChangeType.TASK_UNEXPECTED_RESULT: Severity.WARNING,
    ChangeType.NEW_CONSTRAINT: Severity.CRITICAL,
    ChangeType.DEPENDENCY_BROKEN: Severity.CRITICAL,
    ChangeType.EXTERNAL_SIGNAL: Severity.CRITICAL,
    ChangeType.MILESTONE_REACHED: Severity.INFO,
}
"""Default severity of each type; the publisher may say otherwise."""


OUTSIDE = (ChangeType.NEW_CONSTRAINT, ChangeType.EXTERNAL_SIGNAL)
"""Types that execution itself never publishes."""

REACT = "react"
"""Key of the payload by which somebody asks for a decision, whatever the event's severity."""


LEARNED = "learned"
"""Key of the payload of a published event: a merge patch on the belief, true until a tool shows
otherwise."""


def _severity(known: dict[str, Any]) -> Severity:
    return SEVERITY.get(known.get("type"), Severity.WARNING)  # type: ignore[arg-type]


class ContextChangeEvent(Value):
    """Something that changes a run's situation."""

    session_id: str = ""
    task_id: str | None = None
    """Step id."""
    type: ChangeType
    severity: Severity = Field(default_factory=lambda known: _severity(known))
    """Default: the type's own (``SEVERITY``)."""
    description: str = ""
    payload: Document = {}
    """What else is known; see ``REACT`` and ``LEARNED``."""
    occurred_at: float = 0.0
    """Seconds of the run's clock; by the wall clock it stands in the event's span."""


def payload_text(event: ContextChangeEvent) -> str:
    """Return an event's payload as a prompt tells it, with a space before it; "" where it is empty.

    Examples
    --------
    >>> payload_text(ContextChangeEvent(type="EXTERNAL_SIGNAL", payload={"react": True, "km": 3}))
    ' {"km":3}'
    """
    shown = {k: v for k, v in event.payload.items() if k != REACT}
    return f" {canonical(shown)[:400]}" if shown else ""
