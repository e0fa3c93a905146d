"""Statistics of a study: arrays in, numbers out.

The unit is the task, not the run: seeds are averaged within a task before anything here is called,
two arms are paired by task, and tasks that share a *cluster* (a template, a document, a world) are
not independent. Intervals and tests therefore work on clusters; a task without one is its own.
Follows Miller, "Adding Error Bars to Evals" (arXiv 2411.00640), with t quantiles on C - 1 degrees
of freedom in place of z. Left out: DataFrames (see ``metrics.py``), Bayesian and mixed models. The
file is over 400 lines, most of them definitions and examples: it imports nothing of ours.

Conventions. ``differences``: array_like (n_tasks,), finite, one number a task. ``clusters``: a
hashable label a task, or None when every task is its own cluster. ``level``, ``power``: in (0, 1).
``seed``: of a generator of its own. Other input is a ValueError that says what was expected.
Nothing is shown where nothing can be: too few clusters give ``nan``, not a guess.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Clusters = Iterable[Hashable] | None
Floats = npt.NDArray[np.float64]
EXACT_CLUSTERS = 12  # up to 2**12 sign patterns are enumerated, beyond that they are sampled


class ClusterInterval(NamedTuple):
    """A mean with its cluster-robust standard error and t interval."""

    mean: float
    se: float
    low: float
    high: float
    df: int


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Arm a against arm b over the same tasks; every difference is a minus b."""

    diff: float  # mean of a - b over tasks
    low: float  # cluster-robust t interval of diff
    high: float
    boot_low: float  # cluster bootstrap interval of diff
    boot_high: float
    p: float  # two-sided, not adjusted for the number of arms
    test: str  # "mcnemar" or "sign_flip"
    n_tasks: int  # compared; n_dropped more had a nan in either arm
    n_clusters: int
    n_dropped: int
    smallest_difference: float  # what this study could have shown at 80 % power; nan if se is 0


