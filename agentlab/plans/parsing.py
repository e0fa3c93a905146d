"""A planner's reply becomes a plan: the JSON form that prompts ask for, and its parser.

Indices and references are resolved once, here, into step ids. Every violation is listed, each
naming the step and the field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pydantic import Field, ValidationError

from agentlab.base.documents import Json
from agentlab.base.refusals import problems
from agentlab.base.values import Value
from agentlab.errors import PlanParseError, ReferenceError_
from agentlab.plans.references import STEP_ID, references, rename
from agentlab.plans.task_plan import TaskPlan, TaskStep, ordered


class StepReply(Value):
    """A step as a planner's reply spells it."""

    name: str = Field(min_length=1)
    description: str = ""
    action_type: str
    target_resource: str = ""
    parameters: dict[str, Any] = {}
    dependencies: list[int | str] = []
    importance: float = Field(default=0.5, ge=0, le=1)
    skippable: bool = False
    step_id: str | None = None
    expectation: dict[str, Any] | str | None = None
    enforced: bool = False


class PlanReply(Value):
    """A plan as a planner's reply spells it: the JSON form that a prompt asks for."""

    user_intent: str = ""
    intent_analysis: str = ""
    summary: str = ""
    complexity: int = Field(default=1, ge=1, le=10)
    steps: list[StepReply] = []
    answer: str | None = None


def parse_plan(
    reply: Json,
    *,
    plan_id: str = "plan-0",
    taken: Collection[str] = (),
    known: Collection[str] = (),
    under_way: Collection[str] = (),
    check: Callable[[TaskStep], Sequence[str]] = lambda step: (),
) -> TaskPlan:
    """Parse a planner's reply into a plan.

    Parameters
    ----------
    reply : JSON object
        See ``PlanReply``. Dependencies and references are indices into its steps, or step ids.
    plan_id : str
        Id of the plan.
    taken : collection of str
        Step ids the run has used; new steps get others.
    known : collection of str
        Step ids with a result, which references may name.
    under_way : collection of str
        Step ids that will have one; to refer to them is to depend on them.
    check : callable
        Returns what is wrong with a step's action type and target.

    Returns
    -------
    TaskPlan
        Steps sorted topologically, stable.

    Raises
    ------
    PlanParseError
        Lists every violation: field out of range, unknown action or target, dangling or cyclic
        dependency.
    """
    try:
        parsed = PlanReply.model_validate(reply)
    except ValidationError as e:
        found = problems(e, PlanReply)
        raise PlanParseError([text.replace("(document)", "(reply)", 1) for text in found]) from e
    ids = _step_ids(parsed.steps, taken)
    by_name = {r.step_id: i for r, i in zip(parsed.steps, ids, strict=True) if r.step_id}

    def name(step: str | int) -> str:
        if str(step).isdecimal() and len(str(step)) < 10:  # more digits are no index
            index = int(step)
            return ids[index] if index < len(ids) else str(step)
        return by_name.get(str(step), str(step))

    given = Counter(r.step_id for r in parsed.steps if r.step_id)
    twice = sorted(i for i, times in given.items() if times > 1)
    violations = [f"step id {i!r} occurs more than once" for i in twice]
    steps, named = [], {*ids, *under_way}
    for index, item in enumerate(parsed.steps):
        try:
            step = _parsed_step(index, item, ids, named, name)
            violations += [f"step {step.step_id!r}: {text}" for text in check(step)]
            steps.append(step)
        except ReferenceError_ as e:
            violations.append(f"step {ids[index]!r}: {e}")
    answer = parsed.answer
    try:
        answer = answer if answer is None else rename(answer, name)
        unknown = {r.step for r in references(answer)} - {*ids, *known, *under_way}
        violations += [f"answer: refers to unknown step {u!r}" for u in sorted(unknown)]
    except ReferenceError_ as e:
        violations.append(f"answer: {e}")
    try:
        steps = list(ordered(steps, {*known, *under_way, *ids}))
    except PlanParseError as e:
        violations += e.violations
    if violations:
        raise PlanParseError(violations)
    fields = parsed.model_dump(exclude={"steps", "answer"}, by_alias=False)
    plan = TaskPlan(plan_id=plan_id, answer=answer, **fields)
    return plan.with_steps(steps)


def _parsed_step(
    index: int, item: StepReply, ids: Sequence[str], named: Collection[str],
    name: Callable[[Any], str],
) -> TaskStep:  # fmt: skip
    parameters = rename(item.parameters, name)
    used = [r.step for r in references(parameters) if r.step in named]
    dependencies = tuple(dict.fromkeys([name(d) for d in item.dependencies] + used))
    made = {"step_id": ids[index], "parameters": parameters, "dependencies": dependencies}
    given = {name: getattr(item, name) for name in StepReply.model_fields}
    return TaskStep.made(step_index=index, **{**given, **made})  # of a reply that was validated


def _step_ids(steps: Sequence[StepReply], taken: Collection[str]) -> list[str]:
    used = set(taken)
    ids = []
    for index, step in enumerate(steps):
        slug = step.step_id or step.name
        if step.step_id is None or not STEP_ID.fullmatch(slug):
            slug = re.sub(r"[^A-Za-z0-9_-]+", "_", slug).strip("_")
        if not STEP_ID.fullmatch(slug):
            slug = f"step_{index}" if not slug else f"step_{slug}"
        ids.append(fresh_id(slug, used))
        used.add(ids[-1])
    return ids


def fresh_id(slug: str, taken: Collection[str]) -> str:
    """Return ``slug``, or ``slug_2``, ``slug_3``, ... when it is taken."""
    if slug not in taken:
        return slug
    number = 2
    while f"{slug}_{number}" in taken:
        number += 1
    return f"{slug}_{number}"
