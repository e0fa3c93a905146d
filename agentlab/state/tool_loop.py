"""The loop of tool calls: its text plan and todo list, and the calls that wait for people.

A call is asked about once: for this step, this attempt and these arguments. What a person said is
a ``Review``; it lets just that call through, and nothing else.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from agentlab.base.documents import Json
from agentlab.base.fields import map_of
from agentlab.base.persistent import pmap
from agentlab.base.values import Document, Value


class LoopSignal(StrEnum):
    """How the loop stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    PAUSED = "paused"
    LIMIT = "limit"


class TodoStatus(StrEnum):
    """How far an item is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"


class Todo(Value):
    """An item of the todo list: progress shown, not truth."""

    content: str
    status: TodoStatus = TodoStatus.PENDING


class Answer(StrEnum):
    """What a person may say of a call that waits."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"


class PendingApproval(Value):
    """A call that waits for a person."""

    call_id: str
    """Id of the step."""
    tool: str
    arguments: Document = {}
    """Resolved, as the call would be made."""
    attempt: int = 1
    asked: str = ""
    """Digest of the arguments."""
    effect: str = ""
    reason: str = ""
    """What is to be known of earlier attempts: whether one may have taken effect."""
    since: float = 0.0
    """Simulated seconds."""


class Review(Value):
    """What was said of one call: this step, this attempt, these arguments."""

    call_id: str
    attempt: int
    asked: str
    """Digest of the arguments that were asked about."""
    answer: Answer
    arguments: Document = {}
    """With which the call may be made."""
    allows: str = ""
    """Digest of these arguments; empty: the call may not be made."""
    by: str = ""
    reason: str = ""


class ToolLoop(Value):
    """What only a loop of tool calls needs."""

    task_plan_text: str = ""
    task_todo_list: tuple[Todo, ...] = ()
    todo_updated: bool = False
    rounds_since_todo_update: int = Field(default=0, ge=0)
    consecutive_failures: int = Field(default=0, ge=0)
    pending_approvals: tuple[PendingApproval, ...] = ()
    reviews: map_of(Review) = Field(default_factory=pmap)  # type: ignore[valid-type]
    """"step#attempt" to what was said of it."""
    loop_signal: LoopSignal = LoopSignal.RUNNING
    task_execution_result: Json = None

    def review_of(self, step_id: str, attempt: int) -> Review | None:
        """Return what was said of an attempt of a step."""
        found: Review | None = self.reviews.get(f"{step_id}#{attempt}")
        return found
