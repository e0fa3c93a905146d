"""Recordings: found by request and occurrence, written by many, whole after a crash."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import threading
import time
from itertools import product

import pytest
from hypothesis import given, strategies as st

from agentlab.base.documents import canonical, digest
from agentlab.errors import (
    ConfigError,
    LMRejected,
    LMTooLong,
    LMUnavailable,
    RecordingMiss,
    ReplayError,
)
from agentlab.lm.connect import connect, recorded_model
from agentlab.lm.cursor import Cursor
from agentlab.lm.engine import Notes, noting
from agentlab.lm.misses import explain_miss
from agentlab.lm.recorded import Recorded
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import Reply, Scripted, say, scripted
from agentlab.lm.serde import lm15, request_document, response_of, text_of


def request(text="hi", model="scripted/model", **config):
    types = lm15()
    return types.Request(
        model=model, messages=(types.Message.user(text),), config=types.Config(**config)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.jsonl"


def counting():
    return Scripted(lambda request, n: f"reply {n}")


def record(path, *texts, mode="record", engine=None):
    recording = Recording(path, mode)
    engine = Recorded(recording, "scripted/model", None, engine or counting(), {"temperature": 0})
    replies = [text_of(engine.complete(request(text))) for text in texts]
    return recording, replies


# ---- replay --------------------------------------------------------------------------------


def test_the_same_request_gets_its_replies_in_order_in_every_run(path):
    recording, replies = record(path, "a", "b", "a", "a")
    assert replies == ["reply 0", "reply 1", "reply 2", "reply 3"]
    recording.close()
    replay = Recording(path)
    for _ in range(2):  # two runs, two cursors
        engine = Recorded(replay, "scripted/model", Cursor())
        said = [text_of(engine.complete(request(t))) for t in ("a", "a", "b", "a")]
        assert said == ["reply 0", "reply 2", "reply 1", "reply 3"]


def test_the_key_is_the_digest_of_the_canonical_request(path):
    """By hand, as the module's head documents it."""
    recording, _ = record(path, "a")
    (line,) = recording.lines()
    asked = {
        "model": "scripted/model",
        "messages": [{"role": "user", "parts": [{"type": "text", "text": "a"}]}],
    }
    assert line["request"] == asked == request_document(request("a"))
    assert line["key"] == digest(asked)
    assert (line["occurrence"], line["seed"]) == (0, 0)
    assert line["settings"] == {"temperature": 0}
    assert line["usage"] == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    assert line["response"]["message"]["parts"] == [{"type": "text", "text": "reply 0"}]


@pytest.mark.parametrize(
    "other",
    [request("b"), request("a", model="scripted/other"), request("a", temperature=0.5),
     request("a", max_tokens=5), request("a", response_format={"type": "json_object"})],
    ids=["prompt", "model", "temperature", "max_tokens", "format"],
)  # fmt: skip
def test_another_request_is_a_miss(path, other):
    recording, _ = record(path, "a")
    recording.close()
    with pytest.raises(RecordingMiss):
        Recorded(Recording(path), "scripted/model").complete(other)


def test_a_replay_asks_nobody(path):
    record(path, "a")[0].close()
    engine = counting()
    replayed = Recorded(Recording(path), "scripted/model", None, engine)
    current = Notes(request("a"))
    with noting(current):
        replayed.complete(current.request)
    assert engine.requests == []
    assert (current.served, current.occurrence) == (True, 0)
    before = path.read_text()
    replayed.recording.close()
    assert path.read_text() == before


def test_a_cursor_goes_on_from_its_counts(path):
    record(path, "a", "a")[0].close()
    cursor = Cursor()
    Recorded(Recording(path), "m", cursor).complete(request("a"))
    fork = Cursor(cursor.counts)
    assert text_of(Recorded(Recording(path), "m", fork).complete(request("a"))) == "reply 1"


