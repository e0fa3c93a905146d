"""The strategies that ship: by name, by table, and by what they do on chain and on functions."""

from __future__ import annotations

from math import sqrt

import pytest

import agentlab as al
from agentlab.base.built_in import BUILT_IN
from agentlab.environments.fault_plan import FaultPlan, Outage, TargetedFault
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.minds.strategies.named import get_strategy

TABLE = [  # text, name in results, replans, executions, when spent
    ("never", "never", 0, 100, "CONTINUE"),
    ("retry", "retry(2)", 0, 100, "ABORT"),
    ("retry(1)", "retry(1)", 0, 100, "ABORT"),
    ("retry(3, wait=2)", "retry(3, wait=2)", 0, 100, "ABORT"),
    ("retry_then_replan(2)", "retry_then_replan(2)", 3, 100, "ABORT"),
    (
        "retry_then_replan(1, 5, wait=0.5)", "retry_then_replan(1, replans=5, wait=0.5)", 5, 100,
        "ABORT",
    ),
    ("reflect_on_total_failure", "reflect_on_total_failure", 3, 20, "ABORT"),
    (
        "reflect_on_total_failure(1, 7)", "reflect_on_total_failure(replans=1, executions=7)", 1, 7,
        "ABORT",
    ),
    ("on_error", "on_error", 3, 100, "ABORT"),
    ("on_error(5)", "on_error(replans=5)", 5, 100, "ABORT"),
    ("ask_on_error", "ask_on_error", 3, 100, "ABORT"),
    ("ask_on_error(5)", "ask_on_error(replans=5)", 5, 100, "ABORT"),
    ("every_step", "every_step", 50, 100, "CONTINUE"),
    ("every_step(4)", "every_step(replans=4)", 4, 100, "CONTINUE"),
    ("every", "every(3)", 50, 100, "CONTINUE"),
    ("every(2, replans=1)", "every(2, replans=1)", 1, 100, "CONTINUE"),
    ("event_driven", "event_driven", 3, 100, "ABORT"),
    (
        "event_driven('INFO', 2, False, 'lm', 0)",
        "event_driven(threshold='INFO', batch=2, milestones=False, decider='lm', replans=0)", 0,
        100, "ABORT",
    ),
    ("oracle", "oracle", 50, 100, "ABORT"),
    ("oracle(9)", "oracle(replans=9)", 9, 100, "ABORT"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "replans", "executions", "spent"), TABLE)
def test_names_and_budgets(text, name, replans, executions, spent):
    strategy = get_strategy(text)
    assert strategy.name == name
    assert (strategy.budget.replans, strategy.budget.executions) == (replans, executions)
    assert strategy.when_spent == spent
    again = get_strategy(strategy.name)  # a name in results builds the same strategy
    assert (again.name, again.budget) == (strategy.name, strategy.budget)


def test_every_preset_is_in_the_table():
    assert {text.split("(")[0] for text, *_ in TABLE} == set(BUILT_IN["strategy"])


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("retry_then_repaln", UnknownNameError, "did you mean 'retry_then_replan'"),
        ("event_driven('MILD')", ConfigError, "threshold: expected one of .* got 'MILD'"),
        ("event_driven(batch=0)", ConfigError, "batch: expected .* 1, got 0"),
        ("event_driven(batch=True)", ConfigError, "batch: expected .* got True"),
        (
            "event_driven(decider='me')",
            ConfigError,
            "decider: expected .* got 'me'; known: lm",
        ),
        ("retry(k=1, wiat=2)", ConfigError, "did you mean 'wait'"),
        ("retry(1, 2, 3)", ConfigError, r"strategy retry\(k=2, wait=0.0, unknown='refuse'"),
        ("retry(unknown='ask')", ConfigError, "unknown: expected .* known: refuse, repeat"),
        ("retry(-1)", ConfigError, "k: expected .* equal to 0, got -1"),
        ("retry(1.5)", ConfigError, "got 1.5"),
        ("retry('x')", ConfigError, "got 'x'"),
        ("retry(2, wait=-1)", ConfigError, "wait: expected .* got -1"),
        ("retry(2, wait='x')", ConfigError, "retry"),
        ("every(0)", ConfigError, "n: expected .* equal to 1, got 0"),
        ("every(1.5)", ConfigError, "n: expected a whole number"),
        ("on_error(-1)", ConfigError, "on_error: replans: expected a"),
        ("on_error(1.5)", ConfigError, "replans: expected a whole number"),
        ("on_error('x')", ConfigError, "on_error: replans: expected a"),
        ("on_error(None)", ConfigError, "on_error: replans: expected a"),
        ("retry(", ConfigError, "expected a name with literal arguments"),
        ("retry(__import__('os'))", ConfigError, "expected a name with literal arguments"),
    ],
)
def test_arguments_that_do_not_fit(text, error, match):
    with pytest.raises(error, match=match):
        get_strategy(text)


