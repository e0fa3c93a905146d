"""``planning``: what the planner is asked, what becomes of its reply, and the no-progress guard."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.environments.base import Environment, Outcome
from agentlab.errors import PlanError, PlanParseError
from agentlab.minds.base import checked_plan
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.search import Search
from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.state.decisions import ReplanAction
from agentlab.tools.tool import Tool
from agentlab.workflows.nodes import planning
from agentlab.workflows.nodes.planning import plan_request


class Asked:
    """Give replies in order, by request; an exception is raised. ``requests`` keeps the asking."""

    def __init__(self, *replies):
        self.replies, self.requests = list(replies), []

    def plan(self, request, bench):
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return checked_plan({"steps": reply} if isinstance(reply, list) else reply, request, bench)


ANY = Strategy("any", triggers.after_failure, scopes.rest, Budget(replans=5))
FULL = Strategy("full", triggers.after_failure, scopes.whole, Budget(replans=5))


# ---- what is asked ----------------------------------------------------------------------------


def test_the_first_request(chain):
    lab = al.Lab(chain(), seed=4, strategy="on_error(2)")
    state = lab.initial_state()
    request = plan_request(state, lab)
    assert request.user_input == lab.scenario.task
    assert request.goal == lab.scenario.goal
    assert request.belief is state.belief
    assert (request.scope, request.number, request.seed) == ("initial", 0, 4)
    assert (request.done, dict(request.results), request.failures) == ((), {}, ())
    assert (request.hints, request.taken, request.side_effects) == ((), frozenset(), ())
    assert (request.earlier, request.reflection, request.replans_left) == (None, None, 2)
    assert request.world is None


def test_only_a_privileged_planner_sees_the_truth(chain):
    for privileged in (False, True):
        lab = al.Lab(chain(), planner=Search(privileged=privileged))
        state = lab.initial_state()
        assert plan_request(state, lab).world is (state.world if privileged else None)


@pytest.mark.parametrize(("strategy", "scope"), [(ANY, "remaining"), (FULL, "full")])
def test_the_request_of_a_replan(notes, step, strategy, scope):
    look = notes.tool("look", effect="read")
    planner = Asked(
        [step("a", parameters={"n": 1}), step("r", "look"), step("b", "broken"), step("c")],
        [step("d")],
    )
    run = notes.run(planner=planner, strategy=strategy, tools=[look])
    first, second = planner.requests
    assert first.scope == "initial"
    assert (second.scope, second.number, second.replans_left) == (scope, 1, 4)
    assert [s.step_id for s in second.earlier.steps] == ["a", "r", "b", "c"]
    assert [s.status for s in second.earlier.steps][2:] == ["failed", "pending"]
    assert second.earlier.step("b").error == "error: it is broken"
    assert [s.step_id for s in second.done] == (["a", "r"] if scope == "remaining" else [])
    assert dict(second.results) == {"a": {"n": 1}, "r": {}}
    assert list(second.results) == ["a", "r"]  # in the order in which they came
    (failure,) = second.failures
    assert (failure.tool, failure.code, failure.count) == ("broken", "error", 1)
    assert second.side_effects == ('note({"n":1})',)  # a read leaves nothing behind
    assert second.taken == {"a", "r", "b", "c"}
    assert "2 completed, 1 failed" in second.reflection.analysis
    assert run.state.plans == 2


def test_the_hints_of_the_reflector_reach_the_planner(notes, step):
    planner = Asked([step("a", "broken")], [step("b")])

    class Hinting:
        def reflect(self, state, bench):
            from agentlab.state.decisions import ReflectionResult

            return ReflectionResult(
                analysis="all wrong", goal_achieved=False, need_replan=True,
                replan_reason="bad luck", suggestions=("try b",),
            )  # fmt: skip

    run = notes.run(planner=planner, reflector=Hinting())
    assert planner.requests[1].hints == ("try b",)
    assert planner.requests[1].reflection.analysis == "all wrong"
    assert run.state.replan_history[0].decision.reasoning == "bad luck"


def test_a_silent_fault_is_not_told_by_the_list_of_side_effects(notes, step):
    """The agent believes that the call took effect; that it did not is the truth."""
    target = al.TargetedFault(tool="note", visibility="silent")
    planner = Asked([step("a"), step("b", "broken")], [step("c")])
    notes.run(planner=planner, strategy=ANY, faults=al.FaultPlan(targets=(target,)))
    assert planner.requests[1].side_effects == ("note({})",)


def test_a_call_whose_result_cannot_be_used_is_in_the_list_of_side_effects(notes, step):
    odd = notes.tool("odd", lambda: float("nan"), effect="write")
    planner = Asked([step("a", "odd")], [step("c")])
    notes.run(planner=planner, strategy=ANY, tools=[odd])
    assert planner.requests[1].side_effects == ("odd({})",)


# ---- a reply that is no plan ------------------------------------------------------------------


def test_a_reply_that_does_not_parse_is_asked_for_once_more_with_the_error(notes, step):
    planner = Asked([step("a", "nott")], [step("a")])
    run = notes.run(planner=planner)
    assert run.state.error is None
    assert run.plan.step("a").status == "completed"
    first, second = planner.requests
    assert first.hints == ()
    (hint,) = second.hints
    assert "unknown tool 'nott'; did you mean 'note'" in hint
    assert (first.number, second.number) == (0, 0)
    assert run.state.plans == 1
    assert len(run.recorder.of_kind("decision")) == 2  # the plan and the reflection


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"actionType": "rag_query"}, "unknown action type 'rag_query'"),
        ({"targetResource": "gone"}, "unknown tool 'gone'"),
        ({"dependencies": [7]}, "depends on unknown step"),
        ({"dependencies": ["b"]}, "cyclic dependency"),
        ({"importance": 1.5}, "importance"),
        ({"parameters": {"x": "${b.y"}}, "without its '}'"),
        ({"parameters": {"x": "${nobody.y}"}}, "names no known step"),
    ],
)
def test_a_second_reply_that_does_not_parse_ends_the_run_honestly(notes, step, fields, text):
    bad = [{**step("a"), **fields}, step("b", "note", "a")]
    planner = Asked(bad, bad, [step("never")])
    run = notes.run(planner=planner)
    assert len(planner.requests) == 2
    assert run.visited == ["load_config", "planning", "final_response"]
    assert text in run.state.error
    assert run.state.stopped_by == "no_plan"
    assert run.state.task_plan is None  # none is invented
    assert run.state.final_response.startswith("Your request could not be carried out: not a valid")
    assert notes.made == []
    assert run.recorder.of_kind("decision")[0].error.startswith("PlanParseError")


def test_complexity_out_of_range_does_not_parse(notes, step):
    for complexity in (0, 11):
        run = notes.run({"steps": [step("a")], "complexity": complexity})
        assert "complexity" in run.state.error
    assert notes.run({"steps": [step("a")], "complexity": 10}).plan.complexity == 10


def test_no_plan_at_all_is_no_exception(notes):
    run = notes.run(planner=Asked(PlanError("nothing comes to mind")))
    assert run.state.error == "nothing comes to mind"
    assert run.state.final_response == (
        "Your request could not be carried out: nothing comes to mind"
    )


def test_another_exception_of_the_planner_raises(notes):
    planner = Asked(ZeroDivisionError("a mistake"), [])
    run = notes.start(planner=planner)
    run.step()
    before = run.state
    with pytest.raises(ZeroDivisionError):
        run.step()
    assert run.state is before
    assert run.finish().final_response  # asked again, it has a plan


@pytest.mark.parametrize(
    ("error", "told"), [(PlanError("none left"), None), (PlanParseError(["bad"]), "bad")]
)
def test_no_plan_on_a_replan(notes, step, error, told):
    replies = [error] if told is None else [error, error]
    planner = Asked([step("a"), step("b", "broken"), step("c")], *replies)
    run = notes.run(planner=planner, strategy=ANY)
    assert run.visited[-3:] == ["reflection", "planning", "final_response"]
    assert run.state.stopped_by == "no_plan"
    assert (run.state.error is None) is (told is None)
    assert run.plan.status == "failed"
    assert [s.status for s in run.plan.steps] == ["completed", "failed", "pending"]
    response = run.state.final_response
    assert "1 of 3 steps were completed." in response
    assert "It stopped because no further plan could be made." in response
    assert told is None or "not a valid plan: bad" in response


def test_a_strategy_may_decide_when_planning_failed(notes, step):
    def trigger(point, state, step_id):
        failed = triggers.after_failure(point, state, step_id)
        return "no plan" if point == "planning_failed" else failed

    stubborn = Strategy("stubborn", trigger, scopes.rest, Budget(replans=3))
    planner = Asked([step("a", "broken")], PlanError("not now"), [step("b")])
    run = notes.run(planner=planner, strategy=stubborn)
    assert run.visited.count("planning") == 3
    assert run.state.loop_count == 2
    assert run.plan.step("b").status == "completed"
    assert run.state.stopped_by is None


# ---- what becomes of a plan -------------------------------------------------------------------


def test_defaults_and_fields_of_a_reply(notes):
    reply = {
        "userIntent": "know", "intentAnalysis": "wants", "summary": "sum", "complexity": 3,
        "steps": [{"name": "first step", "description": "d", "actionType": "call_tool",
                   "targetResource": "note"},
                  {"name": "second", "actionType": "aggregate", "stepId": "last",
                   "dependencies": ["first_step"], "importance": 0.9, "skippable": True}],
        "answer": "${first_step}",
    }  # fmt: skip
    run = notes.start(reply)
    run.run_until("plan_execution")
    plan = run.plan
    assert (plan.user_intent, plan.intent_analysis, plan.summary) == ("know", "wants", "sum")
    assert (plan.plan_id, plan.complexity, plan.status) == ("plan-0", 3, "created")
    assert (plan.replan_count, plan.answer) == (0, "${first_step}")
    first, second = plan.steps
    assert (first.step_index, first.step_id, first.name) == (0, "first_step", "first step")
    assert (first.parameters, first.dependencies) == ({}, ())
    assert (first.importance, first.skippable, first.status) == (0.5, False, "pending")
    assert (second.step_id, second.dependencies) == ("last", ("first_step",))
    assert (second.importance, second.skippable) == (0.9, True)
    assert run.state.current_task_index == 0
    assert run.state.next_action == "execute_next_task"


def test_steps_are_sorted_topologically_and_stably(notes, step):
    plan = [step("d", "note", "b"), step("a"), step("c"), step("b", "note", "c")]
    run = notes.run(plan)
    assert [s.step_id for s in run.plan.steps] == ["a", "c", "b", "d"]
    assert [s.step_index for s in run.plan.steps] == [0, 1, 2, 3]


def test_a_plan_without_steps_is_answered_at_once(notes):
    run = notes.run([])
    assert run.visited == ["load_config", "planning", "final_response"]
    assert run.state.final_response == "There was nothing to carry out for: do it"


def test_replanning_what_remains_keeps_what_is_done(notes, step):
    plans = (
        [step("a"), step("b", "broken"), step("c", "note", "a")],
        [step("b"), step("e", "note", "a")],
    )
    run = notes.run(*plans, strategy=ANY)
    assert [(s.step_id, s.status) for s in run.plan.steps] == [
        ("a", "completed"),
        ("b_2", "completed"),  # ids are unique over the run
        ("e", "completed"),
    ]
    (record,) = run.state.replan_history
    assert [s.step_id for s in record.before.steps] == ["a", "b", "c"]
    assert record.before.status == "replanning"
    assert [s.step_id for s in record.after.steps] == ["a", "b_2", "e"]
    assert record.after.step("a") == run.plan.step("a")
    assert record.decision.action is ReplanAction.REPLAN_REMAINING
    assert run.plan.replan_count == 1
    assert (run.plan.plan_id, record.before.plan_id) == ("plan-1", "plan-0")
    assert len(notes.made) == 4


def test_a_full_replan_starts_over_and_old_results_stay_referable(notes, step):
    plans = (
        [step("a", parameters={"n": 7}), step("b", "broken")],
        [step("x", parameters={"m": "${a.n}"}), step("b")],
        [step("a")],
    )
    run = notes.run(*plans, strategy=FULL)
    assert [s.step_id for s in run.plan.steps] == ["x", "b_2"]
    assert [s.status for s in run.plan.steps] == ["completed", "completed"]
    assert dict(run.state.results) == {"a": {"n": 7}, "x": {"m": 7}, "b_2": {}}
    assert [s.step_id for s in run.state.replan_history[0].before.steps] == ["a", "b"]


def test_steps_to_cancel(notes, step):
    run = notes.start(
        [step("a", "broken"), step("b"), step("c"), step("d")], [step("e")], strategy="never"
    )
    run.run_until("plan_execution")
    run.step()
    decision = al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(2,))
    run.edit(forced_decision=decision, next_action="reflect")
    run.finish()
    assert [s.step_id for s in run.plan.steps] == ["b", "d", "e"]


@pytest.mark.parametrize("workflow", [al.autonomous, al.resident])
@pytest.mark.parametrize("strategy", ["never", "event_driven(milestones=False)"])
@pytest.mark.parametrize("under_way", [False, True])
def test_what_depends_on_a_cancelled_step_is_cancelled_with_it(
    notes, step, workflow, strategy, under_way
):
    class Planner:
        requests: list = []

        def plan(self, request, bench):
            self.requests.append(request)
            first = [step("a"), step("b", "slow"), step("c", "note", "b"), step("d", "note", "c"),
                     step("e", "note", "a")]  # fmt: skip
            return checked_plan({"steps": [step("f")] if request.number else first}, request, bench)

    planner = Planner()
    planner.requests = []
    slow = notes.tool("slow", seconds=9.0)
    lab = notes.lab(planner=planner, tools=[slow], strategy=strategy, workers=1 + under_way)
    run = workflow.start(lab, "do it")
    run.run_until(lambda state: bool(state.task_results))
    assert bool(run.state.under_way) is under_way
    decision = al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(1,))
    run.edit(forced_decision=decision, next_action="reflect", trigger=None)
    run.finish()
    stays = strategy == "never" and under_way and workflow is al.autonomous
    expected = ["a", *(["b", "c", "d"] if stays else []), "e", "f"]
    assert [s.step_id for s in run.plan.steps] == expected
    assert {s.status for s in run.plan.steps} == {"completed"}
    told = " ".join(planner.requests[1].hints)
    assert [s for s in "acde" if f"{s} (" in told] == [s for s in expected if s in "cde"]
    assert [s.step_id for s in planner.requests[1].under_way] == (["b"] if stays else [])
    assert run.replay().identical


def test_the_answer_of_the_first_plan_is_kept_while_it_resolves(notes, step):
    first = {"steps": [step("a", parameters={"n": 1}), step("b", "broken")], "answer": "${a.n}"}
    run = notes.run(first, [step("c")], strategy=ANY)
    assert (run.plan.answer, run.state.answer) == ("${a.n}", 1)
    gone = {**first, "answer": "${b.n}"}
    run = notes.run(gone, [step("c")], strategy=ANY)
    assert (run.plan.answer, run.state.answer) == (None, None)
    run = notes.run(first, {"steps": [step("c")], "answer": "c is ${c}"}, strategy=ANY)
    assert run.state.answer == "c is {}"


# ---- the no-progress guard --------------------------------------------------------------------


class Same:
    """Plan the same thing again and again."""

    def __init__(self, step):
        self.step = step

    def plan(self, request, bench):
        return checked_plan({"steps": [self.step]}, request, bench)


@pytest.mark.parametrize("strategy", ["every_step", "on_error(50)"])
def test_an_endless_loop_is_aborted_and_recorded(notes, step, strategy):
    look = notes.tool("look", lambda: {"same": True}, effect="read")
    unresolved = step("a", parameters={"x": "${first.nothing}"})
    endless = step("a", "look") if strategy == "every_step" else unresolved

    class Planner(Same):
        def plan(self, request, bench):
            if request.number:
                return super().plan(request, bench)
            return checked_plan({"steps": [step("first"), self.step]}, request, bench)

    run = notes.run(planner=Planner(endless), strategy=strategy, tools=[look])
    assert run.state.stopped_by == "no_progress"
    assert run.plan.status == "aborted"
    assert run.state.loop_count == 2  # the second replan led to where the first one did
    (mark,) = [s for s in run.recorder.of_kind("decision") if s.name == "no_progress"]
    assert mark.output["action"] == "ABORT"
    assert run.visited[-2:] == ["planning", "final_response"]
    assert "same plan in the same situation" in run.state.final_response
    assert run.replay().identical


def test_retries_and_waits_are_exempt_from_the_guard(notes, step):
    run = notes.run(planner=Same(step("a", "broken")), strategy="retry(30, wait=1)")
    assert run.state.executions == 31
    assert run.state.stopped_by == "abort"


def test_a_plan_that_is_tried_again_after_another_failure_is_progress(notes, step):
    run = notes.run(planner=Same(step("a", "broken")), strategy="on_error(replans=6)")
    assert run.state.loop_count == 6
    assert run.state.stopped_by == "replans"


def test_a_fresh_belief_is_progress(step):
    class Clock(Environment):
        name = "clock"

        def tools(self):
            return (Tool("tick"),)

        def apply(self, world, call):
            after = {"n": world["n"] + 1}
            return Outcome(after, result=None, learned=after)

        def unmet(self, goal, world):
            return ()

    scenario = al.Scenario(id="c", environment="clock", task="t", world={"n": 0}, goal=al.Goal())
    lab = al.Lab(scenario, environment=Clock(), planner=Same(step("a", "tick")),
                 strategy="every_step(5)")  # fmt: skip
    run = al.autonomous.start(lab)
    run.finish()
    assert run.state.belief == {"n": 6}
    assert (run.state.loop_count, run.state.stopped_by) == (5, None)
    assert run.plan.status == "completed"


def test_planning_alone_on_a_state(notes, step):
    lab = notes.lab([step("a")])
    state = lab.initial_state("x")
    after = planning(state, lab)
    assert state.task_plan is None
    assert [s.step_id for s in after.task_plan.steps] == ["a"]
    assert planning(state, lab).task_plan == after.task_plan
    assert [s.kind for s in lab.recorder.spans] == ["node", "decision"] * 2
    assert lab.recorder.spans[1].output["steps"] == [["a", "note", {}]]


def test_a_plan_for_the_second_time_is_asked_by_number(notes, step):
    lab = notes.lab(planner=Fixed([step("a")], [step("b")]))
    state = lab.initial_state("x").replace(plans=1)
    assert [s.step_id for s in planning(state, lab).task_plan.steps] == ["b"]
