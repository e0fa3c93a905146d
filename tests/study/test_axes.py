"""Arms that differ in one axis, whichever it is, are told apart wherever results are shown."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
import pytest
from rich.console import Console

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite
from agentlab.study.compare import compare
from agentlab.study.frames import KEYS
from agentlab.study.grid import AXES, Arm, varying
from agentlab.views.cli.terminal import leaderboard_table, rates_table
from agentlab.views.names import LONGEST_NAME, middle
from agentlab.views.page.report import page
from agentlab.views.plots import fault_curve, fault_panels

SUITE = Suite("three", [generate("medium", i, length=2 + i) for i in range(3)])
OTHER = {
    "planner": "reference", "strategy": "retry(1)", "workflow": "resident", "workers": 2,
    "reflector": "rules", "responder": "template", "review": "approve",
    "budget": "replans=1",
}  # fmt: skip


@pytest.fixture(params=AXES)
def differing(request, tmp_path):
    """The axis, its two values as results call them, and the study of the two arms."""
    axis, value = request.param, OTHER.get(request.param)
    if axis == "lm":
        script = tmp_path / "one.json"
        script.write_text('[{"when": "", "say": "It has been done."}]')
        value = f"scripted:{script}"
    arms = [Arm(), Arm(**{axis: value})]
    made = al.Study(arms, SUITE, seeds=2, fault_rate=[0.0, 0.3], out=tmp_path / "out")
    made.run(processes=1)
    yield axis, [str(a.factors[axis] or "none") for a in arms], made
    plt.close("all")


def test_two_arms_that_differ_in_one_axis_are_told_apart(differing):
    axis, values, made = differing
    runs, board = made.runs, made.leaderboard()
    assert varying(runs) == varying(board) == [axis]
    assert len({arm.label for arm in made.arms}) == runs["arm"].nunique() == len(board) == 2
    for frame in (runs, made.spans, made.steps):
        assert frame[axis].nunique(dropna=False) == 2
    assert axis in KEYS

    text = io.StringIO()
    console = Console(file=text, width=400)
    console.print(leaderboard_table(board, 400))
    shown = text.getvalue()
    assert axis in shown.splitlines()[0]
    assert all(value in shown for value in values)
    console.print(rates_table(runs, list(board["arm"])))
    assert all(arm in text.getvalue() for arm in board["arm"])

    assert f"Paired comparison by {axis}" in page(made)
    [pair] = compare(runs, "success", by=axis).to_dict("records")
    assert {pair["a"], pair["b"]} == set(values)

    legend = fault_curve(runs, by=axis).get_legend()
    told = {middle(value, 2 * LONGEST_NAME) for value in values}
    assert told <= {label.get_text() for label in legend.get_texts()}
    lines = {
        (ax.get_title(), line.get_label())
        for ax in fault_panels(runs)
        for line in ax.get_lines()
        if not line.get_label().startswith(("floor", "ceiling", "_"))
    }
    assert len(lines) == 2
