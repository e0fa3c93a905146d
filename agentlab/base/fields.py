"""Fields of records that hold many things: persistent vectors and maps, typed or of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    InstanceOf,
    PlainSerializer,
    TypeAdapter,
)

from agentlab.base.persistent import PersistentMap, PersistentVector, pmap, pvector
from agentlab.base.values import Value
from agentlab.errors import seen


def _listed(value: Any) -> bool:
    """Say whether it is a sequence that becomes a vector of ours: a list or a tuple, for one."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, PersistentVector))


def _to_pvector(value: Any) -> Any:
    return pvector(value) if _listed(value) else value


def _to_pmap(value: Any) -> Any:
    return pmap(value) if isinstance(value, Mapping) else value


def thaw(value: Any) -> Any:
    """Return ``value`` with persistent vectors and maps as plain lists and dicts.

    Records stay records: pydantic serialises what it finds inside.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):  # known at once; asking whether it is a Mapping takes long
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [thaw(item) for item in value]
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return value


def plain(value: Any) -> Any:
    """Return one persistent vector, map or record as plain data: ``default`` of a JSON encoder.

    Raises
    ------
    TypeError
        It is none of these.
    """
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON: {seen(value)}")


def vector_of(item: Any) -> Any:
    """Annotate a persistent vector whose items are ``item`` when they arrive as plain data.

    Only data that arrives as a list (from JSON) is validated item by item: a vector that grew by
    ``append`` was checked when its items were made, and a step must not cost its history.
    """
    adapter: list[TypeAdapter[Any]] = []

    def convert(value: Any) -> Any:
        if _listed(value):
            if not adapter:
                adapter.append(TypeAdapter(item))
            return pvector([adapter[0].validate_python(x) for x in value])
        return value

    return Annotated[
        PersistentVector[Any],
        InstanceOf[PersistentVector[Any]],
        BeforeValidator(convert),
        PlainSerializer(thaw),
    ]


def map_of(item: Any) -> Any:
    """Annotate a persistent map from strings to ``item``, as ``vector_of`` does a vector."""
    adapter: list[TypeAdapter[Any]] = []

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping) and not isinstance(value, PersistentMap):
            if not adapter:
                adapter.append(TypeAdapter(item))
            return pmap({k: adapter[0].validate_python(v) for k, v in value.items()})
        return value

    return Annotated[
        PersistentMap[Any],
        InstanceOf[PersistentMap[Any]],
        BeforeValidator(convert),
        PlainSerializer(thaw),
    ]


Vector = Annotated[
    PersistentVector[Any],
    InstanceOf[PersistentVector[Any]],
    BeforeValidator(_to_pvector),
    PlainSerializer(thaw),
]
"""A persistent vector of JSON values."""

Map = Annotated[
    PersistentMap[Any],
    InstanceOf[PersistentMap[Any]],
    BeforeValidator(_to_pmap),
    PlainSerializer(thaw),
]
"""A persistent map from strings to JSON values."""
