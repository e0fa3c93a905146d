"""What dspy is given: the hook, the judge, the errors, and runs that do not touch each other."""

from __future__ import annotations

import contextvars
import json
import subprocess
import sys
import threading

import pytest

from agentlab.errors import (
    ConfigError,
    LMCutOff,
    LMError,
    LMRejected,
    LMUnavailable,
    RecordingMiss,
    StoreWriteError,
)
from agentlab.lm.cursor import Cursor
from agentlab.lm.door import lm_errors
from agentlab.lm.engine import SUPPORTS, Wrapper, identify, notes
from agentlab.lm.model import Model
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import Scripted, cut_off, say, scripted
from agentlab.lm.serde import (
    lm15,
    load_dspy,
    request_document,
    request_from,
    response_document,
    text_response,
)


def request(text="hi"):
    types = lm15()
    return types.Request(model="scripted/model", messages=(types.Message.user(text),))


def predict(lm, question="q"):
    dspy = load_dspy()
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    with dspy.context(lm=lm, adapter=adapter, disable_history=True), lm_errors():
        return dspy.Predict("question -> answer")(question=question).answer


def answer(text):
    return f"[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]"


# ---- the hook ------------------------------------------------------------------------------


def test_the_hook_is_told_of_every_call():
    calls = []
    model = scripted([answer("yes"), cut_off("half"), LMUnavailable("down")])
    lm = model.lm(on_call=calls.append)
    assert predict(lm) == "yes"
    for _ in range(2):
        with pytest.raises(LMError):
            predict(lm)
    assert [c.error and c.error.partition(":")[0] for c in calls] == [
        None,
        "LMCutOff",
        "LMUnavailable",
    ]
    assert [c.response is None for c in calls] == [False, False, True]
    assert calls[2].usage == {}
    assert all(c.seconds > 0 for c in calls)
    assert calls[0].request == calls[1].request
    assert calls[0].key == calls[1].key
    assert request_document(request_from(calls[0].request)) == calls[0].request
    json.dumps([[c.request, c.response] for c in calls])


def test_what_the_hook_raises_is_raised():
    def full(call):
        raise StoreWriteError("disk full")

    with pytest.raises(StoreWriteError, match="disk full"):
        predict(scripted([answer("yes")]).lm(on_call=full))


def test_a_bug_is_shown_as_what_it_is():
    def rule(request, n):
        return {}["missing"]

    with pytest.raises(KeyError, match="missing"):
        predict(scripted(rule).lm())


def test_a_journal_may_serve():
    calls, asked = [], []
    journal = {}

    def before(key, document):
        asked.append(document)
        return journal.get(key)

    model = scripted([answer("yes")])
    predict(model.lm(before=before, on_call=calls.append))
    journal[calls[0].key] = calls[0].response
    tokens = []
    assert predict(model.lm(before=before, on_call=calls.append, on_token=tokens.append)) == "yes"
    assert len(model.engine.requests) == 1
    assert [c.served for c in calls] == [False, True]
    assert calls[1].billed == 0
    assert asked[0] == calls[0].request


def test_a_stream_is_told_of_too():
    calls = []
    door = (
        scripted([say("a b", chunks=[1, 2]), cut_off("a"), say("a b")])
        .lm(on_call=calls.append)
        .engine
    )
    events = list(door.stream(request()))
    assert [e.delta.text for e in events if e.type == "delta"] == ["a", " b"]
    with pytest.raises(LMCutOff, match="cut off"):
        list(door.stream(request()))
    stream = door.stream(request())
    next(stream)
    stream.close()  # nobody reads on
    assert [c.error and c.error.partition(":")[0] for c in calls] == [
        None,
        "LMCutOff",
        "GeneratorExit",
    ]
    assert calls[0].usage["output_tokens"] == 2


def test_dspy_streams_through_the_door():
    """dspy's own streaming asks ``stream``; the reply is the same."""
    import asyncio

    dspy = load_dspy()
    lm = scripted([answer("to be or not")]).lm()
    tokens = []

    async def run():
        program = dspy.streamify(
            dspy.Predict("question -> answer"),
            stream_listeners=[dspy.streaming.StreamListener(signature_field_name="answer")],
        )
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            async for chunk in program(question="q"):
                if isinstance(chunk, dspy.Prediction):
                    return chunk.answer
                tokens.append(chunk.chunk)

    assert asyncio.run(run()) == "to be or not"
    assert "".join(tokens) == "to be or not"


def test_it_works_under_a_running_event_loop():
    import asyncio

    lm = scripted([answer("yes")]).lm()

    async def cell():
        return predict(lm)

    assert asyncio.run(cell()) == "yes"


def test_notes_live_for_one_call():
    seen = []

    class Noting(Wrapper):
        def complete(self, request):
            seen.append((identify(request), notes().attempts))
            notes().attempts = 5
            return super().complete(request)

    calls = []
    lm = scripted(["a", "a"]).lm(wrap=Noting, on_call=calls.append)
    lm("x")
    lm("x")
    assert [c.attempts for c in calls] == [5, 5]
    assert [(document, key) for (document, key), _ in seen] == [(c.request, c.key) for c in calls]
    assert [before for _, before in seen] == [1, 1]
    assert notes().attempts == 1
    assert identify(request()) == identify(request())


