"""The visible difference is seen as often as it says: by simulation, not by formula."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from agentlab.study.calibration import realised_power
from agentlab.study.family import family
from agentlab.study.stats import never_seen
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


def sparse(
    n_clusters: int, k: int, rng: np.random.Generator, lead: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return arms that differ in a fifth of the clusters only, the first ahead by ``lead``."""
    moved = (rng.random((n_clusters, k)) < 0.2) * rng.choice([-1.0, 1.0], (n_clusters, k))
    sums = 1.0 + moved
    sums[:, 0] += 3 * lead
    return sums, np.full((n_clusters, k), 3.0)


@pytest.mark.parametrize("n_clusters", [9, 12])
def test_realised_power_where_few_clusters_differ(n_clusters):
    """A lead makes clusters count that did not differ before, and the critical value rises."""
    rng, found = np.random.default_rng(1), []
    for turn in range(120):
        sums, sizes = sparse(n_clusters, 2, rng)
        lead = smallest_visible(sums, sizes, pairs(2), share=True, seed=turn)
        raised, sizes = sparse(n_clusters, 2, rng, lead)
        difference = (raised[:, 0] - raised[:, 1])[:, None]
        found.append(family(difference, sizes[:, :1], share=True).shown[0])
    assert 0.7 <= np.mean(found) <= 0.95


def test_where_nothing_varies_a_small_lead_is_not_promised():
    """As wide as the interval of a share that nothing is seen of, and no number for seconds."""
    sums, sizes = np.full((12, 3), 3.0), np.full((12, 3), 3.0)
    least = never_seen(sizes[:, 0], 1 - 0.05 / 3)
    assert smallest_visible(sums, sizes, pairs(3), share=True) == pytest.approx(least, abs=0.01)
    assert np.isnan(smallest_visible(sums, sizes, pairs(3), share=False))
    one = sums.copy()
    one[0, 0] -= 1
    assert smallest_visible(one, sizes, pairs(3), share=True) >= least
