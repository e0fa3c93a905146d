"""What a fair comparison of arms rests on: the same tasks, runs and faults for all of them.

Only tasks count that are complete in all compared arms, fault rates, seeds and other factors; in a
study that is not finished these are the ones on which arms can be ranked. A run that a failing
model or server spoilt (``infrastructure``) measured nothing: it is left out, and with it the runs
of all other arms with the same task, rate and seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentlab.study.grid import AXES
from agentlab.study.stats import Floats

if TYPE_CHECKING:
    import pandas as pd

POOLED = "all"
"""The one stratum of a comparison that is not made apart by anything."""

SEVERAL, NO_FAULT = "several", "none"
"""Fault classes: the arms met different faults first, and no arm met any."""


def counted_as_failures(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs as if those that a failing model or server spoilt were failures."""
    if "infrastructure" not in runs:
        return runs.reset_index(drop=True)
    spoilt = runs["infrastructure"].notna()
    success = runs["success"].mask(spoilt, False).astype(runs["success"].dtype)
    return runs.assign(success=success, infrastructure=None).reset_index(drop=True)


def under_faults(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs at rates above 0, where there are such: the others have nothing to mend."""
    faulty = runs["fault_rate"] > 0
    return runs[faulty] if faulty.any() else runs


class Row(NamedTuple):
    """One comparison: a stratum, two levels, and their columns."""

    stratum: Any
    a: str
    b: str
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Pairing:
    """Task means of levels of a factor, added up over C clusters; a column a level and stratum."""

    rows: tuple[Row, ...]
    """The pairs that have a task in common."""
    sums: Floats
    """(C, K); a cluster without a task in a stratum has 0."""
    sizes: Floats
    """(C, K): tasks."""


def complete_runs(runs: pd.DataFrame, by: str = "arm") -> pd.DataFrame:
    """Return the runs of the tasks that are complete in all levels of a factor.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame.
    by : str
        "arm", or an axis.

    Returns
    -------
    DataFrame
        Also without the runs that no level was paired in, as another's was spoilt
        (``infrastructure``). Empty where no task is complete.
    """
    return runs.iloc[_fair(_cells(runs.reset_index(drop=True), by)).index.sort_values()]


def ranked_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that arms are ranked on: the complete ones, and all where there is none."""
    complete = complete_runs(runs)
    return complete if len(complete) else runs


def levelled(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the levels of a factor as text; "none" where an arm has none."""
    return column.astype("object").where(column.notna(), "none").astype(str)


def clusters_of(runs: pd.DataFrame) -> pd.Series[Any]:
    """Return the cluster of every scenario, as text that sorts; one without is its own."""
    tasks = runs.drop_duplicates("scenario").set_index("scenario", drop=False)
    alone = "scenario " + tasks["scenario"].astype(str)  # apart from a cluster of that name
    if "cluster" not in tasks:
        return alone
    return ("cluster " + tasks["cluster"].astype(str)).where(tasks["cluster"].notna(), alone)


def _cells(runs: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return level, task, other factors, block (those and the rate) and cell (block and seed)."""
    others = [axis for axis in AXES if axis in runs and axis != by and by != "arm"]
    block = runs.groupby(["fault_rate", *others], dropna=False, observed=True).ngroup()
    cell = runs.groupby([block, runs["seed"]], observed=True).ngroup()
    frame = runs[["scenario"]].assign(level=levelled(runs[by]), rate=runs["fault_rate"], others=0)
    if others:
        frame["others"] = runs.groupby(others, dropna=False, observed=True).ngroup()
    spoilt = runs["infrastructure"].notna() if "infrastructure" in runs else False
    if "success" in runs:
        spoilt |= runs["success"].isna()  # not scored
    return frame.assign(block=block, cell=cell, spoilt=spoilt)


def _fair(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count: their task is complete, and nobody's partner was spoilt."""
    dead = cells.groupby("level")["spoilt"].transform("all")  # its every run was spoilt
    part = cells[~dead]
    n_levels = part["level"].nunique()
    shared = part.groupby("cell")["level"].nunique() == n_levels
    part = part[part["cell"].isin(shared[shared].index)]
    runs_of = part.drop_duplicates(["scenario", "level", "cell"]).groupby("scenario").size()
    complete = runs_of == part["cell"].nunique() * n_levels
    part = part[part["scenario"].isin(complete[complete].index)]
    n_rates = part["rate"].nunique()
    part = part[~part.groupby(["scenario", "cell"])["spoilt"].transform("any")]
    rates_left = part.groupby("scenario")["rate"].nunique() == n_rates
    return part[part["scenario"].isin(rates_left[rates_left].index)]


def _strata(runs: pd.DataFrame, cells: pd.DataFrame, apart: str | None) -> Any:
    if apart is None:
        return POOLED
    if apart == "fault_rate":
        return runs["fault_rate"]
    first = runs["first_fault"].where(runs["first_fault"].notna(), NO_FAULT).astype(str)
    met = first.groupby([cells["scenario"], cells["cell"]])
    return met.transform("first").where(met.transform("nunique") == 1, SEVERAL)


def paired(
    runs: pd.DataFrame,
    metric: str,
    by: str,
    pairs: Sequence[tuple[str, str]],
    apart: str | None = None,
) -> Pairing:
    """Pair the levels of a factor by task.

    A metric is averaged over the seeds within (task, fault rate, other factors), then over fault
    rates and other factors. Where a value is missing (what is measured did not come up), the runs
    of the other levels with the same task, rate, seed and other factors are left out. Where the
    levels were not all run with the same other factors, each pair is paired by itself, over those
    that both were run with.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame, checked, with an index that tells the runs apart.
    metric, by : str
        Columns.
    pairs : sequence of pairs of str
        Levels to compare.
    apart : {"fault_rate", "fault_class"}, optional
        What the strata are. Default: one, ``POOLED``.
    """
    cells = _cells(runs, by).assign(value=runs[metric].astype("float64"))
    known = cells.drop_duplicates(["level", "others"])
    if len(known) == known["level"].nunique() * known["others"].nunique():
        parts = [(_task_means(runs, cells, apart), list(pairs))]
    else:
        parts = [
            (_task_means(runs, cells[cells["level"].isin(pair)], apart), [pair]) for pair in pairs
        ]
    cluster = clusters_of(runs)
    rows: list[Row] = []
    columns: list[pd.DataFrame] = []
    for means, wanted in parts:
        for stratum, tasks in means.groupby(level="stratum", sort=False):
            at = {level: len(columns) + n for n, level in enumerate(means.columns)}
            rows += [Row(stratum, a, b, at[a], at[b]) for a, b in wanted if a in at and b in at]
            by_cluster = tasks.groupby(
                cluster.loc[tasks.index.get_level_values("scenario")].to_numpy()
            )
            columns += [by_cluster[level].agg(["sum", "size"]) for level in means.columns]
    clusters = sorted({name for column in columns for name in column.index})
    made = np.zeros((2, len(clusters), len(columns)))
    for number, column in enumerate(columns):
        made[:, :, number] = column.reindex(clusters, fill_value=0).to_numpy().T
    return Pairing(tuple(rows), *made)


def _task_means(runs: pd.DataFrame, cells: pd.DataFrame, apart: str | None) -> pd.DataFrame:
    """Return a row a (stratum, scenario), a column a level that was measured."""
    fair = _fair(cells)
    fair = fair.assign(stratum=_strata(runs.loc[fair.index], fair, apart))
    fair = fair[fair["stratum"] != NO_FAULT]
    wide = fair.groupby(["stratum", "scenario", "block", "cell", "level"])["value"].mean().unstack()
    known = wide.columns[wide.notna().any()]
    whole = wide[[level for level in dict.fromkeys(cells["level"]) if level in known]].dropna()
    blocks = whole.groupby(level=["stratum", "scenario", "block"]).mean()
    return blocks.groupby(level=["stratum", "scenario"]).mean()


def seed_means(
    runs: pd.DataFrame, metric: str, by: str
) -> tuple[tuple[str, ...], Floats, list[str]]:
    """Return the means of every seed, over fault rates and other factors, of complete tasks.

    Returns
    -------
    levels : tuple of str
    values : array (n_levels, n_tasks, n_seeds)
        nan where a seed of a task does not count.
    clusters : list of str
        Of every task.
    """
    runs = under_faults(runs.reset_index(drop=True))
    cells = _fair(_cells(runs, by))
    cells = cells.assign(value=runs[metric].astype("float64"), seed=runs["seed"])
    wide = cells.groupby(["level", "scenario", "seed"])["value"].mean().unstack()
    levels = tuple(x for x in dict.fromkeys(cells["level"]))
    tasks = [
        t for t in dict.fromkeys(cells["scenario"]) if all((x, t) in wide.index for x in levels)
    ]
    values = np.array([[wide.loc[(x, t)].to_numpy() for t in tasks] for x in levels])
    shape = (len(levels), len(tasks), wide.shape[1])
    return levels, values.reshape(shape), list(clusters_of(runs).loc[tasks])
