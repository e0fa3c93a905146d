"""Endpoints that fail: a server on loopback plays one that refuses, hangs, is dead and mended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import typer
from hypothesis import given, strategies as st
from typer.testing import CliRunner

import agentlab as al
from agentlab import errors
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite
from agentlab.errors import LMError, LMTimeout, StudyError
from agentlab.lab.named import connected
from agentlab.lm.door import lm_errors
from agentlab.lm.endpoint import ENDPOINT_KEY
from agentlab.lm.faulty import Faulty
from agentlab.lm.infrastructure import CAUSES, cause_of
from agentlab.lm.model import Model
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import Scripted, say, scripted, timed_out, unavailable
from agentlab.lm.serde import load_dspy
from agentlab.minds.planners.search import Search
from agentlab.study import endpoints
from agentlab.study.endpoints import MAX_LM_ERRORS, Streaks
from agentlab.study.frames import infrastructure_by_cause
from agentlab.study.progress import showing
from agentlab.trace.store import Store
from agentlab.trace.stored import EndpointCall
from agentlab.views.cli.cli import app

SUITE = Suite("three", [generate("medium", i, length=2 + i) for i in range(3)])
SECRET = "sk-canary-7f3a2b9c"
WAYS = {
    "here": {"processes": 1, "threads": 1}, "threads": {"processes": 1, "threads": 4},
    "processes": {"processes": 2, "threads": 1}, "both": {"processes": 2, "threads": 18},
}  # fmt: skip


# ---- the endpoint ----------------------------------------------------------------------------


def plan_of(scenario):
    steps = [
        {
            "stepId": s.step_id, "actionType": "call_tool", "targetResource": s.tool,
            "parameters": s.arguments, "dependencies": list(s.dependencies),
        }
        for s in scenario.reference.steps
    ]  # fmt: skip
    return json.dumps({"summary": "plan", "steps": steps, "answer": scenario.reference.answer})


RULES = [(f"## task\n{re.escape(s.task)}\n", plan_of(s)) for s in SUITE]


def answer(prompt):
    """What a model says that plans by the book."""
    return next((text for rule, text in RULES if re.search(rule, prompt)), "That is done.")


class Server(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint; ``mood(n)`` says how it treats the nth request."""

    daemon_threads = True

    def __init__(self, mood="well", port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.mood = mood if callable(mood) else lambda n: mood
        self.asked, self.let_go, self._count = [], threading.Event(), threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def lm(self, name="local", retries=0, timeout=20):
        return f"openai/{name}?retries={retries}&timeout={timeout}@{self.url}"

    def next(self, request):
        with self._count:
            self.asked.append(request)
            return self.mood(len(self.asked) - 1)

    def stop(self):
        self.let_go.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = "\n".join(str(m["content"]) for m in body["messages"])
        mood = self.server.next((dict(self.headers), prompt))
        if mood == "keyed":
            mood = "well" if self.headers["Authorization"] == f"Bearer {SECRET}" else 401
        if mood == "hangs":
            self.server.let_go.wait(10)
            self.close_connection = True
        elif isinstance(mood, int):
            said = f"no: {self.headers['Authorization']}"  # an endpoint may echo the key
            self.send(mood, {"error": {"message": said, "type": "e"}})
        else:
            said, finish = {
                "well": (answer(prompt), "stop"), "cut": (answer(prompt)[:20], "length"),
                "refuses": ("I can't help with that.", "content_filter"),
                "babbles": ("Sure, let me think.", "stop"),
            }[mood]  # fmt: skip
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            self.send(200, {"id": "r", "model": "local", "choices": [choice], "usage": usage})

    def send(self, status, document):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoint():
    servers = []

    def start(*given, **options):
        servers.append(Server(*given, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def no_ambient_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", ENDPOINT_KEY):
        monkeypatch.delenv(name, raising=False)


def dead():
    """A server that is gone, and whose port nobody has."""
    server = Server()
    server.stop()
    return server


def study(lm, out, seeds=8, **options):
    """24 cells, each of which asks for a plan; nothing else asks."""
    arms = options.pop("arms", None) or al.grid(planner="structured", lm=lm, responder="template")
    options = {"fault_rate": 0.0, "controls": False, **options}
    return al.Study(arms, options.pop("suite", SUITE), out=out, seeds=seeds, **options)


def statuses(out):
    """How often each (attempt, status) was written."""
    with Store(out, read_only=True) as store:
        rows = store._select("SELECT attempt, status, count(*) FROM cells GROUP BY 1, 2")
    return {(attempt, status): n for attempt, status, n in rows}


# ---- a study that stops, and goes on when the endpoint is mended ------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_study_stops_at_a_failing_endpoint_and_goes_on_when_it_is_mended(endpoint, tmp_path, way):
    server = endpoint(503)
    made = study(server.lm(), tmp_path)
    message = (
        rf"3 LM calls in a row failed at {server.url} \(unavailable 3\); the last: openai/local"
    )
    with pytest.raises(StudyError, match=message) as caught:
        made.run(**WAYS[way], max_lm_errors=3)
    assert "--retry-failed" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    kept = statuses(tmp_path)
    assert set(kept) == {(1, "infrastructure")}
    assert 3 <= kept[1, "infrastructure"] < 24
    runs = al.Study.open(tmp_path).runs
    assert (runs["infrastructure"] == "unavailable").all()
    assert not runs["success"].any()

    server.mood = lambda n: "well"
    asked = len(server.asked)
    made.run(**WAYS[way])  # what was not run yet, and nothing else
    assert infrastructure_by_cause(made.runs) == {"unavailable": kept[1, "infrastructure"]}
    assert len(made.runs) == 24
    assert len(server.asked) - asked == 24 - kept[1, "infrastructure"] + 1  # and the first word
    runs = made.run(**WAYS[way], retry_failed=True)
    assert runs["success"].all()
    assert runs["infrastructure"].isna().all()
    assert set(runs["status"]) == {"done"}
    assert infrastructure_by_cause(runs) == {}
    assert statuses(tmp_path)[2, "done"] == kept[1, "infrastructure"]
    asked = len(server.asked)
    made.run(**WAYS[way], retry_failed=True)
    assert len(server.asked) == asked  # nothing to do: not even a word


@pytest.mark.parametrize("way", ["here", "processes"])
def test_a_dead_endpoint_that_comes_back(endpoint, tmp_path, way):
    gone = dead()
    made = study(gone.lm(), tmp_path, seeds=2)
    with pytest.raises(StudyError, match="cannot be reached"):
        made.run(**WAYS[way], max_lm_errors=2)
    assert set(made.runs["infrastructure"]) == {"unavailable"}
    endpoint(port=gone.server_port)
    runs = made.run(**WAYS[way], retry_failed=True)
    assert runs["success"].all()
    assert len(runs) == 6


@pytest.mark.parametrize("off", [0, None])
@pytest.mark.parametrize("way", ["here", "threads", "processes"])
def test_without_a_limit_every_cell_is_run(endpoint, tmp_path, way, off):
    server = endpoint(503)
    runs = study(server.lm(), tmp_path, seeds=5).run(**WAYS[way], max_lm_errors=off)
    assert len(runs) == 15
    assert infrastructure_by_cause(runs) == {"unavailable": 15}
    assert set(runs["status"]) == {"infrastructure"}


def test_the_limit_is_ten_where_nobody_says(endpoint, tmp_path):
    server = endpoint(503)
    with pytest.raises(StudyError, match="10 LM calls in a row"):
        study(server.lm(), tmp_path).run(processes=1)
    assert statuses(tmp_path) == {(1, "infrastructure"): 10}
    assert len(server.asked) == 11


@pytest.mark.parametrize("limit", [-1, 2.5, "3", True])
def test_what_is_no_limit_is_refused(tmp_path, limit):
    with pytest.raises(StudyError, match="max_lm_errors is a number of calls"):
        study("scripted:x", tmp_path, arms=al.grid()).run(processes=1, max_lm_errors=limit)


# ---- causes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mood", "options", "cause", "asked"),
    [
        (503, {"retries": 0}, "unavailable", 1), (429, {"retries": 2}, "rate limited", 3),
        ("hangs", {"timeout": 0.3, "retries": 2}, "timed out", 1),
    ],
)  # fmt: skip
def test_causes_that_may_pass(endpoint, tmp_path, mood, options, cause, asked):
    """The probe is answered with them too, and does not stop the study."""
    server = endpoint(mood)
    made = study(server.lm(**options), tmp_path, seeds=1)
    runs = made.run(processes=1)
    assert set(runs["infrastructure"]) == {cause}
    assert set(runs["status"]) == {"infrastructure"}
    assert not runs["success"].any()
    assert len(server.asked) == 1 + 3 * asked
    calls = made.lm_calls  # the trace is there
    assert len(calls) == 3
    assert calls["error"].str.startswith("LM").all()


@pytest.mark.parametrize(
    ("status", "cause"), [(401, "denied"), (403, "denied"), (404, "unknown model")]
)
def test_a_key_that_is_taken_away_and_a_model_that_goes(endpoint, tmp_path, status, cause):
    server = endpoint(lambda n: "well" if n < 3 else status)
    with pytest.raises(StudyError, match=rf"\({cause} 4\)"):
        study(server.lm(), tmp_path).run(processes=1, max_lm_errors=4)
    made = al.Study.open(tmp_path)
    assert infrastructure_by_cause(made.runs) == {cause: 4}
    assert made.runs["success"].sum() == 2


@pytest.mark.parametrize("mood", ["cut", "refuses", "babbles", 400])
@pytest.mark.parametrize("way", ["here", "threads"])
def test_what_a_model_does_is_the_agents_failure(endpoint, tmp_path, mood, way):
    server = endpoint(mood)
    runs = study(server.lm(), tmp_path, seeds=2).run(**WAYS[way], max_lm_errors=1)
    assert runs["infrastructure"].isna().all()
    assert set(runs["status"]) == {"done"}
    assert not runs["success"].any()


def test_a_reply_between_begins_the_count_anew(endpoint, tmp_path):
    server = endpoint(lambda n: "well" if n % 3 == 0 else 503)
    made = study(server.lm(), tmp_path)
    runs = made.run(processes=1, max_lm_errors=3)
    assert infrastructure_by_cause(runs) == {"unavailable": 16}
    assert runs[runs["infrastructure"].isna()]["success"].all()


def test_endpoints_are_counted_apart(endpoint, tmp_path):
    """One that fails among others is found, though the others answer in between."""
    good, bad = endpoint(), endpoint(503)
    arms = al.grid(planner="structured", lm=[good.lm("good"), bad.lm("bad")], responder="template")
    with pytest.raises(StudyError, match=bad.url):
        study("", tmp_path, arms=arms, seeds=1).run(processes=1, max_lm_errors=3)
    runs = al.Study.open(tmp_path).runs
    assert runs["infrastructure"].notna().tolist() == (runs["lm"] == bad.lm("bad")).tolist()


CALLS = st.lists(
    st.builds(EndpointCall, st.sampled_from("ab"), st.sampled_from([None, "denied", "timed out"]))
)


@given(CALLS, st.integers(0, 4), st.lists(st.integers(0, 5)))
def test_rows_of_failed_calls(calls, limit, cuts):
    """However the calls come in pieces, against a look at all of them before each one."""
    expected = []
    for end in range(1, len(calls) + 1):
        mine = [c for c in calls[:end] if c.endpoint == calls[end - 1].endpoint]
        last = max((i for i, c in enumerate(mine) if c.cause is None), default=-1)
        if limit and len(mine) - 1 - last >= limit:
            expected = mine[last + 1 :]
            break
    streaks, found, at = Streaks(limit), [], 0
    for size in [*cuts, len(calls)]:
        found = found or streaks.broken(calls[at : at + size])
        at += size
    assert found == expected


def test_the_table_of_causes():
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, LMError)]
    found = {e.__name__: cause_of(e("x")) for e in kinds}
    assert {name: cause for name, cause in found.items() if cause is not None} == {
        "LMDenied": "denied", "LMUnknownModel": "unknown model", "LMRateLimited": "rate limited",
        "LMTimeout": "timed out", "LMUnavailable": "unavailable",
    }  # fmt: skip
    assert set(CAUSES) == {c for c in found.values() if c}
    assert found == {e.__name__: cause_of(f"{e.__name__}: x") for e in kinds}
    assert all(cause_of(e("x"), ["rate_limit"]) is None for e in kinds)
    assert cause_of("LMUnavailable: x", ["lm_malformed"]) == "unavailable"
    assert cause_of(None) is None


