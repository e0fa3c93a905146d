"""Stream events: what a handler may hear of a run."""

from __future__ import annotations

from typing import Any

from agentlab.base.documents import Json

STAGES = ("intent_recognition", "planning", "task_execution", "reflection")


class Handler:
    """What a run tells, a method each; all do nothing.

    A handler that also has ``on_context_change(event, occurred_at)`` hears of each published event
    (a ``ContextChangeEvent``) and when it was published, by the wall clock, in ISO 8601.
    """

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
