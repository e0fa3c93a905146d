"""A queue of events that other threads put and the run's own takes."""

from __future__ import annotations

import threading

from agentlab.errors import RunError
from agentlab.state.events import ContextChangeEvent


class Inbox:
    """A queue of events; any thread may put, the run's own takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[ContextChangeEvent] = []
        self._open = True

    def put(self, event: ContextChangeEvent) -> None:
        """Add an event.

        Raises
        ------
        RunError
            The run has ended.
        """
        with self._lock:
            if not self._open:
                raise RunError(f"the run has ended; nobody hears of {event.type} any more")
            self._events.append(event)

    def waiting(self, close: bool = False) -> tuple[ContextChangeEvent, ...]:
        """Return what waits; with ``close`` nothing comes after it."""
        with self._lock:
            self._open = self._open and not close
            return tuple(self._events)

    def drop(self, number: int) -> None:
        """Take out the first events."""
        with self._lock:
            del self._events[:number]

    def reopen(self) -> None:
        """Accept events again, after a run that had ended was rewound."""
        with self._lock:
            self._open = True
