"""``reference``: the gold plan, what is left of it, and noise of known size."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.errors import ConfigError
from agentlab.minds.planners.named import get_planner
from agentlab.minds.planners.noise import MISTAKES
from agentlab.minds.planners.reference import Reference
from agentlab.workflows.nodes.planning import plan_request


def planned(scenario, noise=0.0, seed=0, number=0, **more):
    lab = al.Lab(scenario, planner=Reference(noise, **more), seed=seed)
    state = lab.initial_state().replace(plans=number)
    return lab.planner.plan(plan_request(state, lab), lab)


def content(plan):
    return [(s.step_id, s.target_resource, s.parameters) for s in plan.steps]


def gold(scenario):
    return [(s.step_id, s.tool, s.arguments) for s in scenario.reference.steps]


# ---- without noise ----------------------------------------------------------------------------


def test_the_gold_plan():
    scenario = generate("medium", 3)
    plan = planned(scenario)
    assert content(plan) == gold(scenario)
    assert plan.answer == scenario.reference.answer
    run = al.autonomous.start(al.Lab(scenario, planner="reference"))
    run.finish()
    assert run.verdict.success


def test_what_is_left_of_it():
    scenario = generate("medium", 3)
    target = al.TargetedFault(tool="advance", step=scenario.world["stages"][2], occurrence=0)
    lab = al.Lab(scenario, planner="reference", strategy="on_error",
                 faults=al.FaultPlan(targets=(target,)))  # fmt: skip
    run = al.autonomous.start(lab)
    run.finish()
    assert run.verdict.success
    done, failed, *rest = scenario.world["stages"][1:]
    ids = [s.step_id for s in run.plan.steps]
    assert ids == [*scenario.world["stages"][:2], *[f"{i}_2" for i in (failed, *rest)]]
    assert run.plan.step(f"{failed}_2").parameters["token"] == f"${{{done}.token}}"
    assert run.plan.answer == f"${{{rest[-1]}_2.token}}"
    assert run.state.executions == 7


def test_a_full_replan_is_the_whole_plan_again():
    scenario = generate("medium", 0, length=3)
    lab = al.Lab(scenario, planner="reference", fault_rate=1.0)
    run = al.autonomous.start(lab)
    run.finish()
    assert run.state.loop_count == 3
    assert all(len(r.after) == 3 for r in run.state.replan_history)


def test_a_scenario_without_a_reference(notes):
    bare = generate("easy", 0).replace(reference=None)
    for run in (al.autonomous.start(al.Lab(bare, planner="reference")),
                notes.start(planner="reference")):  # fmt: skip
        run.finish()
        assert "needs a scenario with a reference plan" in run.state.error


# ---- noise ------------------------------------------------------------------------------------


def within(count, n, p):
    return abs(count - n * p) <= 3.3 * sqrt(n * p * (1 - p))


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_share_of_spoilt_plans(noise, length):
    """A plan is unspoilt when none of its steps was drawn: (1-ε)^n."""
    n = 400
    scenario = generate("medium", 0, length=length)
    unspoilt = sum(content(planned(scenario, noise, seed)) == gold(scenario) for seed in range(n))
    assert within(unspoilt, n, (1 - noise) ** length)


def test_the_kinds_of_noise():
    """On a single step: dropped (a swap has no partner), doubled, wrong tool, wrong argument."""
    scenario, n = generate("medium", 0, length=1), 1500
    ((step_id, tool, arguments),) = gold(scenario)
    kinds = Counter()
    for seed in range(n):
        plan = content(planned(scenario, 1.0, seed))
        if not plan:
            kinds["gone"] += 1
        elif len(plan) == 2:
            assert plan == [(step_id, tool, arguments), (f"{step_id}_again", tool, arguments)]
            kinds["doubled"] += 1
        elif plan[0][1] != tool:
            assert plan == [(step_id, "advance_slowly", arguments)]
            kinds["wrong_target"] += 1
        else:
            (_, _, wrong), = plan  # fmt: skip
            assert sum(wrong[k] != arguments[k] for k in arguments) == 1
            kinds["wrong_argument"] += 1
    assert within(kinds["gone"], n, 2 / len(MISTAKES))
    for kind in ("doubled", "wrong_target", "wrong_argument"):
        assert within(kinds[kind], n, 1 / len(MISTAKES))


def test_a_swap_takes_two_neighbours():
    scenario = generate("medium", 0, length=2)
    first, second = (i for i, *_ in gold(scenario))
    plans = [planned(scenario, 1.0, seed) for seed in range(200)]
    orders = Counter(tuple(s.parameters.get("stage") for s in p.steps) for p in plans)
    assert orders[second, first] > 20
    swapped = next(
        p for p in plans if [s.parameters.get("stage") for s in p.steps] == [second, first]
    )
    # what it refers to comes later now: the value is lost, the plan is well-formed
    assert swapped.steps[0].parameters["token"] == "unknown"


def test_spoilt_plans_are_plans_that_can_be_carried_out():
    """What noise stands for is an error that shows when the plan runs, not a plan refused."""
    failed = 0
    for scenario in [
        *al.load_suite("travel")[:6],
        *al.load_suite("blocks")[:4],
        generate("hard", 1),
    ]:
        for seed in range(12):
            lab = al.Lab(scenario, planner="reference(noise=0.6)", strategy="never", seed=seed)
            run = al.autonomous.start(lab)
            run.finish()
            assert run.state.error is None
            failed += not run.verdict.success
    assert failed > 50


def test_noise_is_keyed_by_seed_and_scenario_and_where_it_does_not_stand_by_plan_number():
    one, other = generate("medium", 0, length=6), generate("medium", 1, length=6)
    assert content(planned(one, 0.5, seed=1)) == content(planned(one, 0.5, seed=1))
    spoilt = {
        "seed": [content(planned(one, 0.5, seed=s)) for s in range(12)],
        "number": [content(planned(one, 0.5, number=k, persistence=0)) for k in range(12)],
    }
    standing = [content(planned(one, 0.5, number=k)) for k in range(12)]
    assert all(plan == standing[0] for plan in standing)
    for plans in spoilt.values():
        assert len({repr(p) for p in plans}) > 8
    stages = lambda s, scenario: [  # noqa: E731
        scenario.world["stages"].index(i.removesuffix("_again"))
        for i, *_ in content(planned(scenario, 0.5, seed=s))
    ]
    assert sum(stages(s, one) != stages(s, other) for s in range(20)) > 10


def test_arms_of_the_same_seed_are_spoilt_alike():
    scenario = generate("medium", 2)
    plans = set()
    for strategy in ("never", "retry(2)", "on_error"):
        for rate in (0.0, 0.3):
            lab = al.Lab(scenario, planner="reference(noise=0.5)", strategy=strategy, seed=4,
                         fault_rate=rate)  # fmt: skip
            run = al.autonomous.start(lab)
            run.run_until("plan_execution")
            plans.add(repr(content(run.plan)))
    assert len(plans) == 1


def test_no_noise_is_no_draw():
    scenario = generate("medium", 0)
    assert all(content(planned(scenario, 0.0, seed)) == gold(scenario) for seed in range(20))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("reference(noise=1.5)", "between 0 and 1, got 1.5"),
        ("reference(noise=-0.1)", "between 0 and 1"),
        ("reference(noise='x')", "noise between 0 and 1, got 'x'"),
        ("reference(nois=0.1)", "did you mean 'noise'"),
        ("reference(0.1, 0.2)", "planner reference"),
    ],
)
def test_bad_arguments(text, match):
    with pytest.raises(ConfigError, match=match):
        get_planner(text)
    assert get_planner("reference(0.2)").noise.share == 0.2


def test_the_whole_gold_plan_of_a_lab_is_one_value_for_all_its_runs():
    lab = al.Lab(al.load_suite("chain")[0], planner="reference")
    plans = []
    for seed in (0, 1):
        run = al.autonomous.start(lab.bind(seed=seed))
        run.run_until("plan_execution")
        plans.append(run.plan)
        run.finish()
    assert plans[0] is plans[1]
    other = al.autonomous.start(lab, "another task")
    other.run_until("plan_execution")
    assert other.plan.user_intent == "another task"
