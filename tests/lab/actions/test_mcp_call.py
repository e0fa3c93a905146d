"""``mcp_call``: a server's tool through the lab's one door, with the time server for real."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

pytest.importorskip(
    "mcp", reason="the official SDK is an extra: pip install 'agentlab-sandbox[mcp]'"
)
if find_spec("mcp_server_time") is None:
    pytest.skip("pip install mcp-server-time", allow_module_level=True)

import agentlab as al
from agentlab.environments.fault_plan import FaultPlan, TargetedFault
from agentlab.errors import ToolFailure
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.structured import plan_schema
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings
from agentlab.tools.mcp import SERVERS
from agentlab.tools.server import McpServer
from agentlab.tools.tool import Permissions
from agentlab.trace.journal import EXECUTOR

TIME = McpServer(
    id="time", command=sys.executable, args=("-m", "mcp_server_time", "--local-timezone", "UTC")
)
NOW = "get_current_time"
TOKYO = {"source_timezone": "Europe/Paris", "time": "09:00", "target_timezone": "Asia/Tokyo"}
AGENTS = AgentRegistry(
    [AgentSettings(id="clock", mcp_servers=("time",)),
     AgentSettings(id="single", tools=("now",)),
     AgentSettings(id="poor")],
    tools=[ToolSettings(id="now", name="now", service_type="mcp", endpoint=f"time/{NOW}")],
    mcp_servers=[TIME],
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    SERVERS.close()


def call(target="time/convert_time", parameters=TOKYO, step_id="c", kind="mcp_call"):
    return {
        "stepId": step_id, "name": step_id, "actionType": kind, "targetResource": target,
        "parameters": parameters,
    }  # fmt: skip


OPTIONS = {"strategy": "never"}


@pytest.fixture(params=["simulated", "threads"], autouse=True)
def executor(request, monkeypatch):
    monkeypatch.setitem(OPTIONS, "executor", request.param)


def started(*plan, agent="clock", **options):
    options = {**OPTIONS, **options}
    lab = al.Lab(agent=agent, agents=AGENTS, planner=Fixed(*[list(plan)] * 3), **options)
    return al.autonomous.start(lab, "what time is it?")


def test_a_call_its_trace_and_its_replay():
    run = started(call())
    state = run.finish()
    assert state.results["c"]["target"]["datetime"].endswith("17:00:00+09:00")
    [tool] = run.recorder.of_kind("tool")
    assert (tool.name, tool.input, tool.step_id) == ("time/convert_time", TOKYO, "c")
    assert [s.name for s in run.recorder.of_kind("action")] == ["mcp_call"]
    assert state.tool_calls == 1
    SERVERS.close()
    report = run.replay()  # with no server under way
    assert report.identical, report
    assert report.served == 1
    assert SERVERS._clients == {}


def test_values_flow_on():
    plan = [call(), call("time/get_current_time", {"timezone": "${c.target.timezone}"}, "d")]
    assert started(*plan).finish().results["d"]["timezone"] == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"targetResource": "tyme/convert_time"}, "unknown MCP server 'tyme'; did you mean 'time'"),
        (
            {"targetResource": "time/convert"},
            "unknown MCP tool 'time/convert'; did you mean 'time/",
        ),
        ({"targetResource": "convert_time"}, "expected 'server/tool', got 'convert_time'"),
    ],
)
def test_targets_are_checked_when_it_is_planned(fields, text):
    assert text in started({**call(), **fields}).finish().error


def test_an_agent_without_servers_has_none_to_call():
    assert "unknown MCP server 'time'; known: none" in started(call(), agent="poor").finish().error


def test_parameters_are_checked_before_the_server_is_asked():
    run = started(call(parameters={"time": 9}))
    run.finish()
    error = run.plan.step("c").error
    assert "bad_arguments" in error or "arguments of 'time/convert_time'" in error
    assert all(entry.name == EXECUTOR for entry in run.journal.entries.values())


def test_errors_of_the_tool_fail_the_step():
    run = started(call(parameters={**TOKYO, "target_timezone": "Moon/Base"}))
    run.finish()
    assert "Moon/Base" in run.plan.step("c").error


def test_an_unknown_tool_is_rejected_by_the_server():
    with pytest.raises(ToolFailure, match="Unknown tool") as caught:
        SERVERS.call(TIME, "nope", {})
    assert (caught.value.code, caught.value.permanent) == ("rejected", True)


def test_permissions_and_faults_are_those_of_every_call():
    run = started(call(), permissions=Permissions(deny=frozenset({"time/convert_time"})))
    run.finish()
    assert "denied in this lab" in run.plan.step("c").error
    faults = FaultPlan(targets=(TargetedFault(tool="time/convert_time", occurrence=0),))
    run = started(call(), faults=faults, strategy="retry(1)")
    assert len(run.finish().delivered) == 1
    assert run.plan.step("c").status == "completed"


def test_a_configured_tool_has_a_name_of_its_own():
    run = started(call("now", {"timezone": "Asia/Tokyo"}, kind="call_tool"), agent="single")
    assert run.finish().results["c"]["timezone"] == "Asia/Tokyo"
    assert "expected 'server/tool'" in started(call("now"), agent="single").finish().error


def test_a_server_that_is_gone_is_an_error_of_load_config():
    lost = TIME.replace(command="no-such-program")
    agents = AgentRegistry([AgentSettings(id="a", mcp_servers=("time",))], mcp_servers=[lost])
    run = al.autonomous.start(al.Lab(agent="a", agents=agents, planner=Fixed([])), "hi")
    run.finish()
    assert run.visited == ["load_config", "final_response"]
    assert "no program 'no-such-program'" in run.state.error


def test_the_structured_planner_is_offered_them():
    lab = started(call()).lab
    offers = [(a.type, t) for a in lab.actions.values() for t in a.offers(lab)]
    assert {(k, t.name) for k, t in offers} == {
        ("mcp_call", "time/get_current_time"), ("mcp_call", "time/convert_time"),
    }  # fmt: skip
    variants = plan_schema({}, others=offers)["properties"]["steps"]["items"]["anyOf"]
    assert {v["properties"]["actionType"]["const"] for v in variants} == {"mcp_call"}
