"""Oracles: scipy.stats, brute force, and simulated coverage."""

from itertools import combinations, product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from agentlab.study import stats

values = st.floats(-1, 1).map(lambda x: round(x, 3))
few = settings(max_examples=60, deadline=None)


@few
@given(st.integers(1, 80).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts):
    s, n = counts
    want = scipy.stats.binomtest(s, n).proportion_ci(0.9, method="wilson")
    assert np.allclose(stats.wilson_interval(s, n, level=0.9), (want.low, want.high))


def test_wilson_broadcasts_and_takes_part_successes():
    low, high = stats.wilson_interval([0, 2.5, 5], 5)
    assert low.shape == high.shape == (3,)
    assert low[0] == 0
    assert high[2] == 1
    assert low[1] + high[1] == pytest.approx(1)
    assert stats.wilson_interval(0, 0) == (0, 1)


@few
@given(st.lists(values, min_size=2, max_size=30), st.sampled_from([0.8, 0.95]))
def test_tasks_as_clusters_give_the_one_sample_t_interval(d, level):
    got = stats.cluster_robust_interval(d, level=level)
    assert got.df == len(d) - 1
    if len(set(d)) == 1:
        assert (got.se, got.low, got.high) == (0, got.mean, got.mean)
        return
    want = scipy.stats.ttest_1samp(d, 0)
    ci = want.confidence_interval(level)
    assert np.allclose([got.low, got.high], [ci.low, ci.high])
    assert got.se == pytest.approx(scipy.stats.sem(d))


def test_clusters_of_equal_size_give_the_t_interval_of_their_means():
    d = np.random.default_rng(0).normal(size=(6, 4))
    got = stats.cluster_robust_interval(d.ravel(), np.repeat(list("abcdef"), 4))
    ci = scipy.stats.ttest_1samp(d.mean(axis=1), 0).confidence_interval()
    assert np.allclose([got.low, got.high], [ci.low, ci.high])


def test_cluster_standard_error_by_hand():
    d, clusters = [1.0, 0.0, 1.0, 0.5, -1.0], ["a", "a", "b", "b", "c"]  # mean 0.3
    sums = [0.4, 0.9, -1.3]
    want = (3 / 2 * sum(s**2 for s in sums)) ** 0.5 / 5
    assert stats.cluster_robust_interval(d, clusters).se == pytest.approx(want)


def test_too_few_clusters_give_nan():
    for d, clusters in (([1, 0], ["a", "a"]), ([1], None), ([], None)):
        assert np.isnan(stats.cluster_robust_interval(d, clusters)[1:4]).all()
        assert np.isnan(stats.cluster_bootstrap_interval(d, clusters, seed=0)).all()
    assert stats.cluster_robust_interval([1, 0], ["a", "a"]).mean == 0.5
    assert np.isnan(stats.cluster_robust_interval([]).mean)


def test_intervals_cover_clustered_data():
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(25), rng.integers(1, 6, size=25))
    hits, naive = np.zeros(2), 0
    for seed in range(300):
        d = rng.normal(size=25)[clusters] + rng.normal(size=clusters.size)
        t = stats.cluster_robust_interval(d, clusters)
        boot = stats.cluster_bootstrap_interval(d, clusters, seed=seed)
        alone = stats.cluster_robust_interval(d)
        hits += [t.low <= 0 <= t.high, boot[0] <= 0 <= boot[1]]
        naive += alone.low <= 0 <= alone.high
    assert 0.91 <= hits[0] / 300 <= 0.98
    assert 0.88 <= hits[1] / 300 <= 0.98
    assert naive / 300 < 0.88  # what ignoring clusters would have cost


def test_bootstrap_agrees_with_scipy():
    d = np.random.default_rng(2).normal(size=60)
    want = scipy.stats.bootstrap((d,), np.mean, method="percentile", rng=3, n_resamples=9999)
    got = stats.cluster_bootstrap_interval(d, B=9999, seed=4)
    assert np.allclose(got, want.confidence_interval, atol=0.02)


