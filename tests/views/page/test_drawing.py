"""Drawings: nothing overlaps, the arrows that count are there, and it is well-formed XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import networkx as nx
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.plans import graph
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.state.state import State
from agentlab.trace.span import Span
from agentlab.views.page import drawing, html
from agentlab.views.page.markup import clean
from agentlab.views.plots import STATUS


@st.composite
def plans(draw) -> TaskPlan:
    """Draw a plan of up to 16 steps with any dependencies on earlier ones."""
    steps = []
    for n in range(draw(st.integers(1, 16))):
        before = draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set()
        steps.append(
            TaskStep(
                step_index=n,
                step_id=f"s{n}",
                target_resource=draw(st.sampled_from(["t", "s"])),
                dependencies=tuple(f"s{d}" for d in sorted(before)),
                status=draw(st.sampled_from(list(StepStatus))),
                parameters=draw(st.sampled_from([{}, {"a": 1}, {"b": "x" * 60}])),
            )
        )
    return TaskPlan(steps=tuple(steps))


def svg_of(made: str) -> ET.Element:
    return ET.fromstring(made[made.index("<svg") : made.index("</svg>") + 6])


def parts(svg: ET.Element, name: str) -> list[ET.Element]:
    return list(svg.iter(f"{{http://www.w3.org/2000/svg}}{name}"))


@settings(max_examples=60, deadline=None)
@given(plan=plans())
def test_the_plan_is_drawn_without_overlap_and_with_the_arrows_that_count(plan):
    svg = svg_of(drawing.plan_svg(plan, live=True))
    width, height = (float(svg.attrib[k]) for k in ("width", "height"))
    places = {}
    for group in parts(svg, "g"):
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        x, y = float(rect.attrib["x"]), float(rect.attrib["y"])
        assert 0 <= x <= width - drawing.WIDTH
        assert 0 <= y <= height - drawing.HEIGHT
        for a, b in places.values():
            assert abs(a - x) >= drawing.WIDTH or abs(b - y) >= drawing.HEIGHT
        places[group.attrib["data-step"]] = (x, y)
    assert list(places) == [s.step_id for s in plan.steps]
    full = nx.DiGraph([(d, s.step_id) for s in plan.steps for d in s.dependencies])
    assert set(graph.edges(plan)) == set(nx.transitive_reduction(full).edges)
    assert len(parts(svg, "path")) == len(graph.edges(plan))


@settings(max_examples=40, deadline=None)
@given(plan=plans(), selected=st.none() | st.sampled_from(["s0", "s3", "s9", "s15", "none"]))
def test_of_a_long_plan_a_part_is_shown_with_words_for_the_rest(plan, selected):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drawing, "MOST_ROWS", 6)
        shown, words = drawing.part(plan, selected)
        drawn = svg_of(drawing.plan_svg(plan, selected))
    ids, all_ids = ([s.step_id for s in p.steps] for p in (shown, plan))
    assert [g.attrib["data-step"] for g in parts(drawn, "g")] == ids
    if len(plan) <= 6:
        assert (shown, words) == (plan, None)
        return
    first = all_ids.index(ids[0])
    assert ids == all_ids[first : first + 6]
    assert f"Steps {first + 1} to {first + 6} of {len(plan)} are shown: " in words
    wanted = selected if selected in all_ids else None
    if wanted is None and plan.remaining:
        wanted = plan.remaining[0].step_id
    assert wanted is None or wanted in ids
    arrows = [(a, b) for a, b in graph.edges(plan) if a in ids and b in ids]
    assert graph.edges(shown) == arrows


def test_the_page_of_a_plan_of_five_thousand_steps_shows_what_fits(check):
    steps = tuple(
        TaskStep(step_index=n, step_id=f"s{n}", dependencies=("s0", f"s{n - 1}") if n > 1 else (),
                 status="completed" if n < 2500 else "pending")
        for n in range(5000)
    )  # fmt: skip
    plan = TaskPlan(steps=steps)
    made = [html.graph(plan), html.steps_table(State(task_plan=plan))]
    for one in made:
        assert "Steps 2,401 to 2,700 of 5,000 are shown: where the plan stands." in check(one).text
        assert len(one) < 400_000
        assert one.count('data-step="') == 300
    assert "those around the selected one." in html.graph(plan, "s4999")


def test_a_drawing_is_well_formed_xml(hostile, hostile_run):
    svg = svg_of(drawing.plan_svg(hostile_run(hostile).plan, live=True))
    first = parts(svg, "g")[0].attrib["data-step"]
    assert first.split() == clean(f"{hostile}0").split()  # XML makes spaces of line breaks


def test_every_status_has_its_mark_and_its_word(check):
    plan = TaskPlan(steps=tuple(TaskStep(step_id=s.value, status=s) for s in StepStatus))
    page = check(drawing.plan_svg(plan))
    marks = [STATUS[s][3] for s in StepStatus]
    assert len(set(marks)) == len(marks)
    words = " ".join(page.text.split())
    for status in StepStatus:
        assert f"{STATUS[status][3]} {status.value}" in words


def test_a_step_shows_its_target_or_what_its_id_leaves_open():
    def second(**fields) -> str:
        svg = svg_of(drawing.plan_svg(TaskPlan(steps=(TaskStep(step_id="book", **fields),))))
        return parts(svg, "text")[1].text

    assert second(target_resource="hotels") == "hotels"
    assert second(target_resource="book", parameters={"id": "H1", "n": 2}) == "id H1, n 2"
    assert second(target_resource="book") == "book"
    assert second(target_resource="x" * 40) == f"{'x' * (drawing.SHOWN + 2)}…"


def test_the_timeline_lays_attempts_along_simulated_time(check):
    def step(step_id: str, attempt: int, start: float, end: float, error: str | None = None):
        span = Span(1, 0, "step", step_id, 0, step_id, attempt, None, start, 0.0)
        span.sim_end, span.error = end, error
        return span

    fault = Span(9, 0, "fault", "error", 0, "a", 1, None, 2.0, 0.0)
    made = drawing.timeline(
        [step("a", 1, 0, 2, "down"), fault, step("a", 2, 2, 3), step("b", 1, 3, 8)]
    )
    page = check(made)
    bars = [v.partition(";--")[0] for v in page.values if v.startswith("left:")]
    assert bars == [
        "left:0.00%;width:25.00%",
        "left:25.00%;width:12.50%",
        "left:37.50%;width:62.50%",
    ]
    assert "attempt 1, 0 to 2 s: down, under a fault" in page.values
    assert "attempt 2, 2 to 3 s: completed" in page.values
    assert page.text.split() == ["a", "✗", "⚡", "✓", "b", "✓", "0", "s", "8", "s"]
    assert "3 earlier steps" in drawing.timeline(
        [step(f"s{i}", 1, i, i + 1) for i in range(drawing.BARS + 3)]
    )
    check(drawing.timeline([step("a", 1, 0, 0)]))  # no time has passed
