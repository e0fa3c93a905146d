"""Action types by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentlab.errors import ConfigError
from agentlab.lab.actions.aggregate import Aggregate
from agentlab.lab.actions.call_sub_agent import CallSubAgent
from agentlab.lab.actions.call_tool import CallTool
from agentlab.lab.actions.llm_generate import LlmGenerate
from agentlab.lab.actions.mcp_call import McpCall
from agentlab.lab.bench import Action

_REGISTERED: dict[str, Action] = {
    a.type: a for a in (CallTool(), CallSubAgent(), LlmGenerate(), McpCall(), Aggregate())
}

ACTIONS: Mapping[str, Action] = MappingProxyType(_REGISTERED)
"""The registered action types; a plan that names another is refused at planning time."""


def register_action(action: Action) -> None:
    """Make an action type known to every lab.

    Raises
    ------
    ConfigError
        Another action has that type.
    """
    if action.type in _REGISTERED:
        raise ConfigError(f"action type {action.type!r} is registered already")
    _REGISTERED[action.type] = action
