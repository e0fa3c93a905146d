"""Plots: success over the fault rate, a plan as a graph, paired differences.

Every function draws on the axes it is given, or on a new figure, and returns the axes; nothing of
matplotlib's global state is changed. Colours are Okabe and Ito's, which colour-blind readers can
tell apart; markers, line styles and words say the same a second time. Text is drawn as it is: a
``$`` in it starts no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from agentlab.base.arrived import instance
from agentlab.base.documents import percent, shortened
from agentlab.plans.layout import layout
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.views.drawable import check_comparison, check_place, check_runs
from agentlab.views.names import LONGEST_NAME, apart, called_beside

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c510a", "#7f7f7f")
"""Okabe and Ito's colours, with a brown for their yellow, which is faint on white."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#7f7f7f"

STATUS: Mapping[StepStatus, tuple[str, str, Any, str]] = {
    StepStatus.PENDING: ("#f2f2f2", "#7f7f7f", "-", "·"),
    StepStatus.RUNNING: ("#56b4e9", "#0072b2", "-", "▸"),
    StepStatus.COMPLETED: ("#a6dbc9", "#009e73", "-", "✓"),
    StepStatus.FAILED: ("#f3b48b", "#d55e00", "-", "✗"),
    StepStatus.SKIPPED: ("#ffffff", "#7f7f7f", ":", "–"),
    StepStatus.INTERRUPTED: ("#f6d98a", "#e69f00", "--", "!"),
}
"""Fill, edge, line style and mark of each status."""

PANELS = 3
"""Panels beside each other."""

ROW = 8
"""Levels of a plan that stand beside each other before a new row begins."""

SHOWN = 18
"""Characters of a step's name or target that fit in its box."""


def fault_curve(
    runs: pd.DataFrame, by: str = "strategy", metric: str = "success", ax: Axes | None = None
) -> Axes:
    """Draw a metric over the fault rate, a line for each level of a factor.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame of a study.
    by : str
        "arm", "strategy", "planner" or another column.
    metric : str
        "success", "side_effects", "recovery", or a numeric column of the frame.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Bands are 95 % intervals, clustered by task. With success, a dashed line is the ceiling
        (what could be reached under the same faults) and a dotted one the floor (doing nothing).

    Raises
    ------
    StudyError
        There is no such column or metric, or no run.
    """
    from agentlab.study.leaderboard import estimates
    from agentlab.study.pairing import levelled

    check_runs(runs, by=by, metric=metric)
    check_place(ax)
    runs = runs.assign(**{by: levelled(runs[by])})
    table = estimates(runs, metric, [by, "fault_rate"])
    found = list(dict.fromkeys(table[by]))
    many = len(found) > 4
    ax = _axes(ax, (9.2, max(4.4, 0.9 + 0.19 * len(found))) if many else (6.4, 4.2))
    called = apart([str(level) for level in found], 2 * LONGEST_NAME)
    for number, level in enumerate(found):
        line = table[table[by] == level].sort_values("fault_rate")
        colour = PALETTE[number % len(PALETTE)]
        x = line["fault_rate"].to_numpy()
        if len(x) > 1:
            alpha = 0.06 if many else 0.13
            ax.fill_between(x, line["low"], line["high"], color=colour, alpha=alpha, linewidth=0)
        else:
            ax.vlines(x, line["low"], line["high"], color=colour, alpha=0.5)
        ax.plot(
            x, line["value"], color=colour, marker=_marker(number), markersize=5,
            linewidth=1.8, label=plain(called[number]), clip_on=False, zorder=3,
        )  # fmt: skip
    if metric == "success":
        _bounds(runs, ax)
    if metric in ("success", "side_effects", "recovery"):
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(lambda value, _: percent(value))
    rates = sorted(set(runs["fault_rate"]))
    if len(rates) <= 8:
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.set_xlabel("fault rate")
    ax.set_ylabel(plain(metric.replace("_", " ")))
    _legend(ax, by)
    return _tidy(ax)


