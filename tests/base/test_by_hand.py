"""Records made by hand: what is wrong is one line of ours, whatever the record and the field."""

from __future__ import annotations

import contextlib
import timeit
from collections.abc import Iterator
from typing import Annotated, get_args, get_origin

import pytest
from hypothesis import given, settings, strategies as st
from pydantic.fields import FieldInfo

import agentlab as al
from agentlab.base.values import Value
from agentlab.errors import ConfigError
from agentlab.lm.settings import ModelSettings
from agentlab.state.config import AgentConfig, AgentSettings, KnowledgeBase, ToolSettings
from agentlab.state.messages import Message
from agentlab.state.records import TaskResult
from agentlab.tools.server import McpServer

SPACES = (al, al.actions, al.environments, al.lm, al.planners, al.plans, al.strategies)
BESIDE = (AgentSettings, KnowledgeBase, McpServer, Message, ModelSettings, TaskResult, ToolSettings)
"""What is handed to public names though it is no public name itself."""
ANYTHING = {
    "PlanStep.result", "State.answer", "TaskResult.result", "TaskStep.result", "UnderWay.refused",
}  # fmt: skip


def public() -> list[type]:
    """Every public class of records, found by what it is and not by a list."""
    names = {getattr(space, name) for space in SPACES for name in space.__all__
             if isinstance(getattr(space, name), type)}  # fmt: skip
    found = {c for c in names if issubclass(c, Value) or hasattr(c, "__pydantic_fields__")}
    return sorted({*found, *BESIDE}, key=lambda c: c.__name__)


def fields(cls: type) -> dict[str, FieldInfo]:
    return cls.__pydantic_fields__


RECORDS = public()
FIELDS = [(cls, name) for cls in RECORDS for name in fields(cls)]


def named(x: object) -> str | None:
    return getattr(x, "__name__", None)


def refused(cls: type, **given: object) -> str:
    with pytest.raises(ConfigError) as e:
        cls(**given)
    text = str(e.value)
    assert "\n" not in text
    assert "pydantic" not in text
    assert "Input should" not in text
    assert text.startswith(f"{cls.__name__}: field ")
    assert e.value.__cause__ is None
    assert e.value.__suppress_context__
    return text


def test_the_records_are_found():
    some = {al.FaultPlan, al.TargetedFault, al.Budget, al.Strategy, al.TaskPlan, AgentConfig}
    assert {*some, al.State, al.plans.PlanSpec, al.environments.Tool, al.lm.Reply} <= set(RECORDS)
    assert len(RECORDS) >= 30


@pytest.mark.parametrize("cls", RECORDS, ids=named)
def test_an_unknown_field_comes_with_the_nearest_and_first(cls):
    name = max(fields(cls), key=len)
    text = refused(cls, **{f"{name}x": "s3cr3t"})
    assert text.startswith(f"{cls.__name__}: field {name}x: is no field of it, got ")
    assert f"; did you mean '{name}'? known: " in text
    assert "s3cr3t" not in text or cls is not ModelSettings


@pytest.mark.parametrize(("cls", "name"), FIELDS, ids=named)
def test_a_wrong_type_names_the_field_and_what_arrived(cls, name):
    class Odd:
        def __repr__(self) -> str:
            return "odd\nthing"

    if f"{cls.__name__}.{name}" in ANYTHING:
        return
    text = refused(cls, **{name: Odd()})
    hidden = cls is ModelSettings
    assert f"field {name}: expected " in text
    mine = next(part for part in text.split("; field ") if f"{name}: expected " in part)
    assert f", got {'Odd' if hidden else 'an Odd'}" in mine


def bounds(kind: object, metadata: list[object]) -> Iterator[tuple[str, float]]:
    """Yield a value beyond each bound of a field."""
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        metadata = [*metadata, *more]
    for inner in get_args(kind):
        yield from bounds(inner, [])
    for told in metadata:
        for each in told.metadata if isinstance(told, FieldInfo) else [told]:
            for name, beyond in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)):
                if (bound := getattr(each, name, None)) is not None:
                    yield name, bound + beyond


