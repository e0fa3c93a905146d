"""What starts first: schedules against an exact enumeration that is built another way."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from agentlab.base.randomness import generator
from agentlab.lab.scheduling import WORKER, Busy, Task, lacking, starts

LIMITS = (("", 3), ("lathe", 2), ("oven", 1), ("saw", 1))


def length(tasks, planned):
    return max((at + t.seconds for at, t in zip(planned, tasks, strict=True)), default=0)


@st.composite
def problems(draw, most=7):
    tasks = []
    for i in range(draw(st.integers(0, most))):
        after = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        needs = draw(st.lists(st.sampled_from(["lathe", "oven", "saw"]), max_size=2))
        needs = [n for n in needs if n == "lathe" or needs.count(n) == 1]
        release = draw(st.sampled_from([0, 0, 0, 2]))
        seconds = draw(st.integers(1, 6))
        tasks.append(Task(seconds, (WORKER, *needs), tuple(sorted(after)), release))
    return tuple(tasks)


busy = st.lists(
    st.builds(Busy, st.integers(0, 4), st.sampled_from([(WORKER,), (WORKER, "saw")])), max_size=1
).map(tuple)


@given(problems(12), busy)
@settings(max_examples=200, deadline=None)
def test_a_schedule_keeps_order_release_and_capacity(tasks, held):
    planned = starts(tasks, LIMITS, held)
    assert len(planned) == len(tasks)
    limits = dict(LIMITS)
    for i, (at, task) in enumerate(zip(planned, tasks, strict=True)):
        assert at >= task.release
        assert all(at >= planned[k] + tasks[k].seconds for k in task.after)
        together = [
            k for k, t in enumerate(tasks) if planned[k] <= at < planned[k] + t.seconds
        ]  # fmt: skip
        assert i in together
        others = [r for b in held if b.until > at for r in b.holds]
        names = others + [r for k in together for r in tasks[k].needs]
        assert all(names.count(r) <= limits[r] for r in names)


@given(problems())
@settings(max_examples=80, deadline=None)
def test_up_to_seven_tasks_it_is_the_optimum(optimum, tasks):
    tasks = tuple(t._replace(release=0) for t in tasks)
    assert length(tasks, starts(tasks, LIMITS)) == optimum(tasks, LIMITS)


def test_waiting_can_be_quicker_than_starting_what_is_ready(optimum):
    """The saw is worth keeping free for a second: what is behind it takes longest."""
    short = Task(5, ("saw",), (), 0)
    first, then = Task(1, (), (), 0), Task(1, ("saw",), (1,), 0)
    last = Task(9, (), (2,), 0)
    tasks = (short, first, then, last)
    planned = starts(tasks, ())
    assert planned == (2, 0, 1, 2)
    assert length(tasks, planned) == optimum(tasks, ()) == 11


def test_many_tasks_take_bounded_effort_and_stay_near_the_bound():
    rng = generator("many")
    for _ in range(5):
        tasks = tuple(
            Task(rng.randint(1, 6), (WORKER, rng.choice(["saw", "lathe"])), (), 0)
            for _ in range(30)
        )
        load = {r: sum(t.seconds for t in tasks if r in t.needs) for r in ("saw", "lathe", WORKER)}
        bound = max(load["saw"], load["lathe"] / 2, load[WORKER] / 3)
        assert length(tasks, starts(tasks, LIMITS)) <= 1.25 * bound


def test_what_is_lacking_is_named():
    assert lacking(["saw"], [], {}) is None
    assert lacking(["saw"], ["saw"], {}) == "saw"
    assert lacking(["lathe", "lathe"], [], {"lathe": 2}) is None
    assert lacking(["lathe", "lathe"], ["lathe"], {"lathe": 2}) == "lathe"
    assert lacking(["oven", "saw"], ["saw"], {"oven": 3}) == "saw"
