"""The scripted model: every reply a test or a lesson may want."""

from __future__ import annotations

import json
import pickle
import threading
import time

import pytest

from agentlab.errors import (
    ConfigError,
    LMCutOff,
    LMRateLimited,
    LMRefused,
    LMTimeout,
    LMUnavailable,
    ScriptExhausted,
)
from agentlab.lm.connect import connect
from agentlab.lm.door import lm_errors
from agentlab.lm.endpoint import Retrying
from agentlab.lm.scripted import (
    NAME,
    Scripted,
    cut_off,
    rate_limited,
    refused,
    say,
    scripted,
    timed_out,
    unavailable,
)
from agentlab.lm.serde import calls_of, lm15, request_document, request_from, text_of
from agentlab.lm.settings import ModelSettings


def request(text="hi", system=None):
    types = lm15()
    return types.Request(model="m", messages=(types.Message.user(text),), system=system)


def ask(script, *prompts, **options):
    lm = scripted(script).lm(**options)
    with lm_errors():
        return [lm(prompt)[0] for prompt in prompts]


def test_replies_in_order():
    assert ask(["a", say("b")], "x", "y") == ["a", "b"]


def test_a_script_that_is_used_up_says_so():
    with pytest.raises(ScriptExhausted, match=r"has 1 replies and this is call 2; .* ends 'y'"):
        ask(["a"], "x", "y")


def test_replies_by_rule():
    rules = [(r"weather.*Oslo", "cold"), (r"weather", lambda request, n: f"call {n}")]
    assert ask(rules, "weather\nin Oslo", "weather", "weather") == ["cold", "call 1", "call 2"]
    with pytest.raises(ScriptExhausted, match=r"none of the script's 2 patterns .* 'time\?'"):
        ask(rules, "time?")


def test_rules_see_the_system_prompt_and_all_messages():
    types = lm15()
    engine = Scripted([(r"be brief.*first.*second", "seen")])
    messages = (types.Message.user("first"), types.Message.assistant([types.TextPart("ok")]),
                types.Message.user("second"))  # fmt: skip
    asked = types.Request(model="m", messages=messages, system="be brief")
    assert text_of(engine.complete(asked)) == "seen"
    assert engine.prompts == ["be brief\n\nfirst\n\nok\n\nsecond"]


def test_replies_by_function():
    assert ask(lambda request, n: f"{request.model} {n}", "x", "y") == [
        "scripted/model 0",
        "scripted/model 1",
    ]


def test_a_rule_may_answer_with_any_reply():
    with pytest.raises(LMCutOff):
        ask([("", lambda request, n: cut_off("a"))], "x")


@pytest.mark.parametrize(
    ("reply", "kind", "facts"),
    [
        (cut_off("half"), LMCutOff, {"partial": "half"}),
        (refused("no"), LMRefused, {"partial": "no"}),
        (rate_limited(3), LMRateLimited, {"retry_after": 3, "status": 429}),
        (unavailable(502), LMUnavailable, {"status": 502}),
        (timed_out(), LMTimeout, {}),
        (KeyError("a bug"), KeyError, {}),
    ],
)
def test_replies_that_fail(reply, kind, facts):
    with pytest.raises(kind) as caught:
        ask([reply], "x")
    assert {name: getattr(caught.value, name) for name in facts} == facts


def test_failures_pass_under_retries():
    waits = []
    engine = Retrying(Scripted([rate_limited(3), unavailable(), "at last"]), 2, waits.append)
    assert text_of(engine.complete(request())) == "at last"
    assert waits[0] == 3
    with pytest.raises(LMTimeout):
        Retrying(Scripted([timed_out()]), 2, waits.append).complete(request())
    assert len(waits) == 2


def test_a_rate_limit_holds_whoever_asks_next():
    """Of 64 runs that ask at once, one is told to wait, and the others need not be told."""
    waits = []
    engine = Retrying(Scripted([rate_limited(30), "a", "b", "c"]), 2, waits.append)
    assert text_of(engine.complete(request())) == "a"
    assert text_of(engine.complete(request())) == "b"
    assert len(list(engine.stream(request()))) == 3
    assert waits[0] == 30
    assert len(waits) == 3
    assert all(20 < wait < 30 for wait in waits[1:])  # what is left of it

    waits = []
    engine = Retrying(Scripted([rate_limited(0.01), "a", unavailable(), "b", "c"]), 2, waits.append)
    engine.complete(request())
    time.sleep(0.02)
    engine.complete(request())
    engine.complete(request())
    assert waits[0] == 0.01
    assert len(waits) == 2  # the limit is over, and who is down for one may be up for the next


def test_a_stream_that_has_begun_is_not_repeated():
    class Breaking(Scripted):
        def stream(self, request):
            yield from list(super().stream(request))[:2]
            raise LMUnavailable("gone")

    engine, seen = Breaking(["a b", "a b"]), []
    with pytest.raises(LMUnavailable):
        seen.extend(Retrying(engine, 2, seen.append).stream(request()))
    assert len(engine.requests) == 1


