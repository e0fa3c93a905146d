"""What changed between two states, as JSON, and back: only that is written to disk.

States share what they did not change, so identity finds it without looking inside. A change is one
of::

    {"=": value}                        a new value
    {"+": [item, ...]}                  items appended to a sequence
    {"k": {key: change}, "-": [key]}    changed and removed keys of a map or document
    {"v": {field: change}}              changed fields of a record
    {"i": {index: change}}              changed items of a sequence, beside what was appended

Vectors, maps and plans also know in which places they were changed on the way from one state to the
next (``Value.places``, ``Steps.changed``), so that to write a step down costs no more at the end of
a long run than at its beginning; where they do not, all is looked through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any

from agentlab.base.documents import Json
from agentlab.base.fields import thaw
from agentlab.base.persistent import PersistentMap, PersistentVector
from agentlab.base.values import Value, validator
from agentlab.plans.steps import Steps

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
    places = new.places(old) or {}
    for name, declared in type(new).model_fields.items():
        value = new.__dict__[name]
        if value is not before[name] and not declared.exclude:  # secrets are never written
            change = _change(before[name], value, places.get(name))
            if change is not None:
                changes[name] = change
    return changes


def _change(old: Any, new: Any, places: set[Any] | None = None) -> Change | None:
    """Return a change, or None; ``places``: where alone a vector or map may have been changed."""
    if new is old:
        return None
    if isinstance(new, Value) and type(new) is type(old):
        fields = delta(old, new)
        return {"v": fields} if fields else None
    if isinstance(new, Steps) and isinstance(old, Steps):
        return _sequence_change(old, new, new.changed(old))
    if isinstance(new, (PersistentVector, tuple)) and isinstance(old, (PersistentVector, tuple)):
        return _sequence_change(old, new, places)
    if isinstance(new, PersistentMap) and isinstance(old, PersistentMap):
        return _persistent_change(old, new, places)
    if isinstance(new, dict) and isinstance(old, dict):
        return _map_change(old, new)
    if type(new) is type(old) and new == old and repr(new) == repr(old):  # [1] == [True] == [1.0]
        return None
    return {"=": thaw(new)}


def _sequence_change(
    old: Sequence[Any], new: Sequence[Any], places: Iterable[int] | None
) -> Change | None:
    """Return what changed in a sequence: items of it, and what was appended."""
    if len(new) < len(old):
        return {"=": _plain(new)}
    if places is None:
        if isinstance(new, PersistentVector) and isinstance(old, PersistentVector):
            same = new.begins_with(old)
        else:
            same = all(map(is_, old, new))
        places = [] if same else range(len(old))
    here = sorted(i for i in places if i < len(old))
    items = {str(i): c for i in here if (c := _change(old[i], new[i])) is not None}
    if len(items) * 2 > len(old) > 1 and not all("v" in c for c in items.values()):
        return {"=": _plain(new)}
    change: Change = {"i": items} if items else {}
    if len(new) > len(old):
        change["+"] = _plain(new[len(old) :])
    return change or None


def _plain(items: Sequence[Any]) -> list[Json]:
    return [thaw(item) for item in items]


def _persistent_change(
    old: PersistentMap[Any], new: PersistentMap[Any], places: Iterable[str] | None
) -> Change | None:
    """Return what changed in a persistent map: keys, and inside of a document what changed."""
    if places is None:
        places = dict.fromkeys((*new, *old))
    missing = object()
    changed, gone = {}, []
    for key in places:
        value, known = new.get(key, missing), old.get(key, missing)
        if value is missing and known is not missing:
            gone.append(key)
        elif isinstance(value, dict) and isinstance(known, dict):
            if (change := _change(known, value)) is not None:
                changed[key] = change
        elif value is not known:
            changed[key] = {"=": thaw(value)}
    return _keyed(changed, gone)


def _keyed(changed: dict[str, Change], gone: list[str]) -> Change | None:
    if not changed and not gone:
        return None
    return {"k": changed, "-": gone} if gone else {"k": changed}


def _map_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change | None:
    changed: dict[str, Change] = {}
    for key, value in new.items():
        if key not in old:
            changed[key] = {"=": thaw(value)}
        elif (change := _change(old[key], value)) is not None:
            changed[key] = change
    return _keyed(changed, [key for key in old if key not in new])


def apply(record: Value, changes: Mapping[str, Change]) -> Any:
    """Return ``record`` with the changes of ``delta`` made; what did not change is shared.

    What is new is validated; what was there has been.
    """
    return record.put(**{name: _applied(record, name, c) for name, c in changes.items()})


def _applied(record: Value, name: str, change: Change) -> Any:
    kind, old = type(record), getattr(record, name)
    if "=" in change:
        return validator(kind, name)(change["="])
    if "v" in change:
        return apply(old, change["v"])
    if "i" in change or "+" in change:
        return _sequence_applied(record, name, change)
    if isinstance(old, PersistentMap):
        made = {k: _patched(old.get(k), c) for k, c in change["k"].items()}
        fresh = validator(kind, name)(made)
        kept = old
        for key in change.get("-", ()):
            kept = kept.remove(key)
        return kept.update(fresh)
    return validator(kind, name)(_patched(old, change))


def _sequence_applied(record: Value, name: str, change: Change) -> Any:
    kind, old, more = type(record), getattr(record, name), change.get("+", [])
    made = {int(i): _item(old[int(i)], inner) for i, inner in change.get("i", {}).items()}
    if isinstance(old, PersistentVector):
        for i, item in made.items():
            old = old.set(i, validator(kind, name)([item])[0])
        return old.extend(validator(kind, name)(more))
    if isinstance(old, Steps) and not more:
        for i, step in made.items():
            old = old.put(i, step)
        return old
    return validator(kind, name)([*(made.get(i, item) for i, item in enumerate(old)), *more])


def _item(old: Any, change: Change) -> Any:
    return apply(old, change["v"]) if "v" in change else _patched(old, change)


def _patched(document: Json, change: Change) -> Json:
    if "=" in change:
        return change["="]
    if "i" in change:
        raise ValueError("documents hold no sequences that change in places")
    result = {k: v for k, v in document.items() if k not in change.get("-", ())}
    for key, inner in change["k"].items():
        result[key] = _patched(document.get(key), inner)
    return result
