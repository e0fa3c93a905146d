"""Comparisons against a computation by hand, over frames made by hand."""

from __future__ import annotations

from itertools import product
from math import comb, sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agentlab.errors import StudyError
from agentlab.study.compare import compare


def runs(success: dict[tuple[Any, ...], Any], cluster: dict[str, str] | None = None) -> Any:
    """Return a frame; keys are (strategy, scenario) with a rate, seed and planner if they vary."""
    rows = []
    for key, value in success.items():
        strategy, scenario, rate, seed, planner = (*key, *(0.1, 0, "search")[len(key) - 2 :])
        rows.append(
            {
                "arm": f"{planner} × {strategy}", "strategy": strategy, "planner": planner,
                "workflow": "autonomous", "workers": 1, "scenario": scenario, "fault_rate": rate,
                "seed": seed, "success": value, "cluster": (cluster or {}).get(scenario, scenario),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def sign_flips(sums: list[float]) -> float:
    """Return the two-sided p over all patterns of signs."""
    observed = abs(sum(sums))
    patterns = list(product((1, -1), repeat=len(sums)))
    hits = sum(
        abs(sum(s * x for s, x in zip(p, sums, strict=True))) >= observed - 1e-12 for p in patterns
    )
    return hits / len(patterns)


# Tasks t0..t5, two seeds each: how many of the two seeds succeeded, at rates 0.1 and 0.3.
A = {"t0": (2, 2), "t1": (2, 1), "t2": (2, 2), "t3": (1, 1), "t4": (2, 2), "t5": (2, 0)}
B = {"t0": (1, 0), "t1": (1, 1), "t2": (0, 1), "t3": (0, 1), "t4": (1, 0), "t5": (1, 1)}


def seeded(name: str, table: dict[str, tuple[int, int]]) -> dict[tuple[Any, ...], bool]:
    return {
        (name, task, rate, seed): seed < n
        for task, numbers in table.items()
        for rate, n in zip((0.1, 0.3), numbers, strict=True)
        for seed in (0, 1)
    }


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([None, None], "has no value in any run"),
        ([float("nan"), float("nan")], "has no value in any run"),
        (["x", "y"], "a column of numbers, got 'success' with the value 'x'"),
        ([1.0, "y"], "a column of numbers, got 'success' with the value 'y'"),
        ([[1], [2]], "a column of numbers"),
        ([pd.Timestamp(0), pd.Timestamp(1)], "a column of numbers"),
        ([1 + 1j, 2], "a column of numbers"),
        ([1.0, float("inf")], "infinite values"),
        ([1.0, None], "no two values of 'strategy' were measured on the same task"),
    ],
)
def test_what_is_no_number_is_not_compared(values, told):
    made = runs({("a", "t"): values[0], ("b", "t"): values[1]})
    with pytest.raises(StudyError, match=told):
        compare(made)


@pytest.mark.parametrize("values", [[True, False], [1, 0], [1.5, 0.5], [np.float32(1), np.int8(0)]])
def test_numbers_of_any_kind_are(values):
    made = runs({("a", "t"): values[0], ("b", "t"): values[1]})
    assert compare(made)["diff"].tolist() == [1]


def test_two_arms_by_hand():
    """Seeds first, then rates, then tasks."""
    table = compare(runs(seeded("a", A) | seeded("b", B)))
    [found] = table.to_dict("records")
    d = [sum(A[t]) / 4 - sum(B[t]) / 4 for t in A]  # (6,)
    mean = sum(d) / 6
    se = sqrt(6 / 5 * sum((x - mean) ** 2 for x in d)) / 6
    t = 2.570581835636314  # of 5 degrees of freedom, 97.5 %
    assert (found["a"], found["b"]) == ("a", "b")
    assert found["diff"] == pytest.approx(mean)
    assert found["low"] == pytest.approx(mean - t * se)
    assert found["high"] == pytest.approx(mean + t * se)
    assert found["p"] == found["p_holm"] == pytest.approx(sign_flips(d))
    assert found["smallest_difference"] == pytest.approx((t + 0.9195437801) * se)
    assert (found["n_tasks"], found["n_clusters"], found["test"]) == (6, 6, "sign_flip")
    assert found["boot_low"] <= mean <= found["boot_high"]
    assert found["verdict"] == "tied"  # p = 4 / 64
    assert found["p"] == 4 / 64


def test_swapping_the_arms_swaps_the_signs():
    there = compare(runs(seeded("a", A) | seeded("b", B))).iloc[0]
    back = compare(runs(seeded("b", B) | seeded("a", A))).iloc[0]
    assert (back["a"], back["b"]) == ("b", "a")
    assert back["diff"] == -there["diff"]
    assert back["low"] == pytest.approx(-there["high"])
    assert back["p"] == there["p"]


def test_tasks_of_one_cluster_are_one_witness():
    cluster = {"t0": "x", "t1": "x", "t2": "x", "t3": "y", "t4": "y", "t5": "z"}
    [found] = compare(runs(seeded("a", A) | seeded("b", B), cluster)).to_dict("records")
    d = {t: sum(A[t]) / 4 - sum(B[t]) / 4 for t in A}
    sums = [sum(d[t] for t in d if cluster[t] == c) for c in "xyz"]
    mean = sum(d.values()) / 6
    residuals = [sum(d[t] - mean for t in d if cluster[t] == c) for c in "xyz"]
    se = sqrt(3 / 2 * sum(r**2 for r in residuals)) / 6
    assert found["p"] == pytest.approx(sign_flips(sums))
    assert found["diff"] == pytest.approx(mean)
    assert found["high"] == pytest.approx(mean + 4.302652729911275 * se)  # 2 degrees of freedom
    assert (found["n_tasks"], found["n_clusters"]) == (6, 3)


