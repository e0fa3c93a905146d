"""Faults of a language model: nested in the rate, the same in every arm, and really faults."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from agentlab.base.documents import canonical
from agentlab.environments.fault_plan import FaultKind, FaultPlan, TargetedFault
from agentlab.errors import ConfigError, LMCutOff, LMRateLimited, LMRefused, LMTimeout
from agentlab.lm.cursor import Cursor
from agentlab.lm.door import lm_errors
from agentlab.lm.endpoint import Retrying
from agentlab.lm.faulty import Faulty, lm_fault, malformed, spoil
from agentlab.lm.recorded import Recorded
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import Scripted, scripted
from agentlab.lm.serde import (
    calls_of,
    events_of,
    lm15,
    load_dspy,
    response_document,
    response_of,
    text_of,
    text_response,
)

MALFORMED, CUT_OFF, REFUSED = FaultKind.LM_MALFORMED, FaultKind.LM_CUT_OFF, FaultKind.LM_REFUSED
ONE = {k: {k: 1.0} for k in (MALFORMED, CUT_OFF, REFUSED, FaultKind.RATE_LIMIT, FaultKind.TIMEOUT)}


def request(text="hi", model="m", **config):
    types = lm15()
    return types.Request(
        model=model, messages=(types.Message.user(text),), config=types.Config(**config)
    )


def struck(rate, prompts, seed=0, scenario="s", **options):
    engine = Faulty(Scripted(lambda r, n: "whole"), rate, seed=seed, scenario=scenario, **options)
    said = [engine.complete(request(p)) for p in prompts]
    return {i for i, r in enumerate(said) if text_of(r) != "whole"}


PROMPTS = [f"prompt {i // 2}" for i in range(200)]  # each made twice


def test_faults_are_nested_in_the_rate():
    low, high = struck(0.1, PROMPTS), struck(0.4, PROMPTS)
    assert low < high
    assert 8 <= len(low) <= 35  # 200 draws at 0.1 and 0.4
    assert 55 <= len(high) <= 105
    assert struck(0.0, PROMPTS) == set()
    assert struck(1.0, PROMPTS) == set(range(200))


def test_faults_go_by_seed_scenario_and_occurrence_and_not_by_order():
    base = struck(0.3, PROMPTS)
    assert base == struck(0.3, PROMPTS)
    assert base != struck(0.3, PROMPTS, seed=1)
    assert base != struck(0.3, PROMPTS, scenario="t")
    assert {i % 2 for i in base} == {0, 1}
    backwards = struck(0.3, PROMPTS[::2] + PROMPTS[1::2])
    assert {PROMPTS[i] for i in base if i % 2 == 0} == {
        PROMPTS[::2][i] for i in backwards if i < 100
    }


def test_model_and_settings_do_not_change_the_draw():
    def hit(**options):
        engine = Faulty(Scripted(lambda r, n: "whole"), 0.3)
        return [text_of(engine.complete(request(p, **options))) == "whole" for p in PROMPTS]

    assert hit() == hit(model="other") == hit(temperature=0.7, max_tokens=3)


def test_a_cursor_tells_runs_apart():
    cursor = Cursor()
    first = [struck(0.5, ["p"], cursor=cursor) for _ in range(40)]
    assert {len(f) for f in first} == {0, 1}  # occurrences 0 to 39 of one prompt
    fork = Cursor(cursor.counts)
    assert struck(0.5, ["p"], cursor=fork) == struck(0.5, ["p"], cursor=Cursor(cursor.counts))


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True), st.integers())
def test_the_draw_is_monotone(a, b, seed):
    low, high = sorted((a, b))
    found = lm_fault(low, ONE[REFUSED], seed, "s", "k", 0)
    assert found is None or lm_fault(high, ONE[REFUSED], seed, "s", "k", 0) is found


# ---- kinds ---------------------------------------------------------------------------------


def ask(kind, text="The answer is forty two, as was said.", **options):
    calls = []
    engine = Scripted(lambda request, n: text)
    wrap = lambda inner: Faulty(inner, 1.0, ONE[kind], **options)  # noqa: E731
    model = scripted([])
    model = type(model)(model.name, engine)
    try:
        with lm_errors():
            return model.lm(wrap=wrap, on_call=calls.append)("hi")[0], calls[0], engine
    except Exception as e:
        return e, calls[0], engine


def test_cut_off():
    error, call, engine = ask(CUT_OFF)
    assert type(error) is LMCutOff
    whole = "The answer is forty two, as was said."
    assert 0.15 * len(whole) < len(error.partial) < 0.85 * len(whole)
    assert whole.startswith(error.partial)
    assert call.faults == ("lm_cut_off",)
    assert call.response["finish_reason"] == "length"
    assert 0 < call.usage["output_tokens"] < len(whole.split())
    assert len(engine.requests) == 1


def test_refused():
    error, call, engine = ask(REFUSED)
    assert type(error) is LMRefused
    assert "can't help" in error.partial
    assert call.faults == ("lm_refused",)
    assert call.usage["input_tokens"] == 1
    assert len(engine.requests) == 1


def test_rate_limit_and_timeout_are_not_asked():
    error, call, engine = ask(FaultKind.RATE_LIMIT, retry_after=7.0)
    assert type(error) is LMRateLimited
    assert error.retry_after == 7
    assert (call.response, call.faults) == (None, ("rate_limit",))
    assert engine.requests == []
    error, _, engine = ask(FaultKind.TIMEOUT)
    assert type(error) is LMTimeout
    assert engine.requests == []


def test_a_rate_limit_passes_when_it_is_asked_again():
    waits = []
    engine = Faulty(Scripted(lambda r, n: "whole"), 0.5, ONE[FaultKind.RATE_LIMIT], seed=3)
    said = [text_of(Retrying(engine, 20, waits.append).complete(request("p"))) for _ in range(9)]
    assert said == ["whole"] * 9
    assert waits == [1.0] * len(waits) != []


def test_streams_meet_the_same_faults():
    for kind in (CUT_OFF, REFUSED, MALFORMED):
        one = Faulty(Scripted(lambda r, n: "some words to say"), 1.0, ONE[kind])
        two = Faulty(Scripted(lambda r, n: "some words to say"), 1.0, ONE[kind])
        streamed = response_of(request(), two.stream(request()))
        whole = one.complete(request())
        assert (text_of(streamed), streamed.finish_reason) == (text_of(whole), whole.finish_reason)
    clean = Faulty(Scripted(lambda r, n: "some words"), 0.0)
    pieces = [e.delta.text for e in clean.stream(request()) if e.type == "delta"]
    assert pieces == ["some", " words"]
    with pytest.raises(LMTimeout):
        list(Faulty(Scripted([]), 1.0, ONE[FaultKind.TIMEOUT]).stream(request()))


class Step(BaseModel):
    tool: str
    seconds: int


@given(st.floats(0, 1, exclude_max=True), st.sampled_from(["json", "chat"]))
def test_no_adapter_makes_sense_of_a_malformed_reply(draw, kind):
    dspy = load_dspy()
    fields = {"task": (str, dspy.InputField()), "plan": (list[Step], dspy.OutputField()),
              "why": (str, dspy.OutputField())}  # fmt: skip
    signature = dspy.Signature(fields)
    adapter = dspy.JSONAdapter() if kind == "json" else dspy.ChatAdapter()
    plan = '[{"tool": "kettle", "seconds": 3}, {"tool": "cup", "seconds": 1}]'
    whole = {
        "json": f'{{"plan": {plan}, "why": "tea: it\'s good"}}',
        "chat": f"[[ ## plan ## ]]\n{plan}\n\n[[ ## why ## ]]\ntea\n\n[[ ## completed ## ]]",
    }[kind]
    assert len(adapter.parse(signature, whole)["plan"]) == 2
    spoiled = spoil(text_response(whole, "m"), MALFORMED, draw)
    assert spoiled.finish_reason == "stop"
    with pytest.raises(dspy.utils.exceptions.AdapterParseError):
        adapter.parse(signature, text_of(spoiled))


@given(st.text(), st.floats(0, 1, exclude_max=True))
def test_spoiling_is_deterministic_and_total(text, draw):
    response = text_response(text, "m", output_tokens=5)
    for kind in (MALFORMED, CUT_OFF, REFUSED):
        assert spoil(response, kind, draw) == spoil(response, kind, draw)
    assert not set("[]{}\"'`:#<>_=\\") & set(malformed(text, draw).replace("Let me", ""))
    assert text.startswith(text_of(spoil(response, CUT_OFF, draw)))


# ---- plans ---------------------------------------------------------------------------------


def of_plan(plan, prompts, **options):
    engine = Faulty.of_plan(Scripted(lambda r, n: "whole"), plan, 0, "s", **options)
    return [engine.complete(request(p)).finish_reason for p in prompts]


def test_the_lm_faults_of_a_plan():
    prompts = [f"p{i}" for i in range(300)]
    plan = FaultPlan(rate=0.5, kinds={FaultKind.ERROR: 1, CUT_OFF: 2, FaultKind.RATE_LIMIT: 1})
    met = of_plan(plan, prompts)
    assert 50 <= met.count("length") <= 100  # half of the calls, half of those an LM's
    assert set(met) == {"length", "stop"}
    assert set(of_plan(FaultPlan(rate=1.0), prompts)) == {"stop"}  # tools only
    assert set(of_plan(FaultPlan(rate=1.0, kinds={REFUSED: 1}), prompts)) == {"content_filter"}


def test_targets_of_a_plan():
    hit = TargetedFault(tool="lm", kind=CUT_OFF, occurrence=1)
    assert of_plan(FaultPlan(targets=(hit,)), ["p", "p", "q", "p"]) == [
        "stop",
        "length",
        "stop",
        "stop",
    ]
    named = TargetedFault(tool="m", kind=CUT_OFF, step="two", after=5.0, before=9.0)
    for *where, met in [("two", 6.0, "length"), ("one", 6.0, "stop"), ("two", 4.0, "stop"),
                        ("two", 9.0, "stop")]:  # fmt: skip
        plan = FaultPlan(targets=(named,))
        assert of_plan(plan, ["p"], where=lambda at=tuple(where): at) == [met]
    other = TargetedFault(tool="search", kind=CUT_OFF)
    tools = TargetedFault(tool="lm", kind=FaultKind.ERROR)
    assert of_plan(FaultPlan(targets=(other, tools)), ["p"]) == ["stop"]


def test_a_recording_advances_alike_with_and_without_faults(tmp_path):
    path = tmp_path / "calls.jsonl"
    recording = Recording(path, "record")
    bound = Recorded(recording, "m", None, Scripted(lambda r, n: f"reply {n}"))
    [bound.complete(request("p")) for _ in range(6)]
    recording.close()
    clean = Recorded(Recording(path), "m")
    faulty = Faulty(Recorded(Recording(path), "m"), 0.5, ONE[REFUSED], seed=1)
    for _ in range(6):
        whole, met = clean.complete(request("p")), faulty.complete(request("p"))
        assert text_of(met) in (text_of(whole), "I'm sorry, but I can't help with that.")


def test_what_cannot_be():
    with pytest.raises(ConfigError, match="rate from 0 to 1"):
        Faulty(Scripted([]), 1.5)
    with pytest.raises(ConfigError, match="'lm_broken' is not a valid FaultKind"):
        Faulty(Scripted([]), 0.5, {"lm_broken": 1.0})
    assert Faulty(Scripted([]), 0.5, {"lm_refused": 1.0}).kinds == {REFUSED: 1.0}


# ---- calls of tools --------------------------------------------------------------------------


def calling(text="I look."):
    types = lm15()
    calls = [types.ToolCallPart(p, "look", {"place": p}) for p in ("hall", "attic")]
    return text_response(text, "m", calls=calls, finish="tool_call", output_tokens=20)


def inputs(response):
    return [call.input for call in calls_of(response)]


@given(st.floats(0, 1, exclude_max=True))
def test_a_malformed_call_is_one_of_them(draw):
    spoiled = spoil(calling(), MALFORMED, draw)
    assert (text_of(spoiled), spoiled.finish_reason) == ("I look.", "tool_call")
    whole = inputs(calling())
    [wrong] = [(a, b) for a, b in zip(inputs(spoiled), whole, strict=True) if a != b]
    assert wrong[0] in ({"arguments": wrong[1]}, {"partial_json": canonical(wrong[1])[:-1]})
    assert response_document(spoiled) == response_document(spoil(calling(), MALFORMED, draw))


@given(st.floats(0, 1, exclude_max=True))
def test_a_reply_is_cut_off_within_a_call(draw):
    spoiled = spoil(calling(""), CUT_OFF, draw)
    assert spoiled.finish_reason == "length"
    *whole, last = inputs(spoiled)
    assert whole == inputs(calling())[: len(whole)]
    told = canonical(inputs(calling())[len(whole)])
    assert told.startswith(last.get("partial_json", canonical(last)))  # or cut between two
    assert 0 < spoiled.usage.output_tokens < 20
    streamed = response_of(request(), events_of(spoiled))
    assert response_document(streamed)["message"] == response_document(spoiled)["message"]
    assert streamed.finish_reason == "length"


def test_cut_off_before_a_call_there_is_none():
    text = "Let me think about it for a very long time indeed, and longer than the calls."
    spoiled = spoil(calling(text), CUT_OFF, 0.0)
    assert inputs(spoiled) == []
    assert text.startswith(text_of(spoiled))


def test_who_refuses_calls_nothing():
    spoiled = spoil(calling(), REFUSED, 0.0)
    assert (inputs(spoiled), spoiled.finish_reason) == ([], "content_filter")