def test_costs_are_kept(path):
    class Dear(Scripted):
        def complete(self, request):
            from agentlab.lm.engine import notes

            notes().cost = 0.25
            return super().complete(request)

    calls = []
    model = scripted([]).recorded(Recording(path, "replay_or_call"))
    model = type(model)(model.name, Dear(["x"]), recording=model.recording)
    model.lm(on_call=calls.append)("hi")
    model.lm(on_call=calls.append)("hi")
    assert [(c.served, c.cost, c.billed) for c in calls] == [(False, 0.25, 0.25), (True, 0.25, 0.0)]
    assert calls[0].usage == calls[1].usage != {}


def test_a_stream_is_replayed_piece_by_piece(path):
    recording = Recording(path, "record")
    engine = Recorded(recording, "m", None, Scripted([say("hello, you", chunks=[1, 4, 5])]))
    first = list(engine.stream(request()))
    recording.close()
    again = list(Recorded(Recording(path), "m").stream(request()))
    assert [e.delta.text for e in again if e.type == "delta"] == ["h", "ello", ", you"]
    assert again == first
    whole = Recorded(Recording(path), "m").complete(request())
    assert whole == response_of(request(), first)


def test_a_stream_nobody_reads_to_its_end_is_not_recorded(path):
    recording = Recording(path, "record")
    stream = Recorded(recording, "m", None, Scripted(["a b c"])).stream(request())
    next(stream)
    stream.close()
    assert len(recording) == 0


def test_tool_calls_survive(path):
    types = lm15()

    class Tools(Scripted):
        def complete(self, request):
            call = types.ToolCallPart(id="1", name="add", input={"a": [1, {"b": None}]})
            return types.Response(
                id="r", model="m", message=types.Message.assistant([call]),
                finish_reason="tool_call", usage=types.Usage(input_tokens=1),
            )  # fmt: skip

    recording = Recording(path, "record")
    said = Recorded(recording, "m", None, Tools([])).complete(request())
    recording.close()
    assert Recorded(Recording(path), "m").complete(request()) == said


def test_a_rejected_request_is_rejected_again(path):
    recording = Recording(path, "replay_or_call")
    broken = Scripted([LMTooLong("too long by 7", status=400), LMUnavailable("down")])
    engine = Recorded(recording, "m", None, broken)
    with pytest.raises(LMTooLong):
        engine.complete(request("a"))
    with pytest.raises(LMUnavailable):
        engine.complete(request("b"))
    recording.close()
    with pytest.raises(LMTooLong, match="too long by 7") as caught:
        Recorded(Recording(path), "m").complete(request("a"))
    assert caught.value.status == 400
    with pytest.raises(LMRejected):
        list(Recorded(Recording(path), "m").stream(request("a")))
    with pytest.raises(RecordingMiss):  # a passing failure is not recorded
        Recorded(Recording(path), "m").complete(request("b"))


# ---- record, and replay_or_call ------------------------------------------------------------


def test_recording_again_replaces(path):
    record(path, "a", "b")[0].close()
    record(path, "a", engine=Scripted(["new"]))[0].close()
    assert len(Recording(path)) == 2
    engine = Recorded(Recording(path), "m")
    assert [text_of(engine.complete(request(t))) for t in "ab"] == ["new", "reply 1"]


def test_what_is_there_is_served_and_the_rest_asked(path):
    record(path, "a")[0].close()
    engine = Scripted(["new"])
    recording, replies = record(path, "a", "b", mode="replay_or_call", engine=engine)
    assert replies == ["reply 0", "new"]
    assert len(engine.requests) == 1
    recording.close()
    assert len(Recording(path)) == 2


def test_threads_that_ask_the_same_ask_once(path):
    engine = Scripted(lambda request, n: say(f"reply {n}", delay=0.05))
    recording = Recording(path, "replay_or_call")
    said = []

    def run():
        said.append(text_of(Recorded(recording, "m", Cursor(), engine).complete(request("a"))))

    threads = [threading.Thread(target=run) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert said == ["reply 0"] * 8
    assert len(engine.requests) == 1


def test_threads_that_record_do_not_wait_for_each_other(path):
    gate = threading.Barrier(4, timeout=5)

    def together(request, n):
        gate.wait()
        return "x"

    recording, engine = Recording(path, "record"), Scripted(together)
    binds = [Recorded(recording, "m", Cursor(), engine) for _ in range(4)]
    threads = [threading.Thread(target=b.complete, args=(request("a"),)) for b in binds]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(engine.requests) == 4


# ---- seeds ---------------------------------------------------------------------------------


def line_of(key, occurrence, seed, text):
    line = {
        "key": key, "occurrence": occurrence, "model": "m", "settings": {},
        "request": {"model": "m"}, "response": {"text": text}, "usage": {}, "cost": None,
    }  # fmt: skip
    return line if seed is None else {**line, "seed": seed}


NAMES = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.none() | st.integers(-2, 2))


