"""An agent's configuration may say that a tool needs approval, and never that one needs none."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.errors import ConfigError
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings, load_registry
from agentlab.tools.server import McpServer

LISTED = {"shop": [{
    "name": "refund", "description": "", "parameters": {"type": "object"}, "returns": {},
    "effect": "write", "timeout": 5.0,
}]}  # fmt: skip


def registry(**fields):
    """Return a registry whose agent "desk" has one function tool, described by these fields."""
    return AgentRegistry(
        [AgentSettings(id="desk", tools=("t",))],
        tools=[ToolSettings(id="t", name="note", **fields)],
    )


def asking(lab):
    return [t.name for t in lab.tools.values() if t.needs_approval]


def test_a_function_waits_where_the_configuration_says_so(notes, step):
    run = notes.start([step("a")], agent="desk", agents=registry(needs_approval=True))
    run.finish()
    assert [p.tool for p in run.waiting] == ["note"]
    assert notes.made == []
    run.review("a", "approve")
    run.finish()
    assert [name for name, _ in notes.made] == ["note"]
    assert run.replay().identical


def test_without_a_word_of_it_nobody_is_asked(notes, step):
    run = notes.start([step("a")], agent="desk", agents=registry())
    run.finish()
    assert (run.waiting, len(notes.made)) == ((), 1)


def test_a_configuration_takes_nothing_away(notes):
    own = notes.tool("note", needs_approval=True)
    lab = al.Lab(tools=[own], agent="desk", agents=registry(needs_approval=False))
    assert asking(lab) == ["note"]


def test_it_stays_so_where_the_tools_are_others(notes):
    lab = notes.lab([], agent="desk", agents=registry(needs_approval=True))
    assert asking(lab.bind(tools=[notes.tool()])) == ["note"]


def test_a_tool_of_a_server_needs_it_under_each_of_its_names():
    agents = AgentRegistry(
        [AgentSettings(id="desk", tools=("t",), mcp_servers=("shop",))],
        tools=[ToolSettings(id="t", name="pay_back", service_type="mcp", endpoint="shop/refund",
                            needs_approval=True)],
        mcp_servers=[McpServer(id="shop", command="none")],
        listed=LISTED,
    )  # fmt: skip
    lab = al.Lab(agent="desk", agents=agents, planner=al.planners.Fixed())
    assert asking(lab) == ["shop/refund", "pay_back"]
    again = AgentRegistry.from_json(agents.to_json(), listed=LISTED)
    assert asking(al.Lab(agent="desk", agents=again, planner=al.planners.Fixed())) == asking(lab)


def test_a_file_says_it(tmp_path):
    path = tmp_path / "agents.yaml"
    path.write_text("tools: [{id: t, name: note, needs_approval: true}]")
    assert load_registry(path).tools["t"].needs_approval is True
    path.write_text("tools: [{id: t, name: note, needs_approval: please}]")
    with pytest.raises(ConfigError, match="needs_approval"):
        load_registry(path)
