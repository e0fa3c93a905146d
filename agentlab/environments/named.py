"""Simulated worlds by name."""

from __future__ import annotations

from functools import cache
from typing import Any

from agentlab.base.face import load
from agentlab.environments.base import Environment
from agentlab.errors import UnknownNameError

_BUILT_IN = {
    "chain": "agentlab.environments.chain:Chain",
    "travel": "agentlab.environments.travel:Travel",
    "workshop": "agentlab.environments.workshop:Workshop",
    "blocks": "agentlab.environments.blocks:Blocks",
    "blocksworld": "agentlab.environments.blocks:Blocksworld",
}
_PROVIDERS = {"agentdojo": "agentlab.environments.adapters.agentdojo:"}
"""Prefix of "prefix/part" names to the module that provides them, found by name as an entry point
is: the module has ``environment(part)``, ``load_suite(part)`` and ``PARTS``."""
_REGISTERED: dict[str, Environment] = {}


def register_environment(environment: Environment) -> None:
    """Make an environment known under its name, for scenarios that name it."""
    _REGISTERED[environment.name] = environment


def registered() -> list[Environment]:
    """Return the environments that were registered, for handing them to other processes."""
    return list(_REGISTERED.values())


@cache
def _built_in(name: str) -> Environment:
    made: Environment = load(_BUILT_IN[name])()
    return made


def provided(prefix: str, attribute: str) -> Any:
    """Return what the module that provides "prefix/part" environments and suites has."""
    return load(_PROVIDERS[prefix] + attribute)


def get_environment(name: str) -> Environment:
    """Return the environment of that name.

    Raises
    ------
    UnknownNameError
        No such environment is built in or registered.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    prefix, _, part = name.partition("/")
    if part and prefix in _PROVIDERS:
        made: Environment = provided(prefix, "environment")(part)
        return made
    if name not in _BUILT_IN:
        raise UnknownNameError("environment", name, [*_BUILT_IN, *_REGISTERED])
    return _built_in(name)
