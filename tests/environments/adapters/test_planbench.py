"""PlanBench's blocksworld: gold plans are carried out, and found to be optimal by search."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

import agentlab as al
from agentlab.environments.adapters.planbench import (
    CONFIG,
    GOLD,
    PROBLEM,
    load_planbench,
    parse_problem,
)
from agentlab.environments.base import Call, Evidence, no_op
from agentlab.environments.check import check_environment
from agentlab.environments.named import get_environment
from agentlab.environments.scenario import Goal, Scenario
from agentlab.errors import ScenarioError
from agentlab.minds.planners.search import shortest_plan

DATA = Path(__file__).parents[4] / "shared" / "data" / "planbench"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="PlanBench's data is not there")
WORLD = get_environment("blocksworld")


@pytest.fixture(scope="module")
def planbench():
    return load_planbench(DATA)


@needs_data
def test_every_gold_plan_reaches_its_goal_and_doing_nothing_does_not(planbench):
    assert Counter(len(s.reference.steps) for s in planbench) == {
        2: 30, 4: 56, 6: 114, 8: 139, 10: 113, 12: 46, 14: 1, 16: 1,
    }  # fmt: skip
    for scenario in planbench:
        world = initial = WORLD.initial(scenario)
        assert not no_op(WORLD, scenario).success
        for step in scenario.reference.steps:
            outcome = WORLD.apply(world, Call(step.tool, step.arguments))
            assert outcome.error is None
            world = outcome.world
        assert WORLD.check(scenario.goal, Evidence(initial, world)).success


@needs_data
def test_search_finds_gold_length_500_times(planbench):
    started = time.perf_counter()
    found = [len(shortest_plan(WORLD, s.goal, WORLD.initial(s))) for s in planbench]
    assert time.perf_counter() - started < 20
    assert found == [len(s.reference.steps) for s in planbench]
    assert len(found) == 500


@needs_data
def test_scenarios(planbench):
    scenario = planbench["planbench-002"]
    assert scenario.world == {
        "on": {"red": "blue", "blue": "table", "orange": "table", "yellow": "orange"}
    }
    assert scenario.goal.conditions == {"on": {"orange": "red"}}
    assert scenario.reference.steps[0].arguments == {"block": "yellow", "off": "orange"}
    assert list(load_planbench(DATA / "plan-bench")) == list(planbench)
    for scenario in planbench[::100]:
        check_environment(WORLD, scenario)


# ---- files that say something else ------------------------------------------------------------

GOOD = "(define (problem p) (:objects a b) (:init (ontable a) (on b a)) (:goal (and (on a b))))"


@pytest.fixture
def checkout(tmp_path):
    """Return a checkout with one problem."""
    plan = "(unstack blue red)\n(put-down blue)\n(pick-up red)\n(stack red blue)\n"
    gold = {"instances": [{"instance_id": 7, "ground_truth_plan": plan}]}
    files = {
        CONFIG: 'encoded_objects: {"a": "red block", "b": "blue block"}',
        GOLD: json.dumps(gold),
        PROBLEM.format(7): GOOD,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


def test_a_small_checkout(checkout):
    (scenario,) = load_planbench(checkout)
    assert (scenario.id, scenario.difficulty) == ("planbench-007", "easy")
    check_environment(
        WORLD, scenario, [Call(s.tool, s.arguments) for s in scenario.reference.steps]
    )


PROBLEM_7 = PROBLEM.format(7)
BAD_FILES = [
    (CONFIG, "objects: 3", "blocksworld.yaml: expected a map 'encoded_objects'"),
    (CONFIG, "a: [", "blocksworld.yaml: expected a map"),
    (GOLD, "{", "task_1_plan_generation.json: expected a JSON object with a list 'instances'"),
    (GOLD, '{"instances": [{}]}', r"instances\[0\]: expected 'instance_id' and"),
    (GOLD, "(fly red)", r"instance 7, line 1: expected one of pick-up.* got '\(fly red\)'"),
    (GOLD, "(stack red)", r"expected one of .* got '\(stack red\)'"),
    (GOLD, "(pick-up pink)", "on the blocks red, blue, got"),
    (PROBLEM_7, GOOD[:-1], "instance-7.pddl: expected one PDDL expression"),
    (PROBLEM_7, GOOD + ")", "too many"),
    (PROBLEM_7, "(define)", r"expected a PDDL problem with a section \(:objects ...\)"),
    (PROBLEM_7, GOOD.replace("(on b a)", ""), "expected a place in :init for b"),
    (PROBLEM_7, GOOD.replace("(on b a)", "(on b c)"), r"got \['on', 'b', 'c'\]"),
    (PROBLEM_7, GOOD.replace("(on a b)", "(clear a)"), "expected atoms over on and ontable"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD_FILES)
def test_bad_files_are_named(checkout, name, text, message):
    if name == GOLD and text.startswith("("):
        text = json.dumps({"instances": [{"instance_id": 7, "ground_truth_plan": text}]})
    (checkout / name).write_text(text)
    with pytest.raises(ScenarioError, match=message):
        load_planbench(checkout)


def test_missing_files_are_named(checkout):
    with pytest.raises(ScenarioError, match=r"nowhere.*blocksworld.yaml: cannot be read.*checkout"):
        load_planbench(checkout / "nowhere")
    (checkout / PROBLEM_7).unlink()
    with pytest.raises(ScenarioError, match=r"instance-7\.pddl: cannot be read"):
        load_planbench(checkout)


def test_pddl_as_it_comes():
    text = """; a comment (with brackets
    (DEFINE (problem x) (:objects a b c) (:init (handempty) (holding A) (clear b)
      (ontable b) (on c b)) ; c on b
      (:goal (and (ontable c) (on a c))))"""
    on, wanted = parse_problem(text, "x")
    assert on == {"a": "arm", "b": "table", "c": "b"}
    assert wanted == {"c": "table", "a": "c"}


PDDL = """(define (problem p) (:objects a b c) (:init (handempty) {init}
    (ontable b) (ontable c) (clear a) (clear b) (clear c)) (:goal (and {goal})))"""


@pytest.mark.parametrize(
    "atoms", ["(on a b) (on a c)", "(on a c) (on a b)", "(ontable a) (on a b)"]
)
def test_a_goal_with_a_block_in_two_places_keeps_both_and_cannot_be_reached(atoms):
    on, wanted = parse_problem(PDDL.format(init="(ontable a)", goal=atoms), "p")
    assert len(wanted["a"]) == 2
    goal = Goal(conditions={"on": wanted})
    scenario = Scenario(id="p", environment="blocksworld", task="t", world={"on": on}, goal=goal)
    run = al.autonomous.start(al.Lab(scenario, planner="search", strategy="never"))
    run.finish()
    assert not run.verdict.success
    for place in ("b", "c", "table"):  # wherever it lies, one of the two is not met
        assert WORLD.unmet(goal, {"on": {**on, "a": place}})
    assert shortest_plan(WORLD, goal, scenario.world) is None


def test_an_atom_said_twice_is_one():
    _, wanted = parse_problem(PDDL.format(init="(ontable a)", goal="(on a b) (on a b)"), "p")
    assert wanted == {"a": "b"}


def test_a_block_begins_in_one_place():
    with pytest.raises(ScenarioError, match="expected one place in :init for a, got table, b"):
        parse_problem(PDDL.format(init="(ontable a) (on a b)", goal="(on a b)"), "p")
