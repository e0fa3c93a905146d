"""The leaderboard: a row an arm, and which of them are shown to be worse than the best.

Every number is estimated as in ``metrics``, on the tasks that are complete in all arms. An arm is
tied with the best where the family of all pairs (``compare`` by "arm") does not show it to be
worse. That is absence of evidence: see the smallest difference that ``compare`` reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentlab.errors import StudyError, seen, suggest
from agentlab.study import metrics
from agentlab.study.compare import NO_VERDICT, NOT_COMPARED, NOT_SHOWN, pairwise
from agentlab.study.grid import AXES
from agentlab.study.pairing import complete_runs, counted_as_failures, levelled, under_faults

if TYPE_CHECKING:
    import pandas as pd


PROPORTIONS: dict[str, Callable[..., pd.DataFrame]] = {
    "success": metrics.success_rate,
    "side_effects": metrics.side_effect_rate,
    "recovery": metrics.recovery_rate,
}
"""Metrics that are shares, and the table of each."""

TIED = "tied"
WORDS = {NOT_SHOWN: TIED, NO_VERDICT: NO_VERDICT, NOT_COMPARED: NOT_COMPARED}
"""What the leaderboard calls the verdict of an arm's pair with the best."""

MEANS = ("replans", "tool_calls", "sim_seconds")
"""Columns of the ``runs`` frame whose mean the leaderboard shows."""

SHOWN = ("side_effects", "recovery", *MEANS)


def estimates(
    runs: pd.DataFrame, metric: str = "success", by: str | Sequence[str] = ("arm",)
) -> pd.DataFrame:
    """Tabulate a metric with its 95 % interval.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame.
    metric : str
        "success", "side_effects", "recovery", or a numeric column of the frame.
    by : sequence of str
        Columns that make the groups.

    Returns
    -------
    DataFrame
        by..., value, low, high (NaN with fewer than 2 clusters).

    Raises
    ------
    StudyError
        There is no such metric.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"arm": "a", "scenario": list("sst"), "replans": [1, 3, 6]})
    >>> estimates(runs, "replans")["value"].tolist()
    [4.0]
    """
    by = [by] if isinstance(by, str) else by
    if metric in PROPORTIONS:
        rate = PROPORTIONS[metric](runs, by)
        value = next(c for c in rate.columns if c.endswith("_rate") and c not in by)
        return rate[[*by, value, "low", "high"]].rename(columns={value: "value"})
    known = [*PROPORTIONS, *(str(c) for c in runs.select_dtypes(["number", "bool"]).columns)]
    if metric not in known:
        raise StudyError(f"no metric {seen(metric)}; {suggest(metric, known)}")
    return metrics.mean(runs, metric, by).rename(columns={metric: "value"})[
        [*by, "value", "low", "high"]
    ]


