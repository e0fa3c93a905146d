"""``workshop`` against its rules written again, and what the lab needs of its suite."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import canonical, merge_patch
from agentlab.base.randomness import uniform
from agentlab.environments.base import Call, no_op
from agentlab.environments.check import check_environment
from agentlab.environments.generators.workshop import TEMPLATES, generate, suite
from agentlab.environments.workshop import FINISHING, OPERATION, STAGE, TOOLS, WAYS, Workshop
from agentlab.errors import UnknownNameError
from agentlab.tools.tool import Effect

WORKSHOP = Workshop()
SUITE = suite()


class Floor:
    """The rules again, with other data: what is left of each route, a shelf, what was shown."""

    def __init__(self, world):
        self.routes = {i: (p["order"], p["material"], p["route"][:]) for i, p in
                       world["parts"].items()}  # fmt: skip
        self.shelf = {i: b["material"] for i, b in world["blanks"].items()}
        self.broken = {m for m, x in world["machines"].items() if not x["works"]}
        self.stages = {order: [] for order in world["orders"]}
        self.shown = set()

    def call(self, tool, arguments):
        """Return what changed, as a word, or the code of an error."""
        if tool in OPERATION:
            return self.work(*OPERATION[tool], **arguments)
        if tool in STAGE:
            return self.stage(*STAGE[tool], arguments["order"])
        if "material" in arguments:
            self.shown |= {i for i, m in self.shelf.items() if m == arguments["material"]}
            return "shown"
        if arguments["order"] not in self.stages:
            return "unknown_order"
        self.shown |= {i for i, (order, _, _) in self.routes.items() if order == arguments["order"]}
        return "shown"

    def work(self, operation, way, part, blank=None):
        for value, there, code in ((part, self.routes, "no_part"), (blank, self.shelf, "no_blank")):
            if value is not None and value not in there:
                return code
            if value is not None and value not in self.shown:
                return "not_seen"
        _, material, route = self.routes[part]
        if route[:1] != [operation]:
            return "wrong_operation"
        if way.machine in self.broken:
            return "out_of_order"
        if blank is not None and self.shelf[blank] != material:
            return "wrong_material"
        route.pop(0)
        self.shelf.pop(blank, None)
        return f"{len(route)} left"

    def stage(self, stage, way, order):
        if order not in self.stages:
            return "unknown_order"
        done = self.stages[order]
        if any(o == order and route for o, _, route in self.routes.values()):
            return "not_done"
        if stage != "assembled" and "assembled" not in done:
            return "not_assembled"
        if stage == "inspected" and "delivered" in done and "inspected" not in done:
            return "gone"
        if way.machine in self.broken:
            return "out_of_order"
        done.append(stage)
        return stage


def told(outcome, tool):
    if outcome.error is not None:
        return outcome.error.code
    if tool in OPERATION:
        return f"{outcome.result['left']} left"
    return outcome.result["stage"] if tool in STAGE else "shown"


def anything(world, goal, draw):
    """Return a call: a sensible one, or one with arguments drawn from all that there is."""
    sensible = list(WORKSHOP.candidates(world, goal))
    if sensible and draw("kind") < 0.7:
        return sensible[int(draw("which") * len(sensible))]
    tool = TOOLS[int(draw("tool") * len(TOOLS))]
    pools = {
        "part": [*world["parts"], "P0"], "blank": [*world["blanks"], "B0"],
        "order": [*world["orders"], "O0"], "material": ["oak", "steel", "gold"],
    }  # fmt: skip
    arguments = {
        name: pools[name][int(draw(name) * len(pools[name]))]
        for name in tool.parameters["properties"]
    }
    return Call(tool.name, arguments)


@given(st.sampled_from(SUITE.scenarios), st.integers(0, 10_000))
@settings(max_examples=120, deadline=None)
def test_it_does_what_its_rules_say(scenario, seed):
    world, floor = WORKSHOP.initial(scenario), Floor(WORKSHOP.initial(scenario))
    for n in range(60):
        call = anything(world, scenario.goal, lambda name, n=n: uniform(seed, n, name))
        before = canonical(world)
        outcome = WORKSHOP.apply(world, call)
        assert canonical(world) == before
        assert told(outcome, call.tool) == floor.call(call.tool, call.arguments), call
        world = outcome.world
        assert set(world["blanks"]) == set(floor.shelf)
        assert {i: len(p["route"]) - p["done"] for i, p in world["parts"].items()} == {
            i: len(route) for i, (_, _, route) in floor.routes.items()
        }
    reached = all({"inspected", "delivered"} <= set(done) for done in floor.stages.values())
    assert (WORKSHOP.unmet(scenario.goal, world) == ()) == reached


@pytest.mark.parametrize("scenario", SUITE, ids=lambda s: s.id)
def test_the_contract_holds(scenario):
    check_environment(WORKSHOP, scenario)
    calls = [Call("drive", {"order": next(iter(scenario.world["orders"]))}), Call("saw", {
        "part": next(iter(scenario.world["parts"])), "blank": "B0"})]  # fmt: skip
    check_environment(WORKSHOP, scenario, calls)


@given(st.sampled_from(SUITE.scenarios), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_the_estimate_is_a_lower_bound_and_falls_by_no_more_than_a_call_takes(scenario, seed):
    world, goal = WORKSHOP.initial(scenario), scenario.goal
    for n in range(40):
        calls = list(WORKSHOP.candidates(world, goal))
        if not calls:
            break
        call = calls[int(uniform(seed, n) * len(calls))]
        before, begun = WORKSHOP.estimate(goal, world), WORKSHOP.begin(world, call)
        outcome = WORKSHOP.apply(world, call)
        after = merge_patch(outcome.world, outcome.learned)  # what was tried in vain is known now
        if outcome.error is None:
            assert WORKSHOP.estimate(goal, after) >= before - begun.seconds - 1e-9
        world = after
    if not WORKSHOP.unmet(goal, world):
        assert WORKSHOP.estimate(goal, world) == 0


def test_the_belief_follows_the_world_where_calls_are_made():
    """What was learned, put together, is the world in all that was touched."""
    for scenario in SUITE:
        world, belief = WORKSHOP.initial(scenario), dict(scenario.world)
        for _ in range(80):
            call = next(iter(WORKSHOP.candidates(belief, scenario.goal)), None)
            if call is None:
                break
            outcome = WORKSHOP.apply(world, call)
            world, belief = outcome.world, merge_patch(belief, outcome.learned)
        assert WORKSHOP.unmet(scenario.goal, world) == (), scenario.id
        for name in ("orders", "parts", "seen"):
            assert belief[name] == world[name]


def test_every_tool_has_an_alternative_that_needs_no_machine_of_its_own():
    for quick, slow in (*WAYS.values(), *FINISHING.values()):
        assert quick.seconds < slow.seconds
        assert slow.machine != quick.machine
        assert slow.machine in ("", "bench")
    effects = {t.name: t.effect for t in TOOLS}
    assert {n for n, e in effects.items() if e is Effect.IRREVERSIBLE} == {"drive", "carry"}


def test_a_larger_part_takes_longer_and_what_is_held_is_the_machine():
    scenario = generate("medium", 0)
    for part_id, part in scenario.world["parts"].items():
        begun = WORKSHOP.begin(scenario.world, Call("turn", {"part": part_id}))
        assert begun == al.environments.base.Begun(5.0 * part["size"], ("lathe",))
    assert WORKSHOP.capacities(generate("medium", 1).world)["saw"] == 2
    assert WORKSHOP.capacities(scenario.world)["saw"] == 1


def test_what_the_world_does_by_itself():
    scenario = generate("medium", 1)
    world = scenario.world
    blank, part = min(world["blanks"]), min(world["parts"])
    call = Call("saw", {"part": part, "blank": blank})
    assert WORKSHOP.disturb(world, call, 0.1) == {"blanks": {blank: None}}
    assert WORKSHOP.disturb(world, call, 0.9) == {"machines": {"saw": {"works": False}}}
    assert WORKSHOP.disturb(world, Call("air_dry", {"part": part}), 0.1) is None
    less = WORKSHOP.constrain(world, 0.99)
    assert less == {"machines": {"saw": {"count": 1}}}
    assert WORKSHOP.constrain(generate("medium", 0).world, 0.5) is None


# --- the suite -------------------------------------------------------------------------------


def test_the_suite_is_graded_and_seeded():
    assert Counter(s.difficulty for s in SUITE) == {"easy": 12, "medium": 14, "hard": 14}
    size = {
        level: sum(len(s.reference.steps) for s in SUITE if s.difficulty == level)
        / sum(s.difficulty == level for s in SUITE)
        for level in TEMPLATES
    }
    assert size["easy"] < size["medium"] < size["hard"]
    assert generate("hard", 3) == generate("hard", 3) != generate("hard", 4)
    assert sum(bool(s.hidden) for s in SUITE) >= 12
    assert sum(s.goal.answer is not None for s in SUITE) >= 12
    assert len({s.cluster for s in SUITE}) >= 8
    assert not any(no_op(WORKSHOP, s).success for s in SUITE)
    with pytest.raises(UnknownNameError, match="did you mean 'hard'"):
        generate("hardd")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_reference_reaches_the_goal_sooner_with_more_workers(workers):
    quicker = 0
    for scenario in SUITE:
        lab = al.Lab(scenario, planner="reference", strategy="never", workers=workers)
        run = al.autonomous.start(lab)
        run.finish()
        assert run.verdict.success, (scenario.id, run.verdict.reasons)
        alone = sum(c.finished - c.started for c in run.state.calls)
        assert run.state.now <= alone
        quicker += run.state.now < alone
    assert quicker == (0 if workers == 1 else len(SUITE))


def test_hidden_trouble_costs_a_plan_made_on_the_belief_something():
    for scenario in [s for s in SUITE if "machines" in s.hidden]:
        found = {}
        for strategy in ("never", "retry_then_replan(1)"):
            run = al.autonomous.start(al.Lab(scenario, planner="search", strategy=strategy))
            run.finish()
            found[strategy] = run.verdict.success
        assert found == {"never": False, "retry_then_replan(1)": True}
