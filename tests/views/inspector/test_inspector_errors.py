"""What goes wrong under the Inspector's hands is shown, and the run stays as it was."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.errors import ToolFailure
from agentlab.minds.planners.fixed import Fixed
from agentlab.runs.graph import Node
from agentlab.trace.store import Store
from agentlab.views.inspector.inspector import Inspector
from agentlab.workflows.workflow import Workflow


def test_what_a_node_raises_is_shown_and_the_run_stays(notes, front_end):
    class Angry:
        def plan(self, request, bench):
            raise ZeroDivisionError("<b>no</b>")

    run = notes.start(planner=Angry())
    front = front_end(run)
    for action in ("step", "run", "run"):
        front(action)
    assert front.failed
    assert front.said == "ZeroDivisionError: <b>no</b>"  # the front end sets it as text
    assert isinstance(front.widget.error, ZeroDivisionError)
    assert run.visited == ["load_config"]
    assert front.view["running"] is False
    front("step")
    assert front.failed
    run.lab = run.lab.bind(planner=Fixed([]))
    front("step")
    assert front.widget.error is None
    assert front.view["last"] == 2


def test_an_interrupt_is_shown_and_the_run_stays(notes, step, front_end):
    def interrupted(**arguments):
        raise KeyboardInterrupt

    run = notes.start([step("a", "slow")], tools=[notes.tool("slow", interrupted)])
    front = front_end(run)
    front("run")
    assert front.failed
    assert "Interrupted; the run is as it was" in front.said
    assert run.next_node == "plan_execution"


def test_a_router_that_fails_is_shown(notes, front_end):
    def lost(state):
        raise ZeroDivisionError("no way on")

    flow = Workflow("w", [Node("n", lambda s, lab: s)], {"n": lost}, "n")
    front = front_end(flow.start(notes.lab(), "go"))
    front("step")
    assert "ZeroDivisionError" in front.view["panels"]["head"]
    assert front.view["ended"] is True
    front("step")
    assert front.failed
    assert front("rewind")["last"] == 0


@pytest.mark.parametrize("content", [
    None, 3, "step", [], {}, {"do": None}, {"do": "nope"}, {"do": "__init__"}, {"do": ["step"]},
    {"do": {}}, {"do": "step", "x": 1}, {"do": "look"}, {"do": "look", "at": "x"},
    {"do": "look", "at": None}, {"do": "show_run", "index": 7}, {"do": "select"},
    {"do": "check_plan", "text": 3}, {"do": "run", "node": 3}, {3: 4},
])  # fmt: skip
def test_messages_that_make_no_sense_change_nothing(run, content, front_end):
    run.run_until("plan_execution")
    front = front_end(run)
    before = run.state
    front.send(content)
    assert front.failed
    assert run.state is before
    front("step")
    assert not front.failed


def test_what_cannot_be_shown_is_told(run, front_end, monkeypatch):
    front = front_end(run)
    monkeypatch.setattr(Inspector, "_made", lambda self: 1 / 0)
    front("step")
    assert front.failed
    assert front.said.startswith("The run cannot be shown: ZeroDivisionError")
    assert front.view["running"] is False
    assert isinstance(front.widget.error, ZeroDivisionError)
    monkeypatch.undo()
    assert front("step")["last"] == 2


def test_a_durable_run_is_not_rewound(notes, step, tmp_path, front_end):
    with Store(tmp_path) as store:
        run = al.autonomous.start(notes.lab([step("a")]), "do it", store=store)
        front = front_end(run)
        front("step")
        front("rewind")
        assert front.failed
        assert "fork it instead" in front.said
        front("fork")
        assert not front.failed


def test_a_tool_that_fails_is_data_and_no_message(notes, step, front_end):
    front = front_end(notes.start([step("a", "broken")], strategy="never"))
    front("run")
    assert not front.failed
    assert "agentlab-is-failed" in front.view["panels"]["graph"]


def test_a_failing_tool_shows_its_own_words(notes, step, front_end):
    def fail(**arguments):
        raise ToolFailure("<i>sold out</i>", code="sold_out")

    front = front_end(
        notes.start([step("a", "shop")], tools=[notes.tool("shop", fail)], strategy="never")
    )
    front("run")
    assert "&lt;i&gt;sold out&lt;/i&gt;" in front.view["panels"]["graph"]
    assert "<i>sold" not in json.dumps(front.view["panels"])
