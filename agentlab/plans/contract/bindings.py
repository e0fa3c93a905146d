"""From a contract to a plan that workflows carry out: ``to_task_plan(spec, bindings)``.

A contract says what each step is for and what goes in and comes out, not with which values.
Bindings do: step id to parameters, where a value may be a ``${step.path}`` reference. A step is
done when its action succeeded and what came is valid against the step's output schema; completion
criteria are shown and never judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from agentlab.base.documents import Json
from agentlab.base.schemas import schema_validator
from agentlab.errors import PlanValidationError, PlanViolation, ReferenceError_, seen, suggest
from agentlab.plans.contract.codec import field
from agentlab.plans.contract.spec import PlanSpec, PlanStep
from agentlab.plans.parsing import parse_plan
from agentlab.plans.references import references
from agentlab.plans.task_plan import ActionType, TaskPlan, TaskStep

Actions = Mapping[str, tuple[str, str]]
"""Execution target to (action type, target resource)."""

_ACTION = {"tool": ActionType.CALL_TOOL.value, "agent": ActionType.CALL_SUB_AGENT.value}
_CLOSED = frozenset({"required", "additionalProperties", "minProperties", "maxProperties"})


def to_task_plan(
    spec: PlanSpec, bindings: Mapping[str, dict[str, Any]], *, answer: str | None = None,
    actions: Actions | None = None, plan_id: str = "plan-0", taken: Collection[str] = (),
    known: Collection[str] = (), check: Callable[[TaskStep], Sequence[str]] = lambda step: (),
) -> TaskPlan:  # fmt: skip
    """Return a plan that any workflow can execute.

    Every step starts as pending: a status or result that the spec holds is no proof of execution.
    Step ids that are no slugs get one.

    Parameters
    ----------
    spec : PlanSpec
        Validated.
    bindings : mapping of str to dict
        Step id to parameters; a step that is left out has none. References name step ids.
    answer : str, optional
        Template of what the plan leads to.
    actions : mapping, optional
        Execution target to (action type, target resource), where that is another than
        ``call_tool`` of a tool and ``call_sub_agent`` of an agent.
    plan_id, taken, known, check
        See ``parse_plan``.

    Raises
    ------
    PlanValidationError
        Lists every binding of an unknown step, and every parameter that does not fit the step's
        input schema; what a reference stands for is not known yet and is not judged.
    PlanParseError
        A reference names no step, or what steps need of each other is a cycle.
    """
    reply = plan_reply(spec, bindings, answer, actions)
    return parse_plan(reply, plan_id=plan_id, taken=taken, known=known, check=check)


def plan_reply(
    spec: PlanSpec, bindings: Mapping[str, dict[str, Any]], answer: str | None = None,
    actions: Actions | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return spec and bindings in the reply form of planners (see ``to_task_plan``)."""
    _check(spec, bindings, answer)
    steps = [_step(s, bindings.get(s.step_id, {}), actions or {}) for s in spec.steps]
    return {
        "userIntent": spec.objective,
        "summary": f"contract, revision {spec.revision}, {len(steps)} steps",
        "steps": steps,
        "answer": answer,
    }


def _step(step: PlanStep, parameters: Json, actions: Actions) -> dict[str, Any]:
    kind, _, target = step.execution_target.partition(":")
    action, resource = actions.get(step.execution_target, (_ACTION.get(kind, kind), target))
    return {
        "stepId": step.step_id,
        "name": step.step_id,
        "description": f"{step.objective}\nDone when: {step.completion_criteria}",
        "actionType": action,
        "targetResource": resource,
        "parameters": parameters,
        "dependencies": list(step.dependencies),
        "expectation": step.output_schema,
        "enforced": True,
    }


def _check(spec: PlanSpec, bindings: Mapping[str, dict[str, Any]], answer: str | None) -> None:
    steps = {s.step_id: s for s in spec.steps}
    found = [
        PlanViolation(name, "bindings", f"unknown step; {suggest(name, steps)}")
        for name in bindings
        if name not in steps
    ]
    for name, step in steps.items():
        found += [
            PlanViolation(name, "dependencies", f"unknown step {seen(d)}; {suggest(d, steps)}")
            for d in step.dependencies
            if d not in steps
        ]
        unfit = _unfit(step.input_schema, bindings.get(name, {}))
        found += [PlanViolation(name, where, problem) for where, problem in unfit]
    if problem := _malformed(answer):
        found.append(PlanViolation(None, "answer", problem))
    if found:
        raise PlanValidationError(found)


def _unfit(schema: dict[str, Any], parameters: Json) -> Iterator[tuple[str, str]]:
    """Yield where parameters do not fit, as far as it can be known before references resolve."""
    if not isinstance(parameters, dict):
        yield "parameters", f"expected an object, got {seen(parameters)}"
        return
    if problem := _malformed(parameters):
        yield "parameters", problem
        return
    try:
        errors = list(schema_validator(schema).iter_errors(parameters))
    except (TypeError, ValueError) as e:
        yield "parameters", f"not JSON: {e}"
        return
    for error in errors:
        value = parameters
        for part in error.instance_path:
            value = value[part]
        if error.kind.name in _CLOSED or not any(references(value)):
            yield field(("parameters", *error.instance_path)), error.message


def _malformed(value: Json) -> str | None:
    """Return what is wrong with a reference in a value, or None."""
    try:
        for _ in references(value):
            pass
    except ReferenceError_ as e:
        return str(e)
    return None
