"""The nodes of the resident loop: ``plan``, ``execute``, ``monitor``, ``react``, ``replan``.

They are thin: planning, execution and reflection are those of every workflow. What is of their own
is when: ``execute`` hands steps to the executor and does not wait, ``monitor`` waits for one thing
to happen, a step that finishes or an event that somebody published.
"""

from __future__ import annotations

from agentlab.lab.bench import Bench
from agentlab.lab.hearing import heard
from agentlab.minds.strategies.triggers import told
from agentlab.runs.graph import Node, node
from agentlab.state.state import (
    EXECUTE_NEXT_TASK,
    FINAL_RESPONSE,
    REFLECT,
    REPLAN,
    WAIT_FOR_REVIEW,
    State,
)
from agentlab.workflows.nodes.plan_execution import (
    blocked,
    may_start,
    routed,
    submitted,
    waits_for_people,
)
from agentlab.workflows.nodes.planning import cancelled, planning
from agentlab.workflows.nodes.reflection import reflection

plan = Node("plan", planning.function)
react = Node("react", reflection.function)


@node
def execute(state: State, lab: Bench) -> State:
    """Hand what may start to the executor, without waiting for it."""
    before = len(state.task_results)
    with lab.stage("task_execution", "Executing the plan"):
        state, _ = submitted(state, lab)
    if len(state.task_results) > before:  # one was settled at once
        return _ended(routed(state, lab, None, before), lab)
    return state.put(next_action=EXECUTE_NEXT_TASK)


@node(listens=True)
def monitor(state: State, lab: Bench) -> State:
    """Wait until a step finishes or an event arrives, and say whether to decide about it.

    Steps that may start meanwhile are handed to the executor first. A plan that is done ends the
    run; so does a spent budget.
    """
    before, known = len(state.task_results), len(state.events)
    state = heard(state, lab)
    stopped = None
    if len(state.events) == known:
        with lab.stage("task_execution", "Executing the plan"):
            state, stopped = submitted(state, lab)
            if stopped is None and waits_for_people(state, lab):
                return state.replace(next_action=WAIT_FOR_REVIEW, trigger=None)
            if len(state.task_results) == before:
                state = _waited(state, lab, stopped)
    return _ended(routed(state, lab, stopped, before), lab)


def _waited(state: State, lab: Bench, stopped: str | None) -> State:
    assert state.task_plan is not None
    if state.under_way or (stopped is None and may_start(state)):
        return lab.executor.wait(state, lab)
    return blocked(state, lab) if stopped is None and not state.task_plan.over else state


def _ended(state: State, lab: Bench) -> State:
    """Go to the end where nothing is left to decide."""
    assert state.task_plan is not None
    asks = state.trigger is not None or state.stopped_by is not None
    over = state.next_action == REFLECT and not asks and state.done
    return state.put(next_action=FINAL_RESPONSE) if over else state


@node
def replan(state: State, lab: Bench) -> State:
    """Cancel what the decision cancels, and put together what the planner will be told."""
    state, decision = cancelled(state, lab), state.last_decision
    assert decision is not None
    lab.recorder.mark(
        "decision", "replan", visit=state.visit, now=state.now,
        input={"action": decision.action.value, "cancel": list(decision.steps_to_cancel)},
        output={
            "completed": [s.step_id for s in state.completed_tasks],
            "changes": [told([e]) for e in decision.events],
            "hints": list(decision.new_context_hints),
        },
    )  # fmt: skip
    return state.put(next_action=REPLAN)
