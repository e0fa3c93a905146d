"""The layout of a plan: columns by level, centred, in rows; the same for plot and widget."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt

from agentlab.plans.layout import Place, layout
from agentlab.plans.task_plan import TaskPlan, TaskStep
from agentlab.views import plots
from agentlab.views.page.drawing import plan_svg


def plan(**after: list[str]) -> TaskPlan:
    return TaskPlan(
        steps=tuple(
            TaskStep(
                step_index=n, step_id=i, name=i, action_type="call_tool", dependencies=tuple(d)
            )
            for n, (i, d) in enumerate(after.items())
        )
    )


DIAMOND = plan(a=[], b=["a"], c=["a"], d=["b", "c", "a"])


def test_columns_are_levels_and_centred():
    found = layout(DIAMOND, 5)
    assert found.places == {
        "a": Place(0, 0.5, 0, 0), "b": Place(1, 0, 0, 0), "c": Place(1, 1, 0, 0),
        "d": Place(2, 0.5, 0, 0),
    }  # fmt: skip
    assert found.arrows == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    assert (found.columns, found.rows, found.slots) == (3, 1, 2)


def test_a_full_row_and_a_tall_level_go_on_elsewhere():
    found = layout(DIAMOND, 2)
    assert found.places["d"] == Place(0, 2, 1, 2)
    assert (found.columns, found.rows, found.slots) == (2, 2, 3)
    wide = layout(plan(**{f"s{i}": [] for i in range(5)}), 9, tall=2)
    assert [p.column for p in wide.places.values()] == [0, 0, 1, 1, 2]
    assert layout(TaskPlan(), 5) == ({}, [], 0, 0, 0)


def test_plot_and_widget_draw_it():
    ax = plots.plan_graph(DIAMOND)
    places = {t.get_text(): t.get_position() for t in ax.texts if t.get_fontweight() == "bold"}
    plt.close("all")
    svg = str(plan_svg(DIAMOND))
    corners = [(float(x), float(y)) for x, y in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', svg)]
    assert len(places) == len(corners) == 4
    order = [p.column for p in layout(DIAMOND, 5).places.values()]
    assert [round(x) for x, _ in places.values()] == order
    assert sorted({x for x, _ in corners}) == [corners[0][0], corners[1][0], corners[3][0]]
    ys = [-y for _, y in places.values()]
    for i in range(4):
        for j in range(4):
            assert (ys[i] < ys[j] - 0.1) == (corners[i][1] < corners[j][1])
