"""Record what a language model said, and serve it again.

**Key.** A recording is found by (key, occurrence). The key is the digest of the request document:
the canonical JSON (sorted keys, no spaces, empty optional fields left out) of everything that
reaches the endpoint::

    {"model", "messages", "system", "tools", "config": {"max_tokens", "temperature", "top_p",
     "response_format", "stop", "seed", ...}}

so another model, temperature or word of the prompt is another request. Address, key, timeout and
retries are not part of it. The occurrence counts the same request within one run, from 0, by the
run's ``Cursor``: the first asking gets the first reply, and another run gets the same replies, in
whatever order runs and threads go.

**File.** JSON lines, a recording a line::

    {"key", "occurrence", "model", "settings", "request", "response", "usage", "cost"}

``cost`` is what the call cost when it was made, US dollars or null. ``chunks`` holds the sizes of
the text deltas where it was streamed, and in place of a response there may be an ``error``: a
request that the endpoint rejected for good is rejected again. While recording, lines are appended
under a file lock, so threads and processes may share a file; ``close`` puts them in the order of
(key, occurrence), so a file differs only where a recording does. Where a recording was made twice,
the later line counts. A name that ends in ``.gz`` is compressed. A last line that was torn by a
crash is left out with a warning, and cut off by the next writer; any other damage is an error.

**Modes.** ``replay`` serves and never asks; a miss raises RecordingMiss, which shows the nearest
recording and what differs. ``record`` always asks and writes. ``replay_or_call`` serves what
there is and asks for the rest; two runs that ask the same at the same time get one reply: threads
wait for each other, and of two processes the first to write counts (what the other has already
streamed stays said).
"""

from __future__ import annotations

import gzip
import json
import os
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, get_args

from agentlab.base.values import Json, canonical
from agentlab.errors import ConfigError, ReplayError, suggest

try:
    import fcntl
except ImportError:  # Windows: one process at a time writes
    fcntl = None  # type: ignore[assignment]

Mode = Literal["replay", "record", "replay_or_call"]
Line = dict[str, Json]

FIELDS = (
    "key", "occurrence", "model", "settings", "request", "response", "error", "usage", "cost",
    "chunks",
)  # fmt: skip
"""Fields of a line, in order; ``error`` and ``chunks`` only where they apply."""