def test_one_seed_is_tested_by_mcnemar():
    """Nine tasks only a solves, one only b solves, two both."""
    tasks = [f"t{i}" for i in range(12)]
    won = {("a", t): i not in (9,) for i, t in enumerate(tasks)}
    lost = {("b", t): i > 8 for i, t in enumerate(tasks)}
    [found] = compare(runs(won | lost)).to_dict("records")
    assert found["test"] == "mcnemar"
    assert found["p"] == pytest.approx(2 * (comb(10, 0) + comb(10, 1)) / 2**10)
    assert found["diff"] == pytest.approx(8 / 12)
    assert found["verdict"] == "a higher"
    [other] = compare(runs(lost | won)).to_dict("records")
    assert other["verdict"] == "b higher"


def test_all_pairs_are_corrected_together():
    tasks = [f"t{i}" for i in range(10)]
    solved = {"a": 10, "b": 3, "c": 2}
    frame = runs({(s, t): i < n for s, n in solved.items() for i, t in enumerate(tasks)})
    table = compare(frame).set_index(["a", "b"])
    p = {("a", "b"): 2 / 2**7, ("a", "c"): 2 / 2**8, ("b", "c"): 1.0}
    assert table["p"].to_dict() == pytest.approx(p)
    assert table["p_holm"].to_dict() == pytest.approx(
        {("a", "c"): 3 * 2 / 2**8, ("a", "b"): 2 * 2 / 2**7, ("b", "c"): 1.0}
    )
    assert table["verdict"].to_dict() == {
        ("a", "b"): "a higher", ("a", "c"): "a higher", ("b", "c"): "tied",
    }  # fmt: skip
    against = compare(frame, baseline="c")
    assert list(zip(against["a"], against["b"], strict=True)) == [("a", "c"), ("b", "c")]
    assert against["p_holm"].tolist() == pytest.approx([2 * 2 / 2**8, 1.0])


def test_what_only_one_level_was_run_on_is_left_out():
    """b has no runs at rate 0.3 and none of t5; only what both have counts."""
    table = seeded("a", A) | {
        k: v for k, v in seeded("b", B).items() if k[2] == 0.1 and k[1] != "t5"
    }
    [found] = compare(runs(table)).to_dict("records")
    d = [A[t][0] / 2 - B[t][0] / 2 for t in A if t != "t5"]
    assert found["n_tasks"] == 5
    assert found["diff"] == pytest.approx(sum(d) / 5)


def test_the_other_factors_are_held_fixed():
    """Planner x is good and was run with strategy a more often; strategy itself changes nothing."""
    tasks = ["t0", "t1", "t2"]
    table = {("a", t, 0.1, 0, "x"): True for t in tasks}
    table |= {("a", t, 0.1, 0, "y"): False for t in tasks}
    table |= {("b", t, 0.1, 0, "y"): False for t in tasks}
    [found] = compare(runs(table)).to_dict("records")
    assert (found["diff"], found["verdict"], found["p"]) == (0.0, "tied", 1.0)
    [planners] = compare(runs(table), by="planner").to_dict("records")
    assert planners["diff"] == 1.0  # over strategy a, which both were run with
    assert len(compare(runs(table), by="arm")) == 3


def test_a_missing_value_is_no_failure():
    """``recovered`` is missing where there was nothing to recover from."""
    frame = runs(seeded("a", A) | seeded("b", B))
    frame["recovered"] = frame["success"].astype(float).where(frame["seed"] == 0)
    [found] = compare(frame, "recovered").to_dict("records")
    d = [sum(n > 0 for n in A[t]) / 2 - sum(n > 0 for n in B[t]) / 2 for t in A]
    assert found["diff"] == pytest.approx(sum(d) / 6)
    frame["recovered"] = np.nan
    with pytest.raises(StudyError, match="'recovered' has no value in any run"):
        compare(frame, "recovered")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "sucess"}, "no column 'sucess'; did you mean 'success'"),
        ({"by": "stratgy"}, "no column 'stratgy'; did you mean 'strategy'"),
        ({"by": "planner"}, r"the one value \['search'\]; there is nothing to compare"),
        ({"baseline": "c"}, "no strategy 'c'"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message):
    with pytest.raises(StudyError, match=message):
        compare(runs(seeded("a", A) | seeded("b", B)), **arguments)


def test_arms_that_share_no_task_are_refused():
    frame = runs({("a", "t0"): True, ("b", "t1"): True})
    with pytest.raises(StudyError, match="no two values of 'strategy' were measured on the same"):
        compare(frame)
    frame = runs({("a", "t0"): True, ("b", "t1"): True, ("c", "t1"): True})
    table = compare(frame).set_index(["a", "b"])
    assert table["n_tasks"].to_dict() == {("a", "b"): 0, ("a", "c"): 0, ("b", "c"): 1}
    assert table["verdict"].tolist() == ["not compared", "not compared", "tied"]
