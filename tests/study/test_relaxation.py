"""The quick proof that a goal is out of reach: what it says, and when it may say it."""

from __future__ import annotations

from itertools import product

import pytest

import agentlab as al
from agentlab.environments.base import Call
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import FaultPlan, Outage, WorldEvent
from agentlab.study.definition import PRESETS
from agentlab.study.reach import Reach
from agentlab.study.relaxation import doomed, final, out_of_reach
from agentlab.trace.journal import Address

PERMANENT = FaultPlan(persistence={"permanent": 1})


def started(scenario: al.Scenario, faults: FaultPlan, seed: int = 0, rate: float = 0.0):
    lab = al.Lab(scenario, strategy="never", seed=seed, fault_rate=rate, faults=faults)
    return lab, lab.initial_state()


@pytest.mark.parametrize("name", ["chain", "travel", "blocks", "workshop"])
def test_what_is_doomed_breaks_its_tool_before_it_takes_effect(name):
    """By making the calls: the first moves of every scenario, as often as it takes."""
    met = set()
    for scenario, seed in product(al.load_suite(name)[::4], range(8)):
        plan = FaultPlan(persistence={"permanent": 1, "transient": 1})
        lab, first = started(scenario, plan, seed, 0.5)
        for call in lab.environment.moves(first.world, scenario.goal):
            state = first
            while state.world is first.world and call.tool not in state.standing:
                state, _, _ = lab.call(state, Address(0), call.tool, call.arguments)
            broken = state.world is first.world
            assert doomed(first, call) is broken
            met.add(broken)
    assert met == {False, True}


@pytest.mark.parametrize("name", ["chain", "travel", "blocks", "workshop"])
def test_what_is_out_of_reach_is_not_reached(name):
    said = 0
    for scenario, seed in product(al.load_suite(name)[::5], range(6)):
        for plan in (PERMANENT, PRESETS["permanent"]):
            lab, first = started(scenario, plan, seed, 0.3)
            if out_of_reach(lab.environment, scenario.goal, first):
                said += 1
                assert Reach(lab, first, 600).run().success is not True
    assert said > 3


def test_where_blocks_can_be_moved_without_end_it_decides_what_a_search_cannot():
    scenario = al.load_suite("blocks")["blocks-easy-005"]
    assert scenario.goal.conditions["seals"]
    broken = [al.TargetedFault(tool=t, persistence="permanent") for t in ("weld", "bolt")]
    lab, first = started(scenario, FaultPlan(targets=broken))
    assert Reach(lab, first, 2000).run().success is None
    assert out_of_reach(lab.environment, scenario.goal, first)


RESCUES = [
    FaultPlan(kinds={"error": 1, "latency_spike": 1}, persistence={"permanent": 1}),
    FaultPlan(kinds={"error": 1, "wrong_result": 1}, persistence={"permanent": 1}),
    FaultPlan(persistence={"permanent": 1, "until": 1}),
    FaultPlan(kinds={"error": 1, "rate_limit": 1}, persistence={"permanent": 1, "transient": 1}),
    FaultPlan(kinds={"error": 1, "world_change": 1}, persistence={"permanent": 1}),
]


@pytest.mark.parametrize("plan", RESCUES)
def test_it_proves_nothing_where_a_doomed_call_can_be_rescued(plan):
    assert not final(plan.replace(rate=0.5))
    assert final(PERMANENT.replace(rate=0.5))
    assert final(plan)  # at rate 0 nothing happens


def test_a_passing_outage_lets_draws_be_used_up():
    scenario = generate("easy", 0)
    call = Call("advance", {"stage": scenario.world["stages"][0], "token": "start"})
    target = al.TargetedFault(tool="advance", occurrence=0, persistence="permanent")
    outage = Outage(name="o", tool="advance", seconds=5.0)
    assert doomed(started(scenario, FaultPlan(targets=[target]))[1], call)
    assert not doomed(started(scenario, FaultPlan(targets=[target], outages=[outage]))[1], call)
    later = target.replace(after=3.0)
    assert not doomed(started(scenario, FaultPlan(targets=[later]))[1], call)


def test_what_the_world_does_by_itself_may_help():
    scenario = generate("easy", 0)
    n = len(scenario.world["stages"])
    broken = [
        al.TargetedFault(tool=t, persistence="permanent") for t in ("advance", "advance_slowly")
    ]
    lab, first = started(scenario, FaultPlan(targets=broken))
    assert out_of_reach(lab.environment, scenario.goal, first)
    event = WorldEvent(name="e", patch={"done": n}, between=(2.0, 2.0), chance=1.0)
    lab, first = started(scenario, FaultPlan(targets=broken, events=[event]))
    assert not out_of_reach(lab.environment, scenario.goal, first)
    unasked = scenario.replace(goal=scenario.goal.replace(answer=None))
    lab, first = started(unasked, FaultPlan(targets=broken, events=[event]))
    found = Reach(lab, first, 100).run()
    assert (found.success, found.state.now) == (True, 2.0)


@pytest.mark.parametrize("name", ["chain", "travel", "blocks", "workshop"])
def test_nothing_is_out_of_reach_while_nothing_fails(name):
    for scenario in al.load_suite(name):
        lab, first = started(scenario, PERMANENT)
        assert not out_of_reach(lab.environment, scenario.goal, first), scenario.id
