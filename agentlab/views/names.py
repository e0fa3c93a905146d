"""Names of arms where there is little room: without what all of them share, cut in the middle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LONGEST_NAME = 34
"""Characters of a name beside a row."""


def called_beside(levels: Iterable[Any]) -> dict[Any, str]:
    """Return what levels are called beside rows: without the parts that all of them share."""
    known = list(dict.fromkeys(levels))
    parts = [str(level).split(" × ") for level in known]
    if len({len(p) for p in parts}) == 1 and len(known) > 1:
        same = [len(set(column)) == 1 for column in zip(*parts, strict=True)]
        parts = [[p for p, alike in zip(one, same, strict=True) if not alike] for one in parts]
    names = apart([" × ".join(one) for one in parts], LONGEST_NAME)
    return dict(zip(known, names, strict=True))


def apart(names: Sequence[str], length: int) -> list[str]:
    """Return names cut in the middle, as short as they may be without being taken for each other.

    Examples
    --------
    >>> apart(["search(noise=0.1) × retry", "search(noise=0.2) × retry"], 9)
    ['search(noi…1) × retry', 'search(noi…2) × retry']
    """
    while len({middle(name, length) for name in names}) < len(set(names)):
        length += 4
    return [middle(name, length) for name in names]


def middle(text: str, length: int) -> str:
    """Return text that is cut in the middle where it is long: both ends tell names apart.

    Examples
    --------
    >>> middle("retry_then_replan(2, wait=1)", 15)
    'retry_t…wait=1)'
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"
