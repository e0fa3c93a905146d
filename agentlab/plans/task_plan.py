"""``TaskPlan`` and ``TaskStep``: the plan as data, and its edits.

Only step ids count, slugs that are unique over the run (see ``parsing``); ``step_index`` is where a
step stands. A step is settled when it is completed, failed, skipped or interrupted. Settled steps
cannot be edited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter

from agentlab.base.documents import Json, digest, shortened
from agentlab.base.fields import thaw
from agentlab.base.shown import amount, briefly, cut, shown_by
from agentlab.base.values import Document, Value
from agentlab.errors import (
    ConfigError,
    PlanEditError,
    PlanParseError,
    ReferenceError_,
    UnknownNameError,
    seen,
)
from agentlab.plans.references import STEP_ID, references, rename
from agentlab.plans.steps import Steps


class ActionType(StrEnum):
    """How a step is carried out (the kinds that ship; the registry of actions is open)."""

    CALL_TOOL = "call_tool"
    CALL_SUB_AGENT = "call_sub_agent"
    RAG_QUERY = "rag_query"
    LLM_GENERATE = "llm_generate"
    MCP_CALL = "mcp_call"
    AGGREGATE = "aggregate"


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


SETTLED = frozenset(
    {StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.INTERRUPTED}
)


class PlanStatus(StrEnum):
    """Where a plan stands."""

    CREATED = "created"
    EXECUTING = "executing"
    COMPLETED = "completed"
    REPLANNING = "replanning"
    FAILED = "failed"
    ABORTED = "aborted"


class InterruptionContext(Value):
    """Why a step was interrupted, and where it stood then."""

    reason: str
    attempt: int = 0
    tool: str = ""
    """What it was calling, or whom."""
    started: float | None = None
    """Seconds of the run's clock; None: not known."""
    at: float | None = None
    """When it was interrupted."""

    def __str__(self) -> str:
        told = [f"attempt {self.attempt}"] if self.attempt else []
        told += [f"at {self.at:g} s"] if self.at is not None else []
        told += [f"begun at {self.started:g} s"] if self.started is not None else []
        return f"{self.reason} ({', '.join(told)})" if told else self.reason


class TaskStep(Value):
    """One step of a plan."""

    step_index: int = Field(default=0, ge=0)
    step_id: str = ""
    name: str = ""
    description: str = ""
    action_type: str = ActionType.CALL_TOOL.value
    target_resource: str = ""
    parameters: Document = {}
    dependencies: tuple[str, ...] = ()
    """Ids of the steps that must be completed before."""
    importance: float = Field(default=0.5, ge=0, le=1)
    skippable: bool = False
    status: StepStatus = StepStatus.PENDING
    result: Json = None
    error: str | None = None
    expectation: Document | str | None = None
    """A JSON Schema of the result or a JMESPath predicate; None: the tool's response schema."""
    enforced: bool = False
    """True: a result that fails the expectation fails the step, not only a warning is published."""
    interruption_context: InterruptionContext | None = None

    @property
    def settled(self) -> bool:
        """True when it is completed, failed, skipped or interrupted."""
        return self.status in SETTLED

    @property
    def label(self) -> str:
        """What it does, in a word: its target, else its action type."""
        return self.target_resource or self.action_type

    __repr__ = briefly(lambda s: [f"{s.step_id}: {s.label}", s.status.value, cut(s.error)])
    _repr_html_ = shown_by("agentlab.views.page.records:step_page")


def _numbered(steps: Iterable[TaskStep]) -> Steps[TaskStep]:
    return Steps(s if s.step_index == i else s.put(step_index=i) for i, s in enumerate(steps))


_STEPS = TypeAdapter(tuple[TaskStep, ...])


def _validated(steps: Any) -> Steps[TaskStep]:
    return _numbered(_STEPS.validate_python(tuple(steps) if isinstance(steps, Steps) else steps))