# ---- what is no infrastructure, and what is all the same --------------------------------------


@pytest.mark.parametrize("kind", ["timeout", "rate_limit"])
def test_an_injected_failure_is_what_is_measured(tmp_path, kind):
    engine = Faulty(Scripted([(rule, say(text)) for rule, text in RULES]), 1.0, {kind: 1.0})
    arms = al.grid(planner="structured", lm=Model("scripted/model", engine), responder="template")
    made = study("", tmp_path, arms=arms, seeds=1)
    runs = made.run(processes=1, max_lm_errors=1)
    assert made.lm_calls["error"].str.startswith("LM").all()
    assert runs["infrastructure"].isna().all()
    assert set(runs["status"]) == {"done"}
    assert not runs["success"].any()


def test_an_endpoint_that_fails_where_a_fault_would_strike(endpoint, tmp_path):
    plan = al.FaultPlan(kinds={"lm_malformed": 1.0})
    made = study(endpoint(503).lm(), tmp_path, seeds=1, faults=plan, fault_rate=1.0)
    assert infrastructure_by_cause(made.run(processes=1)) == {"unavailable": 3}


def test_a_miss_of_a_recording_stays_a_miss(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"when": rule, "say": text} for rule, text in RULES]))
    tape = tmp_path / "calls.jsonl"
    one = Suite("one", list(SUITE)[:1])
    study(f"scripted:{script}", tmp_path / "a", seeds=1, suite=one, record=tape).run(processes=1)
    runs = study(f"recorded:{tape}", tmp_path / "b", seeds=1).run(processes=1, max_lm_errors=1)
    assert runs["infrastructure"].isna().all()
    assert (runs["lm_misses"] > 0).sum() == 2


