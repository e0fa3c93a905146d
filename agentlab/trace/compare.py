"""Holding two traces against each other: what is identical, and what is the first difference.

Identical means kind, name, address, input, output, error and simulated times. Ids, wall times and
what a replay need not repeat (attributes such as "served") do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentlab.base.documents import shortened
from agentlab.base.shown import briefly, shown_by
from agentlab.trace.span import Span


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found."""

    identical: bool
    visits: int
    """Visits of the recording."""
    matched: int
    """Visits that came out the same, from the start."""
    served: int
    """Calls to the outside that were served from the recording."""
    divergence: str | None = None
    """The first difference; None: there is none."""

    @property
    def coverage(self) -> float:
        """Share of the recorded visits that came out the same, 0 to 1."""
        return self.matched / self.visits if self.visits else 1.0

    __repr__ = briefly(lambda r: [str(r)])
    _repr_html_ = shown_by("agentlab.views.page.records:replay_page")

    def __str__(self) -> str:
        text = f"{self.matched} of {self.visits} visits identical, {self.served} calls served"
        return text if self.identical else f"{text}; first divergence: {self.divergence}"


_COMPARED = {
    "kind": 2, "name": 3, "visit": 4, "step_id": 5, "attempt": 6, "input": 7, "output": 8,
    "error": 9, "sim_start": 12, "sim_end": 13,
}  # fmt: skip
"""What makes two spans identical, with its place in a row; ids and wall times do not count."""


def rows(spans: Iterable[Span]) -> list[list[Any]]:
    """Return spans as the rows that are compared."""
    return [s.row() for s in spans]


def first_difference(recorded: list[list[Any]], now: list[list[Any]]) -> str | None:
    """Return the first difference between two lists of span rows, or None."""
    for old, new in zip(recorded, now, strict=False):
        for name, i in _COMPARED.items():
            if old[i] != new[i]:
                what = f"{old[2]} {old[3]!r} at visit {old[4]}"
                was, now_is = (shortened(repr(row[i]), 120) for row in (old, new))
                step = f", step {old[5]!r} attempt {old[6]}" if old[5] else ""
                return f"{what}{step}: {name} was {was}, now {now_is}"
    if len(recorded) != len(now):
        return f"{len(recorded)} spans were recorded, now {len(now)}"
    return None
