"""How large a study may be, said before anything of it is made.

A study holds its cells in memory, and a number that was mistyped must not fill it: the product of
its axes is counted first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

from agentlab.errors import ConfigError, StudyError, seen
from agentlab.lab.named import WORKERS

CELLS = 1_000_000
"""Cells of a study, controls left out: some hundred bytes each, and a row of its frames."""

ARMS = 10_000
"""Arms of a grid: each is built, and compared with all others, before a run."""

SEED = 2**63
"""Seeds lie below this, and above its negative: they are columns of 64 bits."""


def check_cells(arms: int, scenarios: int, rates: int, seeds: int) -> None:
    """Refuse a study that is too large.

    Raises
    ------
    StudyError
        Says how many cells it would have.
    """
    cells = arms * scenarios * rates * seeds
    if cells > CELLS:
        raise StudyError(
            f"{arms:,} arms × {scenarios:,} scenarios × {rates:,} fault rates × {seeds:,} seeds "
            f"are {cells:,} runs; a study holds its runs in memory, at most {CELLS:,}: make several"
        )


def check_axes(values: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a grid of no arm or of too many, and numbers of workers that no label could say.

    Parameters
    ----------
    values : mapping
        Axis to its values.

    Raises
    ------
    StudyError
    """
    for number in values.get("workers", ()):
        if isinstance(number, int) and abs(number) > SEED:
            raise StudyError(f"expected a number of workers, got {seen(number)}")
    if any(not v for v in values.values()):
        raise StudyError("an axis of the grid has no value")
    arms = prod(map(len, values.values()))
    if arms > ARMS:
        raise StudyError(
            f"{arms:,} arms; each is built and compared with all others, so at most {ARMS:,} are "
            "taken: make several studies"
        )


def several(value: Any, what: str, most: int = WORKERS) -> int:
    """Return a number of workers, threads or processes.

    Raises
    ------
    ConfigError
        It is no whole number from 1 to ``most``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(
            f"expected a number of {what} from 1 to {most:,}, which is what one machine carries, "
            f"got {seen(value)}"
        )
    return int(value)


def seeds_of(value: Any) -> tuple[int, ...]:
    """Return the different seeds that a number, or several seeds, stand for.

    Raises
    ------
    StudyError
        There are none or too many, or one is no whole number of 64 bits.
    """
    seeds: list[Any] = []
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        seeds = list(islice(value, CELLS + 1))
    elif isinstance(value, int) and not isinstance(value, bool):
        seeds = list(range(min(value, CELLS + 1)))
    if len(seeds) > CELLS:
        asked = f"{value:,} seeds" if isinstance(value, int) and value < 10**30 else "these seeds"
        raise StudyError(
            f"{asked} are too many: a study holds its runs in memory, at most {CELLS:,}"
        )
    if not seeds or any(isinstance(s, bool) or not isinstance(s, int) for s in seeds):
        raise StudyError(
            f"seeds must be a number of at least 1 or a list of integers, got {seen(value)}"
        )
    if large := next((s for s in seeds if not -SEED < s < SEED), None):
        raise StudyError(f"a seed is a whole number of 64 bits, got {seen(large)}")
    return tuple(dict.fromkeys(map(int, seeds)))
