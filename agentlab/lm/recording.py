"""Record what a language model said, and serve it again.

**Name.** A recording is found by (key, occurrence, seed). The key is the digest of the request
document: the canonical JSON (sorted keys, no spaces, empty optional fields left out) of everything
that reaches the endpoint::

    {"model", "messages", "system", "tools", "config": {"max_tokens", "temperature", "top_p",
     "response_format", "stop", "seed", ...}}

so another model, temperature or word of the prompt is another request. Address, key, timeout and
retries are not part of it. The occurrence counts the same request within one run, from 0, by the
run's ``Cursor``: the first asking gets the first reply, and another run gets the same replies, in
whatever order runs and threads go. The seed is the run's: a model that is sampled answers anew for
every seed, and runs of one seed, whatever their arm, share what they ask alike. At temperature 0 it
is the same, for servers promise no more there than replies that are mostly equal. A line without a
seed (older versions wrote no other) is the reply for every seed that has no line of its own. Where
one study asks a model of one name at several endpoints, ``endpoint`` is a part of the name too, for
one would be served what the other said; else it is left out, and the address does not matter.

**File.** JSON lines, a recording a line::

    {"key", "occurrence", "seed", "model", "settings", "request", "response", "usage", "cost"}

``cost`` is what the call cost when it was made, US dollars or null. ``chunks`` holds the sizes of
the text deltas where it was streamed, and in place of a response there may be an ``error``: a
request that the endpoint rejected for good is rejected again. While recording, lines are appended;
``close`` puts them in the order of their names, so a file differs only where a recording
does. Where a recording was made twice, the later line counts. A last line that was torn by a crash
is left out with a warning, and cut off by the next writer; any other damage is an error.

**Processes.** One process writes a file, from all its threads. A recording that is sent to another
process reads the same file and writes nothing: what it adds there waits in ``taken`` and goes back
with the results, and whoever writes adds it (see ``agentlab.study.pool``).

**Modes.** ``replay`` serves and never asks; a miss raises RecordingMiss, which shows the nearest
recording and what differs. ``record`` always asks and writes. ``replay_or_call`` serves what
there is and asks for the rest; of threads that ask the same at the same time one asks, and the
others wait for it. Of two processes that do, the first whose line comes back counts for later runs.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

from agentlab.base.arguments import takes
from agentlab.base.documents import Json, canonical, shortened
from agentlab.base.files import exists, read_bytes, shown
from agentlab.base.strict_json import read_json
from agentlab.errors import ConfigError, JsonError, ReplayError, seen, suggest

Mode = Literal["replay", "record", "replay_or_call"]
Line = dict[str, Json]
Name = tuple[str, int, int | None, str]
"""Key, occurrence, seed (None: of every seed) and endpoint (empty: it does not matter)."""

FIELDS = (
    "key", "occurrence", "seed", "endpoint", "model", "settings", "request", "response", "error",
    "usage", "cost", "chunks",
)  # fmt: skip
"""Fields of a line, in order; ``endpoint``, ``error``, ``chunks`` only where they apply."""
REQUIRED = ("key", "occurrence", "model", "settings", "request")


_BEGINS = b'{"key":'

RECORDED = 1 << 29
"""Bytes of a file at most: it is held in memory."""


class Recording:
    """A file of recorded calls, shared by the runs of a process.

    Parameters
    ----------
    path : str or Path
        JSON lines, not compressed.
    mode : {"replay", "record", "replay_or_call"}

    Raises
    ------
    ConfigError
        The mode is unknown, or the file would be compressed.
    ReplayError
        In mode ``replay``: there is no such file; in any: it is damaged.
    """

    @takes(path=str | Path)
    def __init__(self, path: str | Path, mode: Mode = "replay") -> None:
        if not isinstance(mode, str) or mode not in get_args(Mode):
            raise ConfigError(f"recording mode {seen(mode)}; {suggest(mode, get_args(Mode))}")
        self.path, self.mode = Path(path), mode
        if self.path.suffix == ".gz":
            raise ConfigError(f"{path}: recordings are not compressed; gunzip it, or name a .jsonl")
        if mode == "replay" and not exists(self.path):
            raise ReplayError(f"there is no recording {shown(self.path)}")
        self._tape: dict[Name, Line] = {}
        self._taken: list[Line] | None = None  # of a process that does not write
        self._lock = threading.RLock()
        self._pending: dict[Name, threading.Lock] = {}
        self._written = False
        self._whole, self._gap = self._read() if exists(self.path) else (0, b"")

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, {self.mode!r}, {len(self)} calls)"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "mode": self.mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the process that writes may be within a line
            self.__init__(state["path"], state["mode"])  # type: ignore[misc]
        self._taken = []

    def __len__(self) -> int:
        return len(self._tape)

    def lines(self) -> list[Line]:
        """Return the recorded calls in the file's order."""
        with self._lock:
            return [self._tape[name] for name in sorted(self._tape, key=_place)]

    def find(
        self, key: str, occurrence: int, seed: int | None = None, endpoint: str = ""
    ) -> Line | None:
        """Return the recorded call, or None: that of the seed, else that of every seed."""
        own = self._tape.get((key, occurrence, seed, endpoint))
        return own if own is not None else self._tape.get((key, occurrence, None, endpoint))

    def add(self, line: Line) -> Line:
        """Write a call down and return the one that counts.

        In mode ``replay_or_call`` that is the first of its name.
        """
        name = _name(line)
        with self._lock:
            if name in self._tape and self.mode == "replay_or_call":
                return self._tape[name]
            self._tape[name] = line
            if self._taken is not None:
                self._taken.append(line)
            else:
                self._append(_encoded(line))
        return line

    def extend(self, lines: Iterable[Line]) -> None:
        """Add what other processes asked for."""
        for line in lines:
            self.add(line)

    def taken(self) -> list[Line]:
        """Return what was added, in a process that does not write, since this was last asked."""
        with self._lock:
            taken, self._taken = self._taken or [], self._taken and []
            return taken

    def close(self) -> None:
        """Put what was written in order, each call once; it can be written again afterwards."""
        with self._lock:
            if self._written:
                new = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
                self._whole = new.write_bytes(b"".join(map(_encoded, self.lines())))
                os.replace(new, self.path)
                self._written, self._gap = False, b""

    def _append(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                if not self._written:
                    file.truncate(self._whole)  # what comes after was torn by a crash
                    file.write(self._gap)
                file.write(data)
        except (OSError, ValueError) as e:
            raise ReplayError(f"{shown(self.path)}: cannot be written: {e}") from e
        self._written = True

    def _read(self) -> tuple[int, bytes]:
        """Read the file; return where its last whole line ends, and what must come after it."""
        raw = read_bytes(self.path, ReplayError, RECORDED)
        pieces = raw.split(b"\n")
        for number, piece in enumerate(pieces, 1):
            recorded = self._parsed(piece, number, last=number == len(pieces))
            if recorded is None:
                warnings.warn(
                    f"{self.path}: the last recording was torn by a crash and is left out",
                    RuntimeWarning, stacklevel=3,
                )  # fmt: skip
                return len(raw) - len(piece), b""
            if recorded:
                self._tape[_name(recorded)] = recorded
        return len(raw), b"" if raw.endswith(b"\n") or not raw else b"\n"

    def _parsed(self, line: bytes, number: int, *, last: bool) -> Line | None:
        """Return a line's recording, {} for an empty line, None for a torn one."""
        if not line.strip():
            return {}
        try:
            recorded = read_json(line)
        except JsonError as e:
            if last and (line.startswith(_BEGINS) or _BEGINS.startswith(line)):
                return None  # of another file nothing may be cut off
            raise ReplayError(f"{self.path}, line {number}: not JSON: {e}") from e
        missing = [f for f in REQUIRED if not isinstance(recorded, dict) or f not in recorded]
        if missing or ("response" in recorded) == ("error" in recorded):
            raise ReplayError(
                f"{self.path}, line {number}: no recording: expected {', '.join(REQUIRED)} "
                f"and response or error; missing: {', '.join(missing) or 'one of the last two'}"
            )
        if not isinstance(recorded["key"], str) or type(recorded["occurrence"]) is not int:
            raise ReplayError(
                f"{self.path}, line {number}: no recording: expected a text as key and a whole "
                "number as occurrence"
            )
        if not isinstance(recorded.get("endpoint", ""), str):
            raise ReplayError(f"{self.path}, line {number}: no recording: endpoint is no text")
        seed = recorded.get("seed")
        if seed is not None and type(seed) is not int:
            raise ReplayError(
                f"{self.path}, line {number}: no recording: expected a whole number or no seed, "
                f"got {shortened(repr(seed), 80)}"
            )
        return dict(recorded)


def _name(line: Line) -> Name:
    return line["key"], line["occurrence"], line.get("seed"), line.get("endpoint", "")


def _place(name: Name) -> tuple[str, int, bool, int, str]:
    """Return where a name stands in the file: that of every seed before those of one."""
    key, occurrence, seed, endpoint = name
    return key, occurrence, seed is not None, seed or 0, endpoint


def _encoded(line: Line) -> bytes:
    text = ",".join(f'"{f}":{canonical(line[f])}' for f in FIELDS if f in line)
    try:
        return f"{{{text}}}\n".encode()
    except UnicodeEncodeError:  # a lone surrogate in a reply: spelled as JSON spells it
        plain = {f: line[f] for f in FIELDS if f in line}
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"
