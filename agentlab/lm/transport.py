"""HTTP within bounds: dspy's own transport, with an end for a call and a size for a reply.

dspy's transport follows no redirect and has no bound on a whole exchange: each read may take as
long as is allowed, and a body may be of any size, or grow by a factor of a million where it is
compressed. This one gives each socket operation what is left until the call's moment
(``agentlab.lm.deadline``), looks names up in a thread of its own, as nothing interrupts that, and
counts the bytes of a reply when they are unpacked. What breaks a bound closes the socket.

To be imported after ``load_dspy``.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from dspy._vendor.lm15.transports._exceptions import ConnectError, ConnectTimeout
from dspy._vendor.lm15.transports._sync import StdlibTransport, _SyncConnection
from dspy._vendor.lm15.transports._types import TransportResponse

from agentlab.lm.deadline import Elsewhere, Late, TooMuch, each_until, left, now, until

LONGEST_REPLY = 32 << 20
"""Bytes, unpacked. A stream wraps a token in some 250 bytes: 130,000 tokens. As JSON these may be
some 700 MB of Python's small objects, which a process survives."""
LONGEST_EVENT = 1 << 20
"""Bytes of one line of a stream; dspy's reader takes no longer event."""
PIECE = 1 << 14
"""Bytes that are read at once: packed, they are at most 16 MB."""
CONNECTIONS = 10_000
"""At once: threads are bound elsewhere, and who waits for a connection would not see the moment."""


class Bounded(StdlibTransport):
    """A transport whose exchanges end in time and in memory.

    Parameters
    ----------
    timeout : float
        Seconds of an exchange, where nobody set a moment.
    """

    def __init__(self, timeout: float, **options: Any) -> None:
        super().__init__(
            connect_timeout=min(10.0, timeout), read_timeout=timeout, write_timeout=timeout,
            pool_timeout=timeout, max_connections=CONNECTIONS, **options,
        )  # fmt: skip
        self.timeout = timeout

    def stream(self, request: Any) -> Any:
        """Send a request; return the reply, of which no more than the head was read."""
        moment = now() + self.timeout
        with until(moment):
            moment = now() + left()
            reply = super().stream(request)
        if reply.status // 100 == 3:
            reply.close()
            raise Elsewhere(f"HTTP {reply.status}")
        packed = [c for v in reply.headers_all("content-encoding") for c in v.split(",")]
        if len([c for c in packed if c.strip().lower() not in ("", "identity")]) > 1:
            reply.close()
            raise TooMuch("a reply that is packed more than once")
        chunks = _counted(each_until(moment, iter(reply)), moment)
        return Reply(
            status=reply.status, reason=reply.reason, headers=reply.headers,
            http_version=reply.http_version, chunks=chunks,
            release=lambda consumed: reply.close(),
        )  # fmt: skip

    def _open(
        self, parsed: Any, *, proxy: Any, origin: Any, connect_timeout: float
    ) -> _SyncConnection:
        """Connect; the look-up, the proxy and TLS take no longer than is left."""
        tls = self._tls_half() if parsed.is_tls else None
        host, port = (parsed.host, parsed.port) if proxy is None else (proxy.host, proxy.port)
        sock = _connected(host, port, connect_timeout)
        try:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if proxy is not None and parsed.is_tls:
                timed: Any = Timed(sock)
                self._connect_tunnel(timed, parsed, proxy, timeout=connect_timeout)
            if tls is not None:
                allowed = min(connect_timeout, left())
                sock = tls.wrap(sock, server_hostname=parsed.host, timeout=allowed)
        except BaseException as e:
            sock.close()
            if isinstance(e, ConnectError):
                left()  # it is our moment that came
            raise
        wrapped: Any = Timed(sock)  # as much of a socket as the transport uses
        return _SyncConnection(origin, wrapped)


class Reply(TransportResponse):
    """A reply whose lines have an end."""

    def iter_lines(self) -> Iterator[bytes]:
        """Yield lines with their ends."""
        begun: list[bytes] = []
        size = 0
        for chunk in self:
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                yield b"".join([*begun, line, b"\n"])
                begun, size = [], 0
            begun.append(rest)
            size += len(rest) + 1  # an empty piece is a piece
            if size > LONGEST_EVENT:
                raise TooMuch(f"a line of more than {LONGEST_EVENT >> 20} MB")
        if any(begun):
            yield b"".join(begun)


class Timed:
    """A socket each of whose operations takes at most what is left until the moment.

    Parameters
    ----------
    sock : socket
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._timeout = sock, float("inf")

    def settimeout(self, seconds: float) -> None:
        """Set what one operation may take, where less is not left."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Read some bytes."""
        self._sock.settimeout(min(self._timeout, left()))
        try:
            return self._sock.recv(min(size, PIECE))
        except TimeoutError:
            left()
            raise

    def sendall(self, data: bytes) -> None:
        """Write bytes."""
        rest = memoryview(data)
        while rest:
            self._sock.settimeout(min(self._timeout, left()))
            try:
                rest = rest[self._sock.send(rest[:65536]) :]
            except TimeoutError:
                left()
                raise

    def fileno(self) -> int:
        """Return its number, for ``select``."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close it."""
        self._sock.close()


def _counted(chunks: Iterator[bytes], moment: float) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        if now() > moment:  # what was read at once may be a thousand chunks
            raise Late
        size += len(chunk)
        if size > LONGEST_REPLY:
            raise TooMuch(f"more than {LONGEST_REPLY >> 20} MB")
        yield chunk


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection to the first of a host's addresses that takes one."""
    try:
        addresses = _looked_up(host, port)
        error: OSError = OSError("no address")
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(min(timeout, left()))
                sock.connect(address)
            except BaseException as e:
                sock.close()
                if not isinstance(e, OSError):
                    raise
                error = e
            else:
                return sock
        raise error
    except TimeoutError as e:
        left()
        raise ConnectTimeout(f"timed out connecting to {host}:{port}") from e
    except OSError as e:
        raise ConnectError(f"failed to connect to {host}:{port}: {e}") from e


def _looked_up(host: str, port: int) -> list[Any]:
    """Return a host's addresses; the thread that waits for them is left behind when it is late."""
    found: SimpleQueue[Any] = SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as e:  # UnicodeError, too: a name that cannot be one
            found.put(e)

    seconds = left()
    threading.Thread(target=look_up, name="agentlab-dns", daemon=True).start()
    try:
        result = found.get(timeout=None if seconds == float("inf") else seconds)
    except Empty:
        raise Late from None
    if isinstance(result, Exception):
        raise result if isinstance(result, OSError) else OSError(str(result))
    return list(result)
