"""Stream events: what a handler hears, in which order; one that raises never breaks the run."""

from __future__ import annotations

import logging

import pytest

import agentlab as al
from agentlab.errors import PlanError
from agentlab.lab.executor import SimulatedExecutor
from agentlab.lab.handler import Handler
from agentlab.trace.compare import first_difference


class Told:
    """Write down every event as (name, arguments)."""

    def __init__(self):
        self.events = []

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *arguments: self.events.append((name[3:], *arguments))

    def of(self, kind):
        return [e[1:] for e in self.events if e[0] == kind]


@pytest.fixture
def plan(step):
    return [step("a"), step("b", "broken", skippable=True), step("c", "note", "b", skippable=True)]


def test_everything_that_is_told_in_order(notes, plan):
    told = Told()
    run = notes.start(plan, handler=told)
    list(run.iterate())
    shown = [(e[0], e[1]) for e in told.events]
    assert shown == [
        ("node_start", "load_config"),
        ("node_complete", "load_config"),
        ("node_start", "planning"),
        ("thinking_stage_start", "planning"),
        ("thinking_content", "planning"),
        ("thinking_stage_end", "planning"),
        ("overall_progress", 0),
        ("node_complete", "planning"),
        *[
            event
            for current in (1, 2)
            for event in (
                ("node_start", "plan_execution"),
                ("thinking_stage_start", "task_execution"),
                ("thinking_content", "task_execution"),
                ("thinking_stage_end", "task_execution"),
                ("overall_progress", current),
                ("node_complete", "plan_execution"),
            )
        ],
        ("node_start", "plan_execution"),  # a step that is skipped is not executed
        ("thinking_stage_start", "task_execution"),
        ("thinking_stage_end", "task_execution"),
        ("overall_progress", 3),
        ("node_complete", "plan_execution"),
        ("node_start", "reflection"),
        ("thinking_stage_start", "reflection"),
        ("thinking_content", "reflection"),
        ("thinking_stage_end", "reflection"),
        ("node_complete", "reflection"),
        ("node_start", "final_response"),
        ("token", run.state.final_response),
        ("complete", run.state.final_response),
        ("node_complete", "final_response"),
    ]


def test_what_is_told(notes, plan):
    told = Told()
    run = al.autonomous.start(notes.lab(plan), "task", session_id="S", handler=told)
    run.finish()
    texts = [text for stage, text in told.of("thinking_content") if stage == "task_execution"]
    assert texts == ["executing 1/3: a", "executing 2/3: b"]
    assert told.of("overall_progress") == [
        (0, 3, 0.0), (1, 3, pytest.approx(100 / 3)), (2, 3, pytest.approx(200 / 3)), (3, 3, 100.0),
    ]  # fmt: skip
    assert told.of("complete") == [(run.state.final_response, "S")]
    assert [s for _, s in told.of("node_complete")] == run.states[1:]
    assert ("reflection", "1 completed, 1 failed, 1 skipped") in told.of("thinking_content")
    assert all(title for _, title in told.of("thinking_stage_start"))
    assert told.of("error") == told.of("replan_required") == []


def test_replans_are_told_with_their_number(notes, step):
    told = Told()
    notes.run([step("a", "broken")], [step("b", "broken")], [step("c")], handler=told)
    counts = [count for _, count in told.of("replan_required")]
    assert counts == [1, 2]
    assert all("nothing completed" in reason for reason, _ in told.of("replan_required"))
    titles = [title for stage, title in told.of("thinking_stage_start") if stage == "planning"]
    assert titles == ["Planning", "Replanning", "Replanning"]


def test_errors_are_told(notes, tmp_path, chain):
    told = Told()
    run = notes.run(handler=told)  # no plan was given
    assert told.of("error") == [(run.state.error,)]
    told = Told()
    lab = al.Lab(chain(), agent=f"{tmp_path}/none.yaml:x", handler=told)
    run = al.autonomous.start(lab)
    run.finish()
    assert told.of("error") == [(run.state.error,)]
    assert "none.yaml" in run.state.error


