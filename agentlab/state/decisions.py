"""What minds decide: intent, reflection, and what to do with a plan that met trouble."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictInt

from agentlab.base.values import Value
from agentlab.errors import PlanEditError, seen
from agentlab.plans.task_plan import StepStatus, TaskPlan
from agentlab.state.events import ContextChangeEvent
from agentlab.state.records import DeliveredFault


class IntentResult(Value):
    """What the user wants, and what to do next."""

    intent: str = ""
    confidence: float = Field(default=0.0, ge=0, le=1)
    action: str = "continue_chat"
    need_rag: bool = False
    rag_reason: str = ""
    rag_keywords: tuple[str, ...] = ()
    sub_agent_id: str | None = None
    tool_name: str | None = None
    tool_params: dict[str, Any] = {}


class ReflectionResult(Value):
    """How the execution of a plan went."""

    analysis: str
    goal_achieved: bool
    need_replan: bool = False
    replan_reason: str = ""
    suggestions: tuple[str, ...] = ()


class TriggerPoint(StrEnum):
    """When a strategy is asked."""

    AFTER_STEP = "after_step"
    EVENT = "event"
    PHASE_END = "phase_end"
    STALL = "stall"
    """Nothing runs and nothing can start."""
    PLAN_END = "plan_end"
    PLANNING_FAILED = "planning_failed"


class Trigger(Value):
    """Why a strategy wants a decision."""

    point: TriggerPoint
    reason: str
    step_id: str | None = None


class ReplanAction(StrEnum):
    """What to do: nothing, the step again, a new rest, a new plan, or stop."""

    CONTINUE = "CONTINUE"
    RETRY = "RETRY"
    REPLAN_REMAINING = "REPLAN_REMAINING"
    REPLAN_FULL = "REPLAN_FULL"
    ABORT = "ABORT"


REPLANS = frozenset({ReplanAction.REPLAN_REMAINING, ReplanAction.REPLAN_FULL})


def _texts(given: Any) -> Any:
    return ((given,) if given.strip() else ()) if isinstance(given, str) else given


class ReplanDecision(Value):
    """A strategy's decision, with its reasoning in the open."""

    action: ReplanAction
    reasoning: str = ""
    step_id: str | None = None
    """The step to RETRY."""
    wait: float = Field(default=0.0, ge=0)
    """Simulated seconds to wait before a RETRY."""
    repeats_unknown: bool = False
    """True: RETRY although the step may have taken effect; else that is refused."""
    steps_to_cancel: tuple[StrictInt, ...] = ()
    """Indices that REPLAN_REMAINING cancels, with what depends on them; empty: all pending."""
    new_context_hints: Annotated[tuple[str, ...], BeforeValidator(_texts)] = ()
    """What a new plan should mind: a text or a list of them."""
    confidence: float = Field(default=1.0, ge=0, le=1)
    correction: dict[str, Any] = {}
    """Merge patch on the belief: what a privileged trigger knows to be true."""
    exposed: DeliveredFault | None = None
    """A fault that told something false of a step: what it made the agent think is taken back."""
    spent: str | None = None
    """The budget that turned this decision into what it is; None: none did."""
    reflection: ReflectionResult | None = None
    """What the reflector said; None: it was not asked."""
    events: tuple[ContextChangeEvent, ...] = ()
    """What had happened since the decision before."""

    def checked(self, plan: TaskPlan | None) -> ReplanDecision:
        """Return the decision; refuse one that cancels what is completed or does not exist.

        So is one that retries no step, or one that is under way.

        Raises
        ------
        PlanEditError
        """
        steps = plan.steps if plan is not None else ()
        for index in self.steps_to_cancel:
            if not 0 <= index < len(steps):
                raise PlanEditError(
                    f"step {index} cannot be cancelled: steps are 0 ... {len(steps) - 1}"
                )
            if steps[index].status is StepStatus.COMPLETED:
                raise PlanEditError(
                    f"step {index} ({steps[index].step_id}) is completed and cannot be cancelled"
                )
        if self.action is ReplanAction.RETRY:
            if plan is None or self.step_id not in plan:
                known = ", ".join(s.step_id for s in steps) or "none"
                raise PlanEditError(
                    f"expected a step to RETRY of {known}, got {seen(self.step_id)}"
                )
            if plan.step(str(self.step_id)).status is StepStatus.RUNNING:
                raise PlanEditError(f"step {seen(self.step_id)} is under way and cannot be retried")
        return self


class ReplanRecord(Value):
    """One accepted replan, for the history."""

    at: float
    """Simulated seconds."""
    visit: int
    decision: ReplanDecision
    before: TaskPlan
    after: TaskPlan

    @property
    def events(self) -> tuple[ContextChangeEvent, ...]:
        """What led to it."""
        return self.decision.events
