"""Replan strategies by name."""

from __future__ import annotations

from importlib import import_module

from agentlab.minds.strategies.base import STRATEGIES, Strategy

import_module("agentlab.minds.strategies.presets")


def get_strategy(text: str) -> Strategy:
    """Return the strategy that ``name(arguments)`` stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        The name is not registered, or the arguments do not fit.
    """
    return STRATEGIES.build(text)
