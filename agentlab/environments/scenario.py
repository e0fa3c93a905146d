"""Scenarios: one task with its world, its goal and what may go wrong, and suites of them.

A scenario is data. ``world`` is what the agent is told at the start (its first belief); ``hidden``
is a merge patch that turns it into the truth. ``reference`` is a plan known to reach the goal when
nothing fails. ``faults`` says what may go wrong; a study sets its rate.

A suite is a JSONL file, a scenario a line, checked against ``datasets/scenario.schema.json``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field

from agentlab.base.arguments import takes
from agentlab.base.shown import briefly, cut, shown_by
from agentlab.base.values import Document, Value
from agentlab.environments.fault_plan import FaultPlan


class AnswerGoal(Value):
    """The answer that is asked for, and where it comes from."""

    world: str
    """JMESPath into the final world: the right value."""
    tools: tuple[str, ...]
    """Tools whose result shows the value."""
    result: str
    """JMESPath into that result."""


class Goal(Value):
    """What must hold in the end."""

    conditions: Document = {}
    """What the environment's checker reads."""
    answer: AnswerGoal | None = None
    deadline: float | None = Field(default=None, gt=0)
    """Simulated seconds; later is too late. None: no limit."""


class ReferenceStep(Value):
    """One call of a reference plan; arguments may hold ``${step.path}``."""

    step_id: str
    tool: str
    arguments: Document = {}
    dependencies: tuple[str, ...] = ()

    @classmethod
    def calling(
        cls, step_id: str, tool: str, arguments: Document, after: Iterable[str] = ()
    ) -> Self:
        """Return the step that calls a tool, after the steps of these ids."""
        return cls(step_id=step_id, tool=tool, arguments=arguments, dependencies=tuple(after))


@takes(dependencies=list[str] | tuple[str, ...])
def tool_step(
    step_id: str, tool: str, arguments: dict[str, Any], dependencies: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the reply form of a step that calls a tool."""
    return {
        "stepId": step_id,
        "name": step_id,
        "actionType": "call_tool",
        "targetResource": tool,
        "parameters": arguments,
        "dependencies": list(dependencies),
    }


class ReferencePlan(Value):
    """A plan known to reach the goal when nothing fails."""

    steps: tuple[ReferenceStep, ...] = ()
    answer: str | None = None
    """Template over references."""


class Scenario(Value):
    """One task with its world, its goal and its faults."""

    id: str = Field(min_length=1)
    environment: str
    """Name of the environment whose functions apply."""
    task: str
    """What the user asks for."""
    world: Document
    """What the agent is told at the start."""
    hidden: Document = {}
    """Merge patch from ``world`` to the truth."""
    goal: Goal
    reference: ReferencePlan | None = None
    difficulty: str = "medium"
    cluster: str | None = None
    """Tasks that share a template, for clustered statistics; None: the task itself."""
    faults: FaultPlan = FaultPlan()

    __repr__ = briefly(lambda s: [s.id, s.environment, s.difficulty, cut(s.task)])
    _repr_html_ = shown_by("agentlab.views.page.records:scenario_page")
