"""Spans as they happen: nesting, order, errors, sinks."""

from __future__ import annotations

import contextvars
import json
import threading
import time

import pytest
from hypothesis import given, settings, strategies as st

from agentlab.base.persistent import pvector
from agentlab.tools.calls import ToolError
from agentlab.trace.recorder import Recorder
from agentlab.trace.span import COLUMNS, KINDS, Span


def test_spans_nest_and_are_numbered_as_they_start():
    recorder = Recorder()
    with recorder.span("node", "planning", visit=2) as node:
        with recorder.span("step", "find", visit=2, step_id="find", attempt=1, input={"a": 1}) as s:
            s.output = "out"
            mark = recorder.mark("fault", "timeout", output={"x": 1}, now=3.5)
        with recorder.span("step", "book"):
            pass
    with recorder.span("node", "reflection"):
        pass
    spans = recorder.spans
    assert [(x.span_id, x.parent_id, x.kind, x.name) for x in spans] == [
        (1, 0, "node", "planning"),
        (2, 1, "step", "find"),
        (3, 2, "fault", "timeout"),
        (4, 1, "step", "book"),
        (5, 0, "node", "reflection"),
    ]
    assert spans[0] is node
    assert spans[2] is mark
    assert (s.visit, s.step_id, s.attempt, s.input, s.output) == (2, "find", 1, {"a": 1}, "out")
    assert (mark.output, mark.sim_start, mark.sim_end) == ({"x": 1}, 3.5, 3.5)
    assert recorder.of_kind("step") == [spans[1], spans[3]]
    assert recorder.of_kind("tool") == []


tree = st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=8)


@given(tree)
@settings(deadline=None, max_examples=30)
def test_any_nesting_is_recorded_as_it_was(shape):
    recorder = Recorder()
    expected = []

    def walk(children, parent):
        for child in children:
            number = len(expected) + 1
            expected.append(parent)
            with recorder.span("action", str(number)) as span:
                assert span.span_id == number
                walk(child, number)

    walk(shape, 0)
    assert [s.parent_id for s in recorder.spans] == expected
    assert [s.span_id for s in recorder.spans] == list(range(1, len(expected) + 1))


def test_times():
    recorder = Recorder()
    before = time.time()
    with recorder.span("node", "a") as outer, recorder.span("step", "b") as inner:
        time.sleep(0.01)
    after = time.time()
    assert before - 0.05 <= outer.started <= inner.started <= after
    assert 0.01 <= inner.seconds <= outer.seconds <= after - before + 0.05


def test_an_error_is_recorded_and_goes_on():
    recorder = Recorder()
    with pytest.raises(KeyError), recorder.span("node", "a"), recorder.span("step", "b"):
        raise KeyError("gone")
    opened = recorder.span("tool", "c")
    opened.span.error = "what was known before"
    with pytest.raises(KeyError), opened:
        raise KeyError("gone")
    assert [s.error for s in recorder.spans] == [
        "KeyError: 'gone'",
        "KeyError: 'gone'",
        "what was known before",
    ]
    with pytest.raises(KeyboardInterrupt), recorder.span("node", "d"):
        raise KeyboardInterrupt
    assert recorder.spans[-1].error == "KeyboardInterrupt: "
    with recorder.span("node", "e") as e:
        pass
    assert (e.parent_id, e.error) == (0, None)


def test_sinks_hear_each_span_once_when_it_ends():
    heard = []
    recorder = Recorder(sinks=(lambda s: heard.append((s.name, s.output)), heard.append))
    with recorder.span("node", "outer") as outer:
        assert heard == []
        recorder.mark("event", "inner", output=1)
        outer.output = 2
    assert heard == [("inner", 1), recorder.spans[1], ("outer", 2), recorder.spans[0]]


def test_under():
    recorder = Recorder()
    root = recorder.span("run", "autonomous").span
    assert root.parent_id == 0
    with recorder.under(root):
        assert recorder.mark("node", "a").parent_id == root.span_id
    assert recorder.mark("node", "b").parent_id == 0
    with pytest.raises(ValueError, match="x"), recorder.under(root):
        raise ValueError("x")
    assert recorder.mark("node", "c").parent_id == 0


def test_two_recorders_do_not_mix():
    """A run inside a tool of another run has a trace of its own, with its own numbers."""
    outer, inner = Recorder(), Recorder()
    with outer.span("node", "a"):
        outer.mark("event", "x")
        with inner.span("node", "b") as b:
            c = inner.mark("event", "c")
            back = outer.mark("event", "y")
    assert b.parent_id == 0
    assert c.parent_id == b.span_id == 1
    assert back.parent_id in (0, 1)
    with inner.under(b), outer.span("node", "d") as d:
        assert d.parent_id == 0


def test_threads_nest_under_the_context_they_were_given():
    recorder = Recorder()
    with recorder.span("node", "a") as node:
        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=context.run, args=(recorder.mark, "tool", "with context")),
            threading.Thread(target=recorder.mark, args=("tool", "without")),
        ]
        for thread in threads:
            thread.start()
            thread.join()
    assert [s.parent_id for s in recorder.spans] == [0, node.span_id, 0]


def test_nothing_is_copied():
    given_input, result = {"a": [1]}, {"b": 1}
    recorder = Recorder()
    with recorder.span("tool", "t", input=given_input) as span:
        span.output = result
    assert span.input is given_input
    assert span.output is result


# ---- rows ------------------------------------------------------------------------------------


def test_a_row_is_json_and_makes_the_span_again():
    span = Span(7, 3, "tool", "book", 2, "find", 1, pvector([{"a": 1}]), 4.5, 1e9)
    span.output, span.error, span.seconds, span.sim_end = (
        ToolError(code="c", message="m"),
        "c: m",
        0.5,
        6.0,
    )
    span.attributes["effect"] = "write"
    row = json.loads(json.dumps(span.row()))
    named = dict(zip(COLUMNS, row, strict=True))
    assert named == {
        "span_id": 7, "parent_id": 3, "kind": "tool", "name": "book", "visit": 2,
        "step_id": "find", "attempt": 1, "input": [{"a": 1}],
        "output": {"code": "c", "message": "m", "permanent": False}, "error": "c: m",
        "started": 1e9, "seconds": 0.5, "sim_start": 4.5, "sim_end": 6.0,
        "attributes": {"effect": "write"},
    }  # fmt: skip
    assert Span.from_row(row).row() == row
    with pytest.raises(ValueError, match="shorter"):
        Span.from_row(row[:-1])


def test_repr_and_kinds():
    assert repr(Span(1, 0, "step", "find", 2, "find", 1, None, 0.0, 0.0)) == (
        "<span 1 step find find#1 visit 2>"
    )
    assert repr(Span(1, 0, "node", "planning", 2, "", 0, None, 0.0, 0.0)) == (
        "<span 1 node planning visit 2>"
    )
    assert set(KINDS) == {
        "run", "node", "step", "action", "tool", "lm", "retrieval", "decision", "event", "fault",
    }  # fmt: skip
