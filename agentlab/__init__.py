"""agentlab: a notebook-friendly research sandbox for plan-execute-reflect agents.

A run is a fold of nodes over an immutable state, and a world is a value inside it, so every run can
be stepped, forked, replayed and compared.

Start here: ``load_suite`` gives scenarios, ``Lab`` holds everything a run works with,
``autonomous.start(lab)`` gives a ``Run``; ``resident`` is the workflow that hears of events, and
``PlanningLoop`` keeps sessions of it. ``grid`` and ``Study`` compare arms, ``plots`` draws what
came out. ``tool`` makes a tool of a function. Names of planners, strategies, workflows and
environments are looked up; ``register`` gives one to what you made, in the same form for every
kind, and ``check_environment`` checks a world. ``nodes``, ``planners``, ``strategies``,
``actions``, ``environments``, ``plans``, ``lm`` and ``plots`` are namespaces. Everything is
imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentlab import environments as environments, lm as lm, plans as plans
    from agentlab.base.registry import register as register
    from agentlab.environments.base import Environment as Environment
    from agentlab.environments.check import check_environment as check_environment
    from agentlab.environments.fault_plan import (
        FaultPlan as FaultPlan,
        TargetedFault as TargetedFault,
    )
    from agentlab.environments.named import register_environment as register_environment
    from agentlab.environments.scenario import Goal as Goal, Scenario as Scenario
    from agentlab.environments.suites import Suite as Suite, load_suite as load_suite
    from agentlab.errors import AgentLabError as AgentLabError
    from agentlab.lab import actions as actions
    from agentlab.lab.lab import Lab as Lab
    from agentlab.minds import planners as planners, strategies as strategies
    from agentlab.minds.strategies.base import Budget as Budget, Strategy as Strategy
    from agentlab.plans.task_plan import TaskPlan as TaskPlan, TaskStep as TaskStep
    from agentlab.runs.graph import node as node
    from agentlab.runs.run import Run as Run
    from agentlab.state.config import AgentConfig as AgentConfig
    from agentlab.state.decisions import ReplanDecision as ReplanDecision
    from agentlab.state.events import ContextChangeEvent as ContextChangeEvent
    from agentlab.state.state import State as State
    from agentlab.study.grid import Arm as Arm, grid as grid
    from agentlab.study.study import Study as Study
    from agentlab.tools.cancel import cancel_token as cancel_token
    from agentlab.tools.tool import Permissions as Permissions, tool as tool
    from agentlab.version import __version__ as __version__
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
    from agentlab.base.face import face

    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "base.registry": "register",
            "environments.base": "Environment",
            "environments.check": "check_environment",
            "environments.fault_plan": "FaultPlan TargetedFault",
            "environments.named": "register_environment",
            "environments.scenario": "Goal Scenario",
            "environments.suites": "Suite load_suite",
            "errors": "AgentLabError",
            "lab.lab": "Lab",
            "minds.strategies.base": "Budget Strategy",
            "plans.task_plan": "TaskPlan TaskStep",
            "runs.graph": "node",
            "runs.run": "Run",
            "state.config": "AgentConfig",
            "state.decisions": "ReplanDecision",
            "state.events": "ContextChangeEvent",
            "state.state": "State",
            "study.grid": "Arm grid",
            "study.study": "Study",
            "tools.cancel": "cancel_token",
            "tools.tool": "Permissions tool",
            "views.inspector.inspector": "Inspector",
            "workflows.autonomous": "autonomous",
            "workflows.planning_loop": "PlanningLoop",
            "workflows.resident": "resident",
            "workflows.sessions": "LoopConfig",
            "workflows.workflow": "Workflow",
        },
        __version__="version:__version__",
        actions="lab.actions:",
        environments="environments:",
        lm="lm:",
        nodes="workflows.nodes:",
        planners="minds.planners:",
        plans="plans:",
        plots="views.plots:",
        report="views.page.report:",
        strategies="minds.strategies:",
    )
