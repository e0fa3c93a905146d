"""The workflows that ship, by name."""

from __future__ import annotations

from agentlab.errors import UnknownNameError
from agentlab.workflows.autonomous import autonomous
from agentlab.workflows.resident import resident
from agentlab.workflows.workflow import Workflow

WORKFLOWS: dict[str, Workflow] = {w.name: w for w in (autonomous, resident)}


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
