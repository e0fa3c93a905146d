"""MCP servers that die, hang, babble and leak: see ``hostile_server.py`` for what each one does."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip(
    "mcp", reason="the official SDK is an extra: pip install 'agentlab-sandbox[mcp]'"
)

from agentlab.base.secrets import HIDDEN, spellings
from agentlab.errors import ConfigError, ToolFailure
from agentlab.lab.agent import server_tools
from agentlab.lab.bench import outcome_of
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings
from agentlab.tools import listing, mcp, pipe
from agentlab.tools.calls import UNKNOWN_OUTCOME, ToolError
from agentlab.tools.server import McpServer
from agentlab.tools.tool import Effect, ToolRegistry

SCRIPT = str(Path(__file__).with_name("hostile_server.py"))
SECRET = 'hunter2/SECRET=val"ue'
MAIN = "from agentlab.views.cli.cli import main; main()"
PARTS = ("hunter2", *(s for s in spellings(SECRET) if len(s) > 8))


@pytest.fixture
def hostile(monkeypatch, tmp_path):
    """Make the description of a server of some behaviour; all are ended, whatever happened."""
    monkeypatch.setenv("MY_SECRET", SECRET)
    monkeypatch.setenv("COUNT_FILE", str(tmp_path / "calls"))
    servers = mcp.SERVERS

    def make(behaviour, spelt="plain", seconds=20.0):
        server = McpServer(
            id="s", command=sys.executable, args=(SCRIPT, behaviour, spelt, str(tmp_path)),
            env=("MY_SECRET", "COUNT_FILE"), timeout_ms=round(1000 * seconds),
        )  # fmt: skip
        calls = tmp_path / "calls"
        return SimpleNamespace(
            server=server,
            client=lambda: servers.client(server),
            call=lambda: servers.call(server, "echo", {}),
            calls=lambda: calls.read_text().count("called") if calls.exists() else 0,
        )

    yield make
    servers.close()
    assert not left_over(str(tmp_path)), "a process was left"
    assert "mcp-portal" not in {t.name for t in threading.enumerate()}


def left_over(mark):
    lines = (p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists())
    return [line for line in lines if mark.encode() in line]


def shown(error):
    """All that an error shows, its traceback with local variables too."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    chain = [error.__cause__, error.__context__]
    return "".join([str(error), repr(vars(error)), *told.format(), *map(repr, chain)])


