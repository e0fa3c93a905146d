"""The records of a contract, its capabilities, and the diff of two revisions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

import agentlab as al
from agentlab.errors import ConfigError
from agentlab.plans.contract.spec import (
    PlanCapability,
    PlanSpec,
    PlanStep,
    PlanStepStatus,
    revision_diff,
)
from agentlab.state.config import AgentConfig

TEXT = {"type": "string"}


@al.tool
def search(query: str) -> str:
    """Look it up."""
    raise AssertionError("a planner executes nothing")


def step(step_id="a", **fields):
    return PlanStep(
        **{
            "step_id": step_id, "objective": "Find it.", "execution_target": "tool:search",
            "input_schema": search.parameters, "output_schema": TEXT,
            "completion_criteria": "It is found.", **fields,
        }
    )  # fmt: skip


def spec(*steps, revision=1):
    return PlanSpec(revision=revision, objective="Research.", steps=steps)


def test_a_tool_tells_of_itself():
    made = PlanCapability.tool(search, TEXT)
    assert made.execution_target == "tool:search"
    assert made.description == "Look it up."
    assert made.input_schema == {
        "type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"],
        "additionalProperties": False,
    }  # fmt: skip
    assert made.output_schema == TEXT
    assert "function" not in repr(made)
    assert not [v for v in vars(made).values() if callable(v)]


def test_an_agent_tells_of_itself():
    made = PlanCapability.agent(AgentConfig(id="writer", name="W"), {"type": "object"}, TEXT)
    assert (made.execution_target, made.description) == ("agent:writer", "W")


def test_a_nameless_tool_is_refused():
    with pytest.raises(ConfigError, match=r"'tool:<name>' or 'agent:<name>'"):
        PlanCapability.tool(al.tool(search.function, name=" "), TEXT)


def test_records_are_frozen_and_closed():
    with pytest.raises(ValidationError):
        step().status = PlanStepStatus.COMPLETED
    with pytest.raises(ConfigError, match="PlanStep: field extra: is no field of it"):
        step(extra=1)
    with pytest.raises(ConfigError, match="PlanStep: field status: expected one of the known"):
        step(status="DONE")


def test_how_it_went_is_no_change():
    old = spec(step("a"), step("b"), step("c", dependencies=("a", "b")), step("d"))
    new = spec(
        step("c", dependencies=("b", "a")),
        step("a", status="COMPLETED", result=3),
        step("b", objective="Find more."),
        step("e"),
        revision=2,
    )
    found = revision_diff(old, new)
    assert found.kept == ("c", "a")
    assert (found.added, found.removed, found.changed) == (("e",), ("d",), ("b",))


def test_true_and_one_are_two_contracts():
    old, new = spec(step(output_schema={"const": 1})), spec(step(output_schema={"const": True}))
    assert revision_diff(old, new).changed == ("a",)


IDS = st.sampled_from("abcdef")


@given(st.lists(IDS, unique=True), st.lists(IDS, unique=True), st.sets(IDS))
@settings(deadline=None, max_examples=60)
def test_the_diff_parts_both_revisions(before, after, changed):
    old = spec(*map(step, before))
    new = spec(*(step(i, objective="Other.") if i in changed else step(i) for i in after))
    found = revision_diff(old, new)
    assert set(found.kept) == (set(before) & set(after)) - changed
    assert set(found.changed) == set(before) & set(after) & changed
    assert set(found.added) == set(after) - set(before)
    assert set(found.removed) == set(before) - set(after)
