"""Planners by name."""

from __future__ import annotations

from agentlab.base.registry import registry
from agentlab.minds.base import Planner

PLANNERS = registry("planner")


def get_planner(text: str) -> Planner:
    """Return the planner that ``name(arguments)`` stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        The name is not registered, or the arguments do not fit.
    """
    made: Planner = PLANNERS.build(text)
    return made
