"""JSON Schemas: Draft 2020-12, self-contained; no reference is fetched, by http or from a file.

What a schema says of a value is ``check_schema``; what is wrong with a schema itself is
``schema_problem``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from agentlab.base.documents import Json, canonical, shortened
from agentlab.errors import ConfigError, seen

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_LONG = 300
"""Characters of a violation that are told."""

NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value is schemas by name, not a schema."""

DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose value is data, not a schema."""


def object_schema(
    required: Iterable[str] | None = None, /, **properties: dict[str, Any]
) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these properties (all required if None)."""
    names = list(properties) if required is None else list(required)
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def refuse(uri: str) -> Any:
    """Refuse to fetch a schema reference: schemas must be self-contained."""
    raise ValueError(f"remote schema reference {seen(uri)} refused: schemas must be self-contained")


@lru_cache(maxsize=4096)
def _validator(text: str) -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(json.loads(text), retriever=refuse)


_BY_ID: dict[int, tuple[Any, Any]] = {}  # schema id -> (schema kept alive, validator)


def schema_validator(schema: Mapping[str, Any]) -> Any:
    """Return the cached Draft 2020-12 validator of a schema.

    Raises
    ------
    ConfigError
        The schema itself is invalid or refers outside itself.
    """
    known = _BY_ID.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    try:
        validator = _validator(canonical(schema))
    except Exception as e:
        raise ConfigError(f"not a self-contained JSON Schema (Draft 2020-12): {e}") from e
    if len(_BY_ID) > 10_000:
        _BY_ID.clear()
    _BY_ID[id(schema)] = (schema, validator)
    return validator


def check_schema(schema: Mapping[str, Any], value: Json, what: str) -> str | None:
    """Return the first three violations of ``schema`` by ``value`` in one line, or None."""
    validator = schema_validator(schema)
    try:
        if validator.is_valid(value):
            return None
        errors = list(validator.iter_errors(value))
    except (ValueError, TypeError) as e:
        return f"{what}: not JSON: {e}"
    return f"{what}: " + "; ".join(map(_violation, errors[:3]))


def _violation(error: Any) -> str:
    """Return one violation, short; of a choice what the branches say that came furthest."""
    where = shortened(".".join(map(str, error.instance_path)), _LONG)
    branches = [b[0] for b in getattr(error.kind, "context", None) or () if b]
    far = max((len(e.instance_path) for e in branches), default=0)
    depth = len(error.instance_path)
    found = [_said(e, depth) for e in branches if len(e.instance_path) == far]
    text = ", and ".join(dict.fromkeys(found[:5])) or _said(error, depth)
    return f"{where}: {text}" if where else text


def _said(error: Any, depth: int) -> str:
    """Return a violation with its place from ``depth`` on; the value is quoted first, and cut."""
    inner, text = ".".join(map(str, error.instance_path[depth:])), error.message
    if len(text) > _LONG:
        text = f"{text[: _LONG // 2]} … {text[-_LONG // 2 :]}"
    return shortened(f"{inner}: {text}" if inner else text, 2 * _LONG)


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema is no self-contained Draft 2020-12 schema, or None.

    Every ``$ref`` and ``$dynamicRef`` must begin with ``#``, and ``$schema``, where it stands, must
    be that of Draft 2020-12.

    Examples
    --------
    >>> schema_problem({"$ref": "https://json-schema.org/draft/2020-12/schema"})
    "$ref 'https://json-schema.org/draft/2020-12/schema' leads out of the schema"
    """
    try:
        foreign = next(_foreign(schema), None)
        if foreign is None:
            schema_validator(schema)
    except RecursionError:
        return "nested without end"
    except ConfigError as e:
        return str(e).partition("\n")[0]
    return foreign


def _foreign(schema: Any) -> Iterator[str]:
    """Yield what a schema takes from elsewhere; data in it is no schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from _foreign(item)
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            for inner in value.values():
                yield from _foreign(inner)
        elif isinstance(value, (list, Mapping)):
            if key not in DATA:
                yield from _foreign(value)
        elif key in ("$ref", "$dynamicRef") and not str(value).startswith("#"):
            yield f"{key} {seen(value)} leads out of the schema"
        elif key == "$schema" and str(value).rstrip("#") != DIALECT:
            yield f"$schema: expected {seen(DIALECT)}, got {seen(value)}"