@given(st.lists(NAMES, max_size=30), st.booleans())
def test_a_seed_finds_its_own_line_or_that_of_every_seed(tmp_path_factory, names, first_counts):
    """By a dictionary, before and after the file was put in order, and by whoever writes on."""
    path = tmp_path_factory.mktemp("seeds") / "calls.jsonl"
    mode = "replay_or_call" if first_counts else "record"
    recording, known = Recording(path, mode), {}
    for number, name in enumerate(names):
        recording.add(line_of(*name, f"draw {number}"))
        if name not in known or not first_counts:
            known[name] = f"draw {number}"
    recording.close()
    for tape in (recording, Recording(path, mode)):
        assert len(tape) == len(known)
        for key, occurrence, seed in product("abc", range(4), range(-3, 4)):
            own = known.get((key, occurrence, seed), known.get((key, occurrence, None)))
            found = tape.find(key, occurrence, seed)
            assert (found and found["response"]["text"]) == own
    written = [json.loads(text) for text in path.read_text().splitlines()] if names else []
    assert written == recording.lines()
    assert all(("seed" in x) == (x.get("seed") is not None) for x in written)


def test_what_an_older_version_wrote_stays_as_it_is(path):
    record(path, "a", "b", "a")[0].close()
    old = [re.sub(r'"seed":0,', "", line) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{line}\n" for line in old))
    engine = Scripted(["new"])
    for seed in (0, 5):
        replayed = Recorded(Recording(path), "scripted/model", Cursor(seed=seed))
        said = [text_of(replayed.complete(request(t))) for t in ("a", "a", "b")]
        assert said == ["reply 0", "reply 2", "reply 1"]
    recording = Recording(path, "replay_or_call")
    mixed = Recorded(recording, "scripted/model", Cursor(seed=5), engine)
    assert [text_of(mixed.complete(request(t))) for t in "ac"] == ["reply 0", "new"]
    recording.close()
    assert set(old) < set(path.read_text().splitlines())
    with pytest.raises(RecordingMiss, match=r"seed 6\): it holds some for seed 5"):
        Recorded(Recording(path), "scripted/model", Cursor(seed=6)).complete(request("c"))


def test_recording_a_seed_again_replaces_that_seed(path):
    recording = Recording(path, "record")
    engine = counting()
    for seed in (0, 1, 0):
        Recorded(recording, "m", Cursor(seed=seed), engine).complete(request("a"))
    recording.close()
    said = [Recorded(Recording(path), "m", Cursor(seed=s)).complete(request("a")) for s in (0, 1)]
    assert list(map(text_of, said)) == ["reply 2", "reply 1"]


def test_threads_of_different_seeds_do_not_wait_for_each_other(path):
    gate = threading.Barrier(4, timeout=5)

    def together(request, n):
        gate.wait()
        return f"reply {n}"

    recording, engine = Recording(path, "replay_or_call"), Scripted(together)
    binds = [Recorded(recording, "m", Cursor(seed=s), engine) for s in range(4)]
    threads = [threading.Thread(target=b.complete, args=(request("a"),)) for b in binds]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(engine.requests) == len(recording) == 4
    assert [line["seed"] for line in recording.lines()] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", ['"1"', "1.0", "true", "[0]", '"' + "x" * 999 + '"'])
def test_a_seed_that_is_no_number_is_damage(path, seed):
    record(path, "a")[0].close()
    path.write_text(path.read_text().replace('"seed":0', f'"seed":{seed}'))
    with pytest.raises(ReplayError, match="line 1: no recording: expected a whole num") as told:
        Recording(path)
    assert len(str(told.value)) < 400


# ---- the file ------------------------------------------------------------------------------


def test_the_file_is_ordered_and_stable(path, tmp_path):
    record(path, "a", "b", "c", "a")[0].close()
    other = tmp_path / f"other{''.join(path.suffixes)}"
    said = {"a": iter(["reply 0", "reply 3"]), "b": iter(["reply 1"]), "c": iter(["reply 2"])}
    rules = [(rf"{t}\Z", lambda request, n, t=t: next(said[t])) for t in "abc"]
    record(other, "c", "a", "a", "b", engine=Scripted(rules))[0].close()
    assert other.read_bytes() == path.read_bytes()
    names = [
        (r["key"], r["occurrence"], r["seed"])
        for r in map(json.loads, path.read_text().splitlines())
    ]
    assert names == sorted(names)
    assert list(tmp_path.glob(".*")) == []


def test_lines_are_there_before_it_is_closed(path):
    recording, _ = record(path, "a", "b")
    assert len(path.read_text().splitlines()) == 2
    assert len(Recording(path)) == 2
    recording.close()


def test_odd_texts_survive(path):
    odd = 'a\u2028b\x00"\\\n\r\t ünï ✓ \U0001f600'
    recording = Recording(path, "record")
    Recorded(recording, "m", None, Scripted([odd])).complete(request(odd))
    recording.close()
    assert text_of(Recorded(Recording(path), "m").complete(request(odd))) == odd


def test_a_lone_surrogate_survives(path):
    recording = Recording(path, "record")
    line = {"key": "k", "occurrence": 0, "model": "m", "settings": {}, "request": {"model": "m"},
            "response": {"text": "\ud83d"}, "usage": {}, "cost": None}  # fmt: skip
    recording.add(line)
    recording.close()
    assert Recording(path).find("k", 0) == line


@pytest.mark.parametrize("cut", [2, 5, 40])
def test_a_torn_last_line_is_left_out_and_cut_off(path, cut):
    record(path, "a", "b")
    before, whole = path.read_bytes(), len(path.read_bytes())
    third = Recording(path, "record")
    Recorded(third, "m", None, Scripted(["three " * 999])).complete(request("c"))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.warns(RuntimeWarning, match="torn by a crash"):
        replay = Recording(path)
    assert len(replay) == 2
    with pytest.warns(RuntimeWarning, match="torn by a crash"):
        again = Recording(path, "replay_or_call")
    Recorded(again, "m", None, Scripted(["four"])).complete(request("d"))  # it warned once
    assert path.read_bytes()[:whole] == before[:whole]
    again.close()
    assert len(Recording(path)) == 3


def test_a_writer_goes_on_where_a_line_has_no_end(tmp_path):
    path = tmp_path / "calls.jsonl"
    record(path, "a")[0].close()
    path.write_text(path.read_text().rstrip("\n"))  # as an editor may leave it
    record(path, "b")
    assert len(path.read_text().splitlines()) == len(Recording(path)) == 2


def test_damage_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "calls.jsonl"
    record(path, "a", "b")[0].close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0][:-5], lines[1], ""]))
    with pytest.raises(ReplayError, match=r"calls\.jsonl, line 1: not JSON"):
        Recording(path)
    path.write_text('{"key": 1}\n')
    with pytest.raises(ReplayError, match="missing: occurrence, model, settings, request"):
        Recording(path)
    path.write_text("[]\n")
    with pytest.raises(ReplayError, match="no recording"):
        Recording(path)


