"""The family of comparisons, against brute force over sign patterns and over differences."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings, strategies as st

from agentlab.study import family as module, stats
from agentlab.study.family import ALPHA, FEWEST_CLUSTERS, family, sign_patterns

few = settings(max_examples=100, deadline=None)
arms = st.integers(2, 4)


def pairs_of(sums: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return differences and sizes (C, P) of all pairs of the columns of ``sums`` (C, k)."""
    pairs = list(combinations(range(sums.shape[1]), 2))
    differences = np.stack([sums[:, a] - sums[:, b] for a, b in pairs], axis=1)
    return differences, np.repeat(sizes[:, None], len(pairs), axis=1)


def statistic(d: np.ndarray) -> float:
    spread = np.sqrt((d**2).sum())
    return abs(d.sum()) / spread if spread > 0 else 0.0


def brute(differences: np.ndarray) -> tuple[list[float], float]:
    """Return adjusted p of every pair, and c, over all patterns of signs."""
    largest = []
    for signs in product([1, -1], repeat=len(differences)):
        flipped = np.array(signs)[:, None] * differences
        largest.append(max(statistic(column) for column in flipped.T))
    p = [np.mean(np.array(largest) >= statistic(d) - 1e-9) for d in differences.T]
    return p, float(np.sort(largest)[int(np.ceil(0.95 * len(largest))) - 1])


@st.composite
def studies(draw, most=9, share=True):
    k, n_clusters = draw(arms), draw(st.integers(FEWEST_CLUSTERS, most))
    sizes = np.array(draw(st.lists(st.integers(1, 6), min_size=n_clusters, max_size=n_clusters)))
    tops = np.repeat(sizes[:, None], k, axis=1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rates = rng.random(k)
    return rng.binomial(tops, rates).astype(float), sizes.astype(float)


@few
@given(studies())
def test_p_is_the_share_of_patterns_with_a_larger_statistic(study):
    differences, sizes = pairs_of(*study)
    p, c = brute(differences)
    found = family(differences, sizes, share=True)
    assert found.p == pytest.approx(p)
    assert found.shown.tolist() == [statistic(d) > c + 1e-9 for d in differences.T]


@few
@given(studies())
def test_the_interval_is_what_would_not_be_rejected(study):
    """Walk along θ and look at |T(D - θn)| ≤ c itself."""
    differences, sizes = pairs_of(*study)
    _, c = brute(differences)
    found = family(differences, sizes, share=True)
    grid = np.linspace(-1, 1, 201)
    for d, n, mean, low, high in zip(
        differences.T, sizes.T, found.diff, found.low, found.high, strict=True
    ):
        residuals = d - mean * n
        if np.abs(residuals).max() < 1e-9:
            continue  # no variation: another rule
        kept = [statistic(d - theta * n) <= c + 1e-9 for theta in grid]
        near = int(np.argmin(np.abs(grid - mean)))
        first, last = near, near  # the part with the estimate
        while first and kept[first - 1]:
            first -= 1
        while last < len(grid) - 1 and kept[last + 1]:
            last += 1
        if statistic(d) <= c + 1e-9 and not first <= 100 <= last:
            first, last = 0, len(grid) - 1  # 0 is not rejected, apart from the estimate
        assert low == pytest.approx(grid[first], abs=0.011)
        assert high == pytest.approx(grid[last], abs=0.011)


@few
@given(studies(most=15))
def test_interval_p_and_verdict_agree(study):
    differences, sizes = pairs_of(*study)
    found = family(differences, sizes, share=True, draws=400)
    outside = (found.low > 0) | (found.high < 0)
    assert (outside == found.shown).all()
    assert ((found.p <= ALPHA) == found.shown).all()
    assert ((found.low - 1e-9 <= found.diff) & (found.diff <= found.high + 1e-9)).all()
    assert ((found.low >= -1) & (found.high <= 1)).all()


@few
@given(studies(), st.integers(0, 3))
def test_turning_a_pair_round_turns_its_interval(study, column):
    differences, sizes = pairs_of(*study)
    column %= differences.shape[1]
    turned = differences.copy()
    turned[:, column] *= -1
    one, other = (family(d, sizes, share=True) for d in (differences, turned))
    assert other.low[column] == pytest.approx(-one.high[column])
    assert other.p == pytest.approx(one.p)


def test_one_pair_is_the_sign_flip_test_of_scipy_and_of_mcnemar():
    """k = 2: of binary differences the patterns are those of the binomial test."""
    d = np.array([1.0] * 8 + [-1.0])[:, None]
    found = family(d, np.ones((9, 1)), share=True)
    mcnemar = 2 * (comb(9, 0) + comb(9, 1)) / 2**9
    assert found.p == pytest.approx([mcnemar])
    want = scipy.stats.permutation_test(
        (d[:, 0],), np.sum, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert found.p == pytest.approx([want])


def test_more_clusters_than_are_enumerated_are_sampled_near_the_exact_p():
    rng = np.random.default_rng(0)
    differences, sizes = pairs_of(rng.random((13, 3)), np.ones(13))
    p, _ = brute(differences)
    assert family(differences, sizes, share=True).p == pytest.approx(p, abs=0.03)
    assert len(sign_patterns(12)) == 2**11
    assert len(sign_patterns(13)) == module.DRAWS
    assert (sign_patterns(13)[0] == 1).all()
    assert (sign_patterns(13, seed=1) != sign_patterns(13)).any()


def test_eight_clusters_and_six_arms_show_what_holm_cannot():
    """All fifteen p-values of sign flips are at least 2/256, times 15 above 5 %."""
    sums = np.tile(np.array([3.0, 0, 0, 0, 0, 0]), (8, 1))
    sums[:, 1:] += np.random.default_rng(1).random((8, 5)) / 5
    found = family(*pairs_of(sums, np.full(8, 3.0)), share=True)
    assert found.shown[:5].all()
    assert not found.shown[5:].any()
    assert found.p[0] == 2**-7


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 4, 5])
def test_under_six_clusters_nothing_is_shown_and_nothing_is_excluded(n_clusters):
    sums = np.tile([1.0, 0.0], (n_clusters, 1))
    found = family(*pairs_of(sums, np.ones(n_clusters)), share=True)
    assert not found.shown.any()
    if n_clusters == 1:
        assert np.isnan([found.low, found.high, found.p]).all()
    else:
        assert (found.low, found.high) == ([-1.0], [1.0])
        assert found.p == [2.0 ** (1 - n_clusters)]


