"""The lab: everything a node may use, in one immutable object.

Give it a scenario, or tools of your own, a planner and a strategy; a run binds it to its own
recorder and journal. It is shared freely between runs and threads.

Its ``call`` is the one door to tools: argument check, permission, fault draw (once, at submission,
kept with the call under way), journal, span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

from agentlab.actions import ACTIONS
from agentlab.actions.base import Action
from agentlab.agents import Agent
from agentlab.calls import CallRecord, ToolError, call_text
from agentlab.config import AgentConfig, AgentRegistry
from agentlab.datasets import find_recording
from agentlab.environments import get_environment
from agentlab.environments.base import Begun, Call, Environment, Evidence, Outcome, Verdict
from agentlab.errors import ConfigError, ReplayError, ToolFailure, UnknownNameError
from agentlab.executor import Executor, SimulatedExecutor
from agentlab.faults import advance, duration, fault_for, stand, strike
from agentlab.lm import Model
from agentlab.planners import get_planner
from agentlab.planners.base import Planner
from agentlab.reflectors import Reflector, RuleReflector
from agentlab.responders import Responder, TemplateResponder
from agentlab.scenario import FaultPlan, Scenario
from agentlab.state import DeliveredFault, Failure, Fault, State, UnderWay
from agentlab.strategies import Strategy, get_strategy
from agentlab.strategies.base import Decider
from agentlab.talk import Talk
from agentlab.tools.tool import REPEATABLE, Permissions, Tool, ToolRegistry
from agentlab.trace.journal import Address, Journal, NestedJournal, NoJournal
from agentlab.trace.recorder import NestedRecorder, Recorder
from agentlab.values import Json, digest, is_json, merge_patch, with_fields

log = logging.getLogger("agentlab")

_EXAMPLE = "lm='openai/gpt-4o-mini'"


class Lab:
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
    tools : iterable of Tool
        Functions made tools with ``agentlab.tool``, beside the world's.
    agent : str or AgentConfig, optional
        "FILE:ID" names an agent in a YAML or TOML file; with ``agents``, an id in there.
    agents : AgentRegistry, optional
        Where agent and sub-agents are looked up; default: the agent's file.
    workers : int
        Steps that may be under way at once.
    permissions : Permissions, optional
        Which calls are let through; default all.
    handler : object, optional
        Hears stream events (see ``agentlab.events.Handler``).
    lm : str or Model, optional
        A language model by name ("openai/gpt-4o-mini", "openai/NAME@http://127.0.0.1:8765/v1",
        "recorded"), or connected. Given, it stands in for the model of every agent, sub-agents too;
        default: each agent's own. Without one nobody is asked.
    reflector, responder : str or object, optional
        Who judges and who answers: "rules" and "template", or "lm"; default: the model where there
        is one.
    environment : Environment, optional
        Default: the one that the scenario names.

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
        tools: Iterable[Tool] = (),
        agent: str | AgentConfig | None = None,
        agents: AgentRegistry | None = None,
        workers: int = 1,
        permissions: Permissions | None = None,
        handler: object | None = None,
        lm: str | Model | None = None,
        reflector: str | Reflector | None = None,
        responder: str | Responder | None = None,
        environment: Environment | None = None,
    ) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ConfigError(f"workers must be an integer of at least 1, got {workers!r}")
        self.scenario = scenario
        if environment is None and scenario is not None:
            environment = get_environment(scenario.environment)
        self.environment = environment
        own = environment.tools() if environment is not None else ()
        world = environment.name if environment is not None else "agent"
        self.given_tools = tuple(tools)
        self.cast = Agent(agent, agents, [*own, *self.given_tools], world)
        config = self.cast.configured
        self.given_model: Model | None = connected(lm) if isinstance(lm, str) else lm
        self.model: Model | None = self.given_model or self.cast.connect()
        if planner is None:
            asks = environment is None and self.model is not None
            planner = (config and config.planner) or ("structured" if asks else "search")
        if strategy is None:
            strategy = (config and config.strategy) or "reflect_on_total_failure"
        self.planner = get_planner(planner) if isinstance(planner, str) else planner
        if not isinstance(self.planner, Planner):
            raise ConfigError(f"a planner needs a method plan(request, bench), got {planner!r}")
        self.strategy = get_strategy(strategy) if isinstance(strategy, str) else strategy
        self.seed = seed
        plan = faults if faults is not None else (scenario.faults if scenario else FaultPlan())
        self.faults = plan if fault_rate is None else _with_rate(plan, fault_rate)
        self.actions: Mapping[str, Action] = ACTIONS
        self.workers = workers
        self.permissions = permissions or Permissions()
        self.handler = handler
        self.reflector: Reflector = _mind("reflector", reflector, self.model)
        self.responder: Responder = _mind("responder", responder, self.model)
        self.decider: Decider | None = None if self.model is None else _decider()
        _check_asked(self.planner, self.strategy, self.model)
        self.executor: Executor = SimulatedExecutor()
        self.recorder = Recorder()
        self.journal: Journal = NoJournal()
        self.ancestors: tuple[str, ...] = ()
        self._complained: set[str] = set()

    def bind(self, **changes: Any) -> Lab:
        """Return a lab that shares everything but the named attributes.

        A run binds ``recorder`` and ``journal``; ``handler``, ``seed``, ``strategy``, ``planner``
        and ``tools`` may be changed the same way.
        """
        if "tools" in changes:
            changes["cast"] = self.cast.having(changes.pop("tools"))
        unknown = set(changes) - set(vars(self))
        if unknown:
            raise ConfigError(f"a lab has no {sorted(unknown)}")
        for name, get in (("planner", get_planner), ("strategy", get_strategy)):
            if isinstance(changes.get(name), str):
                changes[name] = get(changes[name])
        bound = object.__new__(Lab)
        bound.__dict__.update(self.__dict__)
        bound.__dict__.update(changes)
        if {"planner", "strategy", "model"} & set(changes):
            _check_asked(bound.planner, bound.strategy, bound.model)
        bound.__dict__["_complained"] = set()
        if not {"seed", "strategy", "scenario", "faults"} & set(changes):
            return bound
        bound.__dict__.pop("_first", None)
        return bound

    def __repr__(self) -> str:
        name = self.scenario.id if self.scenario is not None else "no scenario"
        return f"Lab({name}, {type(self.planner).__name__}, {self.strategy.name}, seed={self.seed})"

    # ---- what a run starts from ----------------------------------------------------------

    @cached_property
    def _first(self) -> State:
        """The state that every run of this lab starts from; states are immutable, so it is one."""
        budget = self.strategy.budget
        state = State(
            seed=self.seed,
            fault_plan=self.faults,
            max_loops=budget.replans,
            max_task_iterations=budget.executions,
        )
        if self.scenario is None or self.environment is None:
            return state
        world = self.environment.initial(self.scenario)
        return advance(
            state.replace(
                scenario_id=self.scenario.id,
                user_input=self.scenario.task,
                initial=world,
                world=world,
                belief=self.environment.belief(self.scenario),
            ),
            0.0,
        )

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
            fields["user_input"] = user_input
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
                f"sub-agent {agent_id!r} cannot be looked up: Lab(agents=registry) or "
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
            given_tools=self.given_tools,
            ancestors=(*self.ancestors, self.agent().id),
            strategy=lab.strategy.within(depth=deeper),
            recorder=NestedRecorder(self.recorder, state.visit, address.step_id),
            journal=NestedJournal(self.journal, state.visit, inner),
        )

    # ---- judging -------------------------------------------------------------------------

    def verdict(self, state: State) -> Verdict:
        """Judge a state against the scenario's goal.

        Raises
        ------
        ConfigError
            There is no scenario, hence no goal.
        """
        if self.scenario is None or self.environment is None:
            raise ConfigError("a lab without a scenario has no goal to check")
        evidence = Evidence(state.initial, state.world, state.calls, state.answer, state.now)
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

    @contextmanager
    def stage(self, stage: str, title: str) -> Iterator[None]:
        """Open a thinking stage, which ends also when it fails."""
        self.emit("on_thinking_stage_start", stage, title)
        try:
            yield
        finally:
            self.emit("on_thinking_stage_end", stage)

    # ---- asking a language model ----------------------------------------------------------

    @contextmanager
    def asking(
        self, state: State, step_id: str = "", attempt: int = 0,
        on_token: Callable[[str], None] | None = None,
    ) -> Iterator[Talk]:  # fmt: skip
        """Open a talk: LM calls made inside are recorded, and charged to the state afterwards."""
        talk = Talk(self.model, state, self.recorder, self.journal, step_id, attempt)
        with talk.open(on_token):
            yield talk

    # ---- the one door to tools ------------------------------------------------------------

    def begin_call(
        self, state: State, address: Address, tool: str, arguments: dict[str, Any]
    ) -> tuple[State, UnderWay]:
        """Start a call: argument check, permission, fault draw, the world's own refusal.

        Parameters
        ----------
        state : State
        address : Address
            Where in the run the call is made.
        tool : str
        arguments : dict
            Resolved.

        Returns
        -------
        tuple of State and UnderWay
            The state counts the call; a refused call finishes at once with an error.
        """
        error = self._refusal(tool, arguments)
        key = ""
        changes: dict[str, Any] = {"tool_calls": state.tool_calls + 1}
        fault: Fault | None = None
        holds: tuple[str, ...] = ()
        occurrence, seconds = 0, 0.0
        if error is None:
            key = digest(arguments)
            pair = f"{tool}:{key}"
            occurrence = state.occurrences.get(pair, 0)
            fault = fault_for(state, tool, arguments, key, address.step_id)
            changes["occurrences"] = state.occurrences.set(pair, occurrence + 1)
            made = self.tools[tool]
            begun: Begun | ToolError = Begun(made.seconds, made.holds)
            if self.environment is not None and made.service == "environment":
                begun = self.environment.begin(state.world, Call(tool, arguments))
            if isinstance(begun, ToolError):
                error = begun
            else:
                seconds, holds = duration(fault, made, begun.seconds), begun.holds
        under_way = UnderWay(
            step_id=address.step_id, action_type="call_tool", attempt=address.attempt,
            submission=state.submissions, tool=tool, arguments=arguments, started=state.now,
            finishes=state.now + seconds, holds=holds, fault=None if error else fault,
            occurrence=occurrence, refused=None if error is None else error.to_json(),
        )  # fmt: skip
        return state.replace(**changes), under_way

    def _refusal(self, name: str, arguments: Json) -> ToolError | None:
        if name not in self.tools:
            from agentlab.errors import suggest

            text = f"unknown tool {name!r}; {suggest(name, self.tools)}"
            return ToolError(code="unknown_tool", message=text, permanent=True)
        tool = self.tools[name]
        denied = self.permissions.refusal(tool)
        if denied:
            return ToolError(code="denied", message=denied, permanent=True)
        problem = tool.check(arguments)
        if problem:
            return ToolError(code="bad_arguments", message=problem)
        return None

    def finish_call(
        self, state: State, under_way: UnderWay, address: Address
    ) -> tuple[State, Json, ToolError | None]:
        """Finish a call on the world of this moment, under its fault.

        Returns
        -------
        tuple of State, result, error
            What the agent is told; the state has the new world, belief, counters and records.
        """
        name, arguments = under_way.tool, under_way.arguments
        with self.recorder.span(
            "tool", name, visit=address.visit, step_id=address.step_id, attempt=address.attempt,
            input=arguments, now=under_way.started,
        ) as span:  # fmt: skip
            if under_way.refused is not None:
                error: ToolError | None = ToolError.model_validate(under_way.refused)
                outcome, committed, delivered = Outcome(state.world, error=error), False, None
            else:
                outcome, committed, delivered = self._carried_out(state, under_way, address)
            state = self._written(state, under_way, outcome, committed, delivered)
            span.output, span.sim_end = outcome.result, state.now
            if outcome.error is not None:
                span.error = str(outcome.error)
            span.attributes = {"occurrence": under_way.occurrence, "committed": committed}
            if delivered is not None:
                self.recorder.mark(
                    "fault", delivered.fault.kind.value, visit=address.visit,
                    step_id=address.step_id, attempt=address.attempt, input=arguments,
                    output=fault_row(delivered), now=state.now,
                )  # fmt: skip
        return state, outcome.result, outcome.error

    def _carried_out(
        self, state: State, under_way: UnderWay, address: Address
    ) -> tuple[Outcome, bool, DeliveredFault | None]:
        tool, call = self.tools[under_way.tool], Call(under_way.tool, under_way.arguments)

        def execute(world: dict[str, Any]) -> Outcome:
            if tool.service == "environment":
                assert self.environment is not None
                return self.environment.apply(world, call)
            return self._function(tool, call, world, address)

        fault = under_way.fault
        if fault is None:
            outcome = execute(state.world)
            return outcome, outcome.error is None, None
        struck = strike(fault, self.environment, tool, call, state.world, execute)
        if not struck.delivered:
            return struck.outcome, struck.committed, None
        delivered = DeliveredFault(
            fault=fault, tool=call.tool, arguments=digest(call.arguments),
            occurrence=under_way.occurrence, step_id=under_way.step_id, at=state.now,
            committed=struck.committed, truth=struck.truth or {},
        )  # fmt: skip
        return struck.outcome, struck.committed, delivered

    def _function(self, tool: Tool, call: Call, world: dict[str, Any], address: Address) -> Outcome:
        """Call a Python function, with the journal written before and after."""
        request = digest([call.tool, call.arguments])
        known = self.journal.find(address, call.tool, request)
        if known is not None and known.finished:
            if known.request != request:
                raise ReplayError(
                    f"the call at {tuple(address)} was {known.name} with other arguments"
                )
            error = None if known.error is None else ToolError.model_validate(known.error)
            return Outcome(world, result=known.result, error=error)
        if known is not None and tool.effect not in REPEATABLE:
            text = f"{call_text(call.tool, call.arguments)} was under way when the run was killed"
            error = ToolError(code="interrupted", message=f"{text}; its outcome is unknown")
            return Outcome(world, error=error)
        self.journal.start(address, call.tool, request)
        result, error = _invoke(tool, call)
        self.journal.finish(
            address, call.tool, request, result, None if error is None else error.to_json()
        )
        return Outcome(world, result=result, error=error)

    def _written(
        self,
        state: State,
        under_way: UnderWay,
        outcome: Outcome,
        committed: bool,
        delivered: DeliveredFault | None,
    ) -> State:
        record = CallRecord(
            tool=under_way.tool, arguments=under_way.arguments, result=outcome.result,
            error=outcome.error, committed=committed, faulted=delivered is not None,
            step_id=under_way.step_id, started=under_way.started, finished=state.now,
        )  # fmt: skip
        changes: dict[str, Any] = {"calls": state.calls.append(record)}
        if outcome.world is not state.world:
            changes["world"] = outcome.world
        if outcome.learned:
            changes["belief"] = merge_patch(state.belief, outcome.learned)
        if outcome.error is not None:
            changes["failures"] = _counted(state, under_way, outcome.error, bool(outcome.learned))
        if delivered is not None:
            changes["delivered"] = state.delivered.append(delivered)
            standing: Fault | None = stand(state, under_way.tool, delivered.fault)
            if standing is not None:
                changes["standing"] = state.standing.set(under_way.tool, standing)
        return state.replace(**changes)

    def call(
        self, state: State, address: Address, tool: str, arguments: dict[str, Any]
    ) -> tuple[State, Json, ToolError | None]:
        """Make a whole call: start it, let its time pass, finish it."""
        state, under_way = self.begin_call(state, address, tool, arguments)
        return self.finish_call(advance(state, under_way.finishes), under_way, address)


@lru_cache(maxsize=64)
def connected(text: str) -> Model:
    """Connect a model by name, once: the labs of a study share it (see ``agentlab.lm.connect``)."""
    from agentlab.lm.connect import connect

    return connect(text, recordings=find_recording)


def _mind(kind: str, given: Any, model: Model | None) -> Any:
    """Return the reflector or responder that a name stands for."""
    rule = "rules" if kind == "reflector" else "template"
    if given is None:
        given = rule if model is None else "lm"
    if not isinstance(given, str):
        return given
    if given not in (rule, "lm"):
        raise UnknownNameError(kind, given, (rule, "lm"))
    if given == "lm":
        if model is None:
            raise ConfigError(f"the {kind} 'lm' asks a language model: name one, e.g. {_EXAMPLE}")
        from agentlab.minds import LMReflector, LMResponder

        return LMReflector() if kind == "reflector" else LMResponder()
    return RuleReflector() if kind == "reflector" else TemplateResponder()


def _decider() -> Decider:
    from agentlab.minds import LMDecider

    return LMDecider()


def _check_asked(planner: Planner, strategy: Strategy, model: Model | None) -> None:
    """Refuse a lab whose planner or strategy would ask a language model that is not there."""
    asking = ""
    if getattr(type(planner), "needs_model", False):
        asking = f"planner {getattr(planner, 'name', type(planner).__name__)!r}"
    elif getattr(strategy, "needs_model", False):
        asking = f"strategy {strategy.name!r}"
    if asking and model is None:
        raise ConfigError(f"the {asking} asks a language model: name one, e.g. {_EXAMPLE}")


def _with_rate(plan: FaultPlan, rate: float) -> FaultPlan:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise ConfigError(f"a fault rate is a number between 0 and 1, got {rate!r}")
    return plan.replace(rate=float(rate))


def _counted(state: State, under_way: UnderWay, error: ToolError, explained: bool) -> Any:
    key = digest(under_way.arguments)
    for i, f in enumerate(state.failures):
        if (f.tool, f.arguments, f.code) == (under_way.tool, key, error.code):
            permanent = f.permanent or error.permanent
            more = f.replace(count=f.count + 1, permanent=permanent, explained=explained)
            return state.failures.set(i, more)
    failure = Failure(
        tool=under_way.tool, arguments=key, code=error.code, permanent=error.permanent,
        explained=explained,
    )  # fmt: skip
    return state.failures.append(failure)


def fault_row(delivered: DeliveredFault) -> dict[str, Json]:
    """Return what the span of a delivered fault says."""
    fault = delivered.fault
    return {
        "kind": fault.kind.value, "persistence": fault.persistence.value,
        "visibility": fault.visibility.value, "source": fault.source, "tool": delivered.tool,
        "arguments": delivered.arguments, "occurrence": delivered.occurrence,
        "committed": delivered.committed,
    }  # fmt: skip


def _invoke(tool: Tool, call: Call) -> tuple[Json, ToolError | None]:
    """Run a function tool; whatever it raises becomes an error the agent can read."""
    import copy

    assert tool.function is not None
    try:
        result = tool.function(**copy.deepcopy(call.arguments))
    except ToolFailure as e:
        return None, ToolError(code=e.code, message=e.message, permanent=e.permanent)
    except Exception as e:
        return None, ToolError(code="exception", message=f"{type(e).__name__}: {e}")
    if not is_json(result):
        kind = type(result).__name__
        text = (
            f"{tool.name} returned a {kind} that is not JSON (only dict, list, str, numbers, ...)"
        )
        return None, ToolError(code="not_json", message=text)
    return copy.deepcopy(result), None
