"""A study: every cell once, whoever computes it, stored as it goes, and read back as it was."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as al
from agentlab.environments.base import Call, Outcome
from agentlab.environments.chain import Chain, generate
from agentlab.environments.suites import Suite
from agentlab.errors import (
    ConfigError,
    OwnedError,
    StoreError,
    StoreWriteError,
    StudyError,
    UnknownNameError,
)
from agentlab.minds.planners.search import Search
from agentlab.minds.strategies.named import get_strategy
from agentlab.study import study as module
from agentlab.study.grid import Arm
from agentlab.trace.store import Store

SUITE = Suite("three", [generate("medium", i, length=3) for i in range(3)])
ARMS = al.grid(planner="search", strategy=["never", "retry_then_replan(1)"])
PERMANENT = al.FaultPlan(persistence={"permanent": 0.5, "transient": 0.5})
NOT_COMPARED = ["wall_seconds"]


class Watch:
    """A progress callable that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, float]] = []

    def __call__(self, finished: int, total: int, rate: float) -> None:
        self.told.append((finished, total, rate))

    @property
    def run(self) -> int:
        """How many cells were run."""
        return self.told[-1][0] if self.told else 0


def study(out: Path, **options: Any) -> al.Study:
    options = {
        "arms": ARMS, "suite": SUITE, "fault_rate": [0.0, 0.3], "seeds": 2, "faults": PERMANENT,
        "out": out, **options,
    }  # fmt: skip
    return al.Study(options.pop("arms"), options.pop("suite"), **options)


def finished(out: Path, **options: Any) -> tuple[al.Study, int]:
    """Return a study that was run, and how many cells that took."""
    watch, made = Watch(), study(out, **options)
    made.run(processes=1, progress=watch)
    return made, watch.run


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a.drop(columns=NOT_COMPARED), b.drop(columns=NOT_COMPARED))


def trace(made: al.Study) -> list[list[Any]]:
    """Return all that replays compare, of all runs."""
    spans = made.spans.sort_values(["cell", "span_id"])
    columns = ["cell", "kind", "name", "visit", "step_id", "attempt", "input", "output", "error"]
    return spans[[*columns, "sim_start", "sim_end"]].to_numpy().tolist()


# ---- every cell of the grid, once ------------------------------------------------------------


def test_every_cell_of_the_grid_is_run_once_with_its_controls(tmp_path):
    made, ran = finished(tmp_path)
    runs = made.runs
    assert len(runs) == 2 * 3 * 2 * 2
    assert not runs.duplicated(["arm", "scenario", "fault_rate", "seed"]).any()
    assert ran == 24 + 3 + 3 * 2 * 2  # runs, floors, ceilings; rate 0 is its own twin
    assert len(finished(tmp_path / "bare", controls=False)[0].runs) == 24
    assert finished(tmp_path / "bare", controls=False)[1] == 0
    assert finished(tmp_path / "again", controls=False)[1] == 24


def test_running_again_runs_nothing(tmp_path):
    made, _ = finished(tmp_path)
    again, ran = finished(tmp_path)
    assert ran == 0
    pd.testing.assert_frame_equal(again.runs, made.runs)
    assert trace(again) == trace(made)


def test_a_grid_that_grows_runs_only_what_is_new(tmp_path):
    small, _ = finished(tmp_path)
    before = small.runs.set_index("cell")
    _, ran = finished(tmp_path, seeds=3)
    assert ran == 2 * 3 * 2 * 1 + 3 * 2  # one seed more: runs and ceilings
    _, ran = finished(tmp_path, seeds=3, fault_rate=[0.0, 0.1, 0.3])
    assert ran == 2 * 3 * 3 + 3 * 3
    arms = (*ARMS, *al.grid(planner="reference"))
    _, ran = finished(tmp_path, seeds=3, fault_rate=[0.0, 0.1, 0.3], arms=arms)
    assert ran == 3 * 3 * 3
    four = Suite("four", [*SUITE, generate("medium", 3, length=3)])
    grown, ran = finished(tmp_path, seeds=3, fault_rate=[0.0, 0.1, 0.3], arms=arms, suite=four)
    assert ran == 3 * 3 * 3 + 1 + 3 * 3
    assert len(grown.runs) == 3 * 4 * 3 * 3
    after = grown.runs.set_index("cell").loc[before.index]
    pd.testing.assert_frame_equal(after, before)  # with their wall times: they were not run again
    assert len(finished(tmp_path)[0].runs) == len(before)  # the small grid sees its own cells only


