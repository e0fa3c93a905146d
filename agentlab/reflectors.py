"""Reflectors: who judges how the execution of a plan went."""

from __future__ import annotations

from typing import Protocol

from agentlab.bench import Bench
from agentlab.decisions import ReflectionResult
from agentlab.plans.task_plan import StepStatus
from agentlab.state import State


class Reflector(Protocol):
    """Judges an execution."""

    def reflect(self, state: State, bench: Bench) -> ReflectionResult:
        """Return how it went, and whether another plan is worth making."""


def counts(state: State) -> dict[StepStatus, int]:
    """Return how many steps of the plan have each status."""
    steps = state.task_plan.steps if state.task_plan is not None else ()
    return {status: sum(s.status is status for s in steps) for status in StepStatus}


class RuleReflector:
    """Judges by counting: another plan is worth making when nothing completed.

    Not when every failure is one that the tools call permanent and there is no other tool to try.
    """

    def reflect(self, state: State, bench: Bench) -> ReflectionResult:
        """Return the assessment and, on total failure, the wish for another plan."""
        number = counts(state)
        completed, failed = number[StepStatus.COMPLETED], number[StepStatus.FAILED]
        failed += number[StepStatus.INTERRUPTED]
        text = f"{completed} completed, {failed} failed, {number[StepStatus.SKIPPED]} skipped"
        if completed or not failed:
            achieved = completed > 0 and not failed and not number[StepStatus.PENDING]
            return ReflectionResult(analysis=text, goal_achieved=achieved)
        plan = state.task_plan
        errors = [s.error for s in plan.steps if s.error] if plan is not None else []
        broken = sorted({f.tool for f in state.failures if f.permanent})
        if broken and not set(bench.tools) - set(broken):
            return ReflectionResult(
                analysis=f"{text}; every tool is permanently broken", goal_achieved=False
            )
        return ReflectionResult(
            analysis=text,
            goal_achieved=False,
            need_replan=True,
            replan_reason=f"nothing completed; first error: {errors[0] if errors else 'unknown'}",
            suggestions=tuple(f"avoid {name}: permanently broken" for name in broken),
        )
