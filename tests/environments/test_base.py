"""The environment contract: each breach is found and named; verdicts; environments by name."""

from __future__ import annotations

import re

import pytest

from agentlab.base.schemas import object_schema
from agentlab.environments.base import Begun, Call, Environment, Evidence, Outcome, Verdict, no_op
from agentlab.environments.check import check_environment
from agentlab.environments.named import get_environment, register_environment
from agentlab.environments.scenario import AnswerGoal, Goal, Scenario
from agentlab.errors import EnvironmentContractError, UnknownNameError
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool

SCENARIO = Scenario(
    id="lamps-1",
    environment="lamps",
    task="Switch both lamps on.",
    world={"lamps": {"a": False, "b": False}, "seen": {}},
    hidden={"secret": 7},
    goal=Goal(conditions={"on": ["a", "b"]}),
)
NAME = object_schema(lamp={"type": "string"})


class Lamps(Environment):
    """A world that keeps the contract: two lamps, a look and a switch."""

    name = "lamps"

    def tools(self):
        return (
            Tool("look", parameters=NAME, returns=object_schema(on={"type": "boolean"})),
            Tool(
                "switch", parameters=NAME, returns={"type": "string"}, effect=Effect.WRITE,
                seen=("lamp",), seconds=2.0, holds=("hand",),
            ),
        )  # fmt: skip

    def apply(self, world, call):
        lamp = call.arguments["lamp"]
        if lamp not in world["lamps"]:
            return Outcome(world, error=ToolError(code="unknown", message=f"no lamp {lamp!r}"))
        if call.tool == "look":
            seen = {**world["seen"], lamp: True}
            result = {"on": world["lamps"][lamp]}
            return Outcome({**world, "seen": seen}, result, learned={"seen": {lamp: True}})
        on = not world["lamps"][lamp]
        learned = {"lamps": {lamp: on}}
        return Outcome({**world, "lamps": {**world["lamps"], lamp: on}}, "done", learned=learned)

    def unmet(self, goal, world):
        return tuple(f"{n} is off" for n in goal.conditions["on"] if not world["lamps"][n])

    def candidates(self, belief, goal):
        for lamp, on in belief["lamps"].items():
            if lamp not in belief["seen"]:
                yield Call("look", {"lamp": lamp})
            elif not on:
                yield Call("switch", {"lamp": lamp})


def test_a_world_that_keeps_the_contract():
    before = SCENARIO.to_json()
    check_environment(Lamps(), SCENARIO)
    check_environment(Lamps(), SCENARIO, calls=[Call("look", {"lamp": "no such"})])
    check_environment(Lamps(), SCENARIO, steps=0)
    assert SCENARIO.to_json() == before


# ---- breaches --------------------------------------------------------------------------------


def changed(**methods):
    """A world that breaks the contract by one method."""
    return type("Broken", (Lamps,), methods)()


def applying(spoil):
    """A world whose outcomes go through ``spoil(world, call, outcome)``."""
    return changed(apply=lambda self, w, c: spoil(w, c, Lamps.apply(self, w, c)))


def with_world(outcome, world):
    return Outcome(world, outcome.result, outcome.error, outcome.learned)


def mutate_top(world, call, outcome):
    world["touched"] = True
    return outcome


def mutate_deep(world, call, outcome):
    if call.tool == "switch":
        world["lamps"][call.arguments["lamp"]] = True
    return outcome


def mutate_and_return(world, call, outcome):
    world["lamps"][call.arguments["lamp"]] = True
    return with_world(outcome, world)


def begin_mutates(self, world, call):
    world["lamps"]["c"] = True
    return Begun(1.0)


def candidates_mutate(self, belief, goal):
    belief["asked"] = True
    return list(Lamps.candidates(self, belief, goal))


def unmet_mutates(self, goal, world):
    world["judged"] = True
    return ()


class Counting(Lamps):
    """Remembers how often it was asked, which is state of a run."""

    def __init__(self):
        self.count = 0

    def apply(self, world, call):
        self.count += 1
        return with_world(Lamps.apply(self, world, call), {**world, "count": self.count})


class CountingUnmet(Lamps):
    def __init__(self):
        self.count = 0

    def unmet(self, goal, world):
        self.count += 1
        return (f"asked {self.count} times",)


class CountingInitial(Lamps):
    def __init__(self):
        self.count = 0

    def initial(self, scenario):
        self.count += 1
        return {**Lamps.initial(self, scenario), "count": self.count}


def raises(self, world, call):
    return {"a": 1}["b"]