class TaskPlan(Value):
    """A plan: steps in a topological order, and the answer they lead to."""

    plan_id: str = "plan-0"
    user_intent: str = ""
    intent_analysis: str = ""
    summary: str = ""
    complexity: int = Field(default=1, ge=1, le=10)
    steps: Annotated[
        Sequence[TaskStep],
        PlainValidator(_validated, json_schema_input_type=tuple[TaskStep, ...]),
        PlainSerializer(lambda steps: thaw(tuple(steps))),
    ] = Field(default=(), validate_default=True)
    status: PlanStatus = PlanStatus.CREATED
    replan_count: int = Field(default=0, ge=0)
    answer: str | None = None
    """A template over references, resolved at the end of the run."""

    __repr__ = briefly(
        lambda p: [
            p.plan_id, p.status.value, amount(len(p.steps), "step"),
            f"{sum(s.settled for s in p.steps)} settled", cut(p.summary),
        ]
    )  # fmt: skip
    _repr_html_ = shown_by("agentlab.views.page.records:plan_page")

    def __len__(self) -> int:
        return len(self.steps)

    def __contains__(self, step_id: object) -> bool:
        return step_id in self.listed.shape.place

    def step(self, step_id: str | int) -> TaskStep:
        """Return a step by id or index.

        Raises
        ------
        UnknownNameError
            There is none.
        """
        steps = self.listed
        place = steps.shape.place.get(step_id) if isinstance(step_id, str) else step_id
        if place is None or not 0 <= place < len(steps):
            raise UnknownNameError("step", str(step_id), [s.step_id for s in steps])
        return steps[place]

    @property
    def listed(self) -> Steps[TaskStep]:
        """The steps, with what is known of where they stand."""
        return self.steps  # type: ignore[return-value]  # declared as what it is to users

    @property
    def remaining(self) -> tuple[TaskStep, ...]:
        """The steps that are not settled."""
        return tuple(self.steps[i] for i in self.listed.standing.unsettled)

    @property
    def over(self) -> bool:
        """True when every step is settled."""
        return not self.listed.standing.unsettled

    @property
    def current_index(self) -> int:
        """Index of the first step that is not settled; the plan's length when all are."""
        first = self.listed.standing.unsettled.first()
        return len(self.steps) if first is None else first

    def count(self, *statuses: StepStatus) -> int:
        """Return how many steps have one of these statuses."""
        known = self.listed.standing.count
        return sum(known.get(status, 0) for status in statuses)

    def with_step(self, step_id: str, **changes: Any) -> TaskPlan:
        """Return the plan with fields of one step changed, whatever its status."""
        step = self.step(step_id)
        return self.put_step(step_id, step.replace(**changes))

    def put_step(self, step_id: str, changed: TaskStep) -> TaskPlan:
        """Return the plan with a step of our own making in the place of one (see ``put``)."""
        steps = self.listed
        return self.put(steps=steps.put(steps.shape.place[step_id], changed))

    def with_steps(self, steps: Iterable[TaskStep]) -> TaskPlan:
        """Return the plan with these steps; indices are numbered anew where they are off."""
        return self.put(steps=_numbered(steps))

    def without(self, step_id: str, *, cascade: bool = False) -> TaskPlan:
        """Return the plan without a step.

        Parameters
        ----------
        step_id : str
            The step to take out.
        cascade : bool
            Take out the steps that depend on it, too.

        Raises
        ------
        PlanEditError
            The step is settled or under way, or others depend on it and ``cascade`` is False.
        """
        gone = {self.editable(step_id).step_id}
        for step in self.steps:
            if gone & set(step.dependencies):
                if not cascade:
                    raise PlanEditError(
                        f"step {seen(step.step_id)} depends on {seen(step_id)}; "
                        "pass cascade=True to take out both"
                    )
                gone.add(self.editable(step.step_id).step_id)
        return self.with_steps(s for s in self.steps if s.step_id not in gone)

    def edit(self, step_id: str, /, **changes: Any) -> TaskPlan:
        """Return the plan with fields of a step that is not settled changed.

        What its parameters refer to is added to its dependencies.

        Raises
        ------
        PlanEditError
            The step is settled or under way, or the edited plan is not valid.
        """
        step = self.editable(step_id)
        if changes.get("step_id", step_id) != step_id:
            raise PlanEditError("a step keeps its id; insert a new step instead")
        try:
            changed = step.replace(**changes)
        except ConfigError as e:
            raise PlanEditError(f"step {seen(step_id)}: {e}") from e
        return self._checked(changed if s.step_id == step_id else s for s in self.steps)

    def insert(self, step: TaskStep, at: int | None = None) -> TaskPlan:
        """Return the plan with a step put in before index ``at`` (default: the end).

        Raises
        ------
        PlanEditError
            The id is taken or no slug, or the plan would not be valid.
        """
        at = len(self.steps) if at is None else at
        return self._checked((*self.steps[:at], step, *self.steps[at:]))

    def editable(self, step_id: str) -> TaskStep:
        """Return a step that may still be edited."""
        step = self.step(step_id)
        if step.status in SETTLED or step.status == StepStatus.RUNNING:
            raise PlanEditError(f"step {seen(step_id)} is {step.status} and cannot be edited")
        return step

    def _checked(self, steps: Iterable[TaskStep]) -> TaskPlan:
        """Order the steps; what the plan names already exists, here or in an earlier plan."""
        given = tuple(steps)
        ids = {s.step_id for s in given}
        try:
            known = {name for s in self.steps for name in (*s.dependencies, *_referred(s))}
            fixed = SETTLED | {StepStatus.RUNNING}
            implied = [s if s.status in fixed else _implied(s, ids) for s in given]
            return self.with_steps(ordered(implied, known))
        except PlanParseError as e:
            raise PlanEditError(f"the edited plan is not valid: {'; '.join(e.violations)}") from e
        except ReferenceError_ as e:
            raise PlanEditError(f"the edited plan is not valid: {e}") from e

    def signature(self) -> str:
        """Return what the remaining plan does, ids ignored: two plans alike have one signature."""
        remaining = self.remaining
        number = {s.step_id: f"#{i}" for i, s in enumerate(remaining)}  # no step id has a '#'

        def name(step: str) -> str:
            return number.get(step, step)

        return digest(
            [[s.action_type, s.target_resource, rename(s.parameters, name)] for s in remaining]
        )


