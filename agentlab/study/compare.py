"""Comparing arms: paired by task, clustered, and one family of tests a table (``family.py``)."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from pydantic import StrictInt

from agentlab.base.arguments import Flag, takes
from agentlab.base.arrived import refused
from agentlab.errors import StudyError, seen, suggest
from agentlab.study.family import FEWEST_CLUSTERS, family
from agentlab.study.pairing import Pairing, counted_as_failures, levelled, paired, under_faults
from agentlab.study.stats import cluster_bootstrap_interval, difference_interval
from agentlab.study.visible import smallest_visible

if TYPE_CHECKING:
    import pandas as pd


NOT_SHOWN, NO_VERDICT, NOT_COMPARED = "not shown to differ", "no verdict", "not compared"
"""Verdicts: no difference was shown, none could be, and the two have no complete task in common."""

APART = ("fault_rate", "fault_class")
"""What a comparison can be made apart by."""

SHARES = frozenset(
    {"success", "recovered", "twin_success", "changed_state", "floor", "ceiling",
     "parallel_efficiency"}
)  # fmt: skip
"""Columns of the ``runs`` frame that lie in [0, 1], beside those of truth values."""

FIRST = ("a", "b", "diff", "low", "high", "p", "verdict", "n_tasks", "n_clusters")
REST = ("smallest_difference", "unadjusted_low", "unadjusted_high")


class Options(TypedDict, total=False):
    """What ``compare`` takes beside metric, factor and baseline."""

    apart: str | None
    rate_0: bool
    bootstrap: bool
    count_infrastructure: bool
    seed: int


@takes(
    baseline=str | int | float | None,
    apart=str | None,
    rate_0=Flag,
    bootstrap=Flag,
    count_infrastructure=Flag,
    seed=StrictInt,
)
def compare(
    runs: pd.DataFrame,
    metric: str = "success",
    by: str = "strategy",
    baseline: str | None = None,
    *,
    apart: str | None = None,
    rate_0: bool = False,
    bootstrap: bool = False,
    count_infrastructure: bool = False,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the levels of a factor, paired by task.

    A metric is averaged over the seeds within (task, fault rate, other factors), then over fault
    rates and other factors, which leaves a number a task and level. The differences of these are
    what is tested, on the tasks that are complete in all levels (``pairing.py``). All rows of a
    table are one family: the chance that any verdict in it is wrong is at most 5 %.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame.
    metric : str
        A numeric or boolean column.
    by : str
        "arm", or an axis of the arms: "planner", "strategy", "lm", ...
    baseline : str, optional
        Compare with this level only, which must have been chosen before the numbers were seen;
        default: all pairs. Fewer rows show smaller differences.
    apart : {"fault_rate", "fault_class"}, optional
        Compare each fault rate, or each class of faults, by itself, with a column of that name. The
        class is kind × persistence × visibility of the first fault that was delivered; "several"
        where the levels met different ones first.
    rate_0 : bool
        Pool the runs at fault rate 0 as well, where there are others. ``apart="fault_rate"`` always
        shows them.
    bootstrap : bool
        Add boot_low and boot_high, the percentile interval over clusters, unadjusted.
    count_infrastructure : bool
        As for ``leaderboard``.
    seed : int
        Of sign patterns and bootstrap.

    Returns
    -------
    DataFrame
        A row a pair: a, b, diff (a minus b), low, high (simultaneous 95 %; of shares in [-1, 1]), p
        (adjusted), verdict ("a higher", "b higher", "not shown to differ", "no verdict": with
        under 6 clusters nothing can be shown, "not compared": no complete task), n_tasks,
        n_clusters, smallest_difference (one for the table: the smallest that these verdicts show
        with 80 % power; NaN: none is), unadjusted_low, unadjusted_high (this pair's own 95 %
        interval: CR3 with Bell and McCaffrey's df). Interval, p and verdict always agree.

    Raises
    ------
    StudyError
        A column or level does not exist, the metric is no number, or there is nothing to compare.
    """
    if count_infrastructure:
        runs = counted_as_failures(runs)
    table = pairwise(
        runs, metric, by, baseline, apart=apart, rate_0=rate_0, bootstrap=bootstrap, seed=seed
    )
    if runs[metric].isna().all():
        raise StudyError(
            f"column {seen(metric)} has no value in any run; there is nothing to compare"
        )
    if not table["n_tasks"].any():
        raise StudyError(
            f"no task has a value of {seen(metric)} at the same fault rates, seeds and other "
            f"factors for every {by}; finish the study, or compare by 'arm' or fewer of them"
        )
    return table


