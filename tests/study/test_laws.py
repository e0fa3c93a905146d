"""The lab separates what theory separates: laws on ``chain``, orderings and ceilings on ``travel``.

Everything is seeded, so these tests give the same numbers every time. The intervals were chosen
before the numbers were seen.
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import agentlab as al
from agentlab.environments.chain import generate

pytestmark = pytest.mark.slow

STEPS, RATES = 6, (0.05, 0.1, 0.2, 0.4)
TRIES = {"never": 1, "retry(1)": 2, "retry(2)": 3}

# ---- chain: (1 - rate)^6 and (1 - rate^(k + 1))^6 ----------------------------------------------


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """720 independent runs for each strategy and rate: 36 seeds of 20 scenarios."""
    study = al.Study(
        al.grid(planner="reference", strategy=list(TRIES)),
        [generate("medium", i, length=STEPS) for i in range(20)],
        fault_rate=RATES, seeds=36, faults=al.FaultPlan(), controls=False, traces=False,
        out=tmp_path_factory.mktemp("chain"),
    )  # fmt: skip
    return study.run(processes=2)


def law(rate: float, tries: int) -> float:
    return (1 - rate**tries) ** STEPS


@pytest.mark.parametrize("strategy", TRIES)
@pytest.mark.parametrize("rate", RATES)
def test_success_follows_the_law_within_its_99_percent_interval(chain, strategy, rate):
    runs = chain[(chain["strategy"] == strategy) & (chain["fault_rate"] == rate)]
    assert len(runs) == 720
    found = binomtest(int(runs["success"].sum()), len(runs))
    low, high = found.proportion_ci(0.99, "exact")
    assert low <= law(rate, TRIES[strategy]) <= high


def test_the_runs_that_meet_fewer_faults_or_try_more_often_succeed_wherever_others_do(chain):
    """Common random numbers: not only on the average, but run by run."""
    won = chain.pivot_table(
        index=["scenario", "seed"], columns=["strategy", "fault_rate"], values="success"
    ).astype(bool)
    for strategy in TRIES:
        for low, high in pairwise(RATES):
            assert (won[strategy, low] >= won[strategy, high]).all()
    for less, more in pairwise(TRIES):
        assert (won[more] >= won[less]).all(axis=None)
        assert (won[more] > won[less]).any(axis=None)


@pytest.mark.parametrize("strategy", TRIES)
@pytest.mark.parametrize("rate", RATES)
def test_as_many_calls_fail_as_the_rate_says(chain, strategy, rate):
    """A sharper test of the rate than success is: given what came before, each call fails with it.

    So faults minus rate × calls is a martingale, and that a failure may be the last call of its run
    biases nothing (Wald).
    """
    runs = chain[(chain["strategy"] == strategy) & (chain["fault_rate"] == rate)]
    calls, faults = runs["tool_calls"].sum(), runs["faults_delivered"].sum()
    assert calls > 720
    assert abs(faults - rate * calls) <= 2.576 * sqrt(rate * (1 - rate) * calls)  # 99 %


# ---- travel: 20 seeds of every fifth of the 60 scenarios ---------------------------------------


def travel(tmp_path_factory: Any, strategies: list[str], **faults: Any) -> pd.DataFrame:
    """Run ``search`` with the strategies at one rate, under the given faults.

    All 60 scenarios would take minutes; every fifth has four of each difficulty.
    """
    study = al.Study(
        al.grid(planner="search", strategy=strategies), al.load_suite("travel")[::5],
        fault_rate=0.2, seeds=20, faults=al.FaultPlan(**faults), traces=False,
        out=tmp_path_factory.mktemp("travel"),
    )  # fmt: skip
    runs = study.run(processes=2)
    assert set(runs["status"]) == {"done"}
    assert len(runs) == 12 * 20 * len(strategies)
    return runs


@pytest.fixture(scope="module")
def transient(tmp_path_factory):
    return travel(tmp_path_factory, ["never", "retry(2)", "on_error"])


@pytest.fixture(scope="module")
def permanent(tmp_path_factory):
    return travel(
        tmp_path_factory, ["retry(2)", "retry_then_replan(2)"], persistence={"permanent": 1}
    )


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    return travel(tmp_path_factory, ["on_error"], visibility={"silent": 1})


def verdict(runs: pd.DataFrame, a: str, b: str, metric: str = "success") -> str:
    """Return which of two strategies the comparison calls higher."""
    [found] = al.study.compare.compare(runs[runs["strategy"].isin([a, b])], metric).to_dict(
        "records"
    )
    assert found["n_tasks"] == 12
    higher = {"a higher": found["a"], "b higher": found["b"], "not shown to differ": "tied"}
    return higher[found["verdict"]]


def test_under_passing_faults_trying_again_helps(transient):
    assert verdict(transient, "never", "retry(2)") == "retry(2)"


def test_under_lasting_faults_only_another_plan_helps(permanent):
    assert verdict(permanent, "retry(2)", "retry_then_replan(2)") == "retry_then_replan(2)"


def test_on_error_recovers_less_from_faults_that_it_cannot_see(transient, silent):
    announced = transient[transient["strategy"] == "on_error"]
    both = pd.concat([announced.assign(strategy="announced"), silent.assign(strategy="silent")])
    assert verdict(both, "announced", "silent", "recovered") == "announced"
    keys = ["scenario", "seed"]
    pairs = announced.merge(silent, on=keys, suffixes=("", "_silent"))
    assert len(pairs) == 240
    assert (pairs["twin_success"] == pairs["twin_success_silent"]).all()
    calm = pairs["faults_delivered"] == 0  # the same draws: who is spared by one is by the other
    assert calm.sum() > 10
    assert (pairs.loc[calm, "faults_delivered_silent"] == 0).all()


@pytest.mark.parametrize("name", ["transient", "permanent", "silent"])
def test_no_arm_is_above_the_ceiling_in_any_cell(request, name):
    runs = request.getfixturevalue(name)
    known = runs["ceiling"].notna()
    assert known.mean() >= 0.99
    above = runs[known & (runs["success"] > runs["ceiling"])]
    assert above.empty, above[["arm", "scenario", "seed"]]
    if name == "permanent":  # and the ceiling is no mere "yes"
        assert 0.8 < runs["ceiling"].mean() < 1
        assert (runs["ceiling_found_by"] == "search").any()


@pytest.mark.parametrize("name", ["transient", "permanent", "silent"])
def test_the_floor_is_on_the_ground(request, name):
    runs = request.getfixturevalue(name)
    assert (runs["floor"] == 0).all()


def test_no_arm_is_above_the_ceiling_under_all_faults_at_once(tmp_path):
    """At a rate at which little is left: many ceilings need search."""
    mixed = al.FaultPlan(
        kinds={"error": 4, "wrong_result": 2, "world_change": 2, "timeout_after_commit": 2},
        persistence={"permanent": 2, "transient": 1}, visibility={"silent": 1, "announced": 2},
    )  # fmt: skip
    study = al.Study(
        al.grid(
            planner=["search", "reference"],
            strategy=["retry_then_replan(1)", "every_step", "oracle"],
        ),
        al.load_suite("travel")[2::10], fault_rate=0.5, seeds=4, faults=mixed, traces=False,
        out=tmp_path,
    )  # fmt: skip
    runs = study.run(processes=2)
    known = runs["ceiling"].notna()
    assert known.mean() >= 0.95
    assert (runs.loc[known, "success"] <= runs.loc[known, "ceiling"]).all()
    assert (runs["floor"] == 0).all()
    assert 0.05 < runs["success"].mean() < np.mean(runs["ceiling"])
