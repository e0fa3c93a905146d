"""What remains of a plan as JSON text that a person edits, and back.

Reading goes the way of a planner's reply: the same parser, the same checks against what the lab can
carry out, every violation listed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentlab.base.documents import shortened
from agentlab.base.strict_json import read_json
from agentlab.errors import JsonError, PlanError, PlanParseError
from agentlab.lab.lab import Lab
from agentlab.minds.base import checked_plan
from agentlab.plans.parsing import StepReply
from agentlab.plans.task_plan import StepStatus, TaskPlan
from agentlab.state.state import State
from agentlab.workflows.nodes.planning import plan_request


def remaining_text(plan: TaskPlan) -> str:
    """Return what remains of a plan as JSON to edit, in the reply form of planners."""
    steps = []
    for step in plan.remaining:
        if step.status is StepStatus.RUNNING:
            continue
        row = step.to_json()
        row["name"] = step.name or step.step_id
        always = ("stepId", "name", "actionType", "targetResource", "parameters", "dependencies")
        plain = StepReply(name="-", action_type="-").to_json()
        steps.append({k: row[k] for k in always} | {
            k: row[k] for k, v in plain.items() if k not in always and row[k] != v
        })  # fmt: skip
    document: dict[str, Any] = {"steps": steps}
    if plan.answer is not None:
        document["answer"] = plan.answer
    return json.dumps(document, indent=2, ensure_ascii=False)


def edited_plan(state: State, lab: Lab, text: str) -> TaskPlan:
    """Return the state's plan with what remains of it replaced.

    Parameters
    ----------
    state : State
    lab : Lab
        What can be carried out.
    text : str
        JSON in the reply form of a plan, or a list of its steps. Steps that are settled or under
        way stay, and may be depended on.

    Raises
    ------
    PlanError
        Everything that is wrong with it.
    """
    plan = state.task_plan
    if plan is None:
        raise PlanError("there is no plan yet; step past 'planning' first")
    try:
        reply = read_json(text)
    except JsonError as e:
        raise PlanParseError([f"not JSON: {e}"]) from e
    if isinstance(reply, list):
        reply = {"steps": reply}
    if not isinstance(reply, dict):
        raise PlanParseError([f"expected an object with steps, got {shortened(text, 40)!r}"])
    reply = {"answer": plan.answer, **reply}
    kept = [s for s in plan.steps if s.settled or s.status is StepStatus.RUNNING]
    asked = plan_request(state, lab)
    free = {s.step_id for s in plan.steps} - {s.step_id for s in kept}
    known = {**asked.results, **{s.step_id: None for s in kept}}
    request = replace(asked, taken=asked.taken - free, results=known)
    made = checked_plan(reply, request, lab)
    return plan.replace(answer=made.answer).with_steps((*kept, *made.steps))
