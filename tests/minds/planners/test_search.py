"""``search``: optimal plans, references lifted, round what failed, over belief or truth."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.base.documents import digest
from agentlab.base.schemas import object_schema
from agentlab.environments.base import Call, Environment, Outcome
from agentlab.environments.chain import Chain, generate
from agentlab.errors import ConfigError, PlanError, UnknownNameError
from agentlab.minds.base import PlanRequest
from agentlab.minds.planners.drafts import locate
from agentlab.minds.planners.named import get_planner
from agentlab.minds.planners.search import Search, SearchExhausted, shortest_plan
from agentlab.plans.references import Reference, lookup, parse
from agentlab.state.records import Failure
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool


def request(scenario, **fields):
    fields = {"belief": Chain().belief(scenario), **fields}
    return PlanRequest(scenario.task, scenario.goal, **fields)


def planned(scenario, planner=None, **fields):
    return (planner or Search()).plan(request(scenario, **fields), al.Lab(scenario))


def tools(plan):
    return [s.target_resource for s in plan.steps]


# ---- optimal plans ----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 6, 12])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_quickest_plan_of_a_chain(length, seed):
    scenario = generate("medium", seed, length=length)
    plan = planned(scenario)
    assert tools(plan) == ["advance"] * length
    assert [s.parameters["stage"] for s in plan.steps] == scenario.world["stages"]
    run = al.autonomous.start(al.Lab(scenario))
    run.finish()
    assert run.verdict.success
    assert run.state.now == length
    assert len(run.plan) == length


def test_data_flows_by_reference():
    scenario = generate("medium", 0, length=4)
    plan = planned(scenario)
    assert [s.parameters["token"] for s in plan.steps] == [
        "start", "${advance.token}", "${advance_2.token}", "${advance_3.token}",
    ]  # fmt: skip
    assert [s.dependencies for s in plan.steps] == [
        (), ("advance",), ("advance_2",), ("advance_3",),
    ]  # fmt: skip
    assert plan.answer == "${advance_4.token}"


def test_a_plan_for_what_remains_takes_up_what_is_known():
    scenario = generate("medium", 0, length=4)
    run = al.autonomous.start(al.Lab(scenario, strategy="on_error"))
    run.run_until(lambda s: s.world["done"] == 2)
    decision = al.ReplanDecision(action="REPLAN_REMAINING")
    fork = run.fork(state={"forced_decision": decision, "next_action": "reflect"})
    fork.finish()
    assert [s.step_id for s in fork.plan.steps] == [
        "advance",
        "advance_2",
        "advance_5",
        "advance_6",
    ]
    assert fork.plan.step("advance_5").parameters["token"] == "${advance_2.token}"
    assert fork.plan.answer == "${advance_6.token}"
    assert fork.verdict.success


def test_when_the_goal_is_reached_the_plan_is_empty():
    scenario = generate("medium", 0, length=3)
    assert len(planned(scenario, belief={**scenario.world, "done": 3})) == 0


class Roads(Environment):
    """A graph of places; the plan is a shortest way, whose length is known by brute force."""

    name = "roads"

    def tools(self):
        schema = object_schema(to={"type": "string"})
        return (Tool("go", parameters=schema, effect=Effect.WRITE),)

    def begin(self, world, call):
        from agentlab.environments.base import Begun

        seconds = world["roads"].get(world["at"], {}).get(call.arguments["to"])
        if seconds is None:
            return ToolError(code="no_road", message="no road")
        return Begun(seconds)

    def apply(self, world, call):
        after = {"at": call.arguments["to"]}
        return Outcome({**world, **after}, result=after, learned=after)

    def candidates(self, belief, goal):
        return [Call("go", {"to": to}) for to in belief["roads"].get(belief["at"], {})]

    def unmet(self, goal, world):
        return () if world["at"] == "goal" else ("not there",)


def all_ways(roads, at, been=()):
    if at == "goal":
        yield 0.0, []
        return
    for to, seconds in roads.get(at, {}).items():
        if to not in (*been, at):
            for rest, way in all_ways(roads, to, (*been, at)):
                yield seconds + rest, [to, *way]


@pytest.mark.parametrize("seed", range(12))
def test_it_finds_the_quickest_way_and_of_equals_the_shortest(seed):
    from random import Random

    rng = Random(seed)
    places = ["start", "a", "b", "c", "d", "goal"]
    roads = {p: {q: float(rng.randint(1, 6)) for q in places if q != p and rng.random() < 0.5}
             for p in places}  # fmt: skip
    ways = sorted((seconds, len(way)) for seconds, way in all_ways(roads, "start"))
    goal = al.Goal()
    found = shortest_plan(Roads(), goal, {"at": "start", "roads": roads})
    if not ways:
        assert found is None
        return
    way = [call.arguments["to"] for call, _ in found]
    spent, at = 0.0, "start"
    for to in way:
        spent, at = spent + roads[at][to], to
    assert (spent, len(way)) == ways[0]


def test_of_two_ways_that_take_as_long_the_one_with_fewer_calls():
    roads = {"start": {"a": 1.0, "c": 3.0}, "a": {"b": 1.0}, "b": {"goal": 2.0}, "c": {"goal": 1.0}}
    found = shortest_plan(Roads(), al.Goal(), {"at": "start", "roads": roads})
    assert [call.arguments["to"] for call, _ in found] == ["c", "goal"]


def test_no_way_is_no_plan():
    world = {"at": "start", "roads": {"start": {"a": 1.0}, "a": {"start": 1.0}}}
    assert shortest_plan(Roads(), al.Goal(), world) is None
    scenario = al.Scenario(id="r", environment="roads", task="t", world=world, goal=al.Goal())
    run = al.autonomous.start(al.Lab(scenario, environment=Roads()))
    run.finish()
    assert run.state.error == "no plan reaches the goal from what is known"


def test_the_cap():
    scenario = generate("medium", 0, length=6)
    with pytest.raises(SearchExhausted, match="cap"):
        planned(scenario, Search(expansions=3))
    assert issubclass(SearchExhausted, PlanError)
    assert len(planned(scenario, Search(expansions=6))) == 6


def test_without_a_world_there_is_nothing_to_search(notes):
    run = notes.run(planner="search")
    assert "needs a scenario with a simulated world" in run.state.error


# ---- round what failed ------------------------------------------------------------------------

SCENARIO = generate("medium", 0, length=3)
FIRST = {"stage": SCENARIO.world["stages"][0], "token": "start"}


def failure(tool="advance", code="unavailable", count=1, permanent=False, arguments=FIRST):
    return Failure(
        tool=tool, arguments=digest(arguments), code=code, count=count, permanent=permanent
    )


@pytest.mark.parametrize(
    ("failures", "wanted"),
    [
        ([], ["advance"] * 3),
        ([failure(count=1)], ["advance"] * 3),
        ([failure(count=2)], ["advance_slowly"] * 3),
        ([failure(permanent=True)], ["advance_slowly"] * 3),
        ([failure(code="timeout"), failure(code="rate_limit")], ["advance_slowly"] * 3),
        ([failure(code="malformed_result", count=2)], ["advance_slowly"] * 3),
        # a reason of the call's own: this call only
        ([failure(code="wrong_token")], ["advance_slowly", "advance", "advance"]),
        ([failure(code="wrong_token", permanent=True)], ["advance_slowly", "advance", "advance"]),
        ([failure(code="wrong_token", arguments={"stage": "x"})], ["advance"] * 3),
        # nothing left: only what is permanent stays left out
        ([failure(count=5), failure("advance_slowly", count=5)], ["advance"] * 3),
        ([failure(permanent=True), failure("advance_slowly", count=9)], ["advance_slowly"] * 3),
        (
            [failure(code="wrong_token"), failure("advance_slowly", code="wrong_token")],
            ["advance"] * 3,
        ),
    ],
)
def test_round_what_failed(failures, wanted):
    assert tools(planned(SCENARIO, failures=tuple(failures))) == wanted


def test_nothing_left_that_is_not_broken_for_good():
    failures = (failure(permanent=True), failure("advance_slowly", permanent=True))
    with pytest.raises(PlanError, match="no plan reaches the goal"):
        planned(SCENARIO, failures=failures)


def test_patience():
    failures = (failure(count=2),)
    assert tools(planned(SCENARIO, Search(patience=3), failures=failures)) == ["advance"] * 3
    one = (failure(count=1),)
    assert tools(planned(SCENARIO, Search(patience=1), failures=one)) == ["advance_slowly"] * 3


def test_a_failure_that_taught_something_does_not_ban_its_call():
    explained = failure(code="out_of_turn").replace(explained=True)
    assert tools(planned(SCENARIO, failures=(explained,))) == ["advance"] * 3


# ---- belief and truth -------------------------------------------------------------------------


def test_it_plans_on_the_belief_unless_it_is_privileged():
    belief = SCENARIO.world
    world = {
        **belief,
        "done": 1,
        "seen": {"start": True, belief["tokens"][belief["stages"][0]]: True},
    }
    assert len(planned(SCENARIO, belief=belief)) == 3
    assert len(planned(SCENARIO, Search(privileged=True), belief=belief, world=world)) == 2


def test_in_a_run_the_privileged_one_sees_what_the_agent_does_not():
    order = SCENARIO.world["stages"]
    hidden = SCENARIO.replace(hidden={"stages": order[::-1]})
    for planner, success in (("search", False), ("search(privileged=True)", True)):
        run = al.autonomous.start(al.Lab(hidden, planner=planner, strategy="never"))
        run.finish()
        assert (run.state.world["done"] == 3) is success


# ---- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("search(patience=0)", ConfigError, "equal to 1, got 0"),
        ("search(expansions=0)", ConfigError, "equal to 1, got 0"),
        ("search(patience='x')", ConfigError, "search"),
        ("search(privilegd=True)", ConfigError, "did you mean 'privileged'"),
        ("search(1, 2, 3, 4)", ConfigError, "planner search"),
        ("serach", UnknownNameError, "did you mean 'search'"),
        ("search(open('x'))", ConfigError, "literal arguments"),
    ],
)
def test_bad_arguments(text, error, match):
    with pytest.raises(error, match=match):
        get_planner(text)


# ---- lifting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "value", "path"),
    [
        ({"id": "F2"}, "F2", "id"),
        ({"a": {"b": "F2"}}, "F2", "a.b"),
        ({"flights": [{"id": "F1"}, {"id": "F2"}]}, "F2", "flights[?id=='F2'] | [0].id"),
        ([{"id": "F1"}], "F1", "[?id=='F1'] | [0].id"),
        (["F1", "F2"], "F2", "[?@=='F2'] | [0]"),
        ({"odd key": "F"}, "F", '"odd key"'),
        ({"n": 5}, 5, "n"),
        ({"n": True}, 1, None),
        ({"n": 5}, "5", None),
        ({}, "x", None),
        ("x", "x", None),
        ({"a": {"list": [{"odd-key": "x"}]}}, "x", 'a.list[?"odd-key"==\'x\'] | [0]."odd-key"'),
    ],
)
def test_locate(document, value, path):
    assert locate(document, value) == path
    if path is not None:
        assert lookup(parse(f"${{s.{path}}}")[0], {"s": document}) == value


@pytest.mark.parametrize("value", ["it's", "a\\b", "a\\", '"', "`", "\\`'", "}", "${x}", "é", ""])
def test_whatever_the_text_is_the_reference_finds_it(value):
    for document in ([value], [{"id": value}], {"l": [{"id": "x"}, {"id": value}]}, {value: value}):
        path = locate(document, value)
        (reference,) = parse(str(Reference("s", path)))
        assert lookup(reference, {"s": document}) == value
