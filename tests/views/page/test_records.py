"""Records show themselves: one bounded line, and a short piece of HTML, also when damaged."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.environments.base import Verdict
from agentlab.lm.settings import ModelSettings
from agentlab.state.config import AgentConfig
from agentlab.trace.compare import ReplayReport

LONGEST = 250


def records(t: str, hostile_run):
    run = hostile_run(t)
    plan = run.state.task_plan
    scenario = al.Scenario(
        id=t or "x", environment="chain", task=t, world={t: t}, goal={"conditions": {t: t}},
        difficulty=t, faults=al.FaultPlan(),
    )  # fmt: skip
    return [
        run.state, plan, plan.steps[0], scenario, al.Suite(t, [scenario]),
        Verdict(False, (t,) * 40), ReplayReport(False, 3, 1, 0, t), run.lab,
    ]  # fmt: skip


def test_foreign_text_is_one_line_and_never_markup(hostile, check, hostile_run):
    for record in records(hostile, hostile_run):
        line = repr(record)
        assert len(line) <= LONGEST
        assert line.isprintable() or hostile in line
        assert "\n" not in line
        check(record._repr_html_())


@pytest.mark.parametrize("kind", [al.State, al.TaskPlan, al.TaskStep, al.Scenario])
def test_what_is_half_built_is_shown_all_the_same(kind, check):
    empty = kind.__new__(kind)
    assert kind.__name__ in repr(empty)
    check(empty._repr_html_())
    odd = kind.model_construct(steps=3, task_plan=3, user_input=3, goal=None, world=None)
    assert kind.__name__ in repr(odd)
    check(odd._repr_html_())


def test_the_most_telling_facts(chain):
    lab = al.Lab(chain(), seed=3)
    run = al.autonomous.start(lab)
    assert repr(run.state).startswith("State(visit 0, ")
    run.finish()
    plan = run.state.task_plan
    assert f"{len(plan)} steps, {len(plan)} settled" in repr(plan)
    assert repr(run.verdict) == "Verdict(goal reached)"
    assert "visits identical" in repr(run.replay())
    assert repr(al.Arm(strategy="retry(2)")) == "Arm(search × retry(2))"


def test_no_secret_is_shown(chain):
    model = ModelSettings(model_id="m", api_key="very-secret")
    state = al.State(agent_config=AgentConfig(id="a", name="a", model=model))
    lab = al.Lab(chain(), agent=AgentConfig(id="a", name="a"))
    for record in (state, lab, state.agent_config):
        assert "very-secret" not in repr(record) + getattr(record, "_repr_html_", str)()


def test_a_study_tells_what_it_runs_and_how_far_it_is(tmp_path, check):
    suite = al.load_suite("chain")[:2]
    study = al.Study(al.grid(strategy=["never", "retry(1)"]), suite, seeds=2, out=tmp_path)
    assert "0 of 8 are finished" in check(study._repr_html_()).text
    assert not (tmp_path / "study.db").exists()
    study.run(processes=1, progress=False)
    page = check(study._repr_html_()).text
    assert "8 of 8 are finished" in page
    assert "search × retry(1)" in page


def test_what_is_long_is_cut(check):
    many = al.Suite("many", [al.load_suite("chain")[0].replace(id=f"s{i}") for i in range(500)])
    page = many._repr_html_()
    assert "12 of 500 are shown" in page
    assert len(page) < 30_000