def test_bootstrap_of_unequal_clusters_by_brute_force():
    groups = [[1.0] * 6, [0.0], [0.5, 0.0], [-1.0]]  # all 4**4 resamples are equally likely
    means = [np.mean([x for g in drawn for x in g]) for drawn in product(groups, repeat=4)]
    clusters = np.repeat(range(4), [len(g) for g in groups])
    got = stats.cluster_bootstrap_interval(np.concatenate(groups), clusters, 0.8, 20_000, seed=0)
    assert np.allclose(got, np.quantile(means, [0.1, 0.9]), atol=0.03)


def test_bootstrap_depends_on_the_seed_alone():
    d, clusters = np.arange(12) / 7, np.arange(12) % 5
    order = np.random.default_rng(0).permutation(12)
    first = stats.cluster_bootstrap_interval(d, clusters, seed=7)
    again = stats.cluster_bootstrap_interval(d[order], [f"c{c}" for c in clusters[order]], seed=7)
    assert first == pytest.approx(again)
    assert first != stats.cluster_bootstrap_interval(d, clusters, seed=8)


@few
@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_binomial_test(b, c):
    want = scipy.stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert stats.mcnemar_exact(b, c) == pytest.approx(want)


@few
@given(st.lists(values, min_size=1, max_size=9))
def test_sign_flip_enumerates_as_scipy_does(d):
    if len(d) > 1:
        want = scipy.stats.permutation_test(
            (d,), np.sum, permutation_type="samples", n_resamples=np.inf
        ).pvalue
    else:
        want = 1.0
    assert stats.sign_flip_test(d, seed=0) == pytest.approx(want)


@few
@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=12))
def test_sign_flip_of_binary_differences_is_mcnemar(d):
    assert stats.sign_flip_test(d, seed=0) == pytest.approx(
        stats.mcnemar_exact(d.count(1), d.count(-1))
    )


def test_sign_flip_moves_clusters_together():
    d, clusters = [1, 1, 1, 1, 1, -1], list("aaabbb")  # sums 3 and 1
    assert stats.sign_flip_test(d, clusters, seed=0) == 0.5


def test_sampled_sign_flip_is_near_the_exact_p_and_never_zero():
    d = [1] * 13 + [-1] * 5
    exact = stats.mcnemar_exact(13, 5)
    assert stats.sign_flip_test(d, seed=1) == pytest.approx(exact, abs=0.01)
    assert stats.sign_flip_test([1] * 40, seed=1, draws=1500) == 1 / 1501
    assert stats.sign_flip_test([0.0] * 40, seed=1) == 1
    assert np.isnan(stats.sign_flip_test([], seed=1))


def test_holm_worked_example():
    assert np.allclose(stats.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


@few
@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=8))
def test_holm_by_definition(p):
    adjusted = stats.holm(p)
    known = sorted(x for x in p if x == x)
    for x, got in zip(p, adjusted, strict=True):
        if x != x:
            assert np.isnan(got)
            continue
        steps = [(len(known) - j) * q for j, q in enumerate(known) if q <= x]
        # tied p-values share the largest of their steps
        assert got == pytest.approx(min(1.0, max(steps)))


@pytest.mark.parametrize("df", [5, 12, 60])
def test_smallest_detectable_difference_has_its_power(df):
    delta = stats.smallest_detectable_difference(1.0, df, power=0.8)
    power = scipy.stats.nct.sf(scipy.stats.t.ppf(0.975, df), df, delta)
    assert power == pytest.approx(0.8, abs=0.03)


def test_smallest_detectable_difference_is_unknown_without_variation():
    for se, df in ((0.0, 9), (np.nan, 0), (0.1, 0)):
        assert np.isnan(stats.smallest_detectable_difference(se, df))


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


