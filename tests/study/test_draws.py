"""A seed is a draw: what seeds, arms, threads, processes and resumed studies share of a model.

The model is a server that answers no two requests alike, so a reply tells by itself which request
it came from, and requests that reached the server are counted.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite
from agentlab.lm.connect import connect
from agentlab.lm.recording import Recording
from agentlab.study.cells import Runner
from agentlab.study.pool import _Pace, _together

SUITE = Suite("three", [generate("easy", i, length=2 + i) for i in range(3)])
SEEDS = 4
WAYS = [(1, 1), (1, 8), (2, 1), (2, 32)]
"""(processes, threads): here, in threads, in batches of two workers, in threads of two workers."""


class Sampler(ThreadingHTTPServer):
    """Plays an endpoint whose every reply is a draw of its own."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.draws = threading.Lock(), 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def name(self, **settings):
        asked = "&".join(f"{k}={v}" for k, v in settings.items())
        return f"openai/m{'?' if asked else ''}{asked}@http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = json.dumps(json.loads(text), ensure_ascii=False)
        scenario = next((s for s in SUITE if s.task in asked), None)
        if scenario is None:  # a study asks whether anyone is there
            self.answer("ready")
            return
        with self.server.lock:
            self.server.draws += 1
            draw = self.server.draws
        steps = [
            {
                "stepId": s.step_id, "actionType": "call_tool", "targetResource": s.tool,
                "parameters": s.arguments, "dependencies": list(s.dependencies),
            }
            for s in scenario.reference.steps
        ]  # fmt: skip
        plan = {"summary": f"draw {draw}", "steps": steps, "answer": scenario.reference.answer}
        self.answer(json.dumps(plan))

    def answer(self, text):
        message = {"role": "assistant", "content": text}
        data = json.dumps({
            "id": "r", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def sampler(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    server = Sampler()
    yield server
    server.shutdown()
    server.server_close()


def study(lm, out, **options):
    axes = {"strategy": ["never", "retry(2)"], **options.pop("axes", {})}
    arms = al.grid(planner="structured", reflector="rules", responder="template", lm=lm, **axes)
    return al.Study(
        arms, SUITE, out=out, controls=False, **{"fault_rate": 0, "seeds": SEEDS, **options}
    )


def draws(made, *by):
    """The different replies of each group of calls."""
    return made.lm_calls.groupby(list(by))["reply"].agg(frozenset)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- live and recorded -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "temperature"), [*((way, 1) for way in WAYS), (WAYS[0], 0)], ids=str
)
def test_every_seed_is_a_draw_and_arms_share_it(sampler, tmp_path, way, temperature):
    tape = tmp_path / "calls.jsonl"
    made = study(sampler.name(temperature=temperature), tmp_path / "out", record=tape)
    made.run(processes=way[0], threads=way[1])
    assert (made.runs["status"] == "done").all(), made.runs["error"].to_list()
    assert draws(made, "scenario").map(len).tolist() == [SEEDS] * 3
    shared = draws(made, "scenario", "seed")
    assert shared.map(len).tolist() == [1] * 3 * SEEDS  # of two arms
    assert sampler.draws == 3 * SEEDS
    assert Counter(line["seed"] for line in lines(tape)) == dict.fromkeys(range(SEEDS), 3)
    told = {line["response"]["message"]["parts"][0]["text"]: line["seed"] for line in lines(tape)}
    for row in made.lm_calls.itertuples():
        assert told[row.reply] == row.seed


@pytest.mark.parametrize("way", [(1, 8), (2, 1)], ids=str)
def test_a_live_study_draws_for_every_run(sampler, tmp_path, way):
    """No cache stands between: neither dspy's nor the connection's, at any temperature."""
    made = study(sampler.name(), tmp_path / "out")
    runs = made.run(processes=way[0], threads=way[1])
    assert (runs["status"] == "done").all(), runs["error"].to_list()
    assert sampler.draws == len(runs) == 2 * 3 * SEEDS
    assert made.lm_calls["reply"].nunique() == len(runs)
    assert not made.lm_calls["served"].any()


def test_what_was_drawn_is_replayed_seed_by_seed(sampler, tmp_path):
    tape = tmp_path / "calls.jsonl"
    first = study(sampler.name(), tmp_path / "one", record=tape)
    first.run(processes=1, threads=4)
    asked, text = sampler.draws, tape.read_bytes()
    by = ["scenario", "seed", "strategy"]
    for number, options in enumerate([
        {"lm": sampler.name(), "record": tape}, {"lm": f"recorded:{tape}"},
    ]):  # fmt: skip
        again = study(out=tmp_path / f"again{number}", **options)
        again.run(processes=1)
        pd.testing.assert_series_equal(draws(first, *by), draws(again, *by))
    assert (sampler.draws, tape.read_bytes()) == (asked, text)


def test_rates_and_arms_of_one_seed_share_across_studies(sampler, tmp_path):
    tape = tmp_path / "calls.jsonl"
    study(sampler.name(), tmp_path / "one", record=tape).run(processes=1)
    asked = sampler.draws
    other = study(
        sampler.name(), tmp_path / "two", record=tape, fault_rate=[0, 0.3],
        axes={"strategy": ["never", "on_error(replans=0)"]},
    )  # fmt: skip
    other.run(processes=1)
    assert sampler.draws == asked
    assert draws(other, "scenario", "seed").map(len).eq(1).all()


# ---- resumed and grown -----------------------------------------------------------------------


@pytest.mark.parametrize("way", [(1, 8), (2, 1)], ids=str)
def test_a_study_that_gains_seeds_asks_for_those_alone(sampler, tmp_path, way):
    tape, options = tmp_path / "calls.jsonl", {"processes": way[0], "threads": way[1]}
    half = study(sampler.name(), tmp_path / "out", record=tape, seeds=2)
    half.run(**options)
    before, asked = draws(half, "scenario", "seed"), sampler.draws
    known = tape.read_bytes().splitlines()
    whole = study(sampler.name(), tmp_path / "out", record=tape)
    whole.run(**options)
    after = draws(whole, "scenario", "seed")
    assert (asked, sampler.draws) == (3 * 2, 3 * SEEDS)
    pd.testing.assert_series_equal(after[before.index], before)
    assert set(known) < set(tape.read_bytes().splitlines())


def test_a_study_that_was_stopped_goes_on_with_its_draws(sampler, tmp_path, monkeypatch):
    tape, ran = tmp_path / "calls.jsonl", Runner.run
    done = []

    def run(self, key, cell):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(key)
        return ran(self, key, cell)

    monkeypatch.setattr(Runner, "run", run)
    stopped = study(sampler.name(), tmp_path / "out", record=tape)
    with pytest.raises(KeyboardInterrupt):
        stopped.run(processes=1, threads=1)
    assert 0 < sampler.draws < 3 * SEEDS
    monkeypatch.setattr(Runner, "run", ran)
    made = study(sampler.name(), tmp_path / "out", record=tape)
    made.run(processes=1, threads=1)
    assert sampler.draws == 3 * SEEDS
    assert draws(made, "scenario", "seed").map(len).eq(1).all()
    assert draws(made, "scenario").map(len).eq(SEEDS).all()


# ---- lines without a seed --------------------------------------------------------------------


def seedless(path, keep=lambda line: True):
    """Make a recording what an older version would have written of its calls of seed 0."""
    kept = [line for line in lines(path) if line["seed"] == 0 and keep(line)]
    for line in kept:
        del line["seed"]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))


