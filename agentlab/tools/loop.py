"""The event loop of async tools: one thread of a process, which starts with the first of them.

It is not the loop of the caller, who waits in his own thread, so a tool works in a cell of a
notebook, where a loop runs already, and from any number of threads: calls that wait overlap. Each
runs in a copy of its caller's context and is cancelled when nobody waits for it any more: at its
deadline, or when its token says so. What a call ignores it is left with.

A forked child has no such thread and starts one of its own. A loop that stopped to turn, because a
tool blocks it, is left to that tool; the next call starts another.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

from agentlab.errors import ToolFailure, raised
from agentlab.tools.cancel import CURRENT, CancelToken

_WITHIN: ContextVar[bool] = ContextVar("agentlab_async_tool", default=False)
"""True inside an async tool, and in what it calls, in other threads too."""

GRACE = 1.0
"""Seconds in which a call that was cancelled may end."""

_FOREIGN = (
    "attached to a different loop",
    "Event loop is closed",
    "bound to a different event loop",
)
_HINT = (
    "async tools run in an event loop of their own, so what belongs to a loop (a client, a lock, a "
    "connection) must be made inside the tool"
)


class _Call:
    """One awaitable under way.

    Attributes
    ----------
    ended : Event
    heard : Event
        Set when the loop has cancelled it.
    """

    def __init__(self, awaitable: Awaitable[Any], token: CancelToken) -> None:
        self._awaitable, self._context = awaitable, copy_context()
        self._context.run(CURRENT.set, token)
        self._context.run(_WITHIN.set, True)
        self.ended, self.heard = threading.Event(), threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start it, unless it was cancelled before; in the loop's thread."""
        self._task = loop.create_task(self._body(), context=self._context)
        self._task.add_done_callback(self._end)
        if self.heard.is_set():
            self._task.cancel()

    def cancel(self) -> None:
        """Cancel it; in the loop's thread."""
        self.heard.set()
        if self._task is not None:
            self._task.cancel()

    async def _body(self) -> None:
        try:
            self.value = await self._awaitable
        except BaseException as e:  # SystemExit would end the loop, and every other call with it
            self.error = e

    def _end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step
            self.error = asyncio.CancelledError()
            if inspect.iscoroutine(self._awaitable):
                self._awaitable.close()
        self.ended.set()


class Loop:
    """A loop in a thread."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self.forget()

    def forget(self) -> None:
        """Start anew: the thread is another process's, or no longer turns its loop."""
        self._lock = threading.Lock()
        self._kept.append(self.__dict__.get("_loop"))  # closing it would touch the other's files
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False

    def started(self) -> asyncio.AbstractEventLoop:
        """Return the loop, under way."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop, self._closing = asyncio.new_event_loop(), False
                self._thread = threading.Thread(
                    target=self._turn, args=(self._loop,), name="agentlab tools", daemon=True
                )
                self._thread.start()
            return self._loop

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._closing:
            try:
                loop.run_forever()
            except BaseException:  # a task that a tool left behind raised SystemExit
                continue
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def drop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave a loop that no longer turns to what blocks it."""
        with self._lock:
            if self._loop is loop:
                self._kept.append(loop)
                self._loop = self._thread = None

    def close(self) -> None:
        """Cancel what is under way, and end the thread."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            self._closing = True
            loop.call_soon_threadsafe(loop.stop)
            thread.join(GRACE)

    def wait(self, awaitable: Awaitable[Any], seconds: float, name: str) -> Any:
        """Return what an awaitable comes to.

        Parameters
        ----------
        awaitable : awaitable
        seconds : float
            Until it is cancelled.
        name : str
            The tool's.

        Raises
        ------
        ToolFailure
            "timeout", or "cancelled"; "exception" where a client belongs to another loop.
        BaseException
            What it raised.
        """
        outer, token = CURRENT.get(), CancelToken()
        call = _Call(awaitable, token)
        loop = self.started()
        token.when_cancelled(lambda: _soon(loop, call.cancel))
        if outer is not None:
            outer.when_cancelled(token.cancel)
        try:
            _soon(loop, lambda: call.begin(loop))
            late = not call.ended.wait(min(seconds, threading.TIMEOUT_MAX))
        except BaseException:  # Ctrl-C
            token.cancel()
            raise
        if late:
            token.cancel()
            if not call.ended.wait(GRACE) and not call.heard.is_set():
                self.drop(loop)
            if outer is None or not outer.cancelled:
                raise ToolFailure(f"{name} gave no answer in {seconds:g} s", code="timeout")
            call.ended.wait()  # nobody waits for this thread: what comes late is told of
        return _outcome(call, token)


def _soon(loop: asyncio.AbstractEventLoop, do: Any) -> None:
    with suppress(RuntimeError):  # it was closed: Python ends
        loop.call_soon_threadsafe(do)


def _outcome(call: _Call, token: CancelToken) -> Any:
    error = call.error
    if error is None:
        return call.value
    if isinstance(error, asyncio.CancelledError) and token.cancelled:
        raise ToolFailure("cancelled: nobody waits for it any more", code="cancelled") from error
    if _is_foreign(error):
        raise ToolFailure(f"{raised(error)}; {_HINT}", code="exception") from error
    if isinstance(error, KeyboardInterrupt):  # the tool's own: a person's comes to the caller
        raise ToolFailure(raised(error), code="exception") from error
    raise error


def _is_foreign(error: BaseException) -> bool:
    """Say whether something of another loop was used; libraries wrap such errors in their own."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return False
        if isinstance(seen, RuntimeError) and any(text in raised(seen) for text in _FOREIGN):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


LOOP = Loop()
atexit.register(LOOP.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOOP.forget)


def awaited(awaitable: Awaitable[Any], seconds: float, name: str) -> Any:
    """Return what the awaitable of a tool comes to (see ``Loop.wait``).

    What an async tool waits for itself, in a run that it makes, gets a loop of its own: the thread
    of the other may stand still meanwhile, and cannot wait for itself.
    """
    if not _WITHIN.get():
        return LOOP.wait(awaitable, seconds, name)
    inner = Loop()
    try:
        return inner.wait(awaitable, seconds, name)
    finally:
        inner.close()
