"""The workflows that ship, by name."""

from __future__ import annotations

from agentlab.base.registry import registry
from agentlab.workflows.workflow import Workflow

WORKFLOWS = registry("workflow")


def get_workflow(text: str) -> Workflow:
    """Return the workflow that a name, or ``module:attribute``, stands for.

    Raises
    ------
    UnknownNameError, ConfigError
        There is none, or it is no workflow.
    """
    made: Workflow = WORKFLOWS.build(text)
    return made
