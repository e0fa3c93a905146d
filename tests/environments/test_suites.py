"""The shipped suites are what the generators make, fit the JSON Schema, and can be solved."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

import agentlab as al
from agentlab.environments.base import no_op
from agentlab.environments.generators import freeze
from agentlab.environments.suites import folder, suite_names
from agentlab.errors import ScenarioError, UnknownNameError

SIZES = {"chain": 20, "travel": 60, "blocks": 40, "workshop": 40, "quickstart": 12}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    made = tmp_path_factory.mktemp("datasets")
    freeze(made)
    return made


@pytest.mark.parametrize("name", [*(f"{n}.jsonl" for n in SIZES), "scenario.schema.json"])
def test_files_hold_what_the_generators_make(name, frozen):
    assert (folder() / name).read_text(encoding="utf-8") == (frozen / name).read_text("utf-8")


def test_sizes_and_names():
    assert {name: len(al.load_suite(name)) for name in suite_names()} == SIZES


@pytest.mark.parametrize("name", SIZES)
def test_every_line_fits_the_schema(name):
    schema = json.loads((folder() / "scenario.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema_rs.Draft202012Validator(schema)
    for line in (folder() / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        assert [e.message for e in validator.iter_errors(json.loads(line))] == []
    assert not validator.is_valid({"id": "x", "environment": "chain", "task": 3})


@pytest.mark.parametrize("name", SIZES)
def test_reference_reaches_the_goal_and_doing_nothing_does_not(name):
    for scenario in al.load_suite(name):
        lab = al.Lab(scenario, planner="reference", strategy="never")
        run = al.autonomous.start(lab)
        run.finish()
        assert run.verdict.success, (scenario.id, run.verdict.reasons)
        assert run.replay().identical
        assert not no_op(lab.environment, scenario).success, scenario.id


@pytest.mark.parametrize("name", SIZES)
def test_search_solves_every_scenario(name):
    for scenario in al.load_suite(name):
        lab = al.Lab(scenario, planner="search(privileged=True)", strategy="never")
        run = al.autonomous.start(lab)
        run.finish()
        assert run.verdict.success, (scenario.id, run.verdict.reasons, run.state.error)


def test_unknown_suites_name_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'travel'"):
        al.load_suite("travels")


def _line(**changes):
    scenario = al.load_suite("chain")["chain-easy-000"].model_dump(mode="json")
    for path, value in changes.items():
        *above, last = path.split("__")
        place = scenario
        for key in above:
            place = place[int(key) if key.isdigit() else key]
        place[last] = value
    return json.dumps(scenario)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"environment": "chian"}, "did you mean 'chain'"),
        ({"reference__steps__0__tool": "advnce"}, "did you mean 'advance'"),
        ({"reference__steps__1__dependencies": ["gone"]}, "unknown step 'gone'"),
        ({"reference__steps__0__arguments": {"token": "${"}}, "without its '}'"),
        ({"reference__answer": "${nobody.token}"}, "unknown step 'nobody'"),
        ({"goal": 3}, "field goal"),
        ({"faults__rate": 2}, "faults.rate"),
    ],
)
def test_a_bad_line_names_file_line_and_trouble(tmp_path, change, told):
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{_line()}\n\n{_line(id='b', **change)}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as e:
        al.load_suite(path)
    assert "mine.jsonl, line 3: " in str(e.value)
    assert told in str(e.value)


def test_a_cyclic_reference_plan_is_refused(tmp_path):
    scenario = al.load_suite("chain")["chain-easy-000"].model_dump(mode="json")
    first, second, *_ = scenario["reference"]["steps"]
    first["dependencies"] = [second["stepId"]]
    path = tmp_path / "cycle.jsonl"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"line 1: reference plan: cyclic dependency"):
        al.load_suite(path)
