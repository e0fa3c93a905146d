"""The leaderboard: a row an arm, with what the comparison with the best arm could show.

Every number is estimated as in ``metrics``: averaged within a task first, then over tasks, with a
cluster-robust interval. An arm is tied when its paired comparison with the best arm, corrected for
the number of such comparisons (Holm), shows no difference. That is absence of evidence: see the
smallest difference that ``compare`` reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentlab.errors import StudyError, suggest
from agentlab.study import metrics
from agentlab.study.compare import TIED, pairwise
from agentlab.study.grid import AXES

if TYPE_CHECKING:
    import pandas as pd


PROPORTIONS: dict[str, Callable[..., pd.DataFrame]] = {
    "success": metrics.success_rate,
    "side_effects": metrics.side_effect_rate,
    "recovery": metrics.recovery_rate,
}
"""Metrics that are shares, and the table of each."""

MEANS = ("replans", "tool_calls", "sim_seconds")
"""Columns of the ``runs`` frame whose mean the leaderboard shows."""


def estimates(
    runs: pd.DataFrame, metric: str = "success", by: Sequence[str] = ("arm",)
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
    if metric in PROPORTIONS:
        rate = PROPORTIONS[metric](runs, by)
        value = next(c for c in rate.columns if c.endswith("_rate") and c not in by)
        return rate[[*by, value, "low", "high"]].rename(columns={value: "value"})
    known = [*PROPORTIONS, *(str(c) for c in runs.select_dtypes("number").columns)]
    if metric not in known:
        raise StudyError(f"no metric {metric!r}; {suggest(metric, known)}")
    return metrics.mean(runs, metric, by).rename(columns={metric: "value"})[
        [*by, "value", "low", "high"]
    ]


def leaderboard(runs: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the arms, best first.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame.

    Returns
    -------
    DataFrame
        A row an arm: arm and its axes; success with low and high (95 %,
        cluster-robust); floor and ceiling of the same cells, over runs where both are known;
        unknown (share of runs where one is not); normalised, (success - floor) / (ceiling -
        floor); side_effects, P(the world was changed and the run failed); recovery, P(success |
        a fault was delivered and the fault-free twin succeeds); replans, tool_calls and
        sim_seconds (means a run); n_tasks, n_runs, crashed (runs, counted as failures); behind
        (difference to the best arm, 0 or less), p_holm, and tied: True where the comparison with
        the best arm showed no difference.

    Raises
    ------
    StudyError
        There is no run.
    """
    if not len(runs):
        raise StudyError("no run is finished yet, so there is nothing to rank")
    names = ["arm", *(axis for axis in AXES if axis in runs)]
    table = metrics.success_rate(runs, names).rename(columns={"success_rate": "success"})
    bounds = metrics.normalised_success(runs).set_index("arm")
    arms = table.set_index("arm").index
    for name in ("floor", "ceiling", "normalised"):
        table[name] = bounds.loc[arms, name].to_numpy()
    table["unknown"] = bounds.loc[arms, "n_unknown"].to_numpy() / table["n_runs"]
    for name in ("side_effects", "recovery", *MEANS):
        table[name] = estimates(runs, name).set_index("arm").loc[arms, "value"].to_numpy()
    crashed = (runs["status"] == "crashed").groupby(runs["arm"]).sum()
    table["crashed"] = crashed.loc[arms].to_numpy()
    table = table.sort_values(
        ["success", "sim_seconds"], ascending=[False, True], kind="stable"
    ).reset_index(drop=True)
    return _against_best(runs, table)[
        [
            *names, "success", "low", "high", "floor", "ceiling", "unknown", "normalised",
            "side_effects", "recovery", *MEANS, "n_tasks", "n_runs", "crashed", "behind",
            "p_holm", "tied",
        ]
    ]  # fmt: skip


def _against_best(runs: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the paired comparison of every arm with the first."""
    best = str(table.loc[0, "arm"])
    against: dict[str, tuple[float, float, bool]] = {best: (0.0, float("nan"), False)}
    if len(table) > 1:
        for row in pairwise(runs, "success", by="arm", baseline=best).to_dict("records"):
            first = row["a"] == best
            behind = -row["diff"] if first else row["diff"]
            tied = row["verdict"] == TIED
            against[row["b"] if first else row["a"]] = (behind, row["p_holm"], tied)
    for place, name in enumerate(("behind", "p_holm", "tied")):
        table[name] = [against[arm][place] for arm in table["arm"]]
    return table
