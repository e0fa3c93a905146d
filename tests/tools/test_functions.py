"""What may be a tool, and what is refused by name when the tool is made."""

from __future__ import annotations

import enum
import functools
import json
import operator
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from agentlab.errors import ConfigError
from agentlab.tools.invocation import carried_out
from agentlab.tools.tool import tool


def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


async def later(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


class Adder:
    def __init__(self, more: int = 2) -> None:
        self.more = more

    def __call__(self, a: int) -> int:
        return a + self.more

    def method(self, a: int) -> int:
        """Add."""
        return a + self.more

    @classmethod
    def of_class(cls, a: int) -> int:
        return a + 2

    @staticmethod
    def of_none(a: int) -> int:
        return a + 2


class Later:
    async def __call__(self, a: int) -> int:
        return a + 2


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return wrapper


CALLABLES = {
    "function": add,
    "async": later,
    "partial": functools.partial(add, b=2),
    "partial by position": functools.partial(lambda b, a: a + b, 2),
    "partial of a partial": functools.partial(functools.partial(add, b=5), b=2),
    "partial of async": functools.partial(later, b=2),
    "object": Adder(),
    "async object": Later(),
    "partial of an object": functools.partial(Adder()),
    "method": Adder().method,
    "partial of a method": functools.partial(Adder().method),
    "class method": Adder.of_class,
    "static method": Adder.of_none,
    "bare static method": staticmethod(add),
    "wrapped": logged(add),
    "wrapped twice": logged(logged(add)),
    "wrapped async": logged(later),
    "lambda": lambda a: a + 2,
    "lambda that returns a coroutine": lambda a: later(a),
    "cached": functools.lru_cache(add),
}


@pytest.mark.parametrize("thing", CALLABLES.values(), ids=CALLABLES)
def test_whatever_can_be_called_by_name(thing):
    found = tool(thing, name="it")
    assert found.parameters["required"] == ["a"]
    assert carried_out(found, {"a": 1}) == (3, None)


def test_names_and_descriptions_are_those_of_the_function():
    assert [tool(f).name for f in (add, functools.partial(add, b=1), logged(add), Adder())] == [
        "add", "add", "add", "Adder",
    ]  # fmt: skip
    assert [tool(f).description for f in (functools.partial(add, b=1), logged(add), Later())] == [
        "Add.", "Add.", "",
    ]  # fmt: skip


def test_classes_whose_objects_are_json():
    row = namedtuple("row", "a b")
    assert carried_out(tool(row), {"a": 1, "b": 2}) == ([1, 2], None)


def yields():
    yield 1


async def yields_later():
    yield 1


def stars(*cities): ...
def options(**options): ...
def positional(city, /): ...


class Opaque:
    def __init__(self, a: int) -> None: ...


class Colour(enum.Enum):
    RED = 1


LANGCHAIN = SimpleNamespace(name="search", args_schema={}, invoke=print)

REFUSED = [
    (yields, ("yields", "a generator", "return the list")),
    (yields_later, ("yields_later", "an async generator")),
    (functools.partial(yields), ("yields", "a generator")),
    (stars, ("stars: a tool needs named", "*cities", "parameters=")),
    (options, ("options: a tool needs named", "**options", "parameters=")),
    (positional, ("positional: a tool needs named", "'city'", "slash")),
    (Opaque, ("Opaque", "class", "dataclass")),
    (Colour, ("Colour", "class")),
    (ValueError, ("ValueError", "class")),
    (len, ("len: a tool needs named", "'obj'")),
    (int, ("int", "function of your own")),
    (print, ("print", "*args")),
    (operator.itemgetter(1), ("itemgetter", "function of your own")),
    (json.dumps, ("dumps", "**kw")),
    (Adder.method, ("method, parameter 'self'", "Adder(...).method")),
    (Adder.__dict__["of_class"], ("of_class", "class method", "Class.method")),
    (LANGCHAIN, ("'search'", "LangChain", ".func")),
    ("add", ("expected a function", "'add'")),
    (3, ("expected a function", "3")),
]


@pytest.mark.parametrize(("thing", "parts"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_a_tool_is_refused_by_name(thing, parts):
    with pytest.raises(ConfigError) as caught:
        tool()(thing)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schema_given_says_what_may_be_sent():
    def anything(a: int, **options: Any) -> dict[str, Any]:
        return {"a": a, **options}

    found = tool(parameters={"type": "object", "required": ["a"]})(anything)
    assert carried_out(found, {"a": 1, "b": [2]}) == ({"a": 1, "b": [2]}, None)
    assert "a" in found.check({"a": "x"})


def test_a_tool_of_dspy_is_taken():
    dspy = pytest.importorskip("dspy")

    def anything(**options: Any) -> Any:
        return options

    found = tool(dspy.Tool(add, name="plus", desc="Add two."))
    assert (found.name, found.description) == ("plus", "Add two.")
    assert carried_out(found, {"a": 1}) == (3, None)
    assert carried_out(tool(dspy.Tool(later)), {"a": 1}) == (3, None)
    free = tool(dspy.Tool(anything, args={"q": {"type": "string"}}, arg_types={"q": str}))
    assert carried_out(free, {"q": "x"}) == ({"q": "x"}, None)
    assert free.check({"q": 1}) is not None
