"""What the plots are given: frames with the columns they read, plans, and places to draw on."""

from __future__ import annotations

from typing import Any

from agentlab.base.arrived import instance, refused
from agentlab.errors import StudyError, seen, suggest
from agentlab.study.frames import check_frame

RUNS = ("scenario", "fault_rate", "seed")
"""Columns that every ``runs`` frame has."""

COMPARED = ("a", "b", "diff", "low", "high", "verdict", "smallest_difference")
"""Columns of a comparison that are drawn."""


def check_runs(runs: Any, **columns: Any) -> None:
    """Refuse what is no ``runs`` frame with these columns; the keyword is the argument's name.

    Raises
    ------
    StudyError
        It is something else, or a column is missing.
    """
    check_frame(runs, "runs", RUNS, "the runs frame of a study (study.runs)")
    if not len(runs):
        raise StudyError("no run is finished yet, so there is nothing to draw")
    for name, column in columns.items():
        if not isinstance(column, str):
            raise refused(name, "the name of a column", column, error=StudyError)
        if column not in runs.columns and name != "metric":
            raise StudyError(
                f"no column {seen(column)}; {suggest(column, [str(c) for c in runs.columns])}"
            )


def check_comparison(table: Any) -> None:
    """Refuse what is no table of ``Study.compare``.

    Raises
    ------
    StudyError
        It is something else, lacks a column, or has no row.
    """
    check_frame(table, "table", COMPARED, "the table of a comparison (study.compare(...))")
    if not len(table):
        raise StudyError("the comparison has no row, so there is nothing to draw")


def check_place(ax: Any, figure: Any = None) -> None:
    """Refuse what is no axes, or no figure, of matplotlib; None is a new one.

    Raises
    ------
    ConfigError
        It is something else.
    """
    if ax is not None:
        from matplotlib.axes import Axes

        instance("ax", ax, Axes, "axes of matplotlib", "leave it out for a new figure")
    if figure is not None:
        from matplotlib.figure import FigureBase

        instance("figure", figure, FigureBase, "a figure of matplotlib", "leave it out for one")