RANGES = [
    (cls, name, bound, value)
    for cls, name in FIELDS
    for bound, value in bounds(fields(cls)[name].annotation, fields(cls)[name].metadata)
]


@pytest.mark.parametrize(("cls", "name", "bound", "value"), RANGES, ids=named)
def test_a_number_out_of_range_says_the_range(cls, name, bound, value):
    text = refused(cls, **{name: value})
    word = {"ge": "greater than or equal to", "gt": "greater than", "le": "less than or equal to"}
    shown = "got int" if cls is ModelSettings else f"got {value!r}"
    assert f"field {name}: expected a number {word[bound]} " in text
    assert shown in text or f"got {float(value)!r}" in text or "got float" in text


def test_the_ranges_are_found():
    assert len(RANGES) >= 25


@pytest.mark.parametrize("cls", RECORDS, ids=named)
@settings(deadline=None, max_examples=20)
@given(value=st.none() | st.booleans() | st.floats() | st.text(max_size=9) | st.binary(max_size=9))
def test_whatever_is_given_a_record_comes_or_an_error_of_ours(cls, value):
    for name in fields(cls):
        with contextlib.suppress(al.AgentLabError):
            cls(**{name: value})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: al.FaultPlan(rate=1.5), "FaultPlan: field rate: expected a number less than or "
         "equal to 1, got 1.5"),
        (lambda: al.FaultPlan(rate=10**5000), "FaultPlan: field rate: expected a number, got int"),
        (lambda: al.TargetedFault(tool=3), "TargetedFault: field tool: expected text, got 3"),
        (lambda: al.TargetedFault(tool="t", kind="eror"), "field kind: expected one of the known "
         "names, got 'eror'; did you mean 'error'? known: "),
        (lambda: al.FaultPlan(kinds={"eror": 1}), "field kinds.eror: expected one of the known"),
        (lambda: al.FaultPlan(targets=[{"tol": "t"}]), "FaultPlan: field targets.0.tol: is no "
         "field of it, got 't'; did you mean 'tool'? known: after, "),
        (lambda: al.FaultPlan({"rate": 1}), "FaultPlan: expected fields by name (rate, "),
        (lambda: al.TaskStep(expectation=3), "field expectation: expected a dict or text, got 3"),
        (lambda: al.plans.PlanStep(step_id="a"), "PlanStep: field objective: is missing; field "
         "execution_target: is missing"),
        (lambda: al.Budget(-1), "Budget: field replans: expected a number greater"),
        (lambda: al.Budget(1, 2, 3, 4, 5, 6, 7), "field 6: is one value too many, got 7"),
        (lambda: al.FaultPlan().replace(rat=1), "has no field 'rat'; did you mean 'rate'"),
        (lambda: al.State(events=3, seed="x", goals=1, now="y", plans=[], visit=2.5, calls=1),
         "; and 2 more"),
        (lambda: AgentConfig(id="a", model={"model_id": "m", "api_kye": "s3cr3t"}),
         "field model.api_kye: is no field of it, got str; did you mean 'api_key'?"),
    ],
)  # fmt: skip
def test_what_is_said(make, text):
    with pytest.raises(ConfigError) as e:
        make()
    assert text in str(e.value)


def test_what_our_own_code_makes_is_not_checked():
    """``made`` and ``put`` trust, and so they cost a fraction of what is checked."""
    assert TaskResult.made(step_id=3).step_id == 3
    assert TaskResult(step_id="a", status="completed").put(attempt="x").attempt == "x"
    fields = {"step_id": "a", "status": "completed"}
    checked, trusted = (
        min(timeit.repeat(lambda: make(**fields), number=2000, repeat=5))  # noqa: B023
        for make in (TaskResult, TaskResult.made)
    )
    assert trusted < checked * 1.5
