"""Which ready steps start now: when workers or resources are short, the order decides how long.

A step's priority is the longest way that is left behind it. Taking the longest first is a good
rule and no guarantee, so a search looks ahead: over the orders in which the remaining steps can be
put into the earliest gap that fits them (``starts``), cut off where the longest way or the load of
a resource shows that nothing better can follow, and after so many places tried. For small plans it
is exact; it may leave a worker idle where waiting is quicker. Durations are those expected: what
the world says of a call on the agent's belief, or what the tool declares.

References
----------
Kolisch & Hartmann (1999), Heuristic algorithms for the resource-constrained project scheduling
problem: the serial schedule generation scheme, active schedules.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call
from agentlab.lab.bench import Bench
from agentlab.plans import graph
from agentlab.plans.references import resolve
from agentlab.plans.task_plan import StepStatus, TaskStep
from agentlab.state.state import State

SMALL, PLACES, FEWER = 8, 3000, 300
"""Places that the search for a schedule tries before it takes the best found: with so many tasks
at most, and with more, where it could prove nothing anyway."""
AHEAD = 32
"""Steps that a schedule looks at, those first that may start first: a plan of N steps asks for N
schedules, and each must cost no more for the steps that are far away."""
WORKER = ""
"""The workers, as a resource: every step needs one."""
EPSILON = 1e-9


class Task(NamedTuple):
    """A step to be placed; times are seconds from now."""

    seconds: float
    needs: tuple[str, ...]
    """A resource as often as units of it are needed."""
    after: tuple[int, ...]
    """Places of the tasks that must be over, all earlier in the list."""
    release: float
    """Earliest start."""


class Busy(NamedTuple):
    """Resources that are held until a time, seconds from now."""

    until: float
    holds: tuple[str, ...]


def to_start(state: State, bench: Bench) -> tuple[TaskStep, ...]:
    """Return the steps to submit now, in order: as many as there are free workers, or fewer.

    With one worker that is the first ready step of the plan; where that waits to be tried again,
    so does the worker.
    """
    plan = state.task_plan
    free = bench.workers - len(state.under_way)
    if plan is None or free < 1:
        return ()
    if bench.workers == 1:
        first = next(startable(state), None)
        return () if first is None or waits(state, first) else (first,)
    ahead = max(AHEAD, 4 * bench.workers)
    near = tuple(islice(startable(state), ahead))
    may = tuple(s for s in near if not waits(state, s))
    if not may or (len(near) == 1 and not state.under_way):
        return may
    steps, tasks = _tasks(state, bench, ahead)
    busy = tuple(
        Busy(max(0.0, round(u.finishes - state.now, 9)), (WORKER, *u.holds))
        for u in state.under_way
    )
    there = capacities(state.belief, bench)
    amounts = Counter(r for t in (*(t.needs for t in tasks), *(b.holds for b in busy)) for r in t)
    limits = {r: there.get(r, 1) for r in amounts} | {WORKER: bench.workers}
    if all(n <= limits[r] for r, n in amounts.items()):
        return may  # there is enough of everything for all that is left
    planned = starts(tasks, tuple(sorted(limits.items())), busy)
    now = {s.step_id for s, at in zip(steps, planned, strict=True) if at <= EPSILON}
    tails = dict(zip((s.step_id for s in steps), _tails(tasks), strict=True))
    chosen = sorted((s for s in may if s.step_id in now), key=lambda s: -tails[s.step_id])
    return tuple(chosen[:free])


def startable(state: State) -> Iterator[TaskStep]:
    """Yield the pending steps whose dependencies are met and that wait for nobody's approval."""
    if state.task_plan is None:
        return
    held = {p.call_id for p in state.held}
    for step in graph.starting(state.task_plan, state.results):
        if step.step_id not in held:
            yield step


def waits(state: State, step: TaskStep) -> bool:
    """Say whether it is not yet time for a step to be tried again."""
    return bool(state.not_before.get(step.step_id, 0.0) > state.now)


def capacities(world: Document, bench: Bench) -> Mapping[str, int]:
    """Return how many there are of the resources of which there is not just one."""
    return {} if bench.environment is None else bench.environment.capacities(world)


