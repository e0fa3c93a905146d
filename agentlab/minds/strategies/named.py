"""Replan strategies by name."""

from __future__ import annotations

from agentlab.base.registry import registry
from agentlab.minds.strategies.base import Strategy

STRATEGIES = registry("strategy")


def get_strategy(text: str) -> Strategy:
    """Return the strategy that ``name(arguments)`` stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        The name is not registered, or the arguments do not fit.
    """
    made: Strategy = STRATEGIES.build(text)
    return made