def wilson_interval(
    successes: npt.ArrayLike, n: npt.ArrayLike, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Wilson score interval of a proportion.

    Parameters
    ----------
    successes, n : array_like, broadcast together
        ``0 <= successes <= n``; need not be whole (a task's success may be a mean over seeds).

    Returns
    -------
    low, high : arrays in [0, 1] of the broadcast shape (numpy scalars for scalars); (0, 1) if n = 0

    References
    ----------
    Wilson (1927), JASA 22, 209-212.

    Examples
    --------
    >>> low, high = wilson_interval(8, 10)
    >>> round(float(low), 3), round(float(high), 3)
    (0.49, 0.943)
    """
    from scipy.special import ndtri

    s, total = np.broadcast_arrays(np.asarray(successes, float), np.asarray(n, float))
    if not (np.isfinite(total).all() and ((s >= 0) & (s <= total)).all()):
        raise ValueError(f"expected 0 <= successes <= n, got successes={successes!r}, n={n!r}")
    z2 = ndtri(0.5 + _fraction(level, "level") / 2) ** 2
    variance = s * (total - s) / np.maximum(total, np.finfo(float).tiny)  # n = 0 gives 0, not nan
    half = np.sqrt(z2 * (variance + z2 / 4))
    low, high = (s + z2 / 2 - half) / (total + z2), (s + z2 / 2 + half) / (total + z2)
    # The ends are exact in theory; rounding must not leave 1e-17 or 1 - 1e-16 there.
    return np.where(s == 0, 0.0, low)[()], np.where(s == total, 1.0, high)[()]


def cluster_robust_interval(
    differences: npt.ArrayLike, clusters: Clusters = None, level: float = 0.95
) -> ClusterInterval:
    """Mean, cluster-robust standard error and t interval with C - 1 degrees of freedom.

    SE = sqrt(C / (C - 1) * sum_c (sum_{i in c} (d_i - mean))**2) / n; with every task its own
    cluster this is the one-sample t interval.

    Returns
    -------
    ClusterInterval
        se, low and high are nan with fewer than 2 clusters (mean too with no task). An se of 0
        means that no variation was seen, not that there is none.

    References
    ----------
    Miller (2024), arXiv 2411.00640, section 2.2.

    Examples
    --------
    >>> r = cluster_robust_interval([1, 0, 1, 1], ["a", "a", "b", "b"])
    >>> r.mean, round(r.se, 3), r.df
    (0.75, 0.25, 1)
    """
    from scipy.special import stdtrit

    d, codes = _tasks(differences, clusters)
    df = max(np.unique(codes).size - 1, 0)
    mean = float(d.mean()) if d.size else np.nan
    quantile = 0.5 + _fraction(level, "level") / 2
    if df < 1:
        return ClusterInterval(mean, np.nan, np.nan, np.nan, df)
    residuals = np.bincount(codes, weights=d - mean)  # (n_clusters,)
    residuals[np.abs(residuals) <= 1e-12 * np.abs(d).sum()] = 0.0  # rounding is not variation
    se = float(np.sqrt((df + 1) / df * np.sum(residuals**2)) / d.size)
    half = float(stdtrit(df, quantile)) * se
    return ClusterInterval(mean, se, mean - half, mean + half, df)


def cluster_bootstrap_interval(
    differences: npt.ArrayLike,
    clusters: Clusters = None,
    level: float = 0.95,
    B: int = 2000,  # noqa: N803
    *,
    seed: int,
) -> tuple[float, float]:
    """Percentile interval of the mean, by resampling whole clusters.

    Parameters
    ----------
    B : int >= 2000
        Resamples; fewer leave the ends of the interval to chance. The order of tasks has no effect.

    Returns
    -------
    low, high : float
        nan with fewer than 2 clusters. Too narrow with few clusters (below about 10).

    Examples
    --------
    >>> cluster_bootstrap_interval([0, 0, 1, 1], list("aabb"), seed=0)
    (0.0, 1.0)
    """
    if B < 2000:
        raise ValueError(f"expected B >= 2000 resamples, got B={B!r}")
    tail = (1 - _fraction(level, "level")) / 2
    sums, sizes = _cluster_sums(*_tasks(differences, clusters))
    if sums.size < 2:
        return np.nan, np.nan
    drawn = np.random.default_rng(seed).integers(sums.size, size=(B, sums.size))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)  # (B,)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact p of McNemar's test.

    Parameters
    ----------
    b, c : int >= 0
        Discordant pairs: tasks only the first arm solves, tasks only the second solves.

    Returns
    -------
    float in (0, 1]
        Twice the smaller binomial tail of b in b + c at 1/2, at most 1; 1 without discordant pairs.

    References
    ----------
    McNemar (1947), Psychometrika 12, 153-157.

    Examples
    --------
    >>> mcnemar_exact(1, 7)
    0.0703125
    """
    if not (isinstance(b, int | np.integer) and isinstance(c, int | np.integer) and min(b, c) >= 0):
        raise ValueError(f"expected two counts >= 0, got b={b!r}, c={c!r}")
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(int(min(b, c)), int(b + c), 0.5)))


