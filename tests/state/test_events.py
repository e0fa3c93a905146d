"""Events: what a handler is told, and what changes a run's situation."""

from __future__ import annotations

import inspect
import json

from agentlab.lab.handler import STAGES, Handler
from agentlab.state.events import SEVERITY, ChangeType, ContextChangeEvent, Severity


def test_the_seeds_stream_events_and_nothing_else():
    """The names and parameters of spec/autonomous.md, 'Entry points and streaming'."""
    told = {
        name: list(inspect.signature(method).parameters)[1:]
        for name, method in vars(Handler).items()
        if name.startswith("on_")
    }
    assert told == {
        "on_node_start": ["node"],
        "on_node_complete": ["node", "state"],
        "on_thinking_stage_start": ["stage", "title"],
        "on_thinking_content": ["stage", "text"],
        "on_thinking_stage_end": ["stage"],
        "on_overall_progress": ["current", "total", "percent"],
        "on_token": ["text"],
        "on_replan_required": ["reason", "count"],
        "on_rag_start": ["name"],
        "on_rag_complete": ["name", "n"],
        "on_references": ["refs"],
        "on_complete": ["final_response", "session_id"],
        "on_error": ["error"],
    }
    assert STAGES == ("intent_recognition", "planning", "task_execution", "reflection")


def test_a_handler_that_does_nothing_takes_every_event():
    for name, method in vars(Handler).items():
        if name.startswith("on_"):
            given = [None] * (len(inspect.signature(method).parameters) - 1)
            assert getattr(Handler(), name)(*given) is None


def test_a_change_survives_json():
    event = ContextChangeEvent(
        task_id="find", type="TASK_FAILED", description="查询", payload={"a": None}, occurred_at=2.5
    )
    assert event.digest  # what it caches must not show below
    wire = json.loads(json.dumps(event.to_json()))
    assert ContextChangeEvent.model_validate(wire) == event


def test_every_change_has_its_severity():
    assert set(SEVERITY) == set(ChangeType)
    # spec/resident.md
    assert SEVERITY[ChangeType.TASK_FAILED] is Severity.CRITICAL
    assert SEVERITY[ChangeType.TASK_UNEXPECTED_RESULT] is Severity.WARNING
    assert SEVERITY[ChangeType.MILESTONE_REACHED] is Severity.INFO
