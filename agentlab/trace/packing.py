"""What a store holds as bytes: JSON and spans, compressed; and what damaged bytes are told as."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from agentlab.base.documents import Json, is_json, shortened
from agentlab.base.fields import plain
from agentlab.errors import AgentLabError, StoreError
from agentlab.trace.requests import Reader, Writer
from agentlab.trace.span import COLUMNS, Span

_STRICT = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain
)


MOST_BYTES = 128 << 20
"""Of one value of a store, packed or not: a few bytes could unpack to what no memory holds."""


def pack(value: Any) -> bytes:
    """Return JSON data, persistent vectors and maps in it too, as compressed bytes.

    Raises
    ------
    StoreError
        They are more than ``MOST_BYTES``, so they could not be read again.
    """
    return _compressed(_STRICT.encode(value).encode("utf-8", "surrogatepass"))


def unpack(blob: bytes) -> Json:
    """Return what ``pack`` packed; empty bytes are an empty list.

    Raises
    ------
    StoreError
        They unpack to more than ``MOST_BYTES``.
    """
    return json.loads(_decompressed(blob)) if blob else []


def _compressed(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise StoreError(
            f"a store takes values of at most {MOST_BYTES >> 20} MB, got {len(data) >> 20} MB: "
            "keep what is so large in a file, and its name in the run"
        )
    return zlib.compress(data, 1)


def _decompressed(blob: bytes) -> bytes:
    stream = zlib.decompressobj()
    data = stream.decompress(blob, MOST_BYTES)
    if not stream.eof:
        if stream.unconsumed_tail:
            raise StoreError(f"a stored value unpacks to more than {MOST_BYTES >> 20} MB: refused")
        raise zlib.error("incomplete or truncated stream")
    return data


_ROW = attrgetter(*COLUMNS)
_ANYBODYS = tuple(map(COLUMNS.index, ("input", "output", "attributes")))
"""Columns whose values may be of users, their worlds, tools and nodes."""


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn what damaged contents of a results file lead to, when they are read, into one error."""
    try:
        yield
    except AgentLabError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as e:
        problem = " ".join(f"{type(e).__name__}: {e}".split())
        raise StoreError(
            f"{path}: what is stored there is damaged ({shortened(problem, 120)}); "
            "nothing was changed: take a copy from before, or another folder"
        ) from e


def pack_spans(spans: Iterable[Span], writer: Writer | None = None) -> bytes:
    """Return spans as compressed bytes; what is no JSON in them is an error.

    Parameters
    ----------
    spans : iterable of Span
    writer : Writer, optional
        Who wrote the spans before these; default: there were none.
    """
    rows = (writer or Writer()).rows(map(_ROW, spans))
    if not all(is_json(row[at]) for row in rows for at in _ANYBODYS):
        return pack(rows)
    try:  # several times as quick, and writes sets, dates and bytes as if they were JSON
        data = to_json(rows, fallback=plain, inf_nan_mode="constants")
    except PydanticSerializationError:  # a lone surrogate
        return pack(rows)
    return pack(rows) if b"NaN" in data or b"Infinity" in data else _compressed(data)


def unpack_spans(blob: bytes) -> list[list[Json]]:
    """Return the span rows that ``pack_spans`` packed."""
    return list(Reader().read(unpack(blob)))
