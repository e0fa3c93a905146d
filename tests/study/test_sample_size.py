"""The size of a study: variances that were put in, widths that were promised, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.errors import StudyError
from agentlab.study import stats
from agentlab.study.sample_size import (
    Components,
    Design,
    clusters_for,
    components,
    half_width,
    power_table,
    seeds_for,
    seeds_table,
)

few = settings(max_examples=60, deadline=None)


def drawn(parts: Components, design: Design, rng: np.random.Generator) -> np.ndarray:
    """Return normal values (clusters * tasks, seeds) with these variances."""
    c, m, k = design.n_clusters, int(design.tasks), design.n_seeds
    y = math.sqrt(parts.cluster) * rng.standard_normal((c, 1, 1))
    y = y + math.sqrt(parts.task) * rng.standard_normal((c, m, 1))
    return (y + math.sqrt(parts.seed) * rng.standard_normal((c, m, k))).reshape(c * m, k)


@pytest.mark.parametrize("parts", [Components(0.04, 0.02, 0.1), Components(0.0, 0.05, 0.2)])
def test_the_parts_that_were_put_in_are_found(parts):
    rng, design = np.random.default_rng(0), Design(400, 4, 3)
    found = components(drawn(parts, design, rng), np.repeat(np.arange(400), 4))
    assert found == pytest.approx(parts, abs=0.012)


def test_a_nested_analysis_of_variance_by_hand():
    """Two clusters of two tasks with two seeds: mean squares from the textbook's sums."""
    y = np.array([[3.0, 5.0], [4.0, 6.0], [9.0, 7.0], [8.0, 10.0]])
    tasks = y.mean(1)
    seed = ((y - tasks[:, None]) ** 2).sum() / 4
    clusters = np.array([tasks[:2].mean(), tasks[2:].mean()])
    ms_task = 2 * ((tasks - clusters.repeat(2)) ** 2).sum() / 2
    ms_cluster = 4 * ((clusters - y.mean()) ** 2).sum() / 1
    want = ((ms_cluster - ms_task) / 4, max(0.0, (ms_task - seed) / 2), seed)
    assert components(y, list("aabb")) == pytest.approx(want)


def test_a_seed_that_does_not_count_costs_its_task_nothing_else():
    rng, design = np.random.default_rng(3), Design(300, 4, 4)
    parts = Components(0.04, 0.02, 0.1)
    y = drawn(parts, design, rng)
    y[rng.random(y.shape) < 0.2] = np.nan
    y = np.where(np.isnan(y).all(axis=1, keepdims=True), 0.0, y)
    assert components(y, np.repeat(np.arange(300), 4)) == pytest.approx(parts, abs=0.015)
    made = pilot().assign(infrastructure=None)
    lost = (made["arm"] == "b") & (made["seed"] == made["scenario"].str[1].astype(int) % 4)
    made.loc[lost, "infrastructure"] = "denied"
    assert (power_table(made, Design(8, 3, 4))["seed"] > 0).all()


def test_one_cluster_needs_more_of_them():
    assert math.isinf(seeds_for(Components(0.0, 0.0, 0.2), 1, 3, 0.1))
    advice = seeds_table(pilot(), Design(1, 3, 4), 0.2)["advice"]
    assert advice.str.startswith("more seeds cannot; ").all()


def test_one_seed_cannot_be_told_from_tasks():
    assert math.isnan(components(np.eye(4)[:, :1], list("aabb")).seed)


@pytest.mark.parametrize("n_seeds", [1, 4])
def test_the_width_is_what_intervals_have_on_the_average(n_seeds):
    parts, design = Components(0.02, 0.03, 0.12), Design(15, 3, n_seeds)
    rng, clusters = np.random.default_rng(1), np.repeat(np.arange(15), 3)
    found = []
    for _ in range(400):
        y = drawn(parts, design, rng).mean(1)
        interval = stats.mean_interval(y, clusters.tolist())
        found.append(((interval.high - interval.low) / 2) ** 2)
    cr3 = math.sqrt(15 / 14)  # CR3 is a little wider
    assert math.sqrt(np.mean(found)) / cr3 == pytest.approx(half_width(parts, design), rel=0.04)


