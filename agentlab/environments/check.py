"""The conformance check of an environment, shipped to whoever writes one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from agentlab.base.arrived import instance, whole
from agentlab.base.documents import Json, canonical, is_json
from agentlab.base.schemas import check_schema
from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call, Environment, Outcome, clock_of
from agentlab.environments.scenario import Goal, Scenario
from agentlab.errors import EnvironmentContractError, UnknownNameError, seen
from agentlab.tools.calls import CallRecord as CallRecord, call_text
from agentlab.tools.tool import Tool


def check_environment(
    environment: Environment, scenario: Scenario, calls: Sequence[Call] = (), steps: int = 50
) -> None:
    """Check the contract on one scenario; raise on the first breach.

    Walks through ``calls``, then through candidates (always the first not yet tried), at most
    ``steps`` calls in all. After every call the old world's canonical JSON must be what it was,
    the same call must give the same outcome again, and everything must be JSON without nulls in
    the world and fit the tool's schemas.

    Parameters
    ----------
    environment : Environment
        What to check.
    scenario : Scenario
        A scenario of that environment.
    calls : sequence of Call
        Calls to make first.
    steps : int
        Upper bound on calls.

    Raises
    ------
    EnvironmentContractError
        Says which rule was broken by which call.
    """
    instance("environment", environment, Environment, "an Environment", "an object of your class")
    instance("scenario", scenario, Scenario, "a Scenario of that environment")
    steps = whole("steps", steps)
    for n, call in enumerate(instance("calls", calls, Sequence, "a list of Call")):
        instance(f"calls[{n}]", call, Call, "a Call, as in Call('tool', {...})")
    registry = environment.registry
    clock_of(environment)
    for tool in registry.values():
        if set(tool.seen) - set(tool.parameters.get("properties", {})):
            _breach(f"tool {seen(tool.name)} lists parameters as seen that it does not have")
    before = copy.deepcopy(scenario.to_json())
    world = environment.initial(scenario)
    for rule, document in (("initial", world), ("belief", environment.belief(scenario))):
        if not _is_world(document):
            _breach(f"{rule}() must be a JSON object without nulls")
    if canonical(environment.initial(scenario)) != canonical(world):
        _breach("initial() gave two worlds for one scenario")
    tried: set[str] = set()
    queue = list(calls)
    for _ in range(steps):
        text = canonical(world)
        call = queue.pop(0) if queue else _fresh(environment, world, scenario.goal, tried)
        if canonical(world) != text:
            _breach("candidates() changed the world it was given")
        if call is None:
            break
        world = _check_call(environment, world, call)
    if scenario.to_json() != before:
        _breach("the scenario was changed")
    text = canonical(world)
    first = environment.unmet(scenario.goal, world)
    if canonical(world) != text:
        _breach("unmet() changed the world it was given")
    if first != environment.unmet(scenario.goal, world):
        _breach("unmet() gave two answers for one world")


def _fresh(environment: Environment, world: Document, goal: Goal, tried: set[str]) -> Call | None:
    for call in environment.candidates(world, goal):
        key = _shown(call)
        if key not in tried:
            tried.add(key)
            return call
    return None


def _shown(call: Call) -> str:
    if not is_json(call.arguments):
        _breach(f"{call.tool}({seen(call.arguments)}): arguments must be JSON")
    return call_text(call.tool, call.arguments)


def _asked(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the environment; that it raises is a breach."""
    try:
        return function(*arguments)
    except Exception as e:
        raise EnvironmentContractError(f"{what}: raised {type(e).__name__}: {e}") from e


def _check_call(environment: Environment, world: Document, call: Call) -> Document:
    what = _shown(call)
    try:
        tool = environment.registry[call.tool]
    except UnknownNameError as e:
        raise EnvironmentContractError(f"{what}: {e}") from e
    problem = tool.check(call.arguments)
    if problem:
        _breach(f"{what}: a candidate that its own schema refuses: {problem}")
    text = canonical(world)
    begun = _asked(what, environment.begin, world, call)
    if isinstance(begun, Begun) and begun.seconds < 0:
        _breach(f"{what}: takes {begun.seconds} seconds")
    outcome: Outcome = _asked(what, environment.apply, world, call)
    again = _asked(what, environment.apply, world, call)
    if canonical(world) != text:
        _breach(f"{what}: changed the world it was given")
    if outcome != again:
        _breach(f"{what}: gave two outcomes for one world")
    _check_outcome(what, tool, outcome, world)
    return outcome.world


def _check_outcome(what: str, tool: Tool, outcome: Outcome, world: Document) -> None:
    if not _is_world(outcome.world):
        _breach(f"{what}: the next world must be a JSON object without nulls")
    if not is_json(outcome.result) or not is_json(outcome.learned):
        _breach(f"{what}: result and learned must be JSON")
    if outcome.error is not None:
        if outcome.result is not None:
            _breach(f"{what}: returned both a result and an error")
        return
    problem = check_schema(tool.returns, outcome.result, f"{what}: result")
    if problem:
        _breach(problem)
    if tool.effect == "read" and _without_seen(outcome.world) != _without_seen(world):
        _breach(f"{what}: a read changed the world beyond 'seen'")


def _without_seen(world: Document) -> dict[str, Any]:
    return {k: v for k, v in world.items() if k != "seen"}


def _is_world(document: Any) -> bool:
    return isinstance(document, dict) and is_json(document) and not _has_null(document)


def _has_null(value: Json) -> bool:
    if isinstance(value, dict):
        return any(v is None or _has_null(v) for v in value.values())
    return isinstance(value, list) and any(v is None or _has_null(v) for v in value)


def _breach(message: str) -> None:
    raise EnvironmentContractError(message)
