"""The dependency graph of a plan: ready set, levels, critical path, and the diff of two plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from agentlab.plans.task_plan import SETTLED, StepStatus, TaskPlan, TaskStep


def starting(plan: TaskPlan, completed: Collection[str] = ()) -> Iterator[TaskStep]:
    """Yield the steps of ``ready``, looking no further than is asked for."""
    outside = plan.listed.shape.outside
    for place in plan.listed.standing.startable:
        if all(d in completed for d in outside.get(place, ())):
            yield plan.steps[place]


def ready(plan: TaskPlan, completed: Collection[str] = ()) -> tuple[TaskStep, ...]:
    """Return the pending steps whose dependencies are all completed, in plan order.

    Parameters
    ----------
    plan : TaskPlan
    completed : collection of str
        Ids completed in earlier plans, which count as well. Of the plan's own steps their status
        counts.
    """
    return tuple(starting(plan, completed))


def unmet(plan: TaskPlan, step: TaskStep, completed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the dependencies of a step that can no longer complete, each with its status."""
    place, found = plan.listed.shape.place, []
    for name in step.dependencies:
        own = plan.steps[place[name]].status if name in place else None
        if own in SETTLED and own is not StepStatus.COMPLETED:
            found.append(f"{name} ({own})")
        elif own is None and name not in completed:
            found.append(f"{name} (never ran)")
    return tuple(found)


def never_starting(plan: TaskPlan, completed: Collection[str] = ()) -> Iterator[TaskStep]:
    """Yield the pending steps with a dependency that can no longer complete."""
    for place in plan.listed.standing.lost:
        if unmet(plan, plan.steps[place], completed):
            yield plan.steps[place]


def levels(plan: TaskPlan) -> tuple[tuple[str, ...], ...]:
    """Return the step ids by level: a step's level is the longest way to it, from 0."""
    return tuple(tuple(plan.steps[i].step_id for i in p) for p in plan.listed.shape.phases)


def edges(plan: TaskPlan) -> list[tuple[str, str]]:
    """Return the dependencies within the plan that do not follow from others (before, after).

    This is the transitive reduction of the dependency graph, what a drawing shows. It costs a few
    operations a step and a dependency, on integers that hold a bit for each step before; one is
    dropped where no later step depends on its step.
    """
    last = {d: step.step_id for step in plan.steps for d in step.dependencies}
    above: dict[str, int] = {}  # id to the steps before it
    bits: dict[str, int] = {}
    found = []
    for place, step in enumerate(plan.steps):  # plan order is topological
        direct = [d for d in dict.fromkeys(step.dependencies) if d in above]
        implied = 0
        for d in direct:
            implied |= above[d]
        found += [(d, step.step_id) for d in direct if not implied & bits[d]]
        for d in direct:
            implied |= bits[d]
            if last[d] == step.step_id:
                del above[d], bits[d]
        if step.step_id in last:
            above[step.step_id], bits[step.step_id] = implied, 1 << place
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
    best: dict[str, tuple[float, str | None]] = {}  # length of the longest way, and whence it comes
    for step in plan.steps:
        before = max(
            ((best[d][0], d) for d in step.dependencies if d in best),
            key=lambda item: item[0], default=(0.0, None),
        )  # fmt: skip
        best[step.step_id] = (before[0] + seconds(step), before[1])
    length, at = max(((way, i) for i, (way, _) in best.items()), key=lambda item: item[0],
                     default=(0.0, None))  # fmt: skip
    path: list[str] = []
    while at is not None:
        path.append(at)
        at = best[at][1]
    return tuple(reversed(path)), length


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
