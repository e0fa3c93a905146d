"""How often a run made each request, and with which seed: the place in a recording."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class Cursor:
    """How often each request was made in one run; thread-safe.

    Parameters
    ----------
    counts : mapping, optional
        Key to count, to go on from: a fork's cursor starts from its parent's counts.
    seed : int
        The run's, which tells its replies from those of another seed; default: that of a ``Lab``.
    """

    def __init__(self, counts: Mapping[str, int] | None = None, seed: int = 0) -> None:
        self.seed = seed
        self._before: Mapping[str, int] = {} if counts is None else counts
        self._news: dict[str, int] = {}
        self._lock = threading.Lock()

    def next(self, key: str) -> int:
        """Return the occurrence of this asking, from 0."""
        with self._lock:
            news = self._news.get(key, 0)
            self._news[key] = news + 1
            return self._before.get(key, 0) + news

    @property
    def counts(self) -> dict[str, int]:
        """Key to count, as JSON."""
        return {**self._before, **self.added_to(self._before)}

    def added_to(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return which of ``counts`` change, and to what, by what was counted here."""
        with self._lock:
            return {k: counts.get(k, 0) + n for k, n in self._news.items()}
