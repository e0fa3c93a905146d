"""The pipes of an MCP server's process: what it says is read here, line by line, and nowhere else.

The SDK has a transport of its own for this. It reads a line of any length, logs a line that is no
message with a traceback, and hands on what it likes. Here a line has a limit, what is no message is
passed over in silence, and every message loses the server's secrets and is looked at before the
SDK's session sees it: so no part of a listing, result or error can hold one.

A server that says what cannot be read as a message of the protocol, though it calls itself one,
answers the call that it belongs to with that, or, where that cannot be told, ends the session.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

from agentlab.base.documents import DEPTH, Json
from agentlab.base.secrets import Secrets

LONGEST_LINE = 32 << 20
"""Bytes of one message: a few pictures, and what it takes of memory while it is read."""
MOST_WAITING = 1000
"""Messages to a server that does not read them; one more ends the session."""
GRACE = 2.0
"""Seconds that a server has to end when its pipe closes, and again when it is told to."""

UNREADABLE = "agentlab: what came is no message"
"""The data of an error that stands for an answer that could not be read."""

_ANSWERED = re.compile(
    rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,'
    rb'|"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)
_DIGITS = 400


@dataclass(slots=True, eq=False)
class Attempt:
    """One call: whether any of it may have reached the server."""

    sent: bool = False


ATTEMPT: ContextVar[Attempt | None] = ContextVar("agentlab_mcp_attempt", default=None)
"""The call that the task under way makes."""


class Pipe:
    """Both ends of a server's pipes, in the form of the SDK's streams.

    Parameters
    ----------
    process : anyio Process
    secrets : Secrets
        Hidden in whatever it says.

    Attributes
    ----------
    over : str or None
        Why nothing more comes; None: it goes on.
    """

    def __init__(self, process: Any, secrets: Secrets) -> None:
        import anyio

        self.process, self._secrets = process, secrets
        self.over: str | None = None
        self.received = 0
        self._lines: deque[bytes] = deque()
        self._begun = bytearray()
        self._turn, self._waiting = anyio.Lock(), 0

    # ---- what the server says ----------------------------------------------------------------

    async def receive(self) -> Any:
        """Return the next message.

        Raises
        ------
        anyio.EndOfStream
            There is none.
        """
        import anyio

        while self.over is None:
            line = await self._line()
            message = None if line is None else self._message(line)
            if message is not None and self.over is None:
                from mcp.shared.message import SessionMessage

                return SessionMessage(message)
        raise anyio.EndOfStream

    async def _line(self) -> bytes | None:
        """Return the next line; None: there is none, and ``over`` says why."""
        import anyio

        gone = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
        while not self._lines:
            try:
                chunk = await self.process.stdout.receive()
            except gone:
                self.over = self.over or "it ended"
                return None
            self.received += len(chunk)
            *done, rest = chunk.split(b"\n")
            if done:
                self._lines.extend([bytes(self._begun) + done[0], *done[1:]])
                self._begun.clear()
            self._begun += rest
            if len(self._begun) > LONGEST_LINE:
                self.over = f"it sent a line of more than {LONGEST_LINE >> 20} MB"
                self._begun.clear()
                return None
        return self._lines.popleft()

    def _message(self, line: bytes) -> Any:
        """Return the message of a line; None: it is none, or says what nobody here listens to."""
        from mcp.types import jsonrpc_message_adapter

        try:
            value = json.loads(line.decode("utf-8", "replace"), parse_int=_integer)
            if b"\\ud" in line or b"\\uD" in line:  # half a surrogate pair is no text
                text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
                value = json.loads(text)
        except (ValueError, RecursionError) as e:
            deep = isinstance(e, RecursionError)
            return self._unreadable(line, "is nested too deep" if deep else "is no JSON")
        if not isinstance(value, dict) or "jsonrpc" not in value:
            return None
        if "method" in value and "id" not in value:  # a notification
            return None
        try:
            number = value.get("id")
            value = {k: v if k == "id" else self._secrets.hidden(v) for k, v in value.items()}
            return jsonrpc_message_adapter.validate_python(value, by_name=False)
        except ValueError as e:
            deep = "nested" in str(e)[:20]
            why = f"is nested more than {DEPTH} levels deep" if deep else "is none of the protocol"
            return self._unreadable(line, why, number)

    def _unreadable(self, line: bytes, why: str, number: Json = None) -> Any:
        """Return an error for the call that a line answers, or end the session."""
        from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError

        if b'"jsonrpc"' not in line:
            return None
        if type(number) is not int:
            found = _ANSWERED.search(line[:200]) or _ANSWERED.search(line[-200:])
            number = int(found[1] or found[2]) if found else None
        if number is None:
            self.over = f"it sent a message that {why}"
            return None
        error = ErrorData(code=PARSE_ERROR, message=f"its answer {why}", data=UNREADABLE)
        return JSONRPCError(jsonrpc="2.0", id=number, error=error)

    # ---- what it is told -----------------------------------------------------------------------

    async def send(self, item: Any) -> None:
        """Write a message.

        Raises
        ------
        anyio.ClosedResourceError
            The session is over; nothing was written.
        """
        import anyio

        if self._waiting >= MOST_WAITING:
            self.over = self.over or "it does not read what it is told"
            with suppress(Exception):
                await self.process.stdout.aclose()
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._waiting += 1
        try:
            async with self._turn:
                if self.process.returncode is not None:  # its children may hold its pipes
                    self.over = self.over or "it ended"
                if self.over is not None:
                    raise anyio.ClosedResourceError
                attempt = ATTEMPT.get()
                if attempt is not None:
                    attempt.sent = True
                try:
                    await self.process.stdin.send((text + "\n").encode("utf-8", "replace"))
                except (anyio.BrokenResourceError, OSError) as e:
                    raise anyio.ClosedResourceError from e
        finally:
            self._waiting -= 1

    # ---- what a stream of the SDK's is beside --------------------------------------------------

    async def aclose(self) -> None:
        """Do nothing: ``opened`` closes the process."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def _integer(digits: str) -> float:
    """Return an integer; one of endless digits is no number that JSON has."""
    return int(digits) if len(digits) <= _DIGITS else float("inf")


