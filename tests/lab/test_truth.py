"""Whoever knew the truth knows it again once a false result is put right, whatever was made up."""

from __future__ import annotations

from random import Random

import pytest

import agentlab as al
from agentlab.base.documents import composed, merge_patch
from agentlab.environments.fault_plan import SPOILS_RESULT
from agentlab.trace.journal import Address

WORLDS = ("chain", "travel", "blocks", "workshop")
SILENT = (*sorted(SPOILS_RESULT), "error", "timeout_after_commit")


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", SILENT)
def test_the_belief_is_the_world_again_after_the_correction(name, kind):
    """Walk at random with faults of one kind; what is false is taken back each time."""
    false = 0
    for seed in range(12):
        scenario = al.load_suite(name)[seed]
        faults = al.FaultPlan(kinds={kind: 1}, visibility={"silent": 1})
        lab = al.Lab(scenario, strategy="never", seed=seed, fault_rate=0.7, faults=faults)
        environment, rng = lab.environment, Random(seed)
        state = lab.initial_state()
        state = state.put(belief=state.world)
        for _ in range(12):
            calls = list(environment.moves(state.world, scenario.goal))
            if not calls:
                break
            call, before = rng.choice(calls), len(state.delivered)
            state, _, _ = lab.call(state, Address(0), call.tool, call.arguments)
            told = state.belief
            for struck in state.delivered[before:]:
                state = state.put(belief=merge_patch(state.belief, struck.truth))
            assert state.belief == state.world, (call, list(state.delivered)[-1])
            false += told != state.world
    hides = kind in ("error", "wrong_result", "timeout_after_commit")
    assert not hides or false > 10  # and there was something to put right


def test_an_object_that_a_false_result_made_up_is_unlearnt():
    scenario = al.load_suite("travel")[0]
    made_up = 0
    for seed in range(40):
        faults = al.FaultPlan(kinds={"wrong_result": 1}, visibility={"silent": 1})
        lab = al.Lab(scenario, strategy="never", seed=seed, fault_rate=1.0, faults=faults)
        state = lab.initial_state()
        call = next(iter(lab.environment.moves(state.world, scenario.goal)))
        state, _, _ = lab.call(state, Address(0), call.tool, call.arguments)
        kinds = ("flights", "trains", "hotels", "seen")
        extra = {k: state.belief[k].keys() - state.world[k].keys() for k in kinds}
        made_up += any(extra.values())
        right = merge_patch(state.belief, state.delivered[0].truth)
        assert all(right[k].keys() <= state.world[k].keys() for k in kinds)
    assert made_up >= 5


@pytest.mark.parametrize("seed", range(40))
def test_a_composed_patch_does_what_both_do(seed):
    rng = Random(seed)

    def document(depth: int, nulls: bool) -> dict[str, object]:
        leaves = [1, "x", [2], True, *([None, None] if nulls else [])]
        return {
            k: document(depth - 1, nulls) if depth and rng.random() < 0.5 else rng.choice(leaves)
            for k in "abcd"
            if rng.random() < 0.7
        }

    for _ in range(50):
        target, first, then = document(2, False), document(2, True), document(2, True)
        # where the first puts a leaf, the second may not reach inside: a patch cannot say both
        both = merge_patch(merge_patch(target, first), then)
        if _clash(first, then):
            continue
        assert merge_patch(target, composed(first, then)) == both


def _clash(first: object, then: object) -> bool:
    if isinstance(first, dict) and isinstance(then, dict):
        return any(_clash(first[k], then[k]) for k in first.keys() & then.keys())
    return isinstance(then, dict)
