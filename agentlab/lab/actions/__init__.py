"""Action types: how each kind of step is carried out."""

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