def scripted_arms(*replies, **axes):
    return al.grid(lm=scripted([*replies]), **{"planner": "structured", **axes})


def test_a_run_that_got_there_all_the_same_measures_nothing(tmp_path):
    """The responder was down, and the template spoke: the goal is reached, but not by the model."""
    replies = [(rule, say(text)) for rule, text in RULES] + [("", unavailable())]
    made = study("", tmp_path, arms=scripted_arms(*replies), seeds=1)
    runs = made.run(processes=1)
    assert set(runs["infrastructure"]) == {"unavailable"}
    assert not runs["success"].any()
    assert (runs["lm_calls"] == 2).all()
    assert made.replay(runs["cell"].iloc[0]).identical


class Own(LMTimeout):
    """A failure of an engine of one's own, by a name of its own."""


class Down(Scripted):
    def complete(self, request):
        raise Own("the line is cut")


def test_an_engine_of_ones_own_that_fails(tmp_path):
    model = Model("mine/model", Down(["x"]))
    made = study("", tmp_path, arms=al.grid(planner="structured", lm=model))
    with pytest.raises(StudyError, match=r"at mine/model \(timed out 4\)"):
        made.run(processes=1, max_lm_errors=4)
    assert set(al.Study.open(tmp_path).runs["infrastructure"]) == {"timed out"}


