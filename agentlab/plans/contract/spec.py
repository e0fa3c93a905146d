"""``PlanSpec``: a plan as a contract, data that is checked and executes nothing.

Two steps without a path between them may run in parallel; nothing here starts them. Objectives and
completion criteria are text for people: they are no evidence and grant no permission. Whether a
spec keeps the rules is ``PlanValidator``'s to say, how it is written ``PlanCodec``'s.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from agentlab.base.documents import Json, canonical
from agentlab.base.schemas import schema_problem
from agentlab.base.values import Document, Value
from agentlab.errors import ConfigError, seen
from agentlab.plans.graph import PlanDiff, compared

if TYPE_CHECKING:
    from agentlab.tools.tool import Tool


SCHEMA_VERSION = 1

LIFECYCLE = ("status", "result", "error")
"""Fields of a step that tell how it went, and are the executor's."""


class PlanStepStatus(StrEnum):
    """Where a step of a contract stands; a planner only ever writes PENDING."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class PlanStep(Value):
    """One step of a contract."""

    step_id: str
    objective: str
    dependencies: tuple[str, ...] = ()
    """Ids of the steps that come before, which may stand anywhere in the list."""
    execution_target: str
    """``tool:<name>`` or ``agent:<name>``, a registered capability."""
    input_schema: Document
    output_schema: Document
    completion_criteria: str
    status: PlanStepStatus = PlanStepStatus.PENDING
    result: Json = None
    error: str | None = None


class PlanSpec(Value):
    """A plan as a contract."""

    schema_version: int = SCHEMA_VERSION
    revision: int
    """Positive; the application counts it up."""
    objective: str
    steps: tuple[PlanStep, ...]


class Described(Protocol):
    """An agent, as far as a capability tells of it."""

    @property
    def id(self) -> str:
        """What it is called by."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def description(self) -> str:
        """What it can do."""


class PlanCapability(Value):
    """What a plan may use: its name, and what goes in and comes out. It holds no callback."""

    execution_target: str
    description: str = ""
    input_schema: Document
    output_schema: Document

    @classmethod
    def tool(cls, tool: Tool, output_schema: dict[str, Any]) -> PlanCapability:
        """Describe a tool; name, description and input schema are its own.

        Raises
        ------
        ConfigError
            A schema is not self-contained, or the name is blank.
        """
        return _capability("tool", tool.name, tool.description, tool.parameters, output_schema)

    @classmethod
    def agent(
        cls, agent: Described, input_schema: dict[str, Any],
        output_schema: dict[str, Any],
    ) -> PlanCapability:  # fmt: skip
        """Describe an agent by its id and description.

        Raises
        ------
        ConfigError
            A schema is not self-contained, or the id is blank.
        """
        told = agent.description or agent.name
        return _capability("agent", agent.id, told, input_schema, output_schema)

    def problems(self) -> list[str]:
        """Return what keeps it from being used."""
        kind, _, name = self.execution_target.partition(":")
        found = []
        if kind not in ("tool", "agent") or not name.strip():
            found.append("expected the target 'tool:<name>' or 'agent:<name>'")
        for what, schema in (("input", self.input_schema), ("output", self.output_schema)):
            problem = schema_problem(schema)
            found += [f"{what} schema: {problem}"] if problem else []
        return found


def _capability(kind: str, name: str, told: str, *schemas: dict[str, Any]) -> PlanCapability:
    target = f"{kind}:{name}"
    made = PlanCapability(
        execution_target=target, description=told, input_schema=schemas[0],
        output_schema=schemas[1],
    )  # fmt: skip
    if problems := made.problems():
        raise ConfigError(f"capability {seen(target)}: {'; '.join(problems)}")
    return made


def revision_diff(old: PlanSpec, new: PlanSpec) -> PlanDiff:
    """Compare two revisions by step id; how steps went (status, result, error) does not count.

    Examples
    --------
    >>> step = PlanStep(step_id="a", objective="Do.", execution_target="tool:t", input_schema={},
    ...                 output_schema={}, completion_criteria="Done.")
    >>> old = PlanSpec(revision=1, objective="All.", steps=(step,))
    >>> new = old.replace(revision=2, steps=(step, step.replace(step_id="b")))
    >>> revision_diff(old, new)
    PlanDiff(kept=('a',), added=('b',), removed=(), changed=())
    """
    return compared(_contents(old), _contents(new))


def _contents(spec: PlanSpec) -> dict[str, object]:
    kept = {
        s.step_id: {name: value for name, value in s if name not in LIFECYCLE} for s in spec.steps
    }
    return {
        name: canonical({**step, "dependencies": sorted(set(step["dependencies"]))})
        for name, step in kept.items()
    }
