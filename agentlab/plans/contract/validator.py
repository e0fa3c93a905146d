"""``PlanValidator``: whether a contract keeps the rules; every violation is found, not the first.

``validate`` is about structure; ``validate_generated`` adds what a model, or any source that is not
trusted, may not claim. Neither says that anything was done, and neither lets anything run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from agentlab.base.documents import canonical
from agentlab.base.schemas import schema_problem
from agentlab.base.values import Document
from agentlab.errors import ConfigError, PlanValidationError, PlanViolation, seen, suggest
from agentlab.plans.contract.codec import field, json_problems
from agentlab.plans.contract.spec import (
    SCHEMA_VERSION,
    PlanCapability,
    PlanSpec,
    PlanStep,
    PlanStepStatus,
)
from agentlab.plans.graph import longest


class PlanValidator:
    """Holds specs against registered capabilities and limits.

    Parameters
    ----------
    capabilities : iterable of PlanCapability
        All that a plan may use.
    max_steps : int
        Greatest number of steps.
    max_depth : int
        Greatest number of steps on one path of dependencies; a step without any has depth 1.
    min_steps : int
        Least number of steps; 0 where having nothing to do is a plan.

    Attributes
    ----------
    capabilities : dict
        Execution target to capability.

    Raises
    ------
    ConfigError
        Two capabilities share a target, a schema is not self-contained, or a limit is no number
        of steps.
    """

    def __init__(
        self, capabilities: Iterable[PlanCapability], max_steps: int = 64, max_depth: int = 16,
        min_steps: int = 1,
    ) -> None:  # fmt: skip
        if not (0 <= min_steps <= max_steps and max_steps >= 1 <= max_depth):
            raise ConfigError(
                "expected limits 0 <= min_steps <= max_steps, 1 <= max_steps, 1 <= max_depth, got "
                f"{min_steps=}, {max_steps=}, {max_depth=}"
            )
        self.max_steps, self.max_depth, self.min_steps = max_steps, max_depth, min_steps
        self.capabilities: dict[str, PlanCapability] = {}
        self._schemas: dict[str, tuple[str, str]] = {}
        for capability in capabilities:
            if not isinstance(capability, PlanCapability):
                raise ConfigError(f"expected PlanCapability objects, got {capability!r:.80}")
            target = capability.execution_target
            problems = capability.problems()
            if target in self.capabilities:
                problems.append("two capabilities share this target")
            if problems:
                raise ConfigError(f"capability {seen(target)}: {'; '.join(problems)}")
            self.capabilities[target] = capability
            schemas = canonical(capability.input_schema), canonical(capability.output_schema)
            self._schemas[target] = schemas

    def validate(self, spec: PlanSpec) -> PlanSpec:
        """Return the spec when its structure keeps the rules.

        Raises
        ------
        PlanValidationError
            Lists every violation with the step and the field.
        """
        return _unless(list(self._violations(spec)), spec)

    def validate_generated(self, spec: PlanSpec) -> PlanSpec:
        """Return the spec when it also claims nothing that a model may not.

        Raises
        ------
        PlanValidationError
            Lists every violation with the step and the field.
        """
        claims = [claim for step in spec.steps for claim in _claims(step)]
        return _unless([*self._violations(spec), *claims], spec)

    def _violations(self, spec: PlanSpec) -> Iterator[PlanViolation]:
        if spec.schema_version != SCHEMA_VERSION:
            problem = f"expected {SCHEMA_VERSION}, got {spec.schema_version}"
            yield PlanViolation(None, "schemaVersion", problem)
            return  # of another version nothing else is known
        if spec.revision < 1:
            yield PlanViolation(None, "revision", f"expected at least 1, got {spec.revision}")
        if not spec.objective.strip():
            yield PlanViolation(None, "objective", "is blank")
        seen: set[str] = set()
        for index, step in enumerate(spec.steps):
            name = step.step_id if step.step_id.strip() else f"steps[{index}]"
            for where, problem in self._wrong(step):
                yield PlanViolation(name, where, problem)
            if step.step_id in seen:
                yield PlanViolation(name, "stepId", "is given twice")
            seen.add(step.step_id)
        count = len(spec.steps)
        if not self.min_steps <= count <= self.max_steps:
            expected = f"expected {self.min_steps} to {self.max_steps} steps, got {count}"
            yield PlanViolation(None, "steps", expected)
        if count <= self.max_steps:  # the graph of a plan without end is not worth the time
            yield from self._graph(spec)

    def _wrong(self, step: PlanStep) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with a step by itself: field, problem."""
        for name, text in (
            ("stepId", step.step_id), ("objective", step.objective),
            ("completionCriteria", step.completion_criteria),
        ):  # fmt: skip
            if not text.strip():
                yield name, "is blank"
        target = step.execution_target
        known = self._schemas.get(target)
        if known is None:
            near = suggest(target, self.capabilities)
            yield "executionTarget", f"unknown capability {seen(target)}; {near}"
        schemas = (("inputSchema", step.input_schema), ("outputSchema", step.output_schema))
        for i, (name, schema) in enumerate(schemas):
            if problem := _differs(schema, None if known is None else known[i], target):
                yield name, problem
        if step.result is not None:
            for path, problem in json_problems(step.result, ("result",)):
                yield field(path), problem

    def _graph(self, spec: PlanSpec) -> Iterator[PlanViolation]:
        graph: dict[str, set[str]] = {s.step_id: set() for s in spec.steps}
        for step in spec.steps:
            for other in step.dependencies:
                if other in graph:
                    graph[step.step_id].add(other)
                    continue
                problem = f"unknown step {seen(other)}; {suggest(other, graph)}"
                yield PlanViolation(step.step_id, "dependencies", problem)
        cycles = list(_cycles(graph))
        for cycle in cycles:
            problem = f"form a cycle: {' needs '.join(cycle)}"
            yield PlanViolation(cycle[0], "dependencies", problem)
        if cycles:
            return
        order = TopologicalSorter(graph).static_order()
        path, _ = longest((step, graph[step], 1.0) for step in order)
        if len(path) > self.max_depth:
            problem = f"depth {len(path)}, at most {self.max_depth}: {' < '.join(path)}"
            yield PlanViolation(path[-1], "dependencies", problem)


def _unless(violations: list[PlanViolation], spec: PlanSpec) -> PlanSpec:
    if violations:
        raise PlanValidationError(violations)
    return spec


def _claims(step: PlanStep) -> Iterator[PlanViolation]:
    if step.status is not PlanStepStatus.PENDING:
        problem = f"a planner writes PENDING only, got {step.status}"
        yield PlanViolation(step.step_id, "status", problem)
    for name in ("result", "error"):
        if getattr(step, name) is not None:
            yield PlanViolation(step.step_id, name, "must be null: nothing was executed yet")


def _differs(schema: Document, known: str | None, target: str) -> str | None:
    """Return how a schema fails to be the capability's; where there is none, to be a schema."""
    try:
        if known is not None and canonical(schema) == known:
            return None
    except (TypeError, ValueError, RecursionError):
        pass  # no JSON: told below
    problem = schema_problem(schema)
    return problem or (None if known is None else f"is not that of {seen(target)}")


def _cycles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield cycles that share no step, until none is left: at least one of every component."""
    rest = dict(graph)
    while True:
        inner = {step: [d for d in found if d in rest] for step, found in rest.items()}
        try:
            TopologicalSorter(inner).prepare()
            return
        except CycleError as e:
            cycle = list(reversed(e.args[1]))  # each now needs the next
            yield cycle
            for step in cycle[1:]:
                del rest[step]