def test_a_line_without_a_seed_is_of_every_seed(sampler, tmp_path):
    tape = tmp_path / "calls.jsonl"
    study(sampler.name(), tmp_path / "one", record=tape, seeds=1).run(processes=1)
    seedless(tape)
    asked, text = sampler.draws, tape.read_bytes()
    for options in ({"lm": sampler.name(), "record": tape}, {"lm": f"recorded:{tape}"}):
        made = study(out=tmp_path / options["lm"][:5], **options)
        told = r"calls\.jsonl: 3 of 3 calls were recorded without a seed, and 4 seeds are served"
        with pytest.warns(UserWarning, match=told):
            made.run(processes=1)
        assert (made.runs["status"] == "done").all()
        assert draws(made, "scenario").map(len).eq(1).all()
    assert (sampler.draws, tape.read_bytes()) == (asked, text)
    alone = study(sampler.name(), tmp_path / "alone", record=tape, seeds=[5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone.run(processes=1)  # one seed: nothing is repeated
    assert sampler.draws == asked


def test_lines_with_and_without_seeds_mix(sampler, tmp_path):
    tape = tmp_path / "calls.jsonl"
    study(sampler.name(), tmp_path / "one", record=tape, seeds=1).run(processes=1)
    first = lines(tape)[0]["key"]
    seedless(tape, lambda line: line["key"] == first)
    asked = sampler.draws
    made = study(sampler.name(), tmp_path / "two", record=tape)
    with pytest.warns(UserWarning, match="1 of 1 calls were recorded without a seed"):
        made.run(processes=2, threads=32)
    assert sampler.draws == asked + 2 * SEEDS  # the scenario that has a line asks nothing
    assert sorted(draws(made, "scenario").map(len)) == [1, SEEDS, SEEDS]
    seeds = [line.get("seed") for line in lines(tape)]
    assert Counter(seeds) == {None: 1, **dict.fromkeys(range(SEEDS), 2)}


def test_a_miss_names_the_seed(sampler, tmp_path):
    tape = tmp_path / "calls.jsonl"
    study(sampler.name(), tmp_path / "one", record=tape, seeds=2).run(processes=1)
    made = study(f"recorded:{tape}", tmp_path / "two", seeds=[1, 7])
    runs = made.run(processes=1)
    assert dict(runs.groupby("seed")["success"].mean()) == {1: 1.0, 7: 0.0}
    missed = runs[runs["seed"] == 7]
    assert (missed["lm_misses"] > 0).all()
    told = r"\(asked once in this run, seed 7\): it holds some for seeds 0, 1, and each seed"
    assert missed["error"].str.contains(told).all(), missed["error"].iloc[0]


# ---- single runs -----------------------------------------------------------------------------


def test_a_run_draws_with_its_seed_and_so_does_its_fork(sampler, tmp_path):
    tape = tmp_path / "calls.jsonl"

    def lab(seed, mode="replay_or_call"):
        model = connect(sampler.name()).recorded(Recording(tape, mode))
        return al.Lab(
            SUITE[0], planner="structured", lm=model, seed=seed, reflector="rules",
            responder="template", strategy="never",
        )  # fmt: skip

    def said(run):
        run.finish()
        [call] = [s for s in run.spans if s.kind == "lm"]
        return call.output["message"]["parts"][0]["text"]

    replies = [said(al.autonomous.start(lab(seed))) for seed in (0, 1, 0, 1)]
    assert replies[:2] == replies[2:]
    assert replies[0] != replies[1]
    assert sampler.draws == 2
    run = al.autonomous.start(lab(1, "replay"))
    assert said(run) == replies[1]
    [call] = [s for s in run.spans if s.kind == "lm"]
    assert run.ask_again(call) == replies[1]  # of seed 1, not that of 0
    fork = run.fork(at=0, seed=0)
    assert said(fork) == replies[0]
    assert run.replay().identical
    assert fork.replay().identical
    assert sampler.draws == 2
    lost = al.autonomous.start(lab(2, "replay"))
    lost.finish()
    assert "seed 2): it holds some for seeds 0, 1" in lost.state.error


# ---- who computes what -----------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 9.0])
def test_cells_that_may_share_a_reply_are_never_parted(tmp_path, processes, seconds):
    made = study("openai/m@http://127.0.0.1:9/v1", tmp_path, seeds=3, fault_rate=[0, 0.5])
    todo = list(made._keyed().items())
    runner = Runner(None, True, Recording(tmp_path / "calls.jsonl", "replay_or_call"))
    for used, size in ((runner, 4), (Runner(None), 1)):
        groups = _together(todo, used)
        assert {len(g) for g in groups} == {size}
        pace = _Pace(processes)
        pace.seconds = seconds
        batches = list(pace.batches(groups))
        assert sorted(k for b in batches for k, _ in b) == sorted(k for k, _ in todo)
        place = {k: n for n, b in enumerate(batches) for k, _ in b}
        assert all(len({place[k] for k, _ in g}) == 1 for g in groups)
    assert all(len({(c.scenario.id, c.seed) for _, c in g}) == 1 for g in _together(todo, runner))