def _referred(step: TaskStep) -> list[str]:
    return [r.step for r in references(step.parameters)]


def _implied(step: TaskStep, ids: Collection[str]) -> TaskStep:
    """Add to the dependencies what the parameters refer to."""
    extra = [i for i in _referred(step) if i in ids and i not in step.dependencies]
    if not extra:
        return step
    return step.replace(dependencies=(*step.dependencies, *dict.fromkeys(extra)))


def ordered(steps: Sequence[TaskStep], known: Collection[str] = ()) -> tuple[TaskStep, ...]:
    """Return the steps in a stable topological order, numbered.

    Parameters
    ----------
    steps : sequence of TaskStep
        In any order.
    known : collection of str
        Step ids with a result that references may name, beside the steps themselves.

    Raises
    ------
    PlanParseError
        Lists every violation: id no slug or twice, dangling dependency or reference, cycle.
    """
    position = {s.step_id: n for n, s in enumerate(steps)}
    violations = [text for n, s in enumerate(steps) for text in _violations(s, n, position, known)]
    if violations:
        raise PlanParseError(violations)
    before = ([position[d] for d in dict.fromkeys(s.dependencies) if d in position] for s in steps)
    sorter = TopologicalSorter(dict(enumerate(before)))
    with suppress(CycleError):  # what is in no cycle is ordered all the same
        sorter.prepare()
    order: list[int] = []
    ready: list[int] = []
    while sorter:
        for place in sorter.get_ready():
            heappush(ready, place)
        if not ready:
            break
        order.append(heappop(ready))
        sorter.done(order[-1])
    if left := sorted(steps[n].step_id for n in {*range(len(steps))} - {*order}):
        raise PlanParseError([f"cyclic dependency among {', '.join(left)}"])
    return tuple(_numbered(steps[place] for place in order))


def _violations(
    step: TaskStep, at: int, position: Mapping[str, int], known: Collection[str]
) -> list[str]:
    """Return what is wrong with a step at this place; of two of an id, the last has a position."""
    found = []
    if not STEP_ID.fullmatch(step.step_id):
        found.append(f"step id {seen(step.step_id)} is no slug ([A-Za-z_][A-Za-z0-9_-]*)")
    if position[step.step_id] != at:
        found.append(f"step id {seen(step.step_id)} occurs more than once")
    for other in step.dependencies:
        if other not in position and other not in known:
            found.append(f"step {seen(step.step_id)}: depends on unknown step {seen(other)}")
    try:
        for reference in references(step.parameters):
            if reference.step not in position and reference.step not in known:
                told = shortened(str(reference), 200)
                found.append(f"step {seen(step.step_id)}: {told} names no known step")
    except ReferenceError_ as e:
        found.append(f"step {seen(step.step_id)}: {e}")
    return found
