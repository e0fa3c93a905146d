"""The one thread in which a run with one worker makes its calls.

What a tool keeps between its calls may belong to the thread that made it (an ``sqlite3`` connection
does), so the calls of such a run are made in one thread, which lives as long as the run, its later
turns included. A call that does not end keeps its thread; those after it are made in another.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from agentlab.tools.calls import ToolError

Work = tuple[Callable[[], Any], Callable[[Any], None]]
"""What is to be called, and who gets what it returned."""


class Worker:
    """Carries calls out one after the other, in one thread that the first of them starts.

    The thread ends when the worker is gone, or ``end`` was called.
    """

    def __init__(self) -> None:
        self._line: _Line | None = None

    def carry(self, call: Callable[[], Any], then: Callable[[Any], None]) -> threading.Thread:
        """Let the thread make a call, and return it; a new one where the last call still goes on.

        Parameters
        ----------
        call, then : callable
            ``then`` is called in the same thread with what ``call`` returned.
        """
        line = self._line
        if line is None or line.busy.is_set() or not line.thread.is_alive():
            self.end()
            line = self._line = _Line()
        line.busy.set()
        line.todo.put((call, then))
        return line.thread

    def end(self) -> None:
        """Let the thread end, at once or after the call that it is at."""
        line, self._line = self._line, None
        if line is not None:
            line.todo.put(None)

    def rest(self, kept: bool) -> None:
        """Leave a thread that is stuck; keep an idle one for the run's next turn.

        Parameters
        ----------
        kept : bool
            Count it among those that are kept for runs that ended, of which the oldest must go.
        """
        if self._line is not None and self._line.busy.is_set():
            self.end()
        if self._line is None or not kept:
            return
        with _IDLE_LOCK:
            if (here := weakref.ref(self)) in _IDLE:
                _IDLE.remove(here)
            _IDLE.append(here)
            gone = [_IDLE.popleft()() for _ in range(len(_IDLE) - MOST_IDLE)]
        for worker in gone:
            if worker is not None:
                worker.end()


MOST_IDLE = 32
"""Threads that are kept for runs that ended, in case that there is another turn."""
_IDLE: deque[weakref.ref[Worker]] = deque()
_IDLE_LOCK = threading.Lock()


class _Line:
    """A thread, what it is to do, and whether it does something."""

    def __init__(self) -> None:
        self.todo: SimpleQueue[Work | None] = SimpleQueue()
        self.busy = threading.Event()
        given = (self.todo, self.busy)  # and not the line itself, which would then never be gone
        self.thread = threading.Thread(
            target=_work, args=given, name="agentlab calls", daemon=True
        )  # fmt: skip
        self.thread.start()
        weakref.finalize(self, self.todo.put, None).atexit = False


def _work(todo: SimpleQueue[Work | None], busy: threading.Event) -> None:
    while (work := todo.get()) is not None:
        call, then = work
        returned = call()
        busy.clear()  # before anybody hears of it, who might have the next call made at once
        then(returned)
        del work, call, then, returned  # nothing of a run is held while there is nothing to do


_OF_A_THREAD = re.compile(r"(same|main|wrong|different|another|other) thread|in thread 'agentlab")
THREAD_HINT = (
    "; calls are made in a thread of the run's own: make there what belongs to a thread (open "
    "sqlite3 with check_same_thread=False), or let tools be called in your thread with "
    "Lab(executor='simulated')"
)


def hinted(error: ToolError | None) -> ToolError | None:
    """Return an error with what to do, where a tool used what belongs to another thread."""
    if error is None or error.code != "exception" or not _OF_A_THREAD.search(error.message):
        return error
    return error.replace(message=f"{error.message}{THREAD_HINT}")