def test_another_fault_plan_is_another_cell(tmp_path):
    finished(tmp_path)
    _, ran = finished(tmp_path, faults=al.FaultPlan())
    assert ran > 0
    with Store(tmp_path, read_only=True) as store:
        assert len(store.cells()) == 2 * ran


def test_seeds_and_rates_may_be_named_one_by_one(tmp_path):
    made, _ = finished(tmp_path, seeds=[7, 3, 7], fault_rate=0.3, controls=False)
    assert (made.seeds, made.fault_rates) == ((7, 3), (0.3,))
    assert sorted(made.runs["seed"].unique()) == [3, 7]


# ---- who computes it changes nothing ------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("alone"))[0]


@pytest.mark.parametrize(
    ("processes", "backend"), [(2, "loky"), (2, "threading"), (3, "threading")]
)
def test_several_workers_give_what_one_gives(tmp_path, alone, processes, backend):
    made, watch = study(tmp_path), Watch()
    made.run(processes=processes, backend=backend, progress=watch)
    same(made.runs, alone.runs)
    assert trace(made) == trace(alone)
    assert watch.told[-1][:2] == (39, 39)
    assert watch.told[-1][2] == pytest.approx(alone.runs["success"].mean())


def test_the_order_of_arms_scenarios_rates_and_seeds_changes_nothing(tmp_path, alone):
    made, _ = finished(
        tmp_path, arms=ARMS[::-1], suite=list(SUITE)[::-1], fault_rate=[0.3, 0.0], seeds=[1, 0]
    )
    same(made.runs, alone.runs)
    assert trace(made) == trace(alone)


def test_objects_of_a_notebook_are_arms_in_other_processes_too(tmp_path):
    class Mine(Search):
        name = "mine"

    once = get_strategy("retry(1)").within(executions=50)
    arms = al.grid(planner=[Mine(), "search"], strategy=[once, "never"])
    made = study(tmp_path, arms=arms, controls=False)
    runs = made.run(processes=2)
    assert set(runs["arm"]) == {
        "mine × retry(1)", "mine × never", "search × retry(1)", "search × never",
    }  # fmt: skip
    assert set(runs["status"]) == {"done"}
    by = runs.groupby(["strategy", "planner", "scenario", "fault_rate", "seed"])["success"].sum()
    assert (by.unstack("planner")["mine"] == by.unstack("planner")["search"]).all()
    watch = Watch()
    made.run(processes=2, progress=watch)
    assert watch.run == 0
    opened = al.Study.open(tmp_path)
    same(opened.runs, runs)
    assert opened.run().equals(opened.runs)  # there is nothing to run
    key = runs[runs["planner"] == "mine"]["cell"].iloc[0]
    for needs_it in (opened.rerun, opened.replay):
        with pytest.raises(StudyError, match=r"planner of this arm is an object .* \(mine\)"):
            needs_it(key)
    opened.seeds = (7,)
    with pytest.raises(StudyError, match="it is not stored"):
        opened.run()
    stored = sqlite3.connect(tmp_path / "study.db")
    assert b"cloudpickle" not in b"".join(
        json.dumps(row).encode() for row in stored.execute("SELECT key, value FROM meta")
    )
    stored.close()


