"""Budgets as an axis: arms, keys, files, commands, results, and what a larger budget changes."""

from __future__ import annotations

import json
import shlex
from itertools import product

import pytest
from typer.testing import CliRunner

import agentlab as al
from agentlab.base.documents import digest
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite, write_suite
from agentlab.errors import ConfigError, StudyError
from agentlab.minds.strategies.base import Budget
from agentlab.minds.strategies.named import get_strategy
from agentlab.study.cells import ARM, Cell, Runner
from agentlab.study.definition import Definition, command, read_definition
from agentlab.study.grid import GIVEN, Arm, arm_from_json, grid
from agentlab.views.cli.cli import app
from agentlab.views.page.report import page

SUITE = Suite("four", [generate("medium", i, length=3) for i in range(4)])
FAULTS = al.FaultPlan(kinds={"error": 1.0})
LEVELS = ["replans=0", "replans=1", "replans=10"]


def study(out, **options):
    arms = options.pop("arms", None) or grid(strategy="on_error", budget=LEVELS)
    options = {"fault_rate": [0.0, 0.4], "seeds": 4, "faults": FAULTS, **options}
    return al.Study(arms, SUITE, out=out, **options)


def keys(made):
    return {c.key(made.faults) for c in made.cells()}


# ---- arms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget",
    ["replans=0,1,10", LEVELS, {"replans": [0, 1, 10]}, [{"replans": 0}, "replans=1,10"]],
)
def test_budgets_are_levels_of_an_axis(budget):
    arms = grid(planner="search", strategy="on_error", budget=budget)
    assert [a.budget for a in arms] == LEVELS
    assert [a.label for a in arms] == [f"search × on_error × {level}" for level in LEVELS]
    assert [a.factors["budget"] for a in arms] == LEVELS
    assert all(a.named for a in arms)
    for arm in arms:
        assert arm_from_json(json.loads(json.dumps(arm.to_json()))) == arm


def test_every_spelling_of_a_budget_is_one_arm():
    one = Arm(budget="replans=1,seconds=5")
    for other in ("seconds=5.0, replans=1", {"seconds": 5, "replans": 1}):
        assert Arm(budget=other) == one
        assert Arm(budget=other).key() == one.key()
    whole = Arm(strategy="every_step", budget=Budget(replans=1))
    assert whole.options["strategy"].budget == Budget(replans=1)
    with pytest.raises(StudyError, match=r"two arms are called .*replans=1.* the same"):
        grid(budget=["replans=1", {"replans": 1}])
    with pytest.raises(ConfigError, match="which stands for 2 budgets"):
        Arm(budget="replans=1,2")


def test_the_bounds_take_the_place_of_the_strategys_own():
    strategy = get_strategy("reflect_on_total_failure(replans=5, executions=7)")
    for given in (strategy, "reflect_on_total_failure(replans=5, executions=7)"):
        made = Arm(strategy=given, budget="replans=1,lm_tokens=50").options["strategy"]
        assert made.budget == Budget(replans=1, executions=7, lm_tokens=50)
        assert made.name == strategy.name
    assert Arm(strategy=strategy).options["strategy"] is strategy


def test_an_arm_without_a_budget_is_keyed_as_ever():
    """The key is that of a version that knew no budgets: its results are found again."""
    assert "budget" in GIVEN
    assert set(Arm().to_json()) == {"planner", "strategy", "workflow", "workers"}
    arm = Arm("search", "retry(2)", workers=2, review="approve")
    assert arm.label == "search × retry(2) × workers=2 × review=approve"
    scenario = generate("medium", 1, length=3)
    written = {"planner": "search", "strategy": "retry(2)", "workflow": "autonomous", "workers": 2,
               "review": "approve"}  # fmt: skip
    key = digest(["arm", written, scenario.digest, None, 0.1, 3])
    assert Cell(ARM, arm, scenario, 0.1, 3).key(None) == key
    assert grid(budget=None) == grid()
    own, given = grid(strategy="on_error", budget=[None, "replans=3"])
    assert (own.label, given.label) == ("search × on_error", "search × on_error × replans=3")
    assert own.key() != given.key()


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("replan=1", "unknown kind of budget 'replan'; did you mean 'replans'"),
        (["replans=1", {"tools": 1}], "kind of budget 'tools'; did you mean 'tool_calls'"),
        ("replans=x", "budget replans: expected a number, got 'x'"),
        (7, "expected a budget such as 'replans=3'"),
        ([], "an axis of the grid has no value"),
    ],
)
def test_what_is_no_budget_is_refused(budget, message):
    with pytest.raises(StudyError, match=message):
        grid(budget=budget)


