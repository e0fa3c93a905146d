"""How large a study must be: what its clusters, tasks and seeds each add to the error.

The variance of a mean over C clusters of m tasks with K seeds is (cluster + task / m + seed /
(m K)) / C, and its interval half as wide as t(C - 1) times the root of that. The parts are
estimated by the moments of a nested analysis of variance (Searle, Casella and McCulloch 1992,
Variance Components, chapter 3). A pilot need not have the size of the study that is planned.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentlab.base.arrived import seen
from agentlab.errors import StudyError
from agentlab.study.pairing import seed_means
from agentlab.study.stats import Clusters, Floats, numbered
from agentlab.study.visible import smallest_visible

if TYPE_CHECKING:
    import pandas as pd

MOST_CLUSTERS = 1_000_000
SYNTHETIC = 9
"""Studies that are drawn to find the visible difference of a planned one."""


class Components(NamedTuple):
    """Variance between clusters, between tasks of a cluster, and between seeds of a task."""

    cluster: float
    task: float
    seed: float
    """nan where a task has one seed; its part is then in ``task``."""


class Design(NamedTuple):
    """The size of a study."""

    n_clusters: int
    tasks: float
    """A cluster, on the average."""
    n_seeds: int


def components(values: npt.ArrayLike, clusters: Clusters = None) -> Components:
    """Estimate the parts of the variance.

    Parameters
    ----------
    values : array_like (n_tasks, n_seeds)
        nan: this seed of the task is missing; each task has one.
    clusters : iterable of hashable, optional
        A label a task; default: every task is its own, and the variance between clusters is then
        that between tasks.

    Returns
    -------
    Components
        None below 0.

    Raises
    ------
    ValueError
        Fewer than 2 clusters, or values of another shape.

    Examples
    --------
    >>> components([[1, 1], [0, 0], [1, 0], [0, 0]], list("aabb")).seed
    0.125
    """
    y = np.asarray(values, dtype=np.float64)
    if y.ndim != 2 or np.isinf(y).any() or np.isnan(y).all(axis=1).any():
        raise ValueError(f"expected values of shape (n_tasks, n_seeds), got {values!r}")
    codes = numbered(clusters, len(y))
    sizes = np.bincount(codes).astype(np.float64)
    n_tasks, n_clusters = len(y), sizes.size
    if n_clusters < 2:
        raise ValueError(f"expected tasks of at least 2 clusters, got {n_clusters}")
    n_seeds = (~np.isnan(y)).sum(1)  # (n_tasks,)
    tasks = np.nanmean(y, axis=1)
    free = int((n_seeds - 1).sum())
    seed = float(np.nansum((y - tasks[:, None]) ** 2) / free) if free else math.nan
    noise = seed * float((1 / n_seeds).mean()) if free else 0.0
    means = np.bincount(codes, tasks) / sizes
    within = noise
    if n_tasks > n_clusters:
        within = float(((tasks - means[codes]) ** 2).sum() / (n_tasks - n_clusters))
    between = float((sizes * (means - tasks.mean()) ** 2).sum() / (n_clusters - 1))
    typical = (n_tasks - (sizes**2).sum() / n_tasks) / (n_clusters - 1)
    cluster = max(0.0, (between - within) / float(typical))
    return Components(cluster, max(0.0, within - noise), seed)


def half_width(parts: Components, design: Design, level: float = 0.95) -> float:
    """Return half the width that the interval of a mean is expected to have.

    Examples
    --------
    >>> round(half_width(Components(0.04, 0.02, 0.1), Design(12, 4, 5)), 3)
    0.142
    """
    from scipy.special import stdtrit

    variance = _variance(parts, design) / design.n_clusters
    return float(stdtrit(design.n_clusters - 1, 0.5 + level / 2)) * math.sqrt(variance)


def _variance(parts: Components, design: Design) -> float:
    """Return the variance of the mean of one cluster."""
    seed = 0.0 if math.isnan(parts.seed) else parts.seed
    return parts.cluster + (parts.task + seed / design.n_seeds) / design.tasks


def seeds_for(
    parts: Components, n_clusters: int, tasks: float, half: float, level: float = 0.95
) -> float:
    """Return how many seeds a task give an interval of this half width; inf: no number does.

    Examples
    --------
    >>> parts = Components(0.01, 0.0, 0.2)
    >>> seeds_for(parts, 20, 4, half=0.06), seeds_for(parts, 20, 4, half=0.04)
    (8, inf)
    """
    from scipy.special import stdtrit

    wanted = n_clusters * (half / float(stdtrit(n_clusters - 1, 0.5 + level / 2))) ** 2
    if n_clusters < 2:
        return math.inf
    rest = wanted - parts.cluster - parts.task / tasks
    if rest <= 0:
        return math.inf
    seed = 0.0 if math.isnan(parts.seed) else parts.seed
    return max(1, math.ceil(seed / (tasks * rest)))


def clusters_for(parts: Components, tasks: float, n_seeds: int, half: float) -> int:
    """Return how many clusters give an interval of this half width, at most ``MOST_CLUSTERS``.

    Examples
    --------
    >>> clusters_for(Components(0.01, 0.0, 0.2), 4, 5, half=0.04)
    51
    """
    numbers = range(2, MOST_CLUSTERS + 1)
    enough = bisect_left(
        numbers, True, key=lambda n: half_width(parts, Design(n, tasks, n_seeds)) <= half
    )
    return numbers[min(enough, len(numbers) - 1)]


# ---- of a study ----------------------------------------------------------------------------


def measured_parts(runs: pd.DataFrame) -> list[tuple[str, str | None, Components]]:
    """Return the parts of every arm's success, and of every difference of two arms.

    Raises
    ------
    StudyError
        The pilot has fewer than 2 clusters or 2 seeds of tasks that are complete in all arms.
    """
    arms, values, clusters = seed_means(runs, "success", "arm")  # values (k, n_tasks, n_seeds)
    seeds = int((~np.isnan(values)).all(0).sum(1).max(initial=0))
    if len(set(clusters)) < 2 or seeds < 2:
        raise StudyError(
            "a pilot needs 2 clusters and 2 seeds of tasks that are complete in all arms, got "
            f"{len(set(clusters))} and {seeds}"
        )
    found: list[tuple[str, str | None, Components]] = [
        (arm, None, components(y, clusters)) for arm, y in zip(arms, values, strict=True)
    ]
    for a, b in combinations(range(len(arms)), 2):
        found.append((arms[a], arms[b], components(values[a] - values[b], clusters)))
    return found


def _varied(parts: Components) -> bool:
    """Return whether variation was seen; where none was that is not certainty."""
    return any(part > 0 for part in parts)


def power_table(runs: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Tabulate what a study of a size would tell, judged by the runs of a pilot (see ``Study``)."""
    import pandas as pd

    parts = measured_parts(runs)
    visible = _visible(parts, design)
    rows = [
        {
            "a": a, "b": b, **part._asdict(),
            "half_width": half_width(part, design) if _varied(part) else math.nan,
            "smallest_difference": math.nan if b is None else visible,
        }
        for a, b, part in parts
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _visible(parts: list[tuple[str, str | None, Components]], design: Design) -> float:
    """Return the median visible difference of normal studies with the pilot's parts."""
    arms = [a for a, b, _ in parts if b is None]
    pairs = [(arms.index(a), arms.index(b)) for a, b, _ in parts if b is not None]
    if not pairs:
        return math.nan
    if not all(_varied(p) for _, b, p in parts if b is not None):
        return math.nan
    spread = np.array([_variance(p, design) for _, b, p in parts if b is not None])
    each = math.sqrt(float(spread.mean()) / 2)  # of an arm beside what all share
    sizes = np.full((design.n_clusters, len(arms)), design.tasks)
    rng = np.random.default_rng(0)
    found: list[float] = []
    for _ in range(SYNTHETIC):
        sums: Floats = sizes * (0.5 + each * rng.standard_normal(sizes.shape))
        found.append(smallest_visible(sums, sizes, pairs, share=True))
    return float(np.median(found)) if not np.isnan(found).any() else math.nan


def seeds_table(runs: pd.DataFrame, design: Design, width: float) -> pd.DataFrame:
    """Tabulate the seeds for a width, judged by the runs of a pilot (see ``Study.seeds_for``)."""
    import pandas as pd

    if not 0 < width <= 2:
        raise StudyError(
            f"expected a width of an interval, above 0 and at most 2, got {seen(width)}"
        )
    rows = [_seeds_row(a, b, part, design, width) for a, b, part in measured_parts(runs)]
    return pd.DataFrame(rows)


def _seeds_row(
    a: str, b: str | None, parts: Components, design: Design, width: float
) -> dict[str, Any]:
    if not _varied(parts):
        unknown = dict.fromkeys(("width", "seeds", "clusters"), math.nan)
        return {"a": a, "b": b, **unknown, "advice": "no variation was seen"}
    seeds = seeds_for(parts, design.n_clusters, design.tasks, width / 2)
    clusters = clusters_for(parts, design.tasks, design.n_seeds, width / 2)
    enough = math.isfinite(seeds)
    advice = (
        f"{seeds:g} seed{'' if seeds == 1 else 's'}"
        if enough
        else f"more seeds cannot; {clusters:,} clusters"
    )
    return {
        "a": a, "b": b, "width": 2 * half_width(parts, design),
        "seeds": seeds if enough else math.nan, "clusters": clusters, "advice": advice,
    }  # fmt: skip
