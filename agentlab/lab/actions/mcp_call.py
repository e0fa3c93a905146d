"""``mcp_call``: call a tool of an MCP server, through the lab's one door."""

from __future__ import annotations

from typing import Any

from agentlab.errors import seen, suggest
from agentlab.lab.actions.call_tool import CallTool, of_server
from agentlab.lab.bench import Bench
from agentlab.plans.task_plan import ActionType, TaskStep
from agentlab.state.records import UnderWay
from agentlab.state.state import State
from agentlab.tools.tool import Tool


class McpCall(CallTool):
    """Call the tool ``server/tool`` named by ``targetResource`` with the step's parameters."""

    type = ActionType.MCP_CALL.value

    def check(self, step: TaskStep, bench: Bench) -> list[str]:
        """Refuse servers and tools that this lab does not have, and parameters likewise."""
        target = step.target_resource
        known = [t.name for t in self.offers(bench)]
        if target in known:
            return super().check(step, bench)
        server, slash, _ = target.partition("/")
        if not slash:
            return [f"targetResource: expected 'server/tool', got {seen(target)}"]
        servers = sorted({n.partition("/")[0] for n in known})
        if server not in servers:
            return [
                f"targetResource: unknown MCP server {seen(server)}; {suggest(server, servers)}"
            ]
        there = [n for n in known if n.startswith(f"{server}/")]
        return [f"targetResource: unknown MCP tool {seen(target)}; {suggest(target, there)}"]

    def offers(self, bench: Bench) -> list[Tool]:
        """Return the tools of the lab's servers."""
        return [t for t in bench.tools.values() if of_server(t)]

    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start the call."""
        state, under_way = super().begin(state, bench, step, parameters, attempt)
        return state, under_way.replace(action_type=self.type)
