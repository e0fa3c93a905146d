"""What nodes, minds and actions may ask of a lab. ``agentlab.lab.Lab`` is the one that ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from agentlab.config import AgentConfig
from agentlab.scenario import Scenario
from agentlab.state import State, UnderWay
from agentlab.trace.journal import Address, Journal
from agentlab.trace.recorder import Recorder

if TYPE_CHECKING:
    from agentlab.actions.base import Action
    from agentlab.calls import ToolError
    from agentlab.environments.base import Environment
    from agentlab.executor import Executor
    from agentlab.inbox import Inbox
    from agentlab.lm import Model
    from agentlab.planners.base import Planner
    from agentlab.reflectors import Reflector
    from agentlab.responders import Responder
    from agentlab.strategies.base import Decider, Strategy
    from agentlab.talk import Talk
    from agentlab.tools.tool import ToolRegistry
    from agentlab.values import Json


class Bench(Protocol):
    """The door to what is not a value: tools, minds, the recorder, the handler."""

    @property
    def scenario(self) -> Scenario | None:
        """The task, where there is one."""

    @property
    def environment(self) -> Environment | None:
        """The functions of the simulated world, where there is one."""

    @property
    def tools(self) -> ToolRegistry:
        """Every tool by name."""

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
    def decider(self) -> Decider | None:
        """Who decides in place of a rule, where there is a language model to ask."""

    @property
    def reflector(self) -> Reflector:
        """Who judges an execution."""

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
    def ancestors(self) -> tuple[str, ...]:
        """Ids of the agents that this one works for, the outermost first."""

    def initial_state(self, user_input: str | None = None, **fields: Any) -> State:
        """Return the state that a run starts from."""

    def sub_lab(self, agent_id: str, state: State, address: Address) -> Bench:
        """Return the lab of a sub-agent, called from this state at this address."""

    @property
    def workers(self) -> int:
        """How many steps may be under way at once."""

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

    def emit(self, event: str, *arguments: Any) -> None:
        """Tell the handler; a handler that raises is reported once and never breaks the run."""

    def stage(self, stage: str, title: str) -> AbstractContextManager[None]:
        """Open a thinking stage, which ends also when it fails."""

    def asking(
        self, state: State, step_id: str = "", attempt: int = 0,
        on_token: Callable[[str], None] | None = None,
    ) -> AbstractContextManager[Talk]:  # fmt: skip
        """Open a talk: LM calls made inside are recorded, and charged to the state afterwards."""

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