class Careless(Search):
    """A planner that asks, and does not look at what it got."""

    name = "careless"
    needs_model = True

    def plan(self, request, bench):
        try:
            ask()
        except LMError as e:
            raise KeyError("reply") from e


def ask():
    with lm_errors():
        load_dspy().Predict("question -> answer")(question="?")


def test_a_run_that_crashed_over_it_is_told_from_one_that_crashed(tmp_path):
    arms = [al.Arm(Careless(), lm=scripted([timed_out()] * 9)), al.Arm("search")]
    made = study("", tmp_path, arms=arms, seeds=1)
    runs = made.run(processes=1)
    lost = runs[runs["lm"].notna()]
    assert set(lost["status"]) == {"infrastructure"}
    assert set(lost["infrastructure"]) == {"timed out"}
    assert set(lost["error"]) == {"KeyError: 'reply'"}
    assert runs[runs["lm"].isna()]["success"].all()


def test_twins_that_measured_nothing_are_no_twins(tmp_path):
    """The twins come first of each scenario and seed; their planner is down."""
    replies = [unavailable(), say(RULES[0][1])]
    arms = scripted_arms(*replies, responder="template", strategy="retry(3)")
    one = Suite("one", list(SUITE)[:1])
    plan = al.FaultPlan(kinds={"error": 1.0})
    made = study("", tmp_path, arms=arms, suite=one, seeds=1, fault_rate=0.6, controls=True,
                 faults=plan)  # fmt: skip
    runs = made.run(processes=1)
    assert statuses(tmp_path)[1, "infrastructure"] == 1
    assert runs["infrastructure"].isna().all()
    assert runs["faults_delivered"].all()
    assert runs["twin_success"].isna().all()
    assert runs["recovered"].isna().all()


