"""Plots: what is drawn is what was measured; nothing of matplotlib's global state moves."""

from __future__ import annotations

import io
import itertools
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from agentlab.errors import StudyError
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.study.compare import compare
from agentlab.study.leaderboard import estimates
from agentlab.views.names import middle
from agentlab.views.plots import (
    MARKERS,
    PALETTE,
    ROW,
    STATUS,
    differences,
    fault_curve,
    fault_panels,
    plain,
    plan_graph,
)

HOSTILE = "costs $5 or $6_{x\n<script>"


@pytest.fixture(autouse=True)
def _no_figure_stays():
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


def runs(strategies: tuple[str, ...] = ("never", "retry(2)"), planners: Any = ("p",)):
    rng = np.random.default_rng(0)
    rows = []
    for planner in planners:
        for k, strategy in enumerate(strategies):
            for rate in (0.0, 0.1, 0.3):
                for i in range(8):
                    for seed in (0, 1):
                        rows.append(
                            {
                                "arm": f"{planner} × {strategy}", "planner": planner,
                                "strategy": strategy, "workflow": "autonomous", "workers": 1,
                                "scenario": f"s{i}", "cluster": f"s{i}", "fault_rate": rate,
                                "seed": seed, "success": rng.random() < 1 - rate * (3 - k),
                                "floor": 0.0, "ceiling": 1.0 if rate < 0.3 or i else 0.0,
                                "twin_success": 1.0, "faults_delivered": 1, "replans": seed,
                                "changed_state": False,
                            }
                        )  # fmt: skip
    return pd.DataFrame(rows)


def drawn(axes) -> None:
    axes.get_figure().savefig(io.BytesIO(), format="svg")


