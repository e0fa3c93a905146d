"""Signatures: what a function takes, as a schema, as a check, and as the objects it gets."""

from __future__ import annotations

import collections.abc
import copy
import datetime as dt
import enum
import json
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any, Iterable, Literal, NamedTuple, NotRequired, Optional, TypedDict  # noqa: UP035

import cloudpickle
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    FilePath,
    SecretStr,
    TypeAdapter,
)

import agentlab as al
from agentlab.base.schemas import schema_problem
from agentlab.errors import ConfigError
from agentlab.minds.planners.fixed import Fixed
from agentlab.tools.invocation import carried_out
from agentlab.tools.tool import tool


class Address(BaseModel):
    street: str
    number: int = 1


@dataclass
class Trip:
    when: dt.date
    tags: list[str] = field(default_factory=list)


class Row(TypedDict):
    a: int
    b: NotRequired[str]


class Chain(TypedDict):
    value: int
    next: Optional[Chain]  # noqa: UP045


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Point(NamedTuple):
    x: int
    y: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


TYPES = [
    (Address, {"street": "s"}, Address(street="s"), {"street": 1}),
    (Trip, {"when": "2024-02-03"}, Trip(dt.date(2024, 2, 3)), {"when": "2024-02-30"}),
    (Row, {"a": 1}, {"a": 1}, {"b": "x"}),
    (Chain, {"value": 1, "next": {"value": 2, "next": None}},
     {"value": 1, "next": {"value": 2, "next": None}}, {"value": 1, "next": {"value": "x"}}),
    (Point, [1, 2], Point(1, 2), [1, "x"]),
    (Optional[int], None, None, "5"),  # noqa: UP045
    (int | None, 5, 5, "5"),
    (int | str, "5", "5", None),
    (Literal["a", 1], 1, 1, "b"),
    (Colour, "red", Colour.RED, "blue"),
    (dt.date, "2024-02-03", dt.date(2024, 2, 3), "2024-02-30"),
    (dt.datetime, "2024-02-03T04:05:06", dt.datetime(2024, 2, 3, 4, 5, 6), "yesterday"),
    (dt.time, "04:05", dt.time(4, 5), "25:00"),
    (dt.timedelta, "PT1H", dt.timedelta(hours=1), "long"),
    (Decimal, "1.50", Decimal("1.50"), "abc"),
    (uuid.UUID, str(uuid.UUID(int=7)), uuid.UUID(int=7), "7"),
    (Path, "a/b", Path("a/b"), 5),
    (list[int], [1], [1], ["1"]),
    (dict[str, int], {"a": 1}, {"a": 1}, {"a": "1"}),
    (dict[int, str], {"1": "a"}, {1: "a"}, {"x": "a"}),
    (tuple[int, str], [1, "a"], (1, "a"), [1]),
    (tuple[int, ...], [1, 2], (1, 2), ["a"]),
    (set[int], [1, 2], {1, 2}, [1, 1]),
    (frozenset[str], ["a"], frozenset("a"), [1]),
    (bytes, "ab", b"ab", 5),
    (Iterable[int], [1, 2], [1, 2], [1, "x"]),
    (collections.abc.Sequence[int], [1], [1], ["x"]),
    (Annotated[int, Field(ge=1)], 1, 1, 0),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog"}, Dog(kind="dog"),
     {"kind": "cow"}),
    (Any, {"x": [1.0]}, {"x": [1.0]}, None),
    (bool, True, True, 1),
    (float, 1.5, 1.5, "1.5"),
]  # fmt: skip


def taking(hint: Any) -> Any:
    got = []

    def take(x, other=None):
        got.append(x)

    take.__annotations__ = {"x": hint}
    return tool(take), got


@pytest.mark.parametrize(("hint", "sent", "made", "wrong"), TYPES, ids=lambda x: str(x)[:40])
def test_a_type_is_checked_as_it_is_sent_and_then_made(hint, sent, made, wrong):
    found, got = taking(hint)
    assert schema_problem(found.parameters) is None
    assert (hint is Any) == (found.parameters["properties"]["x"] == {})
    assert found.check({"x": sent}) is None
    before = copy.deepcopy(sent)
    assert carried_out(found, {"x": sent}) == (None, None)
    assert (got, sent) == ([made], before)
    assert type(got[0]) is type(made)
    if hint is not Any:
        problem = found.check({"x": wrong})
        assert problem.startswith("arguments of 'take': x")
        assert "\n" not in problem
    assert '"x" is a required property' in found.check({})
    assert got == [made]  # nothing is called to find out