def lacking(holds: Collection[str], held: Iterable[str], there: Mapping[str, int]) -> str | None:
    """Return a resource of which too little is left beside what is held, or None."""
    if not holds:
        return None
    used = Counter(held)
    for name, needed in Counter(holds).items():
        if needed + used[name] > there.get(name, 1):
            return name
    return None


def _tasks(state: State, bench: Bench, ahead: int) -> tuple[list[TaskStep], tuple[Task, ...]]:
    """Return the next pending steps that may still run, in plan order, and each as a task."""
    steps, tasks = _coming(state, ahead), list[Task]()
    ends = {u.step_id: max(0.0, round(u.finishes - state.now, 9)) for u in state.under_way}
    place = {s.step_id: i for i, s in enumerate(steps)}
    for step in steps:
        begun = expected(state, bench, step)
        waiting = max(0.0, round(state.not_before.get(step.step_id, 0.0) - state.now, 9))
        release = max([waiting, *(ends[d] for d in step.dependencies if d in ends)])
        after = tuple(place[d] for d in step.dependencies if d in place)
        tasks.append(Task(begun.seconds, (WORKER, *begun.holds), after, release))
    return steps, tuple(tasks)


def _coming(state: State, ahead: int) -> list[TaskStep]:
    """Return up to so many pending steps: those that may start, then those that wait for them."""
    plan = state.task_plan
    assert plan is not None
    shape, standing = plan.listed.shape, plan.listed.standing
    chosen = [s.step_index for s in islice(startable(state), ahead)]
    running = [shape.place[u.step_id] for u in state.under_way if u.step_id in shape.place]
    missing: dict[int, int] = {}
    over = deque([*running, *chosen])
    while over and len(chosen) < ahead:
        for k in shape.dependents[over.popleft()]:
            missing[k] = missing.get(k, standing.missing[k]) - 1
            known = all(d in state.results for d in shape.outside.get(k, ()))
            if not missing[k] and known and plan.steps[k].status is StepStatus.PENDING:
                over.append(k)
                chosen.append(k)
    return [plan.steps[k] for k in sorted(chosen)]  # plan order is topological


def expected(state: State, bench: Bench, step: TaskStep) -> Begun:
    """Return how long a step is expected to take and what it will hold, as far as can be known."""
    tool = bench.tools.get(step.target_resource)
    if tool is None:
        return Begun(1.0)
    if bench.environment is not None and tool.service == "environment":
        try:
            arguments = resolve(step.parameters, state.results)
            begun = bench.environment.begin(state.belief, Call(tool.name, arguments))
        except Exception:  # not known yet, or the belief was spoilt by a silent fault
            begun = None
        if isinstance(begun, Begun):
            return begun
    return Begun(tool.seconds, tool.holds)


# ---- the search for a schedule ---------------------------------------------------------------


@lru_cache(maxsize=8192)
def starts(
    tasks: tuple[Task, ...], limits: tuple[tuple[str, int], ...], busy: tuple[Busy, ...] = (),
    places: int | None = None,
) -> tuple[float, ...]:  # fmt: skip
    """Return when each task starts in the shortest schedule found.

    Parameters
    ----------
    tasks : tuple of Task
        In a topological order.
    limits : tuple of (resource, units)
        Of resources that are not named there is one.
    busy : tuple of Busy
        What is held already.
    places : int, optional
        Bound on the search; with 7 tasks the default is practically always enough to be exact.

    Examples
    --------
    Two on one saw, the first of which the third waits for:

    >>> saw = ("saw",)
    >>> starts((Task(2, saw, (), 0), Task(1, saw, (), 0), Task(9, (), (0,), 0)), ())
    (0.0, 2.0, 2.0)
    """
    if places is None:
        places = PLACES if len(tasks) <= SMALL else FEWER
    return _Search(tasks, dict(limits), busy, places).found()


