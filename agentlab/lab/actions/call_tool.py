"""``call_tool``: call a tool through the lab's one door."""

from __future__ import annotations

from typing import Any

from agentlab.errors import seen, suggest
from agentlab.lab.bench import Action, Bench, StepOutcome, outcome_of
from agentlab.plans.task_plan import ActionType, TaskStep
from agentlab.state.records import UnderWay
from agentlab.state.state import State
from agentlab.tools.calls import call_text
from agentlab.tools.tool import Tool
from agentlab.trace.journal import Address


class CallTool(Action):
    """Call the tool named by ``targetResource`` with the step's parameters."""

    type = ActionType.CALL_TOOL.value
    tools = "the one named by targetResource"
    side_effects = "the tool's effect class says"
    result_form = "the tool's result, JSON"
    resumable = True  # the journal serves what finished; an unfinished write is interrupted

    def check(self, step: TaskStep, bench: Bench) -> list[str]:
        """Refuse tools that this lab does not have and parameters that no schema names."""
        name = step.target_resource
        if name not in bench.tools:
            return [f"targetResource: unknown tool {seen(name)}; {suggest(name, bench.tools)}"]
        schema = bench.tools[name].parameters
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            return []
        return [
            f"parameter {seen(key)} is none of {name}'s; {suggest(key, properties)}"
            for key in step.parameters
            if key not in properties
        ]

    def offers(self, bench: Bench) -> list[Tool]:
        """Return the lab's tools, without those that ``mcp_call`` calls by their server."""
        return [t for t in bench.tools.values() if not of_server(t)]

    def needs_approval(self, step: TaskStep, bench: Bench) -> bool:
        """Say whether the tool asks for approval."""
        tool = bench.tools.get(step.target_resource)
        return tool is not None and tool.needs_approval

    def display(self, step: TaskStep) -> str:
        """Return the call."""
        return call_text(step.target_resource, step.parameters)

    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start the call."""
        address = Address(state.visit, step.step_id, attempt)
        return bench.begin_call(state, address, step.target_resource, parameters)

    def finish(self, state: State, bench: Bench, under_way: UnderWay) -> tuple[State, StepOutcome]:
        """Finish the call."""
        address = Address(state.visit, under_way.step_id, under_way.attempt)
        state, result, error = bench.finish_call(state, under_way, address)
        return state, outcome_of(result, error, bench.tools.get(under_way.tool))


def of_server(tool: Tool) -> bool:
    """Say whether a tool is called ``server/tool``: one that an MCP server offers."""
    return tool.service == "mcp" and "/" in tool.name
