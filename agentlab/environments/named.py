"""Simulated worlds by name."""

from __future__ import annotations

from agentlab.base.arrived import instance
from agentlab.base.registry import register, registry
from agentlab.environments.base import Environment

ENVIRONMENTS = registry("environment")


def register_environment(environment: Environment) -> None:
    """Make an environment known under its name, for scenarios that name it."""
    instance("environment", environment, Environment, "an Environment", "an object of your class")
    register("environment", environment.name, environment)


def get_environment(text: str) -> Environment:
    """Return the environment that a name, or ``module:attribute``, stands for: always the same.

    Raises
    ------
    UnknownNameError, ConfigError
        There is none, or it is no environment.
    """
    made: Environment = ENVIRONMENTS.build(text)
    return made
