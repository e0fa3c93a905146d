"""Metrics of a study: tables over the frame of runs.

Tables take ``runs``, a DataFrame with a row a run, and return a row a group of ``by`` (any of its
columns; none for one overall row, groups in order of appearance). The estimate is always the same:
runs are averaged over seeds within a task (a scenario), fault rate and other factors, then over
these within the task, then over tasks, with an interval that rests on clusters of tasks
(`stats.share_interval` for shares, else `stats.mean_interval`). Runs that a failing model or server
spoilt measured nothing and are left out. Columns used:

==================  ===========================================================================
scenario, cluster   the task, and the group of tasks it belongs to (missing: its own cluster)
success             bool, or a score in [0, 1]; missing: not scored, the run is left out
floor, ceiling      success of doing nothing, and of any calls, in the same cell; NaN: unknown
twin_success        success of the fault-free twin; NaN: unknown
faults_delivered    faults that reached the run
faults_new          those that were not still standing from a delivery before (missing: all)
infrastructure      what spoilt the run; missing: nothing did
changed_state       whether a call that is no read took effect, whatever the run was told of it;
                    one of unknown outcome counts where a simulated world knows that it did
sim_seconds         simulated seconds, beside twin_sim_seconds of the fault-free twin
==================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agentlab.errors import seen
from agentlab.study.grid import AXES
from agentlab.study.stats import Floats, mean_interval, share_interval

if TYPE_CHECKING:
    import pandas as pd


def success_rate(
    runs: pd.DataFrame, by: Sequence[str] = ("arm",), level: float = 0.95
) -> pd.DataFrame:
    """Tabulate the success rate.

    Returns
    -------
    DataFrame
        by..., success_rate, low, high, all in [0, 1] (the ends NaN with fewer than 2 clusters),
        n_tasks, n_clusters, n_runs.

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


