"""HTML made safely: text is escaped where an element is made, and only ``Html`` goes in as it is.

Names, results and errors come from tools, worlds and LMs. Nothing of them is ever markup, and
characters that no page can hold, or that reorder the text around them, are shown as U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from itertools import repeat
from pathlib import Path
from typing import Any

from agentlab.base.documents import shortened
from agentlab.views.text import plain

MOST_TEXT = 3000
"""Characters of one document that are shown."""

MOST_ROWS = 300
"""Rows of a table, and spans of a tree, that are shown."""

SHORT = 90
"""Characters that fit in a table's cell."""


class Html(str):
    """Text that is HTML already; only this package makes it."""

    __slots__ = ()


Child = Any
"""What an element may hold: ``Html``, text or a number, None (nothing), or an iterable of them."""

_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_VOID = frozenset({"br", "input"})


@cache
def beside(name: str) -> str:
    """Return the text of a file that lies beside this module: a style sheet, a frame."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def clean(text: Any) -> str:
    r"""Return text without characters that a page cannot hold or that reorder other text.

    Examples
    --------
    >>> clean("a\x00b\ud800")
    'a\ufffdb\ufffd'
    """
    return _UNFIT.sub("\ufffd", str(text).replace("\r\n", "\n"))


def markup(*children: Child) -> Html:
    """Join children into HTML; what is not ``Html`` is escaped.

    Examples
    --------
    >>> markup("a < b", None, [Html("<br>"), 3])
    'a &lt; b<br>3'
    """
    return Html("".join(_one(child) for child in children))


def _one(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return str(child)
    if isinstance(child, str):
        return escape(clean(child))
    if isinstance(child, Iterable):
        return markup(*child)
    return escape(clean(child))


def tag(element: str, *children: Child, **attributes: Any) -> Html:
    """Make an element.

    Parameters
    ----------
    element : str
        Its name.
    *children
        See ``Child``.
    **attributes
        ``class_`` is ``class``, other underscores become hyphens; True is an attribute without a
        value; None and False are left out.

    Examples
    --------
    >>> tag("p", "x & y", class_="note", data_step='"b"', hidden=None)
    '<p class="note" data-step="&quot;b&quot;">x &amp; y</p>'
    """
    parts = [element]
    for name, value in attributes.items():
        spelled = name.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(spelled)
        elif value is not None and value is not False:
            parts.append(f'{spelled}="{escape(clean(value))}"')
    opening = f"<{' '.join(parts)}>"
    if element in _VOID:
        return Html(opening)
    return Html(f"{opening}{markup(*children)}</{element}>")


def table(
    heads: Sequence[str], rows: Sequence[Sequence[Child]], marks: Sequence[tuple[str, bool]] = ()
) -> Html:
    """Return a table; a heading that begins with ">" makes a column of numbers.

    Parameters
    ----------
    heads, rows : sequence
    marks : sequence of (str, bool)
        Each row's step id, and whether it is selected.
    """
    numbers = ["num" if head.startswith(">") else None for head in heads]

    def row(element: str, cells: Sequence[Child], **attributes: Any) -> Html:
        made = [tag(element, c, class_=n) for c, n in zip(cells, numbers, strict=True)]
        return tag("tr", made, **attributes)

    body = []
    for cells, (step, chosen) in zip(rows, marks or repeat((None, False)), strict=False):
        classes = "agentlab-selected" if chosen else None
        body.append(row("td", cells, data_step=step, class_=classes))
    top = tag("thead", row("th", [head.removeprefix(">") for head in heads]))
    return tag("div", tag("table", top, tag("tbody", body)), class_="agentlab-scroll")


def pairs(facts: Iterable[tuple[str, Child]]) -> Html:
    """Return names with their values."""
    return tag("dl", [(tag("dt", k), tag("dd", v)) for k, v in facts])


def pre(value: Any) -> Html:
    """Show text as it is and other values as indented JSON, cut where it is long."""
    text = plain(value, indent=2)
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}\n… ({len(text):,} characters in all)"
    return tag("pre", text)


def brief(value: Any) -> str:
    """Return a value in one short line."""
    if value is None:
        return ""
    return shortened(" ".join(plain(value)[: 4 * SHORT].split()), SHORT)


def more(count: int) -> Html | None:
    """Say that of ``count`` rows only ``MOST_ROWS`` are shown; None when all are."""
    if count <= MOST_ROWS:
        return None
    return tag("p", f"{MOST_ROWS} of {count:,} are shown.", class_="agentlab-quiet")
