"""Talks: what a run's LM calls leave behind, and that none is made twice."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import agentlab as al
from agentlab.errors import RunError, StoreWriteError
from agentlab.lm.connect import connect
from agentlab.lm.endpoint import ENDPOINT_KEY
from agentlab.lm.engine import Wrapper
from agentlab.lm.model import Model
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import cut_off, rate_limited, refused, scripted
from agentlab.lm.serde import load_dspy, prompt_text
from agentlab.trace.store import Store

dspy = load_dspy()
CANARY = "sk-canary/7f3a+2b9c="


def reply(scenario, without=(), prefix=""):
    """The scenario's reference plan as a model would write it."""
    names = {s.step_id: prefix + s.step_id for s in scenario.reference.steps}

    def renamed(value):
        if not isinstance(value, str):
            return value
        return re.sub(r"\$\{(\w+)", lambda m: "${" + names[m[1]], value)

    steps = [
        {
            "stepId": names[s.step_id], "actionType": "call_tool", "targetResource": s.tool,
            "parameters": {k: renamed(v) for k, v in s.arguments.items()},
            "dependencies": [names[d] for d in s.dependencies if d not in without],
        }
        for s in scenario.reference.steps
        if s.step_id not in without
    ]  # fmt: skip
    answer = renamed(scenario.reference.answer)
    return json.dumps({"summary": prefix or "plan", "steps": steps, "answer": answer})


def lab(scenario, model, **options):
    return al.Lab(scenario, lm=model, **{"planner": "structured", "reflector": "rules", **options})


def finished(scenario, model, **options):
    run = al.autonomous.start(lab(scenario, model, **options))
    run.finish()
    return run


