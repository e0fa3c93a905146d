"""What a results file consists of, and the check that one is made of nothing else.

A file may come from a stranger. SQLite reads a view, a virtual table or a generated column where a
table is asked for, and each can run on without end. So before a row is read the file's own list of
what it holds is compared with what is written here, text by text; what differs is refused. Limits
on values and on what they unpack to (``packing``) bound the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from agentlab.base.documents import shortened
from agentlab.errors import StoreError
from agentlab.trace.packing import MOST_BYTES

TABLES = {
    "meta": "seq INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL",
    "cells": (
        "seq INTEGER PRIMARY KEY, cell TEXT NOT NULL, attempt INTEGER NOT NULL, "
        "status TEXT NOT NULL, row TEXT NOT NULL, UNIQUE (cell, attempt)"
    ),
    "traces": "seq INTEGER PRIMARY KEY REFERENCES cells (seq), spans BLOB NOT NULL",
    "runs": "seq INTEGER PRIMARY KEY, run TEXT UNIQUE NOT NULL, workflow TEXT NOT NULL, "
    "first BLOB NOT NULL, parent TEXT, at INTEGER",
    "checkpoints": (
        "seq INTEGER PRIMARY KEY, run TEXT NOT NULL, visit INTEGER NOT NULL, node TEXT NOT NULL, "
        "changes BLOB NOT NULL, spans BLOB NOT NULL"
    ),
    "journal": (
        "seq INTEGER PRIMARY KEY, run TEXT NOT NULL, visit INTEGER NOT NULL, step TEXT NOT NULL, "
        "attempt INTEGER NOT NULL, nth INTEGER NOT NULL, name TEXT NOT NULL, "
        "request TEXT NOT NULL, finished INTEGER NOT NULL, outcome TEXT NOT NULL"
    ),
}

_LONGEST = 2000
"""Characters of a definition that are looked at; ours are shorter."""


def definitions() -> Iterator[str]:
    """Yield the statements that make a results file: tables, triggers that refuse, indexes."""
    for name, columns in TABLES.items():
        yield f"CREATE TABLE {name} ({columns})"
        for verb in ("UPDATE", "DELETE"):
            yield (
                f"CREATE TRIGGER no_{verb.lower()}_{name} BEFORE {verb} "
                f"ON {name} BEGIN SELECT RAISE(ABORT, 'the store is append-only'); END"
            )
    yield "CREATE INDEX checkpoints_run ON checkpoints (run, seq)"
    yield "CREATE INDEX journal_run ON journal (run, seq)"


def guard(connection: sqlite3.Connection, read_only: bool) -> None:
    """Let a connection run nothing of what a file defines, and take no value without end."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that holds something else than a results file does, or not all of it.

    Triggers and indexes may be missing: nothing is read through them.

    Raises
    ------
    StoreError
        Says what was found.
    """
    ours = set(definitions())
    found = connection.execute(
        f"SELECT type, name, substr(sql, 1, {_LONGEST}) FROM sqlite_master "
        f"WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT {len(ours) + 1}"
    ).fetchall()
    for kind, name, sql in found:
        if sql not in ours:
            raise StoreError(
                f"{path}: no results file of agentlab, or one that was tampered with: expected "
                f"its tables alone, found the {kind} {shortened(repr(name), 60)} made by "
                f"{shortened(repr(sql), 120)}"
            )
    missing = [n for n in TABLES if not any((k, v) == ("table", n) for k, v, _ in found)]
    if missing:
        raise StoreError(f"{path}: damaged, or no results file: no table {', '.join(missing)}")


def check_files(path: Path) -> None:
    """Refuse a results file whose companions lead elsewhere: SQLite would write there.

    Raises
    ------
    StoreError
        The file, its log or its index is a link that leads away, a pipe or a device.
    """
    real = path.resolve()
    if real.exists() and not (real.is_file() or real.is_dir()):  # SQLite says it of a folder
        raise StoreError(f"{path}: expected a results file, this is no regular file")
    for end in ("-wal", "-shm", "-journal"):
        beside = real.with_name(real.name + end)
        if beside.is_symlink() or (beside.exists() and not beside.is_file()):
            raise StoreError(
                f"{beside}: expected a part of the results file beside it, this is no regular "
                "file; take a copy of the folder without it"
            )