class Failing:
    """Raises where a node is at work."""

    def __init__(self, where):
        self.where = where

    def plan(self, request, bench):
        raise RuntimeError("planner") if self.where == "planning" else PlanError("no plan")


@pytest.mark.parametrize("where", ["planning", "task_execution", "reflection"])
def test_every_stage_that_starts_ends_also_when_it_fails(notes, step, where):
    told = Told()
    lab = notes.lab([step("a", "broken")], handler=told)

    class Broken(SimulatedExecutor):
        def reflect(self, state, bench):
            raise RuntimeError("reflector")

        def submit(self, state, bench, step):
            raise RuntimeError("executor")

    if where == "planning":
        lab = lab.bind(planner=Failing("planning"))
    else:
        lab = lab.bind(**{"executor" if where == "task_execution" else "reflector": Broken()})
    run = al.autonomous.start(lab)
    with pytest.raises(RuntimeError):
        run.finish()
    stages = [e[:2] for e in told.events if "stage" in e[0]]
    assert stages[-2:] == [("thinking_stage_start", where), ("thinking_stage_end", where)]
    assert len(told.of("thinking_stage_start")) == len(told.of("thinking_stage_end"))


def test_a_stage_ends_when_there_is_no_plan(notes):
    told = Told()
    notes.run(planner=Failing("nowhere"), handler=told)
    assert told.of("thinking_stage_end") == [("planning",)]


class Raising:
    """Raises in one event, or in all of them."""

    def __init__(self, event=None):
        self.event, self.raised = event, 0

    def __getattr__(self, name):
        if not name.startswith("on_") or (self.event and name != self.event):
            raise AttributeError(name)

        def fail(*arguments):
            self.raised += 1
            raise ValueError("a mistake of the handler's")

        return fail


@pytest.mark.parametrize("event", [None, "on_node_start", "on_overall_progress", "on_complete"])
def test_a_handler_that_raises_is_reported_once_and_breaks_nothing(notes, plan, caplog, event):
    quiet = notes.run(plan)
    handler = Raising(event)
    with caplog.at_level(logging.WARNING, logger="agentlab"):
        run = notes.run(plan, handler=handler)
    assert handler.raised >= 1
    (record,) = caplog.records
    assert "a mistake of the handler's" in record.getMessage()
    assert event is None or event in record.getMessage()
    assert run.state == quiet.state
    rows = ([s.row() for s in r.spans if s.kind != "run"] for r in (quiet, run))
    assert first_difference(*rows) is None


def test_each_run_reports_its_handler(notes, plan, caplog):
    lab = notes.lab(plan, handler=Raising("on_node_start"))
    for _ in range(2):
        al.autonomous.start(lab).finish()
    assert len(caplog.records) == 2


def test_a_handler_is_any_object_with_some_of_the_methods(notes, plan):
    heard = []

    class Some:
        def on_token(self, text):
            heard.append(text)

    run = notes.run(plan, handler=Some())
    assert heard == [run.state.final_response]
    notes.run(plan, handler=object())
    notes.run(plan, handler=Handler())


def test_the_handler_has_every_event_of_the_page():
    events = {name for name in vars(Handler) if name.startswith("on_")}
    assert events == {
        "on_node_start", "on_node_complete", "on_thinking_stage_start", "on_thinking_content",
        "on_thinking_stage_end", "on_overall_progress", "on_token", "on_replan_required",
        "on_rag_start", "on_rag_complete", "on_references", "on_complete", "on_error",
    }  # fmt: skip


def test_the_event_log_keeps_records(notes, step, heard):
    log = heard()
    run = notes.run([step("a", "broken")], [step("b")], handler=log)
    kinds = {e.kind for e in log.events}
    assert kinds == {
        "node_start", "node_complete", "thinking_stage_start", "thinking_content",
        "thinking_stage_end", "overall_progress", "replan_required", "token", "complete",
    }  # fmt: skip
    assert log.events[-2].final_response == run.state.final_response
    progress = [e for e in log.events if e.kind == "overall_progress"]
    assert [(e.current, e.total) for e in progress] == [(0, 1), (1, 1), (1, 1)]
