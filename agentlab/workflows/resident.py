"""``resident``: a supervisor that stays while the plan runs, hears what happens, and decides.

::

    START → load_config ─┬ error ──────────────────────────────────→ final_response → END
                         └ plan ─┬ no plan, or no steps ───────────→ final_response
                                 └ execute → monitor ⟲ a step finished, nothing to decide
                                                ├ all done ────────→ final_response
                                                └ an event, a milestone or a stall → react
        react ─┬ CONTINUE, RETRY → monitor
               ├ REPLAN_REMAINING, REPLAN_FULL → replan → plan
               └ ABORT ────────────────────────────────────────────→ final_response

A decision that somebody puts in leads to ``react`` from anywhere; so does, from ``execute``, a step
that could not even start.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.lab.lab import Lab
from agentlab.runs.graph import END, WAIT, Router
from agentlab.state.state import EXECUTE_NEXT_TASK, REFLECT, REPLAN, WAIT_FOR_REVIEW, State
from agentlab.workflows.nodes import final_response, load_config
from agentlab.workflows.nodes.resident import execute, monitor, plan, react, replan
from agentlab.workflows.workflow import Workflow


def after_load_config(state: State) -> str:
    """Go on to planning, or answer when the configuration could not be loaded."""
    return "final_response" if state.error is not None else "plan"


def onward(going_on: str) -> Router:
    """Return the router of a node after which ``going_on`` follows where nothing else is said."""
    targets: Mapping[str, str] = {
        EXECUTE_NEXT_TASK: going_on, REFLECT: "react", REPLAN: "replan", WAIT_FOR_REVIEW: WAIT,
    }  # fmt: skip

    def after(state: State) -> str:
        """Go where the next action says; respond where there is none."""
        return targets.get(state.next_action, "final_response")

    return after


def after_replan(state: State) -> str:
    """Plan, unless somebody has decided otherwise meanwhile."""
    return "react" if state.next_action == REFLECT else "plan"


def usual_strategy(lab: Lab) -> str:
    """Return what decides where the lab names no strategy: the model where there is one."""
    return "event_driven" if lab.model is None else "event_driven(decider='lm')"


resident = Workflow(
    "resident",
    nodes=(load_config, plan, execute, monitor, react, replan, final_response),
    routers={
        "load_config": after_load_config,
        "plan": onward("execute"),
        "execute": onward("monitor"),
        "monitor": onward("monitor"),
        "react": onward("monitor"),
        "replan": after_replan,
        "final_response": END,
    },
    entry="load_config",
    strategy=usual_strategy,
)
