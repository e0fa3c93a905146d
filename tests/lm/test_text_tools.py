"""Tool calls by text: the same response and finish reason as native calls."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.lm.outcome import PARTIAL
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import Scripted, cut_off, scripted
from agentlab.lm.serde import (
    events_of,
    request_document,
    request_from,
    response_document,
    response_of,
    text_response,
)
from agentlab.lm.text_tools import FORM, TextTools, as_text, by_text, called

TOOL = {
    "type": "function", "name": "look", "description": "Look.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}  # fmt: skip


def text(said):
    return {"type": "text", "text": said}


def request(*messages, **fields):
    first = {"role": "user", "parts": [text("go")]}
    document = {"model": "m", "messages": [first, *messages], "tools": [TOOL], **fields}
    return request_from({k: v for k, v in document.items() if v is not None})


def read(said, finish="stop"):
    """What is made of a reply: finish reason, text, calls."""
    document = response_document(called(text_response(said, "m", finish=finish), request()))
    parts = document["message"]["parts"]
    calls = [(p["name"], p["input"]) for p in parts if p["type"] == "tool_call"]
    return document["finish_reason"], "".join(p.get("text", "") for p in parts), calls


def tag(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


HALL = ("look", {"place": "hall"})


@pytest.mark.parametrize(
    ("said", "finish", "outside", "calls"),
    [
        (tag("look", place="hall"), "tool_call", "", [HALL]),
        (f"I look.\n{tag('look', place='hall')}", "tool_call", "I look.", [HALL]),
        (f"A\n{tag('a')}\n{tag('b', x=1)} B ", "tool_call", "A\nB", [("a", {}), ("b", {"x": 1})]),
        ('<tool_call>\n{"name": "now"}\n</tool_call>', "tool_call", "", [("now", {})]),
        ('<tool_call>{"name": "look", "arguments": {"place": "hall"}}', "tool_call", "", [HALL]),
        ('{"name": "look", "arguments": {"place": "hall"}}', "tool_call", "", [HALL]),
        ('```json\n[{"name": "look", "arguments": {"place": "hall"}}]\n```', "tool_call", "",
         [HALL]),
        ('<tool_call>{"name": "look", "arguments": {"place": hall}}</tool_call>', "tool_call", "",
         [("look", {PARTIAL: '{"place": hall}}'})]),
        ('<tool_call>{"name": "look", "arguments": [1]}</tool_call>', "tool_call", "",
         [("look", {"value": [1]})]),
        # no calls: an unknown name outside of tags, a tag without a name, an object, a text
        ('{"name": "jump", "arguments": {}}', "stop", None, []),
        ("<tool_call>look at the hall</tool_call>", "stop", None, []),
        ('{"place": "hall"}', "stop", None, []),
        ("Write <tool_call> to call.", "stop", None, []),
        ("All seen.", "stop", None, []),
    ],
)  # fmt: skip
def test_what_a_reply_says(said, finish, outside, calls):
    assert read(said) == (finish, said if outside is None else outside, calls)


def test_a_reply_that_is_cut_off_within_a_call():
    whole = f"I look.\n{tag('look', place='hall')}{tag('look', place='attic')}"
    finish, outside, calls = read(whole[:-30], "length")
    assert (finish, outside, calls[0]) == ("length", "I look.", HALL)
    assert [list(arguments) for _, arguments in calls[1:]] == [[PARTIAL]]


def test_ids_are_not_given_twice():
    earlier = {"role": "assistant", "parts": [
        {"type": "tool_call", "id": "call_2", "name": "look", "input": {}}]}  # fmt: skip
    result = {"role": "tool", "parts": [
        {"type": "tool_result", "id": "call_2", "content": [text("dark")]}]}  # fmt: skip
    response = called(text_response(tag("look") * 2, "m"), request(earlier, result))
    assert [p.id for p in response.message.parts] == ["call_3", "call_4"]


def test_what_is_sent():
    said = {"role": "assistant", "parts": [
        text("I look."),
        {"type": "tool_call", "id": "c", "name": "look", "input": {"place": "hall"}},
        {"type": "tool_call", "id": "d", "name": "look", "input": {PARTIAL: '{"pl'}},
    ]}  # fmt: skip
    result = {"role": "tool", "parts": [
        {"type": "tool_result", "id": "c", "content": [text("a lamp")]},
        {"type": "tool_result", "id": "d", "content": [text("bad")], "is_error": True},
    ]}  # fmt: skip
    config = {"max_tokens": 5, "tool_choice": {"mode": "required"}}
    sent = request_document(as_text(request(said, result, system="Be brief.", config=config)))
    assert "tools" not in sent
    assert sent["config"] == {"max_tokens": 5}
    assert sent["system"].startswith("Be brief.\n\n# Tools\n")
    assert sent["system"].endswith(f"{FORM}\n\nNow you must call at least one function.")
    told = json.loads(sent["system"].partition("<tools>\n")[2].partition("\n</tools>")[0])
    assert told["function"] == {k: v for k, v in TOOL.items() if k != "type"}
    assert [(m["role"], m["parts"][0]["text"]) for m in sent["messages"][1:]] == [
        ("assistant", 'I look.\n<tool_call>{"name": "look", "arguments": {"place":"hall"}}'
         '</tool_call>\n<tool_call>{"name": "look", "arguments": {"pl}</tool_call>'),
        ("user", '<tool_response>{"name": "look", "result": "a lamp"}</tool_response>\n'
         '<tool_response>{"name": "look", "error": "bad"}</tool_response>'),
    ]  # fmt: skip
    assert by_text(sent) is True
    assert by_text(request_document(request())) is False
    assert by_text(request_document(request(tools=None))) is None


def test_no_tool_is_told_of_that_may_not_be_called():
    none = request(config={"tool_choice": {"mode": "none"}})
    assert request_document(as_text(none)).get("system") is None


def test_a_request_that_has_to_do_with_no_tools_is_not_touched():
    engine = Scripted([tag("look"), tag("look")])
    plain = request(tools=None)
    tools = TextTools(engine, lambda: pytest.fail("nobody need know"))
    assert tools.complete(plain).finish_reason == "stop"
    list(tools.stream(plain))
    assert engine.requests[0] is engine.requests[1] is plain


replies = st.lists(
    st.sampled_from(["Well", " ", "\n", "<", "<tool", "<tool_call>", "`", "{", "}", "x < y",
                     tag("look", place="hall"), tag("take"), '<tool_call>{"name": "a", "arg']),
    max_size=7,
).map("".join)  # fmt: skip


@settings(max_examples=300)
@given(replies, st.integers(1, 9))
def test_a_stream_adds_up_to_the_whole_reply(said, size):
    """And no token of it is part of a call."""
    pieces = [len(said[i : i + size]) for i in range(0, len(said), size)]

    class Engine(Scripted):
        def stream(self, asked):
            yield from events_of(text_response(said, "m"), pieces)

    tools = TextTools(Engine(lambda r, n: said), lambda: False)
    events = list(tools.stream(request()))
    streamed, whole = response_of(request(), events), tools.complete(request())
    assert response_document(streamed)["message"] == response_document(whole)["message"]
    assert streamed.finish_reason == whole.finish_reason
    tokens = [e.delta.text for e in events if e.type == "delta" and e.delta.type == "text"]
    assert "".join(tokens) == "".join(p.text for p in whole.message.parts if p.type == "text")


def test_text_is_streamed_as_it_comes():
    said = f"One two three.\n{tag('look')}"
    tools = TextTools(Scripted([said]), lambda: False)
    events = list(tools.stream(request()))
    kinds = [e.delta.type for e in events if e.type == "delta"]
    assert kinds[:3] == ["text"] * 3
    assert "tool_call" in kinds[3:]


# ---- in a run --------------------------------------------------------------------------------


@al.tool
def look(place: str) -> str:
    """Look around in a place."""
    return f"saw {place}"


def asked(model, times=1):
    lab = al.Lab(tools=[look], lm=model)
    state = lab.initial_state("x")
    with lab.asking(state) as talk:
        said = [
            talk.ask({"messages": [{"role": "user", "parts": [text("go")]}], "tools": [look]})
            for _ in range(times)
        ]
    return said, talk.charged(state), lab.recorder.of_kind("lm")


def test_nothing_above_can_tell_the_difference():
    call = {"text": "I look.", "tool_calls": [{"name": "look", "arguments": {"place": "hall"}}]}
    [native], _, [one] = asked(scripted([call], function_calling=True))
    [spoken], _, [other] = asked(scripted([f"I look. {tag('look', place='hall')}"]))
    without = lambda document: {**document, "usage": None}  # noqa: E731
    assert without(native.response) == without(spoken.response)
    assert one.input == other.input
    assert native.tool_calls == spoken.tool_calls


def test_cut_off_goes_by_text_too():
    [said], _, _ = asked(scripted([cut_off('Hm <tool_call>{"name": "look", "arguments": {"pl')]))
    assert (said.finish_reason, said.text) == ("length", "Hm")
    assert said.tool_calls[0].problem is not None


def test_a_recording_holds_what_was_sent_and_is_replayed(tmp_path):
    path = tmp_path / "calls.jsonl"
    model = scripted([tag("look", place="hall"), "Seen."])
    said, state, _ = asked(model.recorded(Recording(path, "record")), times=2)
    lines = Recording(path).lines()
    assert [by_text(line["request"]) for line in lines] == [True, True]
    assert dict(state.lm_requests) == {lines[0]["key"]: 2}
    again, after, spans = asked(scripted([]).recorded(Recording(path)), times=2)
    assert [s.response for s in again] == [s.response for s in said]
    assert after.lm_requests == state.lm_requests
    assert [s.attributes["occurrence"] for s in spans] == [0, 1]
    named, _, _ = asked(f"recorded:{path}", times=2)
    assert [s.response for s in named] == [s.response for s in said]


def test_a_resumed_run_counts_what_was_sent(tmp_path):
    from agentlab.runs.graph import END, Node
    from agentlab.workflows.workflow import Workflow

    def twice(state, lab):
        for _ in range(2):
            with lab.asking(state) as talk:
                talk.ask({"messages": [{"role": "user", "parts": [text("go")]}], "tools": [look]})
            state = talk.charged(state)
        return state

    flow = Workflow("twice", [Node("twice", twice)], {"twice": END}, "twice")
    path = tmp_path / "calls.jsonl"
    model = scripted([tag("look"), "Seen."]).recorded(Recording(path, "record"))
    run = flow.start(al.Lab(tools=[look], lm=model), "x")
    run.finish()
    assert run.replay().identical
    assert list(run.state.lm_requests.values()) == [2]
    fork = run.fork(
        at=0, replies={0: "no"}, lab=al.Lab(tools=[look], lm=scripted([]).recorded(Recording(path)))
    )
    fork.finish()
    assert fork.state.lm_requests == run.state.lm_requests
    assert fork.recorder.of_kind("lm")[1].reply == "Seen."