class _Search:
    """Branch and bound over the orders in which tasks are placed, the longest way first."""

    def __init__(
        self, tasks: Sequence[Task], limits: Mapping[str, int], busy: Sequence[Busy], places: int
    ) -> None:
        self.tasks, self.limits, self.left = tasks, limits, places
        self.tails = _tails(tasks)
        self.taken = [(0.0, b.until, Counter(b.holds)) for b in busy]
        self.needs = [Counter(t.needs) for t in tasks]
        self.order = sorted(range(len(tasks)), key=lambda i: -self.tails[i])
        self.best, self.length = list[float](), float("inf")
        self.bound = self._bound()

    def found(self) -> tuple[float, ...]:
        at: dict[int, float] = {}
        while len(at) < len(self.tasks):  # the rule by itself, for a first bound
            i = next(i for i in self.order if i not in at and self._free(i, at))
            self._put(i, at)
        self._keep(at)
        del self.taken[-len(self.tasks) :]
        self._deeper({}, 0.0)
        return tuple(self.best)

    def _bound(self) -> float:
        """Return a length that no schedule is under: the longest way, the load of a resource."""
        ways = [t.release + tail for t, tail in zip(self.tasks, self.tails, strict=True)]
        load: Counter[str] = Counter()
        for need, task in zip(self.needs, self.tasks, strict=True):
            for name, n in need.items():
                load[name] += n * task.seconds  # type: ignore[assignment]
        for _, until, held in self.taken:
            for name, n in held.items():
                load[name] += n * until  # type: ignore[assignment]
        return max([*ways, *(s / self.limits.get(r, 1) for r, s in load.items())], default=0.0)

    def _deeper(self, at: dict[int, float], last: float) -> None:
        """Place one more task; schedules are reached once, by the order of their starts."""
        if len(at) == len(self.tasks):
            self._keep(at)
            return
        for i in self.order:
            if self.left <= 0 or self.length <= self.bound + EPSILON:
                return
            if i in at or not self._free(i, at):
                continue
            self.left -= 1
            start = self._put(i, at)
            if start >= last - EPSILON and self._promising(at):
                self._deeper(at, start)
            del at[i]
            self.taken.pop()

    def _free(self, i: int, at: Mapping[int, float]) -> bool:
        return all(k in at for k in self.tasks[i].after)

    def _put(self, i: int, at: dict[int, float]) -> float:
        """Place a task in the earliest gap that fits it."""
        task = self.tasks[i]
        earliest = max([task.release, *(at[k] + self.tasks[k].seconds for k in task.after)])
        ends = sorted({end for _, end, _ in self.taken if end > earliest + EPSILON})
        start = next(t for t in (earliest, *ends) if self._fits(i, t))
        at[i] = start
        self.taken.append((start, start + task.seconds, self.needs[i]))
        return start

    def _fits(self, i: int, start: float) -> bool:
        end = start + self.tasks[i].seconds
        meanwhile = [
            (a, b, held) for a, b, held in self.taken if a < end - EPSILON and b > start + EPSILON
        ]
        moments = [start, *(a for a, _, _ in meanwhile if a > start)]
        for name, needed in self.needs[i].items():
            room = self.limits.get(name, 1) - needed
            for moment in moments:
                used = sum(h[name] for a, b, h in meanwhile if a <= moment + EPSILON < b)
                if used > room and used:  # what needs more than there is will be refused
                    return False
        return True

    def _promising(self, at: Mapping[int, float]) -> bool:
        early: dict[int, float] = {}
        for i, task in enumerate(self.tasks):
            if i in at:
                early[i] = at[i]
                continue
            ready = [early[k] + self.tasks[k].seconds for k in task.after]
            early[i] = max([task.release, *ready])
        return max(e + self.tails[i] for i, e in early.items()) < self.length - EPSILON

    def _keep(self, at: Mapping[int, float]) -> None:
        length = max((at[i] + t.seconds for i, t in enumerate(self.tasks)), default=0.0)
        if length < self.length - EPSILON:
            self.length, self.best = length, [float(at[i]) for i in range(len(self.tasks))]


def _tails(tasks: Sequence[Task]) -> list[float]:
    """Return for each task the longest way from its start to the end of the plan."""
    tails = [0.0] * len(tasks)
    for i in range(len(tasks) - 1, -1, -1):  # what comes after stands later in the list
        tails[i] += tasks[i].seconds
        for k in tasks[i].after:
            tails[k] = max(tails[k], tails[i])
    return tails
