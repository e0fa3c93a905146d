"""A run of the command line that waits for people: asked, answered as told, or left waiting."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from agentlab.errors import RunError
from agentlab.runs import kept
from agentlab.state.tool_loop import PendingApproval
from agentlab.views.cli import asking
from agentlab.views.cli.cli import app
from agentlab.views.people import read_arguments

pytestmark = pytest.mark.skipif(
    find_spec("mcp") is None, reason="pip install 'agentlab-sandbox[mcp]'"
)
PROGRAM = [sys.executable, "-c", "from agentlab.views.cli.cli import main; main()"]

SERVER = """
import os, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("shop")
@server.tool()
def refund(order: int) -> str:
    with open(os.path.join(sys.argv[1], "made"), "a") as made:
        made.write(f"{order} ")
    return f"refunded {order}"
server.run("stdio")
"""


@pytest.fixture
def shop(tmp_path):
    """An agent with a server's tool that needs approval, and a plan that calls it."""
    (tmp_path / "server.py").write_text(SERVER)
    registry = {
        "agents": [{"id": "desk", "tools": ["refund"]}],
        "tools": [{
            "id": "refund", "name": "refund", "service_type": "mcp", "endpoint": "shop/refund",
            "needs_approval": True,
        }],
        "mcp_servers": [{
            "id": "shop", "command": sys.executable,
            "args": [str(tmp_path / "server.py"), str(tmp_path)],
        }],
    }  # fmt: skip
    (tmp_path / "agents.yaml").write_text(json.dumps(registry))
    plan = [{"name": "pay", "actionType": "call_tool", "targetResource": "refund",
             "parameters": {"order": 17}}]  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    return tmp_path


def words(shop, *more):
    plan = str(shop / "plan.json")
    agent = f"{shop / 'agents.yaml'}:desk"
    return ["run", "Refund order 17.", "--agent", agent, "--plan", plan, "--strategy", "never",
            *map(str, more)]  # fmt: skip


def said(*words, answers=None):
    found = CliRunner().invoke(app, [str(w) for w in words], input=answers)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def made(shop):
    path = shop / "made"
    return path.read_text().split() if path.exists() else []


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(asking, "at_terminal", lambda: True)


def test_what_is_asked_and_approved(shop, terminal):
    code, out, err = said(*words(shop), answers="a\n")
    assert (code, made(shop)) == (0, ["17"]), err
    assert 'pay: refund (write) waits for approval\n  arguments: {"order": 17}\n' in err
    assert "approve, edit or reject? " in err
    assert "approve, edit" not in out
    assert "refunded 17" in out


def test_an_edit_is_asked_for_until_it_fits(shop, terminal):
    answers = 'e\n{"order": 1, "order": 2}\nedit\n[18]\nEDIT\n{"order": "x"}\nedit\n{"order": 18}\n'
    code, out, err = said(*words(shop), answers=answers)
    assert (code, made(shop)) == (0, ["18"]), err
    assert "error: the arguments are not JSON" in err
    assert "error: expected the arguments as an object of JSON, got [18]" in err
    assert 'order: "x" is not of type "integer"' in err
    assert "refunded 18" in out


def test_a_rejection_and_its_reason(shop, terminal):
    code, out, err = said(*words(shop), answers="maybe\nr\nnot  today\n")
    assert (code, made(shop)) == (1, []), err
    assert "unknown answer 'maybe'" in err
    assert "rejected: a person did not approve: not  today" in out


@pytest.mark.parametrize(("answer", "code", "calls"), [("approve", 0, ["17"]), ("reject", 1, [])])
def test_an_answer_given_beforehand(shop, answer, code, calls):
    found, _, err = said(*words(shop, "--review", answer))
    assert (found, made(shop)) == (code, calls), err
    assert "approve, edit or reject?" not in err


def test_an_answer_that_does_not_exist(shop, tmp_path):
    code, _, err = said(*words(shop, "--review", "edit"))
    assert (code, made(shop)) == (2, [])
    assert "unknown review 'edit'" in err
    code, _, err = said("resume", tmp_path, "--review", "aprove")
    assert code == 2
    assert "did you mean 'approve'" in err


