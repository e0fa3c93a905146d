"""agentlab: a notebook-friendly research sandbox for plan-execute-reflect agents.

A run is a fold of nodes over an immutable state, and a world is a value inside it, so every run can
be stepped, forked, replayed and compared.

Start here: ``load_suite`` gives scenarios, ``Lab`` holds everything a run works with,
``autonomous.start(lab)`` gives a ``Run``; ``resident`` is the workflow that hears of events, and
``PlanningLoop`` keeps sessions of it. ``grid`` and ``Study`` compare arms, ``plots`` draws what
came out. ``tool`` makes a tool of a function. Names of planners, strategies, workflows and
environments are looked up in their registries; ``register_environment`` and ``check_environment``
are for worlds of your own. ``nodes``, ``planners``, ``strategies``, ``environments`` and ``plots``
are namespaces. Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentlab.version import __version__ as __version__

_HOME = {
    "AgentConfig": "state.config",
    "AgentLabError": "errors",
    "Arm": "study.grid",
    "Budget": "minds.strategies.base",
    "ContextChangeEvent": "state.events",
    "Environment": "environments.base",
    "FaultPlan": "environments.fault_plan",
    "Goal": "environments.scenario",
    "Inspector": "views.inspector.inspector",
    "Lab": "lab.lab",
    "LoopConfig": "workflows.sessions",
    "Permissions": "tools.tool",
    "PlanningLoop": "workflows.planning_loop",
    "ReplanDecision": "state.decisions",
    "Run": "runs.run",
    "Scenario": "environments.scenario",
    "State": "state.state",
    "Strategy": "minds.strategies.base",
    "Study": "study.study",
    "Suite": "environments.suites",
    "TargetedFault": "environments.fault_plan",
    "TaskPlan": "plans.task_plan",
    "TaskStep": "plans.task_plan",
    "Workflow": "workflows.workflow",
    "autonomous": "workflows.autonomous",
    "cancel_token": "tools.cancel",
    "check_environment": "environments.check",
    "grid": "study.grid",
    "load_suite": "environments.suites",
    "node": "runs.graph",
    "register_environment": "environments.named",
    "resident": "workflows.resident",
    "tool": "tools.tool",
}
_SPACES = {
    "environments": "environments",
    "nodes": "workflows.nodes",
    "planners": "minds.planners",
    "plots": "views.plots",
    "report": "views.page.report",
    "strategies": "minds.strategies",
}

__all__ = ["__version__", *sorted(_HOME), *sorted(_SPACES)]

if TYPE_CHECKING:
    from agentlab import environments as environments
    from agentlab.environments.base import Environment as Environment
    from agentlab.environments.check import check_environment as check_environment
    from agentlab.environments.fault_plan import FaultPlan as FaultPlan
    from agentlab.environments.fault_plan import TargetedFault as TargetedFault
    from agentlab.environments.named import register_environment as register_environment
    from agentlab.environments.scenario import Goal as Goal
    from agentlab.environments.scenario import Scenario as Scenario
    from agentlab.environments.suites import Suite as Suite
    from agentlab.environments.suites import load_suite as load_suite
    from agentlab.errors import AgentLabError as AgentLabError
    from agentlab.lab.lab import Lab as Lab
    from agentlab.minds import planners as planners
    from agentlab.minds import strategies as strategies
    from agentlab.minds.strategies.base import Budget as Budget
    from agentlab.minds.strategies.base import Strategy as Strategy
    from agentlab.plans.task_plan import TaskPlan as TaskPlan
    from agentlab.plans.task_plan import TaskStep as TaskStep
    from agentlab.runs.graph import node as node
    from agentlab.runs.run import Run as Run
    from agentlab.state.config import AgentConfig as AgentConfig
    from agentlab.state.decisions import ReplanDecision as ReplanDecision
    from agentlab.state.events import ContextChangeEvent as ContextChangeEvent
    from agentlab.state.state import State as State
    from agentlab.study.grid import Arm as Arm
    from agentlab.study.grid import grid as grid
    from agentlab.study.study import Study as Study
    from agentlab.tools.cancel import cancel_token as cancel_token
    from agentlab.tools.tool import Permissions as Permissions
    from agentlab.tools.tool import tool as tool
    from agentlab.views import plots as plots
    from agentlab.views.inspector.inspector import Inspector as Inspector
    from agentlab.views.page import report as report
    from agentlab.workflows import nodes as nodes
    from agentlab.workflows.autonomous import autonomous as autonomous
    from agentlab.workflows.planning_loop import PlanningLoop as PlanningLoop
    from agentlab.workflows.resident import resident as resident
    from agentlab.workflows.sessions import LoopConfig as LoopConfig
    from agentlab.workflows.workflow import Workflow as Workflow
else:  # a type checker that saw this would find no unknown name any more

    def __getattr__(name: str) -> Any:
        if name in _SPACES:
            value = import_module(f"agentlab.{_SPACES[name]}")
        elif name in _HOME:
            value = getattr(import_module(f"agentlab.{_HOME[name]}"), name)
        else:
            from agentlab.errors import suggest

            raise AttributeError(f"agentlab has no {name!r}; {suggest(name, __all__)}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
