"""Parallel plans in simulated time: what holds of every one, on plans over shared machines.

The world ``yard`` does nothing: a call takes the seconds it is given and holds what it names.
"""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import digest
from agentlab.base.randomness import generator
from agentlab.base.schemas import object_schema
from agentlab.environments.base import Begun, Environment, Outcome
from agentlab.environments.generators.workshop import generate, suite
from agentlab.lab.scheduling import WORKER, Task
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans import graph
from agentlab.tools.tool import Effect, Tool
from agentlab.trace.compare import first_difference

MACHINES = {"lathe": 2, "oven": 1, "saw": 1}
some = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class Yard(Environment):
    """Calls that take time and machines; every effect is counted."""

    name = "yard"

    def tools(self):
        schema = object_schema(seconds={"type": "integer"}, holds={"type": "array"})
        return (Tool("work", parameters=schema, effect=Effect.WRITE),)

    def capacities(self, world):
        return MACHINES

    def begin(self, world, call):
        return Begun(call.arguments["seconds"], tuple(call.arguments["holds"]))

    def apply(self, world, call):
        after = {"n": world["n"] + 1}
        return Outcome(after, result=after, learned=after)

    def unmet(self, goal, world):
        return ()


def plan_of(tasks):
    """Return the tasks as steps of a plan."""
    return [
        {
            "stepId": f"s{i}", "name": f"s{i}", "actionType": "call_tool",
            "targetResource": "work", "dependencies": [f"s{n}" for n in t.after],
            "parameters": {"seconds": t.seconds, "holds": [r for r in t.needs if r != WORKER]},
        }
        for i, t in enumerate(tasks)
    ]  # fmt: skip


def start(tasks, workers, **options):
    scenario = al.Scenario(id="y", environment="yard", task="t", world={"n": 0}, goal=al.Goal())
    options = {"strategy": "never", "planner": Fixed(plan_of(tasks)), **options}
    return al.autonomous.start(al.Lab(scenario, environment=Yard(), workers=workers, **options))


@st.composite
def tasks(draw, machines=("lathe", "oven", "saw"), most=8):
    made = []
    for i in range(draw(st.integers(1, most))):
        after = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        needs = (
            draw(st.lists(st.sampled_from(machines), max_size=2, unique=True)) if machines else []
        )
        made.append(Task(draw(st.integers(1, 6)), (WORKER, *needs), tuple(sorted(after)), 0))
    return tuple(made)


def longest(tasks):
    """Return the critical path, by networkx."""
    dag = nx.DiGraph()
    dag.add_node("end")
    for i, t in enumerate(tasks):
        dag.add_edge(i, "end", weight=t.seconds)
        for k in t.after:
            dag.add_edge(k, i, weight=tasks[k].seconds)
    return nx.dag_longest_path_length(dag)


def check_capacity(run, workers):
    """Check, from the calls alone, that never more was held or under way than there is."""
    calls = run.state.calls
    for moment in {c.started for c in calls}:
        together = [c for c in calls if c.started <= moment < c.finished]
        held = [r for c in together for r in c.arguments["holds"]]
        assert len(together) <= workers
        assert all(held.count(r) <= MACHINES[r] for r in held)
    for state in run.states:
        assert len(state.under_way) <= workers
        held = [r for u in state.under_way for r in u.holds]
        assert all(held.count(r) <= MACHINES[r] for r in held)


@given(tasks(machines=()))
@some
def test_without_shared_resources_the_makespan_is_the_critical_path(made):
    run = start(made, len(made))
    run.finish()
    assert run.state.now == longest(made)
    _, seconds = graph.critical_path(run.plan, lambda s: s.parameters["seconds"])
    assert seconds == run.state.now


@given(tasks(), st.integers(2, 4))
@some
def test_capacity_is_never_exceeded_and_dependencies_are_kept(made, workers):
    run = start(made, workers)
    run.finish()
    assert all(s.status == "completed" for s in run.plan.steps)
    check_capacity(run, workers)
    spans = {c.step_id: c for c in run.state.calls}
    for i, t in enumerate(made):
        assert all(spans[f"s{i}"].started >= spans[f"s{k}"].finished for k in t.after)
    assert run.state.now >= longest(made)


