"""Threads that wait for language models, here and in several processes, against one of each."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import cloudpickle
import pandas as pd
import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite
from agentlab.errors import ConfigError, StudyError
from agentlab.lab.named import connected
from agentlab.lm.recording import Recording
from agentlab.minds.planners.structured import Structured
from agentlab.study.cells import Runner
from agentlab.study.threads import THREADS, default_threads

SUITE = Suite("three", [generate("medium", i, length=2 + i) for i in range(3)])
FAULTS = al.FaultPlan(kinds={"error": 1.0, "lm_malformed": 1.0, "lm_cut_off": 1.0})


def reply(scenario, mark=""):
    """The scenario's reference plan as a model would write it, each step with a mark."""
    steps = [
        {
            "stepId": mark + s.step_id, "actionType": "call_tool", "targetResource": s.tool,
            "parameters": s.arguments, "dependencies": [mark + d for d in s.dependencies],
        }
        for s in scenario.reference.steps
    ]  # fmt: skip
    plan = json.dumps({"summary": "plan", "steps": steps, "answer": scenario.reference.answer})
    return plan.replace("${", "${" + mark)


def script(path, mark="", delay=0.0):
    """The name of a scripted model that plans by the book."""
    rules = [
        {"when": f"## task\n{re.escape(s.task)}\n", "say": reply(s, mark), "delay": delay}
        for s in SUITE
    ]
    rules.append({"when": "## question", "say": f"{mark} is done.", "delay": delay})
    path.write_text(json.dumps(rules))
    return f"scripted:{path}"


@pytest.fixture
def lm(tmp_path):
    return script(tmp_path / "script.json")


def study(lm, out, **options):
    arms = al.grid(planner=["structured", "search"], strategy=["never", "retry(2)"], lm=lm)
    arms += al.grid(planner="search")
    options = {"fault_rate": [0.0, 0.3], "seeds": 3, "faults": FAULTS, "arms": arms, **options}
    return al.Study(options.pop("arms"), SUITE, out=out, **options)


def calm_study(lm, out, seeds, planner="structured"):
    """A study without faults and controls of one planner that asks."""
    arms = al.grid(planner=planner, lm=lm)
    return al.Study(arms, SUITE, out=out, seeds=seeds, fault_rate=0.0, controls=False)


def told(made):
    """All that a study came to, but for wall times and the order in which it was written."""
    spans = made.spans.sort_values(["cell", "span_id"]).reset_index(drop=True)
    spans["attributes"] = spans["attributes"].map(json.dumps)
    return made.runs.drop(columns="wall_seconds"), spans.drop(columns=["started", "seconds"])


def stored(folder):
    """The keys of the cells that were written; none before there is a table."""
    try:
        with closing(sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True)) as connection:
            return [row[0] for row in connection.execute("SELECT cell FROM cells")]
    except sqlite3.OperationalError:
        return []


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The study of one process and one thread; its model."""
    folder = tmp_path_factory.mktemp("calm")
    lm = script(folder / "script.json")
    made = study(lm, folder / "out")
    made.run(processes=1, threads=1)
    return lm, told(made)


# ---- what it comes to ------------------------------------------------------------------------


@pytest.mark.parametrize(("processes", "threads"), [(1, 24), (2, 40)])
def test_threads_make_no_difference(calm, tmp_path, processes, threads):
    lm, (runs, spans) = calm
    made = study(lm, tmp_path)
    made.run(processes=processes, threads=threads)
    mine, my_spans = told(made)
    assert runs["status"].eq("done").all()
    assert runs["lm_calls"].sum() > 100
    pd.testing.assert_frame_equal(mine, runs)
    pd.testing.assert_frame_equal(my_spans, spans)
    assert len(stored(tmp_path)) == len(set(stored(tmp_path))) == len(made._keyed())


@pytest.mark.parametrize(("processes", "threads"), [(1, 24), (2, 40)])
def test_a_recording_is_the_same_whoever_writes_it(lm, tmp_path, processes, threads):
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    study(lm, tmp_path / "a", record=one).run(processes=1, threads=1)
    made = study(lm, tmp_path / "b", record=many)
    made.run(processes=processes, threads=threads)
    assert one.read_bytes() == many.read_bytes()
    asked = len(connected(lm).engine.requests)
    again = study(lm, tmp_path / "c", record=many)
    again.run(processes=processes, threads=threads)
    assert again.lm_calls["served"].all()
    assert len(connected(lm).engine.requests) == asked
    assert one.read_bytes() == many.read_bytes()
    pd.testing.assert_frame_equal(told(made)[0], told(again)[0])
    arms = al.grid(planner="structured", strategy=["never", "retry(2)"], lm=f"recorded:{many}")
    alone = study(lm, tmp_path / "d", arms=arms)
    runs = alone.run(processes=processes, threads=threads)
    asked_for = ["scenario", "strategy", "seed", "fault_rate", "success", "answer", "lm_tokens"]
    mine = made.runs[made.runs["lm"].notna() & (made.runs["planner"] == "structured")]
    by = asked_for[:4]
    pd.testing.assert_frame_equal(
        *(r[asked_for].sort_values(by).reset_index(drop=True) for r in (runs, mine))
    )
    assert len(Recording(many)) == len(Recording(one))


@pytest.mark.parametrize("processes", [1, 2])
def test_64_arms_in_64_threads_do_not_touch_each_other(tmp_path, processes):
    """By content: prompts, replies, steps and answers hold the mark of their arm and no other's."""
    marks = [f"arm{i}x" for i in range(64)]
    lms = {script(tmp_path / f"{m}.json", m, delay=0.02): m for m in marks}
    made = calm_study(list(lms), tmp_path / "out", 1)
    runs = made.run(processes=processes, threads=64)
    assert len(runs) == 64 * 3
    assert runs["success"].all()
    spans = made.spans
    for lm, mine in spans[spans["kind"] == "lm"].groupby("lm"):
        text = json.dumps([*mine["input"], *mine["output"]])
        assert set(re.findall(r"arm\d+x", text)) == {lms[lm]}
    steps = spans[spans["kind"] == "step"]
    assert all(row.step_id.startswith(lms[row.lm]) for row in steps.itertuples())


