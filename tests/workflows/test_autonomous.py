"""The workflow ``autonomous``, route by route of its page.

What each node does is tested in tests/nodes; here it is where they lead.
"""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.runs.graph import END
from agentlab.state.state import EXECUTE_NEXT_TASK, FINAL_RESPONSE, REFLECT, REPLAN
from agentlab.workflows.autonomous import autonomous
from agentlab.workflows.nodes import (
    final_response,
    load_config,
    plan_execution,
    planning,
    reflection,
)

BEGIN = ["load_config", "planning"]
FINISH = ["reflection", "final_response"]


def executions(n):
    return ["plan_execution"] * n


# ---- routers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "fields", "target"),
    [
        ("load_config", {}, "planning"),
        ("load_config", {"error": "e"}, "final_response"),
        ("planning", {"next_action": EXECUTE_NEXT_TASK}, "plan_execution"),
        ("planning", {"next_action": FINAL_RESPONSE}, "final_response"),
        ("planning", {"next_action": REFLECT}, "reflection"),
        ("plan_execution", {"next_action": EXECUTE_NEXT_TASK}, "plan_execution"),
        ("plan_execution", {"next_action": REFLECT}, "reflection"),
        ("reflection", {"next_action": EXECUTE_NEXT_TASK}, "plan_execution"),
        ("reflection", {"next_action": REPLAN}, "planning"),
        ("reflection", {"next_action": FINAL_RESPONSE}, "final_response"),
        ("final_response", {"next_action": ""}, END),
    ],
)
def test_routes(node, fields, target):
    assert autonomous.route(node, al.State(**fields)) == target


def test_its_graph():
    assert autonomous.entry == "load_config"
    assert tuple(autonomous.nodes.values()) == (
        load_config, planning, plan_execution, reflection, final_response,
    )  # fmt: skip
    assert {EXECUTE_NEXT_TASK, REFLECT, REPLAN, FINAL_RESPONSE} == {
        "execute_next_task", "reflect", "replan", "final_response",
    }  # fmt: skip


# ---- ways through it --------------------------------------------------------------------------


def test_a_plan_that_works(notes, step):
    run = notes.run([step("a"), step("b"), step("c")])
    assert run.visited == [*BEGIN, *executions(3), *FINISH]
    assert run.state.reflection.goal_achieved


def test_a_simple_question_gets_no_steps(notes):
    assert notes.run([]).visited == [*BEGIN, "final_response"]


def test_a_configuration_that_fails(notes, step):
    run = notes.run([step("a")], agent="nothing.yaml:x")
    assert run.visited == ["load_config", "final_response"]


def test_some_completed_responds(notes, step):
    run = notes.run([step("a"), step("b", "broken"), step("c")], [step("never")])
    assert run.visited == [*BEGIN, *executions(3), *FINISH]
    assert len(notes.made) == 3
    response = run.state.final_response
    assert "2 of 3 steps were completed." in response
    assert "b: failed (error: it is broken)" in response


def test_total_failure_replans_until_something_completes(notes, step):
    plans = [[step("a", "broken"), step("b", "broken", skippable=True)], [step("c", "broken")],
             [step("d"), step("e", "broken")], [step("never")]]  # fmt: skip
    run = notes.run(*plans)
    assert run.visited == [
        *BEGIN, *executions(2), "reflection",
        "planning", *executions(1), "reflection",
        "planning", *executions(2), *FINISH,
    ]  # fmt: skip
    assert run.state.loop_count == 2
    assert [s.step_id for s in run.plan.steps] == ["d", "e"]


def test_at_most_four_plans(notes, step):
    run = notes.run(*[[step(f"s{i}", "broken")] for i in range(8)])
    again = ["reflection", "planning", "plan_execution"]
    assert run.visited == [*BEGIN, *executions(1), *again * 3, *FINISH]
    assert (run.state.plans, run.state.loop_count) == (4, 3)
    assert len(run.state.replan_history) == 3


def test_planning_that_fails_on_a_replan(notes, step):
    run = notes.run([step("a", "broken")])
    assert run.visited == [*BEGIN, *executions(1), "reflection", "planning", "final_response"]
    assert run.state.stopped_by == "no_plan"
    assert "no further plan could be made" in run.state.final_response


def test_a_trigger_in_the_middle(notes, step):
    run = notes.run([step("a"), step("b", "broken"), step("c")], [step("d")], strategy="on_error")
    assert run.visited == [
        *BEGIN,
        *executions(2),
        "reflection",
        "planning",
        *executions(1),
        *FINISH,
    ]


def test_reflection_back_to_execution(notes, step):
    run = notes.run([step("a"), step("b", "broken"), step("c")], strategy="retry(1)")
    assert run.visited == [*BEGIN, *executions(2), "reflection", *executions(1), *FINISH]


def test_planning_to_reflection(notes, step):
    from agentlab.minds.strategies import scopes, triggers
    from agentlab.minds.strategies.base import Budget, Strategy

    def trigger(point, state, step_id):
        if point == "planning_failed":
            return "no plan"
        return triggers.after_failure(point, state, step_id)

    strategy = Strategy("s", trigger, scopes.rest, Budget(replans=2))
    run = notes.run([step("a", "broken")], strategy=strategy)
    assert run.visited == [*BEGIN, *executions(1), *["reflection", "planning"] * 2, *FINISH]
    assert run.state.stopped_by == "replans"


# ---- entry points -----------------------------------------------------------------------------


def test_ask_is_text_out(notes, step):
    text = autonomous.ask(notes.lab([step("a")]), "do it")
    assert text.startswith("All 1 steps were completed.")
    assert autonomous.ask(notes.lab(), "do it").startswith("Your request could not be carried out")


def test_agent_user_session_input_and_handler(notes, step, heard):
    log = heard()
    run = autonomous.start(
        notes.lab([step("a")]), "the input", user_id="U", session_id="S", handler=log
    )
    nodes = [node for node, state in run.iterate()]
    assert nodes == run.visited
    state = run.state
    assert (state.user_input, state.user_id, state.session_id) == ("the input", "U", "S")
    assert log.events[-2].session_id == "S"
    assert run.states[0].agent_id == ""
    assert state.agent_id == "agent"


def test_on_a_scenario(chain):
    text = autonomous.ask(al.Lab(chain()))
    assert text.startswith("The answer is ")
    run = autonomous.start(al.Lab(chain()))
    assert run.state.user_input == chain().task


def test_text_in_any_language_goes_through_unharmed(notes, step):
    words = "把三个包裹寄到北京 📦 – naïve\n${not.a.reference}"
    run = autonomous.start(notes.lab([]), words)
    run.finish()
    assert run.state.user_input == words
    assert words in run.state.final_response
    run = notes.run([step("查", parameters={"text": "包裹"}, name="查找")])
    assert run.state.final_response.splitlines()[1] == '- 查找: {"text":"包裹"}'


def test_each_stage_of_the_page_is_opened_and_closed(notes, step, heard):
    log = heard()
    notes.run([step("a", "broken")], [step("b")], handler=log)
    opened = [e.stage for e in log.events if e.kind == "thinking_stage_start"]
    closed = [e.stage for e in log.events if e.kind == "thinking_stage_end"]
    assert opened == closed == ["planning", "task_execution", "reflection"] * 2
