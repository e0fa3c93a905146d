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


def test_tied_is_what_the_comparison_with_the_best_does_not_show():
    runs = frame()
    board = leaderboard(runs).set_index("arm")
    assert board["tied"].to_dict() == {"good": False, "near": True, "bad": False}
    pairs = compare(runs, "success", by="arm", baseline="good").set_index("b")
    assert board.loc["near", "p_holm"] == pairs.loc["near", "p_holm"] > 0.05
    assert board.loc["bad", "p_holm"] == pairs.loc["bad", "p_holm"] < 0.05
    assert np.isnan(board.loc["good", "p_holm"])


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
    runs = frame({"a": [1, 1, 1, 1]})
    runs["replans"] = [0, 2, 3, 3, 5, 5, 8, 8]
    row = estimates(runs, "replans").iloc[0]
    means = np.array([1, 3, 5, 8])
    low, high = stats.t.interval(0.95, 3, means.mean(), stats.sem(means))
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
def test_an_arm_that_shares_no_task_with_the_best_is_not_called_tied(others):
    """As in a study that is not finished; also where nothing at all can be compared."""
    made = frame()
    made = made[made["arm"].isin(["good", "bad", *others])]
    made.loc[made["arm"] == "bad", "scenario"] += "-elsewhere"
    board = leaderboard(made).set_index("arm")
    assert np.isnan(board.loc["bad", "p_holm"])
    assert board["tied"].to_dict() == {"good": False, "bad": False, **dict.fromkeys(others, True)}
