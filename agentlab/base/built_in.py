"""What ships, by kind and name: text alone, imported by the registry when it is first asked for.

A thing that is to ship under a name adds its line here and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "planner": {
        "reference": "agentlab.minds.planners.reference:Reference",
        "search": "agentlab.minds.planners.search:Search",
        "structured": "agentlab.minds.planners.structured:Structured",
        "contract": "agentlab.minds.planners.contract:Contract",
    },
    "strategy": {
        name: f"agentlab.minds.strategies.presets:{name}"
        for name in (
            "never", "retry", "retry_then_replan", "on_error", "ask_on_error", "every_step",
            "every", "reflect_on_total_failure", "event_driven", "oracle",
        )
    },
    "action": {
        "call_tool": "agentlab.lab.actions.call_tool:CallTool",
        "call_sub_agent": "agentlab.lab.actions.call_sub_agent:CallSubAgent",
        "llm_generate": "agentlab.lab.actions.llm_generate:LlmGenerate",
        "mcp_call": "agentlab.lab.actions.mcp_call:McpCall",
        "aggregate": "agentlab.lab.actions.aggregate:Aggregate",
    },
    "workflow": {
        "autonomous": "agentlab.workflows.autonomous:autonomous",
        "resident": "agentlab.workflows.resident:resident",
    },
    "environment": {
        "chain": "agentlab.environments.chain:Chain",
        "travel": "agentlab.environments.travel:Travel",
        "workshop": "agentlab.environments.workshop:Workshop",
        "blocks": "agentlab.environments.blocks:Blocks",
        "blocksworld": "agentlab.environments.blocks:Blocksworld",
        **{
            f"agentdojo/{part}": f"agentlab.environments.adapters.agentdojo:AgentDojo({part!r})"
            for part in ("workspace", "travel", "banking", "slack")
        },
    },
    "retriever": {},
    "reflector": {
        "rules": "agentlab.minds.rules:RuleReflector", "lm": "agentlab.minds.by_model:LMReflector",
    },
    "responder": {
        "template": "agentlab.minds.rules:TemplateResponder",
        "lm": "agentlab.minds.by_model:LMResponder",
    },
}  # fmt: skip
"""What ships, by kind and name: where it is found when it is first asked for."""

METHOD = {
    "planner": "plan", "strategy": "decide", "action": "begin", "workflow": "start",
    "environment": "apply", "reflector": "reflect", "responder": "respond",
}  # fmt: skip
"""What makes an object one of the kind."""

SHARED = ("action", "workflow", "environment")
"""Kinds of which a name stands for one object, made once."""
