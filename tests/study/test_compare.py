"""Comparisons against a computation by hand, over frames made by hand."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agentlab.errors import StudyError
from agentlab.study.compare import compare, limits, pairwise


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
    """Return the two-sided p of Σ / √Σ², which all patterns of signs share, over these."""
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
        ([10**400, 1], "infinite values"),
        ([1.5, 0.5], "expected a share"),
        ([1.0, None], "no task has a value of 'success' at the same"),
    ],
)
def test_what_is_no_number_is_not_compared(values, told):
    made = runs({("a", "t"): values[0], ("b", "t"): values[1]})
    with pytest.raises(StudyError, match=told):
        compare(made)


@pytest.mark.parametrize("values", [[True, False], [1, 0], [1.0, 0.0], [np.float32(1), np.int8(0)]])
def test_numbers_of_any_kind_are(values):
    made = runs({("a", "t"): values[0], ("b", "t"): values[1]})
    assert compare(made)["diff"].tolist() == [1]


def test_two_arms_by_hand():
    """Seeds first, then rates, then tasks."""
    table = compare(runs(seeded("a", A) | seeded("b", B)))
    [found] = table.to_dict("records")
    d = np.array([sum(A[t]) / 4 - sum(B[t]) / 4 for t in A])  # (6,)
    mean = d.mean()
    assert (found["a"], found["b"]) == ("a", "b")
    assert found["diff"] == pytest.approx(mean)
    assert found["p"] == pytest.approx(sign_flips(list(d))) == 4 / 64
    assert found["verdict"] == "not shown to differ"
    # Of 32 patterns the 31st largest Σ / √Σ² is not exceeded; at θ = 0 it is met exactly.
    c = sum(d) / sqrt((d**2).sum())
    assert found["low"] == pytest.approx(0, abs=1e-9)
    theta = found["high"]
    assert abs((d - theta).sum()) / sqrt(((d - theta) ** 2).sum()) == pytest.approx(c)
    half = 2.570581835636314 * sqrt((d - mean) @ (d - mean) / 5) / sqrt(5)  # t of 5, CR3
    assert found["unadjusted_low"] == pytest.approx(mean - half)
    assert found["unadjusted_high"] == pytest.approx(mean + half)
    assert (found["n_tasks"], found["n_clusters"]) == (6, 6)
    assert "boot_low" not in found
    [booted] = compare(runs(seeded("a", A) | seeded("b", B)), bootstrap=True).to_dict("records")
    assert booted["boot_low"] < mean < booted["boot_high"]


def test_swapping_the_arms_swaps_the_signs():
    there = compare(runs(seeded("a", A) | seeded("b", B))).iloc[0]
    back = compare(runs(seeded("b", B) | seeded("a", A))).iloc[0]
    assert (back["a"], back["b"]) == ("b", "a")
    assert back["diff"] == -there["diff"]
    assert back["low"] == pytest.approx(-there["high"])
    assert back["p"] == there["p"]


def test_neither_the_order_of_runs_nor_that_of_tasks_plays_a_part():
    cluster = {f"t{i}": "xyzuvwxyzuvw"[i] for i in range(12)}
    rng = np.random.default_rng(0)
    made = runs(
        {
            (s, f"t{i}", 0.1, n): rng.random() < 0.5
            for s in "abc"
            for i in range(12)
            for n in (0, 1)
        },
        cluster,
    )
    levels = [made[made["strategy"] == s] for s in "abc"]
    mixed = pd.concat([part.sample(frac=1, random_state=3) for part in levels])
    pd.testing.assert_frame_equal(compare(made), compare(mixed))


def test_tasks_of_one_cluster_are_one_witness():
    cluster = {"t0": "x", "t1": "x", "t2": "x", "t3": "y", "t4": "y", "t5": "z"}
    [found] = compare(runs(seeded("a", A) | seeded("b", B), cluster)).to_dict("records")
    d = {t: sum(A[t]) / 4 - sum(B[t]) / 4 for t in A}
    sums = [sum(d[t] for t in d if cluster[t] == c) for c in "xyz"]
    assert found["p"] == pytest.approx(sign_flips(sums))
    assert found["diff"] == pytest.approx(sum(d.values()) / 6)
    assert (found["n_tasks"], found["n_clusters"]) == (6, 3)
    assert found["verdict"] == "no verdict"
    assert (found["low"], found["high"]) == (-1, 1)


def test_all_pairs_are_one_family():
    tasks = [f"t{i}" for i in range(10)]
    solved = {"a": 10, "b": 3, "c": 2}
    frame = runs({(s, t): i < n for s, n in solved.items() for i, t in enumerate(tasks)})
    table = compare(frame).set_index(["a", "b"])
    assert table["verdict"].to_dict() == {
        ("a", "b"): "a higher", ("a", "c"): "a higher", ("b", "c"): "not shown to differ",
    }  # fmt: skip
    alone = {
        pair: compare(frame[frame["strategy"].isin(pair)])["p"].iloc[0] for pair in table.index
    }
    assert alone == {("a", "b"): 2 / 2**7, ("a", "c"): 2 / 2**8, ("b", "c"): 1.0}
    assert (table["p"] >= pd.Series(alone)).all()
    assert ((table["low"] > 0) == (table["verdict"] == "a higher")).all()
    assert table["smallest_difference"].nunique() == 1
    against = compare(frame, baseline="c")
    assert list(zip(against["a"], against["b"], strict=True)) == [("a", "c"), ("b", "c")]
    assert (against["p"].to_numpy() <= table["p"].to_numpy()[1:]).all()


@pytest.mark.parametrize(
    ("n_tasks", "shown", "told"),
    [
        (1, {"no verdict"}, "One cluster: no interval, no verdict."),
        (5, {"no verdict"}, "5 clusters of tasks cannot show any difference (smallest possible"),
        (6, {"not shown to differ"}, "No difference possible from here would be shown with 80 %"),
        (40, {"a higher", "not shown to differ"}, "Not shown to differ: leads below"),
    ],
)  # fmt: skip
def test_what_could_be_shown_is_said(n_tasks, shown, told):
    rng = np.random.default_rng(1)
    frame = runs({
        (s, f"t{i}", 0.1, n): rng.random() < (0.95 if s == "a" and n_tasks == 40 else 0.5)
        for s in "abcdef" for i in range(n_tasks) for n in range(2)
    })  # fmt: skip
    table = compare(frame)
    assert set(table["verdict"]) == shown
    assert limits(table).startswith(told)
    if "No difference" in told:
        assert limits(table).endswith("; name a baseline or add clusters.")
        assert limits(compare(frame, baseline="a")).endswith(("; add clusters.", "of the time."))
    if n_tasks == 40:
        frame["sim_seconds"] = 100.0 * frame["success"]
        assert "points" in limits(table)
        assert "points" not in limits(compare(frame, "sim_seconds"))


def test_what_only_one_level_was_run_on_is_left_out():
    """b has no runs at rate 0.3 and none of t5; only what both have counts."""
    table = seeded("a", A) | {
        k: v for k, v in seeded("b", B).items() if k[2] == 0.1 and k[1] != "t5"
    }
    [found] = compare(runs(table)).to_dict("records")
    d = [A[t][0] / 2 - B[t][0] / 2 for t in A if t != "t5"]
    assert found["n_tasks"] == 5
    assert found["diff"] == pytest.approx(sum(d) / 5)


@pytest.mark.parametrize("missing", [("b", "t2", 0.3, 1), ("b", "t2", 0.3, None)])
def test_only_tasks_that_are_complete_at_every_rate_and_seed_count(missing):
    level, task, rate, seed = missing
    table = {
        k: v for k, v in (seeded("a", A) | seeded("b", B)).items()
        if not (k[:3] == (level, task, rate) and seed in (None, k[3]))
    }  # fmt: skip
    [found] = compare(runs(table)).to_dict("records")
    d = [sum(A[t]) / 4 - sum(B[t]) / 4 for t in A if t != task]
    assert found["n_tasks"] == 5
    assert found["diff"] == pytest.approx(sum(d) / 5)


def test_a_rate_that_part_of_an_arm_lacks_does_not_bend_the_difference():
    """Hard tasks gain at rate 0.3 only, and 30 % of an arm's are not there yet: still right."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        rows = {}
        for i in range(40):
            gain = 0.5 if i < 20 else 0.0
            for n in range(3):
                for rate, more in ((0.1, 0.0), (0.3, gain)):
                    rows["a", f"t{i}", rate, n] = rng.random() < 0.4 + more
                    rows["b", f"t{i}", rate, n] = rng.random() < 0.4
        lost = rng.permutation(40)[:12]
        kept = {k: v for k, v in rows.items()
                if not (k[0] == "b" and k[2] == 0.3 and int(k[1][1:]) in lost)}  # fmt: skip
        [found] = compare(runs(kept)).to_dict("records")
        assert found["n_tasks"] == 28
        covered += found["low"] <= 0.125 <= found["high"]
    assert covered >= 90


