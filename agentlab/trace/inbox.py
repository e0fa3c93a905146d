"""What other threads tell a run: events, in a queue that its own thread takes from, and a pause."""

from __future__ import annotations

import threading
from datetime import datetime

from agentlab.errors import RunError
from agentlab.state.events import ContextChangeEvent


class Inbox:
    """A queue of events, and whether a pause is asked for; any thread may put, the run's takes."""

    def __init__(self) -> None:
        self.pause: str | None = None
        """Who asks for a pause that the run has not heard of; asking twice is asking once."""
        self._lock = threading.Lock()
        self._events: list[ContextChangeEvent] = []
        self._times: list[str] = []
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
            self._times.append(datetime.now().astimezone().isoformat(timespec="milliseconds"))

    def waiting(self, close: bool = False) -> tuple[ContextChangeEvent, ...]:
        """Return what waits; with ``close`` nothing comes after it."""
        with self._lock:
            self._open = self._open and not close
            return tuple(self._events)

    def times(self, number: int) -> list[str]:
        """Return when the first events were put in, by the wall clock, in ISO 8601."""
        with self._lock:
            return self._times[:number]

    def drop(self, number: int) -> None:
        """Take out the first events."""
        with self._lock:
            del self._events[:number], self._times[:number]

    def reopen(self) -> None:
        """Accept events again, where a run that had ended goes on; an old pause is forgotten."""
        with self._lock:
            if not self._open:
                self._open, self.pause = True, None
