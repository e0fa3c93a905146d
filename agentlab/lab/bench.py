"""What nodes, minds and actions may ask of a lab. ``lab.Lab`` is the one that ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from agentlab.state.config import AgentConfig
from agentlab.state.records import UnderWay
from agentlab.state.state import State
from agentlab.trace.journal import Address, Journal
from agentlab.trace.recorder import Recorder

if TYPE_CHECKING:
    from agentlab.base.documents import Json
    from agentlab.lab.talk import Talk
    from agentlab.lm.model import Model
    from agentlab.minds.base import Planner, Responder
    from agentlab.minds.strategies.base import Strategy
    from agentlab.tools.calls import ToolError
    from agentlab.trace.inbox import Inbox
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agentlab.base.documents import Json
from agentlab.errors import seen, suggest
from agentlab.minds.base import Kit
from agentlab.plans.task_plan import TaskStep
from agentlab.tools.calls import UNKNOWN_OUTCOME, ToolError
from agentlab.tools.tool import REPEATABLE, Tool


class Bench(Kit, Protocol):
    """The door to what is not a value: tools, minds, the recorder, the handler."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """The registered action types."""

    @property
    def planner(self) -> Planner:
        """Who makes plans."""

    @property
    def strategy(self) -> Strategy:
        """Who decides what to do with a plan that met trouble."""

    @property
    def responder(self) -> Responder:
        """Who writes the final response."""

    @property
    def executor(self) -> Executor:
        """Who carries steps out."""

    @property
    def model(self) -> Model | None:
        """The language model, where there is one to ask."""

    @property
    def reviewer(self) -> object | None:
        """Who lets calls through that need approval: "approve", "reject" or a function; None:
        people are asked.
        """

    @property
    def ancestors(self) -> tuple[str, ...]:
        """Ids of the agents that this one works for, the outermost first."""

    def initial_state(self, user_input: str | None = None, **fields: Any) -> State:
        """Return the state that a run starts from."""

    def sub_lab(self, agent_id: str, state: State, address: Address) -> Bench:
        """Return the lab of a sub-agent, called from this state at this address."""

    @property
    def recorder(self) -> Recorder:
        """Where spans go."""

    @property
    def journal(self) -> Journal:
        """Where contacts with the outside are written down."""

    @property
    def inbox(self) -> Inbox:
        """Where other threads put events."""

    def bind(self, **changes: Any) -> Bench:
        """Return a bench that shares everything but the named attributes."""

    def agent(self) -> AgentConfig:
        """Load the agent's configuration; raises a ConfigError when that fails."""

    @property
    def handler(self) -> object | None:
        """Who hears stream events; None: nobody."""

    def emit(self, event: str, *arguments: Any) -> None:
        """Tell the handler; a handler that raises is reported once and never breaks the run."""

    def stage(self, stage: str, title: str) -> AbstractContextManager[None]:
        """Open a thinking stage, which ends also when it fails."""

    def asking(
        self, state: State, step_id: str = "", attempt: int = 0,
        on_token: Callable[[str], None] | None = None, name: str = "",
    ) -> AbstractContextManager[Talk]:  # fmt: skip
        """Open a talk: LM calls made inside are recorded, and charged to the state afterwards.

        Its tokens go to ``on_token``, else to the thinking stage ``name``, else nowhere.
        """

    def begin_call(
        self, state: State, address: Address, tool: str, arguments: dict[str, Any]
    ) -> tuple[State, UnderWay]:
        """Start a call: argument check, permission, fault draw."""

    def finish_call(
        self, state: State, under_way: UnderWay, address: Address
    ) -> tuple[State, Json, ToolError | None]:
        """Finish a call on the world of this moment."""

    def call(
        self, state: State, address: Address, tool: str, arguments: dict[str, Any]
    ) -> tuple[State, Json, ToolError | None]:
        """Make a whole call: start it, let its time pass, finish it."""


