"""Studies with language models: keys, processes, recordings, replays and the ``lm_calls`` frame."""

from __future__ import annotations

import json
import re
import shlex

import pandas as pd
import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.suites import Suite
from agentlab.errors import StudyError
from agentlab.lab.named import connected
from agentlab.lm.recording import Recording
from agentlab.study.cells import ARM, Cell
from agentlab.study.definition import Definition, command, read_definition
from agentlab.study.frames import LM_CALLS
from agentlab.study.grid import Arm, arm_from_json

SUITE = Suite("three", [generate("medium", i, length=2 + i) for i in range(3)])
FAULTS = al.FaultPlan(kinds={"error": 1.0})
LM_FAULTS = al.FaultPlan(kinds={"error": 1.0, "lm_malformed": 1.0, "lm_cut_off": 1.0})


def reply(scenario):
    """The scenario's reference plan as a model would write it."""
    steps = [
        {
            "stepId": s.step_id, "actionType": "call_tool", "targetResource": s.tool,
            "parameters": s.arguments, "dependencies": list(s.dependencies),
        }
        for s in scenario.reference.steps
    ]  # fmt: skip
    return json.dumps({"summary": "plan", "steps": steps, "answer": scenario.reference.answer})


@pytest.fixture
def lm(tmp_path):
    """The name of a scripted model that plans by the book and answers in four words."""
    rules = [
        {"when": "## task\n" + re.escape(s.task), "say": reply(s)} for s in SUITE
    ]  # fmt: skip
    rules += [
        {"when": "Judge how it went", "say": json.dumps({
            "analysis": "it broke", "goalAchieved": False, "needReplan": True, "replanReason": "r",
            "suggestions": []})},
        {"when": "## question", "say": "That has been done."},
    ]  # fmt: skip
    path = tmp_path / "script.json"
    path.write_text(json.dumps(rules))
    return f"scripted:{path}"


def asked(lm):
    """How many requests the model of that name has had in this process."""
    return len(connected(lm).engine.requests)


def study(lm, out, **options):
    arms = options.pop("arms", None) or al.grid(
        planner="structured", strategy=["never", "retry(2)"], lm=lm
    )
    options = {"fault_rate": [0.0, 0.3], "seeds": 2, "faults": FAULTS, "controls": False, **options}
    return al.Study(arms, SUITE, out=out, **options)


def same(a, b):
    drop = ["wall_seconds"]
    pd.testing.assert_frame_equal(a.drop(columns=drop), b.drop(columns=drop))


# ---- arms ------------------------------------------------------------------------------------


def test_a_model_and_its_minds_are_part_of_the_arm(lm, tmp_path):
    other = tmp_path / "other.json"
    other.write_text('["x"]')
    arms = [
        Arm(), Arm(lm=lm), Arm(lm=f"scripted:{other}"), Arm(lm=lm, reflector="rules"),
        Arm(lm=lm, responder="template"), Arm(lm=lm, reflector="lm"),
    ]  # fmt: skip
    scenario = next(iter(SUITE))
    keys = {Cell(ARM, arm, scenario, 0.0, 0).key(None) for arm in arms}
    assert len(keys) == len(arms)
    assert [arm_from_json(json.loads(json.dumps(a.to_json()))) for a in arms] == arms


def test_an_arm_without_a_model_is_written_as_ever():
    assert set(Arm().to_json()) == {"planner", "strategy", "workflow", "workers"}


