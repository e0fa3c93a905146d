"""What changed between two states, as JSON, and back: only that is written to disk.

States share what they did not change, so identity finds it without looking inside. A change is one
of::

    {"=": value}                        a new value
    {"+": [item, ...]}                  items appended to a vector
    {"k": {key: change}, "-": [key]}    changed and removed keys of a map or document
    {"v": {field: change}}              changed fields of a record
    {"i": {index: change}}              changed items of a sequence of the same length
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

from pyrsistent import PMap, PVector

from agentlab.base.values import Json, Value, thaw, validated

Change = dict[str, Any]


def delta(old: Value, new: Value) -> dict[str, Change]:
    """Return the changed fields of a record, each with its change.

    Parameters
    ----------
    old, new : Value
        Of one class.
    """
    before = old.__dict__
    changes = {}
    for name, declared in type(new).model_fields.items():
        value = new.__dict__[name]
        if value is not before[name] and not declared.exclude:  # secrets are never written
            change = _change(before[name], value)
            if change is not None:
                changes[name] = change
    return changes


def _change(old: Any, new: Any) -> Change | None:
    if new is old:
        return None
    if isinstance(new, Value) and type(new) is type(old):
        fields = delta(old, new)
        return {"v": fields} if fields else None
    if isinstance(new, PVector) and isinstance(old, PVector):
        if len(new) >= len(old) and all(map(is_, old, new)):
            return {"+": thaw(new[len(old) :])} if len(new) > len(old) else None
        return {"=": thaw(new)}
    if isinstance(new, (dict, PMap)) and type(new) is type(old):
        return _map_change(old, new)
    if isinstance(new, tuple) and isinstance(old, tuple) and len(new) == len(old):
        items = {
            str(i): c for i, (a, b) in enumerate(zip(old, new, strict=True)) if (c := _change(a, b))
        }
        return {"i": items} if items else None
    if type(new) is type(old) and new == old and repr(new) == repr(old):  # [1] == [True] == [1.0]
        return None
    return {"=": thaw(new)}


def _map_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change | None:
    changed: dict[str, Change] = {}
    nested = isinstance(new, dict)  # values of a persistent map are written whole
    for key, value in new.items():
        if key not in old:
            changed[key] = {"=": thaw(value)}
        elif value is not old[key]:
            change = _change(old[key], value) if nested else {"=": thaw(value)}
            if change is not None:
                changed[key] = change
    gone = [key for key in old if key not in new]
    if not changed and not gone:
        return None
    return {"k": changed, "-": gone} if gone else {"k": changed}


def apply(record: Value, changes: Mapping[str, Change]) -> Any:
    """Return ``record`` with the changes of ``delta`` made; what did not change is shared."""
    return record.replace(
        **{name: _applied(record, name, change) for name, change in changes.items()}
    )


def _applied(record: Value, name: str, change: Change) -> Any:
    old = getattr(record, name)
    if "=" in change:
        return change["="]
    if "+" in change:
        return old.extend(validated(type(record), name, change["+"]))
    if "v" in change:
        return apply(old, change["v"])
    if "i" in change:
        items = list(old)
        for index, inner in change["i"].items():
            item = items[int(index)]
            made = apply(item, inner["v"]) if "v" in inner else inner["="]
            items[int(index)] = made
        return tuple(items)
    if isinstance(old, PMap):
        fresh = validated(type(record), name, {k: c["="] for k, c in change["k"].items()})
        kept = old
        for key in change.get("-", ()):
            kept = kept.remove(key)
        return kept.update(fresh)
    return _patched(old, change)


def _patched(document: Json, change: Change) -> Json:
    if "=" in change:
        return change["="]
    if "i" in change:
        raise ValueError("documents hold no tuples")
    result = {k: v for k, v in document.items() if k not in change.get("-", ())}
    for key, inner in change["k"].items():
        result[key] = _patched(document.get(key), inner)
    return result
