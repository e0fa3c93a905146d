"""What ``agentlab eval`` prints when a study is done: tables, cautions, and where all is kept."""

from __future__ import annotations

import shlex
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentlab.views.text import counted, visible

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.study.study import Study

LEGEND = (
    "Success with its 95 % interval{above}; floor: doing nothing; ceil.: all that was possible; "
    "recov.: successes among runs that met a fault and would have succeeded without{tied}. {limits}"
)

PLOT = "success_by_fault_rate.png"


def say(text: str) -> None:
    """Tell the user, beside what is printed."""
    sys.stderr.write(visible(text) + "\n")


def show_results(study: Study, with_report: bool) -> None:
    """Print leaderboard, rates and cautions; draw the plot, and write the report if asked."""
    from agentlab.study.pairing import ranked_runs
    from agentlab.views.cli.terminal import (
        MORE,
        WIDE,
        console,
        emit,
        leaderboard_table,
        paragraph,
        rates_table,
    )
    from agentlab.views.page.report import cautions, write_report

    runs, to = study.runs, console()
    if measured := bool(runs["infrastructure"].isna().any()):
        board = study.leaderboard()
        emit(
            to,
            leaderboard_table(board, to.width),
            "",
            paragraph(_legend(runs, bool(board["tied"].any())), "dim"),
            "",
        )
        if to.width < WIDE:
            more = MORE if board["crashed"].any() else (*MORE, "crashed (0)")
            room = f"{WIDE} columns show them (COLUMNS={WIDE}), and so does agentlab report"
            left_out = f"Left out for lack of room: {', '.join(more)}; {room}."
            emit(to, paragraph(left_out, "dim"), "")
        emit(to, rates_table(ranked_runs(runs), list(board["arm"])), "")
    for caution in cautions(study):
        emit(to, paragraph(f"note: {caution}", "yellow"), "")
    files = "study.db"
    if measured:
        _save_plot(runs, study.out / PLOT)
        files += f", {PLOT}"
    folder = shlex.quote(str(study.out))
    where = write_report(study) if with_report else f"agentlab report {folder}"
    typer.echo(visible(f"results  {study.out} ({files})"))
    typer.echo(visible(f"report   {where}"))
    typer.echo(visible(f"runs     agentlab show {folder} --failed"))
    typer.echo(visible(f"one run  agentlab show {folder} {runs['cell'].iloc[0][:8]}"))


def _legend(runs: pd.DataFrame, tied: bool) -> str:
    from agentlab.study.compare import limits, pairwise

    rates = set(runs["fault_rate"])
    above = " at fault rates above 0" if 0 in rates and len(rates) > 1 else ""
    told = ""
    if runs["arm"].nunique() > 1:
        table = pairwise(runs, "success", "arm")
        if table["smallest_difference"].notna().any():  # else a note says so
            told = limits(table)
    tie = "; tied: not shown to be worse than the best" if tied else ""
    return LEGEND.format(above=above, tied=tie, limits=told).strip()


def check_measured(study: Study) -> None:
    """Say that runs measured nothing, and exit with 1, where the model's endpoint failed them."""
    from agentlab.study.frames import infrastructure_by_cause

    if causes := infrastructure_by_cause(study.runs):
        told = ", ".join(f"{cause} {n:,}" for cause, n in causes.items())
        say(
            f"{sum(causes.values()):,} of {counted(len(study.runs), 'run')} measured nothing: the "
            f"language model's endpoint failed ({told}); --retry-failed runs them again"
        )
        raise typer.Exit(1)


def _save_plot(runs: pd.DataFrame, path: Path) -> None:
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # "building the font cache" and such
    from matplotlib.figure import Figure

    from agentlab.views.plots import fault_panels, panel_size

    figure = Figure(figsize=panel_size(runs["planner"].nunique()), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may hold a character that the font lacks
        fault_panels(runs, figure=figure)
        figure.savefig(path, dpi=150)
