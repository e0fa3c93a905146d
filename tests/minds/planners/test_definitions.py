"""Definitions of tools in the schema that is sent: kept, renamed, and of the same meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from agentlab.base.schemas import schema_validator
from agentlab.minds.planners.definitions import Definitions
from agentlab.minds.planners.structured import plan_schema
from agentlab.tools.tool import Tool

TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "l": {"$ref": "#/$defs/Tree"}},
        "additionalProperties": False}  # fmt: skip
NESTED = [
    {"properties": {"root": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": TREE}},
    {"properties": {"root": {"$ref": "#/definitions/Tree"}},
     "definitions": {"Tree": {"enum": [1, {"$ref": "#/definitions/Tree"}]}}},
    {"properties": {"a": {"type": "integer"}, "root": {"$ref": "#/properties/a"}}},
    {"properties": {"root": {"$ref": "#"}, "v": {"type": "integer"}},
     "additionalProperties": False},
    {"properties": {"root": {"$ref": "#/$defs/a~1b%20c"}}, "$defs": {"a/b c": {"type": "string"}}},
    {"properties": {"root": {"$ref": "#tree"}},
     "$defs": {"x": {"$anchor": "tree", **TREE}, "Tree": TREE}},
    {"properties": {"root": {"$dynamicRef": "#n"}},
     "$defs": {"x": {"$dynamicAnchor": "n", "type": "array", "items": {"$dynamicRef": "#n"}}}},
    {"properties": {"root": {"$ref": "#/$defs/Tree", "maxProperties": 1}},
     "$defs": {"Tree": {"$ref": "#/$defs/B"}, "B": TREE, "Unused": {}}},
    {"properties": {"$defs": {"type": "integer"}, "definitions": {"$ref": "#/$defs/Tree"},
                    "root": {"$ref": "#/$defs/Tree"}},
     "$defs": {"Tree": {"type": "boolean"}}},
    {"properties": {"root": {"const": {"$ref": "#/$defs/Tree"}}}, "$defs": {"Tree": True}},
    {"properties": {"root": {"$ref": "#/$defs/No"}}, "$defs": {"No": False}},
]  # fmt: skip
values = st.recursive(
    st.sampled_from([1, True, "a", None, {"$ref": "#/$defs/Tree"}]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["v", "l", "root", "a"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def planned(tool, parameters):
    step = {"stepId": "s", "actionType": "call_tool", "targetResource": tool,
            "parameters": parameters, "dependencies": []}  # fmt: skip
    return {"summary": "s", "steps": [step], "answer": None}


def with_references(schema):
    """The tool's own schema, in which each argument may be text too: written apart."""
    free = {name: {"anyOf": [inner, {"type": "string", "maxLength": 200}]}
            for name, inner in schema["properties"].items()}  # fmt: skip
    original = {f"own_{n}": inner for n, inner in schema["properties"].items()}
    text = json.dumps({**schema, "properties": free}).replace("#/properties/a", "#/$defs/own_a")
    made = json.loads(text)
    return {**made, "$defs": {**made.get("$defs", {}), **original}}


@given(
    st.lists(st.sampled_from(NESTED), min_size=1, max_size=4, unique_by=id),
    st.data(),
)
@settings(deadline=None, max_examples=200)
def test_a_plan_fits_what_is_sent_exactly_when_its_step_fits_the_tool(schemas, data):
    """Oracle: the validator on each tool's own schema, which is left as it is."""
    tools = {f"t{n}": Tool(f"t{n}", parameters={"type": "object", **s})
             for n, s in enumerate(schemas)}  # fmt: skip
    sent = schema_validator(plan_schema(tools))
    name = data.draw(st.sampled_from(sorted(tools)))
    given_ = data.draw(st.dictionaries(st.sampled_from(["root", "a", "v", "$defs", "definitions"]),
                                       values, max_size=3))  # fmt: skip
    own = tools[name].parameters
    if own["properties"].get("root") == {"$ref": "#"}:
        return  # within it an argument is the tool's own: see the next test
    expected = schema_validator(with_references(own)).is_valid(given_)
    assert sent.is_valid(planned(name, given_)) == expected


def test_a_schema_that_holds_itself_does_so_where_it_stands():
    tool = Tool("t", parameters={"type": "object", **NESTED[3]})
    sent = schema_validator(plan_schema({"t": tool, "u": Tool("u")}))
    deep = {"root": {"root": {"v": 1}}}
    assert sent.is_valid(planned("t", deep))
    assert not sent.is_valid(planned("t", {"root": {"root": {"v": None}}}))
    assert not sent.is_valid(planned("t", {"root": {"other": 1}}))


def mutual(n):
    names = {f"D{i}": {"type": "object", "properties": {
        f"p{j}": {"$ref": f"#/$defs/D{j}"} for j in range(n) if j != i}}
        for i in range(n)}  # fmt: skip
    return {"type": "object", "properties": {"root": {"$ref": "#/$defs/D0"}}, "$defs": names}


def ladder(n):
    names = {f"L{i}": {"type": "object", "properties": {
        k: {"$ref": f"#/$defs/L{i + 1}"} for k in "ab"}} for i in range(n)}  # fmt: skip
    return {"type": "object", "properties": {"root": {"$ref": "#/$defs/L0"}},
            "$defs": {**names, f"L{n}": {"type": "string"}}}  # fmt: skip


@pytest.mark.parametrize("schema", [mutual(8), mutual(20), ladder(13), ladder(60)])
@pytest.mark.parametrize("copies", [1, 5])
def test_what_is_sent_is_about_as_long_as_the_tools_are(schema, copies):
    tools = {f"t{n}": Tool(f"t{n}", parameters={**schema, "title": str(n)}) for n in range(copies)}
    sent = len(json.dumps(plan_schema(tools)))
    assert sent < 3 * copies * len(json.dumps(schema)) + 1_000


def test_definitions_of_two_tools_do_not_clash():
    def of(kind):
        return {"type": "object", "properties": {"x": {"$ref": "#/$defs/D"}},
                "$defs": {"D": {"type": kind}}}  # fmt: skip

    tools = {n: Tool(n, parameters=of(k)) for n, k in (("a", "integer"), ("b", "boolean"))}
    schema = plan_schema(tools)
    assert schema["$defs"] == {"D": {"type": "integer"}, "D_2": {"type": "boolean"}}
    sent = schema_validator(schema)
    assert sent.is_valid(planned("a", {"x": 1}))
    assert sent.is_valid(planned("b", {"x": True}))
    assert not sent.is_valid(planned("a", {"x": True}))
    assert not sent.is_valid(planned("b", {"x": 1}))


def test_without_definitions_nothing_is_added():
    assert "$defs" not in plan_schema({"t": Tool("t", parameters={"type": "object"})})


@pytest.mark.parametrize("pointer", ["#/$defs/A", "#/nowhere", "#none", "#/$defs/A/0/9"])
def test_what_leads_nowhere_says_nothing(pointer):
    schema = {"type": "object", "properties": {"x": {"$ref": pointer}},
              "$defs": {"A": {"$ref": "#/$defs/A"}}}  # fmt: skip
    assert Definitions().take(schema)["properties"] == {"x": {}}
