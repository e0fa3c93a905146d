"""Records that the state keeps of what happened: results, failures, faults, what is under way."""

from __future__ import annotations

from agentlab.base.documents import Json
from agentlab.base.values import Document, Value
from agentlab.environments.fault_plan import FaultKind, Persistence, Visibility
from agentlab.plans.task_plan import StepStatus


class TaskResult(Value):
    """One attempt of one step, in the order in which they ended."""

    step_id: str
    name: str = ""
    status: StepStatus
    result: Json = None
    error: str | None = None
    attempt: int = 0


class Failure(Value):
    """How often a call failed in a way; planners go round what failed."""

    tool: str
    arguments: str
    """Digest of the arguments."""
    code: str
    count: int = 1
    permanent: bool = False
    explained: bool = False
    """Whether the error taught the belief something, so that planning on it avoids the call."""


class Fault(Value):
    """A fault: drawn when a call is submitted, delivered when it finishes."""

    kind: FaultKind
    persistence: Persistence = Persistence.TRANSIENT
    visibility: Visibility = Visibility.ANNOUNCED
    source: str = "rate"
    """Who ordered it: "rate", "target", "outage", "standing" or "event"."""
    draw: float = 0.0
    """Draw in [0, 1) that details follow from."""
    until: float | None = None
    """Simulated time to which it stands; None with persistence "until": not yet known."""


class DeliveredFault(Value):
    """A fault that struck."""

    fault: Fault
    tool: str
    arguments: str
    """Digest of the arguments."""
    occurrence: int = 0
    step_id: str | None = None
    at: float = 0.0
    """Simulated seconds."""
    committed: bool = False
    """Whether the call took effect all the same."""
    truth: Document = {}
    """Merge patch that puts the belief right."""


class UnderWay(Value):
    """A step being carried out: what must be known to finish it."""

    step_id: str
    action_type: str
    attempt: int
    submission: int
    """Number of the submission in the run: breaks ties."""
    visit: int = 0
    """In which it was submitted, where its call started then (in threads)."""
    tool: str = ""
    arguments: Document = {}
    started: float = 0.0
    finishes: float = 0.0
    holds: tuple[str, ...] = ()
    fault: Fault | None = None
    occurrence: int = 0
    refused: Json = None
    """The error of a call that was refused when it started."""
