"""Reflectors: who judges how the execution of a plan went."""

from __future__ import annotations

from agentlab.base.documents import Json, canonical, shortened
from agentlab.minds.base import Kit
from agentlab.plans.task_plan import StepStatus
from agentlab.state.decisions import ReflectionResult
from agentlab.state.state import State


def counts(state: State) -> dict[StepStatus, int]:
    """Return how many steps of the plan have each status."""
    plan = state.task_plan
    return {status: plan.count(status) if plan is not None else 0 for status in StepStatus}


class RuleReflector:
    """Judges by counting: another plan is worth making when nothing completed.

    Not when every failure is one that the tools call permanent and there is no other tool to try.
    """

    def reflect(self, state: State, kit: Kit) -> ReflectionResult:
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
        if broken and not set(kit.tools) - set(broken):
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


REASONS = {
    "replans": "the limit of replans was reached",
    "executions": "the limit of step executions was reached",
    "tool_calls": "the limit of tool calls was reached",
    "lm_tokens": "the limit of LM tokens was reached",
    "seconds": "the time was up",
    "abort": "the run was aborted",
    "no_progress": "replanning led to the same plan in the same situation again",
    "no_plan": "no further plan could be made",
}


class TemplateResponder:
    """States the answer, each step's result, what failed, and why it stopped."""

    def respond(self, state: State, kit: Kit) -> str:
        """Return what the user is told."""
        plan = state.task_plan
        if state.error is not None and plan is None:
            return f"Your request could not be carried out: {state.error}"
        if plan is None or not plan.steps:
            return f"There was nothing to carry out for: {state.user_input}"
        done = [s for s in plan.steps if s.status is StepStatus.COMPLETED]
        lines = []
        if state.answer is not None:
            lines.append(f"The answer is {_text(state.answer)}.")
        if len(done) == len(plan.steps):
            lines.append(f"All {len(done)} steps were completed.")
        else:
            lines.append(f"{len(done)} of {len(plan.steps)} steps were completed.")
        lines += [f"- {s.name}: {_text(s.result)}" for s in done]
        for status, text in (
            (StepStatus.FAILED, "failed"),
            (StepStatus.INTERRUPTED, "interrupted, outcome unknown"),
            (StepStatus.SKIPPED, "skipped"),
        ):
            lines += [
                f"- {s.name}: {text}" + (f" ({s.error})" if s.error else "")
                for s in plan.steps
                if s.status is status
            ]
        waiting = [s.name for s in plan.steps if s.status is StepStatus.PENDING]
        if waiting:
            lines.append(f"Not started: {', '.join(waiting)}.")
        if state.error is not None:
            lines.append(f"Error: {state.error}.")
        if state.stopped_by is not None:
            lines.append(f"It stopped because {REASONS.get(state.stopped_by, state.stopped_by)}.")
        if state.reflection is not None:
            lines.append(f"Assessment: {state.reflection.analysis}.")
        return "\n".join(lines)


def _text(value: Json) -> str:
    return shortened(value if isinstance(value, str) else canonical(value), 200)