def test_with_nobody_to_ask_it_does_not_begin(shop):
    code, out, err = said(*words(shop))
    assert (code, out, made(shop)) == (2, "", [])
    assert err.count("error: ") == 1
    assert "refund needs a person's approval, and there is nobody to ask: give --review" in err
    assert "planning" not in err


def test_what_only_turns_out_on_the_way(shop, monkeypatch):
    monkeypatch.setattr(asking.People, "check", lambda self, lab: None)
    code, _, err = said(*words(shop))
    assert (code, made(shop)) == (2, [])
    assert "pay: refund (write) waits for a person, and there is nobody to ask: give --rev" in err


def test_a_terminal_that_closes_where_nothing_is_kept(shop, terminal):
    code, _, err = said(*words(shop), answers="")
    assert (code, made(shop)) == (2, [])
    assert "there is nobody to ask" in err


def test_a_kept_run_is_left_waiting_and_answered_later(shop):
    out = shop / "runs with a blank"
    code, said_out, err = said(*words(shop, "--out", out))
    assert (code, said_out, made(shop)) == (3, "", []), err
    assert 'pay: refund (write) waits for approval\n  arguments: {"order": 17}\n' in err
    assert f"to answer: agentlab resume '{out}' " in err
    assert said("resume", out)[0] == 3
    code, said_out, err = said("resume", out, "--review", "approve")
    assert (code, made(shop)) == (0, ["17"]), err
    assert "refunded 17" in said_out
    code, told, _ = said("replay", out)
    assert (code, made(shop)) == (0, ["17"]), told


def test_resume_asks_on_the_terminal(shop, terminal):
    out = shop / "runs"
    assert said(*words(shop, "--out", out), answers="")[0] == 3
    code, told, err = said("resume", out, answers="reject\ntoo much\n")
    assert (code, made(shop)) == (1, []), err
    assert "a person did not approve: too much" in told
    assert said("replay", out)[0] == 0


@pytest.mark.parametrize("keeps", [True, False])
def test_ctrl_c_at_the_question(shop, terminal, monkeypatch, keeps):
    def interrupted(self, question):
        raise KeyboardInterrupt

    monkeypatch.setattr(asking.People, "_ask", interrupted)
    more = ("--out", shop / "runs") if keeps else ()
    code, _, err = said(*words(shop, *more))
    assert (code, made(shop)) == (3 if keeps else 130, []), err
    assert ("left waiting" in err) is keeps


def test_the_answer_is_kept_with_the_run(shop):
    out = shop / "runs"
    assert said(*words(shop, "--review", "approve", "--out", out))[0] == 0
    found = kept.load(out, replay=True)
    assert found.lab.reviewer == "approve"
    assert found.replay().identical
    assert "(review)" not in found.visited


def test_nothing_of_what_is_asked_steers_the_terminal_or_is_cut():
    call = PendingApproval(
        call_id="pay", tool="refund", arguments={"why": "\x1b[2J" + "x" * 5000 + "  \n end"},
        effect="irreversible", reason="attempt 1 ended with: gone; it may have taken effect",
    )  # fmt: skip
    text = asking.described(call)
    assert "\x1b" not in text
    assert "x" * 5000 + "  \\n end" in text
    assert text.endswith("\n  attempt 1 ended with: gone; it may have taken effect")


@pytest.mark.parametrize("text", ["", "{", "17", "null", '{"a": NaN}', "{'a': 1}"])
def test_arguments_that_are_none(text):
    with pytest.raises(RunError, match="arguments"):
        read_arguments(text)


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_on_a_real_terminal(shop):
    """Question on the terminal, answer typed, the response alone on stdout."""
    leader, follower = os.openpty()
    with subprocess.Popen(
        [*PROGRAM, *words(shop)], stdin=follower, stdout=subprocess.PIPE, stderr=follower
    ) as program:
        os.close(follower)
        shown, end = "", time.monotonic() + 60
        while "reject?" not in shown and time.monotonic() < end:
            if select.select([leader], [], [], 1)[0]:
                shown += os.read(leader, 4096).decode()
        assert made(shop) == []
        os.write(leader, b"approve\n")
        out, _ = program.communicate(timeout=60)
    os.close(leader)
    assert program.returncode == 0, shown
    assert made(shop) == ["17"]
    assert "approve" not in out.decode()
    assert "refunded 17" in out.decode()