LOOK = r'look\({"lamp":"a"}\): '
SWITCH = r'switch\({"lamp":"a"}\): '
BREACHES = {
    "changes its input": (applying(mutate_top), LOOK + "changed the world it was given"),
    "changes deep inside": (applying(mutate_deep), SWITCH + "changed the world it was given"),
    "returns its input changed": (applying(mutate_and_return), LOOK + "changed the world"),
    "begin changes the world": (changed(begin=begin_mutates), LOOK + "changed the world"),
    "candidates change the world": (
        changed(candidates=candidates_mutate),
        r"candidates\(\) changed the world",
    ),
    "unmet changes the world": (changed(unmet=unmet_mutates), r"unmet\(\) changed the world"),
    "two outcomes": (Counting(), LOOK + "gave two outcomes for one world"),
    "two judgements": (CountingUnmet(), r"unmet\(\) gave two answers for one world"),
    "two beginnings": (CountingInitial(), r"initial\(\) gave two worlds for one scenario"),
    "null in the world": (
        applying(lambda w, c, o: with_world(o, {**o.world, "x": {"y": [None]}})),
        LOOK + "the next world must be a JSON object without nulls",
    ),
    "no JSON in the world": (
        applying(lambda w, c, o: with_world(o, {**o.world, "x": (1,)})),
        LOOK + "the next world must be a JSON object",
    ),
    "a world that is no object": (
        applying(lambda w, c, o: with_world(o, [])),
        LOOK + "the next world must be a JSON object",
    ),
    "NaN in the world": (
        applying(lambda w, c, o: with_world(o, {**o.world, "x": float("inf")})),
        LOOK + "the next world must be a JSON object",
    ),
    "null at the start": (
        changed(initial=lambda self, s: {"lamps": None}),
        r"initial\(\) must be a JSON object without nulls",
    ),
    "no JSON at the start": (
        changed(initial=lambda self, s: {"lamps": {1, 2}}),
        r"initial\(\) must be a JSON object",
    ),
    "a list at the start": (
        changed(initial=lambda self, s: []),
        r"initial\(\) must be a JSON object",
    ),
    "null in the belief": (
        changed(belief=lambda self, s: {**s.world, "x": None}),
        r"belief\(\) must be a JSON object without nulls",
    ),
    "a read that writes": (
        applying(lambda w, c, o: with_world(o, {**o.world, "looked": True})),
        LOOK + "a read changed the world beyond 'seen'",
    ),
    "a candidate of no schema": (
        changed(candidates=lambda self, b, g: [Call("look", {"lamp": 5})]),
        r"""look\({"lamp":5}\): a candidate that its own schema refuses: .*"string\"""",
    ),
    "a candidate of no tool": (
        changed(candidates=lambda self, b, g: [Call("lok", {"lamp": "a"})]),
        r"lok\(.*\): unknown tool 'lok'; did you mean 'look'",
    ),
    "a candidate that is not JSON": (
        changed(candidates=lambda self, b, g: [Call("look", {"lamp": {"a"}})]),
        r"look\(.*\): arguments must be JSON",
    ),
    "a result of no schema": (
        applying(lambda w, c, o: Outcome(o.world, {"on": "yes"}, learned=o.learned)),
        LOOK + r"""result: on: "yes" is not of type "boolean\"""",
    ),
    "a result left out": (
        applying(lambda w, c, o: Outcome(o.world, None)),
        LOOK + "result: ",
    ),
    "a result that is not JSON": (
        applying(lambda w, c, o: Outcome(o.world, {"on": True, "x": object})),
        LOOK + "result and learned must be JSON",
    ),
    "learned is not JSON": (
        applying(lambda w, c, o: Outcome(o.world, o.result, learned={"seen": {1: True}})),
        LOOK + "result and learned must be JSON",
    ),
    "a result and an error": (
        applying(lambda w, c, o: Outcome(w, o.result, ToolError(code="c", message="m"))),
        LOOK + "returned both a result and an error",
    ),
    "an exception": (changed(apply=raises), LOOK + "raised KeyError: 'b'"),
    "an exception at the start": (changed(begin=raises), LOOK + "raised KeyError: 'b'"),
    "negative time": (
        changed(begin=lambda self, w, c: Begun(-1.0)),
        LOOK + "takes -1.0 seconds",
    ),
    "seen parameters": (
        changed(tools=lambda self: (Tool("look", parameters=NAME, seen=("lmap",)),)),
        "tool 'look' lists parameters as seen that it does not have",
    ),
}


@pytest.mark.parametrize(("environment", "message"), BREACHES.values(), ids=list(BREACHES))
def test_a_breach_is_found_and_named(environment, message):
    scenario = Scenario.model_validate(SCENARIO.to_json())  # some breaches spoil what they get
    with pytest.raises(EnvironmentContractError) as e:
        check_environment(environment, scenario)
    assert re.match(message, str(e.value)), str(e.value)