class Executor(Protocol):
    """Carries steps out. ``Lab.executor`` is one; nodes, and nobody else, call it.

    What is under way is in the state: a step that was submitted is RUNNING and has an entry in
    ``state.under_way`` until it is settled. Everything but ``notify`` is called from the thread
    of the run.
    """

    @property
    def wall(self) -> bool:
        """True when ``state.now`` is wall time, seconds since the run began."""

    @property
    def abandoned(self) -> Sequence[Any]:
        """Calls that went on when nobody waited for them any more."""

    def for_run(self) -> Executor:
        """Return the executor of one run: the same one, where it holds nothing of a run."""

    def submit(self, state: State, bench: Bench, step: TaskStep) -> State:
        """Start a ready step, or settle it at once when it cannot start.

        A step that has to wait (for a resource, or for its time to be tried again) may be left
        pending: the state comes back as it was, and the step is submitted again after a ``wait``.
        """

    def wait(self, state: State, bench: Bench) -> State:
        """Let the next step under way finish, and settle it.

        Comes back with nothing settled when another thread called ``notify`` since the last wait,
        or when it is time for a step that waits to be tried again.
        """

    def cancel(self, state: State, bench: Bench, step_ids: Iterable[str], reason: str) -> State:
        """Interrupt steps under way, with the reason as their interruption context.

        In simulated time an interrupted step never takes effect and what it held is free again;
        elsewhere it is told to stop, and whether it took effect is not known. Steps that are not
        under way (any more) are left as they are.
        """

    def notify(self) -> None:
        """Make ``wait`` come back early, with nothing settled; any thread may call it.

        Called while nobody waits, it is kept for the next ``wait``. Where waiting takes no wall
        time, as in simulated time, there is nothing to cut short.
        """

    def stood(self, state: State) -> None:
        """Go on from the state's time: while people were waited for, none passed."""

    def rest(self) -> None:
        """Tell what is under way to stop: a turn has ended; there may be another."""

    def close(self) -> None:
        """Let go of what it holds outside the state (threads); nobody will go on."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step ended."""

    result: Json = None
    error: str | None = None
    interrupted: bool = False
    """True when it is not known whether the action took effect."""
    started: float | None = None
    """When it began, in seconds of the run's clock; the executor says it."""


class Action(ABC):
    """How one kind of step is carried out.

    Attributes
    ----------
    type : str
        The ``actionType`` that plans use.
    input_fields : dict
        Name of each parameter with what it means; empty: whatever the target's schema says.
    tools : str
        Which tools it may use.
    failure_policy : str
        What a failure does.
    side_effects : str
        What it may do outside the agent.
    result_form : str
        How its result is written.
    resumable : bool
        Whether a run killed in the middle of it can go on without repeating it.
    """

    type: str
    input_fields: dict[str, str] = {}
    tools: str = "none"
    failure_policy: str = "fails the step; the strategy decides about another attempt"
    side_effects: str = "none"
    result_form: str
    resumable: bool = True

    def check(self, step: TaskStep, bench: Bench) -> list[str]:
        """Return what is wrong with a step of this kind at planning time."""
        return []

    def offers(self, bench: Bench) -> list[Tool]:
        """Return what a planner may name with this type in this lab: targets with parameters."""
        return []

    def needs_approval(self, step: TaskStep, bench: Bench) -> bool:
        """Say whether a person must approve the step before it runs."""
        return False

    def display(self, step: TaskStep) -> str:
        """Return the step as one line for people."""
        return step.name or step.label

    @abstractmethod
    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start the step with its parameters resolved; return what is under way."""

    @abstractmethod
    def finish(self, state: State, bench: Bench, under_way: UnderWay) -> tuple[State, StepOutcome]:
        """Finish the step in the state of this moment."""


def unknown_parameters(step: TaskStep, known: Collection[str]) -> list[str]:
    """Say which parameters of a step are none of the known ones."""
    return [
        f"parameter {seen(key)} is none of {step.action_type}'s; {suggest(key, known)}"
        for key in step.parameters
        if key not in known
    ]


def outcome_of(result: Json, error: ToolError | None, tool: Tool | None = None) -> StepOutcome:
    """Return the step outcome of a call.

    It is not known whether a call took effect that was interrupted; nor, of a tool that may not
    simply be called again, one of the other ends in ``UNKNOWN_OUTCOME``.
    """
    if error is None:
        return StepOutcome(result=result)
    unknown = error.code in UNKNOWN_OUTCOME and tool is not None and tool.effect not in REPEATABLE
    return StepOutcome(error=str(error), interrupted=unknown or error.code == "interrupted")
