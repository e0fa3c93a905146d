"""Definitions that tools' schemas share, kept as such in the one schema that is sent.

A tool's schema stands inside that of a plan, where ``#/$defs/Place`` would lead elsewhere. What a
``$ref`` or ``$dynamicRef`` names, by pointer or by anchor, is put among the definitions of the
whole once, under a name of its own, and the reference is led there. So recursion stays, and a
schema stays about as long as those of the tools are together: put in where they are used,
definitions that use each other made megabytes of two kilobytes.

OpenAI's structured outputs take ``$defs`` and ``$ref``, recursive ones too; llama.cpp's server and
the grammars of vLLM resolve references within a schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from agentlab.base.documents import canonical
from agentlab.base.schemas import DATA, NAMED
from agentlab.plans.parsing import fresh_id

PLACED = frozenset({"$id", "$schema", "$anchor", "$dynamicAnchor"})
"""Keywords that mean something only where the schema stood."""

_LEFT = PLACED | {"$defs", "definitions"}
_REFERENCES = ("$ref", "$dynamicRef")


def has_references(schema: Any) -> bool:
    """Say whether a schema defines something, or refers to it."""
    if isinstance(schema, list):
        return any(map(has_references, schema))
    if not isinstance(schema, Mapping):
        return False
    return bool({"$defs", "definitions", *_REFERENCES} & schema.keys()) or any(
        has_references(v) for v in schema.values()
    )


class Definitions:
    """What the schemas that were taken in refer to, each under a name of its own."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        """Name to schema, for the ``$defs`` of the whole."""
        self._taken: dict[str, dict[str, Any]] = {}  # a schema as text -> what stands for it

    def take(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema that can stand anywhere in the whole."""
        text = canonical(schema)
        if text not in self._taken:
            own = _Document(schema, self.named)
            whole, seen = dict(schema), set()
            while isinstance(name := whole.get("$ref"), str):  # so that its properties are seen
                found = own.found(name, schema) if name not in seen else None
                seen.add(name)
                rest = {k: v for k, v in whole.items() if k != "$ref"}
                whole = {**(found if isinstance(found, Mapping) else {}), **rest}
            self._taken[text] = own.moved(whole, schema)
        return self._taken[text]


class _Document:
    """One schema, whose definitions are moved into those of the whole."""

    def __init__(self, schema: Mapping[str, Any], named: dict[str, Any]) -> None:
        self._schema, self._named = schema, named
        self._names: dict[int, tuple[Any, str]] = {}  # id of a definition -> (itself, name)

    def found(self, reference: str, root: Any) -> Any:
        """Return what a reference names in a resource; None: nothing."""
        fragment = unquote(reference.partition("#")[2])
        if not reference.startswith("#"):
            return None
        if fragment and not fragment.startswith("/"):
            return next(_anchored(root, fragment), None)
        at: Any = root
        for part in fragment.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and part.isdecimal() and int(part[:9]) < len(at):
                at = at[int(part[:9])]
            elif isinstance(at, Mapping) and part in at:
                at = at[part]
            else:
                return None
        return at

    def moved(self, schema: Any, root: Any) -> Any:
        """Return a schema whose references lead to the definitions of the whole."""
        if isinstance(schema, list):
            return [self.moved(item, root) for item in schema]
        if not isinstance(schema, Mapping):
            return schema
        if isinstance(schema.get("$id"), str) and schema is not root:
            root = schema  # a resource of its own: '#' is it
        made: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _REFERENCES and isinstance(value, str):
                if name := self._named_as(value, root):
                    made["$ref"] = f"#/$defs/{name}"
            elif key in NAMED and isinstance(value, Mapping):
                if key not in _LEFT:
                    made[key] = {k: self.moved(v, root) for k, v in value.items()}
            elif key not in _LEFT:
                made[key] = value if key in DATA else self.moved(value, root)
        return made

    def _named_as(self, reference: str, root: Any) -> str | None:
        """Return the name of what a reference leads to, which is put among the definitions."""
        target, seen = self.found(reference, root), set()
        while isinstance(target, Mapping) and target.keys() == {"$ref"}:  # a name of a name
            if id(target) in seen:
                return None  # which names nothing: any value will do
            seen.add(id(target))
            reference = str(target["$ref"])
            target = self.found(reference, root)
        if not isinstance(target, (Mapping, bool)):
            return None
        if isinstance(target, Mapping) and id(target) in self._names:
            return self._names[id(target)][1]
        last = re.sub("[^A-Za-z0-9_]+", "_", reference.rpartition("/")[2]).strip("_")
        name = fresh_id(last[:40] or "whole", self._named)
        self._named[name] = True
        if isinstance(target, Mapping):
            self._names[id(target)] = target, name
        self._named[name] = self.moved(target, root)
        return name


def _anchored(schema: Any, name: str) -> Iterator[Any]:
    """Yield the schemas of a resource with that anchor."""
    if isinstance(schema, list):
        for item in schema:
            yield from _anchored(item, name)
    elif isinstance(schema, Mapping):
        if name in (schema.get("$anchor"), schema.get("$dynamicAnchor")):
            yield schema
        for key, value in schema.items():
            if key not in DATA:
                yield from _anchored(value, name)