FAULTS = al.FaultPlan(
    rate=0.3,
    kinds={"error": 2, "latency_spike": 1, "timeout": 1},
    persistence={"transient": 3, "permanent": 1},
)


@given(tasks(), st.integers(2, 4), st.integers(0, 5),
       st.sampled_from(["never", "retry(2)", "retry(1, wait=4)"]))  # fmt: skip
@some
def test_capacity_holds_under_faults_and_retries_too(made, workers, seed, strategy):
    run = start(made, workers, faults=FAULTS, seed=seed, strategy=strategy)
    run.finish()
    check_capacity(run, workers)
    assert run.replay().identical


def test_on_fifty_plans_the_makespan_is_within_five_percent_of_the_optimum(optimum):
    """Plans of up to seven steps on shared machines with two to four workers, by brute force."""
    rng, scarce = generator("fifty plans"), 0
    for _ in range(50):
        count, workers = rng.randint(5, 7), rng.randint(2, 4)
        made = []
        for i in range(count):
            after = sorted(rng.sample(range(i), min(i, rng.choice([0, 0, 1, 1, 2]))))
            needs = rng.sample(sorted(MACHINES), rng.choice([0, 1, 1, 2]))
            made.append(Task(rng.randint(1, 9), (WORKER, *needs), tuple(after), 0))
        run = start(made, workers)
        run.finish()
        check_capacity(run, workers)
        best = optimum(tuple(made), tuple({**MACHINES, WORKER: workers}.items()))
        assert best <= run.state.now <= 1.05 * best
        scarce += best > longest(made)
    assert scarce >= 20  # in many of them something was short


# ---- forks ------------------------------------------------------------------------------------


def rows(run):
    return [s.row() for s in run.spans if s.kind != "run"]


def content(states):
    return [digest(s.to_json()) for s in states]


def check_forks(run):
    """Check that a fork at every visit, in the middle of whatever is under way, ends the same."""
    before, spans = content(run.states), rows(run)
    middles = 0
    for at in range(len(run.visited)):
        middles += bool(run.states[at].under_way)
        fork = run.fork(at=at)
        fork.finish()
        assert content(fork.states) == before
        assert first_difference([r for r in spans if r[4] >= at], rows(fork)) is None
    assert content(run.states) == before
    return middles


@given(tasks(), st.integers(2, 4), st.integers(0, 5),
       st.sampled_from(["never", "retry(2)", "retry(1, wait=4)"]))  # fmt: skip
@settings(some, max_examples=40)
def test_forks_in_the_middle_of_a_parallel_plan_are_exact(made, workers, seed, strategy):
    run = start(made, workers, faults=FAULTS, seed=seed, strategy=strategy)
    run.finish()
    check_forks(run)


@pytest.mark.parametrize("planner", ["reference", "search"])
@pytest.mark.parametrize("seed", range(3))
def test_forks_of_a_day_in_the_workshop_are_exact(planner, seed):
    lab = al.Lab(
        generate("medium", seed), planner=planner, strategy="retry_then_replan(1)", seed=seed,
        fault_rate=0.2, workers=3,
    )  # fmt: skip
    run = al.autonomous.start(lab)
    run.finish()
    assert check_forks(run) > 3


def test_in_the_workshop_no_machine_is_used_by_more_than_there_are():
    for scenario in suite():
        lab = al.Lab(scenario, planner="reference", strategy="never", workers=4)
        run = al.autonomous.start(lab)
        run.finish()
        there = lab.environment.capacities(lab.environment.initial(scenario))
        for state in run.states:
            held = [r for u in state.under_way for r in u.holds]
            assert all(held.count(r) <= there[r] for r in held)
        seconds = {c.step_id: c.finished - c.started for c in run.state.calls}
        _, path = graph.critical_path(run.plan, lambda s, of=seconds: of[s.step_id])
        assert path <= run.state.now <= sum(seconds.values())
