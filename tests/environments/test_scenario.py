"""Scenarios and suites: reading, writing, and what a malformed line is told."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, settings, strategies as st

from agentlab.environments.chain import suite as chain_suite
from agentlab.environments.fault_plan import (
    LM_KINDS,
    FaultKind,
    FaultPlan,
    Outage,
    Persistence,
    TargetedFault,
    Visibility,
    WorldEvent,
)
from agentlab.environments.scenario import AnswerGoal, Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite, read_suite, write_suite
from agentlab.errors import ConfigError, ScenarioError, UnknownNameError

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
documents = st.dictionaries(text, st.integers() | text | st.lists(text, max_size=2), max_size=3)
seconds = st.floats(0, 1e6).map(lambda s: s or 0.0)


def weighed(kinds):
    return st.dictionaries(st.sampled_from(list(kinds)), st.floats(0.1, 9), min_size=1, max_size=3)


faults = st.builds(
    FaultPlan,
    rate=st.floats(0, 1),
    kinds=weighed(FaultKind),
    persistence=weighed(Persistence),
    visibility=weighed(Visibility),
    tools=st.lists(text, max_size=2).map(tuple),
    targets=st.lists(
        st.builds(
            TargetedFault,
            tool=text,
            arguments=st.none() | documents,
            occurrence=st.none() | st.integers(0, 3),
            step=st.none() | text,
            after=st.none() | seconds,
            kind=st.sampled_from(FaultKind),
        ),
        max_size=1,
    ).map(tuple),
    outages=st.lists(st.builds(Outage, name=text, tool=text, start=seconds), max_size=1).map(tuple),
    events=st.lists(
        st.builds(WorldEvent, name=text, patch=documents, between=st.tuples(seconds, seconds)),
        max_size=1,
    ).map(tuple),
)
scenarios = st.builds(
    Scenario,
    id=text.filter(bool),
    environment=text,
    task=text,
    world=documents,
    hidden=documents,
    goal=st.builds(
        Goal,
        conditions=documents,
        answer=st.none() | st.builds(AnswerGoal, world=text, tools=st.just(("t",)), result=text),
        deadline=st.none() | st.floats(0.1, 1e9),
    ),
    reference=st.none()
    | st.builds(
        ReferencePlan,
        steps=st.lists(
            st.builds(ReferenceStep, stepId=text, tool=text, arguments=documents), max_size=2
        ).map(tuple),
        answer=st.none() | text,
    ),
    difficulty=text,
    cluster=st.none() | text,
    faults=faults,
)
TINY = {"id": "a", "environment": "chain", "task": "t", "world": {}, "goal": {}}
UNUSUAL = Scenario(
    **TINY | {"task": "one\u2028two\u2029three\x85four\x0cfive\x1csix\r\nseven\ttab"}
)


@given(st.lists(scenarios, min_size=1, max_size=3, unique_by=lambda s: s.id))
@example([UNUSUAL])
@settings(deadline=None, max_examples=30)
def test_what_is_written_is_read(tmp_path_factory, given_scenarios):
    path = tmp_path_factory.getbasetemp() / "round_trip.jsonl"
    write_suite(Suite("any", given_scenarios), path)
    again = read_suite(path)
    assert list(again) == given_scenarios
    assert again.name == "round_trip"
    first = path.read_bytes()
    assert first.count(b"\n") == len(given_scenarios)
    write_suite(again, path)
    assert path.read_bytes() == first


def test_defaults_are_left_out_and_text_stays_readable(tmp_path):
    path = tmp_path / "s.jsonl"
    write_suite(Suite("s", [Scenario(**TINY | {"task": "预订"})]), path)
    line = path.read_text(encoding="utf-8")
    assert json.loads(line) == TINY | {"task": "预订"}
    assert "预订" in line


def test_line_ends_of_other_systems_and_empty_lines(tmp_path):
    path = tmp_path / "s.jsonl"
    lines = [json.dumps(TINY | {"id": i}) for i in "abc"]
    path.write_bytes(("\r\n".join(lines[:2]) + "\r\n\r\n  \n" + lines[2]).encode())
    assert [s.id for s in read_suite(path)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("{not json}", ["not JSON", "column 2"]),
        ('{"id": "x"', ["not JSON"]),
        ("5", ["(document)"]),
        ("[]", ["(document)"]),
        ({"id": None}, ["field id", "expected text"]),
        ({"id": ""}, ["field id", "at least 1 character"]),
        ({"worlds": {}}, ["field worlds", "is no field of it", "did you mean 'world'"]),
        ({"world": [1]}, ["field world", "dict", "got [1]"]),
        ({"goal": {"deadline": 0}}, ["field goal.deadline", "greater than 0"]),
        ({"faults": {"rate": 1.5}}, ["field faults.rate", "less than or equal to 1", "got 1.5"]),
        ({"faults": {"kinds": {"eror": 1}}}, ["field faults.kinds", "eror"]),
        ({"faults": {"kinds": {"error": 0}}}, ["field faults.kinds", "weights >= 0"]),
        ({"faults": {"kinds": {}}}, ["field faults.kinds", "weights >= 0"]),
        ({"faults": {"targets": [{}]}}, ["field faults.targets.0.tool", "is missing"]),
        ({"reference": {"steps": [{"tool": "t"}]}}, ["field reference.steps.0.stepId"]),
        ('{"id": "x", "world": {"price": NaN}}', ["not JSON", "NaN"]),
        ('{"id": "x", "world": {"price": -Infinity}}', ["not JSON", "-Infinity"]),
    ],
)
def test_a_malformed_line_names_file_line_and_field(tmp_path, line, parts):
    path = tmp_path / "mine.jsonl"
    bad = line if isinstance(line, str) else json.dumps(TINY | line)
    path.write_text(f"{json.dumps(TINY)}\n\n{bad}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as e:
        read_suite(path)
    message = str(e.value)
    assert message.startswith(f"{path}, line 3: ")
    assert [p for p in parts if p not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("field", ["id", "environment", "task", "world", "goal"])
def test_what_a_scenario_must_have(tmp_path, field):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({k: v for k, v in TINY.items() if k != field}))
    with pytest.raises(ScenarioError, match=rf"line 1: field {field}: is missing$"):
        read_suite(path)


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9"}')
    (tmp_path / "empty.jsonl").write_text("\n\n")
    for name, problem in {
        "nowhere.jsonl": "cannot be read",
        "latin.jsonl": "cannot be read",
        "": "cannot be read",  # a folder
        "empty.jsonl": "holds no scenario",
    }.items():
        with pytest.raises(ScenarioError, match=problem):
            read_suite(tmp_path / name)


# ---- suites ----------------------------------------------------------------------------------


def test_ids_are_unique():
    one = Scenario(**TINY)
    with pytest.raises(ScenarioError, match=r"suite 's' .* more than once: \['a'\]"):
        Suite("s", [one, one.replace(id="b"), one.replace(task="another")])
    with pytest.raises(ScenarioError, match="no scenario"):
        Suite("s", [])


def test_a_suite_is_a_sequence():
    suite = chain_suite()
    assert len(suite) == len(list(suite)) == 20
    assert suite[0] == suite["chain-easy-000"] == next(iter(suite))
    assert suite[-1] is suite.scenarios[-1]
    assert suite[0] in suite
    part = suite[5:8]
    assert (type(part), part.name, len(part)) == (Suite, "chain", 3)
    hard = suite.where(difficulty="hard", environment="chain")
    assert {s.difficulty for s in hard} == {"hard"}
    assert len(hard) == 6
    assert repr(hard) == "Suite('chain', 6 scenarios)"
    with pytest.raises(UnknownNameError, match=r"did you mean 'chain-hard-000'"):
        suite["chain-hard-000x"]
    with pytest.raises(IndexError):
        suite[20]
    with pytest.raises(ScenarioError, match="no scenario"):
        suite.where(difficulty="none such")


@pytest.mark.parametrize("weights", [{"error": -1, "timeout": 2}, {"error": math.nan}, {}])
@pytest.mark.parametrize("field", ["kinds", "persistence", "visibility"])
def test_weights(field, weights):
    first = {"kinds": "error", "persistence": "transient", "visibility": "silent"}[field]
    other = {"kinds": "timeout", "persistence": "until", "visibility": "announced"}[field]
    named = {{"error": first, "timeout": other}[k]: v for k, v in weights.items()}
    with pytest.raises(ConfigError, match="weights >= 0"):
        FaultPlan(**{field: named})
    kept = FaultPlan(**{field: {first: 0, other: 2}})
    assert list(getattr(kept, field).values()) == [0, 2]


def test_lm_kinds_are_the_ones_that_say_so():
    assert {k for k in FaultKind if k.startswith("lm_")} == LM_KINDS
