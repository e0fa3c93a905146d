"""Nodes: named functions from state to state, each callable alone."""

from agentlab.nodes.final_response import final_response
from agentlab.nodes.load_config import load_config
from agentlab.nodes.plan_execution import plan_execution
from agentlab.nodes.planning import planning
from agentlab.nodes.reflection import reflection

__all__ = ["final_response", "load_config", "plan_execution", "planning", "reflection"]
