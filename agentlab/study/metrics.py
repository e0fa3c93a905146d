"""Metrics of a study: tables over the frame of runs, and scores of a single plan.

Tables take ``runs``, a DataFrame with a row a run, and return a row a group of ``by`` (any of its
columns; none for one overall row, groups in order of appearance). The estimate is always the same:
runs are averaged within a task (a scenario) first, then over tasks, with a cluster-robust t
interval over tasks (`stats.cluster_robust_interval`). Columns used:

==================  ===========================================================================
scenario, cluster   the task, and the group of tasks it belongs to (missing: its own cluster)
success             bool, or a score in [0, 1]; missing: not scored, the run is left out
floor, ceiling      success of the no-op and of the oracle in the same cell; NaN: unknown
twin_success        success of the fault-free twin; NaN: unknown
faults_delivered    faults that reached the run
changed_state       whether the world differs from what it was at the start
sim_seconds         simulated seconds, beside twin_sim_seconds of the fault-free twin
==================  ===========================================================================

Scores of a plan take sequences of step labels (any hashable) and edges (pairs of labels). Left out:
validity and redundancy of a plan (they need the environment); critical paths (see ``plans/``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agentlab.study.stats import Floats, cluster_robust_interval, wilson_interval

if TYPE_CHECKING:
    import pandas as pd


def success_rate(
    runs: pd.DataFrame, by: Sequence[str] = ("arm",), level: float = 0.95
) -> pd.DataFrame:
    """Tabulate the success rate.

    Returns
    -------
    DataFrame
        by..., success_rate in [0, 1], low, high (clamped to [0, 1]; NaN with fewer than 2 clusters;
        Wilson on tasks where the standard error is 0), n_tasks, n_clusters, n_runs.

    Raises
    ------
    ValueError
        If a column is missing, a value is outside [0, 1], or a scenario has two clusters.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"arm": "a", "scenario": ["s", "s", "t"], "success": [1, 0, 1]})
    >>> success_rate(runs)[["success_rate", "n_tasks", "n_runs"]].values.tolist()
    [[0.75, 2.0, 3.0]]
    """
    return _table(runs, "success_rate", _column(runs, "success"), by, level, proportion=True)


def side_effect_rate(
    runs: pd.DataFrame, by: Sequence[str] = ("arm",), level: float = 0.95
) -> pd.DataFrame:
    """Tabulate P(the run changed the world and failed), over all scored runs.

    A run failed when its success is below 1. Columns as in `success_rate`.
    """
    success, changed = _column(runs, "success"), _column(runs, "changed_state")
    value = np.where(np.isnan(success + changed), np.nan, (changed > 0) & (success < 1))
    return _table(runs, "side_effect_rate", value, by, level, proportion=True)


def recovery_rate(
    runs: pd.DataFrame, by: Sequence[str] = ("arm",), level: float = 0.95
) -> pd.DataFrame:
    """Tabulate P(success | a fault was delivered and the fault-free twin succeeds).

    Columns as in `success_rate`; a group where no run meets the condition has NaN and n_runs 0.
    """
    value = np.where(_recoverable(runs), _column(runs, "success"), np.nan)
    return _table(runs, "recovery_rate", value, by, level, proportion=True)


def recovery_cost(
    runs: pd.DataFrame, by: Sequence[str] = ("arm",), level: float = 0.95
) -> pd.DataFrame:
    """Tabulate the extra simulated seconds that recovered runs took over their fault-free twins.

    Over the runs that `recovery_rate` counts as recovered (success 1). Columns by...,
    recovery_cost (seconds; below 0: the run was quicker than its twin), then as in `success_rate`.
    """
    recovered = _recoverable(runs) & (_column(runs, "success") >= 1)
    extra = _column(runs, "sim_seconds") - _column(runs, "twin_sim_seconds")
    value = np.where(recovered, extra, np.nan)
    return _table(runs, "recovery_cost", value, by, level, proportion=False)


def mean(
    runs: pd.DataFrame, column: str, by: Sequence[str] = ("arm",), level: float = 0.95
) -> pd.DataFrame:
    """Tabulate the mean of a numeric column. Columns by..., the column, then as in `success_rate`.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"arm": "a", "scenario": list("sst"), "replans": [1, 3, 6]})
    >>> mean(runs, "replans")["replans"].tolist()
    [4.0]
    """
    return _table(runs, column, _column(runs, column), by, level, proportion=False)


def normalised_success(runs: pd.DataFrame, by: Sequence[str] = ("arm",)) -> pd.DataFrame:
    """Tabulate (S - floor) / (ceiling - floor), each the mean over tasks in the group.

    0 is doing nothing, 1 is the oracle; it can lie outside. Runs whose floor or ceiling is unknown
    are excluded from all three means, so that S here may differ from `success_rate`.

    Returns
    -------
    DataFrame
        by..., success, floor, ceiling, normalised (NaN where ceiling == floor), n_tasks, n_runs,
        n_unknown (scored runs excluded).

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"arm": "a", "scenario": list("stuv"), "success": [1, 0, 0, 1],
    ...                      "floor": 0, "ceiling": [1, 1, 0, None]})
    >>> normalised_success(runs)[["success", "ceiling", "normalised", "n_unknown"]].values.round(2)
    array([[0.33, 0.67, 0.5 , 1.  ]])
    """
    values = np.stack([_column(runs, name) for name in ("success", "floor", "ceiling")])
    incomplete = np.isnan(values).any(axis=0)  # (n_runs,)
    unknown = incomplete & ~np.isnan(values[0])
    values[:, incomplete] = np.nan
    success, floor, ceiling = (
        _table(runs, "mean", value, by, 0.95, proportion=True) for value in values
    )
    span = ceiling["mean"] - floor["mean"]
    span = span.where(span.abs() > 1e-9)  # two means equal on paper may differ by rounding
    cells, codes = _cells(runs, by)
    return cells.assign(
        success=success["mean"],
        floor=floor["mean"],
        ceiling=ceiling["mean"],
        normalised=(success["mean"] - floor["mean"]) / span,
        n_tasks=success["n_tasks"],
        n_runs=success["n_runs"],
        n_unknown=np.bincount(codes[unknown], minlength=len(cells)),
    )


def few_faults(
    runs: pd.DataFrame, by: Sequence[str] = ("arm", "fault_rate"), least: int = 10
) -> pd.DataFrame:
    """Cells whose runs met fewer than ``least`` delivered faults in all, too few to speak of.

    Runs at fault rate 0 are not meant to meet any and are left out.

    Returns
    -------
    DataFrame
        by..., faults_delivered, n_runs: a row for each such cell, none if all is well.
    """
    if "fault_rate" in runs:
        runs = runs[_column(runs, "fault_rate") != 0]
    delivered = np.nan_to_num(_column(runs, "faults_delivered"))
    cells, codes = _cells(runs, by)
    cells = cells.assign(
        faults_delivered=np.bincount(codes, weights=delivered, minlength=len(cells)).astype(int),
        n_runs=np.bincount(codes, minlength=len(cells)),
    )
    return cells[cells["faults_delivered"] < least].reset_index(drop=True)


def node_f1(
    plan: Iterable[Hashable], reference: Iterable[Hashable], *, multiset: bool = True
) -> float:
    """F1 of the plan's step labels against the reference's, order ignored.

    Parameters
    ----------
    plan, reference : iterables of labels (nodes), or of pairs of labels (edges)
    multiset : bool
        Whether a label counts as often as it occurs, or once.

    Returns
    -------
    float in [0, 1]; 1 if both are empty

    Examples
    --------
    >>> node_f1(["search", "search", "book"], ["search", "book"])
    0.8
    >>> node_f1(["search", "search", "book"], ["search", "book"], multiset=False)
    1.0
    """
    found, wanted = (Counter(x if multiset else set(x)) for x in (plan, reference))
    total = found.total() + wanted.total()
    return 2 * (found & wanted).total() / total if total else 1.0


def edge_f1(
    plan: Iterable[tuple[Hashable, Hashable]],
    reference: Iterable[tuple[Hashable, Hashable]],
    *,
    multiset: bool = True,
) -> float:
    """F1 of directed edges (label before, label after); as `node_f1`, for pairs.

    Examples
    --------
    >>> edge_f1([("a", "b"), ("b", "c")], [("a", "b"), ("c", "b")])
    0.5
    """
    return node_f1(plan, reference, multiset=multiset)


def normalised_edit_distance(
    plan: Sequence[Hashable], references: Iterable[Sequence[Hashable]]
) -> float:
    """Levenshtein distance over the longer length, minimum over the reference linearisations.

    Returns
    -------
    float in [0, 1]
        0: the plan is one of the references. 1: no step in common with any, in any order.

    Raises
    ------
    ValueError
        Without a reference.

    Examples
    --------
    >>> normalised_edit_distance("abc", ["acb", "abcd"])
    0.25
    """
    distances = [_levenshtein(plan, r) / max(len(plan), len(r), 1) for r in references]
    if not distances:
        raise ValueError("expected at least one reference linearisation, got none")
    return min(distances)


def parallel_efficiency(critical_path: float, makespan: float) -> float:
    """CP / M: 1 when nothing but dependencies held the plan up. Seconds; nan if M is 0.

    Examples
    --------
    >>> parallel_efficiency(critical_path=6.0, makespan=8.0)
    0.75
    """
    return _per_makespan(critical_path, makespan, "critical_path")


def speed_up(durations: Iterable[float], makespan: float) -> float:
    """Sum of durations over the makespan: 1 is a sequential run without waits. nan if M is 0.

    Examples
    --------
    >>> speed_up([4.0, 4.0, 2.0], makespan=5.0)
    2.0
    """
    return _per_makespan(sum(durations), makespan, "sum of durations")


def _per_makespan(seconds: float, makespan: float, name: str) -> float:
    if not (seconds >= 0 and makespan >= 0):
        raise ValueError(f"expected {name} and makespan >= 0, got {seconds!r} and {makespan!r}")
    return seconds / makespan if makespan else float("nan")


def _levenshtein(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (x != y)))
        previous = row
    return previous[-1]


def _column(runs: pd.DataFrame, name: str) -> Floats:
    """Return a column as floats, missing as nan, a fresh array (n_runs,)."""
    _require(runs, [name])
    return np.array(runs[name].to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _require(runs: pd.DataFrame, names: Iterable[str]) -> None:
    missing = [name for name in names if name not in runs]
    if missing:
        raise ValueError(f"expected columns {missing}, got {[str(c) for c in runs.columns]}")


def _recoverable(runs: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Mark the runs that met a fault and would have succeeded without: nan compares False."""
    faulty, twin_solved = _column(runs, "faults_delivered") > 0, _column(runs, "twin_success") >= 1
    return np.logical_and(faulty, twin_solved)