@pytest.mark.parametrize("error", [MemoryError, RecursionError, SystemExit, GeneratorExit])
@pytest.mark.parametrize("where", ["engine", "planner"])
@pytest.mark.parametrize("way", ["here", "threads"])
def test_what_escapes_a_model_or_a_planner_crashes_its_cell(tmp_path, error, where, way):
    first = next(iter(SUITE))

    class Planner(Search):
        name = "planner"

        def plan(self, request, bench):
            if request.user_input == first.task:
                raise error("too much")
            return super().plan(request, bench)

    class Engine(Scripted):
        def complete(self, request):
            prompt = "".join(p.text for m in request.messages for p in m.parts)
            if re.search(RULES[0][0], f"{request.system}\n{prompt}"):
                raise error("too much")
            return super().complete(request)

    model = Model("mine/model", Engine([(rule, say(text)) for rule, text in RULES]))
    planner = "structured" if where == "engine" else Planner()
    arms = al.grid(planner=planner, lm=model, reflector="rules", responder="template")
    runs = study("", tmp_path, arms=arms, seeds=2).run(**WAYS[way])
    struck = runs["scenario"] == first.id
    assert set(runs[struck]["status"]) == {"crashed"}
    assert set(runs[struck]["error"]) == {f"{error.__name__}: too much"}
    assert runs[~struck]["success"].all()
    assert runs["infrastructure"].isna().all()


# ---- what is asked before the first cell ------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 402])
@pytest.mark.parametrize("way", ["here", "both"])
def test_a_key_that_is_refused_stops_a_study_before_it_begins(
    endpoint, tmp_path, monkeypatch, status, way
):
    monkeypatch.setenv(ENDPOINT_KEY, SECRET)
    server = endpoint(status)
    with pytest.raises(StudyError, match=f"no cell was run, .*set {ENDPOINT_KEY}") as caught:
        study(server.lm(retries=2), tmp_path).run(**WAYS[way], max_lm_errors=0)
    assert SECRET not in str(caught.value)
    assert SECRET in server.asked[0][0]["Authorization"]
    assert len(server.asked) == 1
    assert statuses(tmp_path) == {}


def test_a_model_that_is_not_there_stops_a_study_before_it_begins(endpoint, tmp_path):
    server = endpoint(404)
    with pytest.raises(StudyError, match=r"no cell was run, since openai/local at .*HTTP 404"):
        study(server.lm(), tmp_path).run(processes=1)
    assert (len(server.asked), statuses(tmp_path)) == (1, {})


