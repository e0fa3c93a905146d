"""What a function returned, as JSON that a store can hold; or where in it something is not.

What is JSON already is taken as it is. Everything else goes out by the return annotation, where
there is one that fits, else as pydantic writes it: dates and decimals as text, sets and tuples as
lists, enums by their values, models and dataclasses as objects, bytes as UTF-8. NumPy's scalars and
arrays go out by ``tolist``.

What leaves here is a tree of its own, of plain dicts, lists and scalars: numbers are finite, text
is Unicode without halves of surrogate pairs, it is at most ``LEVELS`` levels deep and of a bounded
size. So it can be written, read and compared, and is the same afterwards.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from inspect import isawaitable
from pathlib import PurePath
from sys import float_info
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from agentlab.base.documents import Json
from agentlab.errors import JsonError, a_kind, raised, told

SIZE = 1 << 26
"""Bytes, roughly, that a result may have: a checkpoint holds it several times, and SQLite takes a
thousand million at once."""

LEVELS = 200
"""Levels of lists and objects: pydantic writes 255, and records, and arguments that refer to the
result, are around it."""

_NODE = 8
_HALF = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[^\W\d]\w*")
_SHAPES = ("function-plain", "function-wrap")


def as_json(value: Any, adapter: TypeAdapter[Any] | None = None) -> Json:
    """Return a copy of a result as plain JSON.

    Parameters
    ----------
    value : object
    adapter : TypeAdapter, optional
        Of the return annotation.

    Raises
    ------
    JsonError
        It cannot be; the message says where and what.
    """
    copied = _Copy()
    try:
        if adapter is None:
            return copied.of(value, LEVELS)
        if not _shapes(adapter):
            try:
                return _Copy(exact=True).of(value, LEVELS)
            except _Other:
                pass
        copied.unheard(value, LEVELS)
        return copied.of(_by_annotation(value, adapter), LEVELS)
    except JsonError:
        raise
    except RecursionError:
        raise JsonError(f"it is nested more than {LEVELS} levels deep") from None
    except Exception as e:  # of a class that is anybody's
        raise JsonError(f"{copied.place()} cannot be read: {raised(e)}") from e


def _by_annotation(value: Any, adapter: TypeAdapter[Any]) -> Any:
    try:
        made = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        return sorted(made) if isinstance(value, Set) and isinstance(made, list) else made
    except Exception:  # it does not fit, or holds what pydantic does not know
        return value


@lru_cache(maxsize=4096)
def _shapes(adapter: TypeAdapter[Any]) -> bool:
    """Say whether an annotation brings code of its own that writes values."""
    return _shaped(adapter.core_schema)


def _shaped(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        own = schema.get("serialization")
        if isinstance(own, Mapping) and own.get("type") in _SHAPES:
            return True
        return any(_shaped(v) for k, v in schema.items() if k != "metadata")
    return isinstance(schema, (list, tuple)) and any(map(_shaped, schema))


class _Other(Exception):
    """Something is no plain JSON."""


class _Copy:
    """Copies one result.

    Parameters
    ----------
    exact : bool
        Raise ``_Other`` at what is no plain JSON.
    """

    def __init__(self, exact: bool = False) -> None:
        self._exact, self._left = exact, SIZE
        self._path: list[str | int] = []

    def place(self) -> str:
        """Return where in the result it is."""
        parts = ""
        for part in self._path:
            if isinstance(part, int):
                parts += f"[{part}]"
            elif _NAME.fullmatch(part):
                parts += f".{part}" if parts else part
            else:
                parts += f"[{part!r}]"
        return told(parts, 300) if parts else "it"

    def of(self, value: Any, levels: int) -> Json:
        self._count(_NODE)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return self._text(value)
        if kind is int or kind is float:
            return self._number(value)
        if kind is not dict and kind is not list:
            if self._exact:
                raise _Other
            return self._other(value, levels)
        if levels <= 0:
            raise JsonError(f"it is nested more than {LEVELS} levels deep")
        path = self._path
        path.append(0)
        made: Any
        if kind is list:
            made = []
            for path[-1], item in enumerate(value):
                made.append(self.of(item, levels - 1))
        else:
            made = {}
            for key, item in value.items():
                path[-1] = name = key if type(key) is str else self._key(key)
                if name in made:
                    path.pop()
                    raise self._wrong(f"two keys are {name!r} in JSON", ": ")
                made[self._text(name)] = self.of(item, levels - 1)
        path.pop()
        return made

    def _key(self, key: Any) -> str:
        """Return a key that is no plain text as text."""
        if self._exact:
            raise _Other
        name: Any = _listed(key) if _is_numpy(key) else key
        try:
            if name is None or isinstance(name, (tuple, frozenset, bytes)):
                raise TypeError
            if not isinstance(name, str) or isinstance(name, Enum):
                [name] = to_jsonable_python({name: None})
        except Exception:
            self._path.pop()
            raise self._wrong(f"key {_seen(key)} is {a_kind(key)}", ": ") from None
        return str.__str__(name)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self._path.clear()
            raise JsonError(f"it is larger than {SIZE >> 20} MB")

    def _text(self, value: str) -> str:
        self._count(len(value) if value.isascii() else 6 * len(value))
        half = None if value.isascii() else _HALF.search(value)
        if half is not None:
            raise self._wrong(f"holds half of a surrogate pair, {half[0]!a}")
        return value

    def _number(self, value: int | float) -> int | float:
        if -float_info.max <= value <= float_info.max:
            return value
        if isinstance(value, float):
            raise self._wrong(f"is {float.__repr__(value)}")
        raise self._wrong(f"is an int of {int(value.bit_length() * math.log10(2)) + 1:,} digits")

    def _wrong(self, what: str, gap: str = " ") -> JsonError:
        return JsonError(f"{self.place()}{gap}{told(what, 300)}")

    def _other(self, value: Any, levels: int) -> Json:
        """Copy what is no plain JSON in the form that it has as JSON."""
        if isinstance(value, Enum):
            return self.of(value.value, levels)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return self._number(int.__int__(value))
        if isinstance(value, float):
            return self._number(float.__float__(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(self._decoded(bytes(value)))
        if isinstance(value, dict):
            return self.of(dict(value), levels)
        package = type(value).__module__.partition(".")[0]
        if _is_numpy(value):
            return self._array(value, levels)
        if package == "pandas" and (not isinstance(value, date) or value != value):
            raise self._wrong(_pandas(value))
        if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
            return self._leaf(value, levels)
        if isinstance(value, Mapping):
            return self.of(dict(value.items()), levels)
        if isinstance(value, (Sequence, Set)) or type(value).__name__ == "deque":
            return self.of(self._items(value), levels)
        return self._leaf(value, levels)

    def _items(self, value: Any) -> list[Any]:
        """Return the items of a sequence or set; those of a set in an order that they have."""
        items = []
        for item in value:
            self._count(_NODE)  # so that a range without an end has one
            items.append(item)
        if isinstance(value, Set):
            try:
                return sorted(items)
            except TypeError:
                pass
        return items

    def _decoded(self, value: bytes) -> str:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as e:
            raise self._wrong(
                f"is bytes that are no UTF-8 (byte {e.start}): return text, base64 for one"
            ) from None

    def _array(self, value: Any, levels: int) -> Json:
        listed = value.tolist()
        if value.dtype.kind in "mM" or type(listed) is type(value):
            raise self._wrong(f"is {a_kind(value)} of numpy, {value.dtype}: return text or numbers")
        return self.of(listed, levels)

    def _leaf(self, value: Any, levels: int) -> Json:
        odd = isinstance(value, type) or (_is_scalar(value) and callable(value))
        if odd or isinstance(value, (Iterator, AsyncIterator)) or isawaitable(value):
            raise self._wrong(f"is {a_kind(value)}")
        self.unheard(value, levels)
        try:
            written = to_jsonable_python(value, fallback=_listed)
        except Exception as e:
            detail = "" if _is_scalar(value) else f" that holds what is not JSON ({raised(e)})"
            raise self._wrong(f"is {a_kind(value)}{detail}") from None
        if type(written) is type(value):
            raise self._wrong(f"is {a_kind(value)}")
        return self.of(written, levels)

    def unheard(self, value: Any, levels: int) -> None:
        """Refuse what pydantic would write as something that it is not, without a word."""
        if isinstance(value, Decimal) and not value.is_finite():
            raise self._wrong(f"is {value}")
        if isinstance(value, date) and value != value:
            raise self._wrong(_pandas(value))
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong(f"is {float.__repr__(value)}")
        if levels <= 0 or value is None or isinstance(value, (str, bytes, int, float)):
            return
        for key, item in _parts(value):
            self._count(_NODE)
            self._path.append(key)
            if isinstance(key, str):
                self._text(key)
            self.unheard(item, levels - 1)
            self._path.pop()


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, BaseModel):
        return [*value.__dict__.items(), *(value.__pydantic_extra__ or {}).items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    if isinstance(value, dict):
        return [(k if isinstance(k, str) else _seen(k), v) for k, v in value.items()]
    if _is_numpy(value):
        listed = value.tolist()
        value = listed if isinstance(listed, list) else [listed]
    return enumerate(value) if isinstance(value, (list, tuple, set, frozenset)) else ()


def _is_numpy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist")


def _listed(value: Any) -> Any:
    if _is_numpy(value):
        return value.tolist()
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{a_kind(value)} has no form in JSON")


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, BaseModel) and not dataclasses.is_dataclass(value)


def _pandas(value: Any) -> str:
    ways = {
        "DataFrame": ": return frame.to_dict('records')",
        "Series": ": return series.tolist() or series.to_dict()",
        "Index": ": return index.tolist()",
    }
    if isinstance(value, date):
        return "is NaT: return None where there is no time"
    return f"is {a_kind(value)} of pandas{ways.get(type(value).__name__, '')}"


def _seen(value: Any) -> str:
    try:
        return told(repr(value), 60)
    except Exception:
        return a_kind(value)
