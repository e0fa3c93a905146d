"""Frames: as many rows as the runs say, each with what was recorded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import WorldEvent
from agentlab.errors import UnknownNameError
from agentlab.study.frames import KEYS, RUNS, joined as spans_of_runs, runs_frame, unpacked
from agentlab.trace.span import COLUMNS
from agentlab.trace.stored import CellResult

FAULTS = al.FaultPlan(
    kinds={"error": 3, "wrong_result": 1, "timeout_after_commit": 1},
    visibility={"silent": 1, "announced": 2},
    persistence={"transient": 2, "permanent": 1},
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = al.Study(
        al.grid(planner="search", strategy=["retry(1)", "retry_then_replan(1)", "every_step"]),
        [generate("medium", i, length=4) for i in range(3)],
        fault_rate=[0.2, 0.5], seeds=3, faults=FAULTS, out=tmp_path_factory.mktemp("frames"),
    )  # fmt: skip
    made.run(processes=1)
    return made


@pytest.fixture(scope="module")
def states(study):
    """The runs again, as objects."""
    runs = {}
    for cell in study.runs["cell"]:
        run = study.rerun(cell)
        run.finish()
        runs[cell] = run
    return runs


def counts(frame: pd.DataFrame, cells: Any) -> list[int]:
    return frame["cell"].value_counts().reindex(cells, fill_value=0).tolist()


def test_a_row_a_run(study, states):
    runs = study.frame("runs")
    assert list(runs.columns) == list(RUNS)
    assert len(runs) == 3 * 3 * 2 * 3
    assert runs["cell"].is_unique
    keys = ["arm", "scenario", "fault_rate", "seed"]
    assert runs.equals(runs.sort_values(keys).reset_index(drop=True))
    assert runs["success"].dtype == bool
    for run in runs.to_dict("records"):
        state = states[run["cell"]].state
        assert run["success"] == states[run["cell"]].verdict.success
        assert (run["replans"], run["sim_seconds"]) == (state.loop_count, state.now)
        assert json.loads(run["answer"]) == state.answer
        assert (run["stopped_by"] if isinstance(run["stopped_by"], str) else None) == (
            state.stopped_by
        )


def test_a_row_a_span(study, states):
    spans = study.frame("spans")
    assert set(COLUMNS) | set(KEYS) == set(spans.columns)
    assert counts(spans, list(states)) == [len(run.spans) for run in states.values()]
    cell, run = next(iter(states.items()))
    mine = spans[spans["cell"] == cell].sort_values("span_id")
    assert mine["name"].tolist() == [s.name for s in run.spans]
    assert mine["output"].tolist() == [s.row()[8] for s in run.spans]
    assert set(mine["seed"]) == {run.state.seed}
    assert (mine["started"] > 1e9).all()


def test_a_row_an_execution_of_a_step(study, states):
    steps = study.frame("steps")
    assert counts(steps, list(states)) == [run.state.executions for run in states.values()]
    assert counts(steps, study.runs["cell"]) == study.runs["executions"].tolist()
    failed = steps[steps["error"].notna()]
    assert counts(failed, study.runs["cell"]) == study.runs["failed_executions"].tolist()
    again = steps[steps["attempt"] > 1]
    assert counts(again, study.runs["cell"]) == study.runs["retries"].tolist()
    assert (steps["sim_end"] >= steps["sim_start"]).all()


def test_a_row_a_decision(study, states):
    decisions = study.frame("decisions")
    plans = decisions[decisions["name"] == "plan"]
    assert counts(plans, study.runs["cell"]) == study.runs["plans"].tolist()
    replans = decisions[decisions["name"].str.startswith("REPLAN")]
    assert counts(replans, study.runs["cell"]) == study.runs["replans"].tolist()
    assert (replans["action"] == replans["name"]).all()
    assert replans["reasoning"].str.len().min() > 0
    retries = decisions[decisions["name"] == "RETRY"]
    assert counts(retries, study.runs["cell"]) == study.runs["retries"].tolist()
    reflections = decisions[decisions["name"] != "plan"]
    assert counts(reflections, list(states)) == [
        run.visited.count("reflection") for run in states.values()
    ]
    assert "output" not in decisions


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    made = al.Study(
        al.grid(planner="search", strategy="event_driven", workflow=["autonomous", "resident"]),
        [generate("medium", i, length=4) for i in range(3)],
        fault_rate=[0.3], seeds=4, faults=FAULTS, out=tmp_path_factory.mktemp("watched"),
    )  # fmt: skip
    made.run(processes=1)
    return made


@pytest.mark.parametrize("name", ["spans", "steps", "decisions", "faults", "lm_calls"])
def test_every_frame_can_be_grouped_by_the_factors_of_its_arm(study, name):
    frame = study.frame(name)
    assert list(frame.columns[: len(KEYS)]) == list(KEYS)
    runs = study.runs.set_index("cell")
    for factor in KEYS[1:]:
        assert frame[factor].tolist() == runs[factor].loc[frame["cell"]].tolist()


def test_decisions_about_events(watched):
    """Trigger, events and what became of the plan, held against the states of the run."""
    decisions = watched.frame("decisions")
    for cell in watched.runs["cell"]:
        run = watched.rerun(cell)
        run.finish()
        rows = decisions[decisions["cell"] == cell]
        asked = rows[rows["trigger"].notna()]
        made = [s.last_decision for s in run.states if s.trigger is None and s.last_decision]
        made = [d for i, d in enumerate(made) if i == 0 or d is not made[i - 1]]
        made = [d for d in made if d.reasoning]  # not the one at the end of a plan
        assert asked["action"].tolist() == [d.action for d in made]
        assert [len(e) for e in asked["events"]] == [len(d.events) for d in made]
        assert set(asked["point"]) <= {"event", "phase_end", "stall"}
        replans = rows[rows["name"].str.startswith("REPLAN")].to_dict("records")
        for row, record in zip(replans, run.state.replan_history, strict=False):
            before = {s.step_id for s in record.before.steps}
            after = {s.step_id for s in record.after.steps}
            assert set(row["added"]) == after - before
            assert set(row["removed"]) == before - after
            assert {*row["kept"], *row["changed"]} == before & after
    assert decisions["confidence"].dropna().between(0, 1).all()


def test_workflows_are_compared_like_any_factor(watched):
    """Both workflows decide alike, so the paired difference is nothing at all."""
    assert set(watched.runs["workflow"]) == {"autonomous", "resident"}
    (row,) = watched.compare("success", by="workflow").to_dict("records")
    assert row["diff"] == 0
    same = watched.runs.pivot(index=["scenario", "seed"], columns="workflow", values="replans")
    assert (same["autonomous"] == same["resident"]).all()
    assert watched.replay(watched.runs["cell"].iloc[-1]).identical


def test_a_row_a_delivered_fault(study, states):
    faults = study.frame("faults")
    runs = study.runs
    assert counts(faults, runs["cell"]) == runs["faults_delivered"].tolist()
    silent = faults[faults["visibility"] == "silent"]
    assert counts(silent, runs["cell"]) == runs["faults_silent"].tolist()
    assert len(silent) > 10
    assert (faults["kind"] == faults["fault"]).all()
    for cell, mine in faults.groupby("cell"):
        delivered = states[cell].state.delivered
        assert mine["persistence"].tolist() == [d.fault.persistence for d in delivered]
        assert mine["source"].tolist() == [d.fault.source for d in delivered]
        assert mine["step_id"].tolist() == [d.step_id for d in delivered]
        assert mine["committed"].tolist() == [d.committed for d in delivered]
        assert mine["sim_end"].tolist() == [d.at for d in delivered]


def test_what_happens_in_the_world_by_itself_is_a_fault_too(tmp_path):
    """One event as the run begins, one under way, one that nobody hears of."""
    events = [
        WorldEvent(name="first", patch={"weather": "rain"}, chance=1.0, visibility="announced"),
        WorldEvent(name="later", patch={"weather": "sun"}, chance=1.0, between=(1.5, 1.5)),
        WorldEvent(name="never", patch={"weather": "fog"}, chance=1.0, between=(99, 99)),
    ]
    study = al.Study(
        al.grid(planner="reference"), [generate("medium", 0, length=3)], seeds=1, out=tmp_path,
        faults=al.FaultPlan(events=events),
    )  # fmt: skip
    study.run(processes=1)
    faults = study.frame("faults")
    assert study.runs["faults_delivered"].tolist() == [2]
    assert faults["tool"].tolist() == ["first", "later"]
    assert faults["sim_start"].tolist() == [0.0, 1.5]
    assert faults["visibility"].tolist() == ["announced", "silent"]
    assert set(faults["source"]) == {"event"}
    assert study.replay(study.runs["cell"][0]).identical


def test_an_unknown_frame_is_named(study):
    with pytest.raises(UnknownNameError, match="did you mean 'spans'"):
        study.frame("span")


def test_frames_follow_a_study_that_grows(tmp_path):
    arms, scenario = al.grid(planner="search"), generate("medium", 0, length=2)
    study = al.Study(arms, [scenario], seeds=1, out=tmp_path)
    study.run(processes=1)
    before = len(study.spans)
    study.seeds = (0, 1)
    study.run(processes=1)
    assert len(study.runs) == 2
    assert len(study.spans) == 2 * before


def test_without_traces_there_are_runs_and_no_spans(tmp_path):
    study = al.Study(
        al.grid(planner="search"), [generate("medium", 0, length=2)], seeds=2, out=tmp_path,
        traces=False, fault_rate=0.5,
    )  # fmt: skip
    study.run(processes=1)
    assert len(study.runs) == 2
    for name in ("spans", "steps", "decisions", "faults"):
        assert len(study.frame(name)) == 0, name


# ---- the frame of runs from rows alone -------------------------------------------------------


def row(role: str = "arm", **fields: Any) -> CellResult:
    base = {
        "role": role, "asked": True, "arm": "a", "scenario": "s", "seed": 0, "fault_rate": 0.5,
        "success": True, "faults_delivered": 1, "answer": None,
    }  # fmt: skip
    status = fields.pop("status", "done")
    return CellResult(fields.pop("cell", f"{role}{fields}"), status, base | fields)


def test_controls_are_joined_by_what_they_depend_on():
    frame = runs_frame(
        [
            row(),
            row(seed=1, success=False),
            row(arm="b"),
            row(fault_rate=0.0, asked=False, faults_delivered=0, sim_seconds=3.0),
            row(fault_rate=0.0, asked=False, faults_delivered=0, seed=1, success=False),
            row("floor", success=True, fault_rate=0.0),
            row("floor", success=False, fault_rate=0.0, scenario="other"),
            row("ceiling", success=None, found_by="search"),
            row("ceiling", success=False, seed=1, found_by="search"),
        ]
    )
    assert frame["arm"].tolist() == ["a", "a", "b"]  # the twins were not asked for
    assert frame["floor"].tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_array_equal(frame["ceiling"], [np.nan, 0.0, np.nan])  # unknown, no, unknown
    np.testing.assert_array_equal(frame["twin_success"], [1.0, 0.0, np.nan])
    np.testing.assert_array_equal(frame["twin_sim_seconds"], [3.0, np.nan, np.nan])
    np.testing.assert_array_equal(frame["recovered"], [1.0, np.nan, np.nan])
    assert len(runs_frame([row(), row(fault_rate=0.0, asked=False)], asked_only=False)) == 2


def test_a_control_that_crashed_tells_nothing():
    crashed = {"success": False, "status": "crashed"}
    frame = runs_frame(
        [
            row(),
            row(fault_rate=0.0, asked=False, faults_delivered=0, **crashed),
            row("floor", **crashed),
            row("ceiling", **crashed),
        ]
    )
    assert frame[["floor", "ceiling", "twin_success", "recovered"]].isna().all(axis=None)
    assert frame["ceiling_found_by"].tolist() == ["crashed"]


def test_the_twin_is_the_run_that_no_fault_strikes():
    struck = {"fault_rate": 0.0, "fault_free": False, "success": False}
    calm = {"fault_rate": 0.0, "fault_free": True, "asked": False, "sim_seconds": 3.0}
    for cells in ([row(**struck), row(**calm)], [row(**calm), row(**struck)]):
        frame = runs_frame(cells)
        assert frame[["success", "twin_success", "recovered"]].values.tolist() == [[False, 1, 0]]
        assert frame["twin_sim_seconds"].tolist() == [3.0]


def test_a_crashed_run_is_a_failure_with_what_is_known_of_it():
    crashed = row(success=False, error="ValueError: x", status="crashed", traceback="...")
    for name in ("answer", "faults_delivered"):
        del crashed.row[name]
    frame = runs_frame([crashed, row(arm="b")])
    assert frame["status"].tolist() == ["crashed", "done"]
    assert frame["success"].tolist() == [False, True]
    assert np.isnan(frame["faults_delivered"][0])
    assert np.isnan(frame["recovered"][0])
    assert frame["error"][0] == "ValueError: x"


def test_no_runs_are_a_frame_with_its_columns():
    for cells in ([], [row("floor")]):
        frame = runs_frame(cells)
        assert list(frame.columns) == list(RUNS)
        assert len(frame) == 0


def test_fields_become_columns():
    frame = pd.DataFrame({"n": [1, 2, 3], "o": [{"a": 1}, None, {"a": 2, "b": "x"}]}, [5, 6, 9])
    out = unpacked(frame, "o")
    assert out.index.tolist() == [5, 6, 9]
    assert list(out.columns) == ["n", "a", "b"]
    np.testing.assert_array_equal(out["a"], [1, np.nan, 2])


def test_spans_of_no_run_join_to_an_empty_frame():
    spans = pd.DataFrame({"cell": ["of another study"], "kind": ["lm"]})
    found = spans_of_runs(spans, runs_frame([]))
    assert found.empty
    assert list(found.columns) == [*KEYS, "kind"]