def test_a_compressed_file_is_refused(tmp_path):
    for mode in ("record", "replay"):
        with pytest.raises(ConfigError, match=r"calls.jsonl.gz: recordings are not compressed"):
            Recording(tmp_path / "calls.jsonl.gz", mode)


def test_another_process_writes_nothing_and_hands_back_what_it_asked_for(path):
    mine, _ = record(path, "a", mode="replay_or_call")
    before = path.read_bytes()
    other = pickle.loads(pickle.dumps(mine))
    engine = Recorded(other, "scripted/model", None, Scripted(["new"]))
    assert [text_of(engine.complete(request(t))) for t in "ab"] == ["reply 0", "new"]
    other.close()
    assert path.read_bytes() == before
    lines = other.taken()
    assert [line["response"]["message"]["parts"][0]["text"] for line in lines] == ["new"]
    assert other.taken() == mine.taken() == []
    mine.extend(lines)
    mine.extend([{**line, "response": {}} for line in lines])  # who came first counts
    mine.close()
    again = Recorded(Recording(path), "scripted/model")
    assert [text_of(again.complete(request(t))) for t in "ab"] == ["reply 0", "new"]


def test_another_process_may_read_while_a_line_is_written(path):
    mine, _ = record(path, "a", "b")
    sent = pickle.dumps(mine)
    path.write_bytes(path.read_bytes()[:-9])
    assert len(pickle.loads(sent)) == 1  # and says nothing of it


