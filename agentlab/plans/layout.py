"""Where the steps of a plan stand when it is drawn: a plot and a widget draw the same layout.

Steps stand in columns by level, the longest way to them, each column centred in its row; when a row
is full, another begins below it. Places are counted in columns and slots (one box high); what draws
them knows how large a box is, and what is left free between rows.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from agentlab.plans import graph
from agentlab.plans.task_plan import TaskPlan


class Place(NamedTuple):
    """Where a step stands: its column, slots from the top, its row, and the row's first slot."""

    column: int
    slot: float
    row: int
    top: float


class Layout(NamedTuple):
    """The places of all steps by id, the arrows between them, and how much room they take."""

    places: dict[str, Place]
    arrows: list[tuple[str, str]]
    """Dependencies that do not follow from others (before, after)."""
    columns: int
    rows: int
    slots: float


def layout(plan: TaskPlan, columns: int, tall: int = sys.maxsize) -> Layout:
    """Lay a plan out in rows of so many columns, each of at most ``tall`` steps."""
    found = [
        level[i : i + tall] for level in graph.levels(plan) for i in range(0, len(level), tall)
    ]
    rows = [found[start : start + columns] for start in range(0, len(found), columns)]
    places: dict[str, Place] = {}
    top = 0.0
    for row, part in enumerate(rows):
        height = max(map(len, part))
        for column, level in enumerate(part):
            first = top + (height - len(level)) / 2
            places |= {step: Place(column, first + i, row, top) for i, step in enumerate(level)}
        top += height
    return Layout(places, graph.edges(plan), min(len(found), columns), len(rows), top)