def clean(text):
    return not [p for p in PARTS if p in text]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("start:die", "it ended"),
        ("list:die", "it ended"),
        ("start:long", "a line of more than 32 MB"),
        ("list:long", "a line of more than 32 MB"),
        ("start:broken", "a message that is no JSON"),
        ("list:broken", "a message that is no JSON"),
        ("start:odd_id", "none of the protocol"),
        ("start:ask", "does not read what it is told"),
        ("start:error", r"it refused: no: \*+$"),
        ("list:error", r"it refused: no: \*+$"),
        ("list:no_message", "its answer is none of the protocol"),
        ("outside", r"'s/echo': its parameters: .*file:///etc/passwd' refused"),
        ("no_schema", "its answer is none of the protocol: tools.0.inputSchema.type"),
        ("schema_text", "tools.0.inputSchema: Input should be a valid dict"),
        ("bad_output", "'s/echo': its result: not a self-contained JSON Schema"),
        ("twice", "two tools are called 'echo'"),
        ("no_name", "1 to 200 printable characters, got ''"),
        ("odd_name", "printable characters"),
        ("name", r"the name of a tool holds the value of a variable .* \(MY_SECRET"),
        ("property", "decides what is accepted, at properties;"),
        ("enum", r"decides what is accepted, at properties\.a\.enum;"),
        ("const", r"decides what is accepted, at properties\.a\.anyOf\.const;"),
        ("pattern", "its parameters"),
        ("required", "decides what is accepted, at required"),
        ("output", "its result: .* decides what is accepted"),
        ("endless", "more than 100 pages"),
        ("circle", "no end: a page leads back"),
        ("many", "more than 5000 tools"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_in_a_line(hostile, behaviour, words):
    with pytest.raises(ConfigError, match=f"MCP server 's'.*{words}") as caught:
        hostile(behaviour).client()
    assert "\n" not in str(caught.value)
    assert clean(shown(caught.value))


@pytest.mark.parametrize("behaviour", ["start:hang", "list:hang", "start:notify", "list:wrong_id"])
def test_a_server_that_does_not_get_ready_is_given_up(hostile, behaviour):
    with pytest.raises(ConfigError, match=r"did not answer in 1\.5 s"):
        hostile(behaviour, seconds=1.5).client()


def test_a_server_that_leaves_a_child_is_ended_with_it(hostile):
    with pytest.raises(ConfigError, match="did not answer in 1"):
        hostile("start:child", seconds=1.0).client()


@pytest.mark.parametrize("spelt", ["plain", "url", "json", "base64"])
@pytest.mark.parametrize("behaviour", ["description", "title", "default", "examples"])
def test_what_a_listing_says_of_a_secret_is_hidden(hostile, behaviour, spelt):
    made = hostile(behaviour, spelt)
    [tool] = made.client().tools.values()
    kept = mcp.listings([made.server]), tool.description, tool.parameters, repr(tool)
    assert clean(repr(kept))
    assert clean(pickle.dumps(tool).decode("latin-1"))


@pytest.mark.parametrize("spelt", ["plain", "url", "json", "base64"])
@pytest.mark.parametrize("what", ["text", "structured", "blocks"])
def test_a_result_without_secrets(hostile, what, spelt):
    result = hostile(f"call:{what}", spelt).call()
    assert HIDDEN in repr(result)
    assert clean(repr(result))


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("die", "lost", "ended.*; what echo did is unknown"),
        ("long", "lost", "a line of more than"),
        ("broken", "lost", "a message that is no JSON"),
        ("odd_id", "lost", "none of the protocol"),
        ("ask", "lost", "does not read what it is told"),
        ("no_message", "lost", "its answer is none of the protocol; what it did is unknown"),
        ("deep", "lost", "nested too deep; what it did is unknown"),
        ("deepish", "lost", "nested more than 256 levels deep; what it did is unknown"),
        ("digits", "bad_result", "no JSON"),
        ("no_result", "bad_result", "content"),
        ("ask_back", "bad_result", "content"),
        ("regex", "bad_result", "does not match"),
        ("error", "rejected", "no: "),
        ("failed", "error", "x "),
    ],
)
def test_a_call_that_fails_says_what_is_known_of_it(hostile, what, code, words):
    server = hostile(f"call:{what}")
    with pytest.raises(ToolFailure, match=words) as caught:
        server.call()
    assert caught.value.code == code
    assert (code in UNKNOWN_OUTCOME) is (code == "lost")
    assert clean(shown(caught.value))
    assert server.calls() == 1


@pytest.mark.parametrize("what", ["hang", "notify", "wrong_id"])
def test_a_call_without_an_answer_ends_in_time(hostile, what):
    client = hostile(f"call:{what}").client()
    client.server = client.server.replace(timeout_ms=300)  # a start may take longer than that
    with pytest.raises(ToolFailure, match=r"gave no result in 0\.3 s") as caught:
        client.call("echo", {})
    assert caught.value.code == "timeout"


def test_a_call_that_found_the_server_gone_was_not_sent(hostile):
    server = hostile("after:die")
    client = server.client()
    client._portal.call(_until_over, client)
    with pytest.raises(ToolFailure, match=r"ended.*; echo was not sent") as caught:
        client.call("echo", {})
    assert (caught.value.code, server.calls()) == ("unavailable", 0)


async def _until_over(client):
    import anyio

    with anyio.fail_after(20):
        while not client.over:
            await anyio.sleep(0.01)


def test_a_server_that_died_in_a_call_is_started_by_the_next_one(hostile):
    server = hostile("call:die")
    for _ in range(2):
        with pytest.raises(ToolFailure) as caught:
            server.call()
        assert caught.value.code == "lost"
    assert server.calls() == 2


@pytest.mark.parametrize("code", sorted(UNKNOWN_OUTCOME))
def test_a_write_of_unknown_outcome_is_no_plain_failure(hostile, code):
    [tool] = hostile("ok").client().tools.values()
    error = ToolError(code=code, message="?")
    assert outcome_of(None, error, tool).interrupted
    assert tool.effect is Effect.WRITE