# ---- what they do, by table -------------------------------------------------------------------

OUTCOMES = [
    # strategy, status of a b c, attempts of b, replans, stopped by
    ("never", ["completed", "failed", "completed"], 1, 0, None),
    ("retry(2)", ["completed", "failed", "pending"], 3, 0, "abort"),
    ("retry(0)", ["completed", "failed", "pending"], 1, 0, "abort"),
    ("retry_then_replan(2)", ["completed", "completed"], 3, 1, None),
    ("retry_then_replan(0)", ["completed", "completed"], 1, 1, None),
    ("on_error", ["completed", "completed"], 1, 1, None),
    ("on_error(0)", ["completed", "failed", "pending"], 1, 0, "replans"),
    ("reflect_on_total_failure", ["completed", "failed", "completed"], 1, 0, None),
    ("oracle", ["completed", "completed"], 1, 1, None),
]


@pytest.mark.parametrize(("strategy", "statuses", "attempts", "replans", "stopped"), OUTCOMES)
def test_a_step_that_never_works(notes, step, strategy, statuses, attempts, replans, stopped):
    plans = [step("a"), step("b", "broken"), step("c")], [step("d")]
    run = notes.run(*plans, strategy=strategy)
    assert [s.status for s in run.plan.steps] == statuses
    assert run.state.attempts["b"] == attempts
    assert (run.state.loop_count, run.state.stopped_by) == (replans, stopped)


@pytest.mark.parametrize(
    ("strategy", "attempts", "verdict"),
    [("never", 1, False), ("retry(1)", 2, False), ("retry(2)", 3, True), ("retry(5)", 3, True)],
)
def test_a_step_that_works_the_third_time(chain, strategy, attempts, verdict):
    scenario = chain()
    second = {"stage": scenario.world["stages"][1]}
    targets = [TargetedFault(tool="advance", arguments=second, occurrence=k) for k in (0, 1)]
    lab = al.Lab(scenario, strategy=strategy, faults=FaultPlan(targets=targets))
    run = al.autonomous.start(lab)
    run.finish()
    assert run.state.attempts["advance_2"] == attempts
    assert run.verdict.success is verdict
    assert run.state.loop_count == 0


@pytest.mark.parametrize("wait", [0, 2.5, 100.0])
def test_a_retry_waits_simulated_seconds(notes, step, wait):
    run = notes.run([step("a", "broken")], strategy=f"retry(3, wait={wait})")
    starts = [s.sim_start for s in run.recorder.of_kind("step")]
    assert starts == [k * (1 + wait) for k in range(4)]
    assert run.state.now == 4 + 3 * wait


def test_a_wait_outlasts_a_rate_limit(chain):
    scenario = chain()
    target = TargetedFault(tool="advance", occurrence=0, before=1.0, kind="rate_limit")
    for wait, success in ((0, False), (13, False), (15, True), (30, True)):
        lab = al.Lab(scenario, strategy=f"retry(2, wait={wait})",
                     faults=FaultPlan(targets=(target,), duration=30.0))  # fmt: skip
        run = al.autonomous.start(lab)
        run.finish()
        assert run.verdict.success is success


# ---- round a broken tool ----------------------------------------------------------------------


def broken_for_good(scenario, strategy, planner="search", stage=1, **options):
    where = {"arguments": {"stage": scenario.world["stages"][stage]}}
    target = TargetedFault(tool="advance", persistence="permanent", **where)
    lab = al.Lab(scenario, planner=planner, strategy=strategy,
                 faults=FaultPlan(targets=(target,)), **options)  # fmt: skip
    run = al.autonomous.start(lab)
    run.finish()
    return run


def test_retry_then_replan_goes_round_a_tool_that_is_broken_for_good(chain):
    run = broken_for_good(chain(5), "retry_then_replan(2)")
    assert run.verdict.success
    tools = [s.target_resource for s in run.plan.steps]
    assert tools == ["advance"] + ["advance_slowly"] * 4
    assert run.state.loop_count == 1
    assert run.state.attempts["advance_2"] == 1  # the error says that calling again cannot help
    assert run.state.now == 1 + 1 + 4 * 3


