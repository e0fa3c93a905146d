"""Plans: steps, references, parsing, the dependency graph; plans as contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.base.face import face

if TYPE_CHECKING:
    from agentlab.errors import (
        PlanEditError as PlanEditError,
        PlanError as PlanError,
        PlanParseError as PlanParseError,
        PlanValidationError as PlanValidationError,
    )
    from agentlab.plans.contract.bindings import (
        plan_reply as plan_reply,
        to_task_plan as to_task_plan,
    )
    from agentlab.plans.contract.codec import PlanCodec as PlanCodec
    from agentlab.plans.contract.spec import (
        PlanCapability as PlanCapability,
        PlanSpec as PlanSpec,
        PlanStep as PlanStep,
        revision_diff as revision_diff,
    )
    from agentlab.plans.contract.validator import PlanValidator as PlanValidator
    from agentlab.plans.graph import diff as diff
    from agentlab.plans.parsing import parse_plan as parse_plan
    from agentlab.plans.task_plan import (
        PlanStatus as PlanStatus,
        StepStatus as StepStatus,
        TaskPlan as TaskPlan,
        TaskStep as TaskStep,
    )
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "errors": "PlanEditError PlanError PlanParseError PlanValidationError",
            "plans.contract.bindings": "plan_reply to_task_plan",
            "plans.contract.codec": "PlanCodec",
            "plans.contract.spec": "PlanCapability PlanSpec PlanStep revision_diff",
            "plans.contract.validator": "PlanValidator",
            "plans.graph": "diff",
            "plans.parsing": "parse_plan",
            "plans.task_plan": "PlanStatus StepStatus TaskPlan TaskStep",
        },
    )
