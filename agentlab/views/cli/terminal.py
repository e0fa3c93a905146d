"""What the command line prints: tables of a study, and a run told step by step.

Text of users, tools and language models is printed as it is: no markup is read in it, and control
characters become visible, so that a tool's result cannot steer the terminal.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.table import Column, Table
from rich.text import Text

from agentlab.base.documents import interval, number, percent
from agentlab.views.text import line

if TYPE_CHECKING:
    import pandas as pd


WIDE = 125
"""Columns from which the leaderboard shows everything."""

MORE = ("norm.", "side eff.", "replans", "calls", "faults a call", "sim s")
"""Columns of the leaderboard for which there is room in a wide terminal alone."""

MEASURE = 100
"""Columns that a paragraph takes at most."""

BLOCKS = " ▏▎▍▌▋▊▉█"

LEAST = 12
"""Columns of text that a cell which may be folded needs to be read."""

WHOLE = ("success", "run")
"""Columns whose cells stay on one line, as somebody may copy them."""

PLAN_ENDED = "end of plan"
"""What stopped a run that nothing stopped: its plan was gone through."""

PIPED = 160
"""Columns where nobody looks: a file or another program gets one row a line."""


def console() -> Console:
    """Return a console that reads no markup and colours nothing by guess."""
    piped = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED
    return Console(markup=False, highlight=False, emoji=False, width=piped)


def emit(to: Console, *parts: RenderableType) -> None:
    """Print, without the blanks that fill lines up where no terminal shows them.

    A table for which there is no room is printed as a list, so that nothing of it is left out.
    """
    parts = tuple(fitted(p, to.width) if isinstance(p, Table) else p for p in parts)
    if to.is_terminal:
        for part in parts:
            to.print(part)
        return
    with to.capture() as captured:
        for part in parts:
            to.print(part)
    for text in captured.get().splitlines():
        to.file.write(text.rstrip() + "\n")


def paragraph(text: str, style: str = "") -> RenderableType:
    """Return a paragraph of at most ``MEASURE`` columns."""
    return Constrain(Text(line(text), style=style), MEASURE)


def bar(value: float, width: int) -> str:
    """Return a bar of ``width`` characters, filled to a share.

    Examples
    --------
    >>> bar(0.5, 4)
    '██  '
    """
    if math.isnan(value):
        return "·" * width
    eighths = round(min(max(value, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[rest] if rest else "")).ljust(width)


def table(*headings: str) -> Table:
    """Return an empty table; a heading that begins with ">" makes a column of numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in headings:
        numbers = heading.startswith(">")
        made.add_column(
            heading.removeprefix(">"), justify="right" if numbers else "left", overflow="fold",
            no_wrap=numbers or heading in WHOLE,
        )  # fmt: skip
    return made


def fitted(rows: Table, width: int) -> Table:
    """Return a table as it is, or where its cells would be cut to pieces, as a list.

    A row of the list is a line for each of its cells, with the heading before it.
    """
    room = sum(_least(c) + 1 for c in rows.columns) - 1
    if room <= width or not any(c.header for c in rows.columns):
        return rows
    listed = Table.grid(padding=(0, 1))
    listed.add_column(style="bold")
    listed.add_column(overflow="fold")
    headings = [str(c.header) for c in rows.columns]
    lines = zip(*(c.cells for c in rows.columns), strict=True)
    for row, cells in zip(rows.rows, lines, strict=True):
        for heading, cell in zip(headings, cells, strict=True):
            if str(cell).strip():
                listed.add_row(heading, cell, style=row.style)
        listed.add_row("", "")
    return listed


def _least(column: Column) -> int:
    """Return how many columns of the terminal a column of a table must have."""
    longest = max((cell_len(str(text)) for text in (column.header, *column.cells)), default=0)
    return longest if column.no_wrap else min(longest, LEAST)


def leaderboard_table(board: pd.DataFrame, width: int) -> Table:
    """Return the leaderboard as a table for a terminal of so many columns."""
    from agentlab.study.grid import varying
    from agentlab.study.pairing import levelled

    factors = varying(board) or ["strategy"]
    levels = {f: list(levelled(board[f])) for f in factors}
    wide = width >= WIDE
    spoilt = board["infrastructure"].any()
    headings = [*factors, "success", ">floor", ">ceil.", ">recov."]
    headings += [f">{name}" for name in MORE] if wide else []
    headings += [">crashed"] if wide or board["crashed"].any() else []
    made = table("", *headings, *([">no answer"] if spoilt else []))
    for place, row in enumerate(board.to_dict("records")):
        mark = row["verdict"] if row["verdict"] in ("best", "tied") else ""
        cells = [mark, *(line(levels[f][place]) for f in factors)]
        cells += [f"{percent(row['success']):>4} [{interval(row['low'], row['high'])}]"]
        cells += [percent(row[c]) for c in ("floor", "ceiling", "recovery")]
        if wide:
            cells += [number(row["normalised"], 2), percent(row["side_effects"])]
            cells += [number(row["replans"]), number(row["tool_calls"])]
            cells += [number(row["delivered_per_call"], 2), number(row["sim_seconds"])]
        cells += [str(row["crashed"])] if wide or board["crashed"].any() else []
        cells += [str(row["infrastructure"])] if spoilt else []
        made.add_row(*cells, style="bold" if mark == "best" else None)
    return made


def rates_table(runs: pd.DataFrame, order: Sequence[str]) -> Table:
    """Return success by arm and fault rate, with bars, floor and ceiling below.

    Parameters
    ----------
    runs : DataFrame
    order : sequence of str
        The arms, best first.
    """
    from agentlab.study.leaderboard import estimates

    rates = sorted(set(runs["fault_rate"]))
    width = 6 if len(rates) <= 4 else 0
    found = estimates(runs, "success", ["arm", "fault_rate"])
    values = found.set_index(["arm", "fault_rate"])["value"].to_dict()
    first, *rest = (f"{rate:g}" for rate in rates)
    made = table("success at fault rate", first, *rest)
    for arm in order:
        shares = [values.get((arm, rate), float("nan")) for rate in rates]
        made.add_row(line(arm), *(_barred(s, width) for s in shares))
    for name in ("ceiling", "floor"):
        known = runs.groupby(["fault_rate", "scenario"])[name].mean().groupby("fault_rate").mean()
        shares = [float(known.get(rate, float("nan"))) for rate in rates]
        if not all(map(math.isnan, shares)):
            cells = [_barred(s, width) for s in shares]
            made.add_row(name, *cells, style="dim")
    return made


def _barred(share: float, width: int) -> str:
    return f"{bar(share, width)} {percent(share):>4}" if width else f"{percent(share):>4}"


def runs_table(runs: pd.DataFrame) -> Table:
    """Return a listing of runs: key, outcome, arm, scenario, rate, seed, why it stopped."""
    made = table("run", "", "arm", "scenario", ">rate", ">seed", "stopped by")
    for row in runs.to_dict("records"):
        stopped = row["stopped_by"] if isinstance(row["stopped_by"], str) else PLAN_ENDED
        spoilt = isinstance(row["infrastructure"], str)
        mark = "·" if spoilt else "✓" if row["success"] else "✗"
        made.add_row(
            row["cell"][:8], mark, line(row["arm"]), line(row["scenario"]),
            f"{row['fault_rate']:g}", str(row["seed"]),
            row["infrastructure"] if spoilt else "crashed" if row["status"] == "crashed"
            else line(stopped),
        )  # fmt: skip
    return made
