"""What the statistics of a study promise, measured: coverage, level and power by simulation.

Every table is made by the functions that make a study's own tables. ``agentlab calibrate`` prints
them all; ``docs/statistics.md`` quotes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from agentlab.study import stats
from agentlab.study.bounds import several
from agentlab.study.family import ALPHA, family
from agentlab.study.stats import Floats
from agentlab.study.visible import smallest_visible

SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
CORRELATIONS = (0.0, 0.2, 0.5)
"""Of the means of two tasks of one cluster (ICC)."""

SIZES = ("equal", "lognormal")
SEEDS = (1, 5)
ALIKE = 0.5
"""Correlation of two seeds of one task, given its cluster."""

CLUSTERS = (5, 8, 12, 20, 60)
ARMS = (2, 6, 12)
LEAD = 0.2
"""Of one arm, where intervals are to hold a difference."""

REPETITIONS = 100_000
"""Of a row at most: they are simulated side by side, in memory."""

BIG = 10
"""Times that one cluster is larger than the others where one is."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of a table: what was simulated and how often it held."""

    table: str
    case: str
    value: float
    """Share of repetitions, in [0, 1]."""
    repetitions: int
    promise: str


def cluster_sizes(kind: str, n_clusters: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return how many tasks each cluster has: 4, or lognormal between 1 and 40, or one is big."""
    if kind == "lognormal":
        return np.clip(np.round(rng.lognormal(1, 0.9, n_clusters)), 1, 40).astype(np.intp)
    sizes = np.full(n_clusters, 4, dtype=np.intp)
    if kind == "one is big":
        sizes[0] *= BIG
    return sizes


def task_means(
    share: float, correlation: float, sizes: npt.NDArray[np.intp], seeds: int,
    rng: np.random.Generator,
) -> tuple[Floats, npt.NDArray[np.intp]]:  # fmt: skip
    """Return success by task, and its cluster: beta-binomial over clusters, then over tasks.

    ``correlation`` is that of the means of two tasks of one cluster. Where there are several seeds,
    those of a task are alike too: half of what a cluster leaves open is the task's.
    """
    clusters = np.repeat(np.arange(sizes.size), sizes)
    of_task = ALIKE if seeds > 1 else 0.0
    noise = of_task + (1 - of_task) / seeds  # variance of a task's mean, of what clusters leave
    of_cluster = correlation * noise / (1 - correlation * (1 - noise))
    chance = _beta(np.full(sizes.size, share), of_cluster, rng)[clusters]
    return rng.binomial(seeds, _beta(chance, of_task, rng)) / seeds, clusters


def _beta(mean: Floats, correlation: float, rng: np.random.Generator) -> Floats:
    if not correlation:
        return mean
    total = 1 / correlation - 1
    inner = np.clip(mean, 1e-9, 1 - 1e-9)
    return rng.beta(inner * total, (1 - inner) * total)


def share_coverage(
    share: float, correlation: float, kind: str, seeds: int, n_clusters: int,
    repetitions: int, seed: int = 0,
) -> float:  # fmt: skip
    """Return how often ``stats.share_interval`` holds the true share."""
    rng = np.random.default_rng([seed, n_clusters, seeds, round(1000 * share)])
    held = 0
    for _ in range(repetitions):
        sizes = cluster_sizes(kind, n_clusters, rng)
        means, clusters = task_means(share, correlation, sizes, seeds, rng)
        found = stats.share_interval(means, clusters.tolist(), runs=seeds * means.size)
        held += found.low <= share <= found.high
    return held / repetitions


def arm_sums(
    n_clusters: int, n_arms: int, rng: np.random.Generator, lead: float = 0.0, tasks: int = 3,
    seeds: int = 3,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return sums and sizes (C, k) of arms on common tasks, the first ahead by ``lead``.

    Tasks differ by 0.08 (standard deviation), and every arm finds clusters easier or harder in its
    own way, by 0.12; success is binomial over seeds.
    """
    own = 0.12 * rng.standard_normal((n_clusters, 1, n_arms))
    base = 0.4 + 0.08 * rng.standard_normal((n_clusters, tasks, 1))
    chance = np.clip(base + own + lead * (np.arange(n_arms) == 0), 0, 1)
    sums = (rng.binomial(seeds, chance) / seeds).sum(1)
    return sums, np.full((n_clusters, n_arms), float(tasks))


def _pairs(n_arms: int, baseline: bool) -> list[tuple[int, int]]:
    return [(a, b) for a, b in combinations(range(n_arms), 2) if a == 0 or not baseline]


def _tested(sums: Floats, sizes: Floats, pairs: Sequence[tuple[int, int]], seed: int) -> Floats:
    """Return (4, P): diff, low, high, shown."""
    first, second = np.array(pairs).T
    found = family(sums[:, first] - sums[:, second], sizes[:, first], share=True, seed=seed)
    return np.stack([found.diff, found.low, found.high, found.shown])


def wrong_verdicts(
    n_clusters: int, n_arms: int, repetitions: int, baseline: bool = False, seed: int = 0
) -> float:
    """Return how often any verdict on equal arms is wrong."""
    rng = np.random.default_rng([seed, n_clusters, n_arms])
    pairs, wrong = _pairs(n_arms, baseline), 0
    for turn in range(repetitions):
        wrong += _tested(*arm_sums(n_clusters, n_arms, rng), pairs, turn)[3].any()
    return wrong / repetitions


def simultaneous_coverage(
    n_clusters: int, n_arms: int, repetitions: int, baseline: bool = False, seed: int = 0
) -> float:
    """Return how often all intervals of a table hold the truth, where one arm leads by ``LEAD``."""
    rng = np.random.default_rng([seed, n_clusters, n_arms, 1])
    pairs, held = _pairs(n_arms, baseline), 0
    truth = LEAD * np.array([a == 0 for a, _ in pairs])
    for turn in range(repetitions):
        _, low, high, _ = _tested(*arm_sums(n_clusters, n_arms, rng, lead=LEAD), pairs, turn)
        held += ((low <= truth) & (truth <= high)).all()
    return held / repetitions


def pair_coverage(n_clusters: int, kind: str, repetitions: int, seed: int = 0) -> float:
    """Return how often ``stats.difference_interval`` of two arms holds the true difference, 0."""
    rng = np.random.default_rng([seed, n_clusters])
    held = 0
    for _ in range(repetitions):
        sizes = cluster_sizes(kind, n_clusters, rng)
        clusters = np.repeat(np.arange(n_clusters), sizes)
        base = 0.4 + 0.1 * rng.standard_normal(clusters.size)
        own = 0.15 * rng.standard_normal((2, n_clusters))[:, clusters]
        first, second = rng.binomial(3, np.clip(base + own, 0, 1)) / 3
        sums = np.bincount(clusters, weights=first - second).astype(np.float64)
        found = stats.difference_interval(sums, sizes.astype(float), share=True)
        held += found.low <= 0 <= found.high
    return held / repetitions


def realised_power(
    n_clusters: int, n_arms: int, repetitions: int, baseline: bool = False, seed: int = 0
) -> float:
    """Return how often a lead as long as the visible difference is shown in a fresh study.

    A study of equal arms says what its visible difference is; a second study, in which one arm
    leads by it, shows that or does not. Studies that say nothing is visible are not counted.
    """
    rng = np.random.default_rng([seed, n_clusters, n_arms])
    pairs = _pairs(n_arms, baseline)
    leader = np.array([a == 0 for a, _ in pairs])
    shown: list[float] = []
    for turn in range(repetitions):
        visible = smallest_visible(*arm_sums(n_clusters, n_arms, rng), pairs, share=True, seed=turn)
        if not np.isnan(visible):
            sums, sizes = arm_sums(n_clusters, n_arms, rng, lead=visible)
            shown.append(float(_tested(sums, sizes, pairs, turn)[3][leader].mean()))
    return float(np.mean(shown)) if shown else np.nan


def measured(repetitions: int, *, reduced: bool = False) -> Iterator[Measured]:
    """Yield every row of every table.

    Parameters
    ----------
    repetitions : int
        Of each row; of power, whose studies are each simulated themselves, a fifth.
    reduced : bool
        A part of the grid, for tests.
    """
    several(repetitions, "repetitions", REPETITIONS)
    clusters = (5, 12) if reduced else CLUSTERS
    yield from _intervals(repetitions, clusters, reduced)
    tested = [
        (n, k, baseline, f"{n} clusters, {k - 1} pairs with a baseline" if baseline
         else f"{n} clusters, all pairs of {k} arms")
        for n, k in product([n for n in clusters if n > 5], ARMS[:2] if reduced else ARMS)
        for baseline in (False, True)[: 1 if k == 2 else 2]
    ]  # fmt: skip
    for n, k, baseline, case in tested:
        wrong = wrong_verdicts(n, k, repetitions, baseline)
        yield Measured("any wrong verdict", case, wrong, repetitions, f"at most {ALPHA:.0%}")
    for n, k, baseline, case in tested:
        held = simultaneous_coverage(n, k, repetitions, baseline)
        yield Measured("all intervals hold", case, held, repetitions, "93 to 96 %")
    fewer = max(repetitions // 5, 1)
    for n, k, baseline, case in tested:
        power = realised_power(n, k, fewer, baseline)
        promise = "75 to 92 %, 70 to 95 % with 8 clusters"
        yield Measured("power at the visible difference", case, power, fewer, promise)


def _intervals(repetitions: int, clusters: Sequence[int], reduced: bool) -> Iterator[Measured]:
    shares = (0.02, 0.5) if reduced else SHARES
    cases = list(product(shares, CORRELATIONS[-1:] if reduced else CORRELATIONS, SEEDS))
    for n, kind in product(clusters, SIZES):
        held = {c: share_coverage(c[0], c[1], kind, c[2], n, repetitions) for c in cases}
        share, correlation, seeds = worst = min(held, key=lambda case: held[case])
        told = f"{n} clusters, {kind} sizes; worst of {len(held)}: {share:g}, ICC {correlation:g}, "
        told += f"{seeds} seed{'s' if seeds > 1 else ''}"
        yield Measured("a share's interval holds", told, held[worst], repetitions, "at least 92 %")
    for n in clusters:
        held_big = share_coverage(0.5, 0.5, "one is big", 1, n, repetitions)
        told = f"{n} clusters, one {BIG} times the others; 0.5, ICC 0.5, 1 seed"
        yield Measured(
            "a share's interval holds, one big cluster",
            told,
            held_big,
            repetitions,
            "no promise; 88 % was met",
        )
    for n, kind in product(clusters, SIZES):
        held_pair = pair_coverage(n, kind, repetitions)
        told = f"{n} clusters, {kind} sizes"
        yield Measured("a pair's own interval holds", told, held_pair, repetitions, "at least 91 %")
