"""A family of paired differences: one procedure gives its table, intervals and verdicts.

Single-step max-T over common sign flips of clusters (Westfall and Young 1993; Romano and Wolf 2005,
Econometrica 73, 1237-1282). Under the null, swapping two arms within a cluster changes nothing, so
the signs of a cluster's differences may be flipped, those of all pairs at once. Each pair's
statistic is T = ΣD / √ΣD² over the sums D of clusters; one critical value c holds for all pairs,
the 95 % quantile of the largest |T| over the flips. A difference is shown where |T| > c, and its
interval is the set of differences θ that would not be rejected, |T(D - θn)| ≤ c. The chance that
any verdict of a table is wrong is at most 5 %, however many pairs it has.

Conventions. C clusters, P pairs. ``differences``, ``sizes``: arrays (C, P), the sum over a
cluster's tasks of a minus b, and how many tasks those are (0: none). ``share``: the values lie in
[0, 1], so that differences lie in [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from agentlab.study.stats import Floats, never_seen

Flags = npt.NDArray[np.bool_]
ALPHA = 0.05
EXACT_CLUSTERS = 12
"""Up to so many all patterns of signs are enumerated, 2^(C - 1); beyond, ``DRAWS`` are drawn."""

DRAWS = 4000
FEWEST_CLUSTERS = 6
"""With fewer nothing can be shown: the smallest p, 2^(1 - C), is above 5 %."""

SAME = 1e-9
"""Statistics closer than this are equal on paper."""


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of each pair, P of them; ``low``, ``high``, ``p`` and ``shown`` agree."""

    diff: Floats
    """Mean over tasks of a minus b; nan without a task."""
    low: Floats
    """Simultaneous 95 % interval. With 1 cluster nan, with 2 to 5 all that is possible."""
    high: Floats
    p: Floats
    """Two-sided, adjusted for all pairs; nan with 1 cluster, and with under 6 beside others."""
    shown: Flags
    """Whether a difference is shown: 0 is outside the interval, p is at most 5 %."""
    n_clusters: npt.NDArray[np.intp]
    """Clusters with a task."""


