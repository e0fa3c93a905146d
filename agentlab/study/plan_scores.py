"""Scores of a single plan and its run: how like a reference it is, and how parallel it was.

They take sequences of step labels (any hashable) and edges (pairs of labels). Left out: validity
and redundancy of a plan (they need the environment); critical paths (see ``plans/``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence


def node_f1(
    plan: Iterable[Hashable], reference: Iterable[Hashable], *, multiset: bool = True
) -> float:
    """F1 of the plan's step labels against the reference's, order ignored.

    Parameters
    ----------
    plan, reference : iterables of labels (nodes), or of pairs of labels (edges)
    multiset : bool
        Whether a label counts as often as it occurs, or once.

    Returns
    -------
    float in [0, 1]; 1 if both are empty

    Examples
    --------
    >>> node_f1(["search", "search", "book"], ["search", "book"])
    0.8
    >>> node_f1(["search", "search", "book"], ["search", "book"], multiset=False)
    1.0
    """
    found, wanted = (Counter(x if multiset else set(x)) for x in (plan, reference))
    total = found.total() + wanted.total()
    return 2 * (found & wanted).total() / total if total else 1.0


def edge_f1(
    plan: Iterable[tuple[Hashable, Hashable]],
    reference: Iterable[tuple[Hashable, Hashable]],
    *,
    multiset: bool = True,
) -> float:
    """F1 of directed edges (label before, label after); as `node_f1`, for pairs.

    Examples
    --------
    >>> edge_f1([("a", "b"), ("b", "c")], [("a", "b"), ("c", "b")])
    0.5
    """
    return node_f1(plan, reference, multiset=multiset)


def normalised_edit_distance(
    plan: Sequence[Hashable], references: Iterable[Sequence[Hashable]]
) -> float:
    """Levenshtein distance over the longer length, minimum over the reference linearisations.

    Returns
    -------
    float in [0, 1]
        0: the plan is one of the references. 1: no step in common with any, in any order.

    Raises
    ------
    ValueError
        Without a reference.

    Examples
    --------
    >>> normalised_edit_distance("abc", ["acb", "abcd"])
    0.25
    """
    distances = [_levenshtein(plan, r) / max(len(plan), len(r), 1) for r in references]
    if not distances:
        raise ValueError("expected at least one reference linearisation, got none")
    return min(distances)


def parallel_efficiency(critical_path: float, makespan: float) -> float:
    """CP / M: 1 when nothing but dependencies held the plan up. Seconds; nan if M is 0.

    Examples
    --------
    >>> parallel_efficiency(critical_path=6.0, makespan=8.0)
    0.75
    """
    return _per_makespan(critical_path, makespan, "critical_path")


def speed_up(durations: Iterable[float], makespan: float) -> float:
    """Sum of durations over the makespan: 1 is a sequential run without waits. nan if M is 0.

    Examples
    --------
    >>> speed_up([4.0, 4.0, 2.0], makespan=5.0)
    2.0
    """
    return _per_makespan(sum(durations), makespan, "sum of durations")


def _per_makespan(seconds: float, makespan: float, name: str) -> float:
    if not (seconds >= 0 and makespan >= 0):
        raise ValueError(f"expected {name} and makespan >= 0, got {seconds!r} and {makespan!r}")
    return seconds / makespan if makespan else float("nan")


def _levenshtein(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (x != y)))
        previous = row
    return previous[-1]