def test_a_module_that_only_the_parent_finds_is_found_by_workers(tmp_path, monkeypatch):
    """As in a notebook that puts ``src`` on its path after a first study has started workers."""
    study(tmp_path / "first", controls=False).run(processes=2)
    (tmp_path / "agentlab_test_planner.py").write_text(
        "from agentlab.minds.planners.search import Search\n"
        "class Mine(Search):\n    name = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import agentlab_test_planner  # type: ignore[import-not-found]

    made = study(tmp_path, arms=Arm(agentlab_test_planner.Mine()), controls=False)
    assert set(made.run(processes=2)["status"]) == {"done"}
    del sys.modules["agentlab_test_planner"]


def test_a_world_of_ones_own_reaches_the_workers(tmp_path, fresh_names):
    class Hasty(Chain):
        name = "test-hasty"

    al.register("environment", "test-hasty", Hasty)
    scenario = SUITE[0].replace(environment="test-hasty")
    runs = study(tmp_path, suite=[scenario]).run(processes=2)
    assert set(runs["status"]) == {"done"}
    assert set(runs["environment"]) == {"test-hasty"}


def test_an_unknown_backend_is_an_error_of_ours(tmp_path):
    with pytest.raises(ConfigError, match="backend 'lokky'"):
        study(tmp_path).run(processes=2, backend="lokky")


# ---- controls beside every run ------------------------------------------------------------------


def test_floor_ceiling_and_twin_stand_beside_every_run(tmp_path):
    made, ran = finished(tmp_path, fault_rate=[0.3, 0.6], seeds=4)
    twins, _ = finished(tmp_path / "zero", fault_rate=0.0, seeds=4)
    assert ran == 2 * 3 * 4 * 3 + 3 + 3 * 4 * 2  # twins at rate 0 were added
    runs = made.runs
    assert len(runs) == 2 * 3 * 4 * 2
    assert runs["asked"].all()
    assert set(runs["floor"]) == {0.0}
    for run in runs.to_dict("records"):
        scenario = SUITE[run["scenario"]]
        top = al.study.controls.ceiling(scenario, run["seed"], run["fault_rate"], PERMANENT)
        assert (run["ceiling"], run["ceiling_found_by"]) == (top.success, top.found_by)
        if top.seconds is None:
            assert np.isnan(run["ceiling_seconds"])
        else:
            assert run["ceiling_seconds"] == top.seconds
    keys = ["arm", "scenario", "seed"]
    twin = runs[keys].merge(twins.runs, on=keys, how="left")
    assert (twin["success"].to_numpy() == runs["twin_success"].to_numpy()).all()
    assert (twin["sim_seconds"].to_numpy() == runs["twin_sim_seconds"].to_numpy()).all()
    met = runs["faults_delivered"] > 0
    assert runs.loc[~met, "recovered"].isna().all()
    assert (runs.loc[met, "recovered"] == runs.loc[met, "success"]).all()
    assert 0 < runs["recovered"].mean() < 1
    assert (runs["success"] <= runs["ceiling"]).all()
    assert {0.0, 1.0} == set(runs["ceiling"])


def test_a_run_whose_twin_fails_recovers_from_nothing(tmp_path):
    """What fails without faults does not count against recovery."""
    arm = Arm("reference(noise=1.0)", "never")
    runs = finished(tmp_path, arms=arm, fault_rate=1.0)[0].runs
    assert (runs["faults_delivered"] > 0).all()
    assert (runs["twin_success"] == 0).all()
    assert runs["recovered"].isna().all()


@pytest.mark.parametrize("rates", [0.0, 0.4, [0.0, 0.4]])
@pytest.mark.parametrize(
    "plan",
    [
        {"targets": (al.TargetedFault(tool="advance", occurrence=0),)},
        {"outages": ({"name": "down", "tool": "advance", "start": 0.5, "seconds": 1.0},)},
        {"events": ({"name": "stall", "between": (0, 0), "patch": {"done": 0}, "chance": 0.99},)},
    ],
    ids=lambda plan: next(iter(plan)),
)
def test_no_fault_of_any_source_strikes_a_twin(tmp_path, plan, rates):
    """What a plan orders beside its rate strikes at rate 0, too; the twin was struck with it."""
    faults = PERMANENT.replace(**plan)
    assert not faults.by_rate_alone
    assert faults.fault_free().by_rate_alone
    made, _ = finished(tmp_path, fault_rate=rates, faults=faults)
    runs = made.runs
    assert len(runs) == 12 * np.size(rates)  # the twins were not asked for
    assert (runs["faults_delivered"] > 0).any()
    assert (runs["twin_success"] == 1).all()
    calm = finished(tmp_path / "calm", fault_rate=0.0, faults=PERMANENT)[0].runs
    keys = ["arm", "scenario", "seed"]
    both = runs[[*keys, "twin_sim_seconds"]].merge(calm, on=keys)
    assert (both["twin_sim_seconds_x"] == both["sim_seconds"]).all()
    met = runs["faults_delivered"] > 0
    assert (runs.loc[met, "recovered"] == runs.loc[met, "success"]).all()


def test_what_the_world_does_for_certain_is_no_fault(tmp_path):
    event = {"name": "stall", "between": (0, 0), "patch": {"done": 0}, "chance": 1}
    faults = al.FaultPlan(events=(event,))
    assert faults.by_rate_alone
    assert faults.fault_free() == faults
    made, ran = finished(tmp_path, fault_rate=0.0, faults=faults)
    assert ran == 12 + 3 + 6  # each run is its own twin
    assert (made.runs["twin_success"] == made.runs["success"]).all()


class Touchy(Chain):
    """A world that fails where only controls look."""

    name = "touchy"

    def estimate(self, goal, world):
        raise KeyError("a bug of a user's world")


def test_a_control_that_crashes_is_unknown_and_told(tmp_path, fresh_names):
    al.register("environment", "touchy", Touchy)
    suite = [s.replace(environment="touchy") for s in SUITE]
    arms = Arm("reference", "retry(3)")
    made, _ = finished(tmp_path, suite=Suite("t", suite), arms=arms, fault_rate=0.3)
    runs = made.runs
    assert runs["success"].any()
    assert runs["ceiling"].isna().all()
    assert set(runs["ceiling_found_by"]) == {"crashed"}
    told = " ".join(al.report.cautions(made))
    assert "The ceilings of 6 runs crashed and are unknown" in told
    _, again = finished(tmp_path, suite=Suite("t", suite), arms=arms, fault_rate=0.3)
    assert again == 0
    made.run(processes=1, progress=(watch := Watch()), retry_crashed=True)
    assert watch.run == 6  # the ceilings, and nothing else


def test_twins_become_runs_when_rate_zero_is_asked_for(tmp_path):
    finished(tmp_path, fault_rate=0.3)
    made, ran = finished(tmp_path, fault_rate=[0.0, 0.3])
    assert ran == 3 * 2  # the ceilings at rate 0
    assert len(made.runs) == 24
    assert made.runs["asked"].all()


def test_without_controls_their_columns_are_empty(tmp_path):
    runs = finished(tmp_path, fault_rate=0.3, controls=False)[0].runs
    assert runs[["floor", "ceiling", "twin_success", "recovered"]].isna().all(axis=None)


# ---- code, crashes, full disks, interrupts ------------------------------------------------------


def test_results_of_other_code_are_refused_unless_allowed(tmp_path, monkeypatch):
    finished(tmp_path)
    monkeypatch.setattr(module, "code_fingerprint", lambda: "another")
    message = r"made by another version of the code \([0-9a-f]{16}; this is another\).*allow_mixed"
    with pytest.raises(StudyError, match=message):
        study(tmp_path).run(processes=1)
    with pytest.raises(StudyError, match=message):  # also when there is something to run
        study(tmp_path, seeds=3).run(processes=1)
    assert len(study(tmp_path).runs) == 24  # reading is always allowed
    watch = Watch()
    study(tmp_path, seeds=3).run(processes=1, allow_mixed=True, progress=watch)
    assert watch.run == 18
    study(tmp_path, seeds=3).run(processes=1)  # this code is known to the folder now
    monkeypatch.undo()
    study(tmp_path, seeds=3).run(processes=1)  # and so is the first
    with Store(tmp_path, read_only=True) as store:
        assert store.meta()["code"] == sorted([module.code_fingerprint(), "another"])


def test_the_fingerprint_is_of_the_code_that_counts():
    assert module.code_fingerprint() == module.code_fingerprint.__wrapped__()
    assert len(module.code_fingerprint()) == 16


class Buggy(Search):
    """A planner with a bug that a flag mends."""

    name = "buggy"
    mended = False

    def plan(self, request: Any, bench: Any) -> Any:
        if not self.mended and request.seed == 1:
            raise ZeroDivisionError("a bug")
        return super().plan(request, bench)


def test_a_crashed_cell_is_a_failure_shown_apart_and_run_again_on_request(tmp_path):
    planner, options = Buggy(), {"controls": False, "fault_rate": 0.0}
    arms = (Arm(planner), Arm("search"))
    made, ran = finished(tmp_path, arms=arms, **options)
    assert ran == 12
    runs = made.runs
    crashed = runs[runs["status"] == "crashed"]
    assert len(crashed) == 3
    assert set(crashed["arm"]) == {"buggy × never"}
    assert set(crashed["seed"]) == {1}
    assert set(crashed["error"]) == {"ZeroDivisionError: a bug"}
    assert not crashed["success"].any()
    assert runs[runs["arm"] == "buggy × never"]["success"].mean() == 0.5
    with pytest.raises(StudyError, match="no stored trace"):
        made.replay(crashed["cell"].iloc[0])
    made.run(processes=1)
    assert (made.runs["status"] == "crashed").sum() == 3  # nothing is run again by itself
    planner.mended = True
    watch = Watch()
    made.run(processes=1, retry_crashed=True, progress=watch)
    assert watch.run == 3
    assert set(made.runs["status"]) == {"done"}
    assert made.runs["success"].all()
    assert len(made.runs) == 12
    watch = Watch()
    made.run(processes=1, retry_crashed=True, progress=watch)
    assert watch.run == 0
    with Store(tmp_path, read_only=True) as store:
        attempts = store._select("SELECT attempt, status, count(*) FROM cells GROUP BY 1, 2")
    assert sorted(attempts) == [(1, "crashed", 3), (1, "done", 9), (2, "done", 3)]


def test_on_a_full_disk_finished_cells_are_kept_and_the_study_goes_on(tmp_path, monkeypatch):
    made, check = study(tmp_path), Store._create

    def small(store: Store) -> None:
        check(store)
        store.connection.execute("PRAGMA max_page_count = 20")

    monkeypatch.setattr(Store, "_create", small)
    watch = Watch()
    with pytest.raises(StoreWriteError, match="the disk is full; what was finished is kept"):
        made.run(processes=1, progress=watch)
    kept = watch.run
    assert 0 < kept < 39
    monkeypatch.undo()
    with Store(tmp_path, read_only=True) as store:
        assert len(store.cells()) == kept
    assert 0 < len(study(tmp_path).runs) <= kept
    _, ran = finished(tmp_path)
    assert ran == 39 - kept


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_keeps_what_was_finished(tmp_path, processes):
    def stop(done: int, total: int, rate: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(tmp_path).run(processes=processes, progress=stop)
    with Store(tmp_path, read_only=True) as store:
        kept = store.cells()
    assert 0 < len(kept) < 39
    _, ran = finished(tmp_path)
    assert ran == 39 - len(kept)


def test_a_study_in_a_folder_where_one_is_under_way_writes_no_cell(tmp_path):
    refused: list[str] = []

    def overtaken(done: int, total: int, rate: float) -> None:
        if not refused:
            with pytest.raises(OwnedError) as told:
                finished(tmp_path)
            refused.append(str(told.value))

    study(tmp_path).run(processes=1, progress=overtaken)
    assert "the study in" in refused[0]
    with Store(tmp_path, read_only=True) as store:
        assert len(store._select("SELECT cell FROM cells")) == len(store.cells()) == 39
    assert finished(tmp_path)[1] == 0


def test_a_read_only_place_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreWriteError, match="choose a folder you may write to"):
        study(tmp_path / "file" / "results").run(processes=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fault_rate": 1.5}, "a fault rate is a number between 0 and 1, got 1.5"),
        ({"fault_rate": [0.1, True]}, "got True"),
        ({"fault_rate": "0.1"}, "a fault rate is a number between 0 and 1"),
        ({"fault_rate": []}, "at least one fault rate"),
        ({"seeds": 0}, "seeds must be a number of at least 1 or a list of integers, got 0"),
        ({"seeds": [1, 2.5]}, "list of integers"),
        ({"seeds": True}, "seeds must be"),
        ({"seeds": 2.0}, "seeds must be"),
        ({"arms": ()}, "at least one arm"),
        ({"arms": ("search",)}, "expected arms made by"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(tmp_path, options, message):
    with pytest.raises(StudyError, match=message):
        study(tmp_path, **options)


def test_an_unknown_suite_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'travel'"):
        study(tmp_path, suite="travl")


# ---- opened again, replayed ----------------------------------------------------------------------


def test_a_study_is_opened_from_its_folder_alone(tmp_path, alone):
    made, _ = finished(tmp_path)
    opened = al.Study.open(tmp_path)
    assert opened.arms == made.arms
    assert list(opened.suite) == list(SUITE)
    assert (opened.fault_rates, opened.seeds) == (made.fault_rates, made.seeds)
    assert opened.faults == PERMANENT
    pd.testing.assert_frame_equal(opened.runs, made.runs)
    watch = Watch()
    opened.run(processes=1, progress=watch)
    assert watch.run == 0
    Store(tmp_path / "empty").close()
    with pytest.raises(StudyError, match="holds no study"):
        al.Study.open(tmp_path / "empty")


def test_a_scenario_comes_back_with_its_keys_in_their_order(tmp_path):
    """Equal worlds may differ in the order of their keys, and what is cut off or renamed follows

    that order: results made before and after opening must not part.
    """
    world = {"tokens": {}, "stages": [], "seen": {"start": True}, "done": 0}
    scenario = SUITE[0].replace(world={**world, **dict(sorted(SUITE[0].world.items()))})
    finished(tmp_path, suite=[scenario], controls=False)
    [opened] = al.Study.open(tmp_path).suite
    assert json.dumps(opened.to_json()) == json.dumps(scenario.to_json())


@pytest.mark.parametrize("opened", [False, True])
def test_every_stored_run_replays_identically(tmp_path, opened):
    faults = al.FaultPlan(
        kinds={"wrong_result": 1, "error": 2, "partial_result": 1, "timeout": 1},
        visibility={"silent": 1, "announced": 1},
        persistence={"transient": 2, "permanent": 1, "until": 1},
    )
    made, _ = finished(tmp_path, faults=faults, fault_rate=0.4, seeds=3, controls=False)
    assert made.runs["faults_silent"].sum() > 5
    made = al.Study.open(tmp_path) if opened else made
    for cell in made.runs["cell"]:
        report = made.replay(cell)
        assert report.identical, str(report)
        assert report.coverage == 1.0
        assert report.visits == made.runs.set_index("cell").loc[cell, "visits"]


def test_a_replay_of_changed_tool_code_says_where_it_parts(tmp_path, monkeypatch):
    made, _ = finished(tmp_path, arms=Arm("search"), fault_rate=0.0, controls=False)
    apply = Chain.apply

    def other(self: Chain, world: Any, call: Call) -> Outcome:
        done = apply(self, world, call)
        if world["done"] != 1:
            return done
        return Outcome(done.world, {**done.result, "stage": "elsewhere"}, learned=done.learned)

    monkeypatch.setattr(Chain, "apply", other)
    report = made.replay(made.runs["cell"].iloc[0])
    assert not report.identical
    assert report.visits == 7
    assert report.matched == 3  # load_config, planning, the first step
    assert "visit 3" in report.divergence
    assert "'elsewhere'" in report.divergence
    assert report.coverage == 3 / 7


def test_a_replay_that_crashes_says_so(tmp_path, monkeypatch):
    made, _ = finished(tmp_path, arms=Arm("search"), fault_rate=0.0, controls=False)
    monkeypatch.setattr(Chain, "apply", lambda self, world, call: 1 / 0)
    report = made.replay(made.runs["cell"].iloc[0])
    assert not report.identical
    assert report.divergence == "visit 1: now raises ZeroDivisionError: division by zero"
    assert (report.matched, report.visits) == (1, 7)


def test_a_run_is_found_by_the_start_of_its_key(tmp_path):
    made, _ = finished(tmp_path)
    cell = made.runs["cell"].iloc[5]
    key, found = made.find(cell[:8])
    assert (key, found.seed) == (cell, made.runs["seed"].iloc[5])
    with pytest.raises(StudyError, match="no run of it starts with 'zz'; keys look like"):
        made.find("zz")
    with pytest.raises(StudyError, match="expected the key of a run"):
        made.find("")
    run = made.rerun(cell)
    assert run.visited == []
    run.finish()
    assert run.verdict.success == made.runs["success"].iloc[5]


def test_what_is_needed_to_reproduce_is_stored(tmp_path):
    finished(tmp_path)
    with Store(tmp_path, read_only=True) as store:
        meta = store.meta()
    assert meta["code"] == [module.code_fingerprint()]
    assert meta["versions"]["pydantic"]
    assert meta["definition"]["seeds"] == [0, 1]
    assert set(meta["scenarios"]) == {s.digest for s in SUITE}
    finished(tmp_path)
    with Store(tmp_path, read_only=True) as store:  # nothing is written when nothing is new
        assert len(store._select("SELECT 1 FROM meta")) == 4


@pytest.mark.parametrize(
    ("table", "value"), [("meta", "null"), ("meta", "[]"), ("meta", "{}"), ("cells", "{}")]
)
def test_a_damaged_study_is_one_error(tmp_path, table, value):
    finished(tmp_path, suite=list(SUITE)[:1], seeds=1, fault_rate=0.0)
    with Store(tmp_path) as store:
        store.connection.execute(f"DROP TRIGGER no_update_{table}")
        column = "row" if table == "cells" else "value"
        store.connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(StoreError, match="what is stored there is damaged"):
        al.Study.open(tmp_path).runs  # noqa: B018