def leaderboard(runs: pd.DataFrame, *, count_infrastructure: bool = False) -> pd.DataFrame:
    """Tabulate the arms, best first.

    Runs at fault rate 0 are left out where there are others. In a study that is not finished the
    arms are ranked on the tasks that are complete in all of them; where there is none they are not
    ranked and stand in the order of the frame.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame.
    count_infrastructure : bool
        Count runs that a failing model or server spoilt as failures; else they are left out, and
        with them those of all arms with the same task, rate and seed.

    Returns
    -------
    DataFrame
        A row an arm: arm and its axes; success with low and high (95 %, ``stats.share_interval``);
        floor and ceiling of the same cells, over runs where both are known; unknown (share of runs
        where one is not); normalised, (success - floor) / (ceiling - floor); fault_free, success
        of the fault-free twins; side_effects, P(the world was changed and the run failed);
        recovery, P(success | a fault was delivered and the fault-free twin succeeds), and
        recovery_common, the same on the cells that count for every arm; replans, tool_calls and
        sim_seconds (means a run); delivered_per_call (faults a call of a tool); n_tasks, n_runs;
        crashed (runs, counted as failures) and infrastructure (runs that were spoilt), of all its
        runs; behind (difference to the best arm, 0 or less), p (adjusted for all pairs) and tied:
        True where the arm is not shown to be worse than the best; verdict in words: "best",
        "tied", "worse", "no verdict" (under 6 clusters nothing can be shown) or "not compared".

    Raises
    ------
    StudyError
        There is no run.
    """
    if not len(runs):
        raise StudyError("no run is finished yet, so there is nothing to rank")
    everything = runs.assign(arm=levelled(runs["arm"])).reset_index(drop=True)
    runs = counted_as_failures(everything) if count_infrastructure else everything
    runs = under_faults(runs).reset_index(drop=True)
    fair = complete_runs(runs)
    compared = len(fair) > 0
    table = _measured(runs[~runs["arm"].isin(fair["arm"]) | runs.index.isin(fair.index)])
    table["crashed"] = _counted(everything, "status", "crashed").loc[table["arm"]].to_numpy()
    table["infrastructure"] = _counted(everything, "infrastructure").loc[table["arm"]].to_numpy()
    if compared:
        order = ["success", "sim_seconds"]
        table = table.sort_values(order, ascending=[False, True], kind="stable")
    return _against_best(runs, table.reset_index(drop=True), compared)


def _counted(runs: pd.DataFrame, column: str, what: str | None = None) -> pd.Series[int]:
    """Return how many runs of each arm have a value in a column; None: any."""
    if column not in runs:
        return runs.groupby("arm").size() * 0
    which = runs[column].notna() if what is None else runs[column] == what
    return which.astype(int).groupby(runs["arm"]).sum()


def _measured(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured of every arm, in the order of the frame."""
    names = ["arm", *(axis for axis in AXES if axis in runs)]
    table = metrics.success_rate(runs, names).rename(columns={"success_rate": "success"})
    arms = table.set_index("arm").index
    bounds = metrics.normalised_success(runs).set_index("arm").loc[arms]
    for name in ("floor", "ceiling", "normalised"):
        table[name] = bounds[name].to_numpy()
    table["unknown"] = bounds["n_unknown"].to_numpy() / table["n_runs"].where(table["n_runs"] > 0)
    for name, column in (("fault_free", "twin_success"), *((n, n) for n in SHOWN)):
        table[name] = estimates(runs, column).set_index("arm").loc[arms, "value"].to_numpy()
    common = metrics.recovery_on_common(runs).set_index("arm")
    table["recovery_common"] = common.loc[arms, "recovery_rate"].to_numpy()
    per_call = metrics.delivered_per_call(runs).set_index("arm")
    table["delivered_per_call"] = per_call.loc[arms, "delivered_per_call"].to_numpy()
    return table[
        [
            *names, "success", "low", "high", "floor", "ceiling", "unknown", "normalised",
            "fault_free", "side_effects", "recovery", "recovery_common", *MEANS,
            "delivered_per_call", "n_tasks", "n_runs",
        ]
    ]  # fmt: skip


def _against_best(runs: pd.DataFrame, table: pd.DataFrame, compared: bool) -> pd.DataFrame:
    """Add how every arm stands to the first in the family of all pairs."""
    nan = float("nan")
    best = str(table.loc[0, "arm"])
    against = {best: (0.0, nan, "best") if compared else (nan, nan, NOT_COMPARED)}
    if len(table) > 1:
        for row in pairwise(runs, "success", by="arm").to_dict("records"):
            if best not in (row["a"], row["b"]):
                continue
            first = row["a"] == best
            behind = -row["diff"] if first else row["diff"]
            verdict = WORDS.get(row["verdict"], "worse")
            against[row["b"] if first else row["a"]] = (behind, row["p"], verdict)
    for place, name in enumerate(("behind", "p", "verdict")):
        table[name] = [against[arm][place] for arm in table["arm"]]
    return table.assign(tied=table["verdict"] == TIED)
