"""MCP servers as tools: a small server of our own, in good health and in bad."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip(
    "mcp", reason="the official SDK is an extra: pip install 'agentlab-sandbox[mcp]'"
)

from agentlab.errors import ConfigError, ToolFailure
from agentlab.lab.agent import server_tools
from agentlab.state.config import AgentConfig, AgentRegistry, AgentSettings, ToolSettings
from agentlab.tools.mcp import SERVERS, Servers, _content
from agentlab.tools.server import McpServer, command_line, environment
from agentlab.tools.tool import Effect

SERVER = """
import os, signal, subprocess, sys, time
from typing import Literal
import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("tiny")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 0) -> int:
    "Add two numbers."
    return a + b

@server.tool(annotations=ToolAnnotations(idempotent_hint=True), structured_output=False)
def put(text: Literal["x", "y"]) -> str:
    return f"put {text}"

@server.tool()
def environment() -> dict[str, str]:
    return dict(os.environ)

@server.tool()
def fail(message: str) -> str:
    raise ToolError(message)

@server.tool()
async def sleep(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "slept"

@server.tool()
def die() -> str:
    os._exit(3)

@server.tool()
def pids() -> list[int]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return [os.getpid(), child.pid]

@server.tool(structured_output=False)
def leak() -> str:
    return "it is " + os.environ.get("TINY_SECRET", "not set")

if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("noise on stderr", file=sys.stderr)
server.run("stdio")
if "--stubborn" in sys.argv:
    time.sleep(600)
"""
SILENT = "import time; time.sleep(600)"
DEAD = "import sys; sys.stderr.write('no'); sys.exit(1)"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("mcp") / "server.py"
    path.write_text(SERVER)
    return str(path)


@pytest.fixture(scope="module")
def tiny(script):
    return McpServer(id="tiny", command=sys.executable, args=(script,), timeout_ms=15_000)


@pytest.fixture(scope="module")
def client(tiny):
    return SERVERS.client(tiny)


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    SERVERS.close()


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def gone(pids, seconds=5.0):
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_its_tools_are_tools(client):
    tools = client.tools
    assert tools["add"].name == "tiny/add"
    assert tools["add"].description == "Add two numbers."
    assert [tools[n].effect for n in ("add", "put", "fail")] == [
        Effect.READ, Effect.IDEMPOTENT, Effect.WRITE,
    ]  # fmt: skip
    assert tools["add"].service == "mcp"
    assert tools["add"].timeout == 15.0
    assert "a" in tools["add"].check({"b": 1})
    assert tools["add"].check({"a": 1}) is None
    assert tools["put"].check({"text": "z"}) is not None


def test_calls(client):
    assert client.tools["add"].function(a=2, b=3) == {"result": 5}  # as the SDK wraps it
    assert client.tools["put"].function(text="x") == "put x"


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "permanent", "text"),
    [
        ("fail", {"message": "no luck"}, "error", False, "no luck"),
        ("add", {"a": "x"}, "error", False, "validation error"),
        ("nope", {}, "error", False, "nope"),
    ],
)
def test_failures(client, tool, arguments, code, permanent, text):
    with pytest.raises(ToolFailure, match=text) as caught:
        client.call(tool, arguments)
    assert (caught.value.code, caught.value.permanent) == (code, permanent)


def test_one_server_and_one_thread_serve_everyone(tiny, client):
    assert SERVERS.client(tiny.replace()) is client
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(client.call("add", {"a": n})["result"]))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(16))
    assert [t.name for t in threading.enumerate()].count("mcp-portal") == 1


def test_it_works_under_a_running_event_loop(client):
    async def cell():
        return client.call("add", {"a": 1, "b": 1})

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(cell()) == {"result": 2}
    loop.close()


def test_a_call_that_hangs_ends_and_the_session_goes_on(tiny):
    client = SERVERS.client(tiny.replace(id="brisk"))
    client.server = client.server.replace(timeout_ms=500)  # a start may take longer than that
    start = time.monotonic()
    with pytest.raises(ToolFailure, match=r"sleep gave no result in 0\.5 s") as caught:
        client.call("sleep", {"seconds": 600})
    assert caught.value.code == "timeout"
    assert time.monotonic() - start < 10
    client.server = tiny
    assert client.call("add", {"a": 1}) == {"result": 1}
    SERVERS.drop(client)


def test_a_server_that_dies_is_started_anew_by_the_next_call(tiny):
    mortal = tiny.replace(id="mortal")
    tools = SERVERS.client(mortal).tools
    with pytest.raises(ToolFailure) as caught:
        tools["die"].function()
    assert caught.value.code == "lost"
    assert tools["add"].function(a=4) == {"result": 4}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"command": "no-such-program"}, "'bad': no program 'no-such-program' on the PATH or in"),
        ({"args": ("-c", DEAD)}, "MCP server 'bad' could not be started"),
        ({"args": ("-c", SILENT), "timeout_ms": 700}, "could not be started: it did not answer in"),
        ({"env": ("NOT_SET_ANYWHERE",)}, "'bad' needs NOT_SET_ANYWHERE: not set in the environ"),
    ],
)
def test_a_server_that_does_not_start(changes, text):
    server = McpServer(id="bad", command=sys.executable, timeout_ms=8000).replace(**changes)
    start = time.monotonic()
    with pytest.raises(ConfigError, match=text):
        SERVERS.client(server)
    assert time.monotonic() - start < 9


def test_a_server_sees_what_is_configured_and_no_more(tiny, monkeypatch):
    monkeypatch.setenv("TINY_SECRET", "s3cret-value")
    monkeypatch.setenv("OTHER_SECRET", "0ther-value")
    server = tiny.replace(id="env", env=("TINY_SECRET",))
    client = SERVERS.client(server)
    seen = client.call("environment", {})
    allowed = {"PATH", "HOME", "TINY_SECRET", "LC_CTYPE", "PWD"}  # the last two Python or env add
    assert set(seen) <= allowed
    assert {"PATH", "TINY_SECRET"} <= set(seen)
    assert seen["TINY_SECRET"] == "**********"
    assert client.call("leak", {}) == "it is **********"
    with pytest.raises(ToolFailure) as caught:
        client.call("fail", {"message": "key s3cret-value refused"})
    assert "key ********** refused" in str(caught.value)
    assert "s3cret" not in str(server.to_json())
    assert environment(server) == {"TINY_SECRET": "s3cret-value"}
    SERVERS.drop(client)


def test_no_shell_reads_the_command(tiny, tmp_path):
    odd = "$(touch x); `touch y` | z"
    assert command_line(tiny.replace(args=(odd,)))[-1] == odd


def test_nothing_is_left_behind(script):
    """The server ignores the end of its input and SIGTERM, and has a child."""
    servers = Servers()
    server = McpServer(id="s", command=sys.executable, args=(script, "--stubborn"))
    pids = servers.call(server, "pids", {})["result"]
    assert all(map(alive, pids))
    start = time.monotonic()
    servers.close()
    assert time.monotonic() - start < 9
    assert gone(pids)
    assert servers.call(server, "add", {"a": 1}) == {"result": 1}  # it can be used again
    servers.close()


def test_nothing_is_left_behind_when_python_ends(script, tmp_path):
    import subprocess

    code = f"""
from agentlab.tools.server import McpServer, command_line, environment
from agentlab.tools.mcp import SERVERS
s = McpServer(id="s", command={sys.executable!r}, args=({script!r},))
import sys
sys.stdout.write(repr(SERVERS.call(s, "pids", {{}})["result"][0]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert gone([int(done.stdout)])


# ---- an agent's servers ------------------------------------------------------------------------


def loaded(server, tools=(), offered=()):
    agent = AgentSettings(id="a", tools=tuple(t.id for t in tools), mcp_servers=tuple(offered))
    return AgentRegistry([agent], tools=tools, mcp_servers=[server]).load("a")


def entry(endpoint, name="plus", **more):
    return ToolSettings(id="t", name=name, service_type="mcp", endpoint=endpoint, **more)


def test_an_agent_has_all_tools_of_a_server_or_single_ones(tiny):
    assert "tiny/add" in [t.name for t in server_tools(loaded(tiny, offered=["tiny"]))]
    [plus] = server_tools(loaded(tiny, [entry("tiny/add", description="Plus.")]))
    assert (plus.name, plus.description) == ("plus", "Plus.")
    assert plus.function(a=1, b=1) == {"result": 2}
    assert server_tools(AgentConfig(id="none")) == []


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("tiny/ad", "tool 'plus' of agent 'a': tiny has no tool 'ad'; did you mean 'add'"),
        ("tiny", "expected endpoint 'server/tool', got 'tiny'"),
        ("tinny/add", "unknown MCP server 'tinny'; did you mean 'tiny'"),
    ],
)
def test_endpoints_that_lead_nowhere(tiny, endpoint, text):
    with pytest.raises(Exception, match=text):
        server_tools(loaded(tiny, [entry(endpoint)]))


def test_a_file_never_holds_values_of_variables(tmp_path):
    from agentlab.state.config import load_registry

    path = tmp_path / "a.yaml"
    path.write_text("mcp_servers: [{id: x, command: y, env: [KEY=s3cret]}]")
    with pytest.raises(ConfigError) as caught:
        load_registry(path)
    assert "env" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("odd", [10**400, -(10**4000), float("inf"), float("nan")])
def test_a_result_that_is_no_json_is_its_text(odd):
    result = SimpleNamespace(
        structured_content={"x": [odd]}, is_error=False,
        content=[SimpleNamespace(type="text", text="much")],
    )  # fmt: skip
    assert _content(result) == "much"
    result.structured_content = {"x": [10**308]}
    assert _content(result) == {"x": [10**308]}


@pytest.mark.parametrize("kept", [None, 5, [None], ["a"], [{}], [{"name": "a", "effect": []}]])
def test_a_kept_listing_of_another_form_is_refused(kept):
    from agentlab.tools.listing import as_listed

    with pytest.raises(ConfigError, match="in a form that is not ours"):
        as_listed("s", {"s": kept})