def test_a_run_that_a_failing_model_spoilt_goes_with_its_pair():
    frame = runs(seeded("a", A) | seeded("b", B)).assign(infrastructure=None)
    which = (frame["strategy"] == "b") & (frame["scenario"] == "t0") & (frame["seed"] == 0)
    frame.loc[which & (frame["fault_rate"] == 0.1), "infrastructure"] = "timed out"
    [found] = compare(frame).to_dict("records")
    rest = [sum(A[t]) / 4 - sum(B[t]) / 4 for t in A if t != "t0"]
    # Of t0 seed 1 is left at rate 0.1 (a 1, b 0), and both seeds at 0.3 (a 1, b 0).
    assert found["diff"] == pytest.approx((sum(rest) + 1.0) / 6)
    frame.loc[which | (frame["strategy"] == "a") & (frame["scenario"] == "t0")
              & (frame["seed"] == 1), "infrastructure"] = "denied"  # fmt: skip
    assert compare(frame)["n_tasks"].tolist() == [5]  # nothing is left of t0
    asked = compare(frame, count_infrastructure=True)
    assert asked["n_tasks"].tolist() == [6]
    missing = frame["success"].astype("boolean").mask(frame["infrastructure"].notna())
    for options in ({}, {"count_infrastructure": True}):
        pd.testing.assert_frame_equal(
            compare(frame.assign(success=missing), **options),
            compare(frame, **options)
            if not options
            else compare(frame.assign(success=missing.fillna(False).astype(bool)), **options),
        )


