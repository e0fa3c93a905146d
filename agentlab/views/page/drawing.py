"""Drawings without a plotting library: a plan as SVG, and its steps along simulated time.

Colours of the status come from ``views/plots.py``, so a plan looks the same everywhere; the style
sheet lays them over the notebook's own background, light or dark. A mark, the line's style and a
word say the same a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentlab.base.documents import shortened
from agentlab.plans.layout import layout
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.trace.span import Span
from agentlab.views.page.markup import MOST_ROWS, Html, markup, tag
from agentlab.views.plots import STATUS
from agentlab.views.text import plain

WIDTH, HEIGHT = 140, 44
"""Of a step's box, pixels."""

ACROSS, DOWN = 22, 16
"""Between boxes, pixels."""

ROW = 5
"""Columns that stand beside each other before a new row begins."""

TALL = 6
"""Steps of one level that stand in a column before another begins."""

LEGIBLE = 680
"""Width to which a wide drawing may be scaled down, pixels."""

SHOWN = 20
"""Characters that fit in a box."""

BARS = 40
"""Steps that the timeline shows: the last ones."""

DASHES = {":": "2 3", "--": "6 3"}


class Box(NamedTuple):
    """Upper left corner of a box, the row it stands in, and the top of that row; pixels."""

    x: float
    y: float
    row: int
    top: float


def plan_svg(plan: TaskPlan, selected: str | None = None, *, live: bool = False) -> Html:
    """Draw a plan as a graph, from left to right, coloured by the status of its steps.

    Parameters
    ----------
    plan : TaskPlan
    selected : str, optional
        Id of the step to emphasise.
    live : bool
        Boxes can be clicked, and reached by keyboard.

    Returns
    -------
    Html
        An SVG, a box a step: its id with a mark for its status, and its target. An arrow that
        others imply is left out, and so are steps of earlier plans, and of a long plan all but a
        ``part``. Below it the legend.
    """
    if not plan.steps:
        return tag("p", "The plan has no steps.", class_="agentlab-quiet")
    plan, left_out = part(plan, selected)
    drawn = layout(plan, ROW, TALL)
    side = 3 + (ACROSS / 2 if drawn.rows > 1 else 0)  # room for arrows from row to row
    places = {
        step: Box(side + p.column * (WIDTH + ACROSS), _down(p.slot, p.row), p.row,
                  _down(p.top, p.row))
        for step, p in drawn.places.items()
    }  # fmt: skip
    width = int(drawn.columns * (WIDTH + ACROSS) - ACROSS + 2 * side)
    height = int(_down(drawn.slots, drawn.rows)) - 2 * DOWN + 6
    arrows = [_arrow(places[a], places[b]) for a, b in drawn.arrows]
    boxes = [_box(s, places[s.step_id], s.step_id == selected, live) for s in plan.steps]
    svg = tag(
        "svg", arrows, boxes, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}",
        width=width, height=height, style=f"min-width:{min(width, LEGIBLE)}px",
        class_="agentlab-plan", role="group" if live else "img",
        aria_label=f"plan of {len(plan.steps)} steps",
    )  # fmt: skip
    return markup(
        left_out, tag("div", svg, class_="agentlab-scroll"), legend(s.status for s in plan.steps)
    )


