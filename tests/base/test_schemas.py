"""What makes a schema self-contained, and that no reference is ever opened."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from agentlab.base.schemas import DIALECT, schema_problem
from agentlab.plans.contract.spec import PlanCapability

REFERENCES = ("$ref", "$dynamicRef")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$schema": DIALECT, "type": "string"},
        {"$schema": f"{DIALECT}#"},
        {"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
        {"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
        {"items": {"$ref": "#"}},
        {"const": {"$ref": "http://x/y"}},
        {"enum": [{"$schema": "x"}], "default": {"$ref": "y"}, "examples": [{"$ref": "z"}]},
        {"properties": {"$ref": {"type": "string"}, "const": {"type": "string"}}},
    ],
)
def test_self_contained(schema):
    assert schema_problem(schema) is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "http://127.0.0.1:1/x"}, "leads out of the schema"),
        ({"$ref": "file:///etc/hostname"}, "leads out of the schema"),
        ({"$ref": "other.json"}, "leads out of the schema"),
        ({"$dynamicRef": "https://example.org/x#node"}, "leads out of the schema"),
        ({"$defs": {"a": {"$ref": "http://127.0.0.1:1/x"}}}, "leads out of the schema"),
        ({"properties": {"default": {"$ref": "http://127.0.0.1:1/x"}}}, "leads out of the schema"),
        ({"$id": "http://x/a", "$ref": "b"}, "leads out of the schema"),
        ({"$ref": DIALECT}, "leads out of the schema"),
        ({"properties": {"const": {"items": [{"$ref": DIALECT}]}}}, "leads out of the schema"),
        ({"properties": {"const": {"allOf": [{"$ref": DIALECT}]}}}, "leads out of the schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema: expected"),
        ({"items": {"$schema": "https://json-schema.org/draft/2019-09/schema"}}, "$schema: "),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        ({"type": "text"}, "not a self-contained"),
        ({"pattern": "("}, "not a self-contained"),
        ({"minimum": float("nan")}, "not a self-contained"),
        ({"const": {1, 2}}, "not a self-contained"),
    ],
)
def test_what_is_not(schema, problem):
    assert problem in schema_problem(schema)
    with pytest.raises(ValueError, match="input schema"):
        PlanCapability.agent(AGENT, schema, {})


class AGENT:
    id, name, description = "writer", "Writer", "writes"


def nested(levels):
    schema = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_nested_without_end():
    assert "not a self-contained" in schema_problem(nested(300))
    assert schema_problem(nested(20_000)) == "nested without end"


@pytest.mark.parametrize("keyword", REFERENCES)
def test_nothing_is_fetched_from_a_host(keyword):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        host = f"http://127.0.0.1:{server.getsockname()[1]}"
        for at in ({keyword: f"{host}/a"}, {"$defs": {"x": {"not": {keyword: f"{host}/b#c"}}}}):
            assert "leads out of the schema" in schema_problem(at)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("keyword", REFERENCES)
def test_nothing_is_opened_on_disk(keyword, tmp_path):
    """Opening a pipe that nobody writes to would wait for ever."""
    pipe = tmp_path / "schema.json"
    os.mkfifo(pipe)
    found: list[str | None] = []
    asked = threading.Thread(
        target=lambda: found.append(schema_problem({keyword: pipe.as_uri()})), daemon=True
    )
    asked.start()
    asked.join(10)
    assert [f for f in found if f and "leads out" in f], "the file was opened"
