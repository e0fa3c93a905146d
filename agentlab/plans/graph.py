"""The dependency graph of a plan: ready set, levels, critical path, and the diff of two plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep


def ready(plan: TaskPlan, completed: Collection[str] = ()) -> tuple[TaskStep, ...]:
    """Return the pending steps whose dependencies are all completed, in plan order.

    Parameters
    ----------
    plan : TaskPlan
    completed : collection of str
        Ids completed in earlier plans, which count as well.
    """
    done = {s.step_id for s in plan.steps if s.status is StepStatus.COMPLETED}
    return tuple(
        s
        for s in plan.steps
        if s.status is StepStatus.PENDING
        and all(d in done or d in completed for d in s.dependencies)
    )


def unmet(plan: TaskPlan, step: TaskStep, completed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the dependencies of a step that can no longer complete, each with its status."""
    status = {s.step_id: s.status for s in plan.steps}
    open_ = {StepStatus.PENDING, StepStatus.RUNNING, StepStatus.COMPLETED}
    return tuple(
        f"{d} ({status.get(d, 'never ran')})"
        for d in step.dependencies
        if status.get(d) not in open_ and d not in completed
    )


def levels(plan: TaskPlan) -> tuple[tuple[str, ...], ...]:
    """Return the step ids by level: a step's level is the longest way to it, from 0."""
    depth: dict[str, int] = {}
    for step in plan.steps:  # plan order is topological
        depth[step.step_id] = max(
            (depth[d] + 1 for d in step.dependencies if d in depth), default=0
        )
    count = max(depth.values(), default=-1) + 1
    return tuple(tuple(i for i, d in depth.items() if d == level) for level in range(count))


def edges(plan: TaskPlan) -> list[tuple[str, str]]:
    """Return the dependencies within the plan that do not follow from others (before, after).

    This is the transitive reduction of the dependency graph, what a drawing shows.
    """
    above: dict[str, set[str]] = {}
    found = []
    for step in plan.steps:  # plan order is topological
        direct = [d for d in step.dependencies if d in above]
        implied = set().union(*(above[d] for d in direct))
        found += [(d, step.step_id) for d in direct if d not in implied]
        above[step.step_id] = implied.union(direct)
    return found


def critical_path(
    plan: TaskPlan, seconds: Callable[[TaskStep], float] = lambda step: 1.0
) -> tuple[tuple[str, ...], float]:
    """Return the longest chain of dependent steps and its length in seconds.

    Parameters
    ----------
    plan : TaskPlan
    seconds : callable
        Duration of a step; default 1 each.
    """
    best: dict[str, tuple[float, tuple[str, ...]]] = {}
    for step in plan.steps:
        before = max((best[d] for d in step.dependencies if d in best), default=(0.0, ()))
        best[step.step_id] = (before[0] + seconds(step), (*before[1], step.step_id))
    length, path = max(best.values(), key=lambda item: item[0], default=(0.0, ()))
    return path, length


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What changed between two plans, by step id."""

    kept: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def diff(old: TaskPlan, new: TaskPlan) -> PlanDiff:
    """Compare two plans: a step is changed when what it does or depends on differs."""
    return compared(
        {s.step_id: _content(s) for s in old.steps}, {s.step_id: _content(s) for s in new.steps}
    )


def compared(before: Mapping[str, object], after: Mapping[str, object]) -> PlanDiff:
    """Compare what steps are, by step id."""
    return PlanDiff(
        kept=tuple(i for i in after if i in before and before[i] == after[i]),
        added=tuple(i for i in after if i not in before),
        removed=tuple(i for i in before if i not in after),
        changed=tuple(i for i in after if i in before and before[i] != after[i]),
    )


def _content(step: TaskStep) -> tuple[object, ...]:
    return (
        step.name, step.description, step.action_type, step.target_resource, step.parameters,
        frozenset(step.dependencies), step.importance, step.skippable, step.expectation,
        step.enforced,
    )  # fmt: skip
