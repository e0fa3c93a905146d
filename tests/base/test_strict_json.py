"""The strict reader: what the standard library reads, and nothing that JSON does not know."""

from __future__ import annotations

import ast
import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import agentlab
from agentlab.base.documents import is_json
from agentlab.base.files import read_file
from agentlab.base.strict_json import DEPTH, read_json, read_json_file, read_yaml
from agentlab.errors import ConfigError, JsonError


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2]))
@settings(deadline=None)
def test_what_is_json_is_read_as_it_is(value, indent):
    text = json.dumps(value, indent=indent)
    assert read_json(text) == read_json(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "said", "path"),
    [
        ('{"a": 1, "b": [2, {"c": 3, "c": 4}]}', "the key 'c' is given twice (column 28)", "b 1 c"),
        ('{\n "a": [1, NaN]\n}', "NaN is no JSON (line 2, column 11)", "a 1"),
        ('{"x": "NaN [1,", "y": -Infinity}', "-Infinity is no JSON (column 23)", "y"),
        ("[1e999]", "1e999 is no number that a double can hold (column 2)", "0"),
        ("[-1" + "0" * 309 + "]", "is no number that a double can hold (column 2)", "0"),
        ("[" + "9" * 5000 + "]", "a number of 5,000 characters", "0"),
        ("0." + "0" * 5000 + "1", "a number of 5,003 characters", ""),
        ("[" * 400 + "]" * 400, f"nested more than {DEPTH} levels deep", " ".join("0" * DEPTH)),
        ("[" * 100_000, "nested more than", ""),
        ('{"a":' * 100_000, "nested more than", ""),
        ("", "expected a value (column 1)", ""),
        ("[1,]", "expected a value (column 4)", ""),
        ("{'a': 1}", "expected a key in double quotes (column 2)", ""),
        ('{"a" 1}', "expected a colon after the key (column 6)", ""),
        ('{"a": 1', "expected a comma or the end", ""),
        ('"a', "a text without an end (column 1)", ""),
        ('"a\nb"', "a control character in a text", ""),
        ('"\\q"', "an escape that JSON does not know", ""),
        ("1 2", "there is more after the document (column 3)", ""),
        ("\ufeff1", "expected a value (column 1)", ""),
        (b"[\xff]", "byte 1 is no UTF-8", ""),
        (None, "expected JSON text, got NoneType", ""),
    ],
    ids=lambda x: str(x)[:20],
)
def test_what_is_no_json_is_told_with_its_place(text, said, path):
    with pytest.raises(JsonError) as caught:
        read_json(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert " ".join(map(str, caught.value.path)) == path


@given(st.text('{}[]",:1eE+-.\\uNa I', max_size=40) | st.binary(max_size=40))
@settings(deadline=None, max_examples=300)
def test_whatever_comes_it_is_read_or_refused(text):
    try:
        value = read_json(text)
    except JsonError:
        return
    assert value == json.loads(text)
    assert not isinstance(value, float) or math.isfinite(value)


def test_depth_and_size_have_limits():
    assert read_json("[[1]]", depth=2) == [[1]]
    with pytest.raises(JsonError, match="more than 1 levels"):
        read_json('{"a": [1]}', depth=1)
    with pytest.raises(JsonError, match="4 characters, more than the 3"):
        read_json("1234", size=3)


def test_a_large_text_of_digits_is_refused_soon():
    started = time.perf_counter()
    for text in ("1" * 10_000_000, "[" * 10_000_000, "[1" + "0" * 300 + "]"):
        if len(text) > 1000:
            with pytest.raises(JsonError):
                read_json(text)
    assert time.perf_counter() - started < 5


def test_a_file_is_named(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(ConfigError, match=r"x\.json: cannot be read"):
        read_json_file(path, ConfigError)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"x\.json: cannot be read"):
        read_file(path, ConfigError)
    path.write_text('{"a": 1,\n "a": 2}')
    with pytest.raises(ConfigError, match=r"x\.json: not JSON: the key 'a' .*line 2, column 2"):
        read_json_file(path, ConfigError)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file("a\0b", ConfigError)


# ---- YAML ------------------------------------------------------------------------------------

BOMB = "- &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"- &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


def test_yaml_says_what_json_could():
    text = "a: [1, 0x1F, 1.5, yes, ~, '2']\nb: &b {c: '2001-12-14'}\nd: *b\n"
    day = {"c": "2001-12-14"}
    assert read_yaml(text) == {"a": [1, 31, 1.5, True, None, "2"], "b": day, "d": day}
    assert read_yaml("") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "the key 'a' is given twice (line 2, column 1)"),
        ("a: !!int abc", "this is no int that is read here (line 1, column 4)"),
        ("a: !!bool zz", "this is no bool"),
        ("a: !!float zz", "this is no float"),
        ("a: .inf", "this is no float"),
        ("a: .nan", "this is no float"),
        ("a: " + "9" * 5000, "this is no int"),
        ("a: " + "[" * 3000 + "]" * 3000, "nested more than"),
        ("".join(" " * i + f"k{i}:\n" for i in range(400)), "nested more than"),
        ("a: &a [*a]", "nested more than"),
        (BOMB, "more than 200,000 values"),
        ("a: !!python/object:os.system x", "a tag"),
        ("a: !!set {x}", "a tag"),
        ("? [a]\n: 1", "expected text as a key, got a list"),
        ("a: 2001-99-99", "put this in quotes: YAML takes it for a date (line 1, column 4)"),
        ("<<: {a: 1}", "'<<' is not read here"),
        ("a: *q", "an alias of nothing (line 1, column 4)"),
        ("a: &x 1\nb: &x 2", "an anchor twice (line 2, column 4)"),
        ("a: 1\n---\nb: 2", "there is a second document (line 2, column 1)"),
        ("a: 010", "base 8 or 60 (line 1, column 4)"),
        ("a: 1:30", "base 8 or 60"),
        ("a: 1:30.5", "base 8 or 60"),
        ("a: " + "1:" * 100_000 + "1", "base 8 or 60"),
        ("a: 0x" + "f" * 300, "this is no int"),
        ("- " * 100_000, "nested more than"),
        ("[" * 100_000, "nested more than"),
        ("{a: " * 100_000, "nested more than"),
        ("a: \ud800", "half a surrogate pair"),
        ("a: {", "(column 5)"),
        ("a: [1", "(column 6)"),
        ("a: 1\nb: [1", "(line 2, column 6)"),
        ("[\x01]", "control characters"),
    ],
    ids=lambda x: x[:20],
)
def test_what_json_could_not_say_is_refused_soon(text, said):
    started = time.perf_counter()
    with pytest.raises(JsonError) as caught:
        read_yaml(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - started < 5


def test_many_keys_are_read_in_linear_time():
    started = time.perf_counter()
    assert len(read_yaml("".join(f"k{i}: 1\n" for i in range(10_000)))) == 10_000
    assert time.perf_counter() - started < 10


# ---- that nothing else reads ---------------------------------------------------------------------

OTHERWISE = {
    "base.strict_json": "is the reader",
    "base.schemas": "the canonical text of a schema that is in memory",
    "environments.adapters.agentdojo": "the canonical text of arguments that are in memory",
    "minds.planners.prompted": "a program that pickle brings to a worker",
    "plans.contract.codec": "to name the step of a text that is refused already",
    "state.config": "TOML, whose values are looked through",
    "tools.signature": "arguments that are in memory and were checked",
    "tools.pipe": "a message of an MCP server: NaN in it fails its call, by is_json",
    "trace.owner": "who holds a lock: a line of its own file, and damage is told as nobody",
    "trace.packing": "what the store wrote; damage is a StoreError",
    "trace.store": "what the store wrote; damage is a StoreError",
}
"""Modules that read JSON, YAML or TOML by other means, and why what they read is no stranger's."""

READERS = {"loads", "load", "JSONDecoder", "raw_decode", "safe_load", "compose", "from_json",
           "model_validate_json", "validate_json"}  # fmt: skip
MODULES = {"json", "yaml", "orjson", "tomllib", "simplejson", "ujson", "pydantic_core"}


def reads(tree: ast.Module) -> bool:
    """Say whether a module calls a reader of JSON, YAML or TOML itself."""
    for node in ast.walk(tree):
        taken = node.names if isinstance(node, ast.ImportFrom) and node.module in MODULES else ()
        if READERS & {alias.name for alias in taken}:
            return True
        if isinstance(node, ast.Attribute) and node.attr in READERS:
            owner = node.value.id if isinstance(node.value, ast.Name) else None
            if owner in MODULES or node.attr in ("model_validate_json", "validate_json"):
                return True
    return False


def test_every_other_door_reads_through_it():
    root = Path(agentlab.__file__).parent
    found = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.rglob("*.py")
        if reads(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(OTHERWISE)


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**5000), math.inf, -math.inf, math.nan, {"a": [math.nan]}, {1: 2}, (1,), {1}, b"",
     nested(DEPTH + 1), {"a": nested(DEPTH)}],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_what_it_would_not_read_is_no_json(value):
    assert not is_json(value)
    ring: list[object] = []
    ring.append(ring)
    assert not is_json(ring)
    for fine in (10**308, -(10**308), 1.7e308, True, None, nested(DEPTH), "\ud800"):
        assert is_json(fine)


@pytest.mark.parametrize("rest", ["e9", ".5", "-1", "2001-99-99", "e+308", "..", "E", "+", "x"])
@pytest.mark.parametrize("number", ["1e999", "-1.5E+3081", "1" * 400])
def test_a_number_ends_where_the_parser_ends_it(number, rest):
    with pytest.raises(JsonError):
        read_json(f"[{number}{rest}]")
