"""A planner's reply becomes a plan: the JSON form that prompts ask for, and its parser.

Indices and references are resolved once, here, into step ids. Every violation is listed, each
naming the step and the field.

A number means the step of that id, in text and as a number alike; where no step has an id it is an
index. Nothing is guessed: what is the id of no step, or might mean two, is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictInt, StrictStr, ValidationError

from agentlab.base.documents import Json, shortened
from agentlab.base.refusals import problems
from agentlab.base.values import Value
from agentlab.errors import PlanParseError, ReferenceError_
from agentlab.plans.references import STEP_ID, references, rename
from agentlab.plans.task_plan import TaskPlan, TaskStep, ordered

LONGEST_ID = 200
"""Characters of a step id."""

_MOST = 10**18


def _spelled(step_id: object) -> object:
    """Return an id that was written as a number as text; true is a number to Python alone."""
    number = isinstance(step_id, int) and not isinstance(step_id, bool) and abs(step_id) <= _MOST
    return str(step_id) if number else step_id


class StepReply(Value):
    """A step as a planner's reply spells it."""

    name: str = Field(min_length=1)
    description: str = ""
    action_type: str
    target_resource: str = ""
    parameters: dict[str, Any] = {}
    dependencies: list[Annotated[StrictInt, Field(ge=-_MOST, le=_MOST)] | StrictStr] = []
    importance: float = Field(default=0.5, ge=0, le=1)
    skippable: bool = False
    step_id: Annotated[str | None, BeforeValidator(_spelled), Field(max_length=LONGEST_ID)] = None
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
        See ``PlanReply``. Dependencies and references are step ids, or indices into its steps
        where none of them has an id.
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
    name = _Names(parsed.steps, ids, {*known, *under_way}).of
    given = Counter(filter(None, map(_given, parsed.steps)))
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
        violations += [
            f"answer: refers to unknown step {shortened(u, 100)!r}" for u in sorted(unknown)
        ]
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
        ids.append(fresh_id(_slug(index, step), used))
        used.add(ids[-1])
    return ids


def _given(step: StepReply) -> str:
    """Return the id that a step was given; empty: none."""
    return step.step_id if step.step_id and step.step_id.strip() else ""


def _slug(index: int, step: StepReply) -> str:
    slug = given = _given(step)
    if not STEP_ID.fullmatch(given):
        slug = re.sub(r"[^A-Za-z0-9_-]+", "_", given or step.name[:LONGEST_ID]).strip("_")
    if not STEP_ID.fullmatch(slug):
        slug = f"step_{index}" if not slug else f"step_{slug}"
    return slug


class _Names:
    """Which step of a reply a dependency or a reference means.

    Parameters
    ----------
    steps : sequence of StepReply
    ids : sequence of str
        What each is called in the plan.
    others : collection of str
        Ids of steps that are no part of the reply.
    """

    def __init__(
        self, steps: Sequence[StepReply], ids: Sequence[str], others: Collection[str]
    ) -> None:
        self._ids, self._others = ids, others
        self._given = {_given(r): i for r, i in zip(steps, ids, strict=True) if _given(r)}
        self._alike: dict[str, set[str]] = {}  # as an id may be spelled in a reference
        for index, (step, step_id) in enumerate(zip(steps, ids, strict=True)):
            for spelled in {_slug(index, step), _given(step).strip()}:
                self._alike.setdefault(spelled, set()).add(step_id)

    def of(self, step: str | int) -> str:
        """Return the id in the plan; what names nothing is returned as it is.

        Raises
        ------
        ReferenceError_
            It may mean several steps, or is what a step is called only now.
        """
        text = str(step)
        if not self._given:
            index = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
            return self._ids[index] if 0 <= index < len(self._ids) else text
        if text in self._given or text in self._others:
            return self._given.get(text, text)
        meant = sorted(self._alike.get(text.strip(), ()))
        if len(meant) == 1:
            return meant[0]
        if meant or text in self._ids:
            given = ", ".join(map(repr, self._given))
            raise ReferenceError_(
                f"{text!r} is the id of no step, or of several; ids: {shortened(given, 400)}"
            )
        return text


def fresh_id(slug: str, taken: Collection[str]) -> str:
    """Return ``slug``, or ``slug_2``, ``slug_3``, ... when it is taken."""
    if slug not in taken:
        return slug
    number = 2
    while f"{slug}_{number}" in taken:
        number += 1
    return f"{slug}_{number}"