def sign_patterns(n_clusters: int, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Return patterns of signs (B, C); the first changes none.

    All of them, up to a common sign, for at most ``EXACT_CLUSTERS``; else ``draws`` at random.
    """
    if n_clusters <= EXACT_CLUSTERS:
        numbers = np.arange(2 ** max(n_clusters - 1, 0))[:, None]
        flipped = numbers >> np.arange(n_clusters) & 1
    else:
        flipped = np.random.default_rng(seed).integers(0, 2, (draws, n_clusters))
        flipped[0] = 0
    return np.where(flipped, -1.0, 1.0)


def statistics(differences: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """Return T (P,) and the largest |T| of every pattern, sorted (B,); ``threshold`` reads it."""
    scaled = differences / np.maximum(np.sqrt((differences**2).sum(0)), 1e-12)
    return scaled.sum(0), np.sort(np.abs(signs @ scaled).max(1))


def threshold(largest: Floats, alpha: float = ALPHA) -> float:
    """Return the value that |T| must exceed, from the sorted largest |T|."""
    place = int(np.ceil((1 - alpha) * largest.size - 1e-9)) - 1
    return float(largest[place]) + SAME


def family(
    differences: Floats, sizes: Floats, *, share: bool, draws: int = DRAWS, seed: int = 0
) -> Family:
    """Compare pairs of arms, all of them together.

    Parameters
    ----------
    differences, sizes, share
        See the module; at least one pair.
    draws, seed : int
        See ``sign_patterns``.

    Returns
    -------
    Family
        Where every task of a pair has the same difference no variation is seen, which is not
        certainty: of shares the interval is then as wide as that of a share nothing is seen of, at
        the Bonferroni level; of other numbers it is nan.
    """
    scale = np.ones(differences.shape[1])
    if not share:  # all tolerances are those of numbers about 1
        largest = np.abs(differences).max(0)
        scale = np.where(largest > 0, largest, 1.0)
    found = _family(differences / scale, sizes, share, draws, seed)
    return replace(found, diff=found.diff * scale, low=found.low * scale, high=found.high * scale)


def _family(differences: Floats, sizes: Floats, share: bool, draws: int, seed: int) -> Family:
    total, n_clusters = sizes.sum(0), (sizes > 0).sum(0)
    with np.errstate(invalid="ignore"):
        mean = differences.sum(0) / total
    signs = sign_patterns(len(sizes), draws, seed)
    enough = n_clusters >= FEWEST_CLUSTERS
    tested = enough if enough.any() else ~enough  # what cannot be shown costs the others nothing
    _, largest = statistics(differences[:, tested], signs)
    statistic, _ = statistics(differences, signs[:1])
    c = threshold(largest)
    above = largest.size - np.searchsorted(largest, np.abs(statistic) - SAME)
    shown = (np.abs(statistic) > c) & enough
    low, high = _intervals(differences, sizes, mean, c)
    for pair in np.flatnonzero(_flat(differences, sizes, mean)):
        half = _without_variation(sizes[:, pair], share, int(tested.sum()))
        low[pair], high[pair] = mean[pair] - half, mean[pair] + half
    low, high = _agreeing(low, high, mean, shown)
    few = (n_clusters > 1) & (n_clusters < FEWEST_CLUSTERS)
    bound = 1.0 if share else np.inf
    low, high = np.where(few, -bound, low), np.where(few, bound, high)
    if share:
        low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    unknown = n_clusters < 2
    low, high = np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)
    p = np.where(unknown | ~tested, np.nan, above / largest.size)
    return Family(mean, low, high, p, shown, n_clusters)


def _intervals(differences: Floats, sizes: Floats, mean: Floats, c: float) -> tuple[Floats, Floats]:
    """Return the ends of {θ: |Σ(D - θn)| ≤ c √Σ(D - θn)²}, the part with the estimate in it.

    Squared, that is a quadratic inequality in θ. Where c is so large that its leading coefficient
    is 0 or below, only a ray or a stretch is excluded, or nothing.
    """
    total = sizes.sum(0)
    a = total**2 - c**2 * (sizes**2).sum(0)
    b = -2 * (differences.sum(0) * total - c**2 * (differences * sizes).sum(0))
    rest = differences.sum(0) ** 2 - c**2 * (differences**2).sum(0)
    root = b**2 - 4 * a * rest
    linear = np.abs(a) <= 1e-7 * total**2
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(np.maximum(root, 0)) / (2 * np.abs(a))
        first, second = -b / (2 * a) - half, -b / (2 * a) + half
        only = -rest / b
    bounded = ~linear & (a > 0)
    ray = ~linear & (a < 0) & (root > 0)
    low = np.where(bounded, first, np.where(ray & (mean >= second), second, -np.inf))
    high = np.where(bounded, second, np.where(ray & (mean <= first), first, np.inf))
    tilted = linear & (np.abs(b) > 1e-7 * total**2)
    low = np.where(tilted & (b < 0), only, low)
    high = np.where(tilted & (b > 0), only, high)
    return low, high


def _agreeing(low: Floats, high: Floats, mean: Floats, shown: Flags) -> tuple[Floats, Floats]:
    """Put the ends on the verdict's side of 0; what is equal on paper may differ by rounding.

    Where two rays are not rejected, 0 may lie in the one without the estimate: then nothing between
    them is told apart, and the end is open.
    """
    low, high = (np.where(np.abs(end) < SAME, 0.0, end) for end in (low, high))
    low = np.where(shown & (mean > 0), np.maximum(low, SAME), low)
    high = np.where(shown & (mean < 0), np.minimum(high, -SAME), high)
    return np.where(~shown & (low > 0), -np.inf, low), np.where(~shown & (high < 0), np.inf, high)


def _flat(differences: Floats, sizes: Floats, mean: Floats) -> Flags:
    """Mark the pairs whose clusters all have the same mean."""
    residuals = differences - np.nan_to_num(mean) * sizes
    flat: Flags = np.sqrt((residuals**2).sum(0)) <= SAME * np.maximum(1, np.abs(differences).max(0))
    return flat


def _without_variation(sizes: Floats, share: bool, n_pairs: int) -> float:
    """Return half the width of the interval of a pair whose differences are all alike."""
    sizes = sizes[sizes > 0]
    if not share or sizes.size < 2:
        return np.nan
    return never_seen(sizes, 1 - ALPHA / n_pairs)
