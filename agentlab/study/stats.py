"""Estimates of a study: arrays in, numbers out.

The unit is the task, not the run: seeds are averaged within a task before anything here is called.
Tasks that share a *cluster* (a template, a document, a world) are not independent, so intervals
rest on clusters; a task without one is its own. Comparisons of arms are in ``family.py``. Left
out: DataFrames (see ``metrics.py``), Bayesian and mixed models.

Conventions. ``values``: array_like (n_tasks,), finite, one number a task. ``clusters``: a hashable
label a task, or None when every task is its own cluster. ``level``: in (0, 1). ``seed``: of a
generator of its own. Other input is a ValueError that says what was expected. Nothing is shown
where nothing can be: too few clusters give ``nan``, not a guess.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Clusters = Iterable[Hashable] | None
Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A mean over tasks with its interval; the ends are nan with fewer than 2 clusters."""

    mean: float
    low: float
    high: float


def share_interval(
    values: npt.ArrayLike, clusters: Clusters = None, level: float = 0.95, runs: int | None = None
) -> Interval:
    """Wilson's interval of a share, with an effective number of observations and a t quantile.

    The effective number is what a share of independent observations with the same standard error
    would rest on: m (1 - m) / se², with the CR2 standard error of clusters; no more than
    √(tasks · runs). The quantile is t's on Bell and McCaffrey's degrees of freedom, or fewer where
    a few clusters make most of the variation: 2 C / (κ - 1), κ the kurtosis of the residuals of
    clusters. Where no variation is seen, every cluster counts as one observation, (Σn)² / Σn².

    Parameters
    ----------
    values : array_like (n_tasks,) in [0, 1]
    clusters, level
        See the module.
    runs : int, optional
        Runs that the values are means of, all tasks together; default: one a task.

    Returns
    -------
    Interval
        In [0, 1]. It covers at least 92 % (of 95) from 5 clusters on, with clusters of like or of
        lognormal size; with one cluster many times the others 88 % (``docs/statistics.md``).

    References
    ----------
    Wilson (1927), JASA 22, 209-212; Korn and Graubard (1998), Survey Methodology 24, 193-201;
    Bell and McCaffrey (2002), Survey Methodology 28, 169-181.

    Examples
    --------
    >>> [round(x, 3) for x in share_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 1])]
    [0.8, 0.426, 0.956]
    """
    array, codes = _tasks(values, clusters)
    if ((array < -1e-9) | (array > 1 + 1e-9)).any():
        raise ValueError(f"expected values in [0, 1], got {values!r}")
    quantile = 0.5 + _fraction(level, "level") / 2
    sums, sizes = cluster_sums(array, codes)
    if sizes.size < 2:
        return Interval(float(array.mean()) if array.size else np.nan, np.nan, np.nan)
    return _wilson(sums, sizes, quantile, array.size if runs is None else runs)


def _wilson(sums: Floats, sizes: Floats, quantile: float, runs: int) -> Interval:
    from scipy.special import stdtrit

    total = sizes.sum()
    mean = sums.sum() / total
    residuals = sums - mean * sizes
    se = np.sqrt((residuals**2 / (1 - sizes / total)).sum()) / total
    df = bell_mccaffrey_df(sizes, 0.5)
    if se < 1e-9 or min(mean, 1 - mean) < 1e-9:
        effective = unvaried(sizes)
    else:
        kurtosis = sizes.size * (residuals**4).sum() / (residuals**2).sum() ** 2
        if kurtosis > 1 + 1e-12:
            df = max(1.0, min(df, 2 * sizes.size / (kurtosis - 1)))
        effective = min(mean * (1 - mean) / se**2, np.sqrt(total * runs))
    return _score(float(mean), float(stdtrit(df, quantile)) ** 2 / effective)


def _score(mean: float, q2: float) -> Interval:
    """Return Wilson's interval, ``q2`` being quantile² / number of observations."""
    half = np.sqrt(q2 * (mean * (1 - mean) + q2 / 4))
    low, high = ((mean + q2 / 2 + sign * half) / (1 + q2) for sign in (-1, 1))
    # The ends are exact in theory; rounding must not leave 1e-17 or 1 - 1e-16 there.
    ends = (0.0 if mean < 1e-9 else max(0.0, low), 1.0 if mean > 1 - 1e-9 else min(1.0, high))
    return Interval(mean, *map(float, ends))


def unvaried(sizes: Floats) -> float:
    """Return the number of observations that clusters without variation stand for."""
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def never_seen(sizes: Floats, level: float) -> float:
    """Return the upper end of the interval of a share that no cluster shows anything of."""
    from scipy.special import stdtrit

    t = float(stdtrit(bell_mccaffrey_df(sizes, 0.5), 0.5 + level / 2))
    return _score(0.0, t**2 / unvaried(sizes)).high


