"""``autonomous``: plan, execute each step, reflect, replan or respond.

::

    START → load_config ─┬ error → final_response
                         └ planning ─┬ no steps ──────────────────────────→ final_response → END
                                     └ steps → plan_execution ⟲ execute_next_task
                                                   └ reflect → reflection ─┬ execute_next_task
                                                                           ├ replan → planning
                                                                           └ final_response
"""

from __future__ import annotations

from agentlab.runs.graph import END, WAIT
from agentlab.state.state import EXECUTE_NEXT_TASK, REFLECT, REPLAN, WAIT_FOR_REVIEW, State
from agentlab.workflows.nodes import (
    final_response,
    load_config,
    plan_execution,
    planning,
    reflection,
)
from agentlab.workflows.workflow import Workflow


def after_load_config(state: State) -> str:
    """Go on to planning, or answer when the configuration could not be loaded."""
    return "final_response" if state.error is not None else "planning"


def after_planning(state: State) -> str:
    """Execute the plan; a plan without steps is answered at once."""
    if state.next_action == REFLECT:
        return "reflection"
    return "plan_execution" if state.next_action == EXECUTE_NEXT_TASK else "final_response"


def after_execution(state: State) -> str:
    """Carry out the next step, wait for people, or reflect."""
    if state.next_action == WAIT_FOR_REVIEW:
        return WAIT
    return "plan_execution" if state.next_action == EXECUTE_NEXT_TASK else "reflection"


def after_reflection(state: State) -> str:
    """Go on, plan anew, or respond."""
    if state.next_action == EXECUTE_NEXT_TASK:
        return "plan_execution"
    return "planning" if state.next_action == REPLAN else "final_response"


autonomous = Workflow(
    "autonomous",
    nodes=(load_config, planning, plan_execution, reflection, final_response),
    routers={
        "load_config": after_load_config,
        "planning": after_planning,
        "plan_execution": after_execution,
        "reflection": after_reflection,
        "final_response": END,
    },
    entry="load_config",
)
