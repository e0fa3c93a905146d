"""Stream events: what a handler may hear of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agentlab.base.values import Json, Value
from agentlab.state.events import ContextChangeEvent

STAGES = ("intent_recognition", "planning", "task_execution", "reflection")


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
