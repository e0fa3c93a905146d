"""Lists in the words of a command: one splitter, and what its parts must be."""

from __future__ import annotations

from collections.abc import Sequence

from agentlab.errors import ConfigError, seen
from agentlab.minds.strategies.budgets import budget_levels


def parse_rates(text: str) -> tuple[float, ...]:
    """Return the fault rates in a text such as ``0,0.1,0.3``.

    Raises
    ------
    ConfigError
        A part is no number.

    Examples
    --------
    >>> parse_rates("0, 0.1")
    (0.0, 0.1)
    """
    try:
        return tuple(float(part) for part in parts_of(text))
    except ValueError as e:
        raise ConfigError(
            f"expected fault rates between 0 and 1 such as '0,0.1,0.3', got {seen(text)}"
        ) from e


def parse_workers(text: str) -> tuple[int, ...]:
    """Return the numbers of workers in a text such as ``1,4``.

    Raises
    ------
    ConfigError
        A part is no whole number of at least 1.
    """
    parts = parse_names(text)
    if not all(part.isdecimal() and len(part) < 10 and int(part) for part in parts):
        raise ConfigError(f"expected --workers of at least 1 such as '1,4', got {seen(text)}")
    return tuple(dict.fromkeys(map(int, parts)))


def parse_budgets(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the budgets in texts such as ``replans=1,3`` and ``seconds=60``: all combinations.

    Raises
    ------
    ConfigError
        A kind of budget is unknown, or a bound is none.

    Examples
    --------
    >>> parse_budgets(["replans=1,3", "seconds=60"])
    ('replans=1,seconds=60', 'replans=3,seconds=60')
    """
    return budget_levels(",".join(texts))


def parse_names(text: str) -> tuple[str, ...]:
    """Return the different parts of a text such as ``autonomous,retry(2, wait=1)``, in order."""
    return tuple(dict.fromkeys(parts_of(text)))


def parts_of(text: str) -> list[str]:
    """Return the parts of a list: commas in brackets or quotes part nothing.

    Examples
    --------
    >>> parts_of("retry(2, wait=1), never")
    ['retry(2, wait=1)', 'never']
    """
    parts, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        else:
            depth += (c in "([{") - (c in ")]}")
        if c == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def parse_seeds(text: str) -> int | tuple[int, ...]:
    """Return the seeds in a text such as ``10`` (0 to 9) or ``1,2,3`` (these).

    Raises
    ------
    ConfigError
        A part is no whole number of at least 0, or a number of seeds is 0.

    Examples
    --------
    >>> parse_seeds("10"), parse_seeds("1,2,5")
    (10, (1, 2, 5))
    """
    parts = parts_of(text)
    if not all(part.isdecimal() and len(part) < 16 for part in parts) or parts == ["0"]:
        raise ConfigError(
            f"'--seeds': expected a number such as '10' (seeds 0 to 9) or a list such as '1,2,3', "
            f"got {seen(text)}"
        )
    return int(parts[0]) if len(parts) == 1 else tuple(dict.fromkeys(map(int, parts)))
