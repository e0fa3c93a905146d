"""Planners by name: who makes plans, and plans for what remains."""

from __future__ import annotations

from importlib import import_module

from agentlab.planners.base import PLANNERS, Planner

for _module in ("fixed", "reference", "search"):
    import_module(f"agentlab.planners.{_module}")


def get_planner(text: str) -> Planner:
    """Return the planner that ``name(arguments)`` stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        The name is not registered, or the arguments do not fit.
    """
    return PLANNERS.build(text)
