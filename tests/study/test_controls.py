"""Floor and ceiling on cases worked by hand, and against brute force on short chains."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import digest
from agentlab.base.randomness import choose, uniform
from agentlab.environments.base import Call, Environment, Outcome
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import Outage
from agentlab.environments.scenario import ReferencePlan, ReferenceStep
from agentlab.study.controls import ceiling, floor
from agentlab.tools.tool import Tool

TOOLS = ("advance", "advance_slowly")


def broken(tool: str, stage: str, **fields: Any) -> al.TargetedFault:
    """Return a fault that breaks a tool for good when it is used on a stage."""
    fields = {"persistence": "permanent", **fields}
    return al.TargetedFault(tool=tool, arguments={"stage": stage}, **fields)


@pytest.fixture(scope="module")
def three():
    """Three stages, and their names."""
    scenario = generate("medium", 0, length=3)
    return scenario, scenario.world["stages"]


def top(scenario: al.Scenario, *targets: al.TargetedFault, rate: float = 0.0, **options: Any):
    return ceiling(scenario, 0, rate, al.FaultPlan(targets=targets), **options)


def test_without_faults_the_ceiling_is_the_quickest_way(three):
    found = top(three[0])
    assert (found.success, found.seconds, found.found_by) == (True, 3.0, "witness")


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("visibility", ["announced", "silent"])
def test_a_stage_that_every_tool_fails_at_for_good_is_a_dead_end(three, at, visibility):
    scenario, stages = three
    targets = [broken(tool, stages[at], visibility=visibility) for tool in TOOLS]
    found = top(scenario, *targets)
    assert (found.success, found.seconds, found.found_by) == (False, None, "search")


@pytest.mark.parametrize("visibility", ["announced", "silent"])
def test_a_broken_tool_is_gone_round(three, visibility):
    scenario, stages = three
    found = top(scenario, broken("advance", stages[1], visibility=visibility))
    assert found.success
    assert found.found_by == "witness"
    assert found.seconds >= 1 + 3 + 1


@pytest.mark.parametrize("tool", TOOLS)
def test_the_first_try_is_not_the_last(three, tool):
    """Passing faults on both tools, again and again: someone patient gets through."""
    scenario, stages = three
    targets = [
        broken(t, stages[1], persistence="transient", occurrence=n) for t in TOOLS for n in range(3)
    ]
    assert top(scenario, *targets).success


def test_only_search_knows_that_a_tool_must_be_spared(three):
    """``advance`` breaks at the second stage, and the third needs it: use it only there."""
    scenario, stages = three
    found = top(scenario, broken("advance", stages[1]), broken("advance_slowly", stages[2]))
    assert (found.success, found.seconds, found.found_by) == (True, 1.0 + 3.0 + 1.0, "search")


def test_only_search_loses_no_time_before_a_deadline(three):
    scenario, stages = three
    goal = scenario.goal.replace(deadline=5.0)
    fault = broken("advance", stages[0])
    found = top(scenario.replace(goal=goal), fault)  # the witness tries again, and waits
    assert (found.success, found.seconds, found.found_by) == (True, 3.0 + 1.0 + 1.0, "search")
    late = top(scenario.replace(goal=goal.replace(deadline=4.9)), fault)
    assert (late.success, late.found_by) == (False, "search")


def test_what_took_effect_counts_whatever_was_told(three):
    """A timeout after the commit: the stage is done, and who asks again loses time."""
    scenario, stages = three
    faults = [
        broken("advance", stages[1], persistence="transient", kind="timeout_after_commit"),
        broken("advance_slowly", stages[1]),
    ]
    goal = scenario.goal.replace(deadline=1.0 + 30.0 + 1.0)
    found = top(scenario.replace(goal=goal), *faults)
    assert (found.success, found.seconds, found.found_by) == (True, 32.0, "search")


def test_an_outage_of_one_tool_is_gone_round_and_of_both_is_the_end(three):
    scenario, _ = three
    for_ever = al.FaultPlan(outages=[Outage(name=t, tool=t) for t in TOOLS])
    assert ceiling(scenario, 0, 0.0, for_ever).success is False
    one = al.FaultPlan(outages=[Outage(name="o", tool="advance")])
    found = ceiling(scenario, 0, 0.0, one)
    assert (found.success, found.found_by) == (True, "witness")


def test_at_its_cap_the_ceiling_is_unknown(three):
    scenario, stages = three
    targets = [broken("advance", stages[1]), broken("advance_slowly", stages[2])]
    unknown = top(scenario, *targets, cap=1)
    assert (unknown.success, unknown.seconds, unknown.found_by) == (None, None, "search")
    assert top(scenario, *targets, cap=10).success


@pytest.mark.parametrize("persistence", ["transient", "permanent", "until"])
@pytest.mark.parametrize("visibility", ["announced", "silent"])
def test_where_every_call_fails_nothing_is_reached(three, persistence, visibility):
    faults = al.FaultPlan(persistence={persistence: 1}, visibility={visibility: 1})
    assert ceiling(three[0], 0, 1.0, faults).success is False


# ---- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["timeout_after_commit", "partial_result"])
def test_an_answer_that_no_result_shows_is_not_had(three, kind):
    """The last stage is done, and its token was in the result that was lost.

    Who asks again is told in the text of an error, and that is no result.
    """
    scenario, stages = three
    once = {"persistence": "transient", "kind": kind}
    lost = [broken(tool, stages[2], **once) for tool in TOOLS]
    assert top(scenario, *lost).success is False
    assert top(scenario, lost[0]).success  # the other tool shows it
    silent = {**once, "kind": "partial_result", "visibility": "silent"}
    assert top(scenario, *[broken(tool, stages[2], **silent) for tool in TOOLS]).success is False
    unasked = scenario.replace(goal=scenario.goal.replace(answer=None))
    assert top(unasked, *lost).success


def test_a_field_by_another_name_still_shows_the_answer(three):
    scenario, stages = three
    renamed = {"persistence": "transient", "kind": "renamed_field", "visibility": "silent"}
    assert top(scenario, *[broken(tool, stages[2], **renamed) for tool in TOOLS]).success


LOST = {"kind": "timeout_after_commit"}


@pytest.mark.parametrize(
    ("suite", "scenario", "lost", "again"),
    [
        ("travel", "travel-easy-012", ("book_hotel", "call_hotel"), ("list_bookings",)),
        ("blocks", "blocks-easy-005", ("weld", "bolt"), ("weld", "bolt", "look", "survey")),
        ("blocks", "blocks-easy-003", ("look", "survey"), ("look", "survey")),
        ("workshop", "workshop-easy-002", ("gauge", "inspect_by_eye"),
         ("gauge", "inspect_by_eye", "drive", "carry", "assemble", "assemble_on_floor")),
    ],
)  # fmt: skip
def test_a_lost_answer_is_asked_for_again_where_that_can_be_done(suite, scenario, lost, again):
    scenario = al.load_suite(suite)[scenario]
    assert scenario.goal.answer is not None
    once = [al.TargetedFault(tool=tool, occurrence=0, **LOST) for tool in lost]
    assert ceiling(scenario, 0, 0.0, al.FaultPlan(targets=once)).success
    run = al.autonomous.start(
        al.Lab(scenario, planner="search", strategy="oracle", faults=al.FaultPlan(targets=once))
    )
    run.finish()
    assert run.verdict.success, run.verdict.reasons
    never = [al.TargetedFault(tool=tool, **LOST) for tool in {*lost, *again}]
    found = ceiling(scenario, 0, 0.0, al.FaultPlan(targets=never)).success
    assert found is (None if suite == "blocks" else False)  # blocks can be moved without end


# ---- brute force ----------------------------------------------------------------------------


def reachable(scenario: al.Scenario, seed: int, rate: float, permanent: float) -> bool:
    """Try every order of calls on a chain, from the definition of draws alone."""
    stages, tokens = scenario.world["stages"], scenario.world["tokens"]

    @cache
    def struck(tool: str, stage: int, occurrence: int) -> str | None:
        token = tokens[stages[stage - 1]] if stage else "start"
        key = digest({"stage": stages[stage], "token": token})
        names = (seed, scenario.id, tool, key, occurrence)
        if uniform(*names) >= rate:
            return None
        weights = {"permanent": permanent, "transient": 1 - permanent}
        return choose(weights, uniform(*names, "persistence"))

    @cache
    def ends(done: int, tries: tuple[int, int], gone: frozenset[str]) -> bool:
        if done == len(stages):
            return True
        for i, tool in enumerate(TOOLS):
            if tool in gone or tries[i] == 30:
                continue
            met = struck(tool, done, tries[i])
            if met is None:
                further = ends(done + 1, (0, 0), gone)
            else:
                more = (tries[0] + (i == 0), tries[1] + (i == 1))
                further = ends(done, more, gone | {tool} if met == "permanent" else gone)
            if further:
                return True
        return False

    return ends(0, (0, 0), frozenset())


@given(
    st.integers(0, 10_000), st.integers(2, 4), st.sampled_from([0.2, 0.4, 0.6]),
    st.sampled_from([0.3, 0.7, 1.0]), st.sampled_from([0.0, 0.5]),
)  # fmt: skip
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_ceiling_is_what_brute_force_finds(seed, length, rate, permanent, silent):
    scenario = generate("medium", seed % 7, length=length)
    faults = al.FaultPlan(
        persistence={"permanent": permanent, "transient": 1 - permanent},
        visibility={"silent": silent, "announced": 1 - silent},
    )
    assert ceiling(scenario, seed, rate, faults).success is reachable(
        scenario, seed, rate, permanent
    )


def test_the_comparison_above_meets_both_answers():
    scenario = generate("medium", 0, length=3)
    found = [reachable(scenario, seed, 0.4, 1.0) for seed in range(100)]
    assert 20 < sum(found) < 80


def test_more_faults_never_raise_the_ceiling():
    """Faults at a low rate are among those at a higher one, so what could be reached stays."""
    scenario = generate("medium", 1, length=4)
    faults = al.FaultPlan(persistence={"permanent": 1})
    for seed in range(40):
        tops = [ceiling(scenario, seed, rate, faults).success for rate in (0.0, 0.1, 0.3, 0.5)]
        assert tops == sorted(tops, reverse=True), seed


# ---- floor, and worlds that cannot be searched -------------------------------------------------


def test_the_floor_is_what_doing_nothing_reaches(three):
    scenario, _ = three
    assert floor(scenario) is False
    nothing = scenario.goal.replace(conditions={"done": 0}, answer=None)
    assert floor(scenario.replace(goal=nothing)) is True
    assert floor(scenario.replace(goal=scenario.goal.replace(conditions={"done": 0}))) is False


class Lamp(Environment):
    """A lamp to switch on; no candidates, so no search."""

    name = "test-lamp"

    def tools(self):
        return (Tool("press", effect="write"), Tool("look"))

    def apply(self, world, call: Call) -> Outcome:
        if call.tool == "look":
            return Outcome(world, {"on": world["on"]})
        return Outcome({"on": not world["on"]}, {}, learned={"on": not world["on"]})

    def unmet(self, goal, world):
        return () if world["on"] else ("the lamp is off",)


@pytest.fixture
def lamp(fresh_names):
    al.register("environment", "test-lamp", Lamp())
    steps = (ReferenceStep(step_id="press", tool="press"),)
    return al.Scenario(
        id="lamp", environment="test-lamp", task="Light!", world={"on": False}, goal=al.Goal(),
        reference=ReferencePlan(steps=steps),
    )  # fmt: skip


class Lamps(Lamp):
    """Two lamps that one knows how to switch on in one way, and that have another."""

    name = "test-lamps"

    def tools(self):
        return (Tool("press", effect="write"), Tool("pull", effect="write"))

    def apply(self, world, call: Call) -> Outcome:
        return Outcome({"on": True}, {}, learned={"on": True})

    def candidates(self, belief, goal):
        return [] if belief["on"] else [Call("press")]


def test_where_nobody_knows_all_moves_a_search_proves_nothing(fresh_names):
    al.register("environment", "test-lamps", Lamps())
    scenario = al.Scenario(
        id="lamps", environment="test-lamps", task="Light!", world={"on": False}, goal=al.Goal()
    )
    broken_press = al.FaultPlan(targets=[al.TargetedFault(tool="press", persistence="permanent")])
    assert ceiling(scenario, 0, 0.0, al.FaultPlan()).success
    assert ceiling(scenario, 0, 0.0, broken_press).success is None


def test_without_candidates_the_fault_free_reference_stands_in(lamp):
    for rate in (0.0, 1.0):
        found = ceiling(lamp, 0, rate)
        assert (found.success, found.seconds, found.found_by) == (True, 1.0, "reference")
    twice = ReferencePlan(steps=[ReferenceStep(step_id=f"p{i}", tool="press") for i in range(2)])
    assert ceiling(lamp.replace(reference=twice), 0, 0.0).success is False
    unknown = ceiling(lamp.replace(reference=None), 0, 0.0)
    assert (unknown.success, unknown.seconds, unknown.found_by) == (None, None, "reference")


def test_a_deadline_that_only_several_workers_meet_is_within_the_ceiling():
    scenario = al.load_suite("workshop")["workshop-medium-001"]
    seconds = {}
    for workers in (1, 4):
        run = al.autonomous.start(al.Lab(scenario, planner="search", workers=workers))
        seconds[workers] = run.finish().now
    goal = scenario.goal.replace(deadline=(seconds[1] + seconds[4]) / 2)
    found = ceiling(scenario.replace(goal=goal), 0, 0.0)
    assert (found.success, found.found_by) == (True, "witness")
    assert found.seconds <= goal.deadline < seconds[1]
    assert ceiling(scenario, 0, 0.0).seconds == seconds[1]
