"""Oracles: scipy.stats, matrix algebra, brute force, and simulated coverage."""

from itertools import combinations, product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from agentlab.study import stats

values = st.floats(-1, 1).map(lambda x: round(x, 3))
few = settings(max_examples=60, deadline=None)
sizes_of = st.lists(st.integers(1, 30), min_size=2, max_size=12)


def satterthwaite(sizes: list[int], power: float) -> float:
    """Return 2 E² / Var of the variance estimate of a mean, by matrices.

    The estimate is a quadratic form y'Ay of independent normal tasks: E = tr(A), Var = 2 tr(AA).
    """
    n = sum(sizes)
    residual = np.eye(n) - np.ones((n, n)) / n
    form, start = np.zeros((n, n)), 0
    for size in sizes:
        own = np.zeros(n)
        own[start : start + size] = 1 / (1 - size / n) ** power / n
        start += size
        row = residual @ own
        form += np.outer(row, row)
    return max(1.0, np.trace(form) ** 2 / np.trace(form @ form))


@few
@given(sizes_of, st.sampled_from([0.5, 1.0]))
def test_degrees_of_freedom_are_satterthwaites(sizes, power):
    got = stats.bell_mccaffrey_df(np.array(sizes, float), power)
    assert got == pytest.approx(satterthwaite(sizes, power))


def test_clusters_of_one_size_have_the_usual_degrees_of_freedom():
    for power in (0.5, 1.0):
        assert stats.bell_mccaffrey_df(np.full(9, 4.0), power) == pytest.approx(8)


# ---- a share -------------------------------------------------------------------------------


@few
@given(st.integers(1, 12), st.integers(1, 12))
def test_a_share_of_independent_tasks_is_wilsons_with_t(won, lost):
    """se² is m(1 - m)/(n - 1) then, so n - 1 observations, but no more than √(tasks · runs)."""
    y = [1.0] * won + [0.0] * lost
    n = won + lost
    got = stats.share_interval(y, level=0.9)
    m = won / n
    residuals = np.array(y) - m
    kurtosis = n * (residuals**4).sum() / (residuals**2).sum() ** 2
    df = max(1.0, min(n - 1, 2 * n / (kurtosis - 1))) if kurtosis > 1 + 1e-12 else n - 1
    z = scipy.stats.t.ppf(0.95, df)
    ends = [
        (m + z**2 / 2 / (n - 1) + s * z * np.sqrt(m * (1 - m) / (n - 1) + (z / 2 / (n - 1)) ** 2))
        / (1 + z**2 / (n - 1))
        for s in (-1, 1)
    ]
    assert got.mean == pytest.approx(m)
    assert (got.low, got.high) == pytest.approx(tuple(ends))


def test_scipys_wilson_is_what_many_independent_tasks_come_to():
    y = np.random.default_rng(0).random(4000) < 0.3
    got = stats.share_interval(y.astype(float))
    want = scipy.stats.binomtest(int(y.sum()), y.size).proportion_ci(method="wilson")
    assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=2e-4)


@few
@given(st.lists(st.integers(1, 9), min_size=2, max_size=9), st.sampled_from([0.0, 1.0]))
def test_where_nothing_varies_a_cluster_is_one_observation(sizes, value):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    got = stats.share_interval([value] * len(clusters), clusters)
    effective = sum(sizes) ** 2 / sum(s**2 for s in sizes)
    t = scipy.stats.t.ppf(0.975, stats.bell_mccaffrey_df(np.array(sizes, float), 0.5))
    far = t**2 / (effective + t**2)
    assert (got.low, got.high) == pytest.approx((0.0, far) if value == 0 else (1 - far, 1.0))
    assert stats.never_seen(np.array(sizes, float), 0.95) == pytest.approx(far)


@few
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), min_size=2, max_size=20),
    st.randoms(use_true_random=False),
)
def test_a_share_lies_in_its_interval_and_order_plays_no_part(tasks, random):
    y, clusters = zip(*tasks, strict=True)
    got = stats.share_interval(y, clusters)
    mixed = random.sample(tasks, len(tasks))
    again = stats.share_interval(*zip(*mixed, strict=True))
    assert np.allclose(got, again, equal_nan=True)
    turned = stats.share_interval([1 - x for x in y], clusters)
    assert np.allclose([1 - turned.high, 1 - turned.low], got[1:], equal_nan=True, atol=1e-7)
    if len(set(clusters)) > 1:
        assert 0 <= got.low <= got.mean + 1e-12
        assert got.mean - 1e-12 <= got.high <= 1


def test_more_runs_a_task_narrow_an_interval_that_their_number_bounds():
    y = [0.4, 0.6] * 10  # clusters vary less than runs alone would make them
    one, many = stats.share_interval(y), stats.share_interval(y, runs=200)
    assert many.high - many.low < one.high - one.low


# ---- other means, and differences ----------------------------------------------------------


@few
@given(st.lists(values, min_size=2, max_size=30), st.sampled_from([0.8, 0.95]))
def test_tasks_as_clusters_give_the_one_sample_t_interval_a_little_wider(y, level):
    got = stats.mean_interval(y, level=level)
    if len(set(y)) == 1:
        assert np.isnan([got.low, got.high]).all()
        return
    n = len(y)
    half = scipy.stats.t.ppf(0.5 + level / 2, n - 1) * scipy.stats.sem(y) * np.sqrt(n / (n - 1))
    assert np.allclose([got.low, got.high], [np.mean(y) - half, np.mean(y) + half])


