"""JSON documents: their identity, merge patches, and ways to show them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from sys import float_info
from typing import Any

from agentlab.errors import shortened as shortened

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

DEPTH = 256
"""Levels of lists and objects that a document may have."""


def percent(share: float, digits: int = 0) -> str:
    """Return a share as a percentage; a dash when it is unknown.

    Examples
    --------
    >>> percent(0.931), percent(0.931, 1), percent(float("nan"))
    ('93%', '93.1%', '–')
    """
    return "–" if share != share else f"{share:.{digits}%}"


def number(value: float, digits: int | None = None) -> str:
    """Return a number with so many digits behind the point (default: few); a dash when unknown.

    Examples
    --------
    >>> number(3), number(1234.5), number(-0.25, 2), number(float("nan"))
    ('3.0', '1234', '−0.25', '–')
    """
    digits = int(abs(value) < 100) if digits is None else digits
    return "–" if value != value else f"{value:.{digits}f}".replace("-", "−")


def interval(low: float, high: float) -> str:
    """Return the ends of an interval of shares, in per cent; a dash when they are unknown.

    Examples
    --------
    >>> interval(0.31, 0.552), interval(-0.05, 0.1), interval(float("nan"), float("nan"))
    ('31 … 55', '−5 … 10', '–')
    """
    return "–" if low != low else f"{number(100 * low, 0)} … {number(100 * high, 0)}"


_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical(value: Json) -> str:
    """Return the canonical JSON text of ``value``: sorted keys, no spaces, no NaN.

    Raises
    ------
    TypeError, ValueError
        ``value`` is not JSON.
    """
    return _CANONICAL.encode(value)


def digest(value: Json) -> str:
    """Return 16 hexadecimal digits that identify a JSON value in every process.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    data = canonical(value).encode("utf-8", "surrogatepass")  # JSON may spell a lone surrogate
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def merge_patch(target: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7386) without changing ``target``; share what is untouched.

    Examples
    --------
    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"b": {"c": None, "d": 3}})
    {'a': 1, 'b': {'d': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    if not patch and isinstance(target, dict):
        return target
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def composed(first: Mapping[str, Json], then: Mapping[str, Json]) -> dict[str, Json]:
    """Return the merge patch that does what ``first`` does, and after it what ``then`` does.

    Examples
    --------
    >>> composed({"a": {"b": None}, "c": 1}, {"a": {"d": 2}, "c": None})
    {'a': {'b': None, 'd': 2}, 'c': None}
    """
    patch = dict(first)
    for key, value in then.items():
        old = patch.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            patch[key] = composed(old, value)
        else:
            patch[key] = value
    return patch


def set_path(document: dict[str, Any], path: Sequence[str], value: Json) -> dict[str, Any]:
    """Return ``document`` with the value at ``path`` replaced, sharing every other subtree.

    Examples
    --------
    >>> set_path({"a": {"b": 1}, "c": 2}, ("a", "b"), 5)
    {'a': {'b': 5}, 'c': 2}
    """
    head, *rest = path
    inner = set_path(document.get(head, {}), rest, value) if rest else value
    return {**document, head: inner}


def is_json(value: Any, levels: int = DEPTH) -> bool:
    """Say whether ``value`` is JSON through and through, as the strict reader takes it.

    That is: string keys, numbers that a double can hold, at most ``DEPTH`` levels.
    """
    if value is None or isinstance(value, (bool, str)):
        return True
    if isinstance(value, (int, float)):
        return -float_info.max <= value <= float_info.max
    if isinstance(value, list):
        return levels > 0 and all(is_json(v, levels - 1) for v in value)
    if isinstance(value, dict):
        inner = (isinstance(k, str) and is_json(v, levels - 1) for k, v in value.items())
        return levels > 0 and all(inner)
    return False
