"""Tools: argument checks, schemas that fetch nothing, permissions, functions as tools."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import jsonschema_rs
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.base.schemas import check_schema, object_schema, schema_validator
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.tools.tool import REPEATABLE, Effect, Permissions, Tool, ToolRegistry, tool

# ---- schemas ---------------------------------------------------------------------------------


def test_object_schema():
    made = object_schema(a={"type": "integer"}, b={})
    assert made == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert object_schema(["a"], a={}, b={})["required"] == ["a"]
    assert object_schema([], a={})["required"] == []
    assert object_schema(required={"type": "null"})["properties"] == {"required": {"type": "null"}}


def test_a_check_names_what_is_wrong_and_where():
    t = Tool("book", parameters=object_schema(["id"], id={"type": "string"}, n={"minimum": 1}))
    assert t.check({"id": "x", "n": 1}) is None
    problem = t.check({"id": 5, "n": 0, "extra": True})
    assert problem.startswith("arguments of 'book': ")
    assert 'id: 5 is not of type "string"' in problem
    assert "n: 0 is less than the minimum of 1" in problem
    assert "'extra'" in problem
    assert '"id" is a required property' in t.check({})
    assert t.check([]) is not None
    assert t.check(None) is not None


def test_three_violations_are_enough():
    t = Tool("t", parameters=object_schema(**{k: {"type": "integer"} for k in "abcde"}))
    problem = t.check(dict.fromkeys("abcde", "x"))
    assert problem.count("is not of type") == 3
    assert "\n" not in problem


@pytest.mark.parametrize("value", [{"a": object()}, {1: 2}, {"a": {1, 2}}])
def test_what_is_not_json_is_said_so(value):
    assert "not JSON" in check_schema(object_schema(["a"], a={"type": "string"}), value, "it")


def test_a_place_deep_inside():
    schema = {"properties": {"list": {"items": {"properties": {"n": {"type": "integer"}}}}}}
    problem = check_schema(schema, {"list": [{"n": 1}, {"n": "x"}]}, "result")
    assert problem.startswith("result: list.1.n: ")


@pytest.mark.parametrize(
    "reference",
    [
        "https://example.org/schema.json",
        "http://localhost:1/schema.json",
        "file:///etc/hostname",
        "other.json",
        "/etc/hostname",
        "urn:example:other",
        "#/$defs/missing",
        "#missing",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_references_outside_the_schema_are_refused(reference, keyword):
    with pytest.raises(ConfigError, match="not a self-contained JSON Schema"):
        schema_validator({"properties": {"a": {keyword: reference}}})


def test_a_file_that_exists_is_not_read(tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"type": "integer"}')
    schema = {"$ref": other.as_uri()}
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(5)  # the default would read it
    with pytest.raises(ConfigError, match="refused"):
        check_schema(schema, 5, "it")


def test_references_inside_the_schema_work():
    schema = {
        "$defs": {"n": {"type": "integer"}, "tree": {"$ref": "#/$defs/node"},
                  "node": {"properties": {"next": {"$ref": "#/$defs/tree"}, "n": {"$ref": "#n"}}},
                  "named": {"$anchor": "n", "type": "integer"}},
        "properties": {"a": {"$ref": "#/$defs/n"}, "t": {"$ref": "#/$defs/tree"}},
    }  # fmt: skip
    assert check_schema(schema, {"a": 1, "t": {"next": {"next": {"n": 1}}}}, "it") is None
    assert "a: " in check_schema(schema, {"a": "x"}, "it")
    assert "t.next.n: " in check_schema(schema, {"t": {"next": {"n": "x"}}}, "it")


@pytest.mark.parametrize(
    "schema", [{"type": "no such"}, {"minimum": "x"}, {"pattern": "("}, {"a": float("nan")}]
)
def test_what_is_no_schema(schema):
    with pytest.raises(ConfigError, match="not a self-contained JSON Schema"):
        schema_validator(schema)


def test_draft_2020_12_rules():
    schema = {"prefixItems": [{"type": "integer"}], "items": False}
    assert check_schema(schema, [1], "it") is None
    assert check_schema(schema, [1, 2], "it") is not None
    assert check_schema({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "it") is not None


@pytest.mark.parametrize(
    "wrong",
    [{"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"seconds": -1},
     {"effect": "raed"}],
)  # fmt: skip
def test_a_tool_says_at_once_what_cannot_be(wrong):
    match = "did you mean 'read'" if "effect" in wrong else "expected a number greater .* 0, got"
    for make in (lambda: Tool("t", **wrong), lambda: tool(**wrong)(print_nothing)):
        with pytest.raises(ConfigError if "effect" not in wrong else UnknownNameError, match=match):
            make()
    assert Tool("t", effect="write").effect is Effect.WRITE


def print_nothing() -> None:
    """Do nothing."""


# ---- the registry ----------------------------------------------------------------------------


def test_registry():
    registry = ToolRegistry([Tool("find"), Tool("book")])
    assert list(registry) == ["find", "book"]
    assert registry["book"].name == "book"
    assert "pay" not in registry
    assert len(registry) == 2
    assert repr(registry) == "ToolRegistry(find, book)"
    with pytest.raises(UnknownNameError, match="unknown tool 'bok'; did you mean 'book'"):
        registry["bok"]
    assert registry.get("bok") is None
    with pytest.raises(ConfigError, match="two tools are called 'find'"):
        ToolRegistry([Tool("find"), Tool("find")])


# ---- permissions -----------------------------------------------------------------------------


@given(st.sampled_from(Effect), st.sets(st.sampled_from(Effect)), st.sets(st.sampled_from("ab")))
@settings(deadline=None)
def test_permissions(effect, effects, deny):
    found = Permissions(effects=effects, deny=deny).refusal(Tool("a", effect=effect))
    assert (found is None) == (effect in effects and "a" not in deny)


def test_a_refusal_says_why():
    pay = Tool("pay", effect=Effect.IRREVERSIBLE)
    assert Permissions().refusal(pay) is None
    assert Permissions(deny={"pay"}).refusal(pay) == "tool 'pay' is denied in this lab"
    reads = Permissions(effects={"read", "idempotent"})
    assert reads.refusal(pay) == "tool 'pay' is irreversible; this lab allows idempotent, read"
    assert (
        Permissions(effects=()).refusal(pay)
        == "tool 'pay' is irreversible; this lab allows nothing"
    )


def test_permissions_look_alike_in_every_process():
    """Sets of strings are in another order in every process; a digest must not be."""
    code = (
        "from agentlab.tools.tool import Permissions\nimport sys\n"
        "p = Permissions(deny=set('abcdefgh'))\n"
        "sys.stdout.write(p.digest + repr(p.to_json()))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in "12"
    }  # fmt: skip
    assert len(seen) == 1
    again = Permissions.model_validate(json.loads(json.dumps(Permissions(deny={"a"}).to_json())))
    assert again == Permissions(deny={"a"})


def test_what_may_be_made_again():
    assert {Effect.READ, Effect.IDEMPOTENT} == REPEATABLE


# ---- functions as tools ----------------------------------------------------------------------


def test_a_function_becomes_a_tool():
    @tool(effect="idempotent", seconds=2.5, needs_approval=True)
    def add(a: int, b: float = 0, text: str = "", yes: bool = False, many: list = (), any=None):
        """Add two numbers.

        At length.
        """
        return a + b

    assert isinstance(add, Tool)
    assert (add.name, add.service) == ("add", "function")
    assert add.description == "Add two numbers.\n\nAt length."
    assert (add.effect, add.seconds, add.needs_approval) == (Effect.IDEMPOTENT, 2.5, True)
    assert add.function(a=1, b=2) == 3
    assert add.parameters == object_schema(
        ["a"],
        a={"type": "integer"},
        b={"type": "number", "default": 0},
        text={"type": "string", "default": ""},
        yes={"type": "boolean", "default": False},
        many={"type": "array", "default": []},
        any={"default": None},
    )
    assert add.check({"a": 1, "b": 2}) is None
    assert add.check({"a": True}) is not None
    assert add.check({"b": 1}) is not None
    assert add.check({"a": 1, "c": 1}) is not None


def test_objects_and_generic_types():
    @tool
    def put(record: dict, rows: list[int], table: dict[str, int], maybe: int | None = None):
        return None

    assert put.parameters["properties"] == {
        "record": {"type": "object"},
        "rows": {"type": "array", "items": {"type": "integer"}},
        "table": {"type": "object", "additionalProperties": {"type": "integer"}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    }
    assert put.check({"record": [], "rows": [], "table": {}}) is not None


def test_with_and_without_arguments():
    def find(city: str) -> list:
        return [city]

    assert tool(find).name == "find"
    assert tool(find, name="search").name == "search"
    given_schema = object_schema(city={"enum": ["Paris"]})
    made = tool(parameters=given_schema, returns={"type": "array"}, timeout=5)(find)
    assert (made.parameters, made.returns, made.timeout) == (given_schema, {"type": "array"}, 5)
    assert tool(find).effect is Effect.READ


def test_annotations_as_text_are_resolved():
    def find(city: "str", n: "int" = 1):  # noqa: UP037
        return city

    assert tool(find).parameters["properties"] == {
        "city": {"type": "string"},
        "n": {"type": "integer", "default": 1},
    }


def test_functions_that_cannot_be_called_by_name():
    def stars(*cities):
        return cities

    def more(**cities):
        return cities

    def positional(city, /):
        return city

    for function in (stars, more, positional):
        with pytest.raises(ConfigError, match=f"{function.__name__}: a tool needs named"):
            tool(function)


@pytest.mark.parametrize("thing", [3, "add", Tool("add")])
def test_only_a_function_is_made_a_tool(thing):
    with pytest.raises(ConfigError, match="expected a function to make a tool of, got"):
        tool(thing)


def test_what_can_be_called_and_has_no_name_is_called_by_its_class():
    class Adder:
        def __call__(self, a: int) -> int:
            return a

    assert tool(Adder()).name == "Adder"
    assert tool(name="add")(Adder()).name == "add"
    assert tool(Adder()).parameters["properties"] == {"a": {"type": "integer"}}


def test_a_class_is_a_tool_with_the_types_of_its_fields():
    @dataclass
    class Sum:
        a: int

    made = tool(Sum)
    assert (made.name, made.parameters["properties"]) == ("Sum", {"a": {"type": "integer"}})


def test_what_a_partial_binds_is_no_parameter_of_the_tool():
    def add(a: int, b: int) -> int:
        return a + b

    made = tool(partial(add, b=2))
    assert made.name == "add"
    assert made.parameters == object_schema(a={"type": "integer"})
    assert made.function(**made.converted({"a": 1})) == 3


def test_functions_among_tools_are_made_tools():
    def find(city: str) -> str:
        return city

    assert list(ToolRegistry([find, Tool("book")])) == ["find", "book"]
    for wrong in (find, Tool("book"), 3):
        with pytest.raises(ConfigError, match="expected a list of tools and functions"):
            ToolRegistry(wrong)
    for wrong in (3, None, "find"):
        with pytest.raises(ConfigError, match="expected a function to make a tool of"):
            ToolRegistry([wrong])
