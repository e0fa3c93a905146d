"""``reflection``: counting, deciding, and what a decision does to the state."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.state.decisions import ReflectionResult
from agentlab.workflows.nodes import reflection


class Judge:
    """Says what it is told to, and counts how often it is asked."""

    def __init__(self, need_replan=True, **fields):
        self.asked = 0
        fields = {"analysis": "judged", "goal_achieved": False, **fields}
        self.result = ReflectionResult(need_replan=need_replan, **fields)

    def reflect(self, state, bench):
        self.asked += 1
        return self.result


# ---- the default rule -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "asked"),
    [
        ([("a", "note", False)], 0),  # all completed
        ([("a", "note", False), ("b", "broken", False)], 0),  # some completed
        ([("a", "broken", False), ("b", "broken", False)], 1),  # none completed, some failed
        ([("a", "broken", True), ("b", "broken", False)], 1),
    ],
)
def test_when_the_reflector_is_asked(notes, step, plan, asked):
    judge = Judge(need_replan=False)
    run = notes.run([step(i, tool, skippable=s) for i, tool, s in plan], reflector=judge)
    assert judge.asked == asked
    assert run.visited[-2:] == ["reflection", "final_response"]
    assert run.state.loop_count == 0
    assert run.state.need_replan is False


def test_nothing_executed_or_all_skipped_responds(notes, step):
    judge = Judge()
    lab = notes.lab([step("a"), step("b")], [step("c")], reflector=judge)
    run = al.autonomous.start(lab)
    run.run_until("plan_execution")
    nothing = reflection(run.state, lab)
    plan = run.plan.with_step("a", status="skipped").with_step("b", status="skipped")
    skipped = reflection(run.state.replace(task_plan=plan), lab)
    assert judge.asked == 0
    assert skipped.next_action == "final_response"
    assert skipped.reflection.analysis == "0 completed, 0 failed, 2 skipped"
    assert (skipped.reflection.goal_achieved, nothing.need_replan) == (False, False)


def test_the_counts(notes, step):
    plan = [step("a"), step("b", "broken"), step("c", "note", "b", skippable=True)]
    run = notes.run(plan)
    assert run.state.reflection.analysis == "1 completed, 1 failed, 1 skipped"
    assert run.state.reflection.goal_achieved is False
    run = notes.run([step("a")])
    assert run.state.reflection == ReflectionResult(
        analysis="1 completed, 0 failed, 0 skipped", goal_achieved=True
    )


def test_at_most_four_plans(notes, step):
    judge = Judge(replan_reason="again", suggestions=("else",))
    plans = [[step(f"s{i}", "broken")] for i in range(9)]
    run = notes.run(*plans, reflector=judge)
    assert run.visited.count("planning") == run.state.plans == 4
    assert (run.state.loop_count, run.state.max_loops) == (3, 3)
    assert judge.asked == 4
    assert run.state.stopped_by == "replans"
    assert run.state.need_replan is False
    assert run.plan.replan_count == 3
    assert "It stopped because the limit of replans was reached." in run.state.final_response


@pytest.mark.parametrize("loops", [0, 1, 2])
def test_max_loops(notes, step, loops):
    run = notes.start(*[[step(f"s{i}", "broken")] for i in range(9)])
    run.edit(max_loops=loops)
    run.finish()
    assert (run.state.loop_count, run.state.plans) == (loops, loops + 1)


def test_what_the_reflector_said_is_kept_as_it_was_said(notes, step):
    judge = Judge(replan_reason="reason", suggestions=("one", "two"), analysis="deep")
    run = notes.start([step("a", "broken")], [step("b")], reflector=judge)
    run.run_until("planning")
    run.run_until("planning")
    assert run.state.reflection == judge.result
    assert run.state.need_replan is True
    decision = run.state.last_decision
    assert (decision.action, decision.reasoning) == ("REPLAN_FULL", "reason")
    assert decision.new_context_hints == ("one", "two")
    content = Judge(need_replan=False, goal_achieved=True, analysis="good enough")
    run = notes.run([step("a", "broken")], reflector=content)
    assert run.state.reflection == content.result
    assert "Assessment: good enough." in run.state.final_response


def test_a_reflector_that_raises_raises_from_step(notes, step):
    class Broken:
        def reflect(self, state, bench):
            raise RuntimeError("no opinion")

    run = notes.start([step("a", "broken")], reflector=Broken())
    run.run_until("reflection")
    before = run.state
    with pytest.raises(RuntimeError, match="no opinion"):
        run.step()
    assert run.state is before
    assert run.next_node == "reflection"


# ---- decisions --------------------------------------------------------------------------------


@pytest.fixture
def stopped(notes, step):
    """A run that stands before reflection: a completed, b failed, c pending."""
    run = notes.start([step("a"), step("b", "broken"), step("c")], [step("d")], strategy="on_error")
    run.run_until("reflection")
    return run


@pytest.mark.parametrize(
    ("decision", "next_node", "plan_status", "b"),
    [
        ({"action": "CONTINUE"}, "plan_execution", "executing", "failed"),
        ({"action": "RETRY", "step_id": "b"}, "plan_execution", "executing", "pending"),
        ({"action": "REPLAN_REMAINING"}, "planning", "replanning", "failed"),
        ({"action": "REPLAN_FULL"}, "planning", "replanning", "failed"),
        ({"action": "ABORT"}, "final_response", "aborted", "failed"),
    ],
)
def test_where_a_decision_leads(stopped, decision, next_node, plan_status, b):
    fork = stopped.fork(decision=al.ReplanDecision(reasoning="because", **decision))
    visit = fork.step()
    state = fork.state
    assert fork.next_node == next_node
    assert (state.task_plan.status, state.task_plan.step("b").status) == (plan_status, b)
    replanned = decision["action"].startswith("REPLAN")
    assert state.loop_count == replanned == state.need_replan
    assert state.reflection.need_replan is replanned
    assert state.last_decision.action == decision["action"]
    assert (state.trigger, state.forced_decision) == (None, None)
    assert state.stopped_by == ("abort" if decision["action"] == "ABORT" else None)
    assert state.reflection.analysis == "1 completed, 1 failed, 0 skipped; because"
    (mark,) = [s for s in visit.spans if s.kind == "decision"]
    assert mark.name == decision["action"]
    assert mark.output["reasoning"] == "because"
    assert mark.input["stepId"] == "b"  # the trigger that it answers


def test_a_retry_clears_the_step_and_waits(stopped):
    retry = al.ReplanDecision(action="RETRY", step_id="b", wait=4.0)
    fork = stopped.fork(decision=retry)
    fork.step()
    b = fork.plan.step("b")
    assert (b.status, b.result, b.error) == ("pending", None, None)
    assert fork.state.current_task_index == 1
    assert fork.state.not_before["b"] == stopped.state.now + 4
    fork.step()
    assert fork.state.attempts["b"] == 2
    assert fork.state.now == stopped.state.now + 4 + 1


def test_the_result_of_a_completed_step_is_gone_when_it_is_tried_again(notes, step):
    lab = notes.lab([step("a", parameters={"n": 1}), step("b", parameters={"m": "${a.n}"})])
    run = al.autonomous.start(lab)
    run.run_until(lambda s: "a" in s.results)
    again = al.ReplanDecision(action="RETRY", step_id="a")
    run.edit(forced_decision=again, next_action="reflect")
    run.step()
    assert dict(run.state.results) == {}
    assert run.plan.step("a").result is None
    run.finish()
    assert [name for name, _ in notes.made] == ["note"] * 3
    assert run.plan.status == "completed"


def test_a_correction_is_merged_into_the_belief(chain):
    run = al.autonomous.start(al.Lab(chain(), strategy="on_error", fault_rate=1.0))
    run.run_until("reflection")
    decision = al.ReplanDecision(action="CONTINUE", correction={"done": 2, "tokens": None})
    fork = run.fork(decision=decision)
    fork.step()
    assert fork.state.belief == {**{k: v for k, v in run.state.belief.items() if k != "tokens"},
                                 "done": 2}  # fmt: skip
    assert fork.state.world == run.state.world


def test_an_abort_interrupts_what_is_under_way(notes, step):
    slow = notes.tool("slow", seconds=9.0)
    run = notes.run([step("a", "broken"), step("b", "slow"), step("c")], tools=[slow],
                    strategy="retry(0)", workers=2)  # fmt: skip
    a, b, c = run.plan.steps
    assert (a.status, b.status, c.status) == ("failed", "interrupted", "pending")
    assert b.interruption_context.reason == "the run ended while it was under way"
    assert not run.state.under_way
    assert [r.step_id for r in run.state.task_results] == ["a", "b"]
    assert [e.type for e in run.state.events] == ["TASK_FAILED", "TASK_INTERRUPTED"]
    assert "b: interrupted, outcome unknown" in run.state.final_response
    assert "Not started: c." in run.state.final_response


def test_a_replan_leaves_what_is_under_way_to_finish(notes, step):
    slow = notes.tool("slow", lambda: {"n": 5}, seconds=9.0)
    for action in ("REPLAN_REMAINING", "REPLAN_FULL"):
        strategy = Strategy(
            "s", triggers.after_failure, scopes.rest if "REM" in action else scopes.whole,
            Budget(replans=1),
        )  # fmt: skip
        run = notes.run(
            [step("ok"), step("a", "broken"), step("b", "slow"), step("c", "note", "b")],
            [step("d")],
            tools=[slow], strategy=strategy, workers=3,
        )  # fmt: skip
        kept = {"ok": "completed"} if "REM" in action else {}
        assert {s.step_id: s.status for s in run.plan.steps} == {
            **kept, "b": "completed", "d": "completed",
        }  # fmt: skip
        assert run.state.results["b"] == {"n": 5}


def test_reflection_alone_on_a_state(stopped):
    lab = stopped.lab.bind()
    after = reflection(stopped.state, lab)
    assert after.next_action == "replan"
    assert reflection(stopped.state, lab) == after
    assert stopped.next_node == "reflection"