def pairwise(
    runs: pd.DataFrame,
    metric: str,
    by: str,
    baseline: str | None = None,
    *,
    apart: str | None = None,
    rate_0: bool = False,
    bootstrap: bool = False,
    seed: int = 0,
) -> pd.DataFrame:
    """Return what ``compare`` does, also of a study so far where no task is complete."""
    import pandas as pd

    for name in (metric, by, "scenario", "fault_rate", "seed"):
        if not isinstance(name, str):
            raise refused("compare", "the name of a column", name, error=StudyError)
        if name not in runs.columns:
            raise StudyError(f"no column {seen(name)}; {suggest(name, list(runs.columns))}")
    _check_apart(runs, apart)
    _check_numbers(runs[metric])
    runs = runs.reset_index(drop=True)
    levels = list(dict.fromkeys(levelled(runs[by])))
    if len(levels) < 2:
        raise StudyError(
            f"column {seen(by)} has the one value {levels}; there is nothing to compare"
        )
    baseline = None if baseline is None else str(baseline)
    if baseline is not None and baseline not in levels:
        raise StudyError(f"no {by} {seen(baseline)}; {suggest(baseline, levels)}")
    share = metric in SHARES or all(isinstance(x, bool | np.bool_) for x in runs[metric].dropna())
    if share and ((runs[metric] < -1e-9) | (runs[metric] > 1 + 1e-9)).any():
        raise StudyError(f"expected a share, numbers in [0, 1], in column {seen(metric)}")
    pooled = runs if rate_0 or apart == "fault_rate" else under_faults(runs)
    chosen = [(a, b) for a, b in combinations(levels, 2) if baseline in (None, a, b)]
    found = paired(pooled, metric, by, chosen, apart)
    rows = _compared(found, share, bootstrap, seed)
    compared = {(row["a"], row["b"]) for row in rows}
    rows += [_missing(a, b) for a, b in chosen if (a, b) not in compared]
    columns = [*FIRST, *REST, *(["boot_low", "boot_high"] if bootstrap else [])]
    if apart is None:
        order = {pair: place for place, pair in enumerate(chosen)}
        rows.sort(key=lambda row: order[row["a"], row["b"]])
    table = pd.DataFrame(rows).rename(columns={"stratum": apart or "stratum"})
    table = table[[*([] if apart is None else [apart]), *columns]]
    table.attrs = {"share": share, "smaller": baseline is None and len(chosen) > 1}
    return table


def _compared(found: Pairing, share: bool, bootstrap: bool, seed: int) -> list[dict[str, Any]]:
    """Return a row a stratum and pair, all of one family."""
    if not found.rows:
        return []
    first, second = np.array([row[3:] for row in found.rows]).T
    differences = found.sums[:, first] - found.sums[:, second]  # (C, rows)
    sizes = found.sizes[:, first]
    tested = family(differences, sizes, share=share, seed=seed)
    columns = [(row.first, row.second) for row in found.rows]
    visible = smallest_visible(found.sums, found.sizes, columns, share=share)
    rows = []
    for i, (stratum, a, b, *_) in enumerate(found.rows):
        there = sizes[:, i] > 0
        own = (differences[there, i], sizes[there, i])
        interval = difference_interval(*own, share=share)
        row = {
            "stratum": stratum, "a": a, "b": b, "diff": tested.diff[i],
            "low": tested.low[i], "high": tested.high[i], "p": tested.p[i],
            "verdict": _verdict(tested.diff[i], bool(tested.shown[i]), tested.n_clusters[i]),
            "n_tasks": int(sizes[:, i].sum()), "n_clusters": int(tested.n_clusters[i]),
            "smallest_difference": visible,
            "unadjusted_low": interval.low, "unadjusted_high": interval.high,
        }  # fmt: skip
        if bootstrap:
            row["boot_low"], row["boot_high"] = cluster_bootstrap_interval(*own, seed=seed)
        rows.append(row)
    return rows


def _missing(a: str, b: str) -> dict[str, Any]:
    """Return the row of a pair without a common task."""
    nothing = dict.fromkeys(
        ("stratum", "diff", "low", "high", "p", *REST, "boot_low", "boot_high"), float("nan")
    )
    return {**nothing, "a": a, "b": b, "verdict": NOT_COMPARED, "n_tasks": 0, "n_clusters": 0}


def _verdict(difference: float, shown: bool, n_clusters: int) -> str:
    if n_clusters < FEWEST_CLUSTERS:
        return NO_VERDICT
    if not shown:
        return NOT_SHOWN
    return "a higher" if difference > 0 else "b higher"


def limits(table: pd.DataFrame) -> str:
    """Say what the verdicts of a comparison could show, and what they could not.

    Parameters
    ----------
    table : DataFrame
        From ``compare``. Differences of shares are told in percentage points.
    """
    clusters = int(table["n_clusters"].max())
    visible = table["smallest_difference"].max()
    if clusters == 0:
        return "No task is complete in all of these, so none are compared."
    if clusters == 1:
        return "One cluster: no interval, no verdict."
    if clusters < FEWEST_CLUSTERS:
        return (
            f"{clusters} clusters of tasks cannot show any difference (smallest possible p "
            f"{2.0 ** (1 - clusters):.2g}); 8 to 12 clusters are advised."
        )
    if visible != visible:  # NaN
        advice = "name a baseline or add clusters" if table.attrs.get("smaller") else "add clusters"
        return f"No difference possible from here would be shown with 80 % power; {advice}."
    lead = f"{100 * visible:.1f} points" if table.attrs.get("share", True) else f"{visible:.3g}"
    return f"{NOT_SHOWN.capitalize()}: leads below {lead} are seen less than 80 % of the time."


def _check_apart(runs: pd.DataFrame, apart: str | None) -> None:
    if apart is not None and apart not in APART:
        raise StudyError(
            f"a comparison is not made apart by {seen(apart)}; {suggest(apart, APART)}"
        )
    if apart == "fault_class" and ("first_fault" not in runs or runs["first_fault"].isna().all()):
        raise StudyError("no run met a fault, or the runs were made before its class was kept")


def _check_numbers(column: pd.Series[Any]) -> None:
    """Refuse what cannot be averaged: text, dates, infinite numbers."""
    name, known = column.name, column.dropna()
    for value in known:
        if not isinstance(value, bool | int | float | np.bool_ | np.number):
            raise StudyError(
                f"expected a column of numbers, got {seen(name)} with the value {seen(value)}"
            )
    try:
        infinite = bool(np.isinf(known.astype("float64")).any())
    except OverflowError:
        infinite = True
    if infinite:
        raise StudyError(f"column {seen(name)} has infinite values, of which there is no mean")
