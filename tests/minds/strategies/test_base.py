"""Strategies as four values: triggers, scopes, budgets, what happens when they are spent."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.minds.base import checked_plan
from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.minds.strategies.named import get_strategy
from agentlab.state.decisions import REPLANS, ReplanAction, Trigger, TriggerPoint

ABORT, CONTINUE = ReplanAction.ABORT, ReplanAction.CONTINUE


class Again:
    """Plan the same steps each time, of ``request.number`` on."""

    def __init__(self, *steps):
        self.steps = steps

    def plan(self, request, bench):
        return checked_plan({"steps": list(self.steps)}, request, bench)


# ---- budgets ----------------------------------------------------------------------------------


def test_a_budget_of_replans(notes, step):
    strategy = get_strategy("on_error").within(replans=2)
    run = notes.run(planner=Again(step("a", "broken")), strategy=strategy)
    assert (run.state.loop_count, run.state.executions) == (2, 3)
    assert run.state.stopped_by == "replans"
    assert run.state.last_decision.spent == "replans"
    assert "the limit of replans was reached" in run.state.final_response


@pytest.mark.parametrize("preset", ["never", "retry(9)", "on_error(9)", "every_step"])
@pytest.mark.parametrize(
    ("bounds", "stopped_by", "made", "text"),
    [
        ({"executions": 4}, "executions", 4, "the limit of step executions was reached"),
        ({"tool_calls": 3}, "tool_calls", 3, "the limit of tool calls was reached"),
        ({"seconds": 2.5}, "seconds", 3, "the time was up"),
    ],
)
def test_budgets_stop_the_run_and_say_so(notes, step, preset, bounds, stopped_by, made, text):
    strategy = get_strategy(preset).within(**bounds)
    plans = [[step(f"p{k}_{i}", parameters={"k": k}) for i in range(8)] for k in range(5)]
    run = notes.run(*plans, strategy=strategy)
    assert run.state.stopped_by == stopped_by
    assert len(notes.made) == run.state.executions == run.state.tool_calls == made
    assert text in run.state.final_response
    assert run.plan.status == "aborted"
    assert "pending" in {s.status for s in run.plan.steps}
    assert run.visited[-2:] == ["reflection", "final_response"]


def test_a_budget_that_is_spent_at_a_failure_bars_another_attempt(notes, step):
    for bounds in ({"tool_calls": 2}, {"seconds": 2.0}, {"executions": 2}):
        (name,) = bounds
        for preset in ("retry(5)", "on_error(5)", "retry_then_replan(1)"):
            strategy = get_strategy(preset).within(**bounds)
            run = notes.run(planner=Again(step("a", "broken"), step("b")), strategy=strategy)
            assert run.state.stopped_by == name
            assert len(run.state.calls) == 2
            assert run.state.task_results[-1].status == "failed"


def test_a_call_under_way_may_end_after_the_time_is_up(notes, step):
    slow = notes.tool("slow", seconds=9.0)
    strategy = get_strategy("never").within(seconds=3.0)
    run = notes.run([step("a", "slow"), step("b", "slow")], tools=[slow], strategy=strategy)
    assert run.state.now == 9.0
    assert [s.status for s in run.plan.steps] == ["completed", "pending"]


def test_a_budget_that_is_just_enough_stops_nothing(notes, step):
    for bounds in ({"executions": 2}, {"tool_calls": 2}, {"seconds": 2.0}):
        strategy = get_strategy("never").within(**bounds)
        run = notes.run([step("a"), step("b")], strategy=strategy)
        assert run.state.stopped_by is None
        assert run.plan.status == "completed"


@pytest.mark.parametrize(
    "name", ["replans", "executions", "tool_calls", "lm_tokens", "seconds", "depth"]
)
@pytest.mark.parametrize("value", [-1, "3", True, float("nan")])
def test_bounds_that_are_none(name, value):
    with pytest.raises(ValueError, match=f"Budget: field {name}: expected a "):
        Budget(**{name: value})


@pytest.mark.parametrize("name", ["replans", "executions", "tool_calls", "lm_tokens", "depth"])
def test_counts_are_integers(name):
    with pytest.raises(ValueError, match=f"Budget: field {name}: expected a whole number, got 1.5"):
        Budget(**{name: 1.5})
    assert Budget(seconds=1.5).seconds == 1.5


def test_what_may_have_no_bound():
    assert Budget(tool_calls=None, lm_tokens=None, seconds=None) == Budget()
    for name in ("replans", "executions", "depth"):
        with pytest.raises(ValueError, match=name):
            Budget(**{name: None})


def test_within_changes_the_budget_only():
    base = get_strategy("retry_then_replan(1)")
    more = base.within(tool_calls=5)
    assert more.budget == Budget(replans=3, tool_calls=5)
    assert (more.name, more.trigger, more.scope) == (base.name, base.trigger, base.scope)
    assert base.budget == Budget(replans=3)


def test_the_budgets_of_the_strategy_are_the_limits_of_the_state(notes):
    strategy = get_strategy("never").within(replans=7, executions=9)
    state = notes.lab(strategy=strategy).initial_state()
    assert (state.max_loops, state.max_task_iterations) == (7, 9)


# ---- when spent -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "c", "stopped"), [(ABORT, "pending", "abort"), (CONTINUE, "completed", None)]
)
def test_when_the_scope_has_nothing_more_to_offer(notes, step, when, c, stopped):
    strategy = Strategy("s", triggers.after_failure, scopes.step(1), Budget(), when)
    run = notes.run([step("a"), step("b", "broken"), step("c")], strategy=strategy)
    assert [s.status for s in run.plan.steps] == ["completed", "failed", c]
    assert run.state.attempts["b"] == 2
    assert run.state.stopped_by == stopped
    spent = [d for d in run.recorder.of_kind("decision") if d.output.get("spent")]
    assert [d.output["spent"] for d in spent] == ["retries"]
    assert [d.name for d in spent] == [when.value]


def test_when_replans_are_spent_a_periodic_strategy_goes_on(notes, step):
    strategy = Strategy("s", triggers.every(1), scopes.rest, Budget(replans=2), CONTINUE)
    plans = [[step(f"{p}{i}", parameters={p: i}) for i in range(3)] for p in "abc"]
    run = notes.run(*plans, strategy=strategy)
    assert run.state.loop_count == 2
    assert [s.step_id for s in run.plan.steps] == ["a0", "b0", "c0", "c1", "c2"]
    assert {s.status for s in run.plan.steps} == {"completed"}
    assert run.state.stopped_by is None


# ---- scopes -----------------------------------------------------------------------------------


def asked(scope, notes, step, **options):
    run = notes.start([step("a"), step("b", "broken"), step("c")], strategy="on_error", **options)
    run.run_until("reflection")
    return scope(run.state.trigger, run.state, run.lab)


def test_scopes(notes, step):
    assert asked(scopes.rest, notes, step).action == "REPLAN_REMAINING"
    assert asked(scopes.whole, notes, step).action == "REPLAN_FULL"
    assert asked(scopes.nothing, notes, step).action == "CONTINUE"
    retry = asked(scopes.step(1, wait=2.0), notes, step)
    assert (retry.action, retry.step_id, retry.wait) == ("RETRY", "b", 2.0)
    assert asked(scopes.step(0), notes, step) is None
    ladder = scopes.first(scopes.step(0), scopes.whole, scopes.rest)
    assert asked(ladder, notes, step).action == "REPLAN_FULL"
    assert asked(scopes.first(scopes.step(0)), notes, step) is None
    for scope in (scopes.rest, scopes.whole, scopes.nothing, scopes.step(1)):
        assert "step b failed" in asked(scope, notes, step).reasoning


@pytest.mark.parametrize(("k", "wait"), [(-1, 0), (1.5, 0), (True, 0), ("1", 0), (1, -1)])
def test_arguments_of_a_retry(k, wait):
    with pytest.raises(ValueError, match="expected a"):
        scopes.step(k, wait)


# ---- triggers ---------------------------------------------------------------------------------


def test_a_trigger_becomes_a_record():
    strategy = Strategy("s", lambda point, state, step: f"{point} {step}", scopes.nothing)
    trigger = strategy.triggered(TriggerPoint.AFTER_STEP, al.State(), "x")
    assert trigger == Trigger(point="after_step", reason="after_step x", step_id="x")
    never = Strategy("n", triggers.never, scopes.nothing)
    assert all(never.triggered(point, al.State()) is None for point in TriggerPoint)


@pytest.mark.parametrize(("n", "at"), [(1, [1, 2, 3, 4, 5, 6]), (2, [2, 4, 6]), (4, [4])])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_nth_execution(notes, step, n, at, workers):
    strategy = Strategy("s", triggers.every(n), scopes.nothing, Budget(), CONTINUE)
    run = notes.run([step(i) for i in "abcdef"], strategy=strategy, workers=workers)
    reflections = [v for v, s in zip(run.visited, run.states, strict=False) if v == "reflection"
                   and s.trigger]  # fmt: skip
    ended = [len(s.task_results) for v, s in zip(run.visited, run.states, strict=False)
             if v == "reflection" and s.trigger]  # fmt: skip
    assert ended == at
    assert len(reflections) == len(at)


def test_a_step_that_was_not_executed_is_no_nth_execution(notes, step):
    plan = [step("a", parameters={"x": 1}), step("b", parameters={"y": "${a.gone}"}), step("c")]
    for n, at in ((2, ["c"]), (1, ["a", "b", "c"])):
        strategy = Strategy("s", triggers.every(n), scopes.nothing, Budget(), CONTINUE)
        run = notes.run(plan, strategy=strategy)
        triggered = [s.trigger.step_id for s in run.states if s.trigger]
        assert triggered == at


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_every_needs_an_integer(n):
    with pytest.raises(ValueError, match="integer n of at least 1"):
        triggers.every(n)


def test_delivered_fault_sees_what_an_agent_cannot(notes, step):
    silent = al.FaultPlan(targets=(al.TargetedFault(tool="note", step="a", visibility="silent"),))
    for trigger, seen in ((triggers.delivered_fault, ["a"]), (triggers.after_failure, [])):
        strategy = Strategy("s", trigger, scopes.nothing, Budget(), CONTINUE)
        run = notes.run([step("a"), step("b")], strategy=strategy, faults=silent)
        assert [s.trigger.step_id for s in run.states if s.trigger] == seen
        assert len(run.state.delivered) == 1


# ---- composed from public parts ---------------------------------------------------------------


def test_a_strategy_of_ones_own(notes, step):
    """Replan the whole at the first critical event, once; then go on whatever happens."""

    def critical(point, state, step_id):
        if point is not TriggerPoint.AFTER_STEP or not state.events:
            return None
        last = state.events[-1]
        fresh = last.task_id == step_id and last.severity == "CRITICAL"
        return f"{last.type} of {step_id}" if fresh else None

    mine = al.Strategy(
        "mine", critical, scopes.first(scopes.step(1), scopes.whole), al.Budget(replans=1), CONTINUE
    )
    plans = [step("a"), step("b", "broken")], [step("c", "broken"), step("d")]
    run = notes.run(*plans, strategy=mine)
    assert dict(run.state.attempts) == {"a": 1, "b": 2, "c": 2, "d": 1}
    assert [(s.step_id, s.status) for s in run.plan.steps] == [("c", "failed"), ("d", "completed")]
    decisions = [
        d.name for d in run.recorder.of_kind("decision") if d.name in ReplanAction.__members__
    ]
    assert decisions == ["RETRY", "REPLAN_FULL", "RETRY", "CONTINUE", "CONTINUE"]
    assert run.state.stopped_by is None
    assert run.replay().identical


def test_replans():
    assert {a.value for a in REPLANS} == {"REPLAN_REMAINING", "REPLAN_FULL"}


def test_a_decider_that_retries_no_step_gave_no_decision(notes, step):
    class Decider:
        def decide(self, trigger, state, bench):
            return al.ReplanDecision(action="RETRY", reasoning="once more")

    strategy = Strategy("asks", triggers.total_failure, scopes.ask)
    run = al.autonomous.start(
        notes.lab([step("a", "broken")], [step("b")], strategy=strategy).bind(decider=Decider()),
        "do it",
    )
    run.finish()
    (record,) = run.state.replan_history
    assert "(by rule, since it wants to retry, and no step failed: once more)" in (
        record.decision.reasoning
    )
    assert run.plan.status == "completed"
