"""The dependency graph of a plan: ready set, levels, critical path, and the diff of two plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
    return longest((s.step_id, s.dependencies, seconds(s)) for s in plan.steps)


def longest(
    steps: Iterable[tuple[str, Iterable[str], float]],
) -> tuple[tuple[str, ...], float]:
    """Return the longest path, first step first, and its length.

    Parameters
    ----------
    steps : iterable of (id, ids of its dependencies, length)
        In a topological order.
    """
    best: dict[str | None, tuple[float, str | None]] = {None: (0.0, None)}
    """Step to the length of the longest way to it, and whence that comes."""

    def far(step: str | None) -> float:
        return best[step][0]

    for step, needs, length in steps:
        last = max((d for d in needs if d in best), key=far, default=None)
        best[step] = (far(last) + length, last)
    end = at = max(list(best)[1:], key=far, default=None)
    path: list[str] = []
    while at is not None:
        path.append(at)
        at = best[at][1]
    return tuple(reversed(path)), far(end)


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
