"""``agentlab run``: an agent of a file carries a task out; the response alone on stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from agentlab.environments.suites import find_agents
from agentlab.state.config import load_registry
from agentlab.views.cli.cli import app

PROGRAM = [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()"]

FILE = """
agents:
  - {id: boss, sub_agents: [writer], planner: structured, strategy: never}
  - {id: writer, system_prompt: You write., description: Writes}
  - {id: lost, mcp_servers: [gone]}
mcp_servers: [{id: gone, command: no-such-program}]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agents.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def given(tmp_path):
    """Write a document and return its path."""

    def write(name, document):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


@pytest.fixture
def said(file):
    """Run the command; return exit code, stdout, stderr."""

    def run(*words, agent="boss", task="write a haiku"):
        found = CliRunner().invoke(app, ["run", task, "--agent", f"{file}:{agent}", *words])
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return found.exit_code, found.stdout, found.stderr

    return run


AGGREGATE = [{"name": "sum", "actionType": "aggregate"}]


def generate(prompt="go"):
    return {"name": "text", "actionType": "llm_generate", "parameters": {"prompt": prompt}}


def test_a_plan_without_a_model(said, given):
    code, out, err = said("--plan", given("plan.json", AGGREGATE))
    assert code == 0
    assert out.startswith("All 1 steps were completed.")
    assert out.endswith("\n")
    assert "plan: 1 step\n" in err
    assert "task execution: executing 1/1: sum" in err
    assert "sum completed: " in err


def test_workers_are_threads(said, given, monkeypatch):
    from agentlab.lab.lab import Lab
    from agentlab.lab.threads import ThreadedExecutor

    made = []
    first = Lab.__init__

    def noted(self, *arguments, **options):
        first(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Lab, "__init__", noted)
    code, out, _ = said("--plan", given("plan.json", AGGREGATE), "--workers", "3")
    assert (code, out[:11]) == (0, "All 1 steps")
    assert made[0].workers == 3
    assert isinstance(made[0].executor, ThreadedExecutor)


def test_a_model_plans_asks_a_sub_agent_and_answers(said, monkeypatch):
    from agentlab.lm.scripted import scripted
    from agentlab.lm.serde import prompt_text

    plan = {"summary": "", "answer": None, "steps": [
        {"stepId": "w", "actionType": "call_sub_agent", "targetResource": "writer",
         "parameters": {"input": "five"}, "dependencies": []}]}  # fmt: skip
    inner = {"summary": "", "answer": "${t}", "steps": [
        {"stepId": "t", "actionType": "llm_generate", "targetResource": "",
         "parameters": {"prompt": "seven"}, "dependencies": []}]}  # fmt: skip

    def reply(request, n):
        prompt = prompt_text(request)
        if "Make a plan" in prompt:
            return json.dumps(plan if "haiku" in prompt else inner)
        return "seven syllables" if prompt.endswith("seven") else "Here it is: \x1b[31mred"

    connecting = import_module("agentlab.lm.connect")  # the package's own name may be the function
    monkeypatch.setattr(connecting, "connect", lambda *a, **k: scripted(reply))
    code, out, err = said("--lm", "openai/for-this-test-alone")
    assert (code, out) == (0, "Here it is: \\x1b[31mred\n"), err
    assert "w: writer(" in err
    assert "asking sub-agent writer" in err
    assert "seven syllables" in err


def test_a_plan_that_does_not_complete_says_so_and_exits_with_1(said, given):
    steps = [{"name": "x", "actionType": "aggregate", "parameters": {"n": "${y.z}"}},
             {"name": "y", "actionType": "aggregate"}]  # fmt: skip
    code, out, err = said("--plan", given("plan.json", steps))
    assert code == 1
    assert "x: failed" in out
    assert "x failed: " in err


@pytest.mark.parametrize(
    ("words", "agent", "text"),
    [
        ([], "boss", "language model"),
        ([], "writer", "has no language model to plan with: --lm names one"),
        ([], "bos", "unknown agent 'bos'; did you mean 'boss'"),
        (["--plan", "{plan}"], "lost", "no program 'no-such-program'"),
        (["--plan", "missing.json"], "writer", "missing.json: cannot be read"),
        (["--plan", "{bad}"], "writer", "not JSON"),
        (["--plan", "{text}"], "writer", "expected a plan"),
        (["--plan", "{asks}"], "writer", "llm_generate needs a language model"),
        (["--plan", "{plan}", "--planner", "search"], "writer", "give it or --planner, not both"),
        (["--plan", "{plan}", "--strategy", "nevr"], "writer", "unknown strategy 'nevr'"),
        (["--plan", "{plan}", "--workflow", "auto"], "writer", "unknown workflow 'auto'"),
        (["--lm", "nobody/x"], "writer", "unknown LM provider 'nobody'"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(said, given, words, agent, text):
    files = {
        "plan": given("plan.json", AGGREGATE), "bad": given("bad.json", "{"),
        "text": given("text.json", '"plan"'), "asks": given("asks.json", [generate()]),
    }  # fmt: skip
    code, out, err = said(*(w.format(**files) for w in words), agent=agent)
    assert code == 2
    assert out == ""
    assert text in err
    assert err.count("error: ") == 1
    assert "Traceback" not in err


def test_the_example_that_ships():
    registry = load_registry(find_agents("example"))
    for agent in registry.agents:
        assert registry.load(agent).id == agent
    assert [a.id for a in registry.load("assistant").sub_agents] == ["clock", "writer"]


@pytest.mark.skipif(find_spec("mcp_server_time") is None, reason="pip install mcp-server-time")
def test_the_example_tells_the_time(given, monkeypatch):
    plan = [{"name": "c", "actionType": "mcp_call", "targetResource": "time/convert_time",
             "parameters": {"source_timezone": "Europe/Paris", "time": "09:00",
                            "target_timezone": "Asia/Tokyo"}}]  # fmt: skip
    words = ["run", "when?", "--agent", "example:clock", "--plan", given("plan.json", plan)]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")  # nobody is there
    started = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert started.returncode == 0, started.stderr
    assert "17:00:00+09:00" in started.stdout
    assert "sk-none" not in started.stdout + started.stderr


SLOW = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
from mcp.server.mcpserver import MCPServer
server = MCPServer("slow")
@server.tool()
def wait() -> str:
    open(sys.argv[1] + ".called", "w").close()
    time.sleep(600)
server.run("stdio")
"""


@pytest.mark.skipif(find_spec("mcp") is None, reason="pip install 'agentlab-sandbox[mcp]'")
def test_ctrl_c_ends_it_with_130_and_leaves_no_server_behind(tmp_path, given):
    script, pid = given("slow.py", SLOW), tmp_path / "pid"
    registry = {
        "agents": [{"id": "a", "mcp_servers": ["slow"]}],
        "mcp_servers": [{"id": "slow", "command": sys.executable, "args": [script, str(pid)]}],
    }
    plan = [{"name": "w", "actionType": "mcp_call", "targetResource": "slow/wait"}]
    words = ["run", "x", "--agent", f"{given('a.yaml', registry)}:a",
             "--plan", given("p.json", plan)]  # fmt: skip
    with subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        end = time.monotonic() + 30
        while not (tmp_path / "pid.called").exists() and time.monotonic() < end:
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    assert program.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err + out
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
