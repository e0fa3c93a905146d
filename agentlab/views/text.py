"""Text for people: control characters made visible, values as JSON, numbers with their nouns."""

from __future__ import annotations

import json
from typing import Any

from agentlab.base.documents import shortened
from agentlab.base.fields import thaw


def visible(text: Any) -> str:
    r"""Return text with its control characters spelt out; line breaks and tabs stay.

    Examples
    --------
    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def line(text: Any, length: int = 0) -> str:
    """Return text on one line, cut after ``length`` characters (0: not cut)."""
    joined = " ".join(visible(text).split())
    return shortened(joined, length or len(joined))


def counted(n: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON to read; what is no JSON is shown as Python spells it.

    Examples
    --------
    >>> json_text({"from": "Köln", "ids": (1, 2)})
    '{"from": "Köln", "ids": [1, 2]}'
    """
    try:
        return json.dumps(thaw(value), indent=indent, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def plain(value: Any, indent: int | None = None) -> str:
    """Return text as it is, and other values as JSON."""
    return value if isinstance(value, str) else json_text(value, indent)
