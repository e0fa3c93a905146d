"""The store: one SQLite file for a study or a durable run. Append-only and versioned.

Write-ahead logging, so a killed process loses at most the transaction under way; triggers refuse
every UPDATE and DELETE. Of a state only what changed is written (``delta``). Spans are one
compressed JSON document a cell or visit, read whole or not at all, LM requests as what each adds
(``requests``). Only one process writes; workers hand their results to it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from agentlab.base.documents import Json
from agentlab.base.fields import thaw
from agentlab.errors import RunError, StoreError, StoreVersionError, StoreWriteError
from agentlab.state.state import State
from agentlab.trace.delta import apply, delta
from agentlab.trace.journal import Address, Entry, MemoryJournal
from agentlab.trace.owner import Owner
from agentlab.trace.packing import pack, pack_spans, reading, unpack, unpack_spans
from agentlab.trace.requests import Reader, Writer
from agentlab.trace.schema import check, check_files, definitions, guard
from agentlab.trace.span import Span
from agentlab.trace.stored import CellResult, StoredRun

VERSION = 2
APPLICATION = 0x61676C62  # "aglb": tells our files from other SQLite files


class Store:
    """One results file.

    Parameters
    ----------
    path : str or Path
        A ``.db`` file, or a folder in which ``study.db`` lies. Made when it does not exist.
    read_only : bool
        Open for reading; the file must exist.
    lock : bool
        Take a lock on what is gone on with (see ``agentlab.trace.owner``). False where the file
        system has none, if nobody else writes.

    Raises
    ------
    StoreVersionError
        The file was written by a newer version.
    StoreWriteError
        It cannot be written.
    StoreError
        It is no results file.
    """

    def __init__(self, path: str | Path, read_only: bool = False, *, lock: bool = True) -> None:
        path = Path(path)
        self.read_only, self._locks = read_only, lock
        self.path = path if path.suffix == ".db" else path / "study.db"
        self._lock = threading.RLock()
        self._writers: dict[str, Writer] = {}
        self._owners: WeakSet[Owner] = WeakSet()
        if read_only and not self.path.is_file():
            raise StoreError(f"{self.path}: no such results file")
        with self._translated():
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            check_files(self.path)
            mode = self._reading() if read_only else "mode=rwc"
            self.connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?{mode}", uri=True, timeout=10,
                check_same_thread=False, isolation_level=None,
            )  # fmt: skip
            try:
                guard(self.connection, read_only)
                self._check()
                if not read_only:
                    self._create()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the file; what was gone on with through it is nobody's from then on."""
        self.connection.close()
        for owner in list(self._owners):
            owner.release()

    def run_owner(self, run: str) -> Owner:
        """Return one that may go on with a run, and does not yet (see ``Owner.claim``)."""
        return self._owner(f"run-{run}", f"run {run}", lambda: self._written(run))

    def study_owner(self) -> Owner:
        """Return one that may run the cells of the study, and does not yet."""
        return self._owner("study", "the study", None)

    def _owner(self, name: str, told: str, written: Callable[[], Any] | None) -> Owner:
        owner = Owner(self.path, name, told, lock=self._locks, written=written)
        self._owners.add(owner)
        return owner

    def _written(self, run: str) -> Any:
        """Return what tells what is stored of a run now from what was stored before."""
        return self._select(
            "SELECT (SELECT max(seq) FROM checkpoints WHERE run = ?), "
            "(SELECT max(seq) FROM journal WHERE run = ?)",
            (run, run),
        )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _reading(self) -> str:
        """Return how to open for reading: write-ahead logging needs a folder it may write to."""
        log = Path(f"{self.path}-wal")
        pending = log.is_file() and log.stat().st_size > 0
        writable = os.access(self.path.parent, os.W_OK)
        return "mode=ro" if pending or writable else "mode=ro&immutable=1"

    def _check(self) -> None:
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        application = self.connection.execute("PRAGMA application_id").fetchone()[0]
        tables = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != APPLICATION:
            raise StoreError(f"{self.path}: an SQLite file, but no agentlab results")
        if tables and version < VERSION:
            raise StoreVersionError(
                f"{self.path}: written by an older agentlab (format {version}; this one reads "
                f"{VERSION}); read it with that version, or choose another folder"
            )
        if version > VERSION:
            raise StoreVersionError(
                f"{self.path}: written by a newer agentlab (format {version}; this one reads up to "
                f"{VERSION}); upgrade agentlab or choose another folder"
            )
        if tables:
            check(self.connection, self.path)

    def _create(self) -> None:
        execute = self.connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA wal_autocheckpoint = 100")  # pages: 0.4 MB of log, not SQLite's 4 MB
        if execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return
        with self.transaction():
            if execute("PRAGMA user_version").fetchone()[0] == VERSION:
                return  # another process made it meanwhile
            for statement in definitions():
                execute(statement)
            execute(f"PRAGMA application_id = {APPLICATION}")
            execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, saying what to do."""
        try:
            yield
        except sqlite3.Error as e:
            text = str(e)
            if "full" in text:
                hint = "the disk is full; what was finished is kept: free space and start again"
            elif "readonly" in text or "read-only" in text or "unable to open" in text:
                hint = f"cannot be written ({text}); choose a folder you may write to"
            elif "locked" in text or "busy" in text:
                hint = "another process is writing to it; wait for it or choose another folder"
            elif "UNIQUE" in text:
                hint = "another process has written the same; start again to go on with the rest"
            elif isinstance(e, sqlite3.DatabaseError) and "not a database" in text:
                raise StoreError(f"{self.path}: no SQLite file") from e
            elif "I/O" in text:
                hint = f"{text} (a quota or a broken disk?); what was finished is kept"
            else:
                hint = text
            raise StoreWriteError(f"{self.path}: {hint}") from e
        except OSError as e:
            reason = e.strerror or str(e)
            raise StoreWriteError(
                f"{self.path}: cannot be written ({reason}); choose a folder you may write to"
            ) from e

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what happens inside at once, or nothing of it."""
        with self._lock, self._translated():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def _select(self, query: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._translated():
            return self.connection.execute(query, arguments).fetchall()

    # ---- what is known of the file ---------------------------------------------------------

    def add_meta(self, **values: Json) -> None:
        """Write named JSON values; a later one of a name counts."""
        with self.transaction():
            self.connection.executemany(
                "INSERT INTO meta (key, value) VALUES (?, ?)",
                [(k, json.dumps(v)) for k, v in values.items()],  # keys in their order
            )

    def meta(self) -> dict[str, Json]:
        """Return the named values."""
        rows = self._select("SELECT key, value FROM meta ORDER BY seq")
        with reading(self.path):
            return {key: json.loads(value) for key, value in rows}

    # ---- cells of a study ------------------------------------------------------------------

    def add_cells(self, results: Iterable[CellResult]) -> None:
        """Write finished cells with their traces, all or none."""
        with self.transaction():
            for r in results:
                cursor = self.connection.execute(
                    "INSERT INTO cells (cell, attempt, status, row) VALUES (?, ?, ?, ?)",
                    (r.cell, r.attempt, r.status, json.dumps(r.row, allow_nan=False)),
                )
                if r.spans:
                    self.connection.execute(
                        "INSERT INTO traces (seq, spans) VALUES (?, ?)", (cursor.lastrowid, r.spans)
                    )

    def cells(self) -> dict[str, CellResult]:
        """Return the latest attempt of every cell, without its trace, in the order of writing."""
        rows = self._select("SELECT cell, attempt, status, row FROM cells ORDER BY seq")
        with reading(self.path):
            return {c: CellResult(c, s, {**json.loads(r)}, attempt=a) for c, a, s, r in rows}

    def trace(self, cell: str) -> list[Span]:
        """Return the spans of the latest attempt of a cell."""
        rows = self._select(
            "SELECT spans FROM traces WHERE seq = (SELECT max(seq) FROM cells WHERE cell = ?)",
            (cell,),
        )
        with reading(self.path):
            return [Span.from_row(row) for row in unpack_spans(rows[0][0])] if rows else []

    def traces(self) -> Iterator[tuple[str, list[list[Json]]]]:
        """Yield (cell, span rows) of the latest attempt of every cell."""
        latest = "SELECT max(seq) FROM cells GROUP BY cell"
        rows = self._select(
            f"SELECT c.cell, t.spans FROM cells c JOIN traces t USING (seq) "
            f"WHERE c.seq IN ({latest}) ORDER BY c.seq"
        )
        for cell, blob in rows:
            with reading(self.path):
                spans = unpack_spans(blob)
            yield cell, spans

    # ---- durable runs ----------------------------------------------------------------------

    def start_run(
        self, run: str, workflow: str, first: State, parent: str | None = None, at: int = 0
    ) -> StoreJournal:
        """Write a run's first state; return its journal.

        Parameters
        ----------
        parent, at
            Of a fork: the run it came from, and the visit before which it was forked.
        """
        with self.transaction():
            self.connection.execute(
                "INSERT INTO runs (run, workflow, first, parent, at) VALUES (?, ?, ?, ?, ?)",
                (run, workflow, pack(first.to_json()), parent, at),
            )
        return StoreJournal(self, run)

    def checkpoint(
        self, run: str, visit: int, node: str, before: State, after: State,
        spans: Iterable[Span] = (),
    ) -> None:  # fmt: skip
        """Write what one visit changed, and what it recorded."""
        changes = pack(delta(before, after))
        writer = self._writers.pop(run, None) or Writer()
        told = pack_spans(spans, writer)
        with self.transaction():
            self.connection.execute(
                "INSERT INTO checkpoints (run, visit, node, changes, spans) VALUES (?, ?, ?, ?, ?)",
                (run, visit, node, changes, told),
            )
        self._writers[run] = writer  # not when it failed: it refers to what is on disk alone

    def run_ids(self) -> list[str]:
        """Return the ids of the durable runs, oldest first."""
        return [r for (r,) in self._select("SELECT run FROM runs ORDER BY seq")]

    def load_run(self, run: str | None = None) -> StoredRun:
        """Return a durable run as it was at its last checkpoint (default: the latest run).

        Raises
        ------
        RunError
            There is no such run.
        """
        with reading(self.path):
            return self._load_run(self.run_named(run))

    def run_named(self, run: str | None = None) -> str:
        """Return the id of a run that is there (default: the latest); a RunError: none is."""
        ids = self.run_ids()
        if not ids or (run is not None and run not in ids):
            raise RunError(f"{self.path}: no run {run or ''}; runs: {', '.join(ids) or 'none'}")
        return run or ids[-1]

    def _load_run(self, run: str) -> StoredRun:
        [(workflow, first, parent, origin)] = self._select(
            "SELECT workflow, first, parent, at FROM runs WHERE run = ?", (run,)
        )
        found, reader = StoredRun(run, workflow, [], parent=parent, origin=origin), Reader()
        if parent is not None:
            before = self._load_run(parent)
            found.states += before.states[:origin]
            found.visited += before.visited[:origin]
        found.states.append(State.model_validate(unpack(first)))
        for visit, node, changes, spans in self._select(
            "SELECT visit, node, changes, spans FROM checkpoints WHERE run = ? ORDER BY seq",
            (run,),
        ):
            at = visit + 1 if node == "(edit)" else visit
            # A visit is written twice when Ctrl-C came right after its commit: the later counts.
            del found.states[at + 1 :], found.visited[at:], found.spans[at - origin :]
            after = apply(found.states[-1], unpack(changes))
            if node == "(edit)":
                found.states[-1] = found.edits[at] = after
                continue
            found.states.append(after)
            found.visited.append(node)
            found.spans.append([Span.from_row(row) for row in reader.read(unpack(spans))])
        found.journal = StoreJournal(self, run)
        return found


class StoreJournal(MemoryJournal):
    """A journal that is on disk before a call is made and when it has ended."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        super().__init__(self._read())

    def _read(self) -> Iterator[Entry]:
        for visit, step, attempt, nth, name, request, finished, outcome in self._store._select(
            "SELECT visit, step, attempt, nth, name, request, finished, outcome FROM journal "
            "WHERE run = ? ORDER BY seq",
            (self._run,),
        ):
            told = json.loads(outcome)
            there, made = Address(visit, step, attempt, nth, told.get("talk", "")), bool(finished)
            yield Entry(there, name, request, made, told.get("result"), told.get("error"))

    def _write(self, entry: Entry) -> None:
        *place, talk = entry.address
        told = {"result": thaw(entry.result), "error": thaw(entry.error)}
        named = {"talk": talk} if talk else {}  # no column, which older files would lack
        outcome = json.dumps(told | named, allow_nan=False)
        with self._store.transaction():
            self._store.connection.execute(
                "INSERT INTO journal (run, visit, step, attempt, nth, name, request, finished, "
                "outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (self._run, *place, entry.name, entry.request, entry.finished, outcome),
            )

    def start(self, address: Address, name: str, request: str) -> None:
        """Write down, on disk, that a call is about to be made."""
        super().start(address, name, request)
        self._write(self.entries[address])

    def finish(self, address: Address, name: str, request: str, result: Json, error: Json) -> None:
        """Write down, on disk, how it ended."""
        super().finish(address, name, request, result, error)
        self._write(self.entries[address])
