"""The cancel token: how a tool that takes long hears that nobody waits for it any more.

A tool asks for the token of the call that it is carrying out, wherever it is in its own code::

    @agentlab.tool(timeout=5)
    def fetch(url: str) -> str:
        token = agentlab.cancel_token()
        while not ready(url):
            token.wait(0.2)  # sleeps, and wakes up when the call is cancelled
            token.check()  # raises, which ends the call
        return read(url)

A context variable carries it, so a tool needs no parameter for it, and works the same where nobody
ever cancels. Threads that the tool starts itself have to be given their context.

An ``async def`` tool need not ask: it is cancelled as tasks are, by an ``asyncio.CancelledError``
where it awaits something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

from agentlab.errors import ToolFailure


class CancelToken:
    """Says whether the call was cancelled, or ran into its deadline."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._told: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        """True when nobody waits for the call any more."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Cancel the call; any thread may do so."""
        with self._lock:
            self._event.set()
            told, self._told = self._told, []
        for tell in told:
            tell()

    def when_cancelled(self, tell: Callable[[], object]) -> None:
        """Have ``tell`` called, by whoever cancels; at once where that was done."""
        with self._lock:
            if not self.cancelled:
                self._told.append(tell)
                return
        tell()

    def wait(self, seconds: float) -> bool:
        """Sleep for so many seconds, or until the call is cancelled; return whether it was."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raise where the call was cancelled.

        Raises
        ------
        ToolFailure
            With code "cancelled".
        """
        if self.cancelled:
            raise ToolFailure("cancelled: nobody waits for it any more", code="cancelled")


CURRENT: ContextVar[CancelToken | None] = ContextVar("agentlab_cancel_token", default=None)


def cancel_token() -> CancelToken:
    """Return the token of the call under way; where there is none, one that nobody cancels."""
    return CURRENT.get() or CancelToken()
