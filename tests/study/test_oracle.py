"""The oracle is an upper bound: what it loses, nobody could have won from where it was lost.

It knows of every fault once it has struck, and of none before. So it may break a tool that would
have been needed later. It must never stop while there is a way left.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

import agentlab as al
from agentlab.environments.fault_plan import FaultPlan, WorldEvent
from agentlab.study.controls import ceiling
from agentlab.study.definition import PRESETS
from agentlab.study.reach import Reach

ALL = {
    "error": 3, "timeout": 1, "timeout_after_commit": 2, "wrong_result": 2, "empty_result": 1,
    "partial_result": 1, "renamed_field": 1, "latency_spike": 1,
}  # fmt: skip
PLANS: dict[str, FaultPlan | None] = {
    **PRESETS,
    "lasting": FaultPlan(
        kinds=ALL, visibility={"silent": 1, "announced": 1},
        persistence={"permanent": 1, "transient": 2},
    ),
}  # fmt: skip
WORLDS = ("chain", "travel", "blocks", "workshop")


def ran(scenario: al.Scenario, strategy: str, seed: int, rate: float, faults: FaultPlan | None):
    lab = al.Lab(
        scenario, planner="search", strategy=strategy, seed=seed, fault_rate=rate, faults=faults
    )
    run = al.autonomous.start(lab)
    run.finish()
    return lab, run


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("plan", PLANS)
def test_what_the_oracle_lost_could_not_be_won_any_more(name, plan):
    """What is hidden in the world is not the oracle's to know: scenarios without a deadline."""
    counts: Counter[str] = Counter()
    for scenario, rate, seed in product(al.load_suite(name)[::6], (0.1, 0.3, 0.5), range(2)):
        if scenario.goal.deadline is not None:
            continue
        lab, run = ran(scenario, "oracle", seed, rate, PLANS[plan])
        if run.verdict.success:
            counts["won"] += 1
            continue
        end = run.state
        if not lab.environment.unmet(scenario.goal, end.world):  # all is done but for the answer,
            lies = [c for c in end.calls if c.error is None and not c.committed]
            if lies:  # which a call that did nothing may have told, and nobody could know that
                counts["lied to"] += 1
                continue
        found = Reach(lab, end, 2000).run().success
        assert not found, (scenario.id, rate, seed, run.state.stopped_by, run.verdict.reasons)
        counts["lost" if found is False else "unknown"] += 1
    assert counts["won"] > (0.2 if plan == "permanent" else 0.6) * counts.total()
    assert counts["unknown"] + counts["lied to"] <= 0.25 * counts.total()


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["transient", "announced", "silent"])
@pytest.mark.parametrize("name", ["travel", "blocks", "workshop"])
def test_no_arm_wins_where_the_oracle_loses_while_no_tool_breaks(name, plan):
    """Nor does it lose where the ceiling is known to be 1."""
    for scenario, rate, seed in product(al.load_suite(name)[::7], (0.3, 0.5), range(2)):
        if scenario.goal.deadline is not None or scenario.hidden:
            continue
        _, run = ran(scenario, "oracle", seed, rate, PLANS[plan])
        if run.verdict.success:
            continue
        assert not ceiling(scenario, seed, rate, PLANS[plan]).success, (scenario.id, rate, seed)
        for other in ("retry(3)", "on_error(20)", "retry_then_replan(1, replans=20)"):
            assert not ran(scenario, other, seed, rate, PLANS[plan])[1].verdict.success


# ---- what it knows ---------------------------------------------------------------------------


def struck(chain, *targets: al.TargetedFault, tool: str = "advance"):
    scenario = chain(3)
    faults = FaultPlan(targets=targets)
    return ran(scenario, "oracle", 0, 0.0, faults)[1]


def test_a_call_that_silently_did_nothing_is_made_again(chain):
    fault = al.TargetedFault(tool="advance", occurrence=0, visibility="silent")
    run = struck(chain, fault)
    assert run.verdict.success
    assert [c.tool for c in run.state.calls] == ["advance"] * 6  # each stage twice
    assert not run.state.replan_history


def test_a_tool_that_silently_does_nothing_for_good_is_known_to_be_broken(chain):
    fault = al.TargetedFault(tool="advance", persistence="permanent", visibility="silent")
    run = struck(chain, fault)
    assert run.verdict.success
    assert [c.tool for c in run.state.calls] == ["advance"] + ["advance_slowly"] * 3
    (failure,) = run.state.failures
    assert (failure.tool, failure.code, failure.permanent) == ("advance", "unavailable", True)
    assert len(run.state.replan_history) == 1
    before = run.state.replan_history[0].before
    assert before.steps[0].status == "failed"


@pytest.mark.parametrize("kind", ["timeout_after_commit", "wrong_result"])
def test_a_tool_that_takes_effect_in_spite_of_its_fault_is_not_broken(chain, kind):
    """Its errors say that it is; the oracle knows better, and the slow way is broken."""
    faults = [
        al.TargetedFault(
            tool="advance", arguments={"stage": stage}, kind=kind, persistence="permanent"
        )
        for stage in chain(3).world["stages"][:1]
    ]
    slow = al.TargetedFault(tool="advance_slowly", persistence="permanent")
    scenario = chain(3)
    scenario = scenario.replace(goal=scenario.goal.replace(answer=None))
    run = ran(scenario, "oracle", 0, 0.0, FaultPlan(targets=[*faults, slow]))[1]
    assert run.verdict.success, run.verdict.reasons
    assert {c.tool for c in run.state.calls if c.committed} == {"advance"}


def test_a_false_result_is_a_failure_that_is_known(chain):
    fault = al.TargetedFault(tool="advance", occurrence=0, kind="wrong_result", visibility="silent")
    run = ran(chain(3), "oracle", 0, 0.0, FaultPlan(targets=[fault]))[1]
    assert run.state.belief == run.state.world
    (first, *_) = run.state.failures
    assert (first.tool, first.code, first.permanent) == ("advance", "malformed_result", False)


def test_the_oracle_is_told_what_the_world_did_unseen():
    """The cheapest hotel is sold out while the agent looks at it, and nobody says so."""
    scenario = al.load_suite("travel")["travel-easy-000"]
    plain = ran(scenario, "oracle", 0, 0.0, FaultPlan())[1]
    booked = next(c.arguments["hotel_id"] for c in plain.state.calls if c.tool == "book_hotel")
    gone = WorldEvent(
        name="gone", patch={"hotels": {booked: {"rooms": 0}}}, between=(1.0, 1.0), chance=1.0
    )
    run = ran(scenario, "oracle", 0, 0.0, FaultPlan(events=[gone]))[1]
    assert run.verdict.success
    assert not any(c.error for c in run.state.calls)  # it never tried to book it
    assert run.state.replan_history[0].decision.reasoning == "unseen: gone"
