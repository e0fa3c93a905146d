"""What is given to a lab, taken for what is meant, or refused before anything has run.

What can only mean one thing is taken: a document for its record, a class or function that needs no
argument for what it makes, a list of one for the one. Everything else is one message: what was
expected, what arrived, what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike, fspath
from typing import Any, TypeVar

from pydantic import ValidationError

from agentlab.base.arrived import (
    accepts,
    arrived,
    called,
    is_factory,
    is_table,
    refused,
    rows_of,
    whole,
)
from agentlab.base.refusals import explain
from agentlab.base.values import Value
from agentlab.environments.base import Environment
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.guard import guarded
from agentlab.environments.named import get_environment
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite, find_agents, suite_names
from agentlab.errors import AgentLabError, ConfigError, UnknownNameError, suggest
from agentlab.lab.named import checked_workers, connected
from agentlab.lm.model import NAMES_A_MODEL, Model
from agentlab.minds.functions import mind_of, strategy_of
from agentlab.state.config import AgentConfig, AgentRegistry, load_registry
from agentlab.tools.tool import Permissions, Tool, ToolRegistry

R = TypeVar("R", bound=Value)

_SCENARIO = "a Scenario, such as al.load_suite('travel')[0]"


def record_of(what: str, kind: type[R], given: Any, expected: str, do: str = "") -> R:
    """Return a record, made of a document where one was given.

    Raises
    ------
    ConfigError
        It is neither, or the document does not fit.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise refused(what, expected, given, do)
    try:
        return kind.model_validate(dict(given))
    except ValidationError as e:
        raise ConfigError(f"{what}: {explain(e, kind)}") from None


def scenario_of(given: Any) -> Scenario | None:
    """Return the one scenario of a lab.

    Raises
    ------
    ConfigError
        It is none, or several.
    """
    if given is None or isinstance(given, Scenario):
        return given
    if isinstance(given, str):
        do = "leave it out, and give the task to start(lab, task)"
        if given in suite_names():
            do = f"that is a suite; take one of it: al.load_suite({given!r})[0]"
        elif (suite := given.split("-")[0]) in suite_names():
            do = f"look it up: al.load_suite({suite!r})[{given!r}]"
        raise refused("scenario", _SCENARIO, given, do)
    many = rows_of(given) if is_table(given) else given
    if isinstance(many, (Suite, list, tuple)):
        if len(many) != 1:
            raise refused("scenario", _SCENARIO, given, "take one of them; a Study takes them all")
        return scenario_of(many[0])
    do = "environment= takes a world" if isinstance(given, Environment) else ""
    return record_of("scenario", Scenario, given, _SCENARIO, do)


def scenarios_of(given: Any) -> list[Scenario]:
    """Return the scenarios of a list, a DataFrame, or of one scenario.

    Raises
    ------
    ConfigError
        Something in it is none.
    """
    many = rows_of(given) if is_table(given) else given
    if isinstance(many, (Scenario, Mapping)):
        many = [many]
    if not isinstance(many, Iterable) or isinstance(many, (str, bytes)) or is_factory(many):
        raise refused("suite", "a name, a .jsonl file or a list of scenarios", given)
    return [
        record_of(f"suite[{n}]", Scenario, one, "a Scenario or a dict of one")
        for n, one in enumerate(many)
    ]


def environment_of(given: Any, scenario: Scenario | None) -> Environment | None:
    """Return the world of a lab: given, or the one that its scenario names.

    Raises
    ------
    ConfigError, UnknownNameError
        It is none.
    """
    if given is None:
        return None if scenario is None else guarded(get_environment(scenario.environment))
    found = get_environment(given) if isinstance(given, str) else given
    if is_factory(found):
        found = called("environment", "an Environment", found)
    if not isinstance(found, Environment):
        raise refused("environment", "an Environment, or the name of one", given)
    return guarded(found)


def model_of(given: Any) -> Model | None:
    """Return the language model that a lab was given.

    Raises
    ------
    ConfigError, UnknownNameError
        It is none, or its name cannot be used.
    """
    if given is None or isinstance(given, Model):
        return given
    if isinstance(given, str):
        return connected(given)
    from agentlab.lm.of_dspy import is_dspy_lm, model_of_dspy

    if is_dspy_lm(given):
        return model_of_dspy(given)
    raise no_model(given)


def no_model(given: Any) -> AgentLabError:
    """Return the error that says how a language model is given."""
    home = type(given).__module__.partition(".")[0]
    do = "name the model; its key comes from the environment"
    if home in ("openai", "anthropic", "litellm"):
        vendor = "openai" if "openai" in type(given).__name__.lower() else home
        do = f"name the model, as in lm='{vendor}/MODEL'; its key comes from the environment"
    elif callable(getattr(given, "complete", None)) and not isinstance(given, type):
        do = "an engine is given a name: al.lm.Model('my/model', engine)"
    elif callable(given) and not isinstance(given, type):
        do = "a function is a script: al.lm.scripted_model(function)"
    elif isinstance(given, (list, tuple)) and given:
        do = "a list of replies is a script: al.lm.scripted_model([...]); a grid takes several lms"
    return refused("lm", NAMES_A_MODEL, given, do)


