"""Endpoints of one model, told apart: by their shortest difference, and without what may be secret.

``openai/m@http://127.0.0.1:8001/v1`` and ``openai/m@http://127.0.0.1:8002/v1`` are called
``openai/m@:8001`` and ``openai/m@:8002``. Where machines or ports differ, they are what is shown. A
user, a password, a query or a fragment in an address is never shown; where nothing else differs, a
few digits of a digest stand for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import NamedTuple
from urllib.parse import urlsplit

from agentlab.base.documents import digest

DIGITS = 4
"""Of a digest, behind what would be called the same otherwise."""


class Address(NamedTuple):
    """What may be shown of an address; empty: it has none."""

    scheme: str = ""
    host: str = ""
    port: str = ""
    path: str = ""

    def text(self) -> str:
        """Return it as an address."""
        return f"{self.scheme and self.scheme + '://'}{self.host}{self.port}{self.path}"


def model_of(lm: str) -> str:
    """Return a model's name without its address."""
    return lm.partition("@")[0]


def address_of(lm: str) -> Address:
    """Return what may be shown of the address in a model's name."""
    told = lm.partition("@")[2]
    try:
        parts = urlsplit(told)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:  # no address, and it may hold what addresses hold
        return Address()
    name = (parts.hostname or "").partition(";")[0]
    if not name:  # a path, or a version as Vertex AI has it: claude@20240620
        plain = told.rpartition("@")[2]
        return Address(path="" if ":" in plain or "://" in told else plain)
    host = f"[{name}]" if ":" in name else name
    return Address(parts.scheme, host, port, parts.path.partition(";")[0].rstrip("/"))


def asked_at(lm: str) -> tuple[str, str]:
    """Return how requests call a model, and where it is asked; empty: at its vendor's address."""
    kind, _, script = lm.partition(":")
    if kind == "scripted":
        return "scripted/model", script
    place = address_of(lm).text() or f"#{digest(lm)}"
    return model_of(lm).partition("?")[0], place if "@" in lm else ""


def apart(lms: Iterable[str]) -> dict[str, str]:
    """Return what follows the name of one model, for each of its endpoints.

    Parameters
    ----------
    lms : iterable of str
        Different names with the same ``model_of``.

    Returns
    -------
    dict
        Name to text: all are different, and only a name without an address has none.
    """
    addresses = {lm: address_of(lm) for lm in lms}
    for forms in (_MACHINES, _PLACES):
        found = [{lm: shown(address) for lm, address in addresses.items()} for shown in forms]
        telling = [told for told in found if _tells(told)]
        if telling:
            break
    else:
        digits = {lm: digest(lm) for lm in addresses}
        n = next(
            n for n in range(DIGITS, 65) if len({d[:n] for d in digits.values()}) == len(digits)
        )
        return {lm: f"#{d[:n]}" for lm, d in digits.items()}
    best = min(telling, key=lambda told: sum(map(len, told.values())))
    return {lm: text and f"@{text}" for lm, text in best.items()}


def _tells(told: dict[str, str]) -> bool:
    plain = all(text or "@" not in lm for lm, text in told.items())
    return plain and len(set(told.values())) == len(told)


def _machine(address: Address) -> str:
    """Return the first part of a host's name; of a number all of it."""
    number = address.host.startswith("[") or address.host.replace(".", "").isdecimal()
    return address.host if number else address.host.partition(".")[0]


def _form(fields: tuple[str, ...]) -> Callable[[Address], str]:
    return lambda address: Address(**{f: getattr(address, f) for f in fields}).text()


_Forms = list[Callable[[Address], str]]
_MACHINES: _Forms = [
    lambda address: address.port,
    _machine,
    lambda address: _machine(address) + address.port,
    lambda address: address.host,
    lambda address: address.host + address.port,
]
_PLACES: _Forms = [_form(f) for n in (1, 2, 3, 4) for f in combinations(Address._fields, n)]