def test_no_variation_is_not_certainty():
    sums, sizes = np.tile([3.0, 0.0, 0.0], (8, 1)), np.full(8, 3.0)
    found = family(*pairs_of(sums, sizes), share=True)
    half = stats.never_seen(sizes, 1 - ALPHA / 3)
    assert found.shown.tolist() == [True, True, False]
    assert found.low == pytest.approx([1 - half, 1 - half, -half])
    assert found.high == pytest.approx([1, 1, half])
    seconds = family(*pairs_of(sums, sizes), share=False)
    assert np.isnan(seconds.low).all()
    assert (seconds.shown == found.shown).all()


def test_only_shares_are_clipped():
    rng = np.random.default_rng(4)
    sums = rng.normal(50, 20, (8, 2))
    seconds = family(*pairs_of(sums, np.ones(8)), share=False)
    assert seconds.high[0] - seconds.low[0] > 2
    assert seconds.low[0] < seconds.diff[0] < seconds.high[0]
    scaled = family(*pairs_of(sums / 1000, np.ones(8)), share=False)
    assert scaled.low * 1000 == pytest.approx(seconds.low)
    assert (scaled.p == seconds.p).all()


def test_a_pair_without_tasks_in_some_clusters_rests_on_the_others():
    """As a class of faults that only some clusters met."""
    rng = np.random.default_rng(6)
    sums = rng.random((9, 2))
    sizes = np.ones(9)
    sums[6:], sizes[6:] = 0, 0
    whole = family(*pairs_of(sums, sizes), share=True)
    part = family(*pairs_of(sums[:6], sizes[:6]), share=True)
    assert whole.n_clusters == [6]
    assert (whole.diff, whole.p) == (pytest.approx(part.diff), pytest.approx(part.p))
    assert (whole.low, whole.high) == (pytest.approx(part.low), pytest.approx(part.high))


@few
@given(studies())
def test_fewer_pairs_are_easier_to_show(study):
    """A baseline named beforehand: the same code over its pairs only."""
    sums, sizes = study
    assume(sums.shape[1] > 2)
    differences, n = pairs_of(sums, sizes)
    with_first = sums.shape[1] - 1  # combinations begin with those of arm 0
    every, some = (family(differences[:, :m], n[:, :m], share=True) for m in (None, with_first))
    assert (some.p <= every.p[:with_first] + 1e-12).all()
    assert (some.shown >= every.shown[:with_first]).all()


def test_what_cannot_be_shown_costs_the_others_nothing():
    """Strata with a few clusters stand in the table, and no verdict depends on them."""
    rng = np.random.default_rng(8)
    differences, sizes = pairs_of(rng.random((9, 3)), np.ones(9))
    rare, n = rng.normal(size=(9, 5)), np.zeros((9, 5))
    n[:4] = 1
    both = family(np.hstack([differences, rare * n]), np.hstack([sizes, n]), share=True)
    alone = family(differences, sizes, share=True)
    assert (both.p[:3] == alone.p).all()
    assert (both.low[:3] == alone.low).all()
    assert np.isnan(both.p[3:]).all()
    assert not both.shown[3:].any()
    assert (both.low[3:] == -1).all()
