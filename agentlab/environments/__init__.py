"""Simulated worlds: the contract, scenarios and their faults, suites; one file a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.base.face import face

if TYPE_CHECKING:
    from agentlab.base.schemas import object_schema as object_schema
    from agentlab.environments.base import (
        Begun as Begun,
        Call as Call,
        Environment as Environment,
        Evidence as Evidence,
        Outcome as Outcome,
        Verdict as Verdict,
    )
    from agentlab.environments.chain import Chain as Chain
    from agentlab.environments.check import check_environment as check_environment
    from agentlab.environments.fault_plan import (
        FaultKind as FaultKind,
        FaultPlan as FaultPlan,
        Outage as Outage,
        Persistence as Persistence,
        TargetedFault as TargetedFault,
        Visibility as Visibility,
        WorldEvent as WorldEvent,
    )
    from agentlab.environments.scenario import Goal as Goal, Scenario as Scenario
    from agentlab.environments.suites import Suite as Suite, load_suite as load_suite
    from agentlab.tools.calls import ToolError as ToolError
    from agentlab.tools.tool import Effect as Effect, Tool as Tool
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "base.schemas": "object_schema",
            "environments.base": "Begun Call Environment Evidence Outcome Verdict",
            "environments.chain": "Chain",
            "environments.check": "check_environment",
            "environments.fault_plan": "FaultKind FaultPlan Outage "
            "Persistence TargetedFault Visibility WorldEvent",
            "environments.scenario": "Goal Scenario",
            "environments.suites": "Suite load_suite",
            "tools.calls": "ToolError",
            "tools.tool": "Effect Tool",
        },
    )
