"""Events: what a run tells while it goes on, and what happens to it from outside.

``Handler`` has one method for each stream event, all doing nothing; subclass it, or pass any
object that has some of them. ``EventLog`` is a handler that keeps the events as records.
``ContextChangeEvent`` is what changes a run's situation. ``Event`` joins them all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from agentlab.values import Document, Json, Value

STAGES = ("intent_recognition", "planning", "task_execution", "reflection")


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

    kind: Literal["context_change"] = "context_change"
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
    """Simulated seconds."""


class NodeStarted(Value):
    """A node is about to run."""

    kind: Literal["node_start"] = "node_start"
    node: str


class NodeCompleted(Value):
    """A node has run."""

    kind: Literal["node_complete"] = "node_complete"
    node: str


class StageStarted(Value):
    """A thinking stage starts; every stage that starts ends."""

    kind: Literal["thinking_stage_start"] = "thinking_stage_start"
    stage: str
    title: str


class StageContent(Value):
    """Text within a thinking stage."""

    kind: Literal["thinking_content"] = "thinking_content"
    stage: str
    text: str


class StageEnded(Value):
    """A thinking stage ends."""

    kind: Literal["thinking_stage_end"] = "thinking_stage_end"
    stage: str


class Progress(Value):
    """Plan steps settled, of all; percent 0 to 100."""

    kind: Literal["overall_progress"] = "overall_progress"
    current: int
    total: int
    percent: float


class Token(Value):
    """A piece of the final response."""

    kind: Literal["token"] = "token"
    text: str


class ReplanRequired(Value):
    """A replan was accepted; ``count`` is the number after it."""

    kind: Literal["replan_required"] = "replan_required"
    reason: str
    count: int


class RagStarted(Value):
    """A retrieval starts."""

    kind: Literal["rag_start"] = "rag_start"
    name: str


class RagCompleted(Value):
    """A retrieval ended with ``n`` passages."""

    kind: Literal["rag_complete"] = "rag_complete"
    name: str
    n: int


class References(Value):
    """Sources of what follows."""

    kind: Literal["references"] = "references"
    refs: list[Any]


class Completed(Value):
    """The run has its final response."""

    kind: Literal["complete"] = "complete"
    final_response: str
    session_id: str = ""


class Errored(Value):
    """The run recorded an error."""

    kind: Literal["error"] = "error"
    error: str


Event = Annotated[
    ContextChangeEvent
    | NodeStarted
    | NodeCompleted
    | StageStarted
    | StageContent
    | StageEnded
    | Progress
    | Token
    | ReplanRequired
    | RagStarted
    | RagCompleted
    | References
    | Completed
    | Errored,
    Field(discriminator="kind"),
]


class Handler:
    """What a run tells, a method each; all do nothing."""

    def on_node_start(self, node: str) -> None:
        """Hear that a node is about to run."""

    def on_node_complete(self, node: str, state: Any) -> None:
        """Hear that a node has run, with the state it left."""

    def on_thinking_stage_start(self, stage: str, title: str) -> None:
        """Hear that a stage starts."""

    def on_thinking_content(self, stage: str, text: str) -> None:
        """Hear text within a stage."""

    def on_thinking_stage_end(self, stage: str) -> None:
        """Hear that a stage ended, also when it failed."""

    def on_overall_progress(self, current: int, total: int, percent: float) -> None:
        """Hear how many plan steps are settled, percent 0 to 100."""

    def on_token(self, text: str) -> None:
        """Hear a piece of the final response."""

    def on_replan_required(self, reason: str, count: int) -> None:
        """Hear that a replan was accepted, with the number after it."""

    def on_rag_start(self, name: str) -> None:
        """Hear that a retrieval starts."""

    def on_rag_complete(self, name: str, n: int) -> None:
        """Hear that a retrieval ended with n passages."""

    def on_references(self, refs: list[Json]) -> None:
        """Hear the sources of what follows."""

    def on_complete(self, final_response: str, session_id: str) -> None:
        """Hear the final response."""

    def on_error(self, error: str) -> None:
        """Hear an error that the run recorded."""


_MODELS: dict[str, type[Value]] = {
    str(model.model_fields["kind"].default): model
    for model in (
        NodeStarted, NodeCompleted, StageStarted, StageContent, StageEnded, Progress, Token,
        ReplanRequired, RagStarted, RagCompleted, References, Completed, Errored,
    )
}  # fmt: skip


class EventLog(Handler):
    """A handler that keeps every stream event as a record, in ``events``."""

    def __init__(self) -> None:
        self.events: list[Value] = []

    def __getattribute__(self, name: str) -> Any:
        model = _MODELS.get(name.removeprefix("on_")) if name.startswith("on_") else None
        if model is None:
            return super().__getattribute__(name)
        fields = [f for f in model.model_fields if f != "kind"]

        def record(*arguments: Any) -> None:
            self.events.append(model(**dict(zip(fields, arguments, strict=False))))

        return record
