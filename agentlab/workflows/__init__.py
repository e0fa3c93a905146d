"""The workflows that ship, by name."""

from __future__ import annotations

from agentlab.errors import UnknownNameError
from agentlab.workflow import Workflow
from agentlab.workflows.autonomous import autonomous

WORKFLOWS: dict[str, Workflow] = {autonomous.name: autonomous}


def get_workflow(name: str) -> Workflow:
    """Return the workflow of that name.

    Raises
    ------
    UnknownNameError
        There is none.
    """
    if name not in WORKFLOWS:
        raise UnknownNameError("workflow", name, WORKFLOWS)
    return WORKFLOWS[name]
