"""The recordings that ship: each replays its study offline, and a prompt that drifted is a failure.

When prompts or schemas are changed on purpose, make the recording anew: the study's file in
``datasets/recordings`` says how.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import agentlab as al
from agentlab.environments.suites import find_recording, folder, recorded_study
from agentlab.lm.recorded import Recorded
from agentlab.lm.recording import Recording
from agentlab.study.definition import read_definition, recorded_definition
from agentlab.views.cli.cli import app
from agentlab.views.page.report import cautions

NAMES = sorted(p.name.split(".")[0] for p in (folder() / "recordings").glob("*.jsonl*"))
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """Every recording's study, run with every connection refused: study, and the lines it read."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*arguments):
            raise AssertionError("a socket was opened")

        patch.setattr(socket.socket, "connect", refuse)
        found, served = Recording.find, set()

        def find(self, key, occurrence, *of):
            line = found(self, key, occurrence, *of)
            if line is not None:
                served.add((key, occurrence))
            return line

        patch.setattr(Recording, "find", find)
        for name in NAMES:
            served.clear()
            study = (
                read_definition(recorded_study(name))
                .replace(out=str(tmp_path_factory.mktemp(name) / "out"))
                .study(controls=False)
            )
            study.run(processes=1)
            made[name] = study, set(served)
    return made


def test_there_is_one():
    assert "quickstart" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_small_and_says_what_it_was_made_with(name):
    path = find_recording(name)
    assert path.stat().st_size <= 5_000_000
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(root|home|tmp|work|Users)/|\.gguf", text)
    for line in map(json.loads, text.splitlines()):
        assert line["model"] in recorded_study(name).read_text(encoding="utf-8")
        assert {"max_tokens", "temperature", "supports"} <= set(line["settings"])
        assert line["request"]["model"] == line["model"]


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_is_as_it_was_recorded(replayed, name):
    study, _ = replayed[name]
    runs = study.runs
    assert (runs["status"] == "done").all(), runs["error"].dropna().to_list()
    missed = runs[runs["error"].fillna("").str.contains("recording", case=False)]
    assert missed.empty, missed["error"].iloc[0]
    assert runs["lm_calls"].min() >= 1


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_recorded_that_is_not_asked(replayed, name):
    _, served = replayed[name]
    lines = Recording(find_recording(name)).lines()
    assert {(line["key"], line["occurrence"]) for line in lines} == served


def test_a_prompt_that_drifted_is_told_with_what_differs(tmp_path, monkeypatch):
    from agentlab.minds.planners import structured

    changed = structured.INSTRUCTIONS.replace("as few steps", "as many steps")
    assert changed != structured.INSTRUCTIONS
    monkeypatch.setattr(structured, "INSTRUCTIONS", changed)
    arms = al.grid(planner="structured", lm="recorded")
    study = al.Study(arms, al.load_suite("quickstart")[:1], fault_rate=0.0, seeds=1,
                     out=tmp_path / "out", controls=False)  # fmt: skip
    [row] = study.run(processes=1).to_dict("records")
    assert not row["success"]
    assert "quickstart.jsonl" in row["error"]
    assert "as many steps" in row["error"]


def test_what_a_recording_does_not_hold_is_counted_and_cautioned(tmp_path, replayed):
    for known, _ in replayed.values():
        assert not known.runs["lm_misses"].any()
        assert not any("recording does not hold" in text for text in cautions(known))
    suite = al.load_suite("quickstart")[:3]
    arms = al.grid(planner=["search", "contract"], lm="recorded", responder="template")
    other = al.Study(arms, suite, fault_rate=0.0, seeds=1, out=tmp_path / "out", controls=False)
    runs = other.run(processes=1)
    assert dict(runs.groupby("planner")["lm_misses"].sum() > 0) == {
        "contract": True, "search": False,
    }  # fmt: skip
    assert any("3 runs of 6 asked for a reply that the recording" in c for c in cautions(other))


def test_a_recorded_model_asks_nobody():
    model = al.Lab(al.load_suite("quickstart")[0], planner="structured", lm="recorded").model
    engine = model.bind()
    assert isinstance(engine.inner, Recorded)  # outside of it, tools would go by text
    assert engine.inner.inner is None


def test_the_command_line_takes_the_recordings_own_study(tmp_path, replayed):
    found = recorded_definition("quickstart", ["recorded"])
    assert found.strategy == ("retry_then_replan(1)",)
    assert recorded_definition("quickstart", ["recorded:contract"]).planner == ("contract",)
    assert recorded_definition("travel", ["recorded"]) is None
    assert recorded_definition("quickstart", ["openai/gpt-4o-mini"]) is None
    words = [
        "eval",
        "quickstart",
        "--planner",
        "structured",
        "--lm",
        "recorded",
        "--processes",
        "1",
        "--out",
    ]
    result = CliRunner().invoke(app, [*words, str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    runs = al.Study.open(tmp_path / "out").runs
    expected = replayed["quickstart"][0].runs
    columns = ["scenario", "fault_rate", "success", "replans", "lm_calls", "lm_tokens"]
    by = ["scenario", "fault_rate"]
    pd.testing.assert_frame_equal(
        runs[columns].sort_values(by, ignore_index=True),
        expected[columns].sort_values(by, ignore_index=True),
    )


def test_the_readme_tells_the_numbers_that_the_recording_gives(replayed):
    told = re.findall(
        r"^\| `recorded:(\w+)` \| `(\w+)` \| ([\d.]+) \| (\d+) of (\d+) \|"
        r" (\d+) \| (\d+) \| (\d+) \|$",
        README.read_text(encoding="utf-8"), re.M,
    )  # fmt: skip
    rows = []
    for name, (study, _) in replayed.items():
        for (planner, rate), mine in study.runs.groupby(["planner", "fault_rate"]):
            sums = mine[["replans", "lm_calls", "parse_failures"]].sum()
            counts = mine["success"].sum(), len(mine), *sums
            rows.append((name, planner, f"{rate:g}", *map(str, counts)))
    assert sorted(told) == sorted(rows)


def test_the_model_judges_and_answers_too(replayed):
    calls = replayed["reflector"][0].frame("lm_calls")
    prompts = calls["prompt"] if "prompt" in calls else calls.astype(str).agg(" ".join, axis=1)
    assert prompts.str.contains("A plan was carried out. Judge how it went").any()
    assert prompts.str.contains("Write the final response").any()