def sign_flip_test(
    differences: npt.ArrayLike,
    clusters: Clusters = None,
    *,
    seed: int,
    draws: int = 10_000,
) -> float:
    """Two-sided p of the paired permutation test that flips the sign of whole clusters.

    The null: swapping the two arms within a cluster changes nothing. Clusters that sum to zero
    play no part. Up to 12 others: all sign patterns are enumerated; more: they are sampled, and
    the observed pattern counts as one of them, (1 + hits) / (1 + draws).

    Returns
    -------
    float in (0, 1]; nan with no task

    References
    ----------
    Phipson and Smyth (2010), SAGMB 9(1), 39: permutation p-values should never be zero.

    Examples
    --------
    >>> sign_flip_test([1, 1, 1, 1, 1], seed=0)
    0.0625
    """
    if draws < 1:
        raise ValueError(f"expected draws >= 1, got draws={draws!r}")
    d, codes = _tasks(differences, clusters)
    if not d.size:
        return np.nan
    sums, _ = _cluster_sums(d, codes)
    tolerance = 1e-9 * np.abs(d).sum()  # patterns equal on paper must tie in floating point
    sums = sums[np.abs(sums) > tolerance]
    observed = abs(sums.sum()) - tolerance
    if sums.size <= EXACT_CLUSTERS:
        bits = np.arange(2**sums.size)[:, None] >> np.arange(sums.size) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ sums) >= observed))
    rng = np.random.default_rng(seed)
    hits = 0
    for start in range(0, draws, 1000):  # in blocks, to bound memory
        bits = rng.integers(2, size=(min(1000, draws - start), sums.size), dtype=np.int8)
        hits += int(np.sum(np.abs((1 - 2 * bits) @ sums) >= observed))
    return (1 + hits) / (1 + draws)


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's adjusted p-values, in input order.

    Parameters
    ----------
    p_values : array_like (n_tests,) in [0, 1] or nan
        nan (a test that could not be made) stays nan and is not counted.

    Returns
    -------
    array (n_tests,) in [0, 1]

    References
    ----------
    Holm (1979), Scandinavian Journal of Statistics 6, 65-70.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = _vector(p_values, "p_values", missing=True)
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise ValueError(f"expected p_values in [0, 1], got {p_values!r}")
    order = known[np.argsort(p[known], kind="stable")]
    scaled = p[order] * np.arange(order.size, 0, -1)
    p[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return p


def smallest_detectable_difference(
    se: float, df: int, power: float = 0.8, level: float = 0.95
) -> float:
    """Smallest true difference that a two-sided t test would find with the given power.

    (t(1 - alpha/2, df) + t(power, df)) * se, alpha = 1 - level. nan where se is nan or 0, or
    df < 1: no variation seen says nothing of what could have been seen.

    Examples
    --------
    >>> round(smallest_detectable_difference(0.05, df=39), 3)
    0.144
    """
    from scipy.special import stdtrit

    if se < 0:
        raise ValueError(f"expected se >= 0, got se={se!r}")
    upper, found = 0.5 + _fraction(level, "level") / 2, _fraction(power, "power")
    if np.isnan(se) or se == 0 or df < 1:
        return np.nan
    return float((stdtrit(df, upper) + stdtrit(df, found)) * se)


def pass_at_k(successes: npt.ArrayLike, K: int, k: int) -> float:  # noqa: N803
    """Chance that at least one of k runs succeeds: mean over tasks of 1 - C(K-c, k) / C(K, k).

    Parameters
    ----------
    successes : array_like (n_tasks,) of whole numbers in [0, K]
        Successful runs c of each task.
    K, k : int, 1 <= k <= K
        Runs made of each task; runs drawn from them without replacement. k > K is a ValueError:
        it cannot be estimated without bias.

    Returns
    -------
    float in [0, 1]; nan with no task

    References
    ----------
    Chen et al. (2021), arXiv 2107.03374, equation 1.

    Examples
    --------
    >>> round(pass_at_k([0, 1, 2], K=4, k=2), 3)
    0.444
    """
    return _mean([1 - comb(K - c, k) / comb(K, k) for c in _counts(successes, K, k)])


def pass_hat_k(successes: npt.ArrayLike, K: int, k: int) -> float:  # noqa: N803
    """Chance that all of k runs succeed (pass^k): mean over tasks of C(c, k) / C(K, k).

    Parameters and Returns as in `pass_at_k`.

    References
    ----------
    Yao et al. (2024), tau-bench, arXiv 2406.12045.

    Examples
    --------
    >>> round(pass_hat_k([4, 2, 0], K=4, k=2), 3)
    0.389
    """
    return _mean([comb(c, k) / comb(K, k) for c in _counts(successes, K, k)])


def paired_comparison(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    clusters: Clusters = None,
    *,
    one_seed: bool = False,
    level: float = 0.95,
    seed: int = 0,
) -> PairedComparison:
    """Compare two arms over the same tasks.

    The test is exact McNemar where its assumptions hold: one seed, binary outcomes, every task its
    own cluster. Else it is the sign-flip permutation over clusters.

    Parameters
    ----------
    a, b : array_like (n_tasks,), finite or nan
        One number a task (success averaged over seeds). A task that is nan in either is dropped.
    one_seed : bool
        Whether each number comes from one run.

    Examples
    --------
    >>> r = paired_comparison([1, 1, 1, 0], [0, 1, 0, 0], one_seed=True)
    >>> r.diff, r.p, r.test
    (0.5, 0.5, 'mcnemar')
    """
    first, second = _vector(a, "a", missing=True), _vector(b, "b", missing=True)
    if first.size != second.size:
        raise ValueError(f"expected a and b of one length, got {first.size} and {second.size}")
    kept = ~(np.isnan(first) | np.isnan(second))
    codes = _codes(clusters, first.size)[kept]
    first, second = first[kept], second[kept]
    d, n_clusters = first - second, np.unique(codes).size
    t = cluster_robust_interval(d, codes, level)
    boot_low, boot_high = cluster_bootstrap_interval(d, codes, level, seed=seed)
    binary = bool(np.isin(np.concatenate([first, second]), [0.0, 1.0]).all())
    # McNemar treats tasks as independent; over real clusters its p would be too small.
    if one_seed and binary and 0 < n_clusters == d.size:
        test, p = "mcnemar", mcnemar_exact(int(np.sum(d > 0)), int(np.sum(d < 0)))
    else:
        test, p = "sign_flip", sign_flip_test(d, codes, seed=seed)
    smallest = smallest_detectable_difference(t.se, t.df, level=level)
    return PairedComparison(
        *(t.mean, t.low, t.high, boot_low, boot_high, p, test),
        *(d.size, n_clusters, int(np.sum(~kept)), smallest),
    )


def _fraction(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise ValueError(f"expected {name} in (0, 1), got {name}={value!r}")
    return value


def _vector(values: npt.ArrayLike, name: str, *, missing: bool = False) -> Floats:
    """Return a fresh float array (n,); infinities are never allowed, nan only if missing."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"expected {name} of shape (n,), got shape {array.shape}")
    if np.isinf(array).any() or (not missing and np.isnan(array).any()):
        raise ValueError(f"expected finite {name}, got {values!r}")
    return array


def _codes(clusters: Clusters, n_tasks: int) -> npt.NDArray[np.intp]:
    """Number the labels 0, 1, ... by first appearance (labels of mixed types do not sort)."""
    labels = list(range(n_tasks) if clusters is None else clusters)
    if len(labels) != n_tasks:
        raise ValueError(f"expected one cluster a task ({n_tasks}), got {len(labels)}")
    if any(label is None or label != label for label in labels):
        raise ValueError(f"expected a cluster label for every task, got {labels!r}")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.intp)


def _tasks(values: npt.ArrayLike, clusters: Clusters) -> tuple[Floats, npt.NDArray[np.intp]]:
    array = _vector(values, "differences")
    return array, _codes(clusters, array.size)


def _cluster_sums(d: Floats, codes: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Sum and size of every cluster, in an order that the order of tasks does not change."""
    sums = np.bincount(codes, weights=d).astype(np.float64)
    sizes = np.bincount(codes).astype(np.float64)
    order = np.lexsort((sizes, sums))
    return sums[order], sizes[order]


def _counts(successes: npt.ArrayLike, K: int, k: int) -> list[int]:  # noqa: N803
    if not 1 <= k <= K:
        raise ValueError(f"expected 1 <= k <= K, got k={k!r}, K={K!r}")
    c = _vector(successes, "successes")
    if ((c < 0) | (c > K) | (c != np.round(c))).any():
        raise ValueError(f"expected whole numbers of successes in 0..{K}, got {successes!r}")
    return [int(x) for x in c]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else np.nan
