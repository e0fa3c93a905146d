"""``plan_execution``: one step a visit, unmet dependencies, limits, and where it leads."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.minds.strategies import triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.workflows.nodes import plan_execution


def statuses(run):
    return {s.step_id: s.status.value for s in run.plan.steps}


def test_one_step_a_visit(notes, step):
    run = notes.start([step("a"), step("b"), step("c")])
    run.run_until("plan_execution")
    for done in (1, 2, 3):
        run.step()
        assert len(notes.made) == len(run.state.task_results) == run.state.executions == done
        assert run.state.current_task_index == done
        assert run.plan.status == ("executing" if done < 3 else "completed")
        assert run.state.next_action == ("execute_next_task" if done < 3 else "reflect")
    assert run.next_node == "reflection"


def test_status_and_result_are_written(notes, step):
    run = notes.run([step("a", parameters={"n": 1}), step("b", "broken")], strategy="never")
    a, b = run.plan.steps
    assert (a.status, a.result, a.error) == ("completed", {"n": 1}, None)
    assert (b.status, b.result, b.error) == ("failed", None, "error: it is broken")
    one, two = run.state.task_results
    assert (one.step_id, one.name, one.status, one.result) == ("a", "a", "completed", {"n": 1})
    assert (one.error, one.attempt) == (None, 1)
    assert (two.step_id, two.status, two.error) == ("b", "failed", "error: it is broken")
    assert dict(run.state.results) == {"a": {"n": 1}}
    assert dict(run.state.attempts) == {"a": 1, "b": 1}
    assert run.plan.status == "failed"


def test_nothing_left_reflects(notes, step):
    lab = notes.lab([step("a")])
    run = al.autonomous.start(lab)
    run.run_until("reflection")
    for state in (run.state, lab.initial_state()):
        after = plan_execution(state.replace(next_action=""), lab)
        assert after.next_action == "reflect"
        assert after.task_plan == state.task_plan
    assert len(notes.made) == 1


@pytest.mark.parametrize("skippable", [False, True])
@pytest.mark.parametrize("how", ["failed", "skipped"])
def test_an_unmet_dependency(notes, step, how, skippable):
    plan = [
        step("a", "broken"),
        step("b", "note", "a", skippable=True),
        step("c", "note", "a" if how == "failed" else "b", skippable=skippable),
        step("d"),
    ]
    run = notes.run(plan, strategy="never")
    unmet = "dependency not met: a (failed)"
    assert run.plan.step("b").status == "skipped"
    assert run.plan.step("b").error == unmet
    c = run.plan.step("c")
    assert c.status == ("skipped" if skippable else "failed")
    assert c.error == (unmet if how == "failed" else "dependency not met: b (skipped)")
    assert run.plan.step("d").status == "completed"
    assert [(r.step_id, r.status, r.attempt) for r in run.state.task_results] == [
        ("a", "failed", 1), ("d", "completed", 1), ("b", "skipped", 0), ("c", c.status, 0),
    ]  # fmt: skip
    assert run.state.executions == 2
    broken = [e for e in run.state.events if e.type == "DEPENDENCY_BROKEN"]
    severity = "WARNING" if skippable else "CRITICAL"
    assert [(e.task_id, e.severity) for e in broken] == [("b", "WARNING"), ("c", severity)]
    assert "b: skipped (dependency not met: a (failed))" in run.state.final_response


def test_a_dependency_that_never_ran(notes, step):
    run = notes.start([step("a"), step("b", "note", "a"), step("c")], strategy="never")
    run.run_until("plan_execution")
    run.edit(task_plan=run.plan.with_steps(run.plan.steps[1:]))  # unchecked, unlike edit(plan=...)
    run.finish()
    assert run.plan.step("b").error == "dependency not met: a (never ran)"
    assert run.plan.step("b").status == "failed"


def test_an_unmet_step_asks_the_strategy_and_is_not_retried(notes, step):
    run = notes.run([step("a", "broken", skippable=True), step("b", "note", "a")],
                    strategy="retry(5)")  # fmt: skip
    assert statuses(run) == {"a": "failed", "b": "failed"}
    assert run.state.executions == 1
    assert run.state.stopped_by == "abort"


# ---- triggers ---------------------------------------------------------------------------------


class Recording(Strategy):
    """Never wants a decision; ``asked`` lists (point, step id)."""

    def triggered(self, point, state, step_id=None):
        self.asked.append((point.value, step_id))
        return super().triggered(point, state, step_id)


def recording(trigger=triggers.never):
    strategy = Recording("recording", trigger, None, Budget(replans=0))
    object.__setattr__(strategy, "asked", [])
    return strategy


def test_the_strategy_is_asked_after_every_step_and_at_the_end(notes, step):
    strategy = recording()
    notes.run([step("a"), step("b", "broken"), step("c", "note", "b")], strategy=strategy)
    assert strategy.asked == [
        ("after_step", "a"), ("after_step", "b"), ("after_step", "c"), ("plan_end", None),
    ]  # fmt: skip


def test_with_workers_the_strategy_is_asked_about_every_step_that_ended(notes, step):
    strategy = recording()
    plan = [step("a", parameters={"x": 1}), step("b", parameters={"y": "${a.gone}"}), step("c")]
    for workers in (1, 2, 3):
        strategy.asked.clear()
        run = notes.run(plan, strategy=strategy, workers=workers)
        asked = [step_id for point, step_id in strategy.asked if point == "after_step"]
        assert asked == [r.step_id for r in run.state.task_results]
        assert sorted(asked) == ["a", "b", "c"]


def test_a_step_that_is_settled_at_once_is_the_step_of_its_visit(notes, step):
    bad = {"y": "${a.gone}"}
    run = notes.start([step("a"), step("b", parameters=bad), step("c", parameters=bad), step("d")],
                      strategy="never", workers=3)  # fmt: skip
    run.run_until("plan_execution")
    for ended in range(1, 5):
        run.step()
        assert len(run.state.task_results) == ended


def test_a_step_settled_at_once_beside_another_under_way_is_asked_about(notes, step):
    slow = notes.tool("slow", seconds=9.0)
    plan = [
        step("a", parameters={"x": 1}),
        step("b", "slow"),
        step("c", parameters={"y": "${a.gone}"}),
    ]
    run = notes.run(plan, [step("d")], strategy="on_error", tools=[slow], workers=2)
    assert {s.step_id: s.status for s in run.plan.steps} == {
        "a": "completed", "b": "completed", "d": "completed",
    }  # fmt: skip
    assert run.state.loop_count == 1


def test_a_trigger_leads_to_reflection(notes, step):
    run = notes.start([step("a", "broken"), step("b")], strategy="on_error")
    run.run_until("reflection")
    assert run.state.trigger.point == "after_step"
    assert run.state.trigger.step_id == "a"
    assert run.state.trigger.reason == "step a failed: error: it is broken"
    assert statuses(run) == {"a": "failed", "b": "pending"}


# ---- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_at_the_limit_of_executions_the_rest_stays_pending(notes, step, limit):
    run = notes.start([step(i) for i in "abcde"], [step("z")])
    run.edit(max_task_iterations=limit)
    run.finish()
    assert run.state.executions == len(notes.made) == limit
    assert list(statuses(run).values()) == ["completed"] * limit + ["pending"] * (5 - limit)
    assert run.state.stopped_by == "executions"
    assert run.plan.status == "aborted"
    assert run.visited[-2:] == ["reflection", "final_response"]
    assert run.state.loop_count == 0
    response = run.state.final_response
    assert f"Not started: {', '.join('abcde'[limit:])}." in response
    assert "It stopped because the limit of step executions was reached." in response


def test_the_default_limit_is_twenty(notes, step):
    run = notes.run([step(f"s{i}") for i in range(25)])
    assert len(notes.made) == 20
    assert run.state.stopped_by == "executions"
    assert notes.run([step(f"s{i}") for i in range(20)]).state.stopped_by is None


def test_the_limit_counts_over_all_plans(notes, step):
    plans = [[step(f"{p}{i}", "broken") for i in range(8)] for p in "abcd"]
    run = notes.run(*plans)
    assert run.state.executions == 20
    assert run.state.loop_count == 2
    assert list(statuses(run).values()) == ["failed"] * 4 + ["pending"] * 4
    assert run.state.stopped_by == "executions"


@pytest.mark.parametrize(
    ("strategy", "replans"), [("reflect_on_total_failure", 0), ("on_error", 0)]
)
def test_at_the_limit_replanning_is_barred(notes, step, strategy, replans):
    """Also when the plan is at its end, or when its last execution asks for a replan."""
    run = notes.start([step("a", "broken")], [step("b")], strategy=strategy)
    run.edit(max_task_iterations=1)
    run.finish()
    assert run.state.loop_count == replans
    assert statuses(run) == {"a": "failed"}
    assert run.state.stopped_by == "executions"
    assert "the limit of step executions was reached" in run.state.final_response


def test_at_the_limit_a_step_is_not_tried_again(notes, step):
    run = notes.start([step("a", "broken"), step("b")], strategy="retry(5)")
    run.edit(max_task_iterations=2)
    run.finish()
    assert statuses(run) == {"a": "failed", "b": "pending"}
    assert run.plan.step("a").error
    assert (run.state.executions, run.state.stopped_by) == (2, "executions")


def test_a_skippable_failure_does_not_stop_the_plan(notes, step):
    run = notes.run([step("a", "broken", skippable=True), step("b")], strategy="retry(2)")
    assert statuses(run) == {"a": "failed", "b": "completed"}
    assert run.state.executions == 2


def test_after_the_limit_what_is_under_way_still_ends(notes, step):
    run = notes.start([step("a"), step("b"), step("c")], workers=3)
    run.edit(max_task_iterations=2)
    run.finish()
    assert statuses(run) == {"a": "completed", "b": "completed", "c": "pending"}
    assert run.state.stopped_by == "executions"
