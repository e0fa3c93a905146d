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

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

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
    names = ["success", "floor", "ceiling"]
    values = np.stack([_column(runs, name) for name in names])  # (3, n_runs)
    unknown = ~np.isnan(values[0]) & np.isnan(values).any(axis=0)
    values[:, np.isnan(values).any(axis=0)] = np.nan
    means = [
        _table(runs, name, v, by, 0.95, proportion=True)
        for name, v in zip(names, values, strict=True)
    ]
    table = means[0][[*by, "success"]].assign(floor=means[1]["floor"], ceiling=means[2]["ceiling"])
    span = (table["ceiling"] - table["floor"]).replace(0.0, np.nan)
    counts = means[0][["n_tasks", "n_runs"]]
    table = table.assign(normalised=(table["success"] - table["floor"]) / span, **counts)
    return table.assign(n_unknown=_sums(runs, unknown, by))


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
    cells = _cells(runs, by).assign(faults_delivered=_sums(runs, delivered, by))
    cells = cells.assign(n_runs=_sums(runs, np.ones(len(runs)), by))
    return cells[cells["faults_delivered"] < least].reset_index(drop=True)


def warn_few_faults(
    runs: pd.DataFrame, by: Sequence[str] = ("arm", "fault_rate"), least: int = 10
) -> None:
    """Emit one UserWarning that names the cells of `few_faults`; silent if there are none."""
    cells = few_faults(runs, by, least)
    if len(cells):
        message = f"{len(cells)} cells met fewer than {least} faults; run more seeds or tasks:\n"
        warnings.warn(message + cells.to_string(index=False), UserWarning, stacklevel=2)
