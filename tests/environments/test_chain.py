"""``chain``: the rules of the tools, the frozen suite, and its reference plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agentlab as al
from agentlab.base.documents import merge_patch
from agentlab.environments.base import Call, Evidence, no_op
from agentlab.environments.chain import LENGTHS, generate, suite
from agentlab.environments.check import check_environment
from agentlab.environments.named import get_environment
from agentlab.environments.suites import read_suite, write_suite

CHAIN = get_environment("chain")
SUITE = suite()
FROZEN = Path(__file__).parents[2] / "datasets" / "chain.jsonl"
each = pytest.mark.parametrize("scenario", SUITE, ids=lambda s: s.id)


def test_frozen(tmp_path):
    write_suite(SUITE, tmp_path / "chain.jsonl")
    assert FROZEN.read_bytes() == (tmp_path / "chain.jsonl").read_bytes()
    assert list(read_suite(FROZEN)) == list(SUITE)
    assert [s.difficulty for s in SUITE] == ["easy"] * 7 + ["medium"] * 7 + ["hard"] * 6


@each
def test_contract_and_floor(scenario):
    check_environment(CHAIN, scenario)
    assert not no_op(CHAIN, scenario).success


def resolved(value, results):
    reference = re.fullmatch(r"\$\{(\w+)\.(\w+)\}", value)
    return results[reference[1]][reference[2]] if reference else value


@pytest.mark.parametrize("tool", ["advance", "advance_slowly"])
@each
def test_reference(scenario, tool):
    world = belief = initial = CHAIN.initial(scenario)
    results, left = {}, LENGTHS[scenario.difficulty]
    for step in scenario.reference.steps:
        assert step.tool == "advance"
        call = Call(tool, {k: resolved(v, results) for k, v in step.arguments.items()})
        assert call in list(CHAIN.candidates(world, scenario.goal))
        assert CHAIN.estimate(scenario.goal, world) == left
        assert CHAIN.unmet(scenario.goal, world)
        outcome = CHAIN.apply(world, call)
        assert outcome.error is None
        world, belief = outcome.world, merge_patch(belief, outcome.learned)
        assert belief == world
        results[step.step_id] = outcome.result
        left -= 1
    assert (left, CHAIN.key(world)) == (0, len(scenario.reference.steps))
    assert [*CHAIN.candidates(world, scenario.goal)] == []
    answer = resolved(scenario.reference.answer, results)
    assert CHAIN.check(scenario.goal, Evidence(initial, world, answer=answer)).success
    for wrong in (None, "start"):
        assert not CHAIN.check(scenario.goal, Evidence(initial, world, answer=wrong)).success


def test_the_slow_way_takes_three_times_as_long():
    world = CHAIN.initial(SUITE[0])
    quick, slow = (CHAIN.begin(world, c).seconds for c in CHAIN.candidates(world, SUITE[0].goal))
    assert slow == 3 * quick


def test_refusals():
    world = CHAIN.initial(SUITE[0])
    first, second, _ = world["stages"]
    tokens = world["tokens"]
    cases = {
        ("no such", "start"): "unknown_stage",
        (second, "start"): "out_of_turn",
        (first, tokens[first]): "wrong_token",  # true, but of another stage
        (first, ""): "wrong_token",
    }
    for (stage, token), code in cases.items():
        outcome = CHAIN.apply(world, Call("advance", {"stage": stage, "token": token}))
        assert (outcome.error.code, outcome.world) == (code, world)
        assert merge_patch(world, outcome.learned) == world
    after = CHAIN.apply(world, Call("advance", {"stage": first, "token": "start"})).world
    again = CHAIN.apply(after, Call("advance", {"stage": first, "token": "start"}))
    taught = {"done": 1, "seen": {tokens[first]: True}}
    assert (again.error.code, again.learned) == ("out_of_turn", taught)
    assert tokens[first] in again.error.message


def test_a_timeout_after_commit_is_no_dead_end():
    first = SUITE[0].reference.steps[0].arguments
    lost = {"tool": "advance", "arguments": first, "kind": "timeout_after_commit"}
    lab = al.Lab(SUITE[0], strategy="on_error", faults=al.FaultPlan(targets=[lost]))
    run = al.autonomous.start(lab)
    run.finish()
    codes = [c.error and c.error.code for c in run.state.calls]
    assert codes == ["timeout", "out_of_turn", None, None]
    assert run.verdict.success


def test_the_second_stage_wants_the_token_of_the_first():
    world = CHAIN.initial(SUITE[0])
    first, second, _ = world["stages"]
    tokens = world["tokens"]
    after = CHAIN.apply(world, Call("advance", {"stage": first, "token": "start"})).world
    for token, code in (("start", "wrong_token"), (tokens[first], None)):
        error = CHAIN.apply(after, Call("advance", {"stage": second, "token": token})).error
        assert (error and error.code) == code


def test_a_token_has_to_be_handed_out_first():
    world = CHAIN.initial(SUITE[0])
    first, second, _ = world["stages"]
    unread = {**world, "done": 1}
    call = Call("advance", {"stage": second, "token": world["tokens"][first]})
    assert CHAIN.apply(unread, call).error.code == "wrong_token"


@pytest.mark.parametrize("length", [1, 6, 12])
def test_length(length):
    scenario = generate("medium", 5, length=length)
    assert scenario.id == f"chain-{length}-005"
    assert len(scenario.world["stages"]) == len(scenario.reference.steps) == length
    check_environment(CHAIN, scenario)


def test_the_same_seed_gives_the_same_scenario():
    assert generate("hard", 1) == generate("hard", 1) != generate("hard", 2)
