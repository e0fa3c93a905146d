"""Replan strategies by name: trigger × scope × budget × what happens when it is spent."""

from __future__ import annotations

from importlib import import_module

from agentlab.minds.strategies.base import STRATEGIES, Budget, Strategy
from agentlab.minds.strategies.named import get_strategy

import_module("agentlab.minds.strategies.presets")

__all__ = ["STRATEGIES", "Budget", "Strategy", "get_strategy"]