def test_a_call_within_a_call_has_notes_of_its_own():
    inner_calls, outer_calls = [], []
    sub = scripted(["sub"], name="sub/model").lm(on_call=inner_calls.append)
    lm = scripted(lambda request, n: sub("deeper")[0]).lm(on_call=outer_calls.append)
    assert lm("x") == ["sub"]
    assert [c.model for c in inner_calls + outer_calls] == ["sub/model", "scripted/model"]
    assert outer_calls[0].request["messages"][0]["parts"][0]["text"] == "x"


# ---- models --------------------------------------------------------------------------------


def test_settings_go_into_every_request():
    model = Model("scripted/model", Scripted(["a", "a"]), {"temperature": 0.0, "max_tokens": 7})
    model.lm()("x")
    model.lm(temperature=0.5, max_tokens=None)("x")
    first, second = model.engine.requests
    assert (first.config.temperature, first.config.max_tokens) == (0.0, 7)
    assert (second.config.temperature, second.config.max_tokens) == (0.5, None)


def test_settings_that_dspy_refuses():
    model = Model("openai/gpt-5", Scripted([]), {"max_tokens": 10})
    with pytest.raises(ConfigError, match="reasoning models require"):
        model.lm()
    with pytest.raises(ConfigError, match="neither an engine nor a recording"):
        Model("a/b", None).lm()


def test_what_a_model_supports_reaches_the_adapters():
    lm = Model("a/b", Scripted([]), supports=SUPPORTS).lm()
    assert (lm.supports_response_schema, lm.supports_function_calling, lm.supports_reasoning) == (
        True,
    ) * 3
    assert {"response_format", "tools", "reasoning_effort"} <= lm.supported_params
    bare = Model("a/b", Scripted([])).lm()
    assert (bare.supports_response_schema, bare.supports_function_calling) == (False, False)
    assert "response_format" not in bare.supported_params


def test_nothing_is_cached_and_nothing_retried():
    model = scripted(["a", "b", LMUnavailable("down"), "c"])
    lm = model.lm()
    assert [lm("x"), lm("x")] == [["a"], ["b"]]
    with pytest.raises(load_dspy().LMServerError):
        lm("x")
    assert len(model.engine.requests) == 3


def test_dspys_own_refusals_become_ours():
    dspy = load_dspy()
    with pytest.raises(LMRejected, match="no way"), lm_errors():
        raise dspy.utils.exceptions.LMUnsupportedFeatureError("no way", model="a/b")
    with pytest.raises(ValueError, match="plain"), lm_errors():
        raise ValueError("plain")


def test_an_adapters_parse_error_passes():
    dspy = load_dspy()
    with pytest.raises(dspy.utils.exceptions.AdapterParseError):
        predict(scripted(["no field"]).lm())


# ---- 64 runs -------------------------------------------------------------------------------


def test_64_threads_each_with_its_own_model(tmp_path):
    """Every thread gets its own replies, records its own calls, and counts its own occurrences."""
    dspy = load_dspy()
    recording = Recording(tmp_path / "calls.jsonl", "record")
    found, calls = {}, {i: [] for i in range(64)}
    asked = dspy.Signature("question -> answer")  # compile() in many threads fails in CPython 3.11
    gate = threading.Barrier(64, timeout=30)

    def run(i):
        def rule(request, n):
            text = request.messages[-1].text
            assert f"from {i} " in text  # another thread's prompt never comes here
            return say(answer(f"{i}.{n}"), delay=0.002)

        model = scripted(rule, name=f"scripted/{i}").recorded(recording)
        lm = model.lm(cursor=Cursor(), on_call=calls[i].append)
        gate.wait()
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter(), disable_history=True), lm_errors():
            program = dspy.Predict(asked)
            found[i] = [program(question=f"from {i} ask {n // 2}").answer for n in range(4)]

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, i)) for i in range(64)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == {i: [f"{i}.{n}" for n in range(4)] for i in range(64)}
    for i, mine in calls.items():
        assert {c.model for c in mine} == {f"scripted/{i}"}
        assert [c.occurrence for c in mine] == [0, 1, 0, 1]
        assert all(f"from {i} ask" in json.dumps(c.request) for c in mine)
    recording.close()

    def replay(i):
        bound = Model(f"scripted/{i}", None, recording=Recording(recording.path))
        with dspy.context(lm=bound.lm(), adapter=dspy.ChatAdapter()), lm_errors():
            program = dspy.Predict("question -> answer")
            again = [program(question=f"from {i} ask {n // 2}").answer for n in range(4)]
            with pytest.raises(RecordingMiss), lm_errors():
                program(question=f"from {i} ask 0")
        return again

    assert [replay(i) for i in (0, 31, 63)] == [found[i] for i in (0, 31, 63)]


# ---- what is imported ----------------------------------------------------------------------


def test_dspy_is_imported_when_it_is_used():
    code = """
import sys, os
import agentlab, agentlab.lm, agentlab.lm.connect, agentlab.lm.recording
import agentlab.lm.scripted, agentlab.lm.faulty, agentlab.lm.endpoint
assert "dspy" not in sys.modules
from agentlab.lm.scripted import scripted
model = scripted(["a"])
assert "dspy" not in sys.modules
assert model.lm()("x") == ["a"]
assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
assert "litellm" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_documents_round_trip():
    response = text_response("hi", "m", input_tokens=3, output_tokens=0)
    document = response_document(response)
    assert document["usage"] == {"input_tokens": 3, "output_tokens": 0, "total_tokens": 3}
    json.dumps(document)
