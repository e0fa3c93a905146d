"""Kept runs: a folder alone replays, shows and resumes what ``agentlab run --out`` did."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from agentlab.errors import RunError
from agentlab.lm.scripted import scripted
from agentlab.lm.serde import prompt_text
from agentlab.runs import kept
from agentlab.state.config import AgentRegistry, load_registry
from agentlab.trace.store import Store
from agentlab.views.cli.cli import app

connecting = import_module("agentlab.lm.connect")  # the package's own name may be the function
PROGRAM = [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()"]

SERVER = """
import os, sys
from mcp.server.mcpserver import MCPServer
open(os.path.join(sys.argv[1], f"started.{os.getpid()}"), "w").close()
server = MCPServer("counter")
@server.tool()
def count(word: str) -> dict:
    open(os.path.join(sys.argv[1], f"called.{word}"), "a").write("x")
    if os.path.exists(os.path.join(sys.argv[1], "die")):
        os.kill(int(open(os.path.join(sys.argv[1], "die")).read()), 9)
    return {"letters": len(word)}
server.run("stdio")
"""


@pytest.fixture
def home(tmp_path):
    """A folder with a registry of agents, one of which has a server, and its counters."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    registry = {
        "models": [{"model_id": "openai/m", "api_key": "sk-canary-in-file"}],
        "agents": [
            {"id": "boss", "sub_agents": ["counter"], "planner": "structured", "model": "openai/m"},
            {"id": "counter", "mcp_servers": ["c"], "planner": "structured", "model": "openai/m"},
        ],
        "mcp_servers": [
            {"id": "c", "command": sys.executable, "args": [str(script), str(tmp_path)]}
        ],
    }  # fmt: skip
    (tmp_path / "agents.yaml").write_text(json.dumps(registry))
    return tmp_path


@pytest.fixture
def model(monkeypatch):
    """A model that plans for both agents and answers; counts what it is asked."""
    asked = []
    outer = {"summary": "", "answer": "${w}", "steps": [
        {"stepId": "w", "actionType": "call_sub_agent", "targetResource": "counter",
         "parameters": {"input": "letters of tea"}, "dependencies": []}]}  # fmt: skip
    inner = {"summary": "", "answer": "${n.letters}", "steps": [
        {"stepId": "n", "actionType": "mcp_call", "targetResource": "c/count",
         "parameters": {"word": "tea"}, "dependencies": []}]}  # fmt: skip

    def reply(request, n):
        prompt = prompt_text(request)
        asked.append(prompt)
        if "Make a plan" in prompt:
            return json.dumps(inner if "letters of tea" in prompt else outer)
        return f"It has three letters ({len(asked)})."

    monkeypatch.setattr(connecting, "connect", lambda *a, **k: scripted(reply))
    return asked


def said(*words):
    found = CliRunner().invoke(app, [str(w) for w in words])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture
def walled(monkeypatch):
    """Count what would reach outside, and let nothing through."""
    tried = []

    def refuse(name):
        def wall(*arguments, **named):
            tried.append(name)
            raise AssertionError(f"{name} in a replay")

        return wall

    def up():
        monkeypatch.setattr(socket.socket, "connect", refuse("connect"))
        monkeypatch.setattr(socket, "create_connection", refuse("create_connection"))
        monkeypatch.setattr(subprocess.Popen, "__init__", refuse("a process"))
        monkeypatch.setattr("agentlab.tools.mcp.Servers.client", refuse("a server"))
        return tried

    return up


@pytest.mark.skipif(find_spec("mcp") is None, reason="pip install 'agentlab-sandbox[mcp]'")
def test_a_kept_run_replays_from_its_folder_alone(home, model, walled):
    out = home / "runs"
    code, text, err = said("run", "Count.", "--agent", f"{home}/agents.yaml:boss", "--out", out)
    assert code == 0, err
    assert "three letters" in text
    assert f"kept in {out}" in err
    made = len(model)
    calls = (home / "called.tea").read_text()
    assert made >= 4
    (home / "agents.yaml").unlink()  # the folder is enough
    tried = walled()
    code, text, err = said("replay", out)
    assert code == 0, text + err
    assert text.startswith("identical")
    assert f"{made + 1} calls served" in text  # the model's, and the tool's
    assert (len(model), (home / "called.tea").read_text(), tried) == (made, calls, [])
    assert "three letters" in said("show", out, kept.load(out, replay=True).run_id)[1]
    code, text, _ = said("show", out)
    assert code == 0
    assert "Count." in text
    assert b"sk-canary" not in (out / "study.db").read_bytes()


def test_a_replay_sees_that_a_prompt_is_another(home, model, monkeypatch):
    plan = home / "plan.json"
    plan.write_text(json.dumps([{"name": "t", "actionType": "llm_generate",
                                 "parameters": {"prompt": "hi"}}]))  # fmt: skip
    words = ["run", "x", "--agent", f"{home}/agents.yaml:boss", "--plan", plan]
    assert said(*words, "--out", home / "runs")[0] == 0
    assert said("replay", home / "runs")[0] == 0
    monkeypatch.setattr("agentlab.minds.by_model.RESPOND", "Say something else.")
    code, text, _ = said("replay", home / "runs")
    assert code == 1
    assert "differs" in text


