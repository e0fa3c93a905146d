"""Comparing arms: paired by task, clustered, corrected for how many comparisons are made."""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations
from typing import TYPE_CHECKING, Any

from agentlab.errors import StudyError, suggest
from agentlab.study.grid import AXES
from agentlab.study.stats import holm, paired_comparison

if TYPE_CHECKING:
    import pandas as pd


ALPHA = 0.05
TIED, NOT_COMPARED = "tied", "not compared"
"""Verdicts: no difference was shown, and the two share no task."""


def compare(
    runs: pd.DataFrame,
    metric: str = "success",
    by: str = "strategy",
    baseline: str | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the levels of a factor, paired by task.

    A metric is averaged over the seeds within (task, fault rate, other factors), then over fault
    rates and other factors where both levels were run, which leaves a number a task and level. The
    differences of these are what is tested.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame.
    metric : str
        A numeric or boolean column.
    by : str
        "arm", or an axis of the arms: "planner", "strategy", "lm", ...
    baseline : str, optional
        Compare with this level only; default: all pairs.
    seed : int
        Of bootstrap and permutation.

    Returns
    -------
    DataFrame
        a, b, diff (a minus b), low, high (95 %, cluster-robust t), boot_low, boot_high (cluster
        bootstrap), p, p_holm, n_tasks, n_clusters, smallest_difference (the smallest that could
        have been seen at 80 % power), verdict ("a higher", "b higher", "tied", or "not compared":
        the two share no task).

    Raises
    ------
    StudyError
        A column or level does not exist, or there is nothing to compare.
    """
    table = pairwise(runs, metric, by, baseline, seed)
    if not table["n_tasks"].any():
        raise StudyError(
            f"no two values of {by!r} were measured on the same task with a value of {metric!r}"
        )
    return table


def pairwise(
    runs: pd.DataFrame, metric: str, by: str, baseline: str | None = None, seed: int = 0
) -> pd.DataFrame:
    """Return what ``compare`` does, also of a study so far where no two levels share a task."""
    import pandas as pd

    for name in (metric, by):
        if name not in runs.columns:
            raise StudyError(f"no column {name!r}; {suggest(name, list(runs.columns))}")
    _check_numbers(runs[metric])
    runs = runs.assign(**{by: levelled(runs[by])})
    levels = list(dict.fromkeys(runs[by]))
    if len(levels) < 2:
        raise StudyError(f"column {by!r} has the one value {levels}; there is nothing to compare")
    if baseline is not None and baseline not in levels:
        raise StudyError(f"no {by} {baseline!r}; {suggest(baseline, levels)}")
    pairs = [(a, b) for a, b in combinations(levels, 2) if baseline is None or baseline in (a, b)]
    rows = [_compared(runs, metric, by, a, b, seed) for a, b in pairs]
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p"])
    table["verdict"] = [
        NOT_COMPARED if not n else TIED if not p < ALPHA else "a higher" if d > 0 else "b higher"
        for n, p, d in zip(table["n_tasks"], table["p_holm"], table["diff"], strict=True)
    ]
    first = ["a", "b", "diff", "low", "high", "boot_low", "boot_high", "p", "p_holm"]
    rest = ["n_tasks", "n_clusters", "smallest_difference", "test", "verdict"]
    return table[first + rest]


def _check_numbers(column: pd.Series[Any]) -> None:
    """Refuse what cannot be averaged: text, dates, infinite numbers, and nothing at all."""
    import numpy as np

    name, known = column.name, column.dropna()
    if not len(known):
        raise StudyError(f"column {name!r} has no value in any run; there is nothing to compare")
    for value in known:
        if not isinstance(value, bool | int | float | np.bool_ | np.number):
            raise StudyError(f"expected a column of numbers, got {name!r} with the value {value!r}")
    if np.isinf(known.astype("float64")).any():
        raise StudyError(f"column {name!r} has infinite values, of which there is no mean")


def levelled(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the levels of a factor as text; "none" where an arm has none."""
    return column.astype("object").where(column.notna(), "none").astype(str)


def _compared(
    runs: pd.DataFrame, metric: str, by: str, a: str, b: str, seed: int
) -> dict[str, Any]:
    others = [f for f in AXES if f in runs and f != by and by != "arm"]
    cells = ["scenario", "fault_rate", *others]
    values = runs.assign(_value=runs[metric].astype("float64"), _level=runs[by])
    values = values[values["_level"].isin([a, b])]
    values[others] = values[others].apply(levelled)  # arms without an LM pair too
    wide = values.pivot_table(
        index=cells, columns="_level", values="_value", aggfunc="mean", dropna=False, observed=True
    )
    both = wide.reindex(columns=[a, b]).dropna()
    tasks = both.groupby("scenario", sort=True).mean()
    cluster = runs.drop_duplicates("scenario").set_index("scenario")["cluster"]
    counts = values.groupby([*cells, "_level"], observed=True).size()
    one = bool((counts == 1).all()) and len(wide) == len(tasks)
    found = paired_comparison(
        tasks[a].to_numpy(), tasks[b].to_numpy(), list(cluster.loc[tasks.index]),
        one_seed=one, seed=seed,
    )  # fmt: skip
    return {"a": a, "b": b, **asdict(found)}
