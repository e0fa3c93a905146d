"""Budgets as text, as grids, files and commands take them: ``replans=3,seconds=60``.

A budget's text names bounds by their kind, the fields of ``Budget``; they take the place of the
strategy's own, and what is not named stays as it is. A text with several values of a kind stands
for several budgets, every combination: ``replans=1,3,10`` for three, ``replans=1,3,seconds=60,120``
for four. ``none`` is no bound. One budget has one spelling: kinds in the order of ``Budget``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import product
from math import prod
from typing import Any

from agentlab.base.arrived import seen
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.minds.strategies.base import Budget, Strategy

KINDS = tuple(f.name for f in fields(Budget))
"""What can be bounded."""

MOST = 10**15
"""The largest bound; up to here a number is as exact in every form."""

_EXAMPLE = "a budget such as 'replans=3', 'replans=3,seconds=60' or {'replans': 3}"

Bound = int | float | None


def budget_levels(budget: Any) -> tuple[str, ...]:
    """Return the budgets that a text, a mapping or a ``Budget`` stands for, each as its text.

    Parameters
    ----------
    budget : str, mapping or Budget
        A mapping gives each kind a bound or a list of bounds; a ``Budget`` bounds all that it
        has, so it takes the place of the strategy's whole budget.

    Returns
    -------
    tuple of str
        Every combination once, the last kind varying fastest.

    Raises
    ------
    ConfigError
        It names no bound, an unknown kind, or a bound that is none.

    Examples
    --------
    >>> budget_levels("replans=1, 3")
    ('replans=1', 'replans=3')
    >>> budget_levels({"seconds": 60, "replans": [0, 1]})
    ('replans=0,seconds=60', 'replans=1,seconds=60')
    """
    named = _named(budget)
    if not named:
        raise ConfigError(f"expected {_EXAMPLE}, got {seen(budget)}")
    return tuple(
        _text(dict(zip(named, bounds, strict=True))) for bounds in product(*named.values())
    )


def budget_text(budget: Any) -> str:
    """Return the one spelling of a budget.

    Raises
    ------
    ConfigError
        It is none, or several (see ``budget_levels``).
    """
    levels = budget_levels(budget)
    if len(levels) > 1:
        raise ConfigError(
            f"expected one bound of each kind, got {seen(budget)}, which stands for {len(levels)} "
            "budgets; give them to a grid"
        )
    return levels[0]


def bounded(strategy: Strategy, budget: str) -> Strategy:
    """Return a strategy with the bounds that a budget names in place of its own."""
    return strategy.within(**{kind: bounds[0] for kind, bounds in _named(budget).items()})


def budget_words(levels: Iterable[str]) -> list[str] | None:
    """Return texts, one a kind, whose combinations are these budgets; None: there are none."""
    levels = list(levels)
    if not levels:
        return []
    found: dict[str, dict[Bound, None]] = {}
    for level in levels:
        for kind, bounds in _named(level).items():
            found.setdefault(kind, {}).update(dict.fromkeys(bounds))
    words = [f"{kind}={','.join(map(_number, bounds))}" for kind, bounds in found.items()]
    whole = len(levels) == prod(map(len, found.values()))
    return words if whole and set(budget_levels(",".join(words))) == set(levels) else None


def _named(budget: Any) -> dict[str, list[Bound]]:
    """Return each kind that is named with its different bounds, in the order of ``Budget``."""
    if isinstance(budget, Budget):
        pairs: Iterator[tuple[Any, Any]] = ((kind, getattr(budget, kind)) for kind in KINDS)
    elif isinstance(budget, Mapping):
        pairs = ((k, b) for k, v in budget.items() for b in _listed(v))
    elif isinstance(budget, str):
        pairs = _spelled(budget)
    else:
        raise ConfigError(f"expected {_EXAMPLE}, got {seen(budget)}")
    found: dict[str, dict[Bound, None]] = {}
    for kind, value in pairs:
        if kind not in KINDS:
            raise ConfigError(str(UnknownNameError("kind of budget", str(kind), KINDS)))
        found.setdefault(kind, {})[_bound(kind, value)] = None
    return {kind: list(found[kind]) for kind in KINDS if kind in found}


def _listed(value: Any) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ConfigError(f"expected {_EXAMPLE}, got no bound")
    return values


def _spelled(text: str) -> Iterator[tuple[str, str]]:
    """Yield each kind with each of its values, as they are spelled."""
    kind = ""
    for part in text.split(",") if text.strip() else ():
        name, given, value = part.partition("=")
        if given:
            kind = name.strip()
        elif not kind:
            raise ConfigError(f"expected {_EXAMPLE}, got {text!r}; kinds: {', '.join(KINDS)}")
        yield kind, (value if given else part).strip()


def _bound(kind: str, value: Any) -> Bound:
    """Return a bound of this kind; of text, what it spells."""
    bound = value
    if isinstance(value, str):
        bound = None if value == "none" else _read(kind, value)
    try:
        made: Bound = getattr(Budget(**{kind: bound}), kind)
    except ConfigError as e:
        raise ConfigError(f"budget {kind}: {str(e).rpartition(f'field {kind}: ')[2]}") from None
    if made is not None and made > MOST:
        raise ConfigError(f"budget {kind}: expected at most {MOST:,}, got {repr(value)[:40]}")
    return int(made) if isinstance(made, float) and made.is_integer() else made


def _read(kind: str, text: str) -> int | float:
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", text):
        what = "a number or none" if getattr(Budget(), kind) is None else "a number"
        raise ConfigError(f"budget {kind}: expected {what}, got {text[:40]!r}")
    return (
        int(text) if text.lstrip("+-").isdecimal() and len(text) <= len(str(MOST)) else float(text)
    )


def _text(bounds: Mapping[str, Bound]) -> str:
    return ",".join(f"{kind}={_number(bound)}" for kind, bound in bounds.items())


def _number(bound: Bound) -> str:
    return "none" if bound is None else repr(bound)
