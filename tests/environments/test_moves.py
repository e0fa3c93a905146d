"""Moves: all that can be done towards a goal, of which candidates are the quickest part."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import pytest

import agentlab as al
from agentlab.base.documents import canonical
from agentlab.environments.base import Call, Environment, holds
from agentlab.environments.named import get_environment

WORLDS = ("chain", "travel", "blocks", "blocksworld", "workshop")


def scenarios(name: str) -> list[al.Scenario]:
    if name == "blocksworld":  # the same worlds, without what blocks adds
        return [
            s.replace(environment=name, goal=al.Goal(conditions={"on": s.goal.conditions["on"]}))
            for s in al.load_suite("blocks")[:20]
        ]
    return list(al.load_suite(name))[:24]


def walks(name: str):
    """Walk at random along the moves; yield the environment, the goal and each world."""
    for seed, scenario in enumerate(scenarios(name)):
        environment, rng = get_environment(name), Random(seed)
        world = environment.initial(scenario)
        for _ in range(15):
            yield environment, scenario.goal, world
            calls = list(environment.moves(world, scenario.goal))
            if not calls:
                break
            call = rng.choice(calls)
            world = environment.apply(world, call).world


@pytest.mark.parametrize("name", WORLDS)
def test_every_move_is_carried_out_and_changes_no_world_that_is_given(name):
    for environment, goal, world in walks(name):
        text = canonical(world)
        calls = list(environment.moves(world, goal))
        assert canonical(world) == text
        for call in calls:
            assert not environment.registry[call.tool].check(call.arguments)
            assert environment.apply(world, call).error is None, call
            assert calls.count(call) == 1


@pytest.mark.parametrize("name", WORLDS)
def test_every_candidate_that_is_carried_out_is_a_move(name):
    for environment, goal, world in walks(name):
        if not environment.unmet(goal, world):
            continue
        for call in environment.candidates(world, goal):
            if environment.apply(world, call).error is None:
                assert call in list(environment.moves(world, goal)), call


@pytest.mark.parametrize("name", ["blocks", "blocksworld"])
def test_every_way_to_move_a_block_is_a_move(name):
    """Of all calls on all pairs, those that the world carries out and that move a block."""
    for environment, goal, world in walks(name):
        names = list(world["tags"].values() if name == "blocks" else world["on"])
        calls = [Call(t, {"block": b}) for t in ("pick_up", "put_down") for b in names]
        calls += [
            Call(tool, {"block": b, key: other})
            for (tool, key), (b, other) in product(
                (("stack", "onto"), ("unstack", "off")), permutations(names, 2)
            )
        ]
        if name == "blocks":
            calls += [Call("crane_move", {"block": b}) for b in names]
            calls += [
                Call("crane_move", {"block": b, "onto": o}) for b, o in permutations(names, 2)
            ]
        fine = {
            repr(call)
            for call in calls
            if (done := environment.apply(world, call)).error is None
            and done.world["on"] != world["on"]
        }
        moves = {repr(c) for c in environment.moves(world, goal) if "block" in c.arguments}
        assert moves == fine


@pytest.mark.parametrize("name", ["chain", "workshop"])
def test_a_move_that_uses_nothing_up_leaves_all_others_but_its_like(name):
    """Made first or last, the others can still be made, and both orders end in the same world."""
    met = 0
    for environment, goal, world in walks(name):
        calls = list(environment.moves(world, goal))
        for call in calls:
            if environment.uses_up(call):
                continue
            after = environment.apply(world, call).world
            later = list(environment.moves(after, goal))
            for other in calls:
                if other != call and other in later:
                    here = environment.apply(after, other).world
                    there = environment.apply(environment.apply(world, other).world, call)
                    if there.error is None:
                        assert environment.key(here) == environment.key(there.world)
                        met += 1
    assert met > 100 or name == "chain"


def test_a_hotel_may_be_paid_for_longer_than_is_needed_as_far_as_the_money_goes():
    environment, scenario = get_environment("travel"), al.load_suite("travel")["travel-easy-000"]
    (need,) = scenario.goal.conditions["stays"]
    world = environment.initial(scenario)
    world = environment.apply(world, Call("search_hotels", {"city": need["city"]})).world
    nights = {
        (c.arguments["hotel_id"], c.arguments["nights"])
        for c in environment.moves(world, scenario.goal)
        if c.tool == "book_hotel"
    }
    assert nights == {
        (i, n)
        for i, hotel in world["hotels"].items()
        for n in range(need["nights"], 31)
        if hotel["city"] == need["city"] and hotel["stars"] >= need["stars"]
        and hotel["price"] * n <= world["budget"]
    }  # fmt: skip
    assert max(n for _, n in nights) > need["nights"]


@pytest.mark.parametrize(
    ("result", "right", "held"),
    [
        ({"a": [{"b": "x"}]}, "x", True), ({"a": "x and y"}, "x", False), (None, "x", False),
        ({"n": 3}, 3.0, True), ({"n": "3"}, 3, True), ({"n": True}, 1, False),
        ({"x": 1}, "x", False), ([[1], {"a": [2]}], [2], True),
    ],
)  # fmt: skip
def test_a_result_holds_what_stands_in_it_as_a_value(result, right, held):
    assert holds(result, right) is held


def test_an_environment_knows_no_moves_unless_it_says_so():
    assert Environment.moves(get_environment("chain"), {}, al.Goal()) is None