variances = st.floats(0, 0.2)


@few
@given(st.builds(Components, variances, variances, variances), st.integers(2, 40),
       st.integers(1, 6), st.floats(0.005, 0.3))  # fmt: skip
def test_seeds_and_clusters_are_the_smallest_that_do(parts, n_clusters, tasks, half):
    seeds = seeds_for(parts, n_clusters, tasks, half)

    def width(n: int, k: float) -> float:
        return half_width(parts, Design(n, tasks, k))  # type: ignore[arg-type]

    if math.isinf(seeds):
        assert width(n_clusters, 10**9) > half * (1 - 1e-6)
    else:
        assert width(n_clusters, seeds) <= half * (1 + 1e-9)
        assert seeds == 1 or width(n_clusters, seeds - 1) > half * (1 - 1e-9)
    clusters = clusters_for(parts, tasks, 5, half)
    assert width(clusters, 5) <= half
    assert clusters == 2 or width(clusters - 1, 5) > half


def pilot(n_clusters: int = 8, n_seeds: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"arm": arm, "planner": arm, "scenario": f"s{c}{t}", "cluster": f"c{c}", "fault_rate": 0.1,
         "seed": seed, "success": rng.random() < chance}
        for c in range(n_clusters) for t in range(3)
        for arm, chance in zip("ab", np.clip(rng.normal(0.5, 0.2, 2), 0, 1), strict=True)
        for seed in range(n_seeds)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_larger_study_sees_more_and_says_so():
    small, large = (power_table(pilot(), Design(n, 3, 4)) for n in (10, 40))
    assert small["b"].isna().tolist() == [True, True, False]
    assert (large["half_width"] < small["half_width"]).all()
    assert large["smallest_difference"].iloc[-1] < small["smallest_difference"].iloc[-1]
    assert small["smallest_difference"].iloc[:2].isna().all()


def test_seeds_for_a_width_or_that_more_cannot():
    table = seeds_table(pilot(), Design(8, 3, 4), 0.02)
    assert table["seeds"].isna().all()
    assert table["advice"].str.startswith("more seeds cannot; ").all()
    wide = seeds_table(pilot(), Design(8, 3, 4), 1.5)
    assert wide["advice"].tolist() == ["1 seed"] * 3


def test_a_study_judges_its_size_by_its_own_runs_or_by_a_pilot(tmp_path):
    suite = al.Suite("chain", [generate("easy", i) for i in range(8)])
    arms = al.grid(planner="reference", strategy=["never", "retry(1)"])
    first = al.Study(arms, suite, fault_rate=0.3, seeds=3, out=tmp_path / "a", controls=False)
    first.run(processes=1, progress=False)
    planned = al.Study(arms, suite, fault_rate=0.3, seeds=30, out=tmp_path / "b")
    now, then = first.power(), planned.power(first)
    assert (then["half_width"] <= now["half_width"]).all()
    pd.testing.assert_frame_equal(planned.power(first.runs), then)
    assert first.seeds_for(0.5)["clusters"].min() >= 2
    with pytest.raises(StudyError, match="above 0 and at most 2, got 0"):
        first.seeds_for(0)


@pytest.mark.parametrize("made", [pilot(1), pilot(4, 1)])
def test_a_pilot_that_is_too_small_is_refused(made):
    with pytest.raises(StudyError, match="a pilot needs 2 clusters and 2 seeds"):
        power_table(made, Design(8, 3, 4))


@pytest.mark.parametrize(
    ("values", "clusters"),
    [([1, 2], None), ([[1, 2]], None), ([[1], [float("nan")]], "ab"), ([[1], [math.inf]], "ab")],
)
def test_values_that_are_no_table_are_refused(values, clusters):
    with pytest.raises(ValueError, match="expected"):
        components(values, clusters)
