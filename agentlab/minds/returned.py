"""What a mind returned, taken for what it must return, or an error that names who returned what.

A planner may be anybody's code. Of a plan's document, the list of its steps or either as JSON text
the meaning is clear, and it goes the way of a reply: it is held against what the lab can carry out.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from agentlab.base.arrived import arrived
from agentlab.base.strict_json import read_json
from agentlab.errors import ConfigError, JsonError, PlanError, PlanParseError
from agentlab.minds.base import Kit, Noted, PlanRequest, checked_plan
from agentlab.plans.task_plan import TaskPlan, TaskStep
from agentlab.state.decisions import ReflectionResult, ReplanDecision


def noted(returned: Any, planner: Any, request: PlanRequest, kit: Kit) -> Noted:
    """Return the plan that a planner returned, with the notes that came with it.

    Raises
    ------
    PlanError
        See ``plan_of``; or the notes are none.
    """
    if not isinstance(returned, Noted):
        return Noted(plan_of(returned, planner, request, kit), {})
    if not isinstance(returned.notes, Mapping):
        told = f"planner {_name(planner)!r} returned notes that are {arrived(returned.notes)}"
        raise PlanError(f"{told}; expected a dict of JSON")
    return Noted(plan_of(returned.plan, planner, request, kit), returned.notes)


def plan_of(returned: Any, planner: Any, request: PlanRequest, kit: Kit) -> TaskPlan:
    """Return the plan that a planner returned.

    Raises
    ------
    PlanError
        It is none; the message names the planner and what it returned.
    """
    if isinstance(returned, TaskPlan):
        return returned
    told = f"planner {_name(planner)!r} returned {_shown(returned)}"
    try:
        made = read_json(returned) if isinstance(returned, str) else returned
    except JsonError as e:
        raise PlanError(f"{told}, which is neither a TaskPlan nor JSON: {e}") from e
    if isinstance(made, (list, tuple)):
        steps = [s for s in made if isinstance(s, TaskStep)]
        if steps and len(steps) == len(made):
            return _of_steps(steps, told, request)
        made = {"steps": list(made)}
    if not isinstance(made, Mapping):
        raise PlanError(f"{told}; expected a TaskPlan, a dict of a plan, or a list of steps")
    try:
        return checked_plan(dict(made), request, kit)
    except PlanParseError as e:
        raise PlanParseError([f"{told}: {e.violations[0]}", *e.violations[1:]], e.reply) from e


def _of_steps(steps: list[TaskStep], told: str, request: PlanRequest) -> TaskPlan:
    try:
        return TaskPlan(plan_id=f"plan-{request.number}", steps=tuple(steps))
    except ConfigError as e:
        raise PlanError(f"{told}: {e}") from e


def reflection_of(returned: Any, reflector: Any) -> ReflectionResult:
    """Return the judgement that a reflector returned.

    Raises
    ------
    ConfigError
        It is none.
    """
    made: ReflectionResult = _expected(returned, ReflectionResult, "reflector", reflector)
    return made


def decision_of(returned: Any, strategy: Any) -> ReplanDecision:
    """Return the decision that a strategy returned.

    Raises
    ------
    ConfigError
        It is none.
    """
    made: ReplanDecision = _expected(returned, ReplanDecision, "strategy", strategy)
    return made


def response_of(returned: Any, responder: Any) -> str:
    """Return the text that a responder returned.

    Raises
    ------
    ConfigError
        It is none.
    """
    return str(_expected(returned, str, "responder", responder))


def _expected(returned: Any, kind: type, what: str, mind: Any) -> Any:
    if isinstance(returned, kind):
        return returned
    wanted = "a text" if kind is str else f"a {kind.__name__}"
    told = f"{what} {_name(mind)!r} returned {_shown(returned)}"
    raise ConfigError(f"{told}; expected {wanted}")


def _name(mind: Any) -> str:
    name = getattr(mind, "name", None)
    return name if isinstance(name, str) and name else type(mind).__name__


def _shown(returned: Any) -> str:
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns that it was never awaited
        return f"{arrived(returned)}, which nobody awaits: make it a plain def"
    if inspect.isawaitable(returned) or inspect.isasyncgen(returned):
        return f"{arrived(returned)}, which nobody awaits: make it a plain def"
    return arrived(returned)