def test_rate_0_is_pooled_only_where_asked():
    frame = runs(seeded("a", A) | seeded("b", B))
    calm = frame[frame["fault_rate"] == 0.1].assign(fault_rate=0.0, success=True)
    both = pd.concat([calm, frame])
    assert compare(both)["diff"].tolist() == compare(frame)["diff"].tolist()
    assert compare(both, rate_0=True)["diff"].iloc[0] == pytest.approx(
        compare(frame)["diff"].iloc[0] * 2 / 3
    )
    assert set(compare(calm.assign(success=calm["seed"] == 0))["n_tasks"]) == {6}
    apart = compare(both, apart="fault_rate")
    assert apart["fault_rate"].tolist() == [0.0, 0.1, 0.3]


def test_rates_apart_are_one_family_and_average_to_the_pooled():
    frame = runs(seeded("a", A) | seeded("b", B))
    apart = compare(frame, apart="fault_rate")
    assert apart["diff"].mean() == pytest.approx(compare(frame)["diff"].iloc[0])
    for rate, part in frame.groupby("fault_rate"):
        alone = compare(part)["p"].iloc[0]
        assert apart.set_index("fault_rate")["p"][rate] >= alone


def test_fault_classes_apart():
    """By the first fault that was delivered; where levels met different ones it is "several"."""
    first = {
        ("a", "t0"): "error", ("b", "t0"): "error", ("a", "t1"): "timeout", ("b", "t1"): "timeout",
        ("a", "t2"): "error", ("b", "t2"): None, ("a", "t3"): None, ("b", "t3"): None,
        ("a", "t4"): "error", ("b", "t4"): "timeout", ("a", "t5"): "error", ("b", "t5"): "error",
    }  # fmt: skip
    frame = runs(seeded("a", A) | seeded("b", B))
    keys = zip(frame["strategy"], frame["scenario"], strict=True)
    frame["first_fault"] = [first[key] for key in keys]
    table = compare(frame, apart="fault_class").set_index("fault_class")
    assert table["n_tasks"].to_dict() == {"error": 2, "several": 2, "timeout": 1}
    d = {t: sum(A[t]) / 4 - sum(B[t]) / 4 for t in A}
    assert table.loc["error", "diff"] == pytest.approx((d["t0"] + d["t5"]) / 2)
    assert table.loc["several", "diff"] == pytest.approx((d["t2"] + d["t4"]) / 2)
    assert table.loc["timeout", "verdict"] == "no verdict"
    with pytest.raises(StudyError, match="no run met a fault"):
        compare(frame.assign(first_fault=None), apart="fault_class")


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1e-9, 1e12, 1e150])
def test_the_scale_of_numbers_plays_no_part(scale):
    frame = runs(seeded("a", A) | seeded("b", B)).assign(
        plain=lambda r: r["success"] + r["seed"] / 7
    )
    frame["scaled"] = scale * frame["plain"]
    plain, scaled = (compare(frame, m).iloc[0] for m in ("plain", "scaled"))
    assert scaled["verdict"] == plain["verdict"]
    assert scaled["p"] == plain["p"]
    assert scaled["high"] == pytest.approx(scale * plain["high"])
    assert scaled["diff"] == pytest.approx(scale * plain["diff"])