def test_paired_comparison_drops_pairs_with_nan():
    a, b = [1, 1, np.nan, 0, 1, 1], [0, 0, 1, np.nan, 1, 0]
    r = stats.paired_comparison(a, b, list("aabbcd"), seed=3)
    d, clusters = [1, 1, 0, 1], list("aacd")
    t = stats.cluster_robust_interval(d, clusters)
    assert (r.n_tasks, r.n_clusters, r.n_dropped) == (4, 3, 2)
    assert (r.diff, r.low, r.high) == (t.mean, t.low, t.high)
    assert (r.boot_low, r.boot_high) == stats.cluster_bootstrap_interval(d, clusters, seed=3)
    assert r.p == stats.sign_flip_test(d, clusters, seed=3)
    assert r.smallest_difference == stats.smallest_detectable_difference(t.se, t.df)


@pytest.mark.parametrize(
    ("one_seed", "a", "clusters", "test"),
    [
        (True, [1, 0, 1], None, "mcnemar"),
        (True, [1, 0, 1], ["x", "x", "y"], "sign_flip"),  # tasks are not independent
        (True, [1, 0.5, 1], None, "sign_flip"),
        (False, [1, 0, 1], None, "sign_flip"),
    ],
)
def test_paired_comparison_chooses_the_test(one_seed, a, clusters, test):
    r = stats.paired_comparison(a, [0, 0, 0], clusters, one_seed=one_seed)
    assert r.test == test


def test_paired_comparison_of_nothing_and_of_equals():
    empty = stats.paired_comparison([np.nan], [1])
    assert (empty.n_tasks, empty.n_dropped) == (0, 1)
    assert np.isnan([empty.diff, empty.low, empty.boot_low, empty.p]).all()
    same = stats.paired_comparison([0.1] * 9, [0.1] * 9)
    assert (same.diff, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert np.isnan(same.smallest_difference)


@few
@given(st.lists(st.tuples(values, values), min_size=2, max_size=9))
def test_swapping_the_arms_negates_the_comparison(pairs):
    a, b = zip(*pairs, strict=True)
    one, other = stats.paired_comparison(a, b), stats.paired_comparison(b, a)
    assert (one.diff, one.low) == pytest.approx((-other.diff, -other.high))
    assert one.p == pytest.approx(other.p)


def test_sign_flip_by_brute_force_over_clusters():
    rng = np.random.default_rng(5)
    d, clusters = rng.normal(size=20).round(2), rng.integers(5, size=20)
    sums = [d[clusters == c].sum() for c in np.unique(clusters)]
    flips = [abs(np.dot(s, sums)) for s in product([-1, 1], repeat=len(sums))]
    want = np.mean(np.array(flips) >= abs(sum(sums)) - 1e-12)
    assert stats.sign_flip_test(d, clusters, seed=0) == want


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.wilson_interval(3, 2), "0 <= successes <= n"),
        (lambda: stats.wilson_interval(1, 2, level=95), "level in"),
        (lambda: stats.cluster_robust_interval([[1.0]]), "shape"),
        (lambda: stats.cluster_robust_interval([np.nan, 1]), "finite differences"),
        (lambda: stats.cluster_robust_interval([1, 2], ["a"]), "one cluster a task"),
        (lambda: stats.cluster_robust_interval([1, 2], ["a", None]), "cluster label"),
        (lambda: stats.cluster_bootstrap_interval([1, 2], B=1999, seed=0), "B >= 2000"),
        (lambda: stats.mcnemar_exact(-1, 2), "counts"),
        (lambda: stats.mcnemar_exact(1.5, 2), "counts"),
        (lambda: stats.sign_flip_test([1], seed=0, draws=0), "draws"),
        (lambda: stats.holm([1.2]), "p_values"),
        (lambda: stats.smallest_detectable_difference(-1, 3), "se >= 0"),
        (lambda: stats.smallest_detectable_difference(1, 3, power=1), "power"),
        (lambda: stats.pass_at_k([1], 2, 3), "k <= K"),
        (lambda: stats.pass_hat_k([1], 2, 0), "1 <= k"),
        (lambda: stats.pass_at_k([3], 2, 1), "whole numbers"),
        (lambda: stats.paired_comparison([1], [1, 2]), "one length"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
