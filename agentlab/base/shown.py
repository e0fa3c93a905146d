"""How records show themselves: one short line, and in a notebook a piece of HTML.

Both work on what is half built or damaged, since that is when somebody looks. The HTML is made by
``views``, which is higher: it is named and loaded when it is asked for, as ``run.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentlab.base.documents import shortened
from agentlab.base.face import load

LONGEST = 160
"""Characters of a line."""


def briefly(facts: Callable[[Any], list[Any]]) -> Callable[[Any], str]:
    """Return a ``__repr__`` of a record's most telling facts; empty ones are left out.

    Examples
    --------
    >>> briefly(lambda n: [n.real, "", f"{n.imag} of it"])(3)
    'int(3, 0 of it)'
    """

    def __repr__(self: Any) -> str:  # noqa: N807
        try:
            told = ", ".join(str(f) for f in facts(self) if f not in ("", None))
        except Exception:  # of a record that is half built or damaged
            told = "damaged"
        printable = "".join(c if c.isprintable() else " " for c in told)
        return f"{type(self).__name__}({shortened(' '.join(printable.split()), LONGEST)})"

    return __repr__


def shown_by(spec: str) -> Callable[[Any], str]:
    """Return a ``_repr_html_`` that is made by ``"module:function"``."""

    def _repr_html_(self: Any) -> str:
        return str(load(spec)(self))

    return _repr_html_


def cut(text: Any, length: int = 50) -> str:
    """Return text in quotes, cut; nothing where there is none."""
    return repr(shortened(" ".join(str(text).split()), length)) if text else ""


def amount(n: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
