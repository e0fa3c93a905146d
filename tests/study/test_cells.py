"""A cell: its key is all that its outcome depends on, and what it comes to is a row."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import Outage
from agentlab.minds.planners.search import Search
from agentlab.minds.strategies.base import Strategy
from agentlab.minds.strategies.named import get_strategy
from agentlab.study.cells import ARM, CEILING, FLOOR, Cell, Runner, _measured, make_lab
from agentlab.study.grid import Arm
from agentlab.trace.packing import unpack_spans
from agentlab.trace.span import Span

ONE = Cell(ARM, Arm("search", "retry(1)"), generate("medium", 0, length=3), 0.3, 1)
FAULTS = al.FaultPlan(persistence={"permanent": 0.3, "transient": 0.7}, visibility={"silent": 1})


def result(cell: Cell, faults: al.FaultPlan | None = FAULTS, traces: bool = True):
    [found] = Runner(faults, traces).run_all([("key", cell)])
    return found


def outcome(row):
    return {k: v for k, v in row.items() if k != "wall_seconds"}


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, seed=2),
        replace(ONE, fault_rate=0.2),
        replace(ONE, scenario=generate("medium", 1, length=3)),
        replace(ONE, scenario=ONE.scenario.replace(task="another")),
        replace(ONE, arm=Arm("search", "retry(2)")),
        replace(ONE, arm=Arm("reference", "retry(1)")),
        replace(ONE, arm=Arm("search", "retry(1)", workers=2)),
        replace(ONE, role=CEILING, arm=None),
    ],
)
def test_whatever_changes_the_outcome_changes_the_key(other):
    assert other.key(FAULTS) != ONE.key(FAULTS)
    assert ONE.key(None) != ONE.key(FAULTS) != ONE.key(FAULTS.replace(duration=3.0))


def test_what_does_not_change_the_outcome_does_not_change_the_key():
    assert replace(ONE, asked=False, attempt=3).key(FAULTS) == ONE.key(FAULTS)
    again = al.Scenario.model_validate(json.loads(json.dumps(ONE.scenario.to_json())))
    assert replace(ONE, scenario=again).key(FAULTS) == ONE.key(FAULTS)
    other_way = al.FaultPlan(
        visibility={"silent": 1}, persistence={"transient": 0.7, "permanent": 0.3}
    )
    assert ONE.key(other_way) == ONE.key(FAULTS)
    assert outcome(result(ONE, other_way).row) == outcome(result(ONE).row)


def test_the_row_says_what_the_run_came_to():
    for seed in range(6):
        cell = replace(ONE, arm=Arm("search", "retry_then_replan(1)"), seed=seed)
        run = al.autonomous.start(make_lab(cell, FAULTS))
        run.finish()
        found = result(cell)
        row, state = found.row, run.state
        assert (found.status, found.attempt) == ("done", 1)
        assert row["success"] is run.verdict.success
        assert row["reasons"] == "; ".join(run.verdict.reasons)
        assert row["answer"] == state.answer
        assert row["sim_seconds"] == state.now
        assert row["visits"] == len(run.visited)
        assert row["replans"] == len(state.replan_history)
        kinds = [s.kind for s in run.spans]
        assert row["tool_calls"] == kinds.count("tool") == len(state.calls)
        assert row["executions"] == kinds.count("step")
        assert row["faults_delivered"] == kinds.count("fault") == row["faults_silent"]
        failed = [s for s in run.spans if s.kind == "step" and s.error is not None]
        assert row["failed_executions"] == len(failed)
        assert row["retries"] == sum(s.kind == "step" and s.attempt > 1 for s in run.spans)
        assert row["changed_state"] is (state.world["done"] > 0)
        spans = [Span.from_row(r) for r in unpack_spans(found.spans)]
        assert [s.row()[2:10] for s in spans] == [
            json.loads(json.dumps(s.row()[2:10])) for s in run.spans
        ]


@pytest.mark.parametrize(
    ("faults", "new"),
    [
        (al.FaultPlan(kinds={"error": 1}), 5),  # each call's own
        (al.FaultPlan(kinds={"error": 1}, persistence={"until": 1}, duration=1e6), 1),
        (al.FaultPlan(outages=[Outage(name="down", tool="advance", start=0.0)]), 1),
        (al.FaultPlan(outages=[Outage(name="down", tool="advance", start=0.0, seconds=1e6)]), 1),
    ],
)
def test_a_fault_that_stands_is_new_once(faults, new):
    """Five calls in a row, at rate 1 or within an outage: all meet a fault."""
    plain = replace(ONE, arm=Arm("search", "retry(4)"), fault_rate=0.0 if faults.outages else 1.0)
    row = result(plain, faults).row
    assert (row["tool_calls"], row["faults_delivered"], row["faults_new"]) == (5, 5, new)
    lasting = "until" if new == 1 and not faults.outages else "transient"
    assert row["first_fault"] == f"error × {lasting} × announced"


def test_without_a_fault_there_is_no_class():
    row = result(replace(ONE, fault_rate=0.0)).row
    assert (row["faults_new"], row["first_fault"]) == (0, None)


def test_how_parallel_a_run_was():
    """One worker: the makespan is all the work. Several: between the critical path and that."""
    scenario = al.load_suite("workshop")["workshop-medium-001"]
    rows = {
        workers: result(
            Cell(ARM, Arm("reference", "never", workers=workers), scenario, 0.0, 0), None
        ).row
        for workers in (1, 2, 9)
    }  # fmt: skip
    work = rows[1]["makespan"]
    assert rows[1]["speed_up"] == 1
    for row in rows.values():
        assert row["makespan"] == row["sim_seconds"]
        assert row["critical_path"] == rows[1]["critical_path"] <= row["makespan"]
        assert row["parallel_efficiency"] == row["critical_path"] / row["makespan"]
        assert row["speed_up"] == work / row["makespan"]
    assert rows[9]["makespan"] <= rows[2]["makespan"] < work
    assert rows[9]["speed_up"] > 1.5


def test_the_critical_path_goes_over_all_plans_and_attempts():
    for seed in range(8):
        scenario = al.load_suite("workshop")[20 + seed]
        cell = Cell(ARM, Arm("search", "retry_then_replan(1)", workers=3), scenario, 0.2, seed)
        row = result(cell, None).row
        assert 0 < row["critical_path"] <= row["makespan"] + 1e-9
        assert 0 < row["parallel_efficiency"] <= 1 + 1e-9
    nothing = result(replace(ONE, arm=Arm("reference", "never"), fault_rate=1.0)).row
    assert nothing["makespan"] > 0


def test_a_row_is_json_and_names_the_cell():
    row = result(ONE).row
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    named = {"role": "arm", "arm": "search × retry(1)", "scenario": "chain-3-000", "seed": 1}
    assert row | named == row
    assert (row["environment"], row["cluster"], row["fault_rate"]) == ("chain", "chain-3-000", 0.3)


@pytest.mark.parametrize(
    ("visibility", "kind", "committed"),
    [
        ("announced", "error", False),
        ("silent", "error", False),
        ("announced", "timeout_after_commit", True),
    ],
)
def test_the_state_changed_if_a_write_took_effect_whatever_was_told(visibility, kind, committed):
    faults = al.FaultPlan(kinds={kind: 1}, visibility={visibility: 1})
    row = result(replace(ONE, arm=Arm("reference", "never"), fault_rate=1.0), faults).row
    assert row["changed_state"] is committed
    assert row["success"] is False


def test_without_traces_the_row_is_the_same():
    assert result(ONE, traces=False).spans == b""
    assert outcome(result(ONE, traces=False).row) == outcome(result(ONE).row)


def test_the_order_of_cells_changes_nothing():
    """Cells of one arm share a lab; whoever ran before leaves nothing behind."""
    arms = [Arm(p, s) for p in ("search", "reference(noise=0.3)") for s in ("never", "on_error")]
    scenarios = [generate("medium", i, length=4) for i in range(2)]
    cells = [
        Cell(ARM, arm, scenario, rate, seed)
        for arm in arms for scenario in scenarios for rate in (0.0, 0.3) for seed in range(3)
    ]  # fmt: skip
    cells += [Cell(CEILING, None, s, 0.3, 0) for s in scenarios]
    keyed = [(cell.key(FAULTS), cell) for cell in cells]
    alone = {key: outcome(result(cell).row) for key, cell in keyed}
    for seed in range(3):
        mixed = Random(seed).sample(keyed, len(keyed))
        found = {r.cell: outcome(r.row) for r in Runner(FAULTS).run_all(mixed)}
        assert found == alone
    assert len({json.dumps(r) for r in alone.values()}) == len(cells)


# ---- what crashes ---------------------------------------------------------------------------


class Crashing(Search):
    """A planner with a bug, for some seeds."""

    name = "crashing"

    def plan(self, request, bench):
        if request.seed % 2:
            raise ZeroDivisionError("a bug of the planner")
        return super().plan(request, bench)


def test_a_cell_that_crashes_is_a_failure_that_says_why():
    cells = [
        (str(seed), replace(ONE, arm=Arm(Crashing(), "never"), seed=seed, attempt=2))
        for seed in range(4)
    ]
    found = Runner(None).run_all(cells)
    assert [r.status for r in found] == ["done", "crashed", "done", "crashed"]
    crashed = found[1]
    assert crashed.row["success"] is False
    assert crashed.row["error"] == "ZeroDivisionError: a bug of the planner"
    assert "in plan\n" in crashed.row["traceback"]
    assert crashed.row["arm"] == "crashing × never"
    assert (crashed.spans, crashed.attempt) == (b"", 2)


def test_a_result_that_cannot_be_written_crashes_its_cell_only(monkeypatch):
    """What the store could not take must not reach it: the batch would be lost with it."""
    from agentlab.study import cells as module

    measured = module._measured
    monkeypatch.setattr(
        module, "_measured", lambda run: measured(run) | {"answer": {run.state.seed: float("nan")}}
    )
    found = result(ONE)
    assert found.status == "crashed"
    assert json.loads(json.dumps(found.row, allow_nan=False)) == found.row


def test_controls_are_cells_without_an_arm():
    for role, success in ((FLOOR, False), (CEILING, True)):
        found = result(Cell(role, None, ONE.scenario, 0.0, 0), None)
        assert (found.row["role"], found.row["arm"], found.row["success"]) == (role, role, success)
        assert found.spans == b""
    assert result(Cell(CEILING, None, ONE.scenario, 0.0, 0), None).row["found_by"] == "witness"


@pytest.mark.parametrize("effect", ["read", "write"])
def test_the_state_changed_if_what_a_write_returned_cannot_be_used(effect):
    def odd() -> object:
        return float("nan")

    plan = [{"name": "a", "actionType": "call_tool", "targetResource": "odd", "parameters": {}}]
    tools = [al.tool(effect=effect)(odd)]
    lab = al.Lab(ONE.scenario, tools=tools, planner=al.planners.Fixed(plan), strategy="never")
    run = al.autonomous.start(lab)
    run.finish()
    assert run.state.calls[0].error.code == "not_json"
    assert _measured(run)["changed_state"] is (effect == "write")


class Leaves:
    """A mind that ends its thread, or thinks so."""

    def __init__(self, error):
        self.error = error

    def leave(self, *asked):
        raise self.error

    plan = reflect = respond = leave


@pytest.mark.parametrize("error", [SystemExit(2), GeneratorExit(), ValueError("a bug")])
@pytest.mark.parametrize("mind", ["planner", "reflector", "responder", "strategy"])
def test_a_mind_that_leaves_is_a_crashed_cell_whichever_it_is(mind, error):
    leaves = Leaves(error)
    options = {"strategy": "reflect_on_total_failure", mind: leaves}
    if mind == "strategy":
        options[mind] = Strategy("leaves", get_strategy("on_error").trigger, leaves.leave)
    [arm] = al.grid(**{"planner": "search", **options})
    always = al.FaultPlan(kinds={"error": 1}, visibility={"announced": 1})
    found = result(replace(ONE, arm=arm, fault_rate=1.0), always)
    assert (found.status, found.row["error"]) == ("crashed", f"{type(error).__name__}: {error}")
