"""Planners by name."""

from __future__ import annotations

from importlib import import_module

from agentlab.minds.base import PLANNERS, Planner

import_module("agentlab.minds.planners.fixed")
import_module("agentlab.minds.planners.reference")
import_module("agentlab.minds.planners.search")


@PLANNERS.register("structured")
def structured(program: str | None = None) -> Planner:
    """Plans written by a language model as one JSON document; ``program``: a saved dspy program."""
    from agentlab.minds.planners.structured import Structured

    return Structured(program)


@PLANNERS.register("contract")
def contract(program: str | None = None, max_steps: int = 64, max_depth: int = 64) -> Planner:
    """Plans written by a language model as a checked contract, then bound to parameters."""
    from agentlab.minds.planners.contract import Contract

    return Contract(program, max_steps, max_depth)


def get_planner(text: str) -> Planner:
    """Return the planner that ``name(arguments)`` stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        The name is not registered, or the arguments do not fit.
    """
    return PLANNERS.build(text)
