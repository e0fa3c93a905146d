"""Thinking is kept apart from what is said: in the trace, never in a reply or an answer."""

from __future__ import annotations

import json
from time import process_time

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.lab.handler import Handler
from agentlab.lm.engine import Wrapper
from agentlab.lm.scripted import say, scripted
from agentlab.lm.serde import lm15, response_document, response_of, text_of
from agentlab.lm.thinking import Habit, Parting, Thoughts, parted
from agentlab.minds.planners.fixed import Fixed

FORMS = {
    "a block": "<think>hidden</think>\n\n{}",
    "another name": "<reasoning>\nhidden\n</reasoning>{}",
    "upper case": "<THINKING>hidden</THINKING> {}",
    "two": "<think>hid</think>\n<thinking>den</thinking>\n{}",
    "behind a mark": "\ufeff\u200b\n<think>hidden</think>{}",
    "closed alone": "hidden\n</think>\n\n{}",
    "closed alone, then a block": "hid</think><think>den</think>{}",
    "a tag within": "<think>hidden <think>more</think> of it</think>{}",
    "Magistral": "[THINK]hidden[/THINK]{}",
    "Kimi": "◁think▷hidden◁/think▷{}",
    "gpt-oss": "<|channel|>analysis<|message|>hidden<|end|><|start|>assistant<|channel|>final"
    "<|message|>{}<|return|>",
}
PLAIN = [
    '{"a": "<think>b</think>"}', '["</think>"]', '```json\n{"a": "</think>"}\n```', '"</think>"',
    "Use `</think>` to end it.", "Sure. <think>no block</think> b", "<b>bold</b>", "[Note] this",
    '<tool_call>{"name": "</think>"}</tool_call>', "  as it is \n", "<think", "", "a < b", "<|x|>",
    '{"a": "half a block </think>", "b": ["<think>"]}', "~~~\n</think>\n~~~",
]  # fmt: skip
SAID = ["all done", '{"a": "<think>b</think> ```"}', "two\n\nlines", "a </b> c"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("said", SAID)
def test_thinking_is_parted_from_what_is_said(form, said):
    thought, rest = parted(form.replace("{}", said))
    assert rest == said
    assert thought.startswith("hid")


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_thinking_is_as_it_came(text):
    assert parted(text) == ("", text)
    assert parted(f"<think>x</think>{text.lstrip()}") == ("x", text.lstrip())


@pytest.mark.parametrize(
    "text",
    ["<think>never ends {}", "<|channel|>analysis<|message|>never ends", "never ends</think>"],
)
def test_of_what_is_never_closed_nothing_was_said(text):
    thought, said = parted(text)
    assert said == ""
    assert thought.startswith("never ends")


tags = st.sampled_from([
    "<think>", "</think>", "<", ">", "{", "`", "a", " ", "\n", "[THINK]", "[/THINK]", "<|end|>",
    "<|channel|>", "analysis", "final", "<|message|>", "<tool_call>", "</Reasoning >", "<think x>",
])  # fmt: skip


@given(st.lists(tags, max_size=14).map("".join), st.integers(1, 9))
@settings(deadline=None, max_examples=400)
def test_pieces_are_parted_as_the_whole_is(text, size):
    parting = Parting()
    pieces = [x for i in range(0, len(text), size) for x in parting.feed(text[i : i + size])]
    pieces += parting.end()
    found = {k: "".join(p for kind, p in pieces if kind == k) for k in ("thinking", "text")}
    assert (found["thinking"].strip(), found["text"]) == parted(text)
    if not parting.thought:
        assert found["text"] == text


@pytest.mark.parametrize(
    "piece", ["<think>", "<think>a", "</think>", "a", " ", "<", "<|channel|>", "<think></think>"]
)
@pytest.mark.parametrize("size", [5, 10**6])
def test_it_is_linear_in_the_reply(piece, size):
    def seconds(times):
        text, parting, began = piece * times, Parting(), process_time()
        for start in range(0, len(text), size):
            list(parting.feed(text[start : start + size]))
        list(parting.end())
        return process_time() - began

    seconds(100)
    assert seconds(30_000) < 40 * max(seconds(3_000), 0.01)  # 100 times where it is quadratic


# ---- engines ---------------------------------------------------------------------------------


def asked(model, **options):
    types = lm15()
    request = types.Request(model=model.name, messages=(types.Message.user("go"),))
    return request, model.door(**options)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_has_its_thinking_in_a_part_of_its_own(form, streamed):
    model = scripted([say(form.replace("{}", "all done"), chunks=None)])
    told: list[str] = []
    hooks = {"on_token": told.append, "patient": True} if streamed else {}
    request, door = asked(model, **hooks)
    response = door.complete(request)
    assert [p.type for p in response.message.parts] == ["thinking", "text"]
    assert text_of(response) == "all done"
    assert "".join(told) == ("all done" if streamed else "")
    assert "hid" in json.dumps(response_document(response)["message"])


def test_a_stream_without_thinking_is_as_it_came():
    for patient in (False, True):
        told: list[str] = []
        request, door = asked(scripted(["one two three"]), on_token=told.append, patient=patient)
        assert text_of(door.complete(request)) == "one two three"
        assert told == ["one", " two", " three"]


def test_a_model_that_closes_alone_is_waited_for():
    replies = ["hidden </think>one two"] * 2
    model, told = scripted(replies), []
    request, door = asked(model, on_token=told.append)
    for _ in range(2):
        assert text_of(door.complete(request)) == "one two"
    assert "".join(told[-2:]) == "one two"
    assert told.count("hidden") == 1  # nothing was known of it yet


def test_thinking_that_an_endpoint_tells_apart_stays_so():
    types = lm15()

    class Native(Wrapper):
        def complete(self, request):
            said = types.Message.assistant(
                [types.ThinkingPart("own"), types.TextPart("a</think>b")]
            )
            return types.Response(
                id=None, model="m", message=said, finish_reason="stop", usage=types.Usage()
            )

        def stream(self, request):
            return types.response_to_events(self.complete(request))

    request, _ = asked(scripted([]))
    engine = Thoughts(Native(None), Habit(True))
    whole = engine.complete(request)
    assert [(p.type, p.text) for p in whole.message.parts] == [
        ("thinking", "own"), ("thinking", "a"), ("text", "b"),
    ]  # fmt: skip
    streamed = response_of(request, engine.stream(request))
    assert text_of(streamed) == "b"


# ---- runs ------------------------------------------------------------------------------------


class Heard(Handler):
    def __init__(self):
        self.tokens = []

    def on_token(self, text):
        self.tokens.append(text)


PLAN = {
    "summary": "s",
    "steps": [{"stepId": "a", "actionType": "call_tool", "targetResource": "note",
               "parameters": {"x": "<think>kept</think>"}, "dependencies": []}],
    "answer": None,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_run_is_planned_and_answered_without_the_thinking(notes, form):
    heard = Heard()
    replies = [form.replace("{}", json.dumps(PLAN)), form.replace("{}", "all done")]
    lab = notes.lab(planner="structured", lm=scripted(replies), responder="lm", handler=heard)
    run = al.autonomous.start(lab, "do it")
    run.finish()
    assert notes.made == [("note", {"x": "<think>kept</think>"})]
    assert run.state.final_response == "all done"
    assert "".join(heard.tokens) == "all done"
    spans = run.recorder.of_kind("lm")
    assert [[p["type"] for p in s.output["message"]["parts"]] for s in spans] == [
        ["thinking", "text"]] * 2  # fmt: skip
    assert "hid" not in json.dumps(run.state.to_json())
    assert run.replay().identical


def test_a_first_answer_that_closes_alone_is_not_shown_before(notes, step):
    heard = Heard()
    lab = notes.lab([step("a")], lm=scripted(["hidden</think>all done"]), responder="lm",
                    handler=heard)  # fmt: skip
    al.autonomous.start(lab, "do it").finish()
    assert "".join(heard.tokens) == "all done"


def test_thinking_without_an_end_is_asked_for_again(notes):
    model = scripted([f"<think>so {json.dumps(PLAN)}", json.dumps(PLAN), "<think>hm"])
    lab = notes.lab(planner="structured", lm=model, responder="lm")
    run = al.autonomous.start(lab, "do it")
    run.finish()
    assert len(model.engine.requests) == 3
    assert "Written by template" in run.state.final_response
    assert "hm" not in run.state.final_response


def test_a_call_by_text_within_thinking_is_none(notes):
    call = '<tool_call>{"name": "note", "arguments": {}}</tool_call>'
    types = lm15()
    tool = types.FunctionTool(name="note", description="", parameters={"type": "object"})
    request = types.Request(model="m", messages=(types.Message.user("go"),), tools=(tool,))
    for text, calls in ((f"<think>{call}</think>no", 0), (f"<think>x</think>{call}", 1)):
        model = scripted([text, text])
        door = model.door()
        whole = door.complete(request)
        told = [p.type for p in response_of(request, door.stream(request)).message.parts]
        assert [p.type for p in whole.message.parts].count("tool_call") == calls
        assert told.count("tool_call") == calls


@pytest.mark.parametrize("text", ["", "<think>hidden</think>"])
def test_a_step_that_is_replied_nothing_fails_without_the_thinking(notes, text):
    generate = {"name": "g", "actionType": "llm_generate", "parameters": {"prompt": "go"}}
    lab = notes.lab(planner=Fixed([generate]), lm=scripted([("", text)]), strategy="never")
    run = al.autonomous.start(lab, "do it")
    run.finish()
    assert run.plan.steps[0].status == "failed"
    assert "empty" in run.plan.steps[0].error
    assert "hidden" not in run.plan.steps[0].error