def agent_of(given: Any, registry: AgentRegistry | None) -> str | AgentConfig | None:
    """Return an agent: its configuration, or the text that names it.

    Raises
    ------
    ConfigError
        It is neither.
    """
    if given is None or isinstance(given, (str, AgentConfig)):
        return given
    expected = "'FILE:ID', such as 'agents.yaml:helpdesk', or an AgentConfig"
    if isinstance(given, PathLike):
        path = fspath(given)
        known = list(load_registry(path).agents) if registry is None else list(registry.agents)
        if len(known) == 1 and registry is None:
            return f"{path}:{known[0]}"
        raise refused("agent", expected, given, f"say which agent: {suggest('', known)}")
    if isinstance(given, AgentRegistry):
        do = f"give it as agents=, and the id as agent=: {suggest('', given.agents)}"
        raise refused("agent", expected, given, do)
    return record_of("agent", AgentConfig, given, expected)


def agents_of(given: Any) -> AgentRegistry | None:
    """Return the registry of agents, read where its file was given.

    Raises
    ------
    ConfigError
        It is none, or cannot be read.
    """
    if given is None or isinstance(given, AgentRegistry):
        return given
    if isinstance(given, (str, PathLike)):
        return load_registry(find_agents(fspath(given)))
    raise refused("agents", "an AgentRegistry, or the file of one", given)


def tools_of(given: Any) -> tuple[Any, ...]:
    """Return the tools that were given; one stands for a list of one.

    Raises
    ------
    ConfigError
        It is no list, or something in it can be no tool.
    """
    expected = "a list of tools made with agentlab.tool"
    if isinstance(given, Tool) or is_factory(given):
        given = (given,)
    elif isinstance(given, Mapping):
        other = [k for k, v in given.items() if getattr(v, "name", None) != k]
        if other and not isinstance(given, ToolRegistry):
            told = f"{other[0]!r} names no tool of that name: al.tool(name={other[0]!r})(function)"
            raise refused("tools", expected, given, told)
        given = given.values()
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise refused("tools", expected, given)
    tools = tuple(given)
    for n, one in enumerate(tools):
        if not isinstance(one, Tool) and (isinstance(one, type) or not callable(one)):
            raise refused(f"tools[{n}]", "a tool made with agentlab.tool", one)
    return tools


def faults_of(given: Any, scenario: Scenario | None) -> FaultPlan:
    """Return what may go wrong: as given, else as the scenario says.

    Raises
    ------
    ConfigError
        It is no plan of faults.
    """
    if given is None:
        return scenario.faults if scenario is not None else FaultPlan()
    do = "a probability is given as fault_rate=" if isinstance(given, (int, float)) else ""
    return record_of("faults", FaultPlan, given, "an agentlab.FaultPlan or a dict of one", do)


def permissions_of(given: Any) -> Permissions:
    """Return which calls are let through; None: all.

    Raises
    ------
    ConfigError
        It is no ``Permissions``.
    """
    if given is None:
        return Permissions()
    do = "as in al.Permissions(effects=['read'], deny=['delete'])"
    return record_of("permissions", Permissions, given, "an agentlab.Permissions", do)


def handler_of(given: Any) -> object | None:
    """Return who hears stream events, or refuse who could hear none.

    Raises
    ------
    ConfigError
        It is text, a number or a container; an object may have any of a handler's methods.
    """
    expected = "an object with methods such as on_token(text)"
    if is_factory(given):
        given = called("handler", expected, given)
    if isinstance(given, (str, bytes, int, float, list, tuple, set, Mapping)):
        raise refused("handler", expected, given, "see agentlab.lab.handler.Handler")
    heard: object | None = given
    return heard


def reviewer_of(review: Any) -> Any:
    """Return who reviews calls for people: "approve", "reject", a function, or None.

    Raises
    ------
    ConfigError, UnknownNameError
        It is none of these.
    """
    if review is None or (isinstance(review, str) and review in ("approve", "reject")):
        return review
    if isinstance(review, str):
        raise UnknownNameError("review", review, ("approve", "reject"))
    expected = "'approve', 'reject' or a function of the PendingApproval"
    if not callable(review):
        raise UnknownNameError("review", arrived(review), ("approve", "reject"))
    if isinstance(review, type) or not accepts(review, 1):
        raise refused("review", expected, review)
    if inspect.iscoroutinefunction(review):
        raise ConfigError(f"review: {arrived(review)} is async; make it a plain def")
    return review


_BOUND: Mapping[str, Callable[[Any], Any]] = {
    "planner": partial(mind_of, "planner"), "reflector": partial(mind_of, "reflector"),
    "responder": partial(mind_of, "responder"), "strategy": strategy_of, "handler": handler_of,
    "seed": partial(whole, "seed"), "workers": checked_workers, "permissions": permissions_of,
    "scenario": scenario_of,
}  # fmt: skip


def as_bound(name: str, given: Any) -> Any:
    """Return what an attribute becomes that a lab is bound with."""
    return _BOUND[name](given) if name in _BOUND else given
