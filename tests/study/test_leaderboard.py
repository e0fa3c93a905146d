"""The leaderboard against numbers worked by hand and against the comparison it rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from agentlab.errors import StudyError
from agentlab.study.compare import compare
from agentlab.study.leaderboard import estimates, leaderboard

SHARES = {"good": [1, 1, 1, 1, 1, 1, 1, 1], "near": [1, 1, 1, 1, 1, 1, 1, 0], "bad": [0] * 8}
"""Success by scenario."""


def frame(shares: dict[str, list[float]] = SHARES, **columns: Any) -> pd.DataFrame:
    """Return a runs frame: two seeds a scenario, a scenario a cluster."""
    rows = []
    for arm, values in shares.items():
        for i, value in enumerate(values):
            for seed in (0, 1):
                rows.append(
                    {
                        "cell": f"{arm}{i}{seed}", "arm": arm, "planner": "p", "strategy": arm,
                        "workflow": "autonomous", "workers": 1, "scenario": f"s{i}",
                        "cluster": f"s{i}", "fault_rate": 0.1, "seed": seed, "status": "done",
                        "success": bool(value), "floor": 0.0, "ceiling": 1.0,
                        "twin_success": 1.0, "twin_sim_seconds": 4.0, "faults_delivered": seed,
                        "changed_state": True, "replans": seed, "tool_calls": 3 + seed,
                        "sim_seconds": 5.0 + seed,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows).assign(**columns)


def test_best_first_and_what_the_numbers_are():
    board = leaderboard(frame()).set_index("arm")
    assert list(board.index) == ["good", "near", "bad"]
    assert board["success"].tolist() == [1.0, 0.875, 0.0]
    assert board["normalised"].tolist() == [1.0, 0.875, 0.0]
    assert board["behind"].tolist() == [0.0, -0.125, -1.0]
    assert board["side_effects"].tolist() == [0.0, 0.125, 1.0]
    assert board["recovery"].tolist() == [1.0, 0.875, 0.0]
    assert board["replans"].tolist() == [0.5] * 3
    assert board["tool_calls"].tolist() == [3.5] * 3
    assert board["sim_seconds"].tolist() == [5.5] * 3
    assert board["n_runs"].tolist() == [16] * 3
    assert board["unknown"].tolist() == [0.0] * 3


def test_tied_is_what_the_family_of_all_pairs_does_not_show_to_be_worse():
    runs = frame()
    board = leaderboard(runs).set_index("arm")
    assert board["verdict"].to_dict() == {"good": "best", "near": "tied", "bad": "worse"}
    assert board["tied"].to_dict() == {"good": False, "near": True, "bad": False}
    pairs = compare(runs, "success", by="arm").set_index(["a", "b"])
    assert board.loc["near", "p"] == pairs.loc[("good", "near"), "p"] > 0.05
    assert board.loc["bad", "p"] == pairs.loc[("good", "bad"), "p"] == 2**-7
    assert np.isnan(board.loc["good", "p"])


def test_the_sign_of_behind_does_not_hang_on_the_order_of_the_arms():
    turned = {name: SHARES[name] for name in ("bad", "near", "good")}
    board = leaderboard(frame(turned)).set_index("arm")
    assert board["behind"].to_dict() == {"good": 0.0, "near": -0.125, "bad": -1.0}


def test_of_equals_the_quicker_comes_first():
    runs = frame({"slow": [1, 1], "quick": [1, 1]})
    runs.loc[runs["arm"] == "slow", "sim_seconds"] += 10
    assert leaderboard(runs)["arm"].tolist() == ["quick", "slow"]


def test_one_arm_has_nobody_to_be_compared_with():
    board = leaderboard(frame({"only": [1, 0, 1]}))
    assert board["tied"].tolist() == [False]
    assert board["success"].iloc[0] == pytest.approx(2 / 3)


def test_unknown_ceilings_are_left_out_and_counted():
    runs = frame()
    runs.loc[runs["scenario"].isin(["s0", "s1"]), "ceiling"] = np.nan
    board = leaderboard(runs).set_index("arm")
    assert board["unknown"].tolist() == [0.25] * 3
    assert board.loc["near", "normalised"] == pytest.approx(5 / 6)


def test_without_controls_only_the_bounds_are_missing():
    board = leaderboard(frame(floor=np.nan, ceiling=np.nan, twin_success=np.nan))
    assert board[["floor", "ceiling", "normalised", "recovery"]].isna().all().all()
    assert board["success"].tolist() == [1.0, 0.875, 0.0]


def test_crashed_runs_are_failures_and_counted():
    runs = frame({"a": [1, 1, 1], "b": [0, 1, 1]})
    crashed = (runs["arm"] == "b") & (runs["scenario"] == "s0")
    runs.loc[crashed, "status"] = "crashed"
    runs.loc[crashed, ["replans", "tool_calls", "sim_seconds", "faults_delivered"]] = np.nan
    board = leaderboard(runs.astype({"changed_state": object})).set_index("arm")
    assert board["crashed"].to_dict() == {"a": 0, "b": 2}
    assert board.loc["b", "success"] == pytest.approx(2 / 3)
    assert board.loc["b", "sim_seconds"] == 5.5


def test_no_run_is_nothing_to_rank():
    with pytest.raises(StudyError, match="no run is finished"):
        leaderboard(frame().head(0))


def test_means_are_averaged_within_a_task_first_with_a_t_interval_over_tasks():
    """CR3 of tasks alone is the usual standard error times √(n / (n - 1)), with n - 1 df."""
    runs = frame({"a": [1, 1, 1, 1]})
    runs["replans"] = [0, 2, 3, 3, 5, 5, 8, 8]
    row = estimates(runs, "replans").iloc[0]
    means = np.array([1, 3, 5, 8])
    low, high = stats.t.interval(0.95, 3, means.mean(), stats.sem(means) * np.sqrt(4 / 3))
    assert row["value"] == means.mean()
    assert (row["low"], row["high"]) == pytest.approx((low, high))


def test_estimates_by_several_columns():
    runs = pd.concat([frame(), frame(fault_rate=0.3, success=False)])
    table = estimates(runs, "success", ["arm", "fault_rate"])
    assert len(table) == 6
    assert table[table["fault_rate"] == 0.3]["value"].tolist() == [0.0] * 3


def test_an_unknown_metric_names_the_nearest():
    with pytest.raises(StudyError, match="did you mean 'replans'"):
        estimates(frame(), "replan")


@pytest.mark.parametrize("others", [[], ["near"]])
def test_arms_without_a_complete_task_are_not_ranked(others):
    """As in a study that is not finished."""
    made = frame()
    made = made[made["arm"].isin(["good", "bad", *others])]
    made.loc[made["arm"] == "bad", "scenario"] += "-elsewhere"
    board = leaderboard(made).set_index("arm")
    assert board[["behind", "p"]].isna().all().all()
    assert set(board["verdict"]) == {"not compared"}
    assert not board["tied"].any()
    assert list(board.index) == list(dict.fromkeys(made["arm"]))
    assert board.loc["bad", "success"] == 0


def test_an_unfinished_study_ranks_on_the_tasks_that_are_complete_in_all_arms():
    """What is there of an arm so far may be the easy half; nobody is ahead of the best then."""
    easy_first = frame({"half": [1] * 9 + [0] + [0] * 10, "all": [1] * 10 + [0] * 10})
    hard = easy_first["scenario"].isin([f"s{i}" for i in range(10, 20)])
    made = easy_first[~(hard & (easy_first["arm"] == "half"))]
    board = leaderboard(made).set_index("arm")
    assert board["success"].to_dict() == {"all": 1.0, "half": 0.9}
    assert board["behind"].to_dict() == pytest.approx({"all": 0.0, "half": -0.1})
    assert board["n_tasks"].tolist() == [10, 10]


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_ahead_of_the_best_whatever_is_missing(seed):
    rng = np.random.default_rng(seed)
    tables = [{arm: list(rng.integers(0, 2, 12)) for arm in "abc"} for _ in range(2)]
    made = pd.concat(
        [frame(t, fault_rate=r) for t, r in zip(tables, (0.1, 0.3), strict=True)],
        ignore_index=True,
    )
    made = made[rng.random(len(made)) < 0.93]
    board = leaderboard(made)
    assert not (board["behind"] > 0).any()
    ranked = board[board["verdict"] != "not compared"]
    assert ranked["success"].is_monotonic_decreasing


def test_rate_0_is_left_out_where_there_are_others():
    made = pd.concat([frame(fault_rate=0.0, success=True), frame()])
    board, under = leaderboard(made), leaderboard(frame())
    pd.testing.assert_frame_equal(board, under)
    assert leaderboard(frame(fault_rate=0.0))["n_runs"].tolist() == [16] * 3


# ---- runs that a failing model spoilt ------------------------------------------------------


def spoilt(made: pd.DataFrame, which: Any, cause: str = "denied") -> pd.DataFrame:
    made = made.assign(infrastructure=None)
    made.loc[which(made), "infrastructure"] = cause
    made["success"] = made["success"].astype("boolean").mask(which(made))
    return made


def test_a_spoilt_run_is_left_out_with_its_pairs():
    made = spoilt(frame(), lambda r: (r.arm == "good") & (r.scenario == "s0") & (r.seed == 1))
    board = leaderboard(made).set_index("arm")
    assert board.loc["good", ["success", "n_runs", "infrastructure"]].tolist() == [1.0, 15, 1]
    assert board["n_runs"].tolist() == [15] * 3
    assert board["infrastructure"].tolist() == [1, 0, 0]
    asked = leaderboard(made, count_infrastructure=True).set_index("arm")
    assert asked.loc["good", "success"] == pytest.approx(15 / 16)
    assert asked["n_runs"].tolist() == [16] * 3


def test_an_arm_whose_model_never_answered_is_not_ranked_and_hides_nobody():
    made = spoilt(frame(), lambda r: r.arm == "good", "unavailable")
    board = leaderboard(made).set_index("arm")
    assert list(board.index) == ["near", "bad", "good"]
    assert board["verdict"].to_dict() == {"near": "best", "bad": "worse", "good": "not compared"}
    assert np.isnan(board.loc["good", "success"])
    assert board.loc["good", "infrastructure"] == 16
    everything = leaderboard(spoilt(frame(), lambda r: r.arm != ""))
    assert set(everything["verdict"]) == {"not compared"}
    assert everything["success"].isna().all()


def agree(made: pd.DataFrame) -> pd.DataFrame:
    """Check that the leaderboard and the comparison of arms are of the same runs; return it."""
    board = leaderboard(made).set_index("arm")
    best = board.index[0]
    for row in compare(made, by="arm").to_dict("records"):
        apart = board.loc[row["a"], "success"] - board.loc[row["b"], "success"]
        assert row["diff"] == pytest.approx(apart)
        if best in (row["a"], row["b"]) and row["verdict"] in ("a higher", "b higher"):
            assert row[row["verdict"][0]] == best
    assert board["behind"].tolist() == pytest.approx(
        list(board["success"] - board["success"].iloc[0])
    )
    assert not (board["behind"] > 1e-12).any()
    return board


def test_runs_that_were_spoilt_at_rate_0_take_nobody_along():
    made = pd.concat([frame({"a": [1] * 4 + [0] * 12, "b": [0] * 4 + [1] * 12}, fault_rate=rate)
                      for rate in (0.0, 0.1)], ignore_index=True)  # fmt: skip
    hard = ~made["scenario"].isin([f"s{i}" for i in range(4)])
    made = spoilt(made, lambda r: hard & (r.fault_rate == 0) & (r.arm == "b"))
    assert agree(made)["success"].to_dict() == {"b": 0.75, "a": 0.25}


def test_a_rate_weighs_no_less_where_seeds_of_it_were_spoilt():
    low = frame({"a": [1] * 8, "b": [0] * 8}, fault_rate=0.3)
    high = frame({"a": [0] * 8, "b": [1] * 8}, fault_rate=0.6)
    made = pd.concat([low, high], ignore_index=True)
    made["success"] |= (made["arm"] == "b") & (made["seed"] == 1)
    made = spoilt(made, lambda r: (r.fault_rate == 0.6) & (r.arm == "b") & (r.seed == 0))
    assert agree(made)["success"].to_dict() == {"b": 0.75, "a": 0.5}


@pytest.mark.parametrize("seed", range(12))
def test_leaderboard_and_comparison_agree_whatever_was_spoilt_or_not_scored(seed):
    rng = np.random.default_rng(seed)
    made = pd.concat([frame({arm: list(rng.integers(0, 2, 12)) for arm in "abc"}, fault_rate=rate)
                      for rate in (0.0, 0.1, 0.3)], ignore_index=True)  # fmt: skip
    made["success"] = rng.random(len(made)) < 0.5
    made = spoilt(made, lambda r: r.index.isin(rng.permutation(len(made))[:9]))
    made.loc[rng.permutation(len(made))[:5], "success"] = pd.NA
    agree(made)


def test_spoilt_runs_are_counted_also_where_they_count_as_failures():
    made = spoilt(frame(), lambda r: (r.arm == "good") & (r.seed == 1))
    asked = leaderboard(made, count_infrastructure=True).set_index("arm")
    assert asked["infrastructure"].to_dict() == {"good": 8, "near": 0, "bad": 0}
    assert asked.loc["good", "success"] == 0.5


def test_arms_that_are_numbers_and_frames_without_a_status():
    made = frame().drop(columns="status")
    made["arm"] = made["arm"].map({"good": 1, "near": 2, "bad": 3})
    board = leaderboard(made)
    assert board["arm"].tolist() == ["1", "2", "3"]
    assert board["crashed"].tolist() == [0, 0, 0]


# ---- recovery on common cells, faults a call -----------------------------------------------


def test_recovery_on_common_cells_counts_only_where_every_arm_met_a_fault():
    made = frame({"early": [1, 1, 0, 0], "late": [0, 1, 0, 1]})
    late = made["arm"] == "late"
    made.loc[late & (made["scenario"] == "s0"), "faults_delivered"] = 0
    made.loc[~late & (made["scenario"] == "s3"), "twin_success"] = 0.0
    board = leaderboard(made).set_index("arm")
    assert board["recovery"].to_dict() == pytest.approx({"early": 2 / 3, "late": 2 / 3})
    assert board["recovery_common"].to_dict() == {"early": 0.5, "late": 0.5}  # s1 and s2


def test_an_arm_that_was_never_measured_takes_no_common_cell():
    made = spoilt(frame({"a": [1, 0], "b": [1, 1], "c": [0, 0]}), lambda r: r.arm == "c")
    board = leaderboard(made).set_index("arm")
    assert board.loc[["a", "b"], "recovery_common"].tolist() == [0.5, 1.0]
    doubled = pd.concat([made, made[made["arm"] == "a"]], ignore_index=True)
    again = leaderboard(doubled).set_index("arm")
    assert again.loc[["a", "b"], "recovery_common"].tolist() == [0.5, 1.0]


def test_faults_a_call():
    board = leaderboard(frame()).set_index("arm")
    assert board["delivered_per_call"].tolist() == pytest.approx([1 / 7] * 3)
