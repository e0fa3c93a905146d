"""Planners by name: who makes plans, and plans for what remains."""

from __future__ import annotations

from importlib import import_module

from agentlab.minds.base import PLANNERS, Planner

for _module in ("fixed", "reference", "search"):
    import_module(f"agentlab.minds.planners.{_module}")