@pytest.mark.parametrize(
    ("axes", "match"),
    [
        ({"planner": "structured"}, "planner 'structured' asks a language model"),
        ({"strategy": "ask_on_error"}, "strategy 'ask_on_error' asks a language model"),
        ({"reflector": "lm"}, "the reflector 'lm' asks a language model"),
        ({"responder": "lm"}, "the responder 'lm' asks a language model"),
        ({"reflector": "ruls"}, "unknown reflector 'ruls'; did you mean 'rules'"),
        ({"responder": "tempalte"}, "unknown responder 'tempalte'; did you mean 'template'"),
        ({"lm": "scripted:no-such-file.json"}, "no-such-file.json"),
        ({"lm": "recorded:no-such.jsonl"}, "no-such.jsonl"),
        ({"lm": "/"}, "expected a model such as"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_run(axes, match):
    with pytest.raises(StudyError, match=match):
        al.grid(**axes)


def test_the_minds_are_axes(lm):
    arms = al.grid(planner=["search", "structured"], lm=lm, reflector=["rules", "lm"])
    assert len({a.label for a in arms}) == 4
    assert all("scripted:" in a.label for a in arms)


# ---- running ---------------------------------------------------------------------------------


def test_a_study_asks_its_model(lm, tmp_path):
    made = study(lm, tmp_path / "out")
    runs = made.run(processes=1)
    assert set(runs["lm"]) == {lm}
    assert (runs["status"] == "done").all(), runs["error"].tolist()
    assert runs[runs["fault_rate"] == 0]["success"].all()
    assert (runs["lm_calls"] >= 2).all()
    assert (runs["lm_tokens"] > 0).all()
    assert (runs["parse_failures"] == 0).all()
    assert runs["lm_calls"].sum() == asked(lm)
    assert runs["lm_calls"].sum() == len(made.lm_calls)


def test_processes_make_no_difference(lm, tmp_path):
    one = study(lm, tmp_path / "one").run(processes=1)
    two = study(lm, tmp_path / "two").run(processes=2)
    same(one, two)


def test_a_study_goes_on_with_another_model_beside_the_first(lm, tmp_path):
    first = study(lm, tmp_path / "out", seeds=1)
    first.run(processes=1)
    path = tmp_path / "mute.json"
    path.write_text('[{"when": "", "say": "no plan"}]')
    mute = al.grid(planner="structured", lm=f"scripted:{path}")
    both = study(lm, tmp_path / "out", seeds=1, arms=[*first.arms, *mute])
    runs = both.run(processes=1)
    assert len(runs) == 3 * 2 * 3
    failed = runs[runs["lm"] == f"scripted:{path}"]
    assert not failed["success"].any()
    assert (failed["status"] == "done").all()
    assert (failed["parse_failures"] == 2).all()
    assert failed["error"].str.contains("no JSON document").all()
    assert set(failed["stopped_by"]) == {"no_plan"}


def test_faults_of_the_model_are_delivered_and_paired(lm, tmp_path):
    made = study(lm, tmp_path, faults=LM_FAULTS, fault_rate=[0.0, 0.5, 1.0], seeds=3)
    runs = made.run(processes=1)
    assert (runs["status"] == "done").all()
    by_rate = runs.groupby("fault_rate")["success"].mean()
    assert by_rate[0.0] == 1 > by_rate[0.5] > by_rate[1.0]
    calls = made.lm_calls
    struck = calls[calls["faults"].map(bool)]
    told = made.frame("faults")
    assert len(told) == runs["faults_delivered"].sum()
    assert (told["tool"] == "lm").sum() == len(struck)
    assert set(struck["fault_rate"]) == {0.5, 1.0}
    first = calls[(calls["visit"] == 1) & (calls["fault_rate"] == 0.5)].drop_duplicates("cell")
    for _, group in first.groupby(["scenario", "seed"]):  # two strategies, one prompt
        assert len(group) == 2
        assert group["faults"].map(tuple).nunique() == 1


# ---- recordings ------------------------------------------------------------------------------


def test_the_first_run_writes_and_the_second_asks_nothing(lm, tmp_path):
    tape = tmp_path / "calls.jsonl"
    first = study(lm, tmp_path / "one", record=tape).run(processes=1)
    calls = asked(lm)
    assert 0 < calls < first["lm_calls"].sum()  # two runs that ask the same get one reply
    lines = [json.loads(line) for line in tape.read_text().splitlines()]
    assert len(lines) == calls
    assert lines == sorted(lines, key=lambda x: (x["key"], x["occurrence"]))
    text = tape.read_bytes()
    again = study(lm, tmp_path / "two", record=tape)
    same(first, again.run(processes=1))
    assert asked(lm) == calls
    assert tape.read_bytes() == text
    assert again.lm_calls["served"].all()


def test_the_order_of_cells_makes_no_difference_to_a_recording(lm, tmp_path):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    study(lm, tmp_path / "one", record=a).run(processes=1)
    study(lm, tmp_path / "two", record=b).run(processes=2)
    assert Recording(a).lines() == Recording(b).lines()


def test_a_recorded_study_runs_from_the_recording_alone(lm, tmp_path):
    tape = tmp_path / "calls.jsonl"
    made = study(lm, tmp_path / "one", record=tape)
    made.run(processes=1)
    calls = asked(lm)
    arms = al.grid(planner="structured", strategy=["never", "retry(2)"], lm=f"recorded:{tape}")
    runs = study(lm, tmp_path / "two", arms=arms).run(processes=1)
    columns = ["success", "answer", "replans", "lm_calls", "lm_tokens", "sim_seconds"]
    pd.testing.assert_frame_equal(runs[columns], made.runs[columns])
    assert asked(lm) == calls


def test_a_miss_is_an_honest_failure_that_says_what_differs(lm, tmp_path):
    tape = tmp_path / "calls.jsonl"
    half = al.Study(
        al.grid(planner="structured", lm=lm), list(SUITE)[:1], seeds=1, record=tape,
        out=tmp_path / "one", controls=False,
    )  # fmt: skip
    half.run(processes=1)
    arms = al.grid(planner="structured", lm=f"recorded:{tape}")
    runs = study(lm, tmp_path / "two", arms=arms, seeds=1, fault_rate=0.0).run(processes=1)
    assert runs["success"].sum() == 1
    missed = runs[~runs["success"]]
    assert (missed["status"] == "done").all()
    assert missed["error"].str.contains("calls.jsonl").all()


# ---- replays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [FAULTS, LM_FAULTS], ids=["tools", "model"])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_stored_cell_is_replayed_and_nobody_is_asked(lm, tmp_path, faults, recorded):
    tape = tmp_path / "calls.jsonl" if recorded else None
    arms = al.grid(planner="structured", strategy="reflect_on_total_failure", lm=lm)
    made = study(
        lm, tmp_path / "out", arms=arms, faults=faults, record=tape, seeds=3, fault_rate=0.6
    )  # fmt: skip
    runs = made.run(processes=1)
    calls = asked(lm)
    opened = al.Study.open(tmp_path / "out")
    assert opened.arms == made.arms
    for row in runs.itertuples():
        report = opened.replay(row.cell)
        assert report.identical, report.divergence
        assert report.served == row.lm_calls
    assert asked(lm) == calls


def test_a_rerun_of_a_cell_is_served_from_the_recording(lm, tmp_path):
    made = study(lm, tmp_path / "out", record=tmp_path / "calls.jsonl")
    runs = made.run(processes=1)
    calls = asked(lm)
    run = made.rerun(runs["cell"].iloc[-1])
    run.finish()
    assert run.verdict.success == runs["success"].iloc[-1]
    assert asked(lm) == calls


# ---- the frame -------------------------------------------------------------------------------


def test_the_frame_has_a_row_a_call(lm, tmp_path):
    made = study(lm, tmp_path, seeds=1)
    made.run(processes=1)
    calls = made.frame("lm_calls")
    assert list(calls.columns) == list(LM_CALLS)
    assert set(calls["model"]) == {"scripted/model"}
    for row in calls.itertuples():
        assert row.input_tokens == len(row.prompt.split())
        assert row.output_tokens == len(row.reply.split())
        assert row.seconds > 0
        assert row.sim_end > row.sim_start
        assert row.request["model"] == "scripted/model"
        scenario = next(s for s in SUITE if s.id == row.scenario)
        assert scenario.task in row.prompt
    assert not calls["served"].any()
    assert calls["error"].isna().all()
    assert calls["cost"].isna().all()
    tokens = calls.groupby("cell")[["input_tokens", "output_tokens"]].sum().sum(axis=1)
    assert tokens.to_dict() == made.runs.set_index("cell")["lm_tokens"].to_dict()


def test_the_frame_of_a_study_that_asks_nobody_is_empty(tmp_path):
    made = al.Study(al.grid(), SUITE, seeds=1, out=tmp_path, controls=False)
    made.run(processes=1)
    assert list(made.lm_calls.columns) == list(LM_CALLS)
    assert len(made.lm_calls) == 0
    assert made.runs["lm"].isna().all()
    assert (made.runs["lm_calls"] == 0).all()


def test_a_call_that_failed_is_a_row_without_a_reply(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('[{"when": "", "say": "half of", "finish": "length"}]')
    arms = al.grid(planner=["structured", "search"], lm=f"scripted:{path}")
    made = study("", tmp_path / "out", arms=arms, seeds=1, fault_rate=0.0)
    runs = made.run(processes=1)
    calls = made.lm_calls
    assert calls["error"].str.startswith("LMCutOff: ").all()
    assert set(calls["finish"]) == {"length"}
    assert set(calls["reply"]) == {"half of"}  # what had been said is kept
    by_planner = runs.groupby("planner")["success"].sum()
    assert by_planner.to_dict() == {"search": 3, "structured": 0}


# ---- files and commands ----------------------------------------------------------------------


def test_a_definition_names_models(lm, tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        f"suite: chain\nplanner: structured\nlm: '{lm}'\nreflector: [rules, lm]\n"
        "responder: template\nstrategy: never\nseeds: 1\nfault_rate: 0\n"
    )
    made = read_definition(path).replace(limit=1).study(record=str(tmp_path / "calls.jsonl"))
    assert [(a.lm, a.reflector, a.responder) for a in made.arms] == [
        (lm, "rules", "template"), (lm, "lm", "template"),
    ]  # fmt: skip
    assert made.record == tmp_path / "calls.jsonl"
    words = shlex.split(command(made))
    assert words[words.index("--lm") + 1] == lm
    assert [words[i + 1] for i, w in enumerate(words) if w == "--reflector"] == ["rules", "lm"]
    assert words[words.index("--record") + 1] == str(tmp_path / "calls.jsonl")


def test_a_definition_without_models_is_as_ever():
    made = Definition("chain", seeds=1, fault_rate=(0.0,), limit=1).study()
    assert "--lm" not in command(made)
    assert all(a.lm is None for a in made.arms)


def test_the_command_line(lm, tmp_path):
    from typer.testing import CliRunner

    from agentlab.views.cli.cli import app

    suite = tmp_path / "three.jsonl"
    suite.write_text("".join(json.dumps(s.to_json()) + "\n" for s in SUITE))
    out, tape = tmp_path / "out", tmp_path / "calls.jsonl"
    runner = CliRunner()
    words = [
        "eval", str(suite), "--planner", "structured", "--lm", lm, "--strategy", "never",
        "--reflector", "rules", "--responder", "template", "--record", str(tape), "--seeds", "1",
        "--fault-rate", "0", "--out", str(out), "--processes", "1", "--no-controls",
    ]  # fmt: skip
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    assert len(Recording(tape)) == 3
    runs = al.Study.open(out).runs
    assert runs["success"].all()
    calls = asked(lm)
    replayed = runner.invoke(app, ["replay", str(out), runs["cell"].iloc[0]])
    assert replayed.exit_code == 0, replayed.output
    assert "identical" in replayed.output
    assert "1 calls served" in replayed.output
    assert asked(lm) == calls
    refused = runner.invoke(app, ["eval", str(suite), "--planner", "structured"])
    assert refused.exit_code == 2
    assert "asks a language model" in refused.output
