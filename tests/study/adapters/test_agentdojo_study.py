"""AgentDojo as a study: gold plans, doing nothing, and everything failing, over all four suites."""

from __future__ import annotations

from collections import Counter

import pytest

import agentlab as al
from agentlab.environments.adapters.agentdojo import SUITES
from agentlab.errors import UnknownNameError

pytest.importorskip("agentdojo")

pytestmark = pytest.mark.slow

TASKS = {"workspace": 40, "travel": 20, "banking": 16, "slack": 21}


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """The reference plans, carried out once, without faults and with nothing but faults."""
    made = {}
    for name in SUITES:
        out = tmp_path_factory.mktemp(name)
        study = al.Study(
            al.grid(planner="reference", strategy="never"), f"agentdojo/{name}",
            fault_rate=[0.0, 1.0], seeds=1, faults=al.FaultPlan(), out=out,
        )  # fmt: skip
        study.run(processes=1)
        made[name] = study
    return made


def test_a_suite_is_loaded_by_name():
    suite = al.load_suite("agentdojo/travel")
    assert (suite.name, len(suite)) == ("agentdojo/travel", 20)
    assert suite["agentdojo-travel-user_task_3"].environment == "agentdojo/travel"
    with pytest.raises(UnknownNameError, match="did you mean 'agentdojo/travel'"):
        al.load_suite("agentdojo/travell")


def test_every_task_was_run_and_none_crashed(studies):
    for name, study in studies.items():
        assert len(study.runs) == 2 * TASKS[name]
        assert set(study.runs["status"]) == {"done"}
        assert set(study.runs["environment"]) == {f"agentdojo/{name}"}


def test_without_faults_the_gold_plans_pass_97_of_97(studies):
    passed = {}
    for name, study in studies.items():
        runs = study.runs[study.runs["fault_rate"] == 0]
        assert runs["success"].all(), runs[~runs["success"]][["scenario", "reasons", "error"]]
        passed[name] = int(runs["success"].sum())
    assert passed == TASKS
    assert sum(passed.values()) == 97


def test_doing_nothing_passes_five(studies):
    floor = {
        name: int(study.runs[study.runs["fault_rate"] == 0]["floor"].sum())
        for name, study in studies.items()
    }
    assert floor == {"workspace": 0, "travel": 0, "banking": 5, "slack": 0}


def test_when_every_call_fails_no_run_is_above_doing_nothing(studies):
    """Cell by cell: a constant answer that a checker accepts would stand out here."""
    for study in studies.values():
        runs = study.runs[study.runs["fault_rate"] == 1]
        above = runs[runs["success"] > runs["floor"]]
        assert above.empty, above[["scenario", "answer"]]
        assert (runs["faults_delivered"] > 0).all()
        assert not runs["changed_state"].any()


def test_the_ceiling_is_called_what_it_is(studies):
    """There is no search here: the fault-free reference stands in, at every rate."""
    for study in studies.values():
        assert set(study.runs["ceiling_found_by"]) == {"reference"}
        assert (study.runs["ceiling"] == 1).all()
        assert (study.runs["twin_success"] == 1).all()


def test_faults_strike_the_tools_and_trying_again_repairs_them(tmp_path):
    study = al.Study(
        al.grid(planner="reference", strategy=["never", "retry(3)"]),
        al.load_suite("agentdojo/travel")[:10], fault_rate=0.3, seeds=2, faults=al.FaultPlan(),
        out=tmp_path,
    )  # fmt: skip
    by = study.run(processes=1).groupby("strategy")["success"].mean()
    assert by["retry(3)"] > by["never"]
    faults = study.frame("faults")
    assert len(faults) == study.runs["faults_delivered"].sum() > 20
    assert set(faults["kind"]) == {"error"}
    assert len(Counter(faults["tool"])) > 5


def test_a_stored_run_replays_although_its_world_is_made_again(studies):
    study = studies["workspace"]
    writes = study.runs[(study.runs["fault_rate"] == 0) & study.runs["changed_state"].astype(bool)]
    assert len(writes) > 10
    for cell in writes["cell"][:5]:
        report = study.replay(cell)
        assert report.identical, str(report)


def test_two_processes_agree_with_one(studies, tmp_path):
    """Upstream passes participants through a set, whose order differs between processes."""
    study = al.Study(
        al.grid(planner="reference", strategy="never"), al.load_suite("agentdojo/workspace")[:12],
        fault_rate=[0.0, 1.0], seeds=1, faults=al.FaultPlan(), out=tmp_path,
    )  # fmt: skip
    cells = study.run(processes=2)["cell"]
    columns = ["cell", "kind", "name", "visit", "step_id", "input", "output", "error"]
    first, second = (
        s.spans[s.spans["cell"].isin(cells)].sort_values(["cell", "span_id"])[columns]
        for s in (studies["workspace"], study)
    )
    assert len(first) > 100
    assert first.to_numpy().tolist() == second.to_numpy().tolist()
