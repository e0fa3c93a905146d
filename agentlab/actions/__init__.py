"""Action types: how each kind of step is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentlab.actions.aggregate import Aggregate
from agentlab.actions.base import Action
from agentlab.actions.call_sub_agent import CallSubAgent
from agentlab.actions.call_tool import CallTool
from agentlab.actions.llm_generate import LlmGenerate
from agentlab.actions.mcp_call import McpCall
from agentlab.errors import ConfigError

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
