"""What a fair comparison of arms rests on: the same tasks, runs and faults for all of them.

Only tasks count that are complete in all compared arms, fault rates, seeds and other factors; in a
study that is not finished these are the ones on which arms can be ranked. A run that a failing
model or server spoilt (``infrastructure``) measured nothing: it is left out, and with it the runs
of all other arms with the same task, rate and seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True, slots=True)
class Pairing:
    """Task means of k levels of a factor in R strata, added up over C clusters."""

    levels: tuple[str, ...]
    """Those that were measured."""
    strata: tuple[Any, ...]
    sums: Floats
    """(C, R, k); a cluster without a task in a stratum has 0."""
    sizes: Floats
    """(C, R): tasks."""
    n_left_out: int
    """Tasks with runs, of which none could be paired."""


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
    return runs.loc[_fair(_cells(runs, by)).index.sort_values()]


def ranked_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that arms are ranked on: the complete ones, and all where there is none."""
    complete = complete_runs(runs)
    return complete if len(complete) else runs


def levelled(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the levels of a factor as text; "none" where an arm has none."""
    return column.astype("object").where(column.notna(), "none").astype(str)


def _cells(runs: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return level, task, block (rate and other factors) and cell (block and seed) of every run."""
    others = [axis for axis in AXES if axis in runs and axis != by and by != "arm"]
    block = runs.groupby(["fault_rate", *others], dropna=False, observed=True).ngroup()
    cell = runs.groupby([block, runs["seed"]], observed=True).ngroup()
    frame = runs[["scenario"]].assign(level=levelled(runs[by]), rate=runs["fault_rate"])
    spoilt = runs["infrastructure"].notna() if "infrastructure" in runs else False
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


def paired(runs: pd.DataFrame, metric: str, by: str, apart: str | None = None) -> Pairing:
    """Pair the levels of a factor by task.

    A metric is averaged over the seeds within (task, fault rate, other factors), then over fault
    rates and other factors. Where a value is missing (what is measured did not come up), the runs
    of the other levels with the same task, rate, seed and other factors are left out.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame, checked, with an index that tells the runs apart.
    metric, by : str
        Columns.
    apart : {"fault_rate", "fault_class"}, optional
        What the strata are. Default: one, ``POOLED``.
    """
    cells = _cells(runs, by)
    fair = _fair(cells)
    fair = fair.assign(value=runs.loc[fair.index, metric].astype("float64"))
    fair["stratum"] = _strata(runs.loc[fair.index], fair, apart)
    fair = fair[fair["stratum"] != NO_FAULT]
    wide = fair.groupby(["stratum", "scenario", "block", "cell", "level"])["value"].mean().unstack()
    measured_levels = wide.columns[wide.notna().any()]
    levels = [level for level in dict.fromkeys(cells["level"]) if level in measured_levels]
    whole = wide.reindex(columns=levels).dropna()
    tasks = whole.groupby(level=["stratum", "scenario", "block"]).mean()
    tasks = tasks.groupby(level=["stratum", "scenario"]).mean()
    strata_found = list(dict.fromkeys(tasks.index.get_level_values("stratum")))
    cluster = runs.drop_duplicates("scenario").set_index("scenario")["cluster"].astype(str)
    clusters = sorted(set(cluster.loc[list(tasks.index.get_level_values("scenario"))]))
    sums = np.zeros((len(clusters), len(strata_found), len(levels)))
    sizes = np.zeros(sums.shape[:2])
    for (stratum, scenario), row in zip(tasks.index, tasks.to_numpy(), strict=True):
        at = clusters.index(cluster.loc[scenario]), strata_found.index(stratum)
        sums[at] += row
        sizes[at] += 1
    n_tasks = tasks.index.get_level_values("scenario").nunique()
    left_out = runs["scenario"].nunique() - n_tasks
    return Pairing(tuple(levels), tuple(strata_found), sums, sizes, left_out)


def seed_means(
    runs: pd.DataFrame, metric: str, by: str
) -> tuple[tuple[str, ...], Floats, list[str]]:
    """Return the means of every seed, over fault rates and other factors, of complete tasks.

    Returns
    -------
    levels : tuple of str
    values : array (n_levels, n_tasks, n_seeds)
    clusters : list of str
        Of every task.
    """
    runs = under_faults(runs.reset_index(drop=True))
    cells = _fair(_cells(runs, by))
    cells = cells.assign(value=runs[metric].astype("float64"), seed=runs["seed"])
    wide = cells.groupby(["level", "scenario", "seed"])["value"].mean().unstack().dropna()
    levels = tuple(x for x in dict.fromkeys(cells["level"]))
    tasks = [
        t for t in dict.fromkeys(cells["scenario"]) if all((x, t) in wide.index for x in levels)
    ]
    values = np.array([[wide.loc[(x, t)].to_numpy() for t in tasks] for x in levels])
    cluster = runs.drop_duplicates("scenario").set_index("scenario")["cluster"].astype(str)
    shape = (len(levels), len(tasks), wide.shape[1])
    return levels, values.reshape(shape), list(cluster.loc[tasks])
