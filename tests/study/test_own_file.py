"""One file of a user's, and each kind in it is a study arm from the command line."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agentlab as al
from agentlab.base.registry import registry
from agentlab.environments.suites import Suite, write_suite

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
BLOCKS = [(m[1], m[2]) for m in FENCED.finditer(PAGE.read_text(encoding="utf-8"))]
[MINE] = [text for kind, text in BLOCKS if kind == "python"]
COMMAND = (sys.executable, "-c", "from agentlab.views.cli.cli import main; main()")


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    scenarios = [s.replace(environment="mine:Rack") for s in al.load_suite("chain")[:3]]
    write_suite(Suite("racks", scenarios), tmp_path / "racks.jsonl")
    return tmp_path


def agentlab(here: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [*COMMAND, *words], cwd=here, capture_output=True, text=True, check=False, timeout=200,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_each_kind_is_an_arm_by_module_and_attribute(here):
    agentlab(
        here, "eval", "racks.jsonl", "--planner", "mine:Rested(seconds=100)",
        "--planner", "search", "--strategy", "mine:dogged(k=3)", "--workflow",
        "autonomous,mine:flow", "--seeds", "1", "--fault-rate", "0", "--out", "out",
        "--processes", "2",
    )  # fmt: skip
    runs = al.Study.open(here / "out").runs
    assert set(runs["status"]) == {"done"}, runs["error"].tolist()
    assert set(runs["workflow"]) == {"autonomous", "mine:flow"}
    assert set(runs["strategy"]) == {"mine:dogged(k=3)"}
    rested = runs[runs["planner"] == "mine:Rested(seconds=100)"]
    searched = runs[runs["planner"] == "search"]
    assert rested["success"].all()
    assert rested["sim_seconds"].min() >= searched["sim_seconds"].min() + 100  # the action
    assert set(runs["environment"]) == {"mine:Rack"}
    key = rested[rested["workflow"] == "mine:flow"]["cell"].iloc[0]
    assert "identical" in agentlab(here, "replay", "out", key)


def test_the_command_of_the_page_runs(here):
    [command] = [
        line for kind, text in BLOCKS if kind == "bash"
        for line in text.splitlines() if line.startswith("agentlab ")
    ]  # fmt: skip
    agentlab(here, *shlex.split(command)[1:])
    runs = al.Study.open(here / "results" / "mine").runs
    assert set(runs["status"]) == {"done"}
    assert {"mine:flow", "mine:Rested(seconds=5)"} <= {*runs["workflow"], *runs["planner"]}


def test_what_the_node_keeps_is_stored_and_replayed(here, monkeypatch, fresh_names):
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    lab = al.Lab(al.load_suite("chain")[0], planner="mine:Rested", strategy="mine:dogged")
    run = registry("workflow").build("mine:flow").start(lab, store=here / "store")
    run.finish()
    assert run.state.notes["counting"] == {"visits": 1, "seen": [0]}
    again = al.Run.resume(here / "store", lab, workflow=run.workflow)
    assert again.state.notes == run.state.notes
    assert again.replay().identical
    at = run.visited.index("plan_execution")
    assert run.fork(at=at).state.notes == run.state.notes
    monkeypatch.delitem(sys.modules, "mine")


@pytest.mark.slow
def test_a_study_file_names_them_and_a_killed_one_goes_on(here):
    (here / "study.yaml").write_text(
        "suite: racks.jsonl\nplanner: [mine:Rested, search]\nstrategy: mine:dogged(2)\n"
        "workflow: mine:flow\nfault_rate: 0\nseeds: 40\nout: out\n"
    )
    words = [*COMMAND, "eval", "study.yaml", "--processes", "1", "--no-controls"]
    under_way = subprocess.Popen(words, cwd=here)
    before, until = 0, time.monotonic() + 60
    while before < 2:
        assert under_way.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
        before = finished(here / "out")
    os.kill(under_way.pid, signal.SIGKILL)
    under_way.wait()
    before = finished(here / "out")
    assert before < 240
    agentlab(here, *words[len(COMMAND) :])
    runs = al.Study.open(here / "out").runs
    assert (len(runs), set(runs["status"])) == (240, {"done"})
    (here / "mine.py").unlink()
    assert "mine:Rested" in agentlab(here, "show", "out")
    agentlab(here, "report", "out")
    assert "there is no module 'mine'" in agentlab(here, *words[len(COMMAND) :], code=2)


def finished(out: Path) -> int:
    try:
        with sqlite3.connect(f"file:{out / 'study.db'}?mode=ro", uri=True) as store:
            return int(store.execute("SELECT count(*) FROM cells").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.slow
def test_a_kept_run_finds_its_workflow_again(here):
    (here / "plan.json").write_text('[{"stepId": "w", "actionType": "aggregate", "name": "w"}]')
    (here / "agents.yaml").write_text("agents:\n  - id: me\n")
    words = ("run", "wait", "--agent", "agents.yaml:me", "--workflow", "mine:flow")
    agentlab(here, *words, "--plan", "plan.json", "--out", "kept")
    assert " flow " in agentlab(here, "show", "kept", "--full") + agentlab(here, "replay", "kept")
    assert "had ended" in agentlab(here, "resume", "kept")


def test_a_mistake_names_the_nearest(here):
    said = agentlab(here, "eval", "racks.jsonl", "--planner", "mine:Restd", code=2)
    assert "module 'mine': unknown planner 'Restd'; did you mean 'Rested'" in said
    assert "Traceback" not in said
