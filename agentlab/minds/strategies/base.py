"""A replan strategy is trigger × scope × budget × when_spent × when_no_plan, five values.

The **trigger** looks at the state at a trigger point (after a step, at the end of the plan, ...)
and says whether a decision is wanted. The **scope** says what the decision touches: the step
(RETRY), the rest, the whole plan; it may have nothing (more) to offer. The **budget** bounds the
run. **when_spent** is what happens when scope or budget have nothing left: CONTINUE for periodic
triggers, ABORT for those that follow a failure. **when_no_plan** is what happens when a replan was
decided and the planner has no plan, or none that can be carried out: the run stops, or keeps the
old plan while that has steps left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from agentlab.base.values import Amount, Count, record
from agentlab.minds.base import Kit
from agentlab.minds.strategies.repeats import not_again
from agentlab.state.decisions import (
    REPLANS,
    ReflectionResult,
    ReplanAction,
    ReplanDecision,
    Trigger,
    TriggerPoint,
)
from agentlab.state.state import State

TriggerRule = Callable[[TriggerPoint, State, "str | None"], "str | None"]
"""(point, state, step id) -> why a decision is wanted, or None."""

WhenNoPlan = Literal["stop", "keep"]

Scope = Callable[[Trigger, State, Kit], "ReplanDecision | None"]
"""(trigger, state, kit) -> what to do, or None when there is nothing (more) to offer."""


@record
class Budget:
    """Bounds of a turn of a run; None (where it may be) is no bound.

    Parameters
    ----------
    replans : int
        New plans after the first.
    executions : int
        Executions of steps, over all plans.
    tool_calls, lm_tokens : int
    seconds : float
        Of the run's clock, simulated or wall.
    depth : int
        Nesting of sub-agents and of decomposed steps.

    Raises
    ------
    ConfigError
        A bound is no number of at least 0.
    """

    replans: Count = 3
    executions: Count = 100
    tool_calls: Count | None = None
    lm_tokens: Count | None = None
    seconds: Amount | None = None
    depth: Count = 3

    def spent(self, state: State) -> str | None:
        """Return the name of the bound that stops further steps, or None."""
        since = state.turn.since
        if state.executions - since.executions >= state.max_task_iterations:
            return "executions"
        if self.tool_calls is not None and state.tool_calls - since.tool_calls >= self.tool_calls:
            return "tool_calls"
        if self.lm_tokens is not None and state.lm_tokens - since.lm_tokens >= self.lm_tokens:
            return "lm_tokens"
        if self.seconds is not None and state.now - since.seconds >= self.seconds:
            return "seconds"
        return None


def _function(value: Any) -> Any:
    if value is None or callable(value):  # a class that decides by itself may lack them
        return value
    raise ValueError("expected a function")


@record
class Strategy:
    """When to ask, what to do, how often, and what then.

    Parameters
    ----------
    name : str
        How it is called in results, with its arguments.
    trigger : TriggerRule
    scope : Scope
    budget : Budget
    when_spent : ReplanAction
        CONTINUE or ABORT.
    needs_model : bool
        True when it asks a language model.
    watches : bool
        True when it decides about events: it is asked when one arrives or a phase ends, failures
        are for it to accept, and steps that can no longer start are left to it.
    when_no_plan : {"stop", "keep"}
        A replan that gave no plan ends the run, or the run goes on with the old plan while that has
        steps left. The replan is spent all the same, and what failed in the old plan stays failed.
    """

    name: str
    trigger: Annotated[TriggerRule, PlainValidator(_function)]
    scope: Annotated[Scope, PlainValidator(_function)]
    budget: Budget = Budget()
    when_spent: ReplanAction = ReplanAction.ABORT
    needs_model: bool = False
    watches: bool = False
    when_no_plan: WhenNoPlan = "stop"

    def triggered(
        self, point: TriggerPoint, state: State, step_id: str | None = None
    ) -> Trigger | None:
        """Return why a decision is wanted at this point, or None."""
        reason = self.trigger(point, state, step_id)
        return None if reason is None else Trigger(point=point, reason=reason, step_id=step_id)

    def decide(self, trigger: Trigger, state: State, kit: Kit) -> ReplanDecision:
        """Decide, within the budget."""
        decision = self.scope(trigger, state, kit)
        if decision is None or not_again(decision, state, kit) is not None:
            return self._spent(trigger, "retries")
        spent = None
        if decision.action in REPLANS and not state.replans_left:
            spent = "replans"
        elif decision.action in REPLANS or decision.action is ReplanAction.RETRY:
            spent = self.budget.spent(state)  # no step of a new plan could be executed
        return decision if spent is None else self._spent(trigger, spent, decision.reflection)

    def _spent(
        self, trigger: Trigger, what: str, reflection: ReflectionResult | None = None
    ) -> ReplanDecision:
        return ReplanDecision(
            action=self.when_spent,
            reasoning=f"{trigger.reason}; {what} are spent",
            step_id=trigger.step_id,
            spent=what,
            reflection=reflection,
        )

    def within(self, **bounds: float | None) -> Strategy:
        """Return the strategy with bounds of its budget changed."""
        return replace(self, budget=replace(self.budget, **bounds))  # type: ignore[arg-type]