@pytest.mark.parametrize("what", ["call:nan", "call:half"])
def test_a_result_that_is_nearly_json_is_taken(hostile, what):
    result = hostile(what).call()
    assert result == f"x {HIDDEN}" if what == "call:nan" else {"a": "? half"}


def test_a_server_that_does_not_end_is_ended(hostile):
    assert hostile("close:hang").call() == "hi"  # the fixture looks for what is left


@pytest.mark.parametrize("behaviour", ["start:junk", "list:binary", "call:junk", "call:binary"])
def test_a_line_that_is_no_message_is_passed_over_in_silence(hostile, behaviour, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    assert hostile(behaviour).call() == "hi"
    assert capfd.readouterr() == ("", "")
    assert clean(caplog.text)
    assert "mcp" not in {r.name.partition(".")[0] for r in caplog.records}


def test_the_sdk_logs_for_others_as_ever(hostile, caplog):
    server = hostile("ok")
    server.client()
    logging.getLogger("mcp.client.session").warning("of another thread")
    assert "of another thread" in caplog.text


def test_nothing_that_is_pickled_holds_a_secret(hostile):
    import cloudpickle

    made = hostile("ok")
    client = made.client()
    [tool] = client.tools.values()
    for dumps in (pickle.dumps, cloudpickle.dumps):
        data = dumps((tool, made.server))
        assert clean(data.decode("latin-1"))
        again, _ = pickle.loads(data)
        assert again.function() == "hi"
        for holder in (client, client._secrets):
            with pytest.raises(ConfigError, match=r"do(es)? not cross processes"):
                dumps(holder)
    assert clean(repr(vars(client)))


def test_names_that_meet_are_refused(hostile):
    made = hostile("ok")
    other = made.server.replace(id="other")
    agent = AgentSettings(id="a", tools=("t",), mcp_servers=("s", "other"))
    taken = ToolSettings(id="t", name="s/echo", service_type="mcp", endpoint="other/echo")
    registry = AgentRegistry([agent], tools=[taken], mcp_servers=[made.server, other])
    with pytest.raises(ConfigError, match="two tools are called 's/echo'"):
        ToolRegistry(server_tools(registry.load("a")))


def test_a_limit_is_of_what_came_and_not_of_one_line(hostile, monkeypatch):
    monkeypatch.setattr(listing, "MAX_BYTES", 2000)
    with pytest.raises(ConfigError, match="more than 5000 tools or"):
        hostile("endless").client()
    monkeypatch.setattr(pipe, "LONGEST_LINE", 1 << 20)
    with pytest.raises(ConfigError, match="a line of more than 1 MB"):
        hostile("list:long").client()


@pytest.mark.parametrize(
    ("behaviour", "code"), [("outside", 2), ("list:die", 2), ("call:junk", 0), ("call:die", 1)]
)
def test_the_command_line_says_one_clear_thing(tmp_path, behaviour, code):
    """In a process of its own: nothing hangs at the end of Python, and nothing is left."""
    (tmp_path / "a.yaml").write_text(
        "agents: [{id: a, mcp_servers: [s]}]\nmcp_servers:\n- id: s\n"
        f"  command: {sys.executable}\n  args: [{SCRIPT}, '{behaviour}', plain, {tmp_path}]\n"
        "  env: [MY_SECRET]\n  timeout_ms: 20000\n"
    )
    step = '{"name": "e", "actionType": "call_tool", "targetResource": "s/echo", "parameters": {}}'
    (tmp_path / "p.json").write_text(f"[{step}]")
    command = [sys.executable, "-c", MAIN, "run", "hi", "--agent", "a.yaml:a",
               "--plan", "p.json", "--out", "out"]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
        env={**os.environ, "MY_SECRET": SECRET},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    kept = [p.read_bytes().decode("latin-1") for p in tmp_path.rglob("*") if p.is_file()]
    assert clean("".join([done.stdout, done.stderr, *kept]))
    assert not left_over(str(tmp_path))
    if code == 2:
        assert done.stderr.count("\n") == 1
