"""Edits of a state by a person: what may be changed, and what is settled."""

from __future__ import annotations

from typing import Any

from agentlab.base.arrived import seen
from agentlab.base.values import with_fields
from agentlab.errors import ConfigError, PlanParseError, RunError
from agentlab.lab.lab import Lab
from agentlab.plans.task_plan import TaskPlan, ordered
from agentlab.state.state import State
from agentlab.trace.journal import NoJournal
from agentlab.trace.recorder import Recorder


def _interrupted(state: State, lab: Lab) -> State:
    """Interrupt what is under way: its calls belong to another run."""
    running = [u.step_id for u in state.under_way]
    bench = lab.bind(recorder=Recorder(), journal=NoJournal(), executor=lab.executor.for_run())
    return bench.executor.cancel(state, bench, running, "under way in the run this was forked from")


def _edited(state: State, plan: TaskPlan | None, fields: dict[str, Any]) -> State:
    if plan is not None:
        plan = _checked_edit(state, plan)
        fields = {**fields, "task_plan": plan, "current_task_index": plan.current_index}
    return with_fields(state, fields, RunError, "the edit is refused")


def _checked_edit(state: State, new: TaskPlan) -> TaskPlan:
    """Return an edited plan in order; refuse one that is no plan or touches what is settled."""
    if not isinstance(new, TaskPlan):
        raise ConfigError(f"expected a TaskPlan, got {seen(new)}")
    old = state.task_plan
    after = {s.step_id: s for s in new.steps}
    for step in old.steps if old is not None else ():
        if step.settled or step.status == "running":
            kept = after.get(step.step_id)
            if kept is None or kept.replace(step_index=step.step_index) != step:
                raise RunError(f"step {step.step_id!r} is {step.status}; an edit must leave it")
    settled = {d for s in new.steps if s.settled for d in s.dependencies}
    try:
        return new.with_steps(ordered(new.steps, {*state.results, *settled}))
    except PlanParseError as e:
        raise RunError(f"the edited plan is not valid: {'; '.join(e.violations)}") from e