class Recording:
    """A file of recorded calls, shared by the runs of a process.

    Parameters
    ----------
    path : str or Path
        ``.jsonl`` or ``.jsonl.gz``.
    mode : {"replay", "record", "replay_or_call"}

    Raises
    ------
    ConfigError
        The mode is unknown.
    ReplayError
        In mode ``replay``: there is no such file; in any: it is damaged.
    """

    def __init__(self, path: str | Path, mode: Mode = "replay") -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"recording mode {mode!r}; {suggest(mode, get_args(Mode))}")
        self.path, self.mode = Path(path), mode
        if mode == "replay" and not self.path.is_file():
            raise ReplayError(f"there is no recording {self.path}")
        self._tape: dict[tuple[str, int], Line] = {}
        self._at, self._seen = 0, _Seen()  # how far of which file was read
        self._lock = threading.RLock()
        self._pending: dict[tuple[str, int], threading.Lock] = {}
        self._written = self._warned = False
        if mode != "replay":
            self.refresh()
        else:
            with self.path.open("rb") as file:
                self._read(file)

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, {self.mode!r}, {len(self)} calls)"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "mode": self.mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["mode"])  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self._tape)

    def lines(self) -> list[Line]:
        """Return the recorded calls in the file's order."""
        with self._lock:
            return [self._tape[name] for name in sorted(self._tape)]

    def find(self, key: str, occurrence: int) -> Line | None:
        """Return the recorded call, or None."""
        return self._tape.get((key, occurrence))

    def refresh(self) -> None:
        """Read what other processes wrote meanwhile."""
        if self.path.exists():
            with self._lock, self._opened() as file:
                self._read(file)

    def add(self, line: Line) -> Line:
        """Write a call down and return the one that counts.

        In mode ``replay_or_call`` that is another process's, if it was first.
        """
        name = (line["key"], line["occurrence"])
        with self._lock, self._opened() as file:
            whole = self._read(file)
            there = self._tape.get(name)
            if there is not None and self.mode == "replay_or_call":
                return there
            size = file.seek(0, os.SEEK_END)
            if whole < size:  # torn by a crash
                file.truncate(whole)
            data = _encoded(line)
            if not _compressed(self.path) and whole and not _ends_line(file, whole):
                data = b"\n" + data
            data = gzip.compress(data, mtime=0) if _compressed(self.path) else data
            file.seek(whole)
            file.write(data)
            file.flush()
            self._tape[name] = line
            self._at, self._written = whole + len(data), True
        return line

    def close(self) -> None:
        """Put what was written in order; it can be written again afterwards."""
        if self._written:
            self.compact()
            self._written = False

    def compact(self) -> None:
        """Write the file anew: sorted, each call once."""
        with self._lock, self._opened() as file:
            self._read(file)
            data = b"".join(map(_encoded, self.lines()))
            if _compressed(self.path):
                data = gzip.compress(data, compresslevel=9, mtime=0)
            new = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
            new.write_bytes(data)
            self._at, self._seen = len(data), _Seen(new)
            os.replace(new, self.path)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """Open the file for writing, locked against other processes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
                if self.path.exists() and os.fstat(file.fileno()).st_ino == self.path.stat().st_ino:
                    yield file
                    return
            finally:
                file.close()
            # another process put a new file in its place meanwhile: open that one

    def _read(self, file: IO[bytes]) -> int:
        """Read what is new in the file; return where its last whole line ends."""
        size = file.seek(0, os.SEEK_END)
        if not self._seen.is_(file) or size < self._at:
            self._at, self._seen = 0, _Seen(self.path)
        file.seek(self._at)
        raw = file.read()
        text, whole = _members(raw, self.path) if _compressed(self.path) else (raw, len(raw))
        pieces = text.split(b"\n")
        for number, piece in enumerate(pieces, 1):
            recorded = self._parsed(piece, number, last=number == len(pieces))
            if recorded is None:
                whole -= len(piece)
            elif recorded:
                self._tape[recorded["key"], recorded["occurrence"]] = recorded
        if whole < len(raw) and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.path}: the last recording was torn by a crash and is left out",
                RuntimeWarning, stacklevel=3,
            )  # fmt: skip
        self._at += whole
        return self._at

    def _parsed(self, line: bytes, number: int, *, last: bool) -> Line | None:
        """Return a line's recording, {} for an empty line, None for a torn one."""
        if not line.strip():
            return {}
        try:
            recorded = json.loads(line)
        except ValueError as e:
            if last and not _compressed(self.path):
                return None
            raise ReplayError(f"{self.path}, line {number} read: not JSON: {e}") from e
        missing = [f for f in FIELDS[:5] if not isinstance(recorded, dict) or f not in recorded]
        if missing or ("response" in recorded) == ("error" in recorded):
            raise ReplayError(
                f"{self.path}, line {number} read: no recording: expected {', '.join(FIELDS[:5])} "
                f"and response or error; missing: {', '.join(missing) or 'one of the last two'}"
            )
        return dict(recorded)


class _Seen:
    """Which file was read. It is kept open: the number of a file that is gone is used again."""

    def __init__(self, path: Path | None = None) -> None:
        self._file = os.open(path, os.O_RDONLY) if path is not None else -1

    def is_(self, file: IO[bytes]) -> bool:
        return self._file >= 0 and os.path.sameopenfile(self._file, file.fileno())

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._file >= 0:  # when the interpreter ends, the module os may be gone before us
            close(self._file)


def _compressed(path: Path) -> bool:
    return path.suffix == ".gz"


def _ends_line(file: IO[bytes], at: int) -> bool:
    file.seek(at - 1)
    return file.read(1) == b"\n"


def _encoded(line: Line) -> bytes:
    text = ",".join(f'"{f}":{canonical(line[f])}' for f in FIELDS if f in line)
    try:
        return f"{{{text}}}\n".encode()
    except UnicodeEncodeError:  # a lone surrogate in a reply: spelled as JSON spells it
        plain = {f: line[f] for f in FIELDS if f in line}
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def _members(raw: bytes, path: Path) -> tuple[bytes, int]:
    """Decompress whole gzip members; return their text and where the last one ends."""
    texts, at, step = [], 0, 1 << 16
    while at < len(raw):
        member, here, text = zlib.decompressobj(31), at, []
        try:
            while not member.eof and here < len(raw):
                text.append(member.decompress(raw[here : here + step]))
                here += step
        except zlib.error as e:
            raise ReplayError(f"{path}: damaged at byte {at}: {e}") from e
        if not member.eof:
            break
        texts += text
        at = min(here, len(raw)) - len(member.unused_data)
    return b"".join(texts), at