def test_delays():
    waits = []
    model = scripted([say("a b c", delay=3.0), say("a b c", delay=3.0)], sleep=waits.append)
    model.lm()("x")
    assert waits == [3.0]
    model.lm(on_token=lambda token: waits.append(token))("x")
    assert waits[1:] == [1.0, "a", 1.0, " b", 1.0, " c"]


def test_token_streams():
    tokens = []
    assert ask([say("hello", chunks=[2, 3])], "x", on_token=tokens.append) == ["hello"]
    assert tokens == ["he", "llo"]


def test_usage_is_counted_in_words():
    calls = []
    ask(["three small words"], "two words", on_call=calls.append)
    assert calls[0].usage == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}


def test_it_is_thread_safe():
    engine, said = Scripted([str(i) for i in range(400)]), []
    threads = [
        threading.Thread(
            target=lambda: said.extend(text_of(engine.complete(request())) for _ in range(50))
        )
        for _ in range(8)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(said, key=int) == [str(i) for i in range(400)]
    assert len(engine.requests) == 400


def test_it_crosses_processes():
    again = pickle.loads(pickle.dumps(scripted([("x", "y")])))
    assert again.lm()("x") == ["y"]


@pytest.mark.parametrize(
    ("script", "words"),
    [(["a", ("b", "c")], "replies or of"), ([("(", "a")], "script pattern '\\('")],
)
def test_scripts_that_are_none(script, words):
    with pytest.raises(ConfigError, match=words):
        scripted(script)


def test_a_reply_that_is_none():
    with pytest.raises(ConfigError, match="got 7"):
        ask([7], "x")


def test_what_it_claims_to_support():
    assert scripted([], response_schema=False).supports == ()
    lm = scripted([], function_calling=True).lm()
    assert lm.supports_function_calling
    assert lm.supports_response_schema
    assert "response_format" in lm.supported_params


# ---- from a file ---------------------------------------------------------------------------


def test_a_script_in_a_file(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(
        json.dumps([{"when": "a", "say": "A"}, {"when": "", "say": "half", "finish": "length"}])
    )
    model = connect(f"scripted:{path}", ModelSettings(model_id="any", max_tokens=5))
    assert model.lm()("a") == ["A"]
    assert model.settings == {"max_tokens": 5}
    with pytest.raises(LMCutOff), lm_errors():
        model.lm()("b")
    path.write_text('["one", {"say": "two"}]')
    lm = connect(f"scripted:{path}").lm()
    assert [lm("x"), lm("x")] == [["one"], ["two"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not JSON"), ("{}", "a list of replies"), ("[1]", "reply 0: expected a string"),
     ('[{"say": "a", "wen": "b"}]', "unknown field 'wen'"), ("[]", "a list of replies")],
)  # fmt: skip
def test_files_that_are_no_script(tmp_path, text, words):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        connect(f"scripted:{path}")
    with pytest.raises(ConfigError, match="cannot be read"):
        connect("scripted:/nowhere.json")


CALL = {"name": "look", "arguments": {"place": "hall"}}


def test_calls_of_tools_in_a_file(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps([
        {"say": "I look.", "tool_calls": [CALL]}, {"tool_calls": [CALL, {**CALL, "id": "mine"}]},
        {"tool_calls": [CALL], "finish": "length"},
    ]))  # fmt: skip
    engine = connect(f"scripted:{path}").bind()
    first, second, third = (engine.complete(request()) for _ in range(3))
    assert (first.finish_reason, text_of(first)) == ("tool_call", "I look.")
    assert [(c.id, c.name, c.input) for c in calls_of(second)] == [
        ("call_1", "look", {"place": "hall"}), ("mine", "look", {"place": "hall"}),
    ]  # fmt: skip
    assert (third.finish_reason, len(calls_of(third))) == ("length", 1)


@pytest.mark.parametrize("calls", ["look", [{}], [{"name": ""}], [{"name": "a", "arguments": 3}],
                                   [{"name": "a", "argument": {}}]])  # fmt: skip
def test_calls_that_are_none(tmp_path, calls):
    with pytest.raises(ConfigError, match="expected"):
        say("x", tool_calls=calls)
    path = tmp_path / "script.json"
    path.write_text(json.dumps([{"say": "x", "tool_calls": calls}]))
    with pytest.raises(ConfigError, match="reply 0: "):
        connect(f"scripted:{path}")


def test_a_typed_request_to_dspy_keeps_the_finish_reason():
    lm = scripted([{"text": "I look.", "tool_calls": [CALL]}], function_calling=True).lm()
    tool = {"type": "function", "name": "look", "description": "", "parameters": {"type": "object"}}
    response = lm(request_from({**request_document(request()), "model": NAME, "tools": [tool]}))
    assert response.finish_reason == "tool_call"
    assert [c.input for c in calls_of(response)] == [{"place": "hall"}]