def test_a_budget_needs_a_strategy_that_has_one():
    class Odd:
        name = "odd"

    with pytest.raises(StudyError, match=r"expected a name or an agentlab\.Strategy, got an Odd"):
        grid(strategy=Odd(), budget="replans=1")


@pytest.mark.parametrize(
    ("kind", "few", "many", "measured"),
    [
        ("replans", 1, 10, "replans"),
        ("executions", 2, 50, "executions"),
        ("tool_calls", 2, 50, "tool_calls"),
        ("seconds", 2, 500, "sim_seconds"),
    ],
)
def test_every_kind_bounds_a_run(tmp_path, kind, few, many, measured):
    arms = grid(strategy="on_error(replans=20)", budget={kind: [few, many]})
    runs = study(tmp_path, arms=arms, fault_rate=0.5, controls=False).run(processes=1)
    assert (runs["status"] == "done").all(), runs["error"].to_list()
    most = runs.groupby("budget")[measured].max()
    one_step = 1.0 if kind != "seconds" else runs["sim_seconds"].max()
    assert most[f"{kind}={few}"] <= few + (one_step if kind == "seconds" else 0)
    assert few < most[f"{kind}={many}"] <= many


# ---- results ---------------------------------------------------------------------------------


def test_a_study_of_budgets_end_to_end(tmp_path):
    made = study(tmp_path)
    runs = made.run(processes=2)
    struck = runs[runs["fault_rate"] > 0]
    by_budget = struck.groupby("budget")["success"].mean()
    assert by_budget["replans=0"] < by_budget["replans=1"] < by_budget["replans=10"]
    assert dict(struck.groupby("budget")["replans"].max())["replans=0"] == 0
    assert (struck[struck["budget"] == "replans=1"]["replans"] <= 1).all()
    board = made.leaderboard()
    assert board["arm"].tolist()[0] == "search × on_error × replans=10"
    assert set(board["budget"]) == set(LEVELS)
    compared = made.compare(by="budget")
    assert {*compared["a"], *compared["b"]} == set(LEVELS)
    html = page(made)
    assert "Paired comparison by budget" in html
    assert all(level in html for level in LEVELS)
    for frame in (made.spans, made.steps):
        assert set(frame["budget"]) == set(LEVELS)
    again = al.Study.open(tmp_path)
    assert again.arms == made.arms
    assert [a.label for a in again.arms] == [a.label for a in made.arms]
    assert again.replay(struck["cell"].iloc[-1]).identical


def test_a_study_gains_budgets_and_keeps_what_it_has(tmp_path, monkeypatch):
    before = study(tmp_path, arms=grid(strategy="on_error"), seeds=1)
    first = before.run(processes=1).set_index("cell")["success"]
    ran = []
    run = Runner.run
    monkeypatch.setattr(Runner, "run", lambda self, k, c: ran.append(c) or run(self, k, c))
    arms = grid(strategy="on_error", budget=[None, "replans=1"])
    both = study(tmp_path, arms=arms, seeds=1).run(processes=1)
    assert both.set_index("cell")["success"][first.index].equals(first)
    assert {c.arm.budget for c in ran if c.arm} == {"replans=1"}
    ran.clear()
    study(tmp_path, arms=arms, seeds=1).run(processes=1)
    assert not ran


