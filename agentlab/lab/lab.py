"""The lab: everything a node may use, in one immutable object.

Give it a scenario, or tools of your own, a planner and a strategy; a run binds it to its own
recorder and journal. It is shared freely between runs and threads. Its ``call`` is the one door to
tools: argument check, permission, fault draw (once, at submission), journal, span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

from agentlab.base.arrived import whole
from agentlab.base.persistent import pvector
from agentlab.base.shown import shown_by
from agentlab.base.values import validated, with_fields
from agentlab.environments.base import Environment, Evidence, Verdict, breach
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.scenario import Scenario
from agentlab.errors import ConfigError, seen, suggest
from agentlab.lab import taken
from agentlab.lab.actions.named import ACTIONS
from agentlab.lab.agent import Agent
from agentlab.lab.bench import Action, Executor
from agentlab.lab.faults import advance
from agentlab.lab.named import (
    _check_asked,
    _decider,
    _mind,
    _with_rate,
    checked_workers,
    executor_for,
    executor_within,
    planner_of,
)
from agentlab.lab.talk import Talk
from agentlab.lab.tool_door import ToolDoor
from agentlab.lm.model import Model
from agentlab.minds.base import Decider, Offer, Planner, Reflector, Responder
from agentlab.minds.functions import strategy_of
from agentlab.minds.strategies.base import Strategy
from agentlab.plans.task_plan import TaskStep
from agentlab.state.config import AgentConfig, AgentRegistry
from agentlab.state.messages import said
from agentlab.state.state import State
from agentlab.state.tool_loop import PendingApproval
from agentlab.tools.tool import Permissions, Tool, ToolRegistry, as_tools
from agentlab.trace.inbox import Inbox
from agentlab.trace.journal import Address, Journal, NestedJournal, NoJournal
from agentlab.trace.recorder import NestedRecorder, Recorder

log = logging.getLogger("agentlab")
_NOBODY_HEARS = nullcontext()


class Lab(ToolDoor):
    """Everything a node may use.

    Parameters
    ----------
    scenario : Scenario, optional
        The task with its simulated world. Without one, give ``tools`` and a planner.
    planner : str or Planner, optional
        A name with arguments ("search", "reference(noise=0.2)") or an object with ``plan``;
        default: the agent's, else "structured" where there is a model and no world, else "search".
    strategy : str or Strategy, optional
        "never", "retry(2)", "retry_then_replan(2)", ...; default: the agent's, else
        "reflect_on_total_failure".
    seed : int
        Of every draw: faults, noise, world events.
    fault_rate : float, optional
        Probability that a call meets a fault; default: the fault plan's own.
    faults : FaultPlan, optional
        What may go wrong; default: the scenario's.
    tools : iterable of Tool or callable
        Beside the world's; functions are made tools as ``agentlab.tool`` does it.
    agent : str or AgentConfig, optional
        "FILE:ID" names an agent in a YAML or TOML file; with ``agents``, an id in there.
    agents : AgentRegistry, optional
        Where agent and sub-agents are looked up; default: the agent's file.
    workers : int
        Steps that may be under way at once.
    executor : {"simulated", "threads"}, optional
        "simulated": time is simulated, tools take the seconds that they declare and functions are
        called in your own thread, without a deadline. "threads": in threads, in wall time, with
        their ``timeout`` for a deadline (see ``agentlab.lab.threads``). Default: threads where
        there are functions or servers' tools, or several workers, and no simulated world.
    permissions : Permissions, optional
        Which calls are let through; default all.
    handler : object, optional
        Hears stream events (see ``agentlab.lab.handler.Handler``).
    lm : str or Model, optional
        A language model by name ("openai/gpt-4o-mini", "openai/NAME@http://127.0.0.1:8765/v1"), or
        connected, in place of the model of every agent, sub-agents too; default: each agent's own.
    reflector, responder : str or object, optional
        Who judges and who answers: "rules" and "template", or "lm"; default: the model, if any.
    environment : Environment, optional
        Default: the one that the scenario names.
    review : {"approve", "reject"} or callable, optional
        Answers for people where a tool needs approval, also inside sub-agents. A function gets the
        ``PendingApproval`` and returns "approve", "reject", or a dict with ``answer`` ("edit" too),
        ``arguments``, ``reason``, ``by``. Default: the run waits (see ``Run.review``).

    Raises
    ------
    UnknownNameError, ConfigError
        A name is not known, or settings do not fit together.
    """

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        planner: str | Planner | None = None,
        strategy: str | Strategy | None = None,
        seed: int = 0,
        fault_rate: float | None = None,
        faults: FaultPlan | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        agent: str | AgentConfig | None = None,
        agents: AgentRegistry | None = None,
        workers: int = 1,
        executor: str | None = None,
        permissions: Permissions | None = None,
        handler: object | None = None,
        lm: str | Model | None = None,
        reflector: str | Reflector | None = None,
        responder: str | Responder | None = None,
        environment: Environment | None = None,
        review: str | Callable[[PendingApproval], Any] | None = None,
    ) -> None:
        self.workers = checked_workers(workers)
        self.scenario = scenario = taken.scenario_of(scenario)
        self.environment = environment = taken.environment_of(environment, scenario)
        own = environment.tools() if environment is not None else ()
        world = environment.name if environment is not None else "agent"
        self.given_tools = as_tools(taken.tools_of(tools))
        agents = taken.agents_of(agents)
        self.cast = Agent(taken.agent_of(agent, agents), agents, [*own, *self.given_tools], world)
        config = self.cast.configured
        self.given_model: Model | None = taken.model_of(lm)
        self.model: Model | None = self.given_model or self.cast.connect()
        asks = environment is None and self.model is not None
        usual = "structured" if asks else "search"
        if planner is None:
            planner = (config and config.planner) or usual
        self.planner: Planner = planner_of(planner)
        chosen = strategy if strategy is not None else config and config.strategy
        self.strategy_named = chosen is not None
        """False: a workflow that has a usual strategy of its own takes that."""
        self.strategy = strategy_of("reflect_on_total_failure" if chosen is None else chosen)
        self.seed = whole("seed", seed)
        plan = taken.faults_of(faults, scenario)
        self.faults = plan if fault_rate is None else _with_rate(plan, fault_rate)
        self.actions: Mapping[str, Action] = ACTIONS
        self.permissions = taken.permissions_of(permissions)
        self.handler = taken.handler_of(handler)
        self.reflector: Reflector = _mind("reflector", reflector, self.model)
        self.responder: Responder = _mind("responder", responder, self.model)
        self.decider: Decider | None = None if self.model is None else _decider()
        _check_asked(self.planner, self.strategy, self.model)
        self.reviewer = taken.reviewer_of(review)
        self.executor_asked = executor
        self.executor: Executor = executor_for(self, self.cast.real)
        self._stand_alone()
        self.__dict__["_sealed"] = True

    def _stand_alone(self) -> None:
        """Take what a run, or the lab of an agent above this one, will bind otherwise."""
        self.recorder = Recorder()
        self.journal: Journal = NoJournal()
        self.inbox = Inbox()
        self.ancestors: tuple[str, ...] = ()
        self.within = ""
        self._complained: set[str] = set()

    def __setattr__(self, name: str, value: object) -> None:
        if "_sealed" in self.__dict__:
            raise AttributeError(f"a lab is immutable; lab.bind({name}=...) returns a changed one")
        super().__setattr__(name, value)

    def bind(self, **changes: Any) -> Lab:
        """Return a lab that shares everything but the named attributes.

        A run binds ``recorder`` and ``journal``; ``handler``, ``seed``, ``strategy``, ``planner``
        and ``tools`` may be changed the same way.
        """
        if "tools" in changes:
            changes["cast"] = self.cast.having(taken.tools_of(changes.pop("tools")))
            if self.executor_asked is None:
                changes = {"executor": executor_for(self, changes["cast"].real), **changes}
        if "review" in changes:
            changes["reviewer"] = taken.reviewer_of(changes.pop("review"))
        for name, value in changes.items():
            if name not in vars(self):
                raise ConfigError(f"a lab has no {seen(name)}; {suggest(name, list(vars(self)))}")
            changes[name] = taken.as_bound(name, value)
        changes["strategy_named"] = self.strategy_named or "strategy" in changes
        bound = object.__new__(Lab)
        bound.__dict__.update({**self.__dict__, **changes})
        if {"planner", "strategy", "model"} & set(changes):
            _check_asked(bound.planner, bound.strategy, bound.model)
        bound.__dict__["_complained"] = set()
        if {"seed", "strategy", "scenario", "faults"} & set(changes):
            bound.__dict__.pop("_first", None)
        return bound

    def __repr__(self) -> str:
        name = self.scenario.id if self.scenario is not None else "no scenario"
        return f"Lab({name}, {type(self.planner).__name__}, {self.strategy.name}, seed={self.seed})"

    _repr_html_ = shown_by("agentlab.views.page.records:lab_page")

    # ---- what a run starts from ----------------------------------------------------------

    @cached_property
    def _first(self) -> State:
        """The state that every run of this lab starts from; states are immutable, so it is one."""
        budget = self.strategy.budget
        state = State.made(
            seed=self.seed,
            fault_plan=self.faults,
            max_loops=budget.replans,
            max_replans=budget.replans,
            max_task_iterations=budget.executions,
        )
        if self.scenario is None or self.environment is None:
            return state
        world = validated(State, "world", self.environment.initial(self.scenario))
        belief = validated(State, "belief", self.environment.belief(self.scenario))
        first = state.put(
            scenario_id=self.scenario.id,
            user_input=self.scenario.task,
            messages=pvector((said(self.scenario.task),)),
            initial=world,
            world=world,
            belief=belief,
        )
        return advance(first, 0.0)

    def initial_state(self, user_input: str | None = None, **fields: Any) -> State:
        """Return the state that a run starts from.

        Parameters
        ----------
        user_input : str, optional
            Default: the scenario's task.
        **fields
            Other state fields to set (``session_id``, ``user_id``, ...).

        Raises
        ------
        ConfigError
            There is no such field, or the value has the wrong type.
        """
        if user_input is not None:
            fields = {"user_input": user_input, "messages": (said(user_input),), **fields}
        return with_fields(self._first, fields, ConfigError, "the first state")

    def agent(self) -> AgentConfig:
        """Load the agent's configuration.

        Raises
        ------
        ConfigError, UnknownNameError
            The file or an id in it is not what it must be.
        """
        return self.cast.config()

    @property
    def tools(self) -> ToolRegistry:
        """Every tool by name: the world's, those given, and the agent's own."""
        return self.cast.tools

    def offers(self) -> list[Offer]:
        """Return everything that a step may be."""
        return [(a.type, tool) for a in self.actions.values() for tool in a.offers(self)]

    def problems(self, step: TaskStep) -> list[str]:
        """Return why a step could not be carried out; empty: it could."""
        action = self.actions.get(step.action_type)
        if action is None:
            near = suggest(step.action_type, list(self.actions))
            return [f"unknown action type {seen(step.action_type)}; {near}"]
        return action.check(step, self)

    def sub_lab(self, agent_id: str, state: State, address: Address) -> Lab:
        """Return the lab of a sub-agent, called from this state at this address.

        It has its own model, planner, strategy and tools (of the functions given to this lab,
        those that it configures), our permissions, and no world; its trace and its journal are
        nested in ours.

        Raises
        ------
        ConfigError, UnknownNameError
            There is no registry to look it up in, or no such agent in it.
        """
        registry = self.cast.registry
        if registry is None:
            raise ConfigError(
                f"sub-agent {seen(agent_id)} cannot be looked up: Lab(agents=registry) or "
                "Lab(agent='FILE:ID') names the registry"
            )
        config = registry.load(agent_id)
        names = {t.name for t in config.tools}
        lm = self.given_model or (self.model if config.model is None else None)
        lab = Lab(
            agent=agent_id, agents=registry, seed=self.seed, workers=self.workers, lm=lm,
            tools=[t for t in self.given_tools if t.name in names],
            permissions=self.permissions,
        )  # fmt: skip
        deeper = min(lab.strategy.budget.depth, self.strategy.budget.depth - 1)
        inner = f"{address.step_id}#{address.attempt}"
        return lab.bind(
            given_model=self.given_model,
            executor=executor_within(self.executor),
            given_tools=self.given_tools,
            reviewer=self.reviewer,
            ancestors=(*self.ancestors, self.agent().id),
            within=f"{self.within}{address.step_id}/",
            strategy=lab.strategy.within(depth=deeper),
            recorder=NestedRecorder(self.recorder, state.visit, address.step_id),
            journal=NestedJournal(self.journal, state.visit, inner),
        )

    # ---- judging -------------------------------------------------------------------------

    def verdict(self, state: State) -> Verdict:
        """Judge a state against the scenario's goal.

        Raises
        ------
        ConfigError, EnvironmentContractError
            There is no scenario, hence no goal; the environment raised.
        """
        if self.scenario is None or self.environment is None:
            raise ConfigError("a lab without a scenario has no goal to check")
        evidence = Evidence(state.initial, state.world, state.calls, state.answer, state.now)
        with breach(self.environment, "check"):
            return self.environment.check(self.scenario.goal, evidence)

    # ---- telling the handler --------------------------------------------------------------

    def emit(self, event: str, *arguments: Any) -> None:
        """Tell the handler; one that raises is reported once and never breaks the run."""
        if self.handler is None:
            return
        method = getattr(self.handler, event, None)
        if method is None:
            return
        try:
            method(*arguments)
        except Exception as e:
            if not self._complained:
                self._complained.add(event)
                log.warning("handler %s raised %s: %s", event, type(e).__name__, e)

    def stage(self, stage: str, title: str) -> AbstractContextManager[None]:
        """Open a thinking stage, which ends also when it fails."""
        return _NOBODY_HEARS if self.handler is None else self._stage(stage, title)

    @contextmanager
    def _stage(self, stage: str, title: str) -> Iterator[None]:
        self.emit("on_thinking_stage_start", stage, title)
        try:
            yield
        finally:
            self.emit("on_thinking_stage_end", stage)

    # ---- asking a language model ----------------------------------------------------------

    def asking(
        self, state: State, step_id: str = "", attempt: int = 0,
        on_token: Callable[[str], None] | None = None, name: str = "",
    ) -> AbstractContextManager[Talk]:  # fmt: skip
        """Open a talk: LM calls made inside are recorded, and charged to the state afterwards.

        Parameters
        ----------
        state : State
        step_id, attempt, name
            Where it is: ``name`` tells talks of one place apart, and is the thinking stage that the
            handler hears the tokens of (``on_thinking_content``).
        on_token : callable, optional
            Given the tokens instead: those of an answer, which alone go to the user.
        """
        if self.model is None:
            return nullcontext(Talk.of_nobody())
        talk = Talk(
            self.model, state, self.recorder, self.journal, step_id, attempt,
            timed=not self.executor.wall, name=name, within=self.within,
        )  # fmt: skip
        if on_token is None and name:
            on_token = partial(self.emit, "on_thinking_content", name)
        return talk.open(on_token if self.handler is not None else None)  # or nobody listens
