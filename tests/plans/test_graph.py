"""The dependency graph of a plan against networkx."""

from __future__ import annotations

import tracemalloc

import networkx as nx
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.plans import graph
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep

fast = settings(deadline=None, max_examples=60)
STATUS = list(StepStatus)


@st.composite
def plans(draw, most=8):
    """Plans in topological order, with any statuses and some dependencies outside the plan."""
    n = draw(st.integers(0, most))
    steps = []
    for i in range(n):
        inside = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        outside = draw(st.sets(st.sampled_from(["old", "older"]), max_size=1))
        steps.append(
            TaskStep(
                step_index=i,
                step_id=f"s{i}",
                dependencies=tuple(sorted({f"s{d}" for d in inside} | outside)),
                status=draw(st.sampled_from(STATUS)),
            )
        )
    return TaskPlan(steps=tuple(steps))


def digraph(plan: TaskPlan) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_nodes_from(s.step_id for s in plan.steps)
    for step in plan.steps:
        made.add_edges_from((d, step.step_id) for d in step.dependencies if d in made)
    return made


@given(plans())
@fast
def test_levels_are_the_topological_generations(plan):
    expected = [sorted(g) for g in nx.topological_generations(digraph(plan))]
    assert [sorted(level) for level in graph.levels(plan)] == expected


@given(plans())
@fast
def test_edges_are_the_transitive_reduction(plan):
    assert sorted(graph.edges(plan)) == sorted(nx.transitive_reduction(digraph(plan)).edges)


SHAPES = {
    "chain": lambda i: {i - 1},
    "all after the first": lambda i: {0, i - 1},
    "wide": lambda i: {0},
    "each after ten": lambda i: set(range(max(0, i - 10), i)),
    "a ladder": lambda i: {i - 1, i // 2},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_take_little_memory(shape):
    """Sets of all that is before a step took the square of it: 30 MB here, and time to fill."""
    plan = TaskPlan(steps=tuple(
        TaskStep(step_index=i, step_id=f"s{i}",
                 dependencies=tuple(f"s{d}" for d in SHAPES[shape](i)) if i else ())
        for i in range(1200)
    ))  # fmt: skip
    tracemalloc.start()
    try:
        graph.edges(plan)
        assert tracemalloc.get_traced_memory()[1] < 400 * 1200
    finally:
        tracemalloc.stop()


@given(plans(), st.lists(st.integers(0, 9), min_size=8, max_size=8))
@fast
def test_critical_path_is_the_longest_path(plan, times):
    def seconds(step):
        return float(times[step.step_index])

    network = digraph(plan)
    weighted = nx.DiGraph()  # a step's time on the edge that leads out of it
    weighted.add_node("end")
    for step in plan.steps:
        for later in (*network.successors(step.step_id), "end"):
            weighted.add_edge(step.step_id, later, weight=seconds(step))
    path, length = graph.critical_path(plan, seconds)
    assert length == nx.dag_longest_path_length(weighted)
    assert sum(seconds(plan.step(s)) for s in path) == length
    assert nx.is_path(network, path) or not path
    assert graph.critical_path(plan)[1] == len(graph.levels(plan))


@given(plans(), st.sets(st.sampled_from(["old", "older"])))
@fast
def test_ready_is_what_is_pending_with_everything_before_it_completed(plan, completed):
    network = digraph(plan)
    network.remove_nodes_from(s.step_id for s in plan.steps if s.status is StepStatus.COMPLETED)
    outside = {
        s.step_id for s in plan.steps if set(s.dependencies) & ({"old", "older"} - completed)
    }
    sources = {s for s, degree in network.in_degree() if degree == 0} - outside
    pending = [s for s in plan.steps if s.status is StepStatus.PENDING]
    found = [s.step_id for s in graph.ready(plan, completed)]
    assert found == [s.step_id for s in pending if s.step_id in sources]


@given(plans(), st.sets(st.sampled_from(["old", "older"])))
@fast
def test_a_pending_step_is_ready_waits_or_is_unmet(plan, completed):
    """Never two of them, and a step waits only for one that is open."""
    ready = {s.step_id for s in graph.ready(plan, completed)}
    for step in plan.steps:
        unmet = graph.unmet(plan, step, completed)
        dead = {
            d
            for d in step.dependencies
            if d not in completed
            and (d not in digraph(plan) or plan.step(d).status in {"failed", "skipped"}
                 or plan.step(d).status == "interrupted")
        }  # fmt: skip
        assert {u.split()[0] for u in unmet} == dead
        if step.step_id in ready:
            assert not unmet


def test_unmet_names_the_status():
    plan = TaskPlan(
        steps=(
            TaskStep(step_id="a", step_index=0, status=StepStatus.FAILED),
            TaskStep(step_id="b", step_index=1, status=StepStatus.RUNNING),
            TaskStep(step_id="c", step_index=2, dependencies=("a", "b", "gone")),
        )
    )
    assert graph.unmet(plan, plan.step("c")) == ("a (failed)", "gone (never ran)")
    assert graph.unmet(plan, plan.step("c"), {"gone"}) == ("a (failed)",)


def test_an_empty_plan():
    plan = TaskPlan()
    assert graph.levels(plan) == graph.ready(plan) == ()
    assert graph.critical_path(plan) == ((), 0.0)


# ---- diff ------------------------------------------------------------------------------------

CONTENT = {
    "name": "other", "description": "other", "action_type": "aggregate",
    "target_resource": "other", "parameters": {"a": 1}, "dependencies": ("s0",),
    "importance": 0.9, "skippable": True, "expectation": "ok", "enforced": True,
}  # fmt: skip
PROGRESS = {
    "status": StepStatus.FAILED, "result": {"a": 1}, "error": "e", "step_index": 7,
    "interruption_context": {"reason": "r"},
}  # fmt: skip


def test_every_field_of_a_step_is_content_or_progress():
    assert set(TaskStep.model_fields) == {"step_id", *CONTENT, *PROGRESS}


@pytest.mark.parametrize("field", [*CONTENT, *PROGRESS])
def test_diff_sees_content_and_not_progress(field):
    steps = tuple(TaskStep(step_id=f"s{i}", step_index=i) for i in range(3))
    old = TaskPlan(steps=steps)
    changed = steps[1].replace(**{field: {**CONTENT, **PROGRESS}[field]})
    new = old.replace(steps=(steps[2], changed, TaskStep(step_id="new", step_index=2)))
    found = graph.diff(old, new)
    assert found.added == ("new",)
    assert found.removed == ("s0",)
    assert found.changed == (("s1",) if field in CONTENT else ())
    assert found.kept == (("s2",) if field in CONTENT else ("s2", "s1"))


@given(plans(), plans())
@fast
def test_diff_parts_both_plans(old, new):
    found = graph.diff(old, new)
    in_new = [s.step_id for s in new.steps]
    assert sorted((*found.kept, *found.changed, *found.added)) == sorted(in_new)
    in_old = [s.step_id for s in old.steps]
    assert sorted((*found.kept, *found.changed, *found.removed)) == sorted(in_old)
    back = graph.diff(new, old)
    assert (back.added, back.removed) == (found.removed, found.added)
    assert graph.diff(old, old).kept == tuple(in_old)