@pytest.fixture
def no_sockets(monkeypatch):
    """Opening a connection fails; the list says who tried."""
    tried = []

    def refuse(self, address):
        tried.append(address)
        raise AssertionError(f"a socket was opened to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    return tried


def text_of(span):
    return "".join(p["text"] for p in span.output["message"]["parts"])


# ---- spans -----------------------------------------------------------------------------------


def test_a_call_leaves_a_span_with_prompt_reply_and_usage(chain):
    scenario = chain(2)
    model = scripted(["no plan", reply(scenario), "It is done."])
    run = finished(scenario, model)
    spans = [s for s in run.spans if s.kind == "lm"]
    assert [text_of(s) for s in spans] == ["no plan", reply(scenario), "It is done."]
    assert [s.name for s in spans] == ["scripted/model"] * 3
    by_id = {s.span_id: s for s in run.spans}
    assert [by_id[s.parent_id].name for s in spans] == ["plan", "plan", "final_response"]
    for span, prompt in zip(spans, model.engine.prompts, strict=True):
        sent = "\n\n".join(
            [span.input["system"], *(m["parts"][0]["text"] for m in span.input["messages"])]
        )
        assert sent == prompt
        assert span.error is None
        assert span.seconds > 0
        assert span.sim_end > span.sim_start
        usage = span.attributes["usage"]
        assert usage["input_tokens"] == len(prompt.split())
        assert usage["output_tokens"] == len(text_of(span).split())
        told = {k: span.attributes[k] for k in ("served", "cost", "attempts", "faults")}
        assert told == {"served": False, "cost": None, "attempts": 1, "faults": []}
    total = [s.attributes["usage"] for s in spans]
    assert run.state.lm_tokens == sum(u["input_tokens"] + u["output_tokens"] for u in total)
    assert run.state.now == run.spans[-1].sim_end or run.state.now >= spans[-1].sim_end


def test_a_call_that_failed_leaves_a_span_too(chain):
    run = finished(chain(2), scripted([rate_limited(2)]))
    [span] = [s for s in run.spans if s.kind == "lm"]
    assert span.output is None
    assert span.error.startswith("LMRateLimited: ")
    assert (run.state.lm_calls, run.state.lm_tokens) == (1, 0)
    assert run.state.now == pytest.approx(0.5)


def test_a_lab_without_a_model_charges_nothing(chain):
    run = al.autonomous.start(al.Lab(chain(2)))
    state = run.finish()
    assert (state.lm_calls, state.lm_tokens) == (0, 0)
    assert [s for s in run.spans if s.kind == "lm"] == []


class Endpoint(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint that repeats the key it was sent in every reply it refuses."""

    daemon_threads = True

    def __init__(self, replies):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.keys = list(replies), []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers.get("Authorization", "")
        self.server.keys.append(key)
        status, said = self.server.replies.pop(0)
        body = {"error": {"message": f"bad key {key}"}} if status != 200 else {
            "id": "x", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": said}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }  # fmt: skip
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize("status", [200, 401])
def test_a_key_is_nowhere(chain, tmp_path, monkeypatch, status):
    """Not in spans, state, journal, recording or what a user sees, also when the endpoint tells."""
    monkeypatch.setenv(ENDPOINT_KEY, CANARY)
    scenario = chain(2)
    server = Endpoint([(status, reply(scenario))])
    try:
        model = connect(f"openai/m@http://127.0.0.1:{server.server_port}/v1", retries=0)
        taped = model.recorded(Recording(tmp_path / "calls.jsonl", "record"))
        run = al.autonomous.start(
            lab(scenario, taped, responder="template"), store=tmp_path / "runs"
        )
        run.finish()
        taped.close()
    finally:
        server.shutdown()
        server.server_close()
    assert CANARY in server.keys[0]
    assert run.verdict.success is (status == 200)
    shown = [json.dumps([s.row() for s in run.spans]), run._repr_html_(), repr(run.lab)]
    shown += [run.state.to_json(), model.describe(), repr(model), run.state.final_response]
    shown += [[e.result, e.error] for e in run.journal.entries.values()]
    assert CANARY not in str(shown)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path
    if status == 200:
        [span] = [s for s in run.spans if s.kind == "lm"]
        assert span.attributes["usage"] == {
            "input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
        }  # fmt: skip
        assert run.state.lm_tokens == 10


# ---- replay ----------------------------------------------------------------------------------

LM_FAULTS = {"lm_malformed": 1.0, "lm_cut_off": 1.0, "lm_refused": 1.0}


def test_a_replay_asks_nobody(chain, no_sockets):
    scenario = chain(3)
    model = scripted(["no plan", reply(scenario), "It is done."])
    run = finished(scenario, model)
    report = run.replay()
    assert (report.identical, report.served, report.divergence) == (True, 3, None)
    assert len(model.engine.requests) == 3
    assert no_sockets == []


@pytest.mark.parametrize(
    "script",
    [
        [rate_limited(1)],
        [refused()],
        [cut_off("{")],
        ["no", rate_limited()],
    ],
)
def test_a_replay_serves_failures_too(chain, script):
    model = scripted(script)
    run = finished(chain(2), model)
    report = run.replay()
    assert report.identical, report.divergence
    assert len(model.engine.requests) == len(script) == report.served


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_meets_the_same_faults(chain, seed):
    """Tool and model faults together; the state counts what struck, so it would show."""
    scenario = chain(3)
    plan = al.FaultPlan(kinds={"error": 1.0, **LM_FAULTS}, rate=0.5)
    model = scripted(lambda r, n: reply(scenario, prefix=f"p{n}_"))
    run = finished(scenario, model, faults=plan, seed=seed, strategy="on_error")
    asked = len(model.engine.requests)
    report = run.replay()
    assert report.identical, report.divergence
    assert len(model.engine.requests) == asked


def test_another_prompt_is_a_difference(chain, monkeypatch):
    scenario = chain(2)
    model = scripted([reply(scenario), "done"])
    run = finished(scenario, model)
    real = run.lab.planner.program.write.signature
    run.lab.planner.program.write.signature = real.with_instructions("Plan otherwise.")
    report = run.replay()
    assert not report.identical
    assert "differs: recorded lm:scripted/model" in report.divergence
    assert report.matched == 1
    assert len(model.engine.requests) == 2


# ---- another reply, another prompt -----------------------------------------------------------


def test_a_fork_goes_on_with_another_reply(chain):
    scenario = chain(3)
    model = scripted(["no plan", reply(scenario), "It is done."])
    run = finished(scenario, model)
    first, second = [s for s in run.spans if s.kind == "lm"][:2]
    assert first.visit == second.visit == 1
    fork = run.fork(at=1, replies={1: reply(chain(2), prefix="other_")})
    fork.step()
    assert len(model.engine.requests) == 3  # nobody was asked: the first call keeps its reply
    assert all(s.step_id.startswith("other_") for s in fork.plan.steps)
    assert fork.lineage.edits == ("replies",)
    assert fork.recorder.of_kind("lm")[0].reply == "no plan"
    mended = run.fork(at=1, replies={0: reply(scenario, prefix="at_once_")})
    mended.step()
    assert mended.state.parse_failures == 0
    assert mended.replay().identical
    assert mended.state.lm_calls == 1
    assert len(model.engine.requests) == 3


def test_a_reply_to_a_call_that_failed(chain):
    scenario = chain(2)
    run = finished(scenario, scripted([rate_limited()] * 3))
    assert run.state.stopped_by == "no_plan"
    fork = run.fork(at=1, replies={0: reply(scenario)})
    fork.step()
    assert len(fork.plan.steps) == 2


def test_no_such_call(chain):
    run = finished(chain(2), scripted([reply(chain(2)), "done"]))
    for at, number in ((1, 1), (1, -1), (2, 0)):
        with pytest.raises(RunError, match=f"got {number}"):
            run.fork(at=at, replies={number: "x"})
    for replies in ("x", ["x"], {0: 3}, {"0": "x"}):
        with pytest.raises(RunError, match="expected"):
            run.fork(at=1, replies=replies)


def test_a_prompt_is_asked_again_with_other_words(chain):
    heard = []

    def answer(request, n):
        heard.append(prompt_text(request))
        return reply(chain(2)) if n < 1 else f"answer {n}"

    run = finished(chain(2), scripted(answer), responder="template")
    call = run.recorder.of_kind("lm")[0]
    spans, state = len(run.spans), run.state
    assert run.ask_again(call) == "answer 1"
    assert heard[1] == heard[0]
    assert run.ask_again(call, "Plan nothing.") == "answer 2"
    assert heard[2].endswith("\n\nPlan nothing.")
    assert heard[2].startswith("Make a plan")
    assert (len(run.spans), run.state) == (spans, state)
    for other in (run.recorder.of_kind("node")[0], 0, call.prompt):
        with pytest.raises(RunError, match="only an LM call"):
            run.ask_again(other)


# ---- forks and repeated requests -------------------------------------------------------------


def taped(model, path, mode="record"):
    return model.recorded(Recording(path, mode))


def occurrences(run):
    return [s.attributes["occurrence"] for s in run.spans if s.kind == "lm"]


def test_a_fork_from_before_the_planner_asks_the_same_again(chain, tmp_path):
    scenario = chain(2)
    model = scripted(
        lambda r, n: reply(scenario) if "## tools" in r.messages[0].text else f"no {n}"
    )
    run = finished(scenario, taped(model, tmp_path / "t.jsonl", "replay_or_call"))
    asked = len(model.engine.requests)
    fork = run.fork(run.visited.index("planning"))
    assert fork.finish() == run.state
    assert occurrences(fork) == occurrences(run) == [0, 0]
    assert len(model.engine.requests) == asked  # the same request, the same occurrence: recorded
    assert all(s.attributes["served"] for s in fork.spans if s.kind == "lm")
    late = run.fork(-1)
    assert late.finish() == run.state
    assert [s.name for s in late.spans if s.kind == "lm"] == ["scripted/model"]


def test_a_run_that_asks_the_same_twice_has_two_occurrences(chain, tmp_path):
    """A reflector asked in the same situation again, and forks in between."""
    scenario = chain(1)
    never = al.FaultPlan(kinds={"error": 1.0}, rate=1.0)
    said = {
        "analysis": "a", "goalAchieved": False, "needReplan": True, "replanReason": "r",
        "suggestions": [],
    }  # fmt: skip

    def answer(request, n):
        return json.dumps(said | {"analysis": f"thought {n}"})

    model = scripted(answer)
    path = tmp_path / "t.jsonl"
    options = {"planner": "search", "reflector": "lm", "responder": "template", "faults": never}
    run = finished(scenario, taped(model, path), **options)
    counts = dict(run.state.lm_requests)
    assert sum(counts.values()) == run.state.lm_calls == len(model.engine.requests) > 1
    for at in range(len(run.visited)):
        mute = taped(Model(model.name, None, supports=model.supports), path, "replay")
        fork = run.fork(at, lab=lab(scenario, mute, **options))
        assert fork.finish() == run.state, at


def test_the_state_of_a_node_is_what_counts(chain):
    """Two runs of one lab share a model and count for themselves."""
    scenario = chain(2)
    model = scripted(lambda r, n: reply(scenario))
    used = lab(scenario, model, responder="template")
    runs = [al.autonomous.start(used) for _ in range(2)]
    for run in (*runs, *runs):
        while not run.finished:
            run.step()
    assert runs[0].state == runs[1].state


# ---- durable runs ----------------------------------------------------------------------------


class Killed(BaseException):
    pass


class Dies(Wrapper):
    """An engine that is killed before or after a call."""

    def __init__(self, inner, at, after):
        super().__init__(inner)
        self.at, self.after, self.n = at, after, 0

    def complete(self, request):
        self.n += 1
        if self.n == self.at and not self.after:
            raise Killed
        return self.inner.complete(request)


def killed_at_checkpoint(monkeypatch, node):
    """Kill a durable run after the visit's calls and before they are in a checkpoint."""
    real = Store.checkpoint

    def checkpoint(self, run, visit, name, *more):
        if name == node:
            raise Killed
        return real(self, run, visit, name, *more)

    monkeypatch.setattr(Store, "checkpoint", checkpoint)


@pytest.mark.parametrize("node", ["planning", "final_response"])
@pytest.mark.parametrize("faults", [0.0, 0.9])
def test_a_call_before_a_kill_is_not_made_again(chain, tmp_path, monkeypatch, node, faults):
    scenario = chain(2)
    plan = al.FaultPlan(kinds={"lm_malformed": 1.0}, rate=faults)

    def answer(request, n):
        return reply(scenario) if "## tools" in request.messages[0].text else "It is done."

    whole = finished(scenario, taped(scripted(answer), tmp_path / "a.jsonl"), faults=plan)
    model = scripted(answer)
    tape = taped(model, tmp_path / "b.jsonl")
    with monkeypatch.context() as patch:
        killed_at_checkpoint(patch, node)
        run = al.autonomous.start(lab(scenario, tape, faults=plan), store=tmp_path / "runs")
        with pytest.raises(Killed):
            run.finish()
    before = len(model.engine.requests)
    calls = [s for s in whole.spans if s.kind == "lm"]
    known = [s for s in calls if s.visit <= whole.visited.index(node)]
    lost = [s for s in known if s.visit == whole.visited.index(node)]
    assert before == len(known) > 0
    run._store.close()
    again = al.Run.resume(tmp_path / "runs", lab(scenario, tape, faults=plan))
    assert again.finish() == whole.state
    lm = [s for s in again.spans if s.kind == "lm"]
    assert len(model.engine.requests) == len(lm)  # each once, whoever made it
    assert sum(s.attributes["served"] for s in lm) == len(lost)
    assert [s.row()[6:10] for s in lm] == [s.row()[6:10] for s in calls]
    told = [{k: s.attributes[k] for k in ("faults", "occurrence")} for s in lm]
    assert told == [{k: s.attributes[k] for k in ("faults", "occurrence")} for s in calls]
    assert again.replay().identical


def test_a_failed_call_before_a_kill_fails_the_same_way(chain, tmp_path, monkeypatch):
    scenario = chain(2)
    whole = finished(scenario, scripted([rate_limited(3)]))
    model = scripted([rate_limited(3), reply(scenario)])
    with monkeypatch.context() as patch:
        killed_at_checkpoint(patch, "planning")
        run = al.autonomous.start(lab(scenario, model), store=tmp_path)
        with pytest.raises(Killed):
            run.finish()
    run._store.close()
    again = al.Run.resume(tmp_path, lab(scenario, model))
    assert again.finish() == whole.state
    assert len(model.engine.requests) == 1


def test_a_call_that_a_kill_cut_off_is_made_again(chain, tmp_path):
    scenario = chain(2)
    model = scripted(lambda r, n: reply(scenario))
    from dataclasses import replace

    dies = replace(model, engine=Dies(model.engine, 1, after=False))
    run = al.autonomous.start(lab(scenario, dies, responder="template"), store=tmp_path)
    with pytest.raises(Killed):
        run.finish()
    run._store.close()
    again = al.Run.resume(tmp_path, lab(scenario, model, responder="template"))
    again.finish()
    assert again.verdict.success
    assert len(model.engine.requests) == 1
    assert (
        again.state == finished(scenario, scripted([reply(scenario)]), responder="template").state
    )


def test_a_resumed_run_with_another_prompt_asks_anew(chain, tmp_path, monkeypatch):
    """A new version of the program has another prompt: the reply to the old one is not its own."""
    scenario = chain(2)
    model = scripted(lambda r, n: reply(scenario))
    with monkeypatch.context() as patch:
        killed_at_checkpoint(patch, "planning")
        run = al.autonomous.start(lab(scenario, model, responder="template"), store=tmp_path)
        with pytest.raises(Killed):
            run.finish()
    run._store.close()
    from agentlab.minds.planners.structured import PlanProgram, Structured

    other = Structured(PlanProgram("Plan otherwise."))
    again = al.Run.resume(tmp_path, lab(scenario, model, planner=other, responder="template"))
    again.finish()
    assert again.verdict.success
    assert len(model.engine.requests) == 2
    assert model.engine.prompts[1].startswith("Plan otherwise.")


def test_what_the_journal_cannot_write_stops_the_run(chain, tmp_path, monkeypatch):
    """A full disk is no reply that does not parse: it is raised, and no further call is made."""
    scenario = chain(2)
    model = scripted(lambda r, n: reply(scenario))
    run = al.autonomous.start(lab(scenario, model), store=tmp_path)
    run.step()

    def full(*arguments):
        raise StoreWriteError("the disk is full")

    monkeypatch.setattr(run.journal, "finish", full)
    with pytest.raises(StoreWriteError, match="the disk is full"):
        run.finish()
    assert len(model.engine.requests) == 1


# ---- threads, loops, dspy's globals ----------------------------------------------------------


def test_64_runs_in_threads_do_not_touch_each_other(chain):
    """By content: each run's plan, prompts and answer hold its own mark and no other's."""
    scenarios = [chain(2 + i % 2, seed=i) for i in range(64)]
    barrier = threading.Barrier(16)

    def one(i):
        mark = f"run{i}x"

        def answer(request, n):
            if "## tools" in request.messages[0].text:
                return reply(scenarios[i], prefix=mark) if n else "not yet"
            return f"{mark} is done"

        model = scripted(answer, name=f"scripted/{mark}")
        barrier.wait(timeout=30)
        return mark, model, finished(scenarios[i], model)

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(one, range(64)))
    for i, (mark, model, run) in enumerate(found):
        assert run.verdict.success
        assert run.state.final_response == f"{mark} is done"
        assert len(model.engine.requests) == run.state.lm_calls == 3
        assert all(s.step_id.startswith(mark) for s in run.plan.steps)
        spans = [s for s in run.spans if s.kind == "lm"]
        assert [s.name for s in spans] == [f"scripted/{mark}"] * 3
        assert all(scenarios[i].task in prompt for prompt in model.engine.prompts)
        marks = set(re.findall(r"run\d+x", "".join(model.engine.prompts)))
        assert marks <= {mark}


@pytest.mark.parametrize("listens", [True, False])
def test_a_reply_is_streamed_where_somebody_listens(chain, listens):
    class Listening:
        def on_token(self, text):
            heard.append(text)

    scenario, heard, streamed = chain(2), [], []
    model = scripted([reply(scenario), "that is done"])
    stream = model.engine.stream
    model.engine.stream = lambda request: streamed.append(request) or stream(request)
    run = finished(scenario, model, handler=Listening() if listens else None)
    assert run.state.final_response == "that is done"
    assert heard == (["that", " is", " done"] if listens else [])
    assert len(streamed) == 2 * listens  # planning streams as thinking


def test_a_run_goes_inside_a_running_event_loop(chain):
    scenario = chain(2)

    async def main():
        run = al.autonomous.start(lab(scenario, scripted([reply(scenario), "done"])))
        run.finish()
        await asyncio.sleep(0)
        return run

    run = asyncio.run(main())
    assert run.verdict.success
    assert run.state.final_response == "done"


def test_runs_of_several_tasks_do_not_meet(chain):
    scenarios = [chain(2, seed=i) for i in range(4)]

    async def one(i):
        run = al.autonomous.start(lab(scenarios[i], scripted([reply(scenarios[i]), f"done {i}"])))
        while not run.finished:
            run.step()
            await asyncio.sleep(0)
        return run.state.final_response

    async def main():
        return await asyncio.gather(*map(one, range(4)))

    assert asyncio.run(main()) == [f"done {i}" for i in range(4)]


def test_nothing_of_dspys_is_changed(chain, monkeypatch):
    def configure(*arguments, **named):
        raise AssertionError("dspy.configure was called")

    monkeypatch.setattr(dspy, "configure", configure)
    monkeypatch.setattr(type(dspy.settings), "configure", configure)
    before = dict(dspy.settings.config)
    scenario = chain(2)
    seen = len(dspy.clients.base_lm.GLOBAL_HISTORY), len(dspy.settings.trace)
    run = al.autonomous.start(lab(scenario, scripted(["no", reply(scenario), "done"])))
    for _ in run.iterate():
        assert dspy.settings.lm is None
    assert run.verdict.success
    assert dict(dspy.settings.config) == before
    assert (len(dspy.clients.base_lm.GLOBAL_HISTORY), len(dspy.settings.trace)) == seen


def test_the_users_own_model_is_not_asked(chain):
    """dspy's LM of the caller's context stays out of a run that has its own, and comes back."""
    scenario = chain(2)
    mine, theirs = scripted([reply(scenario), "done"]), scripted([])
    with dspy.context(lm=theirs.lm()):
        outside = dspy.settings.lm
        assert finished(scenario, mine).verdict.success
        assert dspy.settings.lm is outside
    assert theirs.engine.requests == []


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "</script><b>", "x" * 100_000])
def test_foreign_text_is_kept_as_it_came(chain, tmp_path, text):
    """In a durable run: what a model says is written to disk, shown and read again."""
    plan = json.dumps({"summary": text, "steps": [], "answer": text})
    model = scripted([plan])
    run = al.autonomous.start(lab(chain(2), model, responder="template"), store=tmp_path)
    run.finish()
    assert run.state.answer == text
    run._store.close()
    again = al.Run.resume(tmp_path, lab(chain(2), model, responder="template"))
    assert again.state.answer == text
    assert again.replay().identical
