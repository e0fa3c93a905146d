"""``Fixed``: the plans that were given, one for each asking, checked as any reply is."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.environments.scenario import Goal
from agentlab.errors import PlanError, PlanParseError
from agentlab.minds.base import Planner, PlanRequest, checked_plan, tool_step
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.named import PLANNERS, get_planner
from agentlab.workflows.nodes.planning import plan_request


def ask(planner, lab, number=0):
    return planner.plan(PlanRequest("task", Goal(), {}, number=number), lab)


def test_one_for_each_asking(notes, step):
    lab = notes.lab()
    planner = Fixed([step("a")], {"steps": [step("b")], "summary": "second"})
    assert [s.step_id for s in ask(planner, lab).steps] == ["a"]
    second = ask(planner, lab, 1)
    assert ([s.step_id for s in second.steps], second.summary) == (["b"], "second")
    assert ask(planner, lab, 0) == ask(planner, lab, 0)  # it holds no state of a run
    assert (ask(planner, lab).plan_id, second.plan_id) == ("plan-0", "plan-1")
    with pytest.raises(PlanError, match="2 plans were given and all have been used"):
        ask(planner, lab, 2)


def test_what_cannot_be_carried_out_is_refused_with_every_violation(notes, step):
    plan = [step("a", "nott"), step("b", actionType="rag_query"), step("c", "typed", m=1)]
    plan[2] = step("c", "typed", parameters={"m": 1})
    typed = al.tool(lambda n: n, name="typed", parameters={
        "type": "object", "properties": {"n": {}}, "additionalProperties": False})  # fmt: skip
    with pytest.raises(PlanParseError) as caught:
        ask(Fixed(plan), notes.lab(tools=[typed]))
    one, two, three = caught.value.violations
    assert "step 'a': targetResource: unknown tool 'nott'; did you mean 'note'?" in one
    assert "step 'b': unknown action type 'rag_query'; known: aggregate, call_" in two
    assert "step 'c': parameter 'm' is none of typed's" in three


def test_an_action_type_that_is_not_registered_is_an_error_at_planning_time(notes, step):
    for kind in ("rag_query", "anything"):
        run = notes.run([step("a", actionType=kind)])
        assert f"unknown action type {kind!r}" in run.state.error
        assert notes.made == []


def test_the_planner_contract():
    assert isinstance(Fixed(), Planner)
    assert set(PLANNERS) >= {"search", "reference"}
    assert "fixed" not in PLANNERS  # it is made of objects, not named
    assert type(get_planner("search(privileged=True)")).__name__ == "Search"
    assert not isinstance(object(), Planner)


def test_checked_plan_knows_results_and_taken_ids(notes, step):
    request = PlanRequest(
        "t", Goal(), {}, results={"old": {"n": 1}}, taken=frozenset({"old", "a"}), number=3
    )
    plan = checked_plan({"steps": [step("a", parameters={"x": "${old.n}"})]}, request, notes.lab())
    assert (plan.plan_id, plan.steps[0].step_id) == ("plan-3", "a_2")
    assert plan.steps[0].dependencies == ()  # what it refers to is done


def test_tool_step_is_the_reply_form(notes):
    reply = tool_step("a", "note", {"n": 1}, ("b",))
    plan = checked_plan({"steps": [tool_step("b", "note", {}), reply]},
                        plan_request(al.State(), notes.lab()), notes.lab())  # fmt: skip
    assert plan.step("a").dependencies == ("b",)
    assert (plan.step("a").action_type, plan.step("a").parameters) == ("call_tool", {"n": 1})