def test_the_jackknife_is_cr3():
    """Leaving one cluster out at a time gives the same variance of a mean."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(7), rng.integers(1, 6, 7))
    y = rng.normal(size=clusters.size)
    left_out = np.array([y[clusters != c].mean() for c in range(7)])
    variance = ((left_out - y.mean()) ** 2).sum()
    sizes = np.bincount(clusters).astype(float)
    df = stats.bell_mccaffrey_df(sizes, 1.0)
    half = scipy.stats.t.ppf(0.975, df) * np.sqrt(variance)
    got = stats.mean_interval(y, clusters)
    assert (got.low, got.high) == pytest.approx((y.mean() - half, y.mean() + half))


def test_a_difference_of_shares_is_clipped_and_never_certain():
    sizes = np.full(6, 2.0)
    got = stats.difference_interval(np.array([2.0, 2, 2, 2, 2, -2]), sizes, share=True)
    assert got.high == 1
    flat = stats.difference_interval(np.full(6, 2.0), sizes, share=True)
    assert flat == (1.0, 1 - stats.never_seen(sizes, 0.95), 1.0)
    assert np.isnan(stats.difference_interval(np.full(6, 2.0), sizes, share=False).low)


def test_too_few_clusters_give_nan():
    for y, clusters in (([1, 0], ["a", "a"]), ([1], None), ([], None)):
        for interval in (stats.share_interval, stats.mean_interval):
            assert np.isnan(interval(y, clusters)[1:]).all()
    assert stats.mean_interval([1, 0], ["a", "a"]).mean == 0.5
    assert stats.share_interval([1, 0], ["a", "a"]).mean == 0.5
    assert np.isnan(stats.share_interval([]).mean)
    assert np.isnan(stats.mean_interval([]).mean)
    assert np.isnan(stats.cluster_bootstrap_interval(np.ones(1), np.ones(1), seed=0)).all()


# ---- bootstrap -----------------------------------------------------------------------------


def test_bootstrap_agrees_with_scipy():
    y = np.random.default_rng(2).normal(size=60)
    want = scipy.stats.bootstrap((y,), np.mean, method="percentile", rng=3, n_resamples=9999)
    got = stats.cluster_bootstrap_interval(y, np.ones(60), B=9999, seed=4)
    assert np.allclose(got, want.confidence_interval, atol=0.02)


def test_bootstrap_of_unequal_clusters_by_brute_force():
    groups = [[1.0] * 6, [0.0], [0.5, 0.0], [-1.0]]  # all 4**4 resamples are equally likely
    means = [np.mean([x for g in drawn for x in g]) for drawn in product(groups, repeat=4)]
    sums, sizes = (np.array([f(g) for g in groups], float) for f in (sum, len))
    got = stats.cluster_bootstrap_interval(sums, sizes, 0.8, 20_000, seed=0)
    assert np.allclose(got, np.quantile(means, [0.1, 0.9]), atol=0.03)
    assert got == stats.cluster_bootstrap_interval(sums, sizes, 0.8, 20_000, seed=0)
    sums, sizes = np.random.default_rng(0).random(12), np.ones(12)
    first, other = (stats.cluster_bootstrap_interval(sums, sizes, seed=s) for s in (7, 8))
    assert first != other


# ---- pass@k --------------------------------------------------------------------------------


@few
@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))), st.data())
def test_pass_at_k_and_pass_hat_k_by_enumeration(sizes, data):
    n_runs, k = sizes
    c = data.draw(st.lists(st.integers(0, n_runs), min_size=1, max_size=4))
    drawn = [[i < x for i in range(n_runs)] for x in c]
    any_of = np.mean([np.mean([any(s) for s in combinations(r, k)]) for r in drawn])
    all_of = np.mean([np.mean([all(s) for s in combinations(r, k)]) for r in drawn])
    assert stats.pass_at_k(c, n_runs, k) == pytest.approx(any_of)
    assert stats.pass_hat_k(c, n_runs, k) == pytest.approx(all_of)


def test_pass_at_k_stands_large_counts():
    assert stats.pass_at_k([5000], 10_000, 1) == 0.5
    assert stats.pass_hat_k([5000], 10_000, 2) == pytest.approx(0.25, abs=1e-4)
    assert np.isnan(stats.pass_at_k([], 4, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.share_interval([1, 2]), r"in \[0, 1\]"),
        (lambda: stats.share_interval([1, 0], level=95), "level in"),
        (lambda: stats.mean_interval([[1.0]]), "shape"),
        (lambda: stats.mean_interval([np.nan, 1]), "finite values"),
        (lambda: stats.mean_interval([np.inf, 1]), "finite values"),
        (lambda: stats.mean_interval([1, 2], ["a"]), "one cluster a task"),
        (lambda: stats.mean_interval([1, 2], ["a", None]), "cluster label"),
        (lambda: stats.cluster_bootstrap_interval([1], [1], B=1999, seed=0), "B >= 2000"),
        (lambda: stats.pass_at_k([1], 2, 3), "k <= K"),
        (lambda: stats.pass_hat_k([1], 2, 0), "1 <= k"),
        (lambda: stats.pass_at_k([3], 2, 1), "whole numbers"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
