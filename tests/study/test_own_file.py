"""One file of a user's, and each kind in it is a study arm from the command line."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agentlab as al
from agentlab.environments.suites import Suite, write_suite

MINE = '''
import agentlab as al
from agentlab.lab.bench import Action, StepOutcome
from agentlab.environments.chain import Chain
from agentlab.minds.base import checked_plan
from agentlab.minds.planners.search import Search
from agentlab.state.state import UnderWay


@al.register("action", "wait")
class Wait(Action):
    """Let simulated time pass."""

    type = "wait"
    input_fields = {"seconds": "how long"}
    result_form = "null"

    def begin(self, state, bench, step, parameters, attempt):
        return state, UnderWay(
            step_id=step.step_id, action_type=self.type, attempt=attempt,
            submission=state.submissions, arguments=parameters, started=state.now,
            finishes=state.now + parameters["seconds"],
        )

    def finish(self, state, bench, under_way):
        return state, StepOutcome()


class Greedy(Search):
    def __init__(self, k=1):
        super().__init__()
        self.k = k


class Waiting:
    def plan(self, request, bench):
        step = {"stepId": "w", "name": "w", "actionType": "wait", "parameters": {"seconds": 100}}
        return checked_plan({"steps": [step]}, request, bench)


def dogged(k=1):
    return al.Strategy(f"dogged({k})", lambda point, state, step_id=None: None, None)


class Rack(Chain):
    name = "rack"


@al.node
def late(state, lab):
    import time

    time.sleep(0.2)
    return state


flow = al.Workflow(
    "late-flow", [late, *al.autonomous.nodes.values()],
    {"late": "load_config", **al.autonomous.routers}, "late",
)
'''
COMMAND = (sys.executable, "-c", "from agentlab.views.cli.cli import main; main()")


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / "mymod.py").write_text(MINE)
    scenarios = [s.replace(environment="mymod:Rack") for s in al.load_suite("chain")[:3]]
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
        here, "eval", "racks.jsonl", "--planner", "mymod:Greedy(k=2)", "--planner", "mymod:Waiting",
        "--strategy", "mymod:dogged(k=3)", "--workflow", "autonomous,mymod:flow", "--seeds", "1",
        "--fault-rate", "0", "--out", "out", "--processes", "2",
    )  # fmt: skip
    runs = al.Study.open(here / "out").runs
    assert set(runs["status"]) == {"done"}, runs["error"].tolist()
    assert set(runs["workflow"]) == {"autonomous", "mymod:flow"}
    assert set(runs["strategy"]) == {"mymod:dogged(k=3)"}
    greedy = runs[runs["planner"] == "mymod:Greedy(k=2)"]
    assert greedy["success"].all()
    assert (runs[runs["planner"] == "mymod:Waiting"]["sim_seconds"] == 100).all()  # the action
    assert set(runs["environment"]) == {"mymod:Rack"}
    key = greedy["cell"].iloc[0]
    assert "identical" in agentlab(here, "replay", "out", key)


@pytest.mark.slow
def test_a_study_file_names_them_and_a_killed_one_goes_on(here):
    (here / "mine.yaml").write_text(
        "suite: racks.jsonl\nplanner: [mymod:Greedy, search]\nstrategy: mymod:dogged(2)\n"
        "workflow: mymod:flow\nfault_rate: 0\nseeds: 3\nout: out\n"
    )
    words = [*COMMAND, "eval", "mine.yaml", "--processes", "1", "--no-controls"]
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
    assert before < 18
    since = time.time()
    agentlab(here, *words[len(COMMAND) :])
    runs = al.Study.open(here / "out").runs
    assert (len(runs), set(runs["status"])) == (18, {"done"})
    assert time.time() - since > 0.2 * (18 - before)  # those that were left, and they ran
    (here / "mymod.py").unlink()
    assert "mymod:Greedy" in agentlab(here, "show", "out")
    agentlab(here, "report", "out")
    assert "there is no module 'mymod'" in agentlab(here, *words[len(COMMAND) :], code=2)


def finished(out: Path) -> int:
    try:
        with sqlite3.connect(f"file:{out / 'study.db'}?mode=ro", uri=True) as store:
            return int(store.execute("SELECT count(*) FROM cells").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


@pytest.mark.slow
def test_a_kept_run_finds_its_workflow_again(here):
    (here / "plan.json").write_text('[{"stepId": "w", "actionType": "aggregate", "name": "w"}]')
    agents = "agents:\n  - id: mine\n    planner: mymod:Waiting\n"
    (here / "agents.yaml").write_text(agents)
    words = ("run", "wait", "--agent", "agents.yaml:mine", "--workflow", "mymod:flow")
    agentlab(here, *words, "--planner", "mymod:Waiting", "--out", "kept")
    assert "late" in agentlab(here, "show", "kept", "--full") + agentlab(here, "replay", "kept")
    assert "had ended" in agentlab(here, "resume", "kept")


def test_a_mistake_names_the_nearest(here):
    said = agentlab(here, "eval", "racks.jsonl", "--planner", "mymod:Gredy", code=2)
    assert "module 'mymod': unknown planner 'Gredy'; did you mean 'Greedy'" in said
    assert "Traceback" not in said