def test_it_is_written_on_after_it_was_closed(path):
    recording, _ = record(path, "a", "b", "c")
    recording.close()
    Recorded(recording, "m", None, Scripted(["four"])).complete(request("d"))
    assert len(path.read_text().splitlines()) == len(Recording(path)) == 4
    recording.close()
    assert len(Recording(path)) == 4


def test_a_read_only_file_is_replayed(path):
    record(path, "a")[0].close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert text_of(Recorded(Recording(path), "m").complete(request("a"))) == "reply 0"
    finally:
        path.parent.chmod(0o755)


def test_what_cannot_be(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'replay'"):
        Recording(tmp_path / "x.jsonl", "replays")
    with pytest.raises(ReplayError, match="there is no recording"):
        Recording(tmp_path / "x.jsonl")
    with pytest.raises(ConfigError, match="needs an engine"):
        Recorded(Recording(tmp_path / "x.jsonl", "record"), "m")


# ---- what a miss says ----------------------------------------------------------------------


def test_a_miss_shows_the_nearest_and_what_differs(tmp_path):
    path = tmp_path / "calls.jsonl"
    prompt = "You are a planner.\n" + "Rule: be brief.\n" * 30 + "Make tea in {} minutes."
    record(path, prompt.format(5), "something else entirely")[0].close()
    with pytest.raises(RecordingMiss) as caught:
        Recorded(Recording(path), "m").complete(request(prompt.format(7), temperature=0.5))
    near = digest(request_document(request(prompt.format(5))))
    message = str(caught.value)
    assert f"The nearest is {near}; recorded (-) and asked (+) differ:" in message
    assert "+ config.temperature: 0.5" in message
    assert "- messages[0].parts[0].text: Make tea in 5 minutes." in message
    assert "+ messages[0].parts[0].text: Make tea in 7 minutes." in message
    assert message.count("\n") == 3


def test_a_miss_in_a_long_line_shows_where_it_parts():
    old, new = "x" * 500 + "OLD" + "y" * 500, "x" * 500 + "NEW" + "y" * 500
    lines = [{"key": "k", "model": "m", "request": {"model": "m", "system": old}}]
    message = explain_miss("f", "q", 0, 0, "", {"model": "m", "system": new}, lines)
    assert "...xxx" in message
    assert "OLDyyy" in message
    assert "NEWyyy" in message
    assert len(message) < 700


@pytest.mark.parametrize(
    ("lines", "occurrence", "words"),
    [
        ([], 0, "it is empty"),
        ([("k", "n")], 0, "it was made with 'n', not 'm'"),
        ([("q", "m")], 1, "it holds 1 for this request; the run repeats itself more often"),
        ([("q", "m", 0, 3)], 1, "it holds 1 for this request; the run repeats itself more often"),
        ([("q", "m", 0), ("q", "m", 2, 3)], 1, "an occurrence is missing, the file was edited"),
        ([("q", "m", 0, 7)], 0, "(asked once in this run, seed 3): it holds some for seed 7, and"),
        ([("q", "m", 0, s) for s in (9, -1, 0, 9)], 0, "it holds some for seeds -1, 0, 9, and"),
        ([("q", "m", 0, 3, "http://a")], 0, "what it holds is of the endpoint http://a, not one "),
        ([("q", "m", 0, s) for s in range(10, 20)], 0, "seeds 10, 11, 12, 13, 14 and 5 more, and"),
    ],
)
def test_other_misses(lines, occurrence, words):
    fields = ("key", "model", "occurrence", "seed", "endpoint")
    lines = [
        {"occurrence": 0, **dict(zip(fields, line, strict=False)), "request": {"model": line[1]}}
        for line in lines
    ]
    assert words in explain_miss("f", "q", occurrence, 3, "", {"model": "m"}, lines)


def test_a_miss_among_many_is_told_soon():
    text = "a line of a prompt that is as long as such lines are\n" * 60
    lines = [
        {"key": str(i), "model": "m", "request": {"model": "m", "system": f"{text}{i}\n{text}"}}
        for i in range(500)
    ]
    started = time.perf_counter()
    explain_miss("f", "q", 0, 0, "", {"model": "m", "system": f"{text}x\n{text}"}, lines)
    assert time.perf_counter() - started < 5


# ---- by name -------------------------------------------------------------------------------


def test_a_recording_is_a_model(path):
    model = scripted(["hello"]).recorded(Recording(path, "record"))
    model.lm(temperature=0.0)("hi")
    model.close()
    again = connect(f"recorded:{path}")
    assert (again.name, again.supports) == (
        "scripted/model",
        ("response_format", "response_schema"),
    )
    assert again.lm(temperature=0.0)("hi") == ["hello"]
    found = connect("recorded", recordings=lambda name: path if name == "" else None)
    assert found.describe() == again.describe()


def test_a_recording_keeps_the_settings(path):
    from agentlab.lm.door import lm_errors
    from agentlab.lm.settings import ModelSettings

    model = scripted(["hello"])
    model = type(model)(model.name, model.engine, {"temperature": 0.0, "max_tokens": 5})
    model = model.recorded(Recording(path, "record"))
    model.lm()("hi")
    model.close()
    assert recorded_model(path).lm()("hi") == ["hello"]
    warmer = connect(f"recorded:{path}", ModelSettings(model_id="any", temperature=1.0))
    with pytest.raises(RecordingMiss, match=r"- config.temperature: 0.0"), lm_errors():
        warmer.lm()("hi")


def test_a_recording_of_several_models(path):
    for name in ("a/one", "b/two"):
        model = scripted([name], name=name).recorded(Recording(path, "record"))
        model.lm()("hi")
        model.close()
    with pytest.raises(ReplayError, match=r"recordings of 'a/one', 'b/two', which one is not said"):
        connect(f"recorded:{path}")
    assert connect(f"recorded:{path}#b/two").lm()("hi") == ["b/two"]
    with pytest.raises(ReplayError, match="not 'c/three'"):
        connect(f"recorded:{path}#c/three")


def test_the_lines_are_json_lines(tmp_path):
    path = tmp_path / "calls.jsonl"
    record(path, "a")[0].close()
    (line,) = path.read_text().splitlines()
    fields = [
        "key", "occurrence", "seed", "model", "settings", "request", "response", "usage", "cost",
    ]  # fmt: skip
    assert list(json.loads(line)) == fields
    assert canonical(json.loads(line)["request"]) in line
    shutil.copy(path, tmp_path / "copy.jsonl")
    assert len(Recording(tmp_path / "copy.jsonl")) == 1
    assert Reply("x").finish == "stop"


@pytest.mark.parametrize(
    ("field", "value"),
    [(f, v) for f in ("key", "occurrence", "seed", "endpoint")
     for v in ([], {}, True, 1.5, "0" if f in ("occurrence", "seed") else 0)],
)  # fmt: skip
def test_a_line_whose_name_has_another_type_is_refused(tmp_path, field, value):
    line = line_of("k", 0, 0, "said")
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({**line, field: value}) + "\n")
    with pytest.raises(ReplayError, match="line 1: no recording"):
        Recording(path, "replay")
