"""Simulated worlds, by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from agentlab.environments.base import Environment
from agentlab.errors import UnknownNameError

_BUILT_IN = {
    "chain": ("agentlab.environments.chain", "Chain"),
    "travel": ("agentlab.environments.travel", "Travel"),
    "blocks": ("agentlab.environments.blocks", "Blocks"),
    "blocksworld": ("agentlab.environments.blocks", "Blocksworld"),
}
_REGISTERED: dict[str, Environment] = {}


def register_environment(environment: Environment) -> None:
    """Make an environment known under its name, for scenarios that name it."""
    _REGISTERED[environment.name] = environment


@cache
def _built_in(name: str) -> Environment:
    module, attribute = _BUILT_IN[name]
    made: Environment = getattr(import_module(module), attribute)()
    return made


def get_environment(name: str) -> Environment:
    """Return the environment of that name.

    Raises
    ------
    UnknownNameError
        No such environment is built in or registered.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _BUILT_IN:
        raise UnknownNameError("environment", name, [*_BUILT_IN, *_REGISTERED])
    return _built_in(name)
