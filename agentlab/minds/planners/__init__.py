"""Planners: who makes plans, and plans for what remains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.base.face import face

if TYPE_CHECKING:
    from agentlab.minds.base import (
        Kit as Kit,
        Noted as Noted,
        Planner as Planner,
        PlanRequest as PlanRequest,
        checked_plan as checked_plan,
        tool_step as tool_step,
    )
    from agentlab.minds.planners.contract import Contract as Contract
    from agentlab.minds.planners.contract_graph import (
        ContractPlanner as ContractPlanner,
        PlanMode as PlanMode,
        SpecRequest as SpecRequest,
    )
    from agentlab.minds.planners.fixed import Fixed as Fixed
    from agentlab.minds.planners.reference import Reference as Reference
    from agentlab.minds.planners.search import Search as Search
    from agentlab.minds.planners.structured import Structured as Structured
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "minds.base": "Kit Noted PlanRequest Planner checked_plan tool_step",
            "minds.planners.contract": "Contract",
            "minds.planners.contract_graph": "ContractPlanner PlanMode SpecRequest",
            "minds.planners.fixed": "Fixed",
            "minds.planners.reference": "Reference",
            "minds.planners.search": "Search",
            "minds.planners.structured": "Structured",
        },
    )
