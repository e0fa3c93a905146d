"""The visible difference is seen as often as it says: by simulation, not by formula."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from agentlab.study.calibration import realised_power
from agentlab.study.visible import smallest_visible


def pairs(k: int) -> list[tuple[int, int]]:
    return list(combinations(range(k), 2))


def study(n_clusters: int, k: int, tasks: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.full((n_clusters, k), float(tasks))
    return np.random.default_rng(seed).binomial(tasks, 0.5, (n_clusters, k)) * 1.0, sizes


@pytest.mark.parametrize(
    ("n_clusters", "k", "low", "high"),
    [(8, 2, 0.70, 0.95), (12, 3, 0.75, 0.92), (30, 4, 0.75, 0.92)],
)
def test_realised_power(n_clusters, k, low, high):
    found = realised_power(n_clusters, k, repetitions=150, seed=2)
    spread = 2 * np.sqrt(found * (1 - found) / 150)
    assert low - spread <= found <= high + spread


def test_under_six_clusters_nothing_is_visible():
    assert np.isnan(smallest_visible(*study(5, 2), pairs(2), share=True))


def test_more_clusters_and_fewer_arms_see_smaller_differences():
    found = {
        (n, k): smallest_visible(*study(n, k, seed=3), pairs(k), share=True)
        for n in (12, 30, 60) for k in (2, 6)
    }  # fmt: skip
    for k in (2, 6):
        assert found[60, k] < found[30, k] < found[12, k]
    assert all(found[n, 2] < found[n, 6] for n in (12, 30, 60))


def test_a_baseline_sees_smaller_differences_than_all_pairs():
    sums, sizes = study(20, 6)
    some = smallest_visible(sums, sizes, [p for p in pairs(6) if 0 in p], share=True)
    assert some < smallest_visible(sums, sizes, pairs(6), share=True)


def test_what_is_no_share_has_its_own_scale():
    sums, sizes = study(20, 3)
    share = smallest_visible(sums, sizes, pairs(3), share=True)
    seconds = smallest_visible(sums * 1000, sizes, pairs(3), share=False)
    assert seconds == pytest.approx(1000 * share, rel=0.05)


def test_clusters_without_a_task_play_no_part():
    sums, sizes = study(14, 3)
    more = [np.vstack([x, np.zeros((3, 3))]) for x in (sums, sizes)]
    assert smallest_visible(*more, pairs(3), share=True) == smallest_visible(
        sums, sizes, pairs(3), share=True
    )