def labels(axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def line(axes, label: str):
    return next(found for found in axes.get_lines() if found.get_label() == label)


# ---- fault_curve ---------------------------------------------------------------------------


def test_fault_curve_draws_the_estimates_with_their_intervals(ax):
    frame = runs()
    assert fault_curve(frame, ax=ax) is ax
    table = estimates(frame, "success", ["strategy", "fault_rate"])
    for strategy in ("never", "retry(2)"):
        want = table[table["strategy"] == strategy]
        got = line(ax, strategy)
        assert got.get_xdata().tolist() == [0.0, 0.1, 0.3]
        assert got.get_ydata() == pytest.approx(want["value"].to_numpy())
    band = ax.collections[0].get_paths()[0].vertices
    never = table[table["strategy"] == "never"]
    assert band[:, 1].min() == pytest.approx(never["low"].min())
    assert band[:, 1].max() == pytest.approx(never["high"].max())
    assert not plt.get_fignums()  # given axes need no figure of pyplot's


def test_fault_curve_shows_floor_and_ceiling(ax):
    fault_curve(runs(), ax=ax)
    assert line(ax, "floor").get_ydata().tolist() == [0, 0, 0]
    assert line(ax, "ceiling").get_ydata() == pytest.approx([1, 1, 7 / 8])
    assert ax.get_ylim() == (0, 1)
    fault_curve(runs().assign(floor=np.nan), ax=(other := Figure().subplots()))
    assert labels(other) == ["never", "retry(2)", "ceiling"]


def test_fault_curve_makes_one_figure_of_its_own():
    made = fault_curve(runs(), by="arm")
    assert plt.get_fignums() == [made.figure.number]
    assert labels(made) == ["p × never", "p × retry(2)", "ceiling", "floor"]


def test_levels_differ_in_colour_and_in_marker(ax):
    fault_curve(runs(tuple(f"every({i})" for i in range(8))), ax=ax)
    lines = [found for found in ax.get_lines() if found.get_label().startswith("every")]
    assert len({found.get_color() for found in lines}) == 8
    assert len({found.get_marker() for found in lines}) == 8
    assert len(PALETTE) == len(MARKERS) == 8


@pytest.mark.parametrize("metric", ["recovery", "side_effects", "replans"])
def test_other_metrics_have_no_ceiling(ax, metric):
    fault_curve(runs(), metric=metric, ax=ax)
    assert labels(ax) == ["never", "retry(2)"]
    assert ax.get_ylabel() == metric.replace("_", " ")


def test_one_rate_is_a_point_with_its_interval(ax):
    frame = runs()
    drawn(fault_curve(frame[frame["fault_rate"] == 0.3], ax=ax))
    assert line(ax, "never").get_xdata().tolist() == [0.3]


def test_fault_curve_says_what_it_cannot_draw(ax):
    with pytest.raises(StudyError, match="did you mean 'strategy'"):
        fault_curve(runs(), by="stratgy", ax=ax)
    with pytest.raises(StudyError, match="did you mean 'success'"):
        fault_curve(runs(), metric="sucess", ax=ax)
    with pytest.raises(StudyError, match="no run"):
        fault_curve(runs().head(0), ax=ax)


def test_fault_panels_have_axes_a_planner():
    figure = Figure(layout="constrained")
    made = fault_panels(runs(planners=("a", "b", "c", "d")), figure=figure)
    assert [axes.get_title() for axes in made] == ["a", "b", "c", "d"]
    assert len({axes.get_ylim() for axes in made}) == 1
    assert len(figure.legends) == 1
    assert not plt.get_fignums()
    with pytest.raises(StudyError, match="did you mean 'planner'"):
        fault_panels(runs(), panel="planer", figure=figure)


# ---- differences ---------------------------------------------------------------------------


def test_differences_draws_a_row_a_pair(ax):
    table = compare(runs(("never", "retry(2)", "retry(1)")), by="strategy")
    assert differences(table, ax=ax) is ax
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == [f"{r.a} − {r.b}" for r in table.itertuples()]
    points = [found for found in ax.get_lines() if found.get_marker() == "o"]
    assert [p.get_xdata()[0] for p in points] == pytest.approx(table["diff"].tolist())
    hollow = [to_hex(p.get_markerfacecolor()) == "#ffffff" for p in points]
    assert hollow == [v not in ("a higher", "b higher") for v in table["verdict"]]


def test_differences_without_intervals(ax):
    frame = runs()
    table = compare(frame[frame["scenario"] == "s0"], by="strategy")
    assert table["low"].isna().all()
    drawn(differences(table, ax=ax))


# ---- plan_graph ----------------------------------------------------------------------------


def plan(*steps: tuple[str, tuple[str, ...]], **statuses: StepStatus) -> TaskPlan:
    return TaskPlan(
        steps=tuple(
            TaskStep(
                step_index=i,
                step_id=name,
                target_resource=f"tool_{name}",
                dependencies=before,
                status=statuses.get(name, StepStatus.PENDING),
            )
            for i, (name, before) in enumerate(steps)
        )
    )


def boxes(axes) -> list[FancyBboxPatch]:
    return [p for p in axes.patches if isinstance(p, FancyBboxPatch)]


def arrows(axes) -> int:
    return sum(1 for text in axes.texts if getattr(text, "arrow_patch", None) is not None)


def test_plan_graph_has_a_box_a_step_in_columns_by_level(ax):
    diamond = plan(("a", ()), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c")))
    assert plan_graph(diamond, ax=ax) is ax
    assert len(boxes(ax)) == 4
    assert arrows(ax) == 4
    words = {t.get_text(): t.get_position() for t in ax.texts if t.get_text()}
    x = {name[-1]: place[0] for name, place in words.items() if name.startswith("tool")}
    assert x["a"] < x["b"] == x["c"] < x["d"]
    assert not plt.get_fignums()


def test_an_arrow_that_others_imply_is_left_out(ax):
    plan_graph(plan(("a", ()), ("b", ("a",)), ("c", ("a", "b"))), ax=ax)
    assert arrows(ax) == 2


def test_status_is_told_by_colour_mark_and_legend(ax):
    names = "abcdef"
    statuses = dict(zip(names, StepStatus, strict=True))
    plan_graph(plan(*((n, ()) for n in names), **statuses), ax=ax)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        f"{STATUS[s][3]} {s.value}" for s in STATUS
    ]
    for box, name in zip(boxes(ax), names, strict=True):
        assert box.get_facecolor()[:3] == to_rgb(STATUS[statuses[name]][0])
    assert len({(fill, edge) for fill, edge, _, _ in STATUS.values()}) == len(StepStatus)
    assert len({mark for *_, mark in STATUS.values()}) == len(StepStatus)


def test_the_legend_holds_only_what_is_there(ax):
    plan_graph(plan(("a", ()), a=StepStatus.FAILED), ax=ax)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["✗ failed"]


def test_a_long_plan_goes_on_in_another_row():
    names = [f"s{i}" for i in range(2 * ROW + 1)]
    chain = plan(*((n, (names[i - 1],) if i else ()) for i, n in enumerate(names)))
    axes = plan_graph(chain)
    tops = {round(t.get_position()[1], 2) for t in axes.texts if t.get_text().startswith("tool")}
    assert len(tops) == 3
    width, _ = axes.figure.get_size_inches()
    assert width <= 2 * ROW
    drawn(axes)


def test_an_empty_plan_is_an_empty_graph(ax):
    drawn(plan_graph(TaskPlan(), ax=ax))
    assert not boxes(ax)
    assert ax.get_legend() is None


def test_dependencies_on_steps_of_earlier_plans_are_not_drawn(ax):
    plan_graph(plan(("b", ("gone",)), ("c", ("b",))), ax=ax)
    assert arrows(ax) == 1


# ---- text is drawn as it is ----------------------------------------------------------------


def test_text_with_dollars_is_no_formula():
    figure = Figure()
    made = figure.text(0, 0, plain(HOSTILE))
    drawn_text, is_math = made._preprocess_math(made.get_text())
    assert (drawn_text, is_math) == ("costs $5 or $6_{x <script>", False)


def test_hostile_names_everywhere(ax):
    frame = runs((HOSTILE, "$x$"), planners=("$\\frac$",))
    drawn(fault_curve(frame, ax=ax))
    drawn(fault_panels(frame, figure=Figure(layout="constrained"))[0])
    drawn(differences(compare(frame, by="strategy"), ax=Figure().subplots()))
    step = TaskStep(step_id="a", name=HOSTILE, target_resource=HOSTILE)
    drawn(plan_graph(TaskPlan(steps=(step,)), ax=Figure().subplots()))


@pytest.mark.parametrize("rows", [1, 28, 120])
def test_rows_of_a_comparison_do_not_overlap_and_tell_their_arms_apart(rows):
    arm = "reference(noise=0.1) × retry_then_replan(2, replans={}, wait=1.0) × openai/gpt-4o-mini"
    table = pd.DataFrame(
        {"a": arm.format(i), "b": arm.format(i + 1), "diff": 0.1, "low": 0.0, "high": 0.2,
         "verdict": "a higher", "smallest_difference": 0.2}
        for i in range(rows)
    )  # fmt: skip
    ax = differences(table)
    ax.figure.canvas.draw()
    labels = ax.get_yticklabels()
    assert len({label.get_text() for label in labels}) == rows
    boxes = sorted((b.y0, b.y1) for b in (label.get_window_extent() for label in labels))
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(boxes))
    assert ax.get_window_extent().width > 150


def test_an_empty_comparison_is_refused():
    with pytest.raises(StudyError, match="nothing to draw"):
        differences(pd.DataFrame(columns=["a", "b", "verdict"]))


def test_a_name_is_cut_in_its_middle():
    assert middle("retry_then_replan(2, wait=1)", 15) == "retry_t…wait=1)"
    for length in range(3, 30):
        cut = middle("x" * 20, length)
        assert len(cut) == min(length, 20)


def test_the_curves_of_many_long_arms_keep_their_room_and_their_names():
    planners = tuple(f"a_long_planner_name(option={i}, another=0.{i})" for i in range(7))
    made = fault_curve(runs(("retry_then_replan(2, wait=3.0)", "never"), planners), by="arm")
    drawn(made)
    told = labels(made)
    assert len(set(told)) == len(told) == 16
    assert made.get_window_extent().height > 0.5 * made.figure.bbox.height