def part(plan: TaskPlan, selected: str | None = None) -> tuple[TaskPlan, Html | None]:
    """Return what is shown of a plan, and words for what is left out of a long one.

    That is ``MOST_ROWS`` steps on end, so no way between two of them leads through one that is
    left out: those around the first that is not settled, or around a selected one beside them.
    """
    size, at = len(plan.steps), plan.current_index
    if size <= MOST_ROWS:
        return plan, None

    def start(at: int) -> int:
        return min(max(at - MOST_ROWS // 3, 0), size - MOST_ROWS)

    chosen = plan.listed.shape.place.get(selected or "", at)
    first = start(at) if start(at) <= chosen < start(at) + MOST_ROWS else start(chosen)
    steps = plan.steps[first : first + MOST_ROWS]
    text = f"Steps {first + 1:,} to {first + MOST_ROWS:,} of {size:,} are shown: "
    text += "those around the selected one." if first != start(at) else "where the plan stands."
    return plan.with_steps(steps), tag("p", text, class_="agentlab-quiet")


def legend(statuses: Iterable[StepStatus]) -> Html:
    """Explain the marks of the statuses that occur."""
    found = set(statuses)
    words = (status_word(s) for s in STATUS if s in found)
    return tag("p", words, class_="agentlab-legend")


def status_word(status: StepStatus) -> Html:
    """Return a status as a word with its mark and colour."""
    chip = tag("b", STATUS[status][3], style=_colours(status), class_="agentlab-mark")
    return tag("span", chip, " ", status.value, class_=f"agentlab-status agentlab-is-{status}")


def _colours(status: StepStatus) -> str:
    """Hand a status's colours to the style sheet, and to viewers that have none."""
    fill, edge, *_ = STATUS[status]
    return f"--agentlab-edge:{edge};background:{fill};border-color:{edge}"


def _down(slots: float, rows: int) -> float:
    return 3 + slots * (HEIGHT + DOWN) + rows * DOWN


def _arrow(a: Box, b: Box) -> Html:
    middle, right = HEIGHT / 2, a.x + WIDTH
    head = f"{b.x - 7},{b.y + middle - 4} {b.x - 7},{b.y + middle + 4} {b.x - 1},{b.y + middle}"
    if b.row != a.row:  # the row was full: between the columns down, and back to the left
        out, into = right + ACROSS / 2, b.x - ACROSS / 2
        line = f"M{right} {a.y + middle}H{out}V{b.top - DOWN}H{into}V{b.y + middle}H{b.x - 6}"
    elif b.x - right > ACROSS and a.y == b.y:  # past the boxes between: below them
        x, y = b.x + 18, a.y + HEIGHT
        line = f"M{right - 18} {y}C{right - 18} {y + 18} {x} {y + 18} {x} {y + 6}"
        head = f"{x - 4},{y + 7} {x + 4},{y + 7} {x},{y + 1}"
    else:
        y, half = b.y + middle, (b.x + right) / 2
        line = f"M{right} {a.y + middle}C{half} {a.y + middle} {half} {y} {b.x - 6} {y}"
    return markup(
        tag("path", d=line, class_="agentlab-edge", fill="none", stroke="#7f7f7f"),
        tag("polygon", points=head, class_="agentlab-tip", fill="#7f7f7f"),
    )


def _box(step: TaskStep, place: Box, selected: bool, live: bool) -> Html:
    fill, edge, style, mark = STATUS[step.status]
    said = f"{step.step_id}: {step.label}, {step.status}"
    hint = f"{step.name}\n{step.description}".strip()
    text = {"text_anchor": "middle", "font_family": "sans-serif", "x": place.x + WIDTH / 2}
    classes = f"agentlab-box agentlab-is-{step.status}" + (" agentlab-selected" if selected else "")
    return tag(
        "g",
        tag("title", said, f"\n{hint}" if hint not in (step.step_id, "") else None,
            f"\n{step.error}" if step.error else None),
        tag("rect", x=place.x, y=place.y, width=WIDTH, height=HEIGHT, rx=7, fill=fill, stroke=edge,
            stroke_dasharray=DASHES.get(str(style)), stroke_width=1.5),
        tag("text", f"{mark} {shortened(step.step_id, SHOWN - 2)}", y=place.y + 18, font_size=12,
            font_weight="600", fill="#1a1a1a", **text),
        tag("text", shortened(_second_line(step), SHOWN + 3), y=place.y + 34, font_size=10.5,
            fill="#1a1a1a", class_="agentlab-second", **text),
        class_=classes, style=f"--agentlab-edge:{edge}", data_step=step.step_id, aria_label=said,
        aria_pressed=("true" if selected else "false") if live else None,
        role="button" if live else None, tabindex=0 if live else None,
    )  # fmt: skip


def _second_line(step: TaskStep) -> str:
    """Return the target; where the id says that already, the parameters."""
    if step.label not in step.step_id:
        return step.label
    return ", ".join(f"{k} {plain(v)}" for k, v in step.parameters.items()) or step.label


def timeline(spans: Sequence[Span]) -> Html:
    """Draw the executions of steps along simulated time.

    Parameters
    ----------
    spans : sequence of Span
        Of a run, or of a part of it.

    Returns
    -------
    Html
        A row a step, a bar an execution; the last ``BARS`` steps.
    """
    rows: dict[str, list[Span]] = {}
    for span in spans:
        if span.kind == "step":
            rows.setdefault(span.step_id, []).append(span)
    if not rows:
        return tag("p", "No step has been executed yet.", class_="agentlab-quiet")
    shown = dict(list(rows.items())[-BARS:])
    faulted = {(s.step_id, s.attempt) for s in spans if s.kind == "fault"}
    start = min(s.sim_start for made in shown.values() for s in made)
    end = max(s.sim_end for made in shown.values() for s in made)
    lines = [
        tag(
            "div",
            tag("span", step_id, class_="agentlab-who", title=step_id),
            tag("span", [_bar(s, start, end, faulted) for s in made], class_="agentlab-track"),
            class_="agentlab-row", data_step=step_id,
        )
        for step_id, made in shown.items()
    ]  # fmt: skip
    scale = tag(
        "div", tag("span", class_="agentlab-who"),
        tag("span", tag("span", f"{start:g} s"), tag("span", f"{end:g} s"), class_="agentlab-ends"),
        class_="agentlab-row",
    )  # fmt: skip
    hidden = len(rows) - len(shown)
    more = tag("p", f"{hidden} earlier steps are not shown.", class_="agentlab-quiet")
    return tag("div", more if hidden else None, lines, scale, class_="agentlab-timeline")


def _bar(span: Span, start: float, end: float, faulted: set[tuple[str, int]]) -> Html:
    length = (end - start) or 1.0
    left, width = (span.sim_start - start) / length, (span.sim_end - span.sim_start) / length
    status = StepStatus.COMPLETED if span.error is None else StepStatus.FAILED
    mark = STATUS[status][3]
    struck = (span.step_id, span.attempt) in faulted
    said = f"attempt {span.attempt}, {span.sim_start:g} to {span.sim_end:g} s: "
    said += span.error or "completed"
    return tag(
        "span", mark, " ⚡" if struck else None,
        style=f"left:{left:.2%};width:{max(width, 0.004):.2%};{_colours(status)}",
        class_=f"agentlab-bar agentlab-is-{status}", title=said + (", under a fault" * struck),
    )  # fmt: skip