# ---- who waits -------------------------------------------------------------------------------


class Meeting(Structured):
    """Plans when a dozen ask at once; notes in which threads, and how many there ever were."""

    def __init__(self):
        super().__init__()
        self.name, self.threads, self.under_way, self.most = "meeting", set(), 0, 0
        self.lock, self.all_here = threading.Lock(), threading.Barrier(12, timeout=60)

    def __reduce__(self):
        return Meeting, ()

    def plan(self, request, bench):
        with self.lock:
            self.threads.add(threading.current_thread())
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            self.all_here.wait()
            return super().plan(request, bench)
        finally:
            with self.lock:
                self.under_way -= 1


def test_as_many_ask_at_once_as_there_are_threads_and_those_end(lm, tmp_path):
    planner = Meeting()
    runs = calm_study(lm, tmp_path / "out", 8, planner).run(processes=1, threads=12)
    assert runs["success"].all(), runs["error"].tolist()
    assert planner.most == len(planner.threads) == 12
    for thread in planner.threads:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_what_asks_nobody_is_computed_as_ever(lm, tmp_path, monkeypatch):
    batches = []
    run_all = Runner.run_all
    monkeypatch.setattr(
        Runner, "run_all", lambda self, cells: batches.append(cells) or run_all(self, cells)
    )
    made = study(lm, tmp_path, seeds=1)
    made.run(processes=1, threads=8)
    computed = [cell for batch in batches for _, cell in batch]
    assert {cell.role for cell in computed} == {"arm", "floor", "ceiling"}
    assert all(cell.arm is None or cell.arm.lm is None for cell in computed)
    asking = made.runs["lm"].notna().sum()
    assert len(computed) == len(made._keyed()) - asking > 0


@pytest.mark.parametrize(
    ("lms", "expected"),
    [
        ([], 1),
        (["scripted:x.json", "ollama_chat/qwen2.5"], 1),
        (["openai/x@http://127.0.0.1:8765/v1", "openai/x@http://localhost/v1"], 1),
        (["openai/x@http://[::1]:80/v1"], 1),
        (["openai/gpt-4o-mini"], THREADS),
        (["openai/x@https://example.org/v1"], THREADS),
        (["openai/x@http://localhost.example.org/v1"], THREADS),
        (["scripted:x.json", "openai/gpt-4o-mini"], THREADS),
    ],
)
def test_who_is_far_is_asked_by_several_at_once(lms, expected):
    assert default_threads(lms) == expected


def test_no_thread_is_too_few(lm, tmp_path):
    with pytest.raises(ConfigError, match="number of threads from 1 to 1,000"):
        study(lm, tmp_path).run(processes=1, threads=0)


# ---- what breaks -----------------------------------------------------------------------------


class Panic(BaseException):
    """As a native extension's is."""


RAISED = {
    "cell": ZeroDivisionError("a bug"),
    "exit": SystemExit(3),
    "memory": MemoryError("too much"),
    "panic": Panic("no bounds"),
    "group": BaseExceptionGroup("two", [Panic("one"), ValueError("another")]),
    "interrupt": KeyboardInterrupt(),
}


