"""Nodes: named functions from state to state, each callable alone."""

from agentlab.workflows.nodes.final_response import final_response
from agentlab.workflows.nodes.load_config import load_config
from agentlab.workflows.nodes.plan_execution import plan_execution
from agentlab.workflows.nodes.planning import planning
from agentlab.workflows.nodes.reflection import reflection

__all__ = ["final_response", "load_config", "plan_execution", "planning", "reflection"]


def __dir__() -> list[str]:
    return sorted(__all__)
