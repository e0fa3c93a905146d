"""Replan strategies by name: trigger × scope × budget × what happens when it is spent."""

from __future__ import annotations

from importlib import import_module

from agentlab.strategies.base import STRATEGIES, Budget, Strategy

import_module("agentlab.strategies.presets")

__all__ = ["STRATEGIES", "Budget", "Strategy", "get_strategy"]


def get_strategy(text: str) -> Strategy:
    """Return the strategy that ``name(arguments)`` stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        The name is not registered, or the arguments do not fit.
    """
    return STRATEGIES.build(text)