def _cells(runs: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, npt.NDArray[np.intp]]:
    """Return the groups (a row each, in order of appearance) and the row number of every run."""
    import pandas as pd

    names = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    _require(runs, names)
    if not names:
        return pd.DataFrame(index=[0]), np.zeros(len(runs), dtype=np.intp)
    grouped = runs.groupby(names, sort=False, dropna=False, observed=True)
    _, first, codes = np.unique(grouped.ngroup(), return_index=True, return_inverse=True)
    return runs[names].iloc[first].reset_index(drop=True), codes


def _clusters(runs: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Number the cluster of every run; a scenario without one is its own."""
    scenarios, tasks = _cells(runs, ["scenario"])
    if "cluster" not in runs:
        return tasks
    alone = runs["scenario"].where(runs["cluster"].isna())  # apart from a cluster of that name
    _, codes = _cells(runs[["cluster"]].assign(alone=alone), ["cluster", "alone"])
    first = np.empty(len(scenarios), dtype=np.intp)
    first[tasks] = codes
    if (split := first[tasks] != codes).any():
        names = sorted({str(name) for name in runs["scenario"][split]})
        raise ValueError(f"expected one cluster a scenario, got several for {names}")
    return codes


def _table(
    runs: pd.DataFrame,
    name: str,
    value: Floats,
    by: Sequence[str],
    level: float,
    *,
    proportion: bool,
) -> pd.DataFrame:
    """Average ``value`` (n_runs,; nan is left out) within tasks, then over the tasks of a cell."""
    import pandas as pd

    known = ~np.isnan(value)
    if proportion and (odd := value[(value < 0) | (value > 1)]).size:
        raise ValueError(f"expected values in [0, 1] for {name}, got {odd[0]!r}")
    cells, cell = _cells(runs, by)
    clusters = _clusters(runs)
    tasks, task = _cells(runs, [*cells.columns, "scenario"])
    n_runs = np.bincount(task[known], minlength=len(tasks))  # (n_tasks,)
    sums = np.bincount(task[known], weights=value[known], minlength=len(tasks))
    cell_of, cluster_of = np.empty((2, len(tasks)), dtype=np.intp)
    cell_of[task], cluster_of[task] = cell, clusters
    rows = []
    for number in range(len(cells)):
        chosen = (cell_of == number) & (n_runs > 0)
        means = sums[chosen] / n_runs[chosen]
        row = _estimate(means, cluster_of[chosen], level, proportion=proportion)
        counts = (means.size, np.unique(cluster_of[chosen]).size, int(n_runs[chosen].sum()))
        rows.append((*row, *counts))
    columns = [name, "low", "high", "n_tasks", "n_clusters", "n_runs"]
    return pd.concat([cells, pd.DataFrame(rows, columns=columns)], axis=1)


def _estimate(
    means: Floats, clusters: npt.NDArray[np.intp], level: float, *, proportion: bool
) -> tuple[float, float, float]:
    interval = cluster_robust_interval(means, clusters.tolist(), level)
    if not proportion:
        return interval.mean, interval.low, interval.high
    if interval.se == 0:  # all alike: the t interval would claim certainty
        low, high = wilson_interval(means.sum(), means.size, level)
        return interval.mean, float(low), float(high)
    return interval.mean, *np.clip([interval.low, interval.high], 0.0, 1.0).tolist()
