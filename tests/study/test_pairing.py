"""What may be compared, against a search by hand over frames with holes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.study.pairing import (
    complete_runs,
    counted_as_failures,
    paired,
    ranked_runs,
    seed_means,
    under_faults,
)

ARMS, TASKS, RATES, SEEDS = "abc", ("s", "t", "u", "v"), (0.1, 0.3), (0, 1)


def frame(keys: list[tuple[str, str, float, int]], spoilt: set[int] = frozenset()) -> pd.DataFrame:  # type: ignore[assignment]
    rows = [
        {"arm": arm, "strategy": arm, "scenario": task, "cluster": f"c{task}", "fault_rate": rate,
         "seed": seed, "success": (ord(task) * 5 + seed + ord(arm)) % 3 == 0,
         "infrastructure": "denied" if i in spoilt else None}
        for i, (arm, task, rate, seed) in enumerate(keys)
    ]  # fmt: skip
    columns = ["arm", "strategy", "scenario", "cluster", "fault_rate", "seed", "success",
               "infrastructure"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


WHOLE = list(product(ARMS, TASKS, RATES, SEEDS))


def by_hand(runs: pd.DataFrame) -> set[tuple[str, str, float, int]]:
    """Return the keys that count, one rule after the other, in plain loops."""
    rows = {
        (r.arm, r.scenario, r.fault_rate, r.seed): isinstance(r.infrastructure, str)
        for r in runs.itertuples()
    }
    arms = [a for a in ARMS if any(k[0] == a and not bad for k, bad in rows.items())]
    cells = {
        k[2:] for k in rows if all(any(x[0] == a and x[2:] == k[2:] for x in rows) for a in arms)
    }
    kept: set[tuple[str, str, float, int]] = set()
    good = [
        t for t in TASKS if cells and arms and all((a, t, *c) in rows for a in arms for c in cells)
    ]
    rates = {rate for rate, _ in cells}
    for task in good:
        left = {c for c in cells if not any(rows[a, task, *c] for a in arms)}
        if {rate for rate, _ in left} == rates:
            kept |= {(a, task, *c) for a in arms for c in left}
    return kept


@settings(max_examples=300, deadline=None)
@given(
    st.sets(st.integers(0, len(WHOLE) - 1), max_size=8),
    st.sets(st.integers(0, len(WHOLE) - 1), max_size=12),
)
def test_what_counts_is_what_a_search_by_hand_finds(missing, spoilt):
    runs = frame(WHOLE, spoilt).drop(index=list(missing))
    found = complete_runs(runs)
    keys = {(r.arm, r.scenario, r.fault_rate, r.seed) for r in found.itertuples()}
    assert keys == by_hand(runs)
    assert found.index.is_monotonic_increasing
    assert len(ranked_runs(runs)) == (len(keys) or len(runs))


ABSENT = object()
PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]


def test_a_whole_study_counts_whole():
    runs = frame(WHOLE)
    assert len(complete_runs(runs)) == len(runs)
    found = paired(runs, "success", "arm", PAIRS)
    assert [row[1:3] for row in found.rows] == PAIRS
    means = runs.groupby(["scenario", "arm"])["success"].mean().unstack()
    assert found.sums == pytest.approx(means.to_numpy())
    assert (found.sizes == 1).all()


def test_seeds_first_then_rates():
    """A task with a spoilt seed at one rate still weighs both rates alike."""
    runs = frame([(a, "s", r, n) for a in "ab" for r in RATES for n in SEEDS], {0})
    runs["success"] = (runs["fault_rate"] == 0.1) & (runs["arm"] == "a")
    assert paired(runs, "success", "arm", PAIRS[:1]).sums.tolist() == [[0.5, 0.0]]


def test_where_other_factors_differ_each_pair_has_those_that_it_shares():
    """a was run with planner x, b with x and y, c with y: a and c share none."""
    planners = {"a": "x", "b": "xy", "c": "y"}
    runs = pd.concat(
        frame([k for k in WHOLE if k[0] == arm]).assign(planner=planner)
        for arm, several in planners.items() for planner in several
    )  # fmt: skip
    runs = runs.reset_index(drop=True).assign(strategy=lambda r: r["arm"])
    found = paired(runs, "success", "strategy", PAIRS)
    assert [row[1:3] for row in found.rows] == [("a", "b"), ("b", "c")]
    part = runs[(runs["planner"] == "x") & (runs["arm"] == "b")]
    means = part.groupby("scenario")["success"].mean()
    assert found.sums[:, found.rows[0].second] == pytest.approx(means.to_numpy())


def test_nothing_is_a_pairing_of_nothing():
    assert paired(frame([]), "success", "arm", PAIRS).rows == ()
    every = frame(WHOLE, set(range(len(WHOLE))))
    assert len(complete_runs(every)) == 0
    assert paired(every, "success", "arm", PAIRS).rows == ()


@pytest.mark.parametrize("cluster", [None, float("nan"), pd.NA, ABSENT])
def test_a_scenario_without_a_cluster_is_its_own(cluster):
    runs = frame(WHOLE)
    alone = runs.drop(columns="cluster") if cluster is ABSENT else runs.assign(cluster=cluster)
    assert paired(alone, "success", "arm", PAIRS).sums.shape == (4, 3)
    part = runs["cluster"].where(runs["scenario"] != "s").replace("ct", "s")
    mixed = paired(runs.assign(cluster=part), "success", "arm", PAIRS)
    assert mixed.sums.shape == (4, 3)  # the scenario s is not in the cluster s


def test_rate_0_goes_where_there_are_others():
    assert set(under_faults(frame(WHOLE).assign(fault_rate=0.0))["fault_rate"]) == {0.0}
    mixed = pd.concat([frame(WHOLE), frame(WHOLE).assign(fault_rate=0.0)])
    assert set(under_faults(mixed)["fault_rate"]) == set(RATES)


def test_spoilt_runs_are_failures_only_where_asked():
    runs = frame(WHOLE, {0, 5}).assign(success=True)
    asked = counted_as_failures(runs)
    assert asked["success"].sum() == len(runs) - 2
    assert asked["success"].dtype == runs["success"].dtype
    assert asked["infrastructure"].isna().all()
    assert runs["success"].all()


def test_means_of_seeds_for_the_size_of_a_study():
    runs = frame(WHOLE)
    levels, values, clusters = seed_means(runs, "success", "arm")
    assert values.shape == (3, 4, 2)
    assert clusters == [f"cluster c{t}" for t in TASKS]
    a = runs[(runs["arm"] == levels[0]) & (runs["scenario"] == "s")]
    assert values[0, 0].tolist() == a.groupby("seed")["success"].mean().tolist()
    assert np.isfinite(values).all()
