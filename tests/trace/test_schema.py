"""A results file of a stranger: what is no table of ours is refused before a row is read."""

from __future__ import annotations

import os
import sqlite3
import zlib

import pytest

from agentlab.errors import StoreError
from agentlab.state.state import State
from agentlab.trace import packing
from agentlab.trace.packing import pack, unpack
from agentlab.trace.schema import TABLES, definitions
from agentlab.trace.store import Store

ENDLESS = (
    "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n) "
    "SELECT seq, 'k' AS key, 'v' AS value, 'r' AS run FROM n"
)


@pytest.fixture
def changed(tmp_path):
    """Make a results file and change it by statements; return its path."""

    def change(*statements: str):
        with Store(tmp_path) as store:
            store.start_run("abc", "autonomous", State())
            store.add_meta(code=["x"])
        file = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            statements = (f"DROP TRIGGER {name}", *statements)
        for statement in statements:
            file.execute(statement)
        file.close()
        return tmp_path

    return change


@pytest.mark.parametrize("table", TABLES)
def test_a_view_in_place_of_a_table_is_refused_and_not_waited_for(changed, table):
    path = changed(f"DROP TABLE {table}", f"CREATE VIEW {table} AS {ENDLESS}")
    for read_only in (True, False):
        with pytest.raises(StoreError, match=f"found the view '{table}'"):
            Store(path, read_only=read_only)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM runs; END",
        "CREATE TRIGGER no_update_meta BEFORE UPDATE ON meta BEGIN SELECT 1; END",
        "ALTER TABLE meta ADD COLUMN more AS (zeroblob(1000000000))",
        "ALTER TABLE runs ADD COLUMN more TEXT",
        "CREATE TABLE more (seq)",
        "CREATE INDEX more ON meta (key)",
        "DROP TABLE journal",
    ],
)
def test_what_a_results_file_does_not_have_is_refused(changed, statement):
    path = changed(statement)
    for read_only in (True, False):
        with pytest.raises(StoreError, match=r"tampered|no table"):
            Store(path, read_only=read_only)


def test_a_virtual_table_is_refused(changed):
    try:
        path = changed("DROP TABLE meta", "CREATE VIRTUAL TABLE meta USING fts5 (key, value)")
    except sqlite3.OperationalError:
        pytest.skip("SQLite without fts5")
    with pytest.raises(StoreError, match="tampered"):
        Store(path, read_only=True)


def test_the_definitions_are_what_a_new_file_holds(tmp_path):
    Store(tmp_path).close()
    file = sqlite3.connect(tmp_path / "study.db")
    found = file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    file.close()
    assert sorted(sql for (sql,) in found) == sorted(definitions())


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_companion_that_leads_elsewhere_is_refused_and_left_as_it_is(changed, tmp_path, end):
    path = changed()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (path / f"study.db{end}").symlink_to(victim)
    for read_only in (True, False):
        with pytest.raises(StoreError, match="no regular file"):
            Store(path, read_only=read_only)
    assert victim.read_text() == "mine"


def test_a_pipe_is_no_results_file(tmp_path):
    os.mkfifo(tmp_path / "study.db")
    for read_only in (True, False):
        with pytest.raises(StoreError):
            Store(tmp_path, read_only=read_only)


def test_what_unpacks_without_end_is_refused(changed, monkeypatch):
    monkeypatch.setattr(packing, "MOST_BYTES", 1 << 20)
    bomb = zlib.compress(b"[" + b" " * (64 << 20) + b"]", 9)
    assert len(bomb) < 100_000
    with pytest.raises(StoreError, match="unpacks to more than 1 MB"):
        unpack(bomb)
    with pytest.raises(StoreError, match="at most 1 MB"):
        pack(" " * (2 << 20))
    path = changed(f"UPDATE runs SET first = x'{bomb.hex()}'")
    with (
        Store(path, read_only=True) as store,
        pytest.raises(StoreError, match="unpacks to more than 1 MB"),
    ):
        store.load_run()


@pytest.mark.parametrize("size", [0, 1, 1 << 20])
def test_what_fits_comes_back(monkeypatch, size):
    monkeypatch.setattr(packing, "MOST_BYTES", (1 << 20) + 2)  # with its quotation marks
    assert unpack(pack("a" * size)) == "a" * size
