"""agentlab: a notebook-friendly research sandbox for plan-execute-reflect agents.

A run is a fold of nodes over an immutable state, and a world is a value inside it, so every run can
be stepped, forked, replayed and compared.

Start here: ``load_suite`` gives scenarios, ``Lab`` holds everything a run works with,
``autonomous.start(lab)`` gives a ``Run``; ``resident`` is the workflow that hears of events, and
``PlanningLoop`` keeps sessions of it. ``grid`` and ``Study`` compare arms, ``plots`` draws what
came out. ``tool`` makes a tool of a function. Names of planners, strategies, workflows and
environments are looked up in their registries; ``register_environment`` and ``check_environment``
are for worlds of your own. Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AgentConfig": "config",
    "AgentLabError": "errors",
    "Budget": "strategies",
    "ContextChangeEvent": "events",
    "Environment": "environments.base",
    "FaultPlan": "scenario",
    "Goal": "scenario",
    "Inspector": "widgets.inspector",
    "Lab": "lab",
    "Permissions": "tools.tool",
    "LoopConfig": "sessions",
    "PlanningLoop": "planning_loop",
    "ReplanDecision": "decisions",
    "Run": "run",
    "Scenario": "scenario",
    "State": "state",
    "Strategy": "strategies",
    "Suite": "scenario",
    "TaskPlan": "plans.task_plan",
    "TaskStep": "plans.task_plan",
    "TargetedFault": "scenario",
    "Workflow": "workflow",
    "Arm": "study.grid",
    "Study": "study.study",
    "autonomous": "workflows.autonomous",
    "cancel_token": "tools.cancel",
    "check_environment": "environments.base",
    "grid": "study.grid",
    "load_suite": "datasets",
    "node": "nodes.base",
    "register_environment": "environments",
    "resident": "workflows.resident",
    "tool": "tools.tool",
}
_MODULES = ("plots", "report")

__all__ = ["__version__", *sorted(_HOME), *_MODULES]

if TYPE_CHECKING:
    from agentlab import plots as plots
    from agentlab import report as report
    from agentlab.config import AgentConfig as AgentConfig
    from agentlab.datasets import load_suite as load_suite
    from agentlab.decisions import ReplanDecision as ReplanDecision
    from agentlab.environments import register_environment as register_environment
    from agentlab.environments.base import Environment as Environment
    from agentlab.environments.base import check_environment as check_environment
    from agentlab.errors import AgentLabError as AgentLabError
    from agentlab.events import ContextChangeEvent as ContextChangeEvent
    from agentlab.lab import Lab as Lab
    from agentlab.nodes.base import node as node
    from agentlab.planning_loop import PlanningLoop as PlanningLoop
    from agentlab.plans.task_plan import TaskPlan as TaskPlan
    from agentlab.plans.task_plan import TaskStep as TaskStep
    from agentlab.run import Run as Run
    from agentlab.scenario import FaultPlan as FaultPlan
    from agentlab.scenario import Goal as Goal
    from agentlab.scenario import Scenario as Scenario
    from agentlab.scenario import Suite as Suite
    from agentlab.scenario import TargetedFault as TargetedFault
    from agentlab.sessions import LoopConfig as LoopConfig
    from agentlab.state import State as State
    from agentlab.strategies import Budget as Budget
    from agentlab.strategies import Strategy as Strategy
    from agentlab.study.grid import Arm as Arm
    from agentlab.study.grid import grid as grid
    from agentlab.study.study import Study as Study
    from agentlab.tools.cancel import cancel_token as cancel_token
    from agentlab.tools.tool import Permissions as Permissions
    from agentlab.tools.tool import tool as tool
    from agentlab.widgets.inspector import Inspector as Inspector
    from agentlab.workflow import Workflow as Workflow
    from agentlab.workflows.autonomous import autonomous as autonomous
    from agentlab.workflows.resident import resident as resident


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"agentlab.{name}")
    if name not in _HOME:
        from agentlab.errors import suggest

        raise AttributeError(f"agentlab has no {name!r}; {suggest(name, __all__)}")
    value = getattr(import_module(f"agentlab.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
