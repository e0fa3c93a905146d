"""What is given to a run, taken for what is meant, or refused before anything has run."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from agentlab.base.arrived import instance, is_table
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite
from agentlab.errors import RunError
from agentlab.lab.lab import Lab
from agentlab.runs.graph import Graph


def ready(workflow: Any, lab: Any, handler: object | None) -> Lab:
    """Return the lab of a run, with the handler and the strategy that it is to have.

    Raises
    ------
    ConfigError
        It is no lab, or the workflow is none.
    """
    expected = "a Workflow, such as al.autonomous"
    graph: Graph = instance("workflow", workflow, Graph, expected, "al.Workflow(...) makes one")
    taken = lab_of(lab)
    if handler is not None:
        taken = taken.bind(handler=handler)
    return bound(taken, graph)


def bound(lab: Lab, workflow: Graph) -> Lab:
    """Return a lab with the strategy that a workflow brings, where the lab names none itself."""
    if workflow.strategy is None or lab.strategy_named:
        return lab
    return lab.bind(strategy=workflow.strategy(lab))


def lab_of(given: Any) -> Lab:
    """Return a lab, made of a scenario where that was given.

    Raises
    ------
    ConfigError
        It is neither.
    """
    if isinstance(given, (Scenario, Suite)) or is_table(given):
        return Lab(given)
    expected = "a Lab, such as al.Lab(al.load_suite('travel')[0])"
    instance("lab", given, Lab, expected)
    found: Lab = given
    return found


def mapping_of(what: str, given: Any) -> Mapping[Any, Any]:
    """Return a mapping that may be left out.

    Raises
    ------
    RunError
        It is none.
    """
    if given is None:
        return {}
    words = {"replies": "{0: 'text'}", "review": "{'step': 'approve'}"}
    expected = f"a mapping such as {words.get(what, {'seed': 1})}"
    made: Mapping[Any, Any] = instance(what, given, Mapping, expected, error=RunError)
    return made


def path_of(what: str, given: Any) -> Any:
    """Return a path.

    Raises
    ------
    RunError
        It is none.
    """
    return instance(what, given, (str, PathLike), "a folder or an agentlab Store", error=RunError)
