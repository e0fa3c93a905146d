"""How often a run made each request: the place in a recording."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class Cursor:
    """How often each request was made in one run; thread-safe.

    Parameters
    ----------
    counts : mapping, optional
        Key to count, to go on from: a fork's cursor starts from its parent's counts.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})
        self._lock = threading.Lock()

    def next(self, key: str) -> int:
        """Return the occurrence of this asking, from 0."""
        with self._lock:
            count = self._counts.get(key, 0)
            self._counts[key] = count + 1
            return count

    @property
    def counts(self) -> dict[str, int]:
        """Key to count, as JSON."""
        with self._lock:
            return dict(self._counts)