def test_a_wrong_argument_draws_no_fault_and_counts_no_occurrence():
    called = []

    def fly(day: dt.date) -> str:
        called.append(day)
        return day.isoformat()

    def run(day: str) -> Any:
        step = {
            "name": "a",
            "actionType": "call_tool",
            "targetResource": "fly",
            "parameters": {"day": day},
        }
        lab = al.Lab(tools=[fly], planner=Fixed([step]), strategy="never", fault_rate=1.0)
        return al.autonomous.start(lab, "Fly.").finish()

    wrong = run("2024-02-30")
    assert wrong.calls[0].error.code == "bad_arguments"
    assert "day" in wrong.calls[0].error.message
    assert (called, dict(wrong.occurrences), list(wrong.delivered)) == ([], {}, [])
    assert wrong.calls[0].arguments == {"day": "2024-02-30"}
    assert len(run("2024-02-28").occurrences) == 1


NAMES = [
    "_x", "model_x", "model_config", "model_fields", "schema", "json", "copy", "self",
    "cls", "dict",
    "validate", "construct", "fields", "p0", "p1", "name",
    "arguments", "parameters", "class_",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_may_be_called_anything(name):
    space: dict[str, Any] = {}
    exec(f"def f({name}: int, x: int = 2): return [{name}, x]", space)
    found = tool(space["f"])
    assert found.parameters["required"] == [name]
    assert found.check({name: 1}) is None
    assert f"{name}: " in found.check({name: "x"})
    assert carried_out(found, {name: 1}) == ([1, 2], None)


def test_defaults_are_shown_as_json_and_left_to_the_function():
    unsendable = object()

    def f(
        model: Address = Address(street="s"), colour: Colour = Colour.RED,  # noqa: B008
        day: dt.date = dt.date(2024, 1, 1),
        some: set[str] = {"b", "a"}, none: int = None,  # noqa: B006, RUF013
        number: float = float("nan"), thing: Any = unsendable,
        given: int = Field(5, ge=1, description="five"),
        fresh: list[int] = Field(default_factory=list),  # noqa: B008
        api_key: str = "sk-hidden", secret: SecretStr = SecretStr("hush"),  # noqa: B008
        max_tokens: int = 9,
    ):  # fmt: skip
        return locals()

    found = tool(f)
    properties = found.parameters["properties"]
    shown = {k: v["default"] for k, v in properties.items() if "default" in v}
    assert shown == {
        "model": {"street": "s", "number": 1}, "colour": "red", "day": "2024-01-01",
        "some": ["a", "b"], "none": None, "given": 5, "max_tokens": 9,
    }  # fmt: skip
    assert properties["given"] == {
        "type": "integer",
        "minimum": 1,
        "description": "five",
        "default": 5,
    }
    assert found.parameters["required"] == []
    assert "hidden" not in repr(found.parameters)
    assert "hush" not in repr(found.parameters)
    got = found.function(**found.converted({}))
    assert got["thing"] is unsendable
    assert (got["given"], got["fresh"], got["api_key"]) == (5, [], "sk-hidden")
    assert found.check({"none": None}) is None


def test_descriptions_come_from_the_docstring_unless_the_annotation_has_one():
    def f(a: int, b: Annotated[int, Field(description="its own")], c: Address):
        """Do it.

        Args:
            a: The first.
            b: The second.
            c: The third.
        """

    found = tool(f)
    told = {k: v.get("description") for k, v in found.parameters["properties"].items()}
    assert told == {"a": "The first.", "b": "its own", "c": "The third."}
    assert found.description == "Do it."
    assert found.check({"a": 1, "b": 1, "c": {"street": "s"}}) is None


def test_types_that_are_defined_around_the_function_are_found():
    @dataclass
    class Local:
        a: int

    def decorated(x: Local) -> int:
        return x.a

    class Owner:
        def method(self, x: Local) -> int:
            return x.a

    def later():
        return tool(decorated), tool(Owner().method)

    for found in (tool(decorated), *later()):
        assert carried_out(found, {"x": {"a": 3}}) == (3, None)


class Opaque:
    pass


def test_what_no_json_can_be_made_of_is_refused_by_name():
    def arbitrary(x: Opaque): ...
    def nested(x: int, y: list[Opaque] | None = None): ...
    def called(x: collections.abc.Callable[[], int]): ...
    def unknown(x: Nowhere): ...  # noqa: F821
    def returned(x: int) -> Nowhere: ...  # noqa: F821

    for function, parts in (
        (arbitrary, ("arbitrary, parameter 'x'", "arbitrary type", "functools.partial")),
        (nested, ("nested, parameter 'y'", "arbitrary type")),
        (called, ("called, parameter 'x'", "arbitrary type")),
        (unknown, ("unknown, parameter 'x'", "cannot be resolved", "Nowhere")),
        (returned, ("returned, return", "cannot be resolved", "Nowhere")),
    ):
        with pytest.raises(ConfigError) as caught:
            tool(function)
        assert all(part in str(caught.value) for part in parts), str(caught.value)
        made = tool(parameters={"type": "object"})(function)  # the schema says what may be sent
        assert made.check({"x": 1}) is None
    assert tool(partial(arbitrary, x=Opaque())).parameters["properties"] == {}


class Panic(BaseException):
    pass


def test_an_annotation_that_raises_is_a_bad_argument():
    def raises(error: BaseException) -> Any:
        def check(value: Any) -> Any:
            raise error

        return check

    def f(
        a: int,
        b: Annotated[int, BeforeValidator(raises(Panic("native")))] = 1,
        c: Annotated[int, AfterValidator(raises(RuntimeError("no")))] = 1,
        d: Annotated[int, AfterValidator(raises(ValueError("never")))] = 1,
    ): ...

    found = tool(f)
    assert found.check({"a": 1}) is None
    for name, text in (("b", "Panic: native"), ("c", "RuntimeError: no"), ("d", "never")):
        assert f"{name}: {text}" in found.check({"a": 1, name: 2})


def test_what_changed_between_the_check_and_the_call_is_a_bad_argument(tmp_path):
    def read(path: FilePath) -> str:
        raise AssertionError("it is called")

    file = tmp_path / "a"
    file.touch()
    found = tool(read)
    assert found.check({"path": str(file)}) is None
    file.unlink()
    _, error = carried_out(found, {"path": str(file)})
    assert error.code == "bad_arguments"
    assert "path" in error.message


def test_a_message_is_short_whatever_was_sent():
    def f(a: int, b: list[int] | None = None): ...

    found = tool(f)
    for sent in (
        {"a": "x" * 100_000},
        {"a": [1] * 100_000},
        {"a": 1, "b": ["x" * 100_000]},
        {"a": 1, "x" * 9999: 1},
    ):
        assert len(found.check(sent)) < 3000


def test_a_choice_says_what_its_branches_expect():
    def f(a: int | None, b: Address | list[int]): ...

    found = tool(f)
    text = found.check({"a": "x", "b": {"street": 1}})
    assert 'a: "x" is not of type "integer", and "x" is not of type "null"' in text
    assert 'b: street: 1 is not of type "string"' in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["\ud800", 10**300, -0.0, 1.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(JSON)
@settings(deadline=None, max_examples=200)
def test_without_a_type_the_function_gets_what_was_sent(value):
    def same(x, y: Any = None): ...

    got = tool(same).converted({"x": value})["x"]
    assert repr(got) == repr(value)
    if isinstance(value, (list, dict)):
        assert got is not value


@given(JSON)
@settings(deadline=None, max_examples=200)
def test_what_passes_the_check_can_be_made_and_fits_the_type(value):
    """An independent judge: pydantic's strict reader of JSON takes whatever we let through."""
    for hint in (int, str, list[int], dict[str, float], int | None, Address):
        found, _ = taking(hint)
        if found.check({"x": value}) is None:
            made = found.converted({"x": value})["x"]
            if "\\ud" in ascii(value):  # which no reader in Rust takes, and a str may hold
                assert made == value
            else:
                assert made == TypeAdapter(hint).validate_json(json.dumps(value))


def test_a_tool_travels_to_another_process():
    def f(x: Address, day: dt.date = dt.date(2024, 1, 1)) -> PurePath:
        return PurePath(x.street)

    found = tool(f)
    again = cloudpickle.loads(cloudpickle.dumps(found))
    assert (again.parameters, again.returns) == (found.parameters, found.returns)
    assert carried_out(again, {"x": {"street": "s"}}) == ("s", None)
    assert copy.deepcopy(found) == found
