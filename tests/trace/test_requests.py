"""Requests of a trace are kept and written as what each adds, and read back whole."""

from __future__ import annotations

import copy
import json
import zlib

import pytest
from hypothesis import given, strategies as st

import agentlab as al
from agentlab.errors import StoreWriteError
from agentlab.lm.scripted import scripted
from agentlab.lm.serde import load_dspy, request_from
from agentlab.runs.graph import END, node
from agentlab.state.messages import Role, said
from agentlab.trace.packing import pack_spans, unpack_spans
from agentlab.trace.recorder import Recorder
from agentlab.trace.requests import Reader, Requests, Writer
from agentlab.trace.store import Store
from agentlab.workflows.workflow import Workflow

dspy = load_dspy()

values = st.sampled_from([1, True, 1.0, 0, False, -0.0, "x", None, [1], [True], {"a": 1}])
messages = st.lists(st.sampled_from([{"m": 1}, {"m": True}, {"m": 2}, {"m": [1, "x"]}]), max_size=5)
requests = st.fixed_dictionaries(
    {"model": st.sampled_from("ab"), "messages": messages},
    optional={"system": st.sampled_from(["s", "t"]), "tools": values, "config": values},
)
forms = st.fixed_dictionaries(
    {"since": values, "kept": values, "with": values, "without": values}
)  # such as nobody asks, but a span may hold anything


def spans(inputs, kind="lm"):
    recorder = Recorder()
    for asked in inputs:
        recorder.mark(kind, "m", input=asked)
    return recorder.spans


@given(st.lists(st.one_of(requests, forms, values), max_size=12))
def test_what_is_read_is_what_was_recorded(inputs):
    recorded = spans(inputs)
    read = unpack_spans(pack_spans(recorded))
    assert [_told(row[7]) for row in read] == [_told(asked) for asked in inputs]
    assert read == [s.row() for s in recorded]


def _told(value):
    """The exact JSON of a document, whatever the order of its own fields."""
    if isinstance(value, dict):
        return {k: repr(v) for k, v in value.items()}
    return repr(value)


@given(st.lists(requests, max_size=12))
def test_sharing_changes_nothing(inputs):
    table, shared = Requests(), copy.deepcopy(inputs)
    for request in shared:
        table.share(request)
    assert repr(shared) == repr(inputs)


def test_rows_of_other_kinds_are_left_alone():
    row = spans([{"messages": [1]}], kind="tool")[0].row()
    assert Writer().rows([row])[0] is row
    assert list(Reader().read([row])) == [row]


@node
def talk_on(state, lab):
    """Ask with everything that was said, and something beside."""
    with lab.asking(state) as talk:
        reply = dspy.settings.lm(request_from({
            "model": lab.model.name, "system": "Be brief. " * 40,
            "messages": [m.to_lm() for m in state.messages],
        }))  # fmt: skip
        dspy.settings.lm("And in short?")
    state = talk.charged(state)
    more = [said(reply.text, Role.ASSISTANT), said("more")]
    ends = len(state.messages) > ROUNDS * 2
    return state.replace(messages=state.messages.extend(more), next_action=END if ends else "")


ROUNDS = 100
loop = Workflow("loop", [talk_on], {"talk_on": lambda s: s.next_action or "talk_on"}, "talk_on")


def word(request, n):
    return f"round {n}: " + " ".join(str(hash((n, i)) % 10_000) for i in range(40))


def finished(store=None):
    run = loop.start(al.Lab(tools=[], lm=scripted(word)), "go", store=store)
    run.finish()
    return run


def written(store):
    rows = store.connection.execute("SELECT spans FROM checkpoints ORDER BY seq").fetchall()
    return [len(zlib.decompress(blob)) for (blob,) in rows]


def test_a_long_conversation_is_stored_in_what_it_adds(tmp_path):
    run = finished(Store(tmp_path))
    sizes = written(Store(tmp_path))
    assert len(sizes) == ROUNDS + 1
    assert max(sizes[80:]) < 1.2 * max(sizes[2:20])
    kept = Store(tmp_path).load_run()
    for now, then in zip(
        run.recorder.of_kind("lm"),
        [s for v in kept.spans for s in v if s.kind == "lm"],
        strict=True,
    ):
        assert (now.input, now.output) == (then.input, then.output)
    whole = len(json.dumps([s.row() for s in run.spans]))
    assert sum(sizes) < whole / 8
    blob = pack_spans(run.spans)
    assert len(zlib.decompress(blob)) < whole / 8
    assert unpack_spans(blob) == [s.row() for s in run.spans]


def test_a_long_conversation_shares_its_messages_in_memory():
    calls = finished().recorder.of_kind("lm")[::2]
    first, last = calls[1].input, calls[-1].input
    assert first["messages"][1] is last["messages"][1]
    assert len({id(m) for c in calls for m in c.input["messages"]}) == 2 * ROUNDS + 1


def test_what_was_not_written_is_not_referred_to(tmp_path, monkeypatch):
    store = Store(tmp_path)
    run = loop.start(al.Lab(tools=[], lm=scripted(word)), "go", store=store)
    run.step()
    with monkeypatch.context() as patch:
        patch.setattr(store, "transaction", _full)
        with pytest.raises(StoreWriteError):
            store.checkpoint(
                run.run_id,
                1,
                "talk_on",
                run.state,
                run.state,
                spans([{"model": "m", "messages": [1]}]),
            )
    run.step()
    read = Store(tmp_path).load_run()
    assert [s.row() for v in read.spans for s in v] == [s.row() for s in run.spans[1:]]


def _full():
    raise StoreWriteError("full")


def test_a_run_that_was_resumed_begins_anew(tmp_path):
    from agentlab.runs.run import Run

    run = loop.start(al.Lab(tools=[], lm=scripted(word)), "go", store=tmp_path)
    run.step()
    run.step()
    again = Run.resume(tmp_path, al.Lab(tools=[], lm=scripted(word)), workflow=loop)
    again.step()
    again.step()
    read = Store(tmp_path).load_run()
    assert [s.row() for v in read.spans for s in v] == [s.row() for s in again.spans[1:]]
