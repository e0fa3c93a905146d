"""The visible difference: the smallest that a table's own verdict shows with 80 % power.

Found by simulation on the study's own residuals of clusters: profiles of clusters (what each arm
does there beside its mean) are drawn anew with random signs, one arm is raised, and the family's
test is made. What all arms share plays no part. The number of clusters is small, so the spread that
was seen is itself uncertain: every repetition scales it by √(df / χ²_df), df = (C - 1)(k - 1).

Conventions. C clusters, K columns: an arm each, or an arm in a stratum. ``sums``: (C, K), over a
cluster's tasks; ``sizes``: (C, K), how many these are; ``pairs``: which columns are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from agentlab.study.family import (
    ALPHA,
    FEWEST_CLUSTERS,
    sign_patterns,
    statistics,
    threshold,
)
from agentlab.study.stats import Floats, never_seen

POWER = 0.8
REPETITIONS = 400
PATTERNS = 1000
"""Sign patterns where not all are enumerated: for a number to be read, fewer than for a verdict."""

FEW_CLUSTERS = 8
"""With so few, few patterns of signs: the critical value depends on the difference itself."""

HALVINGS = 9
DOUBLINGS = 20


def smallest_visible(
    sums: Floats,
    sizes: Floats,
    pairs: Sequence[tuple[int, int]],
    *,
    share: bool,
    power: float = POWER,
    seed: int = 1,
) -> float:
    """Smallest lead of one arm that is shown with this power, on the average over pairs.

    Parameters
    ----------
    sums, sizes, pairs
        See the module.
    share : bool
        The values lie in [0, 1]; no lead is then longer than the means leave room for.
    power : float
        In (0, 1).
    seed : int

    Returns
    -------
    float
        nan where no possible difference would be shown so often, or with under 6 clusters. Where
        no two clusters vary, of shares at least `stats.never_seen`, of other numbers nan. Columns
        with fewer clusters are left out where others have more.
    """
    kept = sizes.sum(1) > 0
    sums, sizes = sums[kept], sizes[kept]
    enough = (sizes > 0).sum(0) >= FEWEST_CLUSTERS
    pairs = [(a, b) for a, b in pairs if enough[a] and enough[b]]
    if not pairs:
        return np.nan
    first, second = np.array(pairs).T
    least = 0.0
    if _varying(sums, sizes, first, second) < 2:  # there is no spread to draw from
        if not share:
            return np.nan
        least = max(never_seen(n[n > 0], 1 - ALPHA / len(pairs)) for n in sizes[:, first].T)
    repeated = _repetitions(sums, sizes, np.random.default_rng(seed))
    signs = sign_patterns(len(sums), PATTERNS, seed)
    if len(sums) > FEW_CLUSTERS:
        shows = partial(_together, sums, sizes, repeated, first, second, signs)
    else:
        shows = partial(_one_by_one, repeated, sizes, first, second, signs)
    with np.errstate(invalid="ignore"):
        means = sums.sum(0) / sizes.sum(0)
    if share:
        room = float(np.nanmax(np.maximum(means, 1 - means)))
        found = _bisected(shows, room, power)
        return found if np.isnan(found) else max(found, least) if least < room else np.nan
    step = float(np.abs(repeated).max() / max(sizes.max(), 1.0))
    for doubling in range(DOUBLINGS if step else 0):
        if shows(step * 2**doubling) >= power:
            return _bisected(shows, step * 2**doubling, power)
    return np.nan


def _varying(
    sums: Floats, sizes: Floats, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp]
) -> int:
    """Return how many clusters have, in some pair, another difference than most have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (sums[:, first] - sums[:, second]) / sizes[:, first]
    off = np.abs(means - np.nanmedian(means, axis=0))
    return int((off > 1e-9 * np.nanmax(np.abs(means), initial=0.0)).any(1).sum())


def _repetitions(sums: Floats, sizes: Floats, rng: np.random.Generator) -> Floats:
    """Return (REPETITIONS, C, K): sums of clusters where no arm differs from another."""
    n_clusters, n_columns = sums.shape
    total = sizes.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(sizes * (1 - sizes / total))
        profiles = (sums - sums.sum(0) / total * sizes) / spread
    profiles = np.where(spread > 0, profiles, 0.0)
    profiles -= profiles.mean(1, keepdims=True)
    df = (n_clusters - 1) * max(n_columns - 1, 1)
    weights = np.where(rng.integers(0, 2, (REPETITIONS, n_clusters)), -1.0, 1.0)
    weights *= np.sqrt(df / rng.chisquare(df, (REPETITIONS, 1)))
    drawn = profiles[rng.integers(n_clusters, size=(REPETITIONS, n_clusters))]
    made: Floats = weights[:, :, None] * np.sqrt(sizes) * drawn
    return made


def _together(
    sums: Floats, sizes: Floats, repeated: Floats, first: npt.NDArray[np.intp],
    second: npt.NDArray[np.intp], signs: Floats, lead: float,
) -> float:  # fmt: skip
    """Share of pairs and repetitions where a lead is shown, raised in every pair at a time.

    The critical value is that of the study itself with one arm raised, on the average over arms: a
    lead makes clusters count that did not differ before.
    """
    n = sizes[:, first]
    own = sums[:, first] - sums[:, second]
    own = own - own.sum(0) / n.sum(0) * n
    c = []
    for arm in np.unique(np.concatenate([first, second])):
        sign = (first == arm) * 1.0 - (second == arm)
        c.append(threshold(statistics(own + lead * sign * n, signs)[1]))
    raised = repeated[:, :, first] - repeated[:, :, second] + lead * n
    return float(np.mean(np.abs(raised.sum(1)) > np.mean(c) * np.sqrt((raised**2).sum(1))))


def _one_by_one(
    repeated: Floats, sizes: Floats, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp],
    signs: Floats, lead: float,
) -> float:  # fmt: skip
    """Share of an arm's pairs in which it is shown to lead, the critical value anew each time."""
    columns = np.unique(np.concatenate([first, second]))
    each = repeated[: max(10, len(repeated) // columns.size)]
    equal = each[:, :, first] - each[:, :, second]  # (repetitions, C, P)
    found = []
    for arm in columns:
        sign = (first == arm) * 1.0 - (second == arm)
        raised = equal + lead * sign * sizes[:, first]
        scaled = raised / np.maximum(np.sqrt((raised**2).sum(1, keepdims=True)), 1e-12)
        largest = np.sort(np.abs(signs @ scaled).max(2), axis=1)
        c = np.array([threshold(row) for row in largest])
        found.append(np.mean(np.abs(scaled.sum(1)[:, sign != 0]) > c[:, None]))
    return float(np.mean(found))


def _bisected(shows: Callable[[float], float], room: float, power: float) -> float:
    if shows(room) < power:
        return np.nan
    low, high = 0.0, room
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if shows(middle) >= power else (middle, high)
    return high