class Breaking(Structured):
    """Breaks for some seeds, as long as a file is there."""

    def __init__(self, how, path):
        super().__init__()
        self.name, self.how, self.path = f"breaking-{how}", how, path

    def __reduce__(self):
        return Breaking, (self.how, self.path)

    def plan(self, request, bench):
        if request.seed == 3 and self.path.exists():
            end = time.monotonic() + 60
            while self.how in ("process", "interrupt") and time.monotonic() < end:
                time.sleep(0.05)
                if stored(self.path.parent / "out"):  # some are finished
                    break
            if self.how == "process":
                os._exit(7)
            raise RAISED[self.how]
        return super().plan(request, bench)


@pytest.fixture(autouse=True)
def by_value():
    """Workers cannot import this file: it is no module of a package that is installed."""
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)
    yield
    cloudpickle.unregister_pickle_by_value(here)


def breaking(lm, tmp_path, how):
    path = tmp_path / "break"
    path.touch()
    return path, calm_study(lm, tmp_path / "out", 8, Breaking(how, path))


@pytest.mark.parametrize(
    ("how", "processes", "threads"),
    [("cell", 1, 8), ("cell", 2, 24), ("exit", 1, 1), ("exit", 1, 8), ("exit", 2, 24),
     ("memory", 1, 1), ("panic", 1, 8), ("panic", 2, 1), ("group", 1, 1)],
)  # fmt: skip
def test_a_cell_that_crashes_takes_no_other_along(lm, tmp_path, how, processes, threads):
    _, made = breaking(lm, tmp_path, how)
    runs = made.run(processes=processes, threads=threads).set_index("seed")
    assert (runs["status"] == "crashed").equals(pd.Series(runs.index == 3, runs.index))
    assert set(runs.loc[3, "error"]) == {f"{type(RAISED[how]).__name__}: {RAISED[how]}"}
    assert runs.drop(index=3)["success"].all()


@pytest.mark.parametrize(
    ("how", "processes", "threads", "raised"),
    [
        ("interrupt", 1, 4, KeyboardInterrupt),
        ("process", 2, 17, StudyError),
    ],
)
def test_what_ends_a_worker_stops_the_study_and_keeps_what_is_finished(
    lm, tmp_path, how, processes, threads, raised
):
    path, made = breaking(lm, tmp_path, how)
    with pytest.raises(raised) as caught:
        made.run(processes=processes, threads=threads)
    if raised is StudyError:
        assert "a worker process died (exit code 7)" in str(caught.value)
    kept = stored(tmp_path / "out")
    assert 0 < len(kept) < 24
    path.unlink()
    runs = made.run(processes=processes, threads=threads)
    assert len(runs) == len(stored(tmp_path / "out")) == 24
    assert runs["success"].all()


@pytest.mark.parametrize(("processes", "threads"), [(1, 4), (2, 17)])
def test_a_study_that_is_stopped_keeps_what_is_finished(tmp_path, processes, threads):
    lm = script(tmp_path / "script.json", delay=0.05)
    made = calm_study(lm, tmp_path / "out", 12)

    def stop(finished, total, rate):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        made.run(processes=processes, threads=threads, progress=stop)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive()  # it does not go on to ask, and pay
    kept = set(stored(tmp_path / "out"))
    assert 0 < len(kept) < 36
    asked = len(connected(lm).engine.requests)
    assert processes > 1 or 0 < asked <= 2 * (len(kept) + threads)
    assert len(made.run(processes=processes, threads=threads)) == 36
    assert len(stored(tmp_path / "out")) == 36


def living(session):
    """The processes of a session that are not finished."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["interrupt", "kill"])
@pytest.mark.parametrize(("processes", "threads"), [("2", "8"), ("2", "40")])
def test_a_command_that_ends_leaves_no_worker_behind(tmp_path, how, processes, threads):
    suite, out = tmp_path / "three.jsonl", tmp_path / "out"
    suite.write_text("".join(json.dumps(s.to_json()) + "\n" for s in SUITE))
    words = [
        "eval", str(suite), "--planner", "structured", "--lm", script(tmp_path / "s.json", "", 0.2),
        "--strategy", "never", "--seeds", "200", "--fault-rate", "0", "--no-controls",
        "--processes", processes, "--threads", threads, "--out", str(out),
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()", *words],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    for _ in range(6000):
        assert process.poll() is None, process.stderr.read()
        if len(stored(out)) > 10:
            break
        time.sleep(0.01)
    if how == "interrupt":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    _, err = process.communicate(timeout=60)
    if how == "interrupt":
        assert process.returncode == 130
        assert re.fullmatch(r"interrupted; \d+ finished runs are kept in .*\n", err)
    for _ in range(100):
        if not living(process.pid):
            return
        time.sleep(0.1)
    left = living(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"workers live on: {left}")