def test_retry_then_replan_goes_round_a_tool_that_is_down(chain):
    """Nothing says that the outage is for ever: it is tried again, then gone round."""
    outage = Outage(name="down", tool="advance", start=1.0)
    lab = al.Lab(chain(5), strategy="retry_then_replan(2)", faults=FaultPlan(outages=(outage,)))
    run = al.autonomous.start(lab)
    run.finish()
    assert run.verdict.success
    assert [s.target_resource for s in run.plan.steps] == ["advance"] + ["advance_slowly"] * 4
    assert run.state.loop_count == 1
    assert run.state.attempts["advance_2"] == 3
    assert run.state.now == 1 + 3 + 4 * 3


@pytest.mark.parametrize(
    ("strategy", "planner", "success"),
    [
        ("retry(5)", "search", False),
        ("never", "search", False),
        ("on_error", "search", True),
        ("oracle", "search", True),
        ("every_step", "search", True),
        ("retry_then_replan(2)", "reference", False),  # it knows one way only
    ],
)
def test_who_else_does(chain, strategy, planner, success):
    assert broken_for_good(chain(5), strategy, planner).verdict.success is success


def test_under_a_transient_fault_search_stays_with_the_quick_way(chain):
    scenario = chain(4)
    target = TargetedFault(tool="advance", occurrence=0, step="advance_2")
    lab = al.Lab(scenario, strategy="on_error", faults=FaultPlan(targets=(target,)))
    run = al.autonomous.start(lab)
    run.finish()
    assert run.verdict.success
    assert [s.target_resource for s in run.plan.steps] == ["advance"] * 4
    assert run.state.now == 5


def test_every_replans_after_every_nth(chain):
    for text, replans in (("every_step", 6), ("every(2)", 3), ("every(4)", 1), ("every(9)", 0)):
        run = al.autonomous.start(al.Lab(chain(6), strategy=text))
        run.finish()
        assert run.verdict.success
        assert run.state.loop_count == replans
        assert run.plan.status == "completed"


def test_every_step_replans_after_a_failed_step_too(chain):
    target = TargetedFault(tool="advance", occurrence=0, before=0.5)
    lab = al.Lab(chain(3), strategy="every_step", faults=FaultPlan(targets=(target,)))
    run = al.autonomous.start(lab)
    run.finish()
    assert run.verdict.success
    assert run.state.loop_count == 4


# ---- the oracle -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "kind", "visibility", "on_error"),
    [
        (2, "error", "announced", True),
        (2, "error", "silent", True),  # the next stage tells that this one is not done
        (3, "error", "silent", False),  # there is no next stage
        (2, "timeout_after_commit", "announced", True),
        (2, "wrong_result", "silent", False),
        (2, "empty_result", "silent", True),
    ],
)
def test_the_oracle_repairs_what_others_cannot_see(chain, stage, kind, visibility, on_error):
    scenario = chain(4)
    target = TargetedFault(tool="advance", arguments={"stage": scenario.world["stages"][stage]},
                           occurrence=0, kind=kind, visibility=visibility)  # fmt: skip
    for strategy, success in (("on_error", on_error), ("oracle", True)):
        lab = al.Lab(scenario, strategy=strategy, faults=FaultPlan(targets=(target,)))
        run = al.autonomous.start(lab)
        run.finish()
        assert run.verdict.success is success, strategy


def test_the_oracle_does_nothing_where_nothing_struck(chain):
    run = al.autonomous.start(al.Lab(chain(4), strategy="oracle"))
    run.finish()
    assert run.visited.count("reflection") == 1
    assert run.verdict.success


# ---- the laws, in small -----------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "k"), [("never", 0), ("retry(1)", 1)])
def test_the_law_of_the_chain(chain, strategy, k):
    rate, n, wins = 0.3, 300, 0
    scenario = chain(3)
    for seed in range(n):
        run = al.autonomous.start(
            al.Lab(scenario, planner="reference", strategy=strategy, seed=seed, fault_rate=rate)
        )
        run.finish()
        wins += run.verdict.success
    p = (1 - rate ** (k + 1)) ** 3
    assert abs(wins - n * p) <= 3.3 * sqrt(n * p * (1 - p))
