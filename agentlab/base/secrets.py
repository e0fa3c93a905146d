"""Secrets, and their removal from what others say.

A program that knows a key may say it: in an error, in a description, in a line of its log. Whoever
listens to one holds the keys that it was given as ``Secrets`` and hides them in whatever comes,
however it spells them: as they are, escaped as in JSON, in Python or in an address, in base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

from agentlab.base.documents import DEPTH, Json
from agentlab.errors import ConfigError

HIDDEN = "**********"
"""What stands in the place of a secret."""

_A_LINE = 16
"""Characters from which one line of a secret of several lines (a PEM file) is hidden alone."""

_PIN, _HUGE = 10**5, 10**400
"""Between them a number may be a secret; smaller ones are ports, limits and years."""


def spellings(secret: str) -> set[str]:
    """Return the ways in which a program would plausibly write a secret.

    Examples
    --------
    >>> found = spellings("a/b=")
    >>> {"a/b=", "a%2Fb%3D", "a%2fb%3d", r"a\\/b=", "YS9iPQ==", "YS9iPQ"} <= found
    True
    """
    plain = secret.strip()
    found = {secret, plain, *(line for line in plain.splitlines() if len(line) >= _A_LINE)}
    for _ in range(2):  # JSON in JSON, an address in an address
        found |= {escaped for text in found for escaped in _escaped(text)}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = {encode(_bytes(text)).decode() for text in (plain, secret)}
        found |= encoded | {text.rstrip("=") for text in encoded}
    return found - {""}


def _escaped(text: str) -> set[str]:
    addresses = {quote(_bytes(text)), quote(_bytes(text), safe=""), quote_plus(_bytes(text))}
    strings = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return addresses | {_lower(a) for a in addresses} | strings | {text.replace("/", "\\/")}


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # as the environment holds odd bytes
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _lower(address: str) -> str:
    """Return an address with the other spelling of its escapes: ``%2f`` for ``%2F``."""
    head, *escapes = address.split("%")
    return head + "".join(f"%{e[:2].lower()}{e[2:]}" for e in escapes)


class Secrets:
    """Values that are shown nowhere: not in a ``repr``, a traceback with locals or a pickle.

    Parameters
    ----------
    values : iterable of str
    shortest : int
        Characters from which a value is taken for a secret; a shorter one ("on", "5") is none.
    """

    __slots__ = ("_spellings",)

    def __init__(self, values: Iterable[str], shortest: int = 4) -> None:
        known = {s for v in values if len(v.strip()) >= shortest for s in spellings(v)}
        ordered = sorted(known, key=lambda s: (-len(s), s))
        # A closure: nothing that shows attributes shows it.
        self._spellings: Callable[[], list[str]] = lambda: ordered

    def __repr__(self) -> str:
        return f"Secrets({HIDDEN})"

    def __reduce__(self) -> NoReturn:
        raise ConfigError("secrets do not cross processes; read them from the environment there")

    def hide(self, text: str, mark: str = HIDDEN) -> str:
        """Return ``text`` without any of them."""
        for spelling in self._spellings():
            if spelling in text:
                text = text.replace(spelling, mark)
        return text

    def hidden(self, value: Json, levels: int = DEPTH) -> Json:
        """Return a JSON value without any of them, in keys as in values.

        Raises
        ------
        ValueError
            It has more than ``levels`` levels.
        """
        if isinstance(value, str):
            return self.hide(value)
        if not isinstance(value, (dict, list)):
            return self._number(value)
        if levels <= 0:
            raise ValueError("nested too deep")
        if isinstance(value, list):
            return [self.hidden(v, levels - 1) for v in value]
        return {self.hide(k): self.hidden(v, levels - 1) for k, v in value.items()}

    def _number(self, value: Any) -> Json:
        """Return a number as it is, or the mark where it is a secret (a PIN, no port)."""
        if isinstance(value, bool) or not isinstance(value, int) or not _PIN <= abs(value) < _HUGE:
            return value
        return HIDDEN if str(value) in self._spellings() else value
