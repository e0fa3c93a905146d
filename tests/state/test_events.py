"""Events: one union, and a handler with a method for each."""

from __future__ import annotations

import inspect
import json
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from agentlab.base.values import Value
from agentlab.lab.handler import (
    STAGES,
    Event,
    EventLog,
    Handler,
    NodeCompleted,
    Progress,
    References,
    ReplanRequired,
)
from agentlab.state import events
from agentlab.state.events import SEVERITY, ChangeType, ContextChangeEvent, Severity
from agentlab.state.state import State

KINDS = get_args(get_args(Event)[0])
STREAM = [cls for cls in KINDS if cls is not ContextChangeEvent]
EXAMPLES = {
    "node": "planning", "stage": "planning", "title": "Planning", "text": "查询", "current": 1,
    "total": 3, "percent": 33.5, "reason": "sold out", "count": 1, "name": "kb", "n": 2,
    "refs": [{"title": "t"}], "final_response": "Done", "session_id": "s", "error": "e",
    "task_id": "find", "type": "TASK_FAILED", "severity": "CRITICAL", "description": "d",
    "payload": {"a": None}, "occurred_at": 2.5,
}  # fmt: skip


def fields(cls):
    return [name for name in cls.model_fields if name != "kind"]


def test_the_union_holds_every_event_of_the_module():
    here = {
        cls
        for cls in vars(events).values()
        if inspect.isclass(cls) and issubclass(cls, Value) and "kind" in cls.model_fields
    }
    assert here == set(KINDS)
    assert len({cls.model_fields["kind"].default for cls in KINDS}) == len(KINDS)


@pytest.mark.parametrize("cls", KINDS, ids=lambda c: c.__name__)
def test_an_event_survives_json(cls):
    adapter = TypeAdapter(Event)
    event = cls(**{name: EXAMPLES[name] for name in fields(cls)})
    assert event.digest  # what it caches must not show below
    wire = json.loads(adapter.dump_json(event))
    assert wire == event.to_json()
    again = adapter.validate_python(wire)
    assert type(again) is cls
    assert again == event


def test_an_event_of_no_kind_is_refused():
    with pytest.raises(ValidationError, match="kind"):
        TypeAdapter(Event).validate_python({"kind": "node_strat", "node": "planning"})


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


@pytest.mark.parametrize("cls", STREAM, ids=lambda c: c.__name__)
def test_the_log_keeps_each_event_as_its_record(cls):
    log = EventLog()
    method = f"on_{cls.model_fields['kind'].default}"
    arguments = [EXAMPLES[name] for name in fields(cls)]
    more = [State()] if cls is NodeCompleted else []
    assert getattr(Handler(), method)(*arguments, *more) is None
    getattr(log, method)(*arguments, *more)
    assert log.events == [cls(**dict(zip(fields(cls), arguments, strict=True)))]


def test_the_log_keeps_the_order():
    log = EventLog()
    log.on_overall_progress(0, 2, 0.0)
    log.on_replan_required("sold out", 1)
    log.on_references([1])
    assert log.events == [
        Progress(current=0, total=2, percent=0.0),
        ReplanRequired(reason="sold out", count=1),
        References(refs=[1]),
    ]
    assert EventLog().events == []


def test_the_log_has_no_method_for_what_is_no_event():
    assert not hasattr(EventLog(), "on_no_such_event")


def test_every_change_has_its_severity():
    assert set(SEVERITY) == set(ChangeType)
    # spec/resident.md
    assert SEVERITY[ChangeType.TASK_FAILED] is Severity.CRITICAL
    assert SEVERITY[ChangeType.TASK_UNEXPECTED_RESULT] is Severity.WARNING
    assert SEVERITY[ChangeType.MILESTONE_REACHED] is Severity.INFO
