"""A study as YAML, the presets of faults, and the command that makes a study again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import agentlab as al
from agentlab.environments.suites import Suite, load_suite, write_suite
from agentlab.errors import AgentLabError, ConfigError, UnknownNameError
from agentlab.minds.strategies.named import get_strategy
from agentlab.study.definition import (
    PRESETS,
    Definition,
    command,
    default_planners,
    fault_plan,
    read_definition,
    spread,
)
from agentlab.study.lists import parse_names, parse_rates, parse_seeds


def written(folder: Path, text: str, name: str = "my.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ("a", "b")),
        ("retry(2, wait=1),never", ("retry(2, wait=1)", "never")),
        ("reference(noise=0.2),search", ("reference(noise=0.2)", "search")),
        ("m:F([1, 2], {'a, (': 3}), b", ("m:F([1, 2], {'a, (': 3})", "b")),
        ("f(g(1, 2), 3), f(g(1, 2), 3)", ("f(g(1, 2), 3)",)),
    ],
)
def test_a_list_is_parted_outside_of_brackets_and_quotes(text, parts):
    assert parse_names(text) == parts


def test_seeds_are_a_number_or_a_list():
    assert parse_seeds("10") == 10
    assert parse_seeds("1,2, 5") == (1, 2, 5)
    for text in ("0", "-1", "a", "1,,2", "", "1.5"):
        with pytest.raises(ConfigError, match="'--seeds': expected a number such as"):
            parse_seeds(text)


def test_a_file_with_everything(tmp_path):
    path = written(
        tmp_path,
        """
        suite: chain
        planner: [search, reference(noise=0.2)]
        strategy: never
        workers: [1, 2]
        fault_rate: [0, 0.1, 5e-1]
        seeds: [3, 4]
        faults: permanent
        out: there
        limit: 5
        """,
    )
    made = read_definition(path)
    assert made == Definition(
        "chain", ("search", "reference(noise=0.2)"), ("never",), ("autonomous",), (1, 2),
        (0.0, 0.1, 0.5), (3, 4), "permanent", "there", limit=5,
    )  # fmt: skip
    study = made.study()
    assert len(study.suite) == 5
    assert len(study.arms) == 4
    assert study.fault_rates == (0.0, 0.1, 0.5)
    assert study.seeds == (3, 4)
    assert study.faults == PRESETS["permanent"]
    assert study.out == Path("there")


def test_the_smallest_file_means_the_defaults(tmp_path):
    made = read_definition(written(tmp_path, "suite: chain"))
    assert made == Definition("chain", out="results/my")
    study = made.study()
    assert [a.factors["planner"] for a in study.arms[::4]] == ["search", "reference(noise=0.2)"]
    assert len(study.arms) == 8
    assert (study.fault_rates, len(study.seeds)) == ((0.0, 0.1, 0.3), 5)


def test_a_fault_plan_written_out(tmp_path):
    path = written(tmp_path, "suite: chain\nfaults: {kinds: {timeout: 1}, duration: 5}")
    faults = read_definition(path).faults
    assert faults == al.FaultPlan(kinds={"timeout": 1.0}, duration=5)
    assert Definition("chain", faults=faults).replace(limit=1).study().faults is faults


def test_rates_as_text(tmp_path):
    assert read_definition(written(tmp_path, "suite: x\nfault_rate: 0,0.1")).fault_rate == (0, 0.1)
    assert parse_rates("1e-1") == (0.1,)


def test_a_suite_beside_the_file(tmp_path):
    suite = spread(load_suite("chain"), 2)
    write_suite(suite, tmp_path / "mine.jsonl")
    made = read_definition(written(tmp_path, "suite: mine.jsonl"))
    assert [s.id for s in made.study().suite] == [s.id for s in suite]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "suite: chain\nplaner: x",
            r"my.yaml: field planer: is no field of it, got 'x'; did you mean 'planner'\?",
        ),
        ("planner: search", "my.yaml: field suite: is missing"),
        ("suite: [chain", r"not YAML: .* \(column \d+\)"),
        ("suite: chain\nsuite: travel", r"the key 'suite' is given twice \(line 2, column 1\)"),
        ("just text", "expected keys such as 'suite: travel', got 'just text'"),
        ("", "expected keys"),
        ("suite: 3", "suite: expected text, got 3"),
        ("suite: chain\nplanner: [1]", r"field planner.0: expected text, got 1$"),
        ("suite: chain\nstrategy: []", "field strategy: expected at least 1 item, got"),
        ("suite: chain\nseeds: 1.5", "seeds: expected a whole number"),
        ("suite: chain\nseeds: true", "seeds: expected a whole number"),
        ("suite: chain\nworkers: two", "field workers.0: expected a whole number, got 'two'"),
        ("suite: chain\nfault_rate: [true]", "fault_rate.0: expected a number, got True"),
        ("suite: chain\nfault_rate: [a]", "such as '0,0.1,0.3', got 'a'"),
        ("suite: chain\nfault_rate: []", "fault_rate: expected at least 1 item"),
        (
            "suite: chain\nworkers: 0",
            "workers.0: expected a number greater than or equal to 1, got",
        ),
        ("suite: chain\nseeds: 0", "seeds: expected a number greater than or equal to 1"),
        ("suite: chain\nseeds: [1, x]", "field seeds.1: expected a whole number, got 'x'$"),
        ("suite: chain\nlimit: 0", "limit: expected a number greater than or equal to 1, got 0$"),
        ("suite: chain\nfaults: {rate: 7}", "field faults.rate: expected a number less .* got 7$"),
        ("suite: chain\nfaults: {rat: 1}", "faults.rat: is no field of it.*did you mean 'rate'"),
        ("suite: chain\nfaults: 3", "faults: expected text or a FaultPlan or a dict, got 3"),
        ("suite: chain\n3: 4", "my.yaml: "),
        (
            "suite: chain\nplanner: 3\nlimit: x\nout: []",
            r"planner.*out: expected text, got \[\]; .*limit",
        ),
        ("suite: !!python/object:os.system x", "not YAML"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_definition(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        read_definition(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "made",
    [
        {"suite": "chian"},
        {"planner": ("serach",)},
        {"strategy": ("retry(times=2)",)},
        {"fault_rate": (2.0,)},
        {"seeds": 0},
        {"seeds": ()},
        {"workers": (0,)},
        {"limit": 0},
        {"faults": "transeint"},
    ],
)
def test_what_no_study_can_be_made_of_is_refused(made):
    with pytest.raises(AgentLabError):
        Definition(**{"suite": "chain", **made}).study()


def test_results_go_where_the_suite_is_named():
    assert Definition("travel").folder == Path("results/travel")
    assert Definition("agentdojo/travel").folder == Path("results/agentdojo-travel")
    assert Definition("/data/mine.jsonl").folder == Path("results/mine")
    assert Definition("travel", out="there").folder == Path("there")


def test_presets():
    assert fault_plan("scenario") is None
    silent, announced = PRESETS["silent"], PRESETS["announced"]
    assert silent.replace(visibility=announced.visibility) == announced  # the same draws
    transient, permanent = PRESETS["transient"], PRESETS["permanent"]
    assert permanent.replace(persistence=transient.persistence) == transient
    with pytest.raises(UnknownNameError, match="did you mean 'silent'"):
        fault_plan("slient")


def test_spread_takes_of_every_cluster_and_grows():
    suite = load_suite("travel")
    clusters = {s.cluster for s in suite}
    eight = spread(suite, len(clusters))
    assert {s.cluster for s in eight} == clusters
    assert {s.id for s in spread(suite, 5)} < {s.id for s in eight}
    order = [s.id for s in suite]
    assert [s.id for s in eight] == sorted((s.id for s in eight), key=order.index)
    assert {s.difficulty for s in spread(load_suite("chain"), 8)} == {"easy", "medium", "hard"}
    assert list(spread(suite, 1000)) == list(suite)
    with pytest.raises(ConfigError, match="at least one scenario"):
        spread(suite, 0)


def test_the_default_planners_can_plan_in_the_world():
    assert default_planners(load_suite("quickstart"))[0] == "search"
    pytest.importorskip("agentdojo")
    dojo = load_suite("agentdojo/travel")
    assert default_planners(dojo) == ("reference", "reference(noise=0.2)")


# ---- the command that makes it again -------------------------------------------------------


def keys(study: al.Study) -> set[str]:
    return set(study._keyed())


@pytest.mark.parametrize(
    "made",
    [
        Definition("chain", ("search", "reference(noise=0.2)"), ("never", "retry(2)"), seeds=2),
        Definition("chain", ("search",), ("retry_then_replan(2, wait=1.5)",), workers=(2, 1)),
        Definition("chain", ("search",), ("never",), faults="silent", fault_rate=(0.25,)),
        Definition("chain", ("search",), ("event_driven(batch=2)",), ("autonomous", "resident")),
        Definition("chain", ("search",), ("event_driven",), ("resident",)),
    ],
)
@pytest.mark.parametrize("limit", [None, 3])
def test_the_command_makes_the_same_cells(tmp_path, made, limit, monkeypatch):
    from typer.testing import CliRunner

    from agentlab.study.study import Study
    from agentlab.views.cli.cli import app

    study = made.replace(out=str(tmp_path / "it's here"), limit=limit).study()
    text = command(study)
    assert text is not None
    again: list[Study] = []
    monkeypatch.setattr(Study, "run", lambda self, **options: again.append(self))
    monkeypatch.setattr("agentlab.views.cli.cli.show_results", lambda *arguments: None)
    monkeypatch.setattr("agentlab.views.cli.cli.check_measured", lambda *arguments: None)
    found = CliRunner().invoke(app, shlex.split(text)[1:])
    assert found.exit_code == 0, found.output
    assert keys(again[0]) == keys(study)
    assert again[0].out == study.out


def test_no_command_where_none_can_say_it(tmp_path):
    suite = load_suite("chain")
    arms = al.grid(planner="search", strategy=["never", "retry(2)"])

    def of(arms=arms, suite=suite, **options):
        return command(al.Study(arms, suite, out=tmp_path, **options))

    assert of() is not None
    assert of(seeds=[4, 7]) is None
    assert of(suite=suite[2:4]) is None
    assert of(suite=Suite("mine", list(suite))) is None
    assert of(arms=[*arms, al.Arm("reference", "never")]) is None
    assert of(arms=al.Arm("search", get_strategy("never"))) is None
    assert of(faults=al.FaultPlan(kinds={"timeout": 1.0})) is None
    assert "--no-controls" in of(controls=False)