def test_a_scenario_that_is_changed():
    def initial(self, scenario):
        scenario.goal.conditions["on"].append("a")
        return Lamps.initial(self, scenario)

    scenario = Scenario.model_validate(SCENARIO.to_json())
    with pytest.raises(EnvironmentContractError, match="the scenario was changed"):
        check_environment(changed(initial=initial), scenario, steps=1)


def test_calls_that_are_given_are_checked_first_and_count():
    bad = applying(lambda w, c, o: mutate_deep(w, c, o))
    scenario = Scenario.model_validate(SCENARIO.to_json())
    check_environment(bad, scenario, steps=1)  # the first candidate is a look
    with pytest.raises(EnvironmentContractError, match="switch"):
        check_environment(bad, scenario, calls=[Call("switch", {"lamp": "b"})], steps=1)


# ---- what every environment inherits ---------------------------------------------------------


def test_the_truth_is_what_the_agent_is_told_and_what_is_hidden():
    lamps = Lamps()
    assert lamps.initial(SCENARIO) == {**SCENARIO.world, "secret": 7}
    assert lamps.belief(SCENARIO) is SCENARIO.world
    assert "secret" not in SCENARIO.world
    bare = SCENARIO.replace(hidden={})
    assert lamps.initial(bare) == bare.world
    assert lamps.initial(bare) is not bare.world


def test_defaults():
    lamps = Lamps()
    world = lamps.initial(SCENARIO)
    call = Call("switch", {"lamp": "a"})
    assert lamps.begin(world, call) == Begun(2.0, ("hand",))
    assert lamps.key(world) == lamps.key(dict(reversed(world.items())))
    assert lamps.key(world) != lamps.key({**world, "secret": 8})
    assert lamps.estimate(SCENARIO.goal, world) == 0
    assert lamps.disturb(world, call, 0.5) is None
    assert lamps.constrain(world, 0.5) is None
    assert list(Environment.candidates(lamps, world, SCENARIO.goal)) == []
    assert lamps.registry is lamps.registry
    assert list(lamps.registry) == ["look", "switch"]


def test_no_op_is_the_floor():
    assert no_op(Lamps(), SCENARIO) == Verdict(False, ("a is off", "b is off"))
    assert no_op(Lamps(), SCENARIO.replace(goal=Goal(conditions={"on": []}))).success


def judged(answer=None, seconds=0.0, deadline=None, right=12.5):
    goal = Goal(
        conditions={"on": []},
        deadline=deadline,
        answer=AnswerGoal(world="right", tools=("look",), result="x"),
    )
    world = {"lamps": {}} if right is None else {"lamps": {}, "right": right}
    return Lamps().check(goal, Evidence(initial={}, world=world, answer=answer, seconds=seconds))


@pytest.mark.parametrize(
    ("answer", "right", "success"),
    [
        (12.5, 12.5, True), ("12.5", 12.5, True), ("12.50", 12.5, True), (12, 12.0, True),
        ("12", 12, True), ("x", 12, False), (None, 12, False), (True, 1, False),
        (1, True, False), ("True", True, False), ("1", True, False), (True, True, True),
        ("BA-7", "BA-7", True), ("ba-7", "BA-7", False), (7, "7", False), ([1], [1], True),
        ([1, 2], [2, 1], False), ({"a": 1}, {"a": 1}, True), ("", "", True), ("nan", 1, False),
    ],
)  # fmt: skip
def test_answers(answer, right, success):
    verdict = judged(answer, right=right)
    assert verdict.success is success
    assert verdict.reasons == (() if success else (f"answer {answer!r} is not {right!r}",))


def test_deadline_and_everything_that_is_missing():
    assert judged(12.5, seconds=10.0, deadline=10.0).success
    late = judged("x", seconds=10.5, deadline=10.0)
    assert late.reasons == ("finished at 10.5 s, after 10 s", "answer 'x' is not 12.5")
    assert judged(12.5, right=None).reasons == ("nothing at 'right' that could be answered",)


# ---- by name ---------------------------------------------------------------------------------


def test_environments_by_name(fresh_names):
    for name in ("chain", "travel", "blocks"):
        assert get_environment(name).name == name
        assert get_environment(name) is get_environment(name)
    with pytest.raises(UnknownNameError, match="unknown environment 'lamp'"):
        get_environment("lamp")
    lamps = Lamps()
    register_environment(lamps)
    assert get_environment("lamps") is lamps
    with pytest.raises(UnknownNameError, match="did you mean 'lamps'"):
        get_environment("lamp")


def test_an_environment_without_its_functions_is_none():
    with pytest.raises(TypeError, match="apply"):
        type("Nothing", (Environment,), {})()