def test_several_runs_in_a_folder(home, model):
    plan = home / "plan.json"
    plan.write_text('[{"name": "a", "actionType": "aggregate"}]')
    words = ["--agent", f"{home}/agents.yaml:boss", "--plan", plan, "--out", home / "runs"]
    for task in ("one", "two"):
        assert said("run", task, *words)[0] == 0
    ids = [kept.load(home / "runs", i, replay=True).run_id for i in Store(home / "runs").run_ids()]
    assert len(set(ids)) == 2
    assert kept.load(home / "runs", replay=True).state.user_input == "two"
    assert kept.load(home / "runs", ids[0], replay=True).state.user_input == "one"
    text = said("show", home / "runs")[1]
    assert all(i in text for i in ids)
    assert said("replay", home / "runs", ids[0])[0] == 0


def test_what_is_not_there(home, tmp_path):
    for words in (["replay", tmp_path / "no"], ["resume", tmp_path / "no"]):
        code, _, err = said(*words)
        assert (code, err.count("error: ")) == (2, 1)
        assert not words[1].exists()
    with Store(tmp_path / "other") as store:
        from agentlab.state.state import State

        store.start_run("abc", "autonomous", State())
    assert "was not kept by" in said("resume", tmp_path / "other")[2]
    assert "no run starts with 'zzz'; runs: abc" in said("resume", tmp_path / "other", "zzz")[2]
    with pytest.raises(RunError, match="abc"):
        kept.load(tmp_path / "other", "q", replay=True)


def test_kept_runs_and_a_study_do_not_share_a_folder(home, model):
    plan = home / "plan.json"
    plan.write_text('[{"name": "a", "actionType": "aggregate"}]')
    ask = ["run", "x", "--agent", f"{home}/agents.yaml:boss", "--plan", plan, "--out"]
    small = ["--planner", "search", "--limit", "1", "--seeds", "1", "--processes", "1", "--out"]
    assert said(*ask, home / "runs")[0] == said("eval", "chain", *small, home / "study")[0] == 0
    code, _, err = said(*ask, home / "study")
    assert (code, "holds the results of a study; choose another folder" in err) == (2, True)
    code, _, err = said("eval", "chain", *small, home / "runs")
    assert (code, "holds kept runs and no study; choose another folder" in err) == (2, True)
    assert said("show", home / "runs")[1].count("finished") == 1
    assert "12 runs" in said("show", home / "study")[1]


def test_what_has_ended_is_not_said_to_go_on(home, model):
    plan = home / "plan.json"
    plan.write_text('[{"name": "a", "actionType": "aggregate"}]')
    _, response, _ = said("run", "x", "--agent", f"{home}/agents.yaml:boss", "--plan", plan,
                          "--out", home / "runs")  # fmt: skip
    code, again, err = said("resume", home / "runs")
    assert (code, again) == (0, response)
    assert err.rstrip().endswith("had ended")


def test_a_registry_comes_back_from_json(home):
    registry = load_registry(home / "agents.yaml")
    again = AgentRegistry.from_json(json.loads(json.dumps(registry.to_json())))
    assert "canary" not in json.dumps(registry.to_json())
    for agent in registry.agents:
        mine, theirs = registry.load(agent), again.load(agent)
        assert theirs.to_json() == mine.to_json()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mcp") is None, reason="pip install 'agentlab-sandbox[mcp]'")
def test_a_killed_run_goes_on_and_no_finished_call_is_made_again(home):
    plan = home / "plan.json"
    steps = [{"name": w, "actionType": "mcp_call", "targetResource": "c/count",
              "parameters": {"word": w}} for w in ("one", "three", "fives")]  # fmt: skip
    plan.write_text(json.dumps(steps))
    words = ["run", "x", "--agent", f"{home}/agents.yaml:counter", "--plan", plan, "--out",
             home / "runs"]  # fmt: skip
    environ = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    with subprocess.Popen(
        [*PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    ) as program:
        (home / "die").write_text(str(program.pid))  # the server kills it within its first call
        program.communicate(timeout=60)
    assert program.returncode == -signal.SIGKILL
    (home / "die").unlink()
    first = "one" if (home / "called.one").exists() else "three"
    end = time.monotonic() + 10
    while not (home / f"called.{first}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    done = subprocess.run(
        [*PROGRAM, "resume", str(home / "runs")], capture_output=True, text=True, timeout=60,
        check=False, env=environ,
    )  # fmt: skip
    # The first call's outcome is unknown: a write is not repeated, and the rest is carried out.
    assert (home / "called.one").read_text() == "x"
    assert "goes on at visit" in done.stderr
    assert "outcome is unknown" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert subprocess.run([*PROGRAM, "replay", str(home / "runs")], check=False).returncode == 0