def test_a_missing_key_of_a_vendor_is_named(tmp_path):
    with pytest.raises(StudyError, match=r"no cell was run, .*set OPENAI_API_KEY"):
        study("openai/gpt-4o-mini", tmp_path).run(processes=1)
    assert statuses(tmp_path) == {}


def test_everyone_who_refuses_is_named_at_once(endpoint, tmp_path):
    """One request an endpoint and model, however many arms and settings."""
    one, two, three = endpoint(401), endpoint(404), endpoint()
    lms = [one.lm("one"), one.lm("one", timeout=9), two.lm("two"), three.lm("three")]
    arms = al.grid(planner="structured", strategy=["never", "retry(1)"], lm=lms)
    with pytest.raises(StudyError) as caught:
        study("", tmp_path, arms=arms).run(processes=1)
    assert one.url in str(caught.value)
    assert two.url in str(caught.value)
    assert three.url not in str(caught.value)
    assert [len(s.asked) for s in (one, two, three)] == [1, 1, 1]


def test_an_endpoint_that_says_nothing_is_not_waited_for(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoints.refusals, "__defaults__", (0.2,))
    server = endpoint("hangs")
    started = time.monotonic()
    endpoints.check_access(al.grid(planner="structured", lm=server.lm(timeout=60)))
    assert time.monotonic() - started < 2
    assert len(server.asked) == 1


def test_who_is_not_asked_is_not_probed(endpoint, tmp_path):
    """A recording alone, or one that has something of the model; a script."""
    server, tape = endpoint(), tmp_path / "calls.jsonl"
    study(server.lm(), tmp_path / "a", seeds=1, record=tape).run(processes=1)
    assert len(server.asked) == 1 + 3
    server.mood = lambda n: 401
    for lm, record in ((server.lm(), tape), (f"recorded:{tape}", None)):
        made = study(lm, tmp_path / f"by {record is None}", seeds=1, record=record)
        assert made.run(processes=1)["success"].all()
    for mode in ("replay", "replay_or_call"):
        model = connected(server.lm()).recorded(Recording(tape, mode))
        endpoints.check_access([al.Arm("structured", lm=model)])
    endpoints.check_access([al.Arm("structured", lm=scripted(["x"])), al.Arm("search")])
    assert len(server.asked) == 1 + 3


def test_a_recording_does_not_hold_that_a_model_was_not_there(endpoint, tmp_path):
    server, tape = endpoint(lambda n: "well" if n == 0 else 404), tmp_path / "calls.jsonl"
    made = study(server.lm(), tmp_path / "a", seeds=1, record=tape)
    assert infrastructure_by_cause(made.run(processes=1)) == {"unknown model": 3}
    assert len(Recording(tape, "replay_or_call")) == 0
    server.mood = lambda n: "well"
    assert made.run(processes=1, retry_failed=True)["success"].all()
    assert len(Recording(tape)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_is_set_between_two_runs_is_used(endpoint, tmp_path, monkeypatch, way):
    """In this process, and in workers that began before it was there."""
    warm = study("", tmp_path / "warm", arms=al.grid(planner="search"))
    warm.run(processes=2)
    server = endpoint("keyed")
    made = study(server.lm(), tmp_path / "out")
    with pytest.raises(StudyError, match=ENDPOINT_KEY):
        made.run(**WAYS[way])
    monkeypatch.setenv(ENDPOINT_KEY, SECRET)
    assert made.run(**WAYS[way])["success"].all()
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in (tmp_path / "out").iterdir())


# ---- what is shown ----------------------------------------------------------------------------


def test_progress_leaves_them_out_and_shows_them(endpoint, tmp_path, capsys):
    told = []
    server = endpoint(lambda n: "well" if n % 2 == 0 else 503)
    study(server.lm(), tmp_path, seeds=2).run(processes=1, progress=lambda *a: told.append(a))
    assert told[-1] == (6, 6, 1.0)
    with showing(True, 6) as tell:
        tell(6, 6, 1.0, 3)
    assert "success 100.0%, endpoint failed 3" in capsys.readouterr().err


