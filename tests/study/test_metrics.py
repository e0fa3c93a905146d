"""Oracles: hand-worked frames, and the intervals of ``stats``."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.study import metrics, stats

few = settings(max_examples=60, deadline=None)


def frame(**columns):
    base = {"arm": "a", "scenario": [f"s{i}" for i in range(len(next(iter(columns.values()))))]}
    return pd.DataFrame(base | columns)


def row(table):
    assert len(table) == 1
    return table.iloc[0]


def test_seeds_are_averaged_within_a_task_first():
    runs = frame(scenario=["s", "s", "s", "t", "u"], success=[True, True, False, True, False])
    got = row(metrics.success_rate(runs))
    want = stats.share_interval([2 / 3, 1, 0], runs=5)
    assert got["success_rate"] == pytest.approx(5 / 9)
    assert (got["low"], got["high"]) == pytest.approx(want[1:])
    assert (got["n_tasks"], got["n_clusters"], got["n_runs"]) == (3, 3, 5)


def test_clusters_are_used_and_a_missing_one_is_the_scenario():
    runs = frame(success=[1.0, 0.0, 1.0, 1.0], cluster=["x", "x", None, None])
    got = row(metrics.success_rate(runs))
    want = stats.share_interval([1, 0, 1, 1], ["x", "x", "y", "z"])
    assert got["n_clusters"] == 3
    assert (got["low"], got["high"]) == pytest.approx(want[1:])


def test_a_lone_scenario_is_not_taken_into_a_cluster_of_its_name():
    runs = frame(scenario=["x", "p", "q"], success=[1, 0, 1], cluster=[None, "x", "x"])
    assert row(metrics.success_rate(runs))["n_clusters"] == 2


def test_tasks_that_agree_within_their_cluster_are_not_counted_as_if_they_were_many():
    tasks = frame(success=[True] * 8, cluster=["x"] * 4 + ["y"] * 4)
    together, apart = (row(metrics.success_rate(t)) for t in (tasks, tasks.drop(columns="cluster")))
    assert together["low"] < apart["low"] < apart["high"] == together["high"] == 1


def test_what_a_failing_model_spoilt_is_left_out_of_every_mean():
    runs = frame(success=[1, 0, 1, 0], replans=[1, 9, 3, 9])
    runs["infrastructure"] = [None, "denied", None, "timed out"]
    got = row(metrics.success_rate(runs))
    assert (got["success_rate"], got["n_runs"]) == (1, 2)
    assert row(metrics.mean(runs, "replans"))["replans"] == 2


def test_groups_keep_their_order_and_missing_keys():
    runs = pd.DataFrame(
        {
            "arm": ["b", "a", "b", "a"] * 2,
            "fault_rate": [0.1, None, 0.1, 0.2] * 2,
            "scenario": list("sstt") * 2,
            "success": [1, 0, 0, 1] * 2,
        }
    )
    got = metrics.success_rate(runs, by=("arm", "fault_rate"))
    assert got["arm"].tolist() == ["b", "a", "a"]
    assert got["fault_rate"].fillna(-1).tolist() == [0.1, -1, 0.2]
    assert got["success_rate"].tolist() == [0.5, 0, 1]
    assert row(metrics.success_rate(runs, by=()))["n_tasks"] == 2
    assert metrics.success_rate(runs, by=["scenario"])["n_tasks"].tolist() == [1, 1]


@few
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("stuv"), st.sampled_from([0.0, 1.0])),
        min_size=1,
        max_size=25,
    )
)
def test_success_rate_is_the_pandas_mean_of_means(rows):
    runs = pd.DataFrame(rows, columns=["arm", "scenario", "success"])
    got = metrics.success_rate(runs).set_index("arm")
    means = runs.groupby(["arm", "scenario"])["success"].mean().groupby("arm").mean()
    assert np.allclose(got["success_rate"], means[got.index])
    known = got.dropna()
    assert ((known["low"] >= 0) & (known["low"] <= known["success_rate"] + 1e-12)).all()
    assert ((known["high"] <= 1) & (known["high"] >= known["success_rate"] - 1e-12)).all()


def test_runs_without_a_score_are_left_out():
    for success in ([True, None, False], pd.array([True, pd.NA, False], dtype="boolean")):
        got = row(metrics.success_rate(frame(success=success)))
        assert (got["success_rate"], got["n_runs"], got["n_tasks"]) == (0.5, 2, 2)


def test_an_empty_frame_gives_an_empty_table():
    runs = frame(success=[1.0])[:0]
    assert len(metrics.success_rate(runs)) == 0
    assert np.isnan(row(metrics.success_rate(runs, by=()))["success_rate"])


def test_bad_frames_are_refused():
    with pytest.raises(ValueError, match=r"columns \['success'\]"):
        metrics.success_rate(frame(arm=["a"]))
    with pytest.raises(ValueError, match=r"columns \['planner'\]"):
        metrics.success_rate(frame(success=[1]), by=["planner"])
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        metrics.success_rate(frame(success=[2]))
    runs = frame(scenario=["s", "s"], success=[1, 1], cluster=["x", "y"])
    with pytest.raises(ValueError, match="one cluster a scenario"):
        metrics.success_rate(runs)


def test_normalised_success():
    runs = frame(  # the fourth run has no known ceiling, the fifth was not scored
        success=[1, 0, 1, 1, None], floor=[0, 0, 1, 0, 0], ceiling=[1, 1, 1, np.nan, 1]
    )
    got = row(metrics.normalised_success(runs))
    assert got["success"] == pytest.approx(2 / 3)
    assert got["normalised"] == pytest.approx((2 / 3 - 1 / 3) / (1 - 1 / 3))
    assert (got["n_tasks"], got["n_runs"], got["n_unknown"]) == (3, 3, 1)


def test_normalised_success_is_nan_without_room_or_knowledge():
    for ceiling in ([1, 1], [None, None]):
        runs = frame(success=[1, 0], floor=[1, 1], ceiling=ceiling)
        assert np.isnan(row(metrics.normalised_success(runs))["normalised"])


def test_floor_scores_zero_and_ceiling_one():
    floor, ceiling = [0, 1, 0, 0], [1, 1, 0, 1]
    for success, want in ((floor, 0), (ceiling, 1)):
        runs = frame(success=success, floor=floor, ceiling=ceiling)
        assert row(metrics.normalised_success(runs))["normalised"] == pytest.approx(want)


def test_side_effect_rate_is_joint():
    runs = frame(success=[True, False, False, False], changed_state=[True, True, False, True])
    assert row(metrics.side_effect_rate(runs))["side_effect_rate"] == 0.5


def recovery_frame():
    return frame(
        success=[1, 0, 1, 1, 1],
        faults_delivered=[1, 2, 0, 1, 3],
        twin_success=[1, 1, 1, 0, 1],
        sim_seconds=[10.0, 50.0, 1.0, 9.0, 8.0],
        twin_sim_seconds=[6.0, 6.0, 1.0, 9.0, 9.0],
    )


def test_recovery_counts_only_faulty_runs_with_a_solved_twin():
    got = row(metrics.recovery_rate(recovery_frame()))
    assert (got["recovery_rate"], got["n_runs"]) == (pytest.approx(2 / 3), 3)


def test_recovery_cost_is_over_recovered_runs():
    got = row(metrics.recovery_cost(recovery_frame()))
    assert (got["recovery_cost"], got["n_runs"]) == (1.5, 2)
    assert got["low"] < -1  # not a proportion: not clamped


def test_a_group_without_faults_stays_in_the_table():
    runs = recovery_frame().assign(faults_delivered=0)
    got = row(metrics.recovery_rate(runs))
    assert got["n_runs"] == 0
    assert np.isnan([got["recovery_rate"], got["low"], got["high"]]).all()


def test_few_faults_names_the_cell_and_not_the_twins():
    runs = frame(fault_rate=[0.0, 0.1, 0.1, 0.4], faults_delivered=[0, 4, 5, 10])
    got = metrics.few_faults(runs)
    assert got.to_dict("records") == [{"arm": "a", "fault_rate": 0.1, "faults_new": 9, "n_runs": 2}]
    assert len(metrics.few_faults(runs, least=9)) == 0


def test_a_fault_that_stands_is_one_however_many_calls_it_meets():
    runs = frame(fault_rate=[0.1, 0.1], faults_delivered=[40, 30], faults_new=[1, None])
    assert len(metrics.few_faults(runs)) == 0  # of the second no more is known
    runs["faults_new"] = [1, 2]
    assert metrics.few_faults(runs)["faults_new"].tolist() == [3]


def test_faults_delivered_a_call():
    runs = frame(arm=list("aabb"), faults_delivered=[1, 3, None, 0], tool_calls=[4, 4, 0, None])
    got = metrics.delivered_per_call(runs)
    assert got["delivered_per_call"].tolist()[0] == 0.5
    assert np.isnan(got["delivered_per_call"][1])