def bell_mccaffrey_df(sizes: Floats, power: float) -> float:
    """Return Satterthwaite's degrees of freedom of the variance of a mean over clusters.

    Parameters
    ----------
    sizes : array (n_clusters,)
        Tasks in each, at least 2 clusters.
    power : {0.5, 1}
        0.5 for the CR2 variance, 1 for CR3; the working model is independent tasks.

    Returns
    -------
    float
        At least 1.

    References
    ----------
    Bell and McCaffrey (2002), Survey Methodology 28, 169-181.
    """
    total = sizes.sum()
    weights = 1 / (1 - sizes / total) ** power / total
    own, shared = weights**2 * sizes, weights**2 * sizes**2 / total
    spread = (own**2).sum() - 2 * (own * shared).sum() + shared.sum() ** 2
    return max(1.0, float((own - shared).sum() ** 2 / spread))


def mean_interval(
    values: npt.ArrayLike, clusters: Clusters = None, level: float = 0.95
) -> Interval:
    """Mean over tasks with a cluster-robust t interval: CR3, Bell and McCaffrey's df.

    Returns
    -------
    Interval
        Not clipped. The ends are nan where no variation is seen: that says nothing of how much
        there is.

    References
    ----------
    Bell and McCaffrey (2002), Survey Methodology 28, 169-181.

    Examples
    --------
    >>> [round(x, 2) for x in mean_interval([4, 6, 5, 7])]
    [5.5, 3.13, 7.87]
    """
    array, codes = _tasks(values, clusters)
    return difference_interval(*cluster_sums(array, codes), share=False, level=level)


def difference_interval(
    sums: Floats, sizes: Floats, *, share: bool, level: float = 0.95
) -> Interval:
    """Mean paired difference with its own interval, not adjusted for other comparisons.

    Parameters
    ----------
    sums, sizes : array (n_clusters,)
        Of every cluster the sum of its tasks' differences, and how many these are, at least 1.
    share : bool
        The differences are of numbers in [0, 1]: the interval is clipped to [-1, 1], and where all
        are alike it is as wide as that of a share nothing is seen of (`never_seen`).
    level : float

    Returns
    -------
    Interval
        Else as `mean_interval`.

    Examples
    --------
    >>> alike = difference_interval(np.zeros(6), np.ones(6), share=True)
    >>> [round(x, 2) for x in alike]
    [0.0, -0.52, 0.52]
    """
    from scipy.special import stdtrit

    quantile, total = 0.5 + _fraction(level, "level") / 2, sizes.sum()
    mean = float(sums.sum() / total) if total else np.nan
    if sizes.size < 2:
        return Interval(mean, np.nan, np.nan)
    residuals = sums - mean * sizes
    if np.abs(residuals).max() <= 1e-12 * np.abs(sums).sum():  # rounding is not variation
        half = never_seen(sizes, level) if share else np.nan
    else:
        se = float(np.sqrt(((residuals / (1 - sizes / total)) ** 2).sum()) / total)
        half = float(stdtrit(bell_mccaffrey_df(sizes, 1.0), quantile)) * se
    low, high = mean - half, mean + half
    return Interval(mean, max(low, -1.0), min(high, 1.0)) if share else Interval(mean, low, high)


def cluster_bootstrap_interval(
    sums: Floats,
    sizes: Floats,
    level: float = 0.95,
    B: int = 2000,  # noqa: N803
    *,
    seed: int,
) -> tuple[float, float]:
    """Percentile interval of a mean over tasks, by resampling whole clusters.

    Parameters
    ----------
    sums, sizes : array (n_clusters,)
        As in `difference_interval`.
    B : int >= 2000
        Resamples; fewer leave the ends of the interval to chance.

    Returns
    -------
    low, high : float
        nan with fewer than 2 clusters. Too narrow with few clusters (below about 10).

    Examples
    --------
    >>> cluster_bootstrap_interval(np.array([0.0, 2.0]), np.array([2.0, 2.0]), seed=0)
    (0.0, 1.0)
    """
    if B < 2000:
        raise ValueError(f"expected B >= 2000 resamples, got B={B!r}")
    tail = (1 - _fraction(level, "level")) / 2
    if sums.size < 2:
        return np.nan, np.nan
    drawn = np.random.default_rng(seed).integers(sums.size, size=(B, sums.size))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)  # (B,)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


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


def _fraction(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise ValueError(f"expected {name} in (0, 1), got {name}={value!r}")
    return value


def _vector(values: npt.ArrayLike, name: str) -> Floats:
    """Return a fresh float array (n,) of finite numbers."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"expected {name} of shape (n,), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"expected finite {name}, got {values!r}")
    return array


def numbered(clusters: Clusters, n_tasks: int) -> npt.NDArray[np.intp]:
    """Number the labels 0, 1, ... by first appearance (labels of mixed types do not sort)."""
    labels = list(range(n_tasks) if clusters is None else clusters)
    if len(labels) != n_tasks:
        raise ValueError(f"expected one cluster a task ({n_tasks}), got {len(labels)}")
    if any(label is None or label != label for label in labels):
        raise ValueError(f"expected a cluster label for every task, got {labels!r}")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.intp)


def _tasks(values: npt.ArrayLike, clusters: Clusters) -> tuple[Floats, npt.NDArray[np.intp]]:
    array = _vector(values, "values")
    return array, numbered(clusters, array.size)


def cluster_sums(values: Floats, codes: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Sum and size of every cluster, in an order that the order of tasks does not change."""
    sums = np.bincount(codes, weights=values).astype(np.float64)
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