def agentlab(*words):
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, SystemExit | None), found.exception
    assert "Traceback" not in found.stderr
    return found


@pytest.fixture
def words(tmp_path, monkeypatch):
    """An evaluation of 6 cells, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    suite = tmp_path / "three.jsonl"
    suite.write_text("".join(json.dumps(s.to_json()) + "\n" for s in SUITE))
    return [
        "eval", str(suite), "--planner", "structured", "--responder", "template", "--strategy",
        "never", "--seeds", "2", "--fault-rate", "0", "--no-controls", "--out", "out",
        "--processes", "1",
    ]  # fmt: skip


def test_the_command_line(endpoint, tmp_path, words):
    server = endpoint(503)
    words += ["--lm", server.lm()]
    stopped = agentlab(*words, "--max-lm-errors", "3")
    assert stopped.exit_code == 2
    assert len(stopped.stderr.splitlines()) == 1
    assert f"error: the study stopped: 3 LM calls in a row failed at {server.url}" in stopped.stderr
    finished = agentlab(*words)  # 3 more: the limit is not reached
    assert finished.exit_code == 1
    assert "6 of 6 runs measured nothing" in finished.stderr
    assert "(unavailable 6); --retry-failed runs them again" in finished.stderr
    assert "best" not in finished.stdout  # nothing was measured, nothing is ranked
    assert "results  out (study.db)" in finished.stdout
    assert agentlab(*words).exit_code == 1
    listed = agentlab("show", "out", "--failed")
    key = listed.stdout.splitlines()[1].split()[0]
    shown = agentlab("show", "out", key).stdout
    assert "no measurement: the language model's endpoint failed (unavailable)" in shown
    assert "goal missed" not in shown
    server.mood = lambda n: "well"
    mended = agentlab(*words, "--retry-failed")
    assert (mended.exit_code, mended.stderr) == (0, "")
    assert "best" in mended.stdout
    assert al.Study.open(tmp_path / "out").runs["success"].all()


def test_the_command_line_without_a_limit(endpoint, tmp_path, words):
    words += ["--lm", endpoint(503).lm(), "--max-lm-errors", "0", "--seeds", "4"]
    found = agentlab(*words)
    assert (found.exit_code, "12 of 12 runs" in found.stderr) == (1, True)


def test_some_that_measured_nothing_are_told_under_the_results(endpoint, tmp_path, words):
    server = endpoint(lambda n: 503 if n == 2 else "well")
    found = agentlab(*words, "--lm", server.lm())
    assert found.exit_code == 1
    assert "1 of 6 runs measured nothing" in found.stderr
    assert "best" in found.stdout


@pytest.mark.parametrize(("mood", "said"), [("keyed", f"set {ENDPOINT_KEY}"), (404, "HTTP 404")])
def test_the_command_line_refuses_what_the_endpoint_refuses(
    endpoint, monkeypatch, words, mood, said
):
    server = endpoint(mood)
    words += ["--lm", server.lm()]
    monkeypatch.setenv(ENDPOINT_KEY, "sk-canary-wrong")
    found = agentlab(*words)
    assert found.exit_code == 2
    assert len(found.stderr.splitlines()) == 1
    assert said in found.stderr
    assert "sk-canary" not in found.stderr + found.stdout
    assert len(server.asked) == 1


def test_a_missing_key_on_the_command_line(words):
    """As a user does it, with the workers of a machine."""
    found = subprocess.run(
        [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()", *words[:-2],
         "--lm", "openai/gpt-4o-mini"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert found.returncode == 2
    assert "set OPENAI_API_KEY" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_the_options_of_the_command_line():
    command = typer.main.get_command(app).commands["eval"]
    [most] = [p for p in command.params if "--max-lm-errors" in p.opts]
    assert most.default == MAX_LM_ERRORS
    assert [p.opts for p in command.params if p.name == "retry_failed"] == [
        ["--retry-failed", "--retry-crashed"]
    ]