def fault_panels(
    runs: pd.DataFrame,
    by: str | None = None,
    panel: str = "planner",
    metric: str = "success",
    figure: Figure | None = None,
) -> list[Axes]:
    """Draw a ``fault_curve`` for each level of a second factor, side by side.

    Parameters
    ----------
    runs : DataFrame
        The ``runs`` frame of a study.
    by, panel : str
        The factor with a line a level, and the one with axes a level. By default lines are
        strategies, and arms where those and planners do not tell the arms apart.
    metric : str
        As for ``fault_curve``.
    figure : Figure, optional
        Default: a new one.

    Returns
    -------
    list of Axes

    Raises
    ------
    StudyError
        There is no such column or metric, or no run.
    """
    from agentlab.study.grid import varying
    from agentlab.study.pairing import levelled

    check_runs(runs, panel=panel, metric=metric, **({} if by is None else {"by": by}))
    check_place(None, figure)
    by = by or ("arm" if set(varying(runs)) - {"planner", "strategy"} else "strategy")
    runs = runs.assign(**{panel: levelled(runs[panel])})
    found = list(dict.fromkeys(runs[panel]))
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=panel_size(len(found)), layout="constrained")
    columns = min(len(found), PANELS)
    rows = -(-len(found) // columns)
    made = figure.subplots(rows, columns, sharey=True, squeeze=False)
    drawn = []
    for number, level in enumerate(found):
        ax = fault_curve(runs[runs[panel] == level], by, metric, made.flat[number])
        ax.set_title(plain(level), fontsize=10)
        if by != "arm" and (legend := ax.get_legend()) is not None:
            legend.remove()  # lines are the same in all panels
        if number % columns:
            ax.set_ylabel("")
        drawn.append(ax)
    if by != "arm":
        handles, labels = drawn[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False,
            fontsize=8,
        )  # fmt: skip
    for unused in made.flat[len(found) :]:
        unused.set_visible(False)
    return drawn


def panel_size(panels: int) -> tuple[float, float]:
    """Return the size, in inches, of a figure of ``fault_panels``."""
    return (4.4 * max(min(panels, PANELS), 1.4), 3.9 * -(-panels // PANELS))


def _bounds(runs: pd.DataFrame, ax: Axes) -> None:
    """Draw the ceiling, dashed, and the floor, dotted, where they are known."""
    for name, style in (("ceiling", (0, (5, 3))), ("floor", (0, (1, 2)))):
        if name not in runs or runs[name].isna().all():
            continue
        known = runs.dropna(subset=[name])
        cells = known.groupby(["fault_rate", "scenario"])[name].mean()
        line = cells.groupby("fault_rate").mean()
        ax.plot(
            line.index, line.to_numpy(), color=GREY, linestyle=style, linewidth=1.4, label=name,
            marker="_" if len(line) == 1 else None, markersize=14, clip_on=False, zorder=2,
        )  # fmt: skip


def differences(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the rows of a comparison as a forest: a difference with its interval each.

    Parameters
    ----------
    table : DataFrame
        From ``Study.compare`` or ``agentlab.study.compare.compare``.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        A row a pair, a minus b, with its simultaneous 95 % interval. The grey bar is what the study
        was too small to see (80 % power); hollow marks are not shown to differ, and what shares no
        task has no mark.
    """
    from agentlab.study.compare import NOT_COMPARED

    check_comparison(table)
    check_place(ax)
    called = called_beside([*table["a"], *table["b"]])
    longest = max(
        len(called[a]) + len(called[b]) for a, b in zip(table["a"], table["b"], strict=True)
    )
    ax = _axes(ax, (4.6 + 0.085 * longest, 0.9 + 0.34 * len(table)))
    names = []
    for y, row in enumerate(table.to_dict("records")):
        pair = f"{called[row['a']]} − {called[row['b']]}"
        if row["verdict"] == NOT_COMPARED:
            names.append(f"{plain(pair)}  ({NOT_COMPARED})")
            continue
        shown = row["verdict"] in ("a higher", "b higher")
        colour = PALETTE[0] if shown else GREY
        unseen = row["smallest_difference"]
        if unseen == unseen:  # not NaN
            ax.barh(y, 2 * unseen, left=-unseen, height=0.62, color=GREY, alpha=0.13, linewidth=0)
        if isfinite(row["low"]) and isfinite(row["high"]):
            ax.hlines(y, row["low"], row["high"], color=colour, linewidth=1.8)
        ax.plot(
            row["diff"], y, marker="o", markersize=6, markeredgewidth=1.6, color=colour,
            markerfacecolor=colour if shown else "white",
        )  # fmt: skip
        names.append(plain(pair))
    ax.axvline(0, color=GREY, linewidth=0.9, zorder=0)
    size = _fitting(ax, len(table))
    ax.set_yticks(range(len(table)), names, fontsize=size)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlabel("difference (a − b),\nsimultaneous 95 % interval")
    _tidy(ax)
    ax.grid(axis="x", color=GREY, alpha=0.25)
    ax.grid(visible=False, axis="y")
    return ax


def _marker(number: int) -> str:
    """Return the marker of a line: where the colours begin anew, another for each."""
    return MARKERS[(number + number // len(PALETTE)) % len(MARKERS)]


def _fitting(ax: Axes, rows: int) -> float:
    """Return the size of letters, in points, at which so many rows do not overlap."""
    points = ax.get_window_extent().height * 72 / ax.figure.dpi
    return min(9.0, max(3.5, 0.72 * points / max(rows, 1)))


def plan_graph(plan: TaskPlan, ax: Axes | None = None) -> Axes:
    """Draw a plan as a graph, from left to right, coloured by the status of its steps.

    Parameters
    ----------
    plan : TaskPlan
    ax : Axes, optional
        Default: a new figure, sized to the plan.

    Returns
    -------
    Axes
        A box a step: its name, with a mark for its status, and its target. Steps stand in columns
        by level (the longest way to them); after ``ROW`` levels a new row begins. An arrow that
        others imply is left out, and so are steps of earlier plans.
    """
    instance("plan", plan, TaskPlan, "a plan", "run.plan is one")
    check_place(ax)
    drawn = layout(plan, ROW)
    places = {i: (p.column, -p.slot - 0.25 * p.row) for i, p in drawn.places.items()}
    columns = max(drawn.columns, 1)
    depth = 1 - min((y for _, y in places.values()), default=0)
    ax = _axes(ax, (max(3.2, 2.0 * columns), max(1.6, 0.95 * depth + 0.7)))
    for before, after in drawn.arrows:
        _arrow(ax, places[before], places[after])
    for step in plan.steps:
        _box(ax, step, *places[step.step_id])
    ax.set_xlim(-0.55, columns - 0.45)
    ax.set_ylim(-depth + 0.4, 0.6)
    ax.set_axis_off()
    _status_legend(ax, [s for s in STATUS if any(step.status is s for step in plan.steps)])
    return ax


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    backwards = end[0] <= start[0]  # a row was full
    (x1, y1), (x2, y2) = start, end
    tail, head = (
        ((x1, y1 - 0.28), (x2, y2 + 0.3)) if backwards else ((x1 + 0.4, y1), (x2 - 0.4, y2))
    )
    ax.annotate(
        "", xy=head, xytext=tail, annotation_clip=False, zorder=1,
        arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 1.1, "shrinkA": 0,
                    "shrinkB": 1, "mutation_scale": 9},
    )  # fmt: skip


def _box(ax: Axes, step: TaskStep, x: float, y: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    fill, edge, style, mark = STATUS[step.status]
    box = FancyBboxPatch(
        (x - 0.38, y - 0.26), 0.76, 0.52, boxstyle="round,pad=0.02,rounding_size=0.08",
        facecolor=fill, edgecolor=edge, linestyle=style, linewidth=1.4, zorder=2,
    )  # fmt: skip
    ax.add_patch(box)
    name = step.step_id or step.name
    first, second = (plain(shortened(text, SHOWN)) for text in (name, step.label))
    ink: dict[str, Any] = {"ha": "center", "va": "center", "color": "#1a1a1a", "zorder": 3}
    ax.text(x, y + 0.09, f"{mark} {first}", fontsize=8, fontweight="bold", **ink)
    ax.text(x, y - 0.11, second, fontsize=7, **ink)


def _status_legend(ax: Axes, statuses: Sequence[StepStatus]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=STATUS[s][0], edgecolor=STATUS[s][1], linestyle=STATUS[s][2],
              label=f"{STATUS[s][3]} {s.value}")
        for s in statuses
    ]  # fmt: skip
    if handles:
        ax.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(handles),
            frameon=False, fontsize=8,
        )  # fmt: skip


def plain(text: Any) -> str:
    r"""Return text that matplotlib draws as it is: no formula, no line break, no control character.

    Examples
    --------
    >>> plain("costs $5 or $6")
    'costs \\$5 or \\$6'
    """
    kept = "".join(c if c.isprintable() else " " for c in str(text))
    return kept.replace("$", r"\$")


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, made = plt.subplots(figsize=size, layout="constrained")
    return made


def _legend(ax: Axes, title: str) -> None:
    labels = ax.get_legend_handles_labels()[1]
    wide = len(labels) > 6 or max(len(label) for label in labels) > 24
    place: dict[str, Any] = {"loc": "best"}
    if wide:
        place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    ax.legend(title=plain(title), frameon=False, fontsize=8, title_fontsize=8, **place)


def _tidy(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=GREY, alpha=0.25)
    ax.set_axisbelow(True)
    return ax


__all__ = ["differences", "fault_curve", "fault_panels", "plan_graph"]


def __dir__() -> list[str]:
    return __all__