@asynccontextmanager
async def opened(
    command: list[str], variables: dict[str, str], secrets: Secrets
) -> AsyncIterator[Pipe]:
    """Start a server; when left, it ends, with its children.

    Parameters
    ----------
    command : list of str
        Program and arguments.
    variables : dict
        The environment that it has, all of it.
    secrets : Secrets

    Raises
    ------
    OSError
        It cannot be started.
    """
    import anyio

    process = await anyio.open_process(
        command, env=variables, stderr=subprocess.DEVNULL, start_new_session=True
    )  # what a server says on stderr may hold anything
    pipe = Pipe(process, secrets)
    try:
        yield pipe
    finally:
        with anyio.CancelScope(shield=True):
            pipe.over = pipe.over or "it was ended"
            await _ended(process)


async def _ended(process: Any) -> None:
    """End a process and its group; every wait is bounded."""
    import anyio

    for stream in (process.stdin, process.stdout):  # who is stuck writing fails to write
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stream.aclose()
    await _exited(process)
    if os.name == "posix":
        from mcp.os.posix.utilities import terminate_posix_process_tree

        await terminate_posix_process_tree(process, GRACE)  # children, where it is gone itself
    elif process.returncode is None:
        process.kill()
    await _exited(process)
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:  # a child that left the group may hold a pipe; asyncio would wait
        with suppress(OSError):
            transport.close()


async def _exited(process: Any) -> None:
    """Wait a while for a process to end; not for its pipes, which a child may keep open."""
    import anyio

    with anyio.move_on_after(GRACE):
        while process.returncode is None:
            await anyio.sleep(0.01)
