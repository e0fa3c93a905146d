"""Action types by name."""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.base.registry import register, registry
from agentlab.lab.bench import Action

ACTIONS: Mapping[str, Action] = registry("action")
"""The registered action types; a plan that names another is refused at planning time."""


def register_action(action: Action) -> None:
    """Make an action type known to every lab, under its ``type``."""
    register("action", action.type, action)