# ---- files and commands ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("budget: replans=1,3", ["replans=1", "replans=3"]),
        ("budget: [replans=1, 'replans=3,seconds=9']", ["replans=1", "replans=3,seconds=9"]),
        ("budget: {replans: [1, 3], seconds: 9.5}",
         ["replans=1,seconds=9.5", "replans=3,seconds=9.5"]),
        ("budget: [{replans: 1}, replans=1]", ["replans=1"]),
        ("limit: 3", [None]),
    ],
)  # fmt: skip
def test_a_file_names_budgets(tmp_path, text, levels):
    path = tmp_path / "s.yaml"
    path.write_text(f"suite: chain\nplanner: search\nstrategy: on_error\n{text}\n")
    assert [a.budget for a in read_definition(path).study().arms] == levels


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replan=1", "s.yaml: field budget: unknown kind of budget 'replan'; did you mean 'repla"),
        ("{tool_call: 1}", "field budget: unknown kind of budget 'tool_call'; did you mean 'tool_"),
        ("3", "field budget: expected a budget such as"),
        ("[null]", "field budget: expected a budget such as"),
        ("{replans: yes}", "field budget: budget replans: expected a whole number"),
        ("{replans: {a: 1}}", "field budget: budget replans: expected a whole number"),
    ],
)
def test_a_file_with_no_budget_is_refused(tmp_path, value, message):
    path = tmp_path / "s.yaml"
    path.write_text(f"suite: chain\nbudget: {value}\n")
    with pytest.raises(ConfigError, match=message) as told:
        read_definition(path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "budget",
    [
        ("replans=1",), ("replans=1,3",), {"replans": [1, 3], "seconds": [2.5, 60]},
        ("replans=1,tool_calls=none", "replans=3,tool_calls=none"),
    ],
)  # fmt: skip
def test_the_command_makes_the_same_cells(tmp_path, budget, monkeypatch):
    made = Definition(
        "chain", ("search",), ("on_error",), seeds=1, fault_rate=(0.0,), limit=2,
        budget=budget, out=str(tmp_path / "out"),
    ).study()  # fmt: skip
    text = command(made)
    assert text is not None
    assert text.count("--budget") == made.arms[0].budget.count("=")
    again = []
    monkeypatch.setattr(al.Study, "run", lambda self, **options: again.append(self))
    monkeypatch.setattr("agentlab.views.cli.cli.show_results", lambda *arguments: None)
    monkeypatch.setattr("agentlab.views.cli.cli.check_measured", lambda *arguments: None)
    found = CliRunner().invoke(app, shlex.split(text)[1:])
    assert found.exit_code == 0, found.output
    assert keys(again[0]) == keys(made)
    assert again[0].arms == made.arms


def test_no_command_says_budgets_that_are_no_combinations(tmp_path):
    def of(*budgets):
        return command(al.Study(grid(budget=list(budgets)), "chain", seeds=1, out=tmp_path))

    assert "--budget replans=1,2" in of("replans=1", "replans=2")
    assert of("replans=1", "seconds=2") is None
    assert of("replans=1", None) is None
    assert "--budget" not in of(None)


def test_the_command_line(tmp_path):
    suite, out = tmp_path / "four.jsonl", tmp_path / "out"
    write_suite(SUITE, suite)
    words = ["eval", str(suite), "--planner", "search", "--strategy", "on_error", "--faults",
             "transient", "--fault-rate", "0.4", "--seeds", "4", "--processes", "1", "--out",
             str(out)]  # fmt: skip
    budgets = ["--budget", "replans=0,10", "--budget", "executions=4,50", "--report"]
    done = CliRunner().invoke(app, [*words, *budgets], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "4 arms × 4 scenarios" in done.output
    levels = [f"replans={r},executions={e}" for r, e in product((0, 10), (4, 50))]
    assert all(level in done.output for level in levels)
    assert "budget" in done.output
    runs = al.Study.open(out).runs
    assert set(runs["budget"]) == set(levels)
    by_budget = runs.groupby("budget")["success"].mean()
    assert by_budget["replans=0,executions=4"] < by_budget["replans=10,executions=50"]
    assert by_budget["replans=10,executions=4"] < by_budget["replans=10,executions=50"]
    assert runs[runs["budget"].str.endswith("executions=4")]["executions"].max() == 4
    html = (out / "report.html").read_text(encoding="utf-8")
    assert all(level in html for level in levels)
    more = CliRunner().invoke(app, [*words, *budgets, "--seeds", "5"])
    assert more.exit_code == 0, more.output
    assert len(al.Study.open(out).runs) == 4 * 4 * 5


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("replan=3", "error: unknown kind of budget 'replan'; did you mean 'replans'?"),
        ("3", "error: expected a budget such as"),
        ("replans=a", "error: budget replans: expected a number, got 'a'"),
    ],
)
def test_a_mistake_is_one_message(budget, message):
    found = CliRunner().invoke(app, ["eval", "chain", "--budget", budget])
    assert found.exit_code == 2
    assert message in found.output
    assert "Traceback" not in found.output