def test_a_baseline_may_be_a_number():
    frame = runs(seeded("a", A) | seeded("b", B))
    frame["strategy"] = frame["strategy"].map({"a": 1, "b": 2})
    assert compare(frame, baseline=2)["a"].tolist() == ["1"]  # type: ignore[arg-type]


def test_only_shares_are_clipped():
    frame = runs(seeded("a", A) | seeded("b", B))
    frame["sim_seconds"] = 100.0 * frame["success"] + frame["seed"]
    frame["solved"] = frame["success"].astype(bool)
    seconds, share = (compare(frame, m).iloc[0] for m in ("sim_seconds", "solved"))
    assert seconds["high"] > 1
    assert seconds["high"] == pytest.approx(100 * compare(frame).iloc[0]["high"])
    assert share["high"] <= 1


def test_the_other_factors_are_held_fixed():
    """Planner x is good and was run with strategy a more often; strategy itself changes nothing."""
    tasks = ["t0", "t1", "t2"]
    table = {("a", t, 0.1, 0, "x"): True for t in tasks}
    table |= {("a", t, 0.1, 0, "y"): False for t in tasks}
    table |= {("b", t, 0.1, 0, "y"): False for t in tasks}
    [found] = compare(runs(table)).to_dict("records")
    assert (found["diff"], found["verdict"], found["p"]) == (0.0, "no verdict", 1.0)
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
        ({"apart": "fault_rat"}, "apart by 'fault_rat'; did you mean 'fault_rate'"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message):
    with pytest.raises(StudyError, match=message):
        compare(runs(seeded("a", A) | seeded("b", B)), **arguments)


def test_arms_that_share_no_task_are_refused():
    frame = runs({("a", "t0"): True, ("b", "t1"): True})
    with pytest.raises(StudyError, match="no task has a value of 'success'"):
        compare(frame)
    frame = runs({("a", "t0"): True, ("b", "t1"): True, ("c", "t1"): True})
    table = pairwise(frame, "success", "strategy")
    assert table["n_tasks"].tolist() == [0, 0, 0]
    assert table["verdict"].tolist() == ["not compared"] * 3
    assert limits(table).startswith("No task is complete")


def test_a_level_that_was_never_measured_hides_no_other():
    frame = runs({(s, f"t{i}"): i < n for s, n in (("a", 9), ("b", 1)) for i in range(9)})
    frame["infrastructure"] = None
    dead = frame[frame["strategy"] == "a"].assign(strategy="c", infrastructure="denied")
    table = compare(pd.concat([frame, dead])).set_index(["a", "b"])
    assert table["verdict"].to_dict() == {
        ("a", "b"): "a higher", ("a", "c"): "not compared", ("b", "c"): "not compared",
    }  # fmt: skip
    every = pd.concat([frame, dead]).assign(infrastructure="denied")
    with pytest.raises(StudyError, match="no task has a value"):
        compare(every)