def recovery_on_common(runs: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Tabulate `recovery_rate` by arm on the cells that count for every arm.

    A cell (scenario, fault rate, seed) counts where each arm met a fault and succeeds without: an
    arm that meets fewer faults, or solves only easy tasks, is then not measured on others.
    """
    counts = _recoverable(runs) & ~_spoilt(runs)
    arms = runs["arm"][~_spoilt(runs)].nunique()
    keys = [runs["scenario"], runs["fault_rate"], runs["seed"]]
    shared = runs["arm"].where(counts).groupby(keys).transform("nunique") == arms
    shared &= counts
    return _table(
        runs, "recovery_rate", np.where(shared, _column(runs, "success"), np.nan), ("arm",), level,
        proportion=True,
    )  # fmt: skip


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

    0 is doing nothing, 1 is all that was possible; it can lie outside. Runs whose floor or ceiling
    is unknown are excluded from all three means, so that S here may differ from `success_rate`.

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
    unknown = incomplete & ~np.isnan(values[0]) & ~_spoilt(runs)
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


def delivered_per_call(runs: pd.DataFrame, by: Sequence[str] = ("arm",)) -> pd.DataFrame:
    """Tabulate faults delivered a call of a tool: by..., delivered_per_call (NaN without a call).

    The fault rate is the chance that a call meets a *new* fault. One that stands, or an outage,
    meets every call until it ends, and a silent one that changes nothing is not delivered; so this
    may be above the rate or below it.
    """
    cells, codes = _cells(runs, by)
    counts = ~_spoilt(runs)
    delivered, calls = (
        np.bincount(
            codes, weights=np.nan_to_num(_column(runs, name)) * counts, minlength=len(cells)
        )
        for name in ("faults_delivered", "tool_calls")
    )
    per_call = np.divide(delivered, calls, out=np.full(len(cells), np.nan), where=calls > 0)
    return cells.assign(delivered_per_call=per_call)


def few_faults(
    runs: pd.DataFrame, by: Sequence[str] = ("arm", "fault_rate"), least: int = 10
) -> pd.DataFrame:
    """Cells whose runs met fewer than ``least`` new faults in all, too few to speak of.

    A fault that stands counts once, however many calls it meets. Runs at fault rate 0 are not meant
    to meet any and are left out.

    Returns
    -------
    DataFrame
        by..., faults_new, n_runs: a row for each such cell, none if all is well.
    """
    runs = runs[~_spoilt(runs)]
    if "fault_rate" in runs:
        runs = runs[_column(runs, "fault_rate") != 0]
    new = _column(runs, "faults_delivered")
    if "faults_new" in runs:
        new = np.where(np.isnan(known := _column(runs, "faults_new")), new, known)
    cells, codes = _cells(runs, by)
    cells = cells.assign(
        faults_new=np.bincount(codes, weights=np.nan_to_num(new), minlength=len(cells)).astype(int),
        n_runs=np.bincount(codes, minlength=len(cells)),
    )
    return cells[cells["faults_new"] < least].reset_index(drop=True)


def _column(runs: pd.DataFrame, name: str) -> Floats:
    """Return a column as floats, missing as nan, a fresh array (n_runs,)."""
    _require(runs, [name])
    return np.array(runs[name].to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _spoilt(runs: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Mark the runs that measured nothing, as a model or server failed them."""
    if "infrastructure" not in runs:
        return np.zeros(len(runs), dtype=bool)
    return np.asarray(runs["infrastructure"].notna().to_numpy(dtype=bool))


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

    value = np.where(_spoilt(runs), np.nan, value)
    known = ~np.isnan(value)
    if proportion and (odd := value[(value < 0) | (value > 1)]).size:
        raise ValueError(f"expected values in [0, 1] for {name}, got {seen(odd[0])}")
    cells, cell = _cells(runs, by)
    clusters = _clusters(runs)
    tasks, task = _cells(runs, [*cells.columns, "scenario"])
    n_runs = np.bincount(task[known], minlength=len(tasks))  # (n_tasks,)
    sums, n_blocks = _block_means(runs, value, known, task, len(tasks))
    cell_of, cluster_of = np.empty((2, len(tasks)), dtype=np.intp)
    cell_of[task], cluster_of[task] = cell, clusters
    rows = []
    for number in range(len(cells)):
        chosen = (cell_of == number) & (n_runs > 0)
        means = sums[chosen] / n_blocks[chosen]
        known_runs = int(n_runs[chosen].sum())
        row = _estimate(means, cluster_of[chosen], level, known_runs, proportion=proportion)
        counts = (means.size, np.unique(cluster_of[chosen]).size, known_runs)
        rows.append((*row, *counts))
    columns = [name, "low", "high", "n_tasks", "n_clusters", "n_runs"]
    return pd.concat([cells, pd.DataFrame(rows, columns=columns)], axis=1)


def _block_means(
    runs: pd.DataFrame, value: Floats, known: npt.NDArray[np.bool_], task: npt.NDArray[np.intp],
    n_tasks: int,
) -> tuple[Floats, npt.NDArray[np.intp]]:  # fmt: skip
    """Return for each task the sum of the means of its blocks, and how many these are.

    A block is a fault rate with the other factors: where seeds are missing in one of them, the
    others weigh no more.
    """
    names = [name for name in ("fault_rate", *AXES) if name in runs]
    _, kind = _cells(runs, names)
    pairs = np.stack([task, kind])[:, known]
    found, block = np.unique(pairs, axis=1, return_inverse=True)
    counts = np.bincount(block, minlength=found.shape[1])
    means = np.bincount(block, weights=value[known], minlength=found.shape[1]) / counts
    of_task = found[0]
    return (
        np.bincount(of_task, weights=means, minlength=n_tasks).astype(np.float64),
        np.bincount(of_task, minlength=n_tasks),
    )


def _estimate(
    means: Floats, clusters: npt.NDArray[np.intp], level: float, runs: int, *, proportion: bool
) -> tuple[float, float, float]:
    if proportion:
        return share_interval(means, clusters.tolist(), level, runs)
    return mean_interval(means, clusters.tolist(), level)
