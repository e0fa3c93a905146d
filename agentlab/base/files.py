"""The one door to files that people name: suites, studies, agents, plans, scripts, recordings.

Only a regular file is read, and of it no more than a bound: a pipe would wait for ever, a device
has no end, and a file may be larger than memory. It is opened without waiting and looked at once it
is open, so that nothing can take its place between the look and the reading. ``-`` is standard
input where the caller says so; what is read again later, or elsewhere, must be a file.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from agentlab.errors import shortened

SIZE = 1 << 26
"""Bytes of a file of many records, one a line."""

DOCUMENT = 1 << 22
"""Bytes of a file that is one document, such as a study or a plan."""

STDIN = "-"
"""Names standard input."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_OTHER = ((b"\x1f\x8b", "gunzip it"), (b"\xff\xfe", "it is UTF-16"), (b"\xfe\xff", "it is UTF-16"))


def read_bytes(
    path: str | Path, problem: type[Exception], most: int = SIZE, *, stdin: bool = False
) -> bytes:
    """Return what a file holds; what cannot be read is ``problem``, which names the file.

    Parameters
    ----------
    path : str or Path
    problem : exception type
        What is raised, with one line of text.
    most : int
        Bytes that are read at most; a larger file is a problem.
    stdin : bool
        "-" is standard input.
    """
    try:
        if stdin and str(path) == STDIN:
            data = _stdin(most)
        else:
            with open(path, "rb", opener=_regular) as file:
                size = os.fstat(file.fileno()).st_size
                data = file.read(most + 1) if size <= most else b" " * (most + 1)
    except (OSError, ValueError, AttributeError) as e:  # the last: stdin of a notebook
        reason = getattr(e, "strerror", None) or e
        raise problem(f"{shown(path)}: cannot be read: {reason}") from e
    if len(data) > most:
        raise problem(f"{shown(path)}: cannot be read: more than {most:,} bytes")
    return data


def read_file(
    path: str | Path, problem: type[Exception], most: int = SIZE, *, stdin: bool = False
) -> str:
    """Return the text of a file in UTF-8, without a byte order mark (see ``read_bytes``)."""
    data = read_bytes(path, problem, most, stdin=stdin).removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = 1 + data.count(b"\n", 0, e.start)
        hint = next((f"; {told}" for mark, told in _OTHER if data.startswith(mark)), "")
        raise problem(
            f"{shown(path)}: cannot be read: byte {e.start}, in line {line}, is no UTF-8{hint}"
        ) from e


def is_file(path: str | Path) -> bool:
    """Return whether there is a file of that name; of a name that no file can have, False."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def exists(path: str | Path) -> bool:
    """Return whether there is anything of that name, if only a link that leads nowhere."""
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False


def shown(path: str | Path) -> str:
    """Return a path as messages name it."""
    return "standard input" if str(path) == STDIN else shortened(str(path), 300)


def _regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")
    raise ValueError(f"expected a file, it is {kind}")


def _stdin(most: int) -> bytes:
    if sys.stdin is None:
        raise ValueError("it is closed")
    data: bytes = sys.stdin.buffer.read(most + 1)
    return data
