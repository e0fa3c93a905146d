"""Results: what goes out as which JSON, what does not and where, and that a store can hold it."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import types
import uuid
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, Field, PlainSerializer, TypeAdapter

import agentlab as al
from agentlab.base.documents import canonical, is_json
from agentlab.errors import JsonError
from agentlab.minds.planners.fixed import Fixed
from agentlab.tools.result import LEVELS, SIZE, as_json
from agentlab.tools.tool import tool


class Model(BaseModel):
    a: Any = 1
    b: int = Field(2, alias="bee")


@dataclasses.dataclass
class Data:
    x: Any
    y: Any = None


class Colour(enum.Enum):
    RED = "red"
    BOTH = (1, 2)


class Word(enum.StrEnum):
    A = "a"


class Row(TypedDict):
    a: int


class Socket:
    pass


class Quiet(str):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Hostile(dict):
    def __iter__(self) -> Any:
        raise RuntimeError("no")

    keys = items = __iter__


def nested(levels: int, leaf: Any = 1) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def ring() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


GOOD = [
    ((1, (2,)), [1, [2]]),
    ({"b", "a"}, ["a", "b"]),
    (frozenset([2, 1]), [1, 2]),
    (collections.deque([1]), [1]),
    (collections.OrderedDict(a=1), {"a": 1}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (range(3), [0, 1, 2]),
    (b"abc", "abc"),
    (bytearray(b"abc"), "abc"),
    (Colour.RED, "red"),
    (Colour.BOTH, [1, 2]),
    ({Word.A: Word.A}, {"a": "a"}),
    ([dt.date(2024, 1, 1), dt.timedelta(days=1)], ["2024-01-01", "P1D"]),
    (Decimal("1.10"), "1.10"),
    (uuid.UUID(int=0), str(uuid.UUID(int=0))),
    (PurePosixPath("a/b"), "a/b"),
    (Model(a=dt.date(2024, 1, 1)), {"a": "2024-01-01", "bee": 2}),
    ([Data((1, 2))], [{"x": [1, 2], "y": None}]),
    ({"by_day": {1: "x"}}, {"by_day": {"1": "x"}}),
    (np.int64(3), 3),
    (np.float64(1.5), 1.5),
    (np.bool_(True), True),
    (np.str_("s"), "s"),
    ({np.int64(1): np.arange(3)}, {"1": [0, 1, 2]}),
    (Data(np.array([[1.5]])), {"x": [[1.5]], "y": None}),
    (pd.Timestamp("2024-01-01"), "2024-01-01T00:00:00"),
    (Quiet("s"), "s"),
    (nested(LEVELS), nested(LEVELS)),
]


@pytest.mark.parametrize(("value", "expected"), GOOD, ids=lambda x: str(type(x).__name__))
def test_what_goes_out_as_json(value, expected):
    made = as_json(value)
    assert repr(made) == repr(expected)
    assert is_json(made)


BAD = [
    ({"rows": [{"ok": 1}, {"score": math.nan}]}, "rows[1].score is nan"),
    (math.inf, "it is inf"),
    ({"a": [Decimal("NaN")]}, "a[0] is NaN"),
    (Model(a=[1, math.nan]), "a[1] is nan"),
    ({"p": Data(1, -math.inf)}, "p.y is -inf"),
    (np.array([1, np.nan]), "[1] is nan"),
    (Data(np.float32("nan")), "x[0] is nan"),
    ({"a": {"when": Socket()}}, "a.when is a Socket"),
    ({"a": [Data(Socket())]}, "a[0] is a Data that holds what is not JSON (TypeError: a Socket"),
    ([int], "[0] is a type"),
    ({"f": len}, "f is a builtin_function_or_method"),
    ((i for i in range(3)), "it is a generator"),
    (iter([1]), "it is a list_iterator"),
    ({"e": [ValueError("x")]}, "e[0] is a ValueError"),
    ({"by_day": {(1, 2): "x"}}, "by_day: key (1, 2) is a tuple"),
    ({None: 1}, "it: key None is a NoneType"),
    ({"a": {Socket: 1}}, "a: key <class"),
    ({"a": {1: "x", "1": "y"}}, "a: two keys are '1' in JSON"),
    ({"b": [b"\xff"]}, "b[0] is bytes that are no UTF-8 (byte 0)"),
    ({"a b": ["\ud800"]}, r"['a b'][0] holds half of a surrogate pair, '\ud800'"),
    ({"a": {"\ud800": 1}}, r"a['\ud800'] holds half of a surrogate pair"),
    (Model(a={"\ud800": 1}), r"a['\ud800'] holds half of a surrogate pair"),
    ({"n": 10**5000}, "n is an int of 5,001 digits"),
    ({"n": -(10**400)}, "n is an int of 401 digits"),
    (nested(LEVELS + 1), "nested more than"),
    (ring(), "nested more than"),
    ("x" * (SIZE + 1), "larger than 64 MB"),
    ("é" * (SIZE // 4), "larger than 64 MB"),
    (range(10**12), "larger than 64 MB"),
    (pd.DataFrame({"a": [1]}), "it is a DataFrame of pandas: return frame.to_dict('records')"),
    ({"s": pd.Series([1])}, "s is a Series of pandas"),
    ([pd.NaT], "[0] is NaT"),
    ([pd.NA], "[0] is a NAType of pandas"),
    (np.datetime64("2024-01-01"), "it is a datetime64 of numpy"),
    (np.array([object()]), "[0] is an object"),
    (Hostile(a=1), "it cannot be read: RuntimeError: no"),
]


@pytest.mark.parametrize(("value", "text"), BAD, ids=lambda x: str(type(x).__name__))
def test_what_does_not_and_where(value, text):
    with pytest.raises(JsonError) as caught:
        as_json(value)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_long_way_down_is_told_shortly():
    value: Any = math.nan
    for _ in range(LEVELS - 1):
        value = {"k" * 1000: value}
    with pytest.raises(JsonError) as caught:
        as_json(value)
    assert len(str(caught.value)) < 1000


ANNOTATED = [
    (int, True, True),
    (int, 5.0, 5.0),
    (float, 5, 5),
    (str, 5, 5),
    (type(None), 5, 5),
    (Model, Model(), {"a": 1, "bee": 2}),
    (Model, {"a": 1}, {"a": 1}),
    (list[Model], [Model()], [{"a": 1, "bee": 2}]),
    (Row, {"a": 1, "more": 2}, {"a": 1, "more": 2}),
    (list[Row], [{"a": 1, "more": dt.date(2024, 1, 1)}], [{"a": 1, "more": "2024-01-01"}]),
    (dict[str, dt.date], {"a": dt.date(2024, 1, 1)}, {"a": "2024-01-01"}),
    (set[str], {"c", "a", "b"}, ["a", "b", "c"]),
    (Annotated[float, PlainSerializer(lambda v: f"{v:g} EUR")], 5.5, "5.5 EUR"),
    (Annotated[dt.date, PlainSerializer(lambda v: v.year)], dt.date(2024, 1, 1), 2024),
    (np.ndarray, np.arange(2), [0, 1]),
    (Socket, 1, 1),
]


@pytest.mark.parametrize(("hint", "value", "expected"), ANNOTATED, ids=range(len(ANNOTATED)))
def test_a_result_goes_out_by_its_annotation_or_as_it_is(hint, value, expected):
    def give():
        return value

    give.__annotations__ = {"return": hint}
    found = tool(give)
    assert repr(as_json(value, found.signature.adapter)) == repr(expected)


def test_the_annotation_makes_the_schema_of_the_result():
    def give() -> list[Row]: ...
    def nothing(): ...
    def socket() -> Socket: ...

    row = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
           "title": "Row", "additionalProperties": True}  # fmt: skip
    assert tool(give).returns == {
        "type": "array", "items": {"$ref": "#/$defs/Row"}, "$defs": {"Row": row},
    }  # fmt: skip
    assert (tool(nothing).returns, tool(socket).returns) == ({}, {})
    assert tool(returns={"type": "array"})(give).returns == {"type": "array"}
    assert tool(returns={})(give).returns == {}


def test_a_result_that_does_not_fit_its_annotation_is_kept_and_told_of():
    def count() -> int:
        return "many"  # type: ignore[return-value]

    step = {"name": "a", "actionType": "call_tool", "targetResource": "count", "parameters": {}}
    lab = al.Lab(tools=[count], planner=Fixed([step]), strategy="never")
    state = al.autonomous.start(lab, "Count.").finish()
    assert (state.calls[0].result, state.calls[0].error) == ("many", None)
    assert ["is not of type" in e.description for e in state.events] == [True]


# ---- an oracle: whatever is let through can be stored, loaded and replayed -------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3)
    | st.dates() | st.decimals() | st.sampled_from(Colour)
    | st.sampled_from(["\ud800", 10**308, 10**309, 2**64, -0.0, 5e-324, "\x00", "${a.b}", "😀"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.tuples(inner, inner)
    | st.builds(Data, inner)
    | st.builds(Model, a=inner)
    | st.dictionaries(st.text() | st.sampled_from(["=", "+", "k", "i", "v", "-", "$ref", "\ud800"])
                      | st.integers(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(ANY, st.sampled_from([None, Any, dict[str, Any], list[Any], float, Data]))
@settings(deadline=None, max_examples=300)
def test_what_is_let_through_is_json_of_its_own_and_what_is_not_has_a_place(value, hint):
    adapter = None if hint is None else TypeAdapter(hint)
    problem = ""
    try:
        made = as_json(value, adapter)
    except JsonError as error:
        problem = str(error)
    if problem:
        assert problem.isprintable()
        return
    assert is_json(made)
    text = canonical(made)
    assert json.loads(text.encode("utf-8")) == made
    if is_json(value):
        assert repr(made) == repr(value)


@given(ANY)
@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_is_let_through_can_be_stored_loaded_and_replayed(
    tmp_path_factory, workers, value
):
    def give():
        return value

    def take(x):
        return x

    steps = [
        {"stepId": "a", "name": "a", "actionType": "call_tool", "targetResource": "give",
         "parameters": {}},
        {"stepId": "b", "name": "b", "actionType": "call_tool", "targetResource": "take",
         "parameters": {"x": ["${a}"]}},
    ]  # fmt: skip
    lab = al.Lab(tools=[give, take], planner=Fixed(steps), strategy="never", workers=workers)
    folder = tmp_path_factory.mktemp("run")
    run = al.autonomous.start(lab, "Go.", store=folder)
    run.finish()
    loaded = al.Run.resume(folder, lab)
    assert loaded.state.digest == run.state.digest
    assert repr([c.result for c in loaded.state.calls]) == repr([c.result for c in run.state.calls])
    assert [c.error and c.error.code for c in run.state.calls[:1]] in ([None], ["not_json"])
    assert run.replay().identical
    assert loaded.replay().identical
