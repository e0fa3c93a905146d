"""From a chain to a partial order: every order that is left works, and no needless one stays."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import canonical
from agentlab.base.randomness import generator
from agentlab.base.schemas import object_schema
from agentlab.environments.base import Begun, Call, Environment, Outcome
from agentlab.environments.generators.workshop import generate, suite
from agentlab.environments.named import get_environment
from agentlab.minds.planners.ordering import deordered, direct
from agentlab.minds.planners.search import shortest_plan
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool


class Facts(Environment):
    """Calls that need facts, add them and take them away; STRIPS, with a result that reads one."""

    name = "facts"

    def tools(self):
        lists = {n: {"type": "array"} for n in ("needs", "adds", "takes", "reads")}
        schema = object_schema(**lists)
        return (
            Tool("do", parameters=schema, effect=Effect.WRITE),
            Tool("end", parameters=schema, effect=Effect.IRREVERSIBLE),
        )

    def apply(self, world, call):
        asked = call.arguments
        if not set(asked["needs"]) <= set(world["facts"]):
            return Outcome(world, error=ToolError(code="unmet", message="unmet"))
        facts = sorted((set(world["facts"]) - set(asked["takes"])) | set(asked["adds"]))
        result = {"read": [f for f in asked["reads"] if f in world["facts"]]}
        return Outcome({"facts": facts}, result)

    def unmet(self, goal, world):
        return ()


FACTS = Facts()


def do(*, needs="", adds="", takes="", reads="", tool="do"):
    lists = {"needs": needs, "adds": adds, "takes": takes, "reads": reads}
    return Call(tool, {k: list(v) for k, v in lists.items()})


def path_of(calls, world):
    path = []
    for call in calls:
        outcome = FACTS.apply(world, call)
        assert outcome.error is None
        path.append((call, outcome.result))
        world = outcome.world
    return path, world


def order(*calls, facts=""):
    world = {"facts": list(facts)}
    path, _ = path_of(calls, world)
    return direct(deordered(FACTS, world, path))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], []),
        ([do(adds="a"), do(adds="b"), do(adds="c")], [[], [], []]),
        ([do(adds="a"), do(needs="a", adds="b"), do(adds="c")], [[], [0], []]),
        ([do(adds="a"), do(adds="b"), do(needs="ab")], [[], [], [0, 1]]),
        # what is read must not change: after the writer, and before the one who takes it away
        ([do(adds="a"), do(reads="a"), do(takes="a")], [[], [0], [1]]),
        # one of two makers is enough; it is not known which, so one of them is kept
        ([do(adds="a"), do(adds="a"), do(needs="a")], [[], [], [1]]),
        # written twice, differently: the order decides how it ends
        ([do(adds="a"), do(takes="a")], [[], [0]]),
        # irreversible comes after all, and what follows need not wait for it
        ([do(adds="a"), do(adds="b"), do(tool="end"), do(adds="c")], [[], [], [0, 1], []]),
    ],
)  # fmt: skip
def test_what_stays(calls, expected):
    assert order(*calls) == expected


@st.composite
def sequences(draw):
    """Draw calls that succeed in this order."""
    world, calls = {"facts": []}, []
    some = st.text("abcd", max_size=2)
    for _ in range(draw(st.integers(0, 7))):
        needs = "".join(draw(st.lists(st.sampled_from(world["facts"]), max_size=2))
                        if world["facts"] else [])  # fmt: skip
        tool = draw(st.sampled_from(["do", "do", "do", "end"]))
        call = do(needs=needs, adds=draw(some), takes=draw(some), reads=draw(some), tool=tool)
        calls.append(call)
        world = FACTS.apply(world, call).world
    return calls


def linearisations(before, rng, count):
    for _ in range(count):
        left, done = list(range(len(before))), []
        while left:
            i = rng.choice([i for i in left if before[i] <= set(done)])
            left.remove(i)
            done.append(i)
        yield done


@given(sequences(), st.integers(0, 100))
@settings(max_examples=200, deadline=None)
def test_every_order_that_is_left_has_the_same_results_and_ends_in_the_same_world(calls, seed):
    path, end = path_of(calls, {"facts": []})
    before = deordered(FACTS, {"facts": []}, path)
    for i, places in enumerate(before):
        assert places <= set(range(i))
        assert all(before[k] <= places for k in places)  # transitive
        if calls[i].tool == "end":
            assert places == set(range(i))
    for sequence in linearisations(before, generator(seed), 12):
        again, other = path_of([calls[i] for i in sequence], {"facts": []})
        assert other == end
        assert [r for _, r in again] == [path[i][1] for i in sequence]


@pytest.mark.parametrize("scenario", suite()[::4], ids=lambda s: s.id)
def test_in_the_workshop_every_order_works_and_parts_do_not_wait_for_each_other(scenario):
    world_of = get_environment("workshop")
    world = world_of.initial(scenario)
    path = shortest_plan(world_of, scenario.goal, world)
    before = deordered(world_of, world, path)
    rng = generator(scenario.id)
    for sequence in linearisations(before, rng, 20):
        here = world
        for i in sequence:
            call, result = path[i]
            assert isinstance(world_of.begin(here, call), Begun)
            outcome = world_of.apply(here, call)
            assert canonical(outcome.result) == canonical(result)
            here = outcome.world
        assert world_of.unmet(scenario.goal, here) == ()
    place = {i: c.arguments["part"] for i, (c, _) in enumerate(path) if "part" in c.arguments}
    order_of = {i: p["order"] for i, p in world["parts"].items()}
    for i, part in place.items():
        others = {place[k] for k in before[i] if k in place} - {part}
        assert not {o for o in others if order_of[o] == order_of[part]}


def test_a_plan_found_by_search_is_a_chain_for_one_worker_and_a_partial_order_for_more():
    scenario = generate("medium", 0)
    plans = {}
    for workers in (1, 3):
        run = al.autonomous.start(al.Lab(scenario, planner="search", workers=workers))
        run.run_until("plan_execution")
        plans[workers] = run.plan
    chain = plans[1].steps
    assert [len(s.dependencies) for s in chain] == [0] + [1] * (len(chain) - 1) or all(
        chain[i].step_id in chain[i + 1].dependencies for i in range(len(chain) - 1)
    )
    assert [s.label for s in plans[3].steps] == [s.label for s in chain]
    depth = len(al.plans.graph.levels(plans[3]))
    assert depth < len(chain) * 0.75


def test_payments_stay_in_their_order():
    for scenario in al.load_suite("travel")[::6]:
        run = al.autonomous.start(
            al.Lab(scenario, planner="search(privileged=True)", strategy="never", workers=4)
        )
        run.finish()
        assert run.verdict.success, run.verdict.reasons
        pays = [s for s in run.plan.steps if "book" in s.label or "call" in s.label]
        for one, other in pairwise(pays):
            assert one.step_id in other.dependencies


# ---- replanning while steps are under way -------------------------------------------------------


@pytest.mark.parametrize("planner", ["search", "reference"])
def test_a_new_plan_does_not_repeat_what_is_under_way(planner):
    """The first failure comes while others work on; what they do is not done twice."""
    met = 0
    for seed in range(12):
        lab = al.Lab(
            generate("hard", seed), planner=planner, strategy="retry_then_replan(0, 9)",
            fault_rate=0.1, seed=seed, workers=4,
            faults=al.FaultPlan(kinds={"error": 1}),
        )  # fmt: skip
        run = al.autonomous.start(lab)
        run.finish()
        for i, node in enumerate(run.visited):
            met += node == "planning" and bool(run.states[i].under_way)
        done = [(c.tool, canonical(c.arguments)) for c in run.state.calls if c.error is None]
        writes = [d for d in done if run.lab.tools[d[0]].effect != "read"]
        assert len(writes) == len(set(writes))
        assert {c.error.code for c in run.state.calls if c.error} <= {
            "unavailable", "out_of_order", "no_blank",
        }  # fmt: skip
        assert run.replay().identical
    assert met > 3
