"""The store: what was committed stays, whatever happens next, and nothing else is there."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.errors import RunError, StoreError, StoreVersionError, StoreWriteError
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.strategies.named import get_strategy
from agentlab.state.state import State
from agentlab.trace.journal import Address, Entry
from agentlab.trace.packing import pack, pack_spans, unpack
from agentlab.trace.recorder import Recorder
from agentlab.trace.store import APPLICATION, VERSION, Store
from agentlab.trace.stored import CellResult


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """Close the stores that a test left open."""
    made: list[Store] = []
    check = Store._check

    def noted(self: Store) -> None:
        made.append(self)
        check(self)

    monkeypatch.setattr(Store, "_check", noted)
    yield
    for store in made:
        store.close()


TABLES = ("meta", "cells", "traces", "runs", "checkpoints", "journal")


def cell(key: str, **fields: Any) -> CellResult:
    row = {"role": "arm", "success": True, "n": 1}
    return CellResult(key, fields.pop("status", "done"), fields.pop("row", row), **fields)


def spans(*names: str) -> bytes:
    recorder = Recorder()
    for name in names:
        recorder.mark("tool", name, output={"name": name})
    return pack_spans(recorder.spans)


def filled(path: Path) -> Store:
    """Return a store that has a row in every table."""
    store = Store(path)
    store.add_meta(code=["abc"])
    store.add_cells([cell("one", spans=spans("t"))])
    journal = store.start_run("run", "autonomous", State())
    store.checkpoint("run", 0, "planning", State(), State(visit=1))
    journal.start(Address(1, "s", 1), "tool", "hash")
    return store


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"SELECT * FROM {table} ORDER BY seq").fetchall()
    finally:
        connection.close()


# ---- append-only ----------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_nothing_that_was_written_can_be_changed_or_deleted(tmp_path, table):
    filled(tmp_path).close()
    path = tmp_path / "study.db"
    before = rows(path, table)
    assert before
    raw = sqlite3.connect(path)  # not our class: whoever opens the file is refused
    for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET seq = seq + 1"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            raw.execute(statement)
    raw.close()
    assert rows(path, table) == before


def test_every_table_is_known_to_the_test_above(tmp_path):
    with Store(tmp_path) as store:
        found = store._select("SELECT name FROM sqlite_master WHERE type = 'table'")
    assert {name for (name,) in found} == set(TABLES)


def test_opening_again_keeps_everything(tmp_path):
    filled(tmp_path).close()
    before = {table: rows(tmp_path / "study.db", table) for table in TABLES}
    with Store(tmp_path) as store:
        assert store.meta() == {"code": ["abc"]}
        assert store.cells() == {"one": cell("one")}
        assert [s.name for s in store.trace("one")] == ["t"]
        assert store.run_ids() == ["run"]
    assert {table: rows(tmp_path / "study.db", table) for table in TABLES} == before


# ---- cells and values -----------------------------------------------------------------------


def test_the_latest_attempt_of_a_cell_counts(tmp_path):
    with Store(tmp_path) as store:
        store.add_cells([cell("a", status="crashed", row={"n": 1}), cell("b", row={"n": 2})])
        store.add_cells([cell("a", row={"n": 3}, attempt=2, spans=spans("second"))])
        assert store.cells()["a"] == cell("a", row={"n": 3}, attempt=2)
        assert [s.name for s in store.trace("a")] == ["second"]
        assert store.trace("b") == store.trace("nowhere") == []
        assert [(key, [row[3] for row in found]) for key, found in store.traces()] == [
            ("a", ["second"])
        ]


def test_the_trace_of_an_earlier_attempt_is_not_that_of_the_latest(tmp_path):
    with Store(tmp_path) as store:
        store.add_cells([cell("a", status="crashed", spans=spans("first"))])
        store.add_cells([cell("a", attempt=2)])  # with traces off
        assert list(store.traces()) == []
        assert store.trace("a") == []


def test_a_batch_is_written_whole_or_not_at_all(tmp_path):
    with Store(tmp_path) as store:
        store.add_cells([cell("a")])
        with pytest.raises(StoreWriteError, match="another process has written the same"):
            store.add_cells([cell("b"), cell("a")])  # a cell is never written twice
        with pytest.raises(ValueError, match="JSON compliant"):
            store.add_cells([cell("c"), cell("d", row={"x": float("nan")})])
        assert list(store.cells()) == ["a"]
        store.add_cells([cell("b")])  # and the store goes on
        assert list(store.cells()) == ["a", "b"]


def test_a_later_value_of_a_name_counts(tmp_path):
    with Store(tmp_path) as store:
        store.add_meta(a=1, b=[1, {"x": None}])
        store.add_meta(a=2)
        assert store.meta() == {"a": 2, "b": [1, {"x": None}]}
        store.add_meta(weights={"z": 1, "a": 2})
        assert list(store.meta()["weights"]) == ["z", "a"]  # as it was, in its order


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3),
)  # fmt: skip


@given(JSON)
def test_packing_keeps_json_as_it_is(value):
    assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize(
    "value", [{1, 2}, b"bytes", datetime(2020, 1, 1), 1j, Path("x"), float("nan"), float("inf")]
)
@pytest.mark.parametrize("field", ["input", "output", "attributes"])
def test_what_is_no_json_in_a_span_is_an_error_and_not_made_into_some(value, field):
    recorder = Recorder()
    with recorder.span("action", "a") as span:
        setattr(span, field, {"found": [value]})
    with pytest.raises((TypeError, ValueError), match="JSON"):
        pack_spans(recorder.spans)


def test_packing_keeps_what_utf8_cannot():
    assert unpack(pack(["\ud800", "é"])) == ["\ud800", "é"]
    assert unpack(b"") == []
    with pytest.raises(ValueError, match="JSON compliant"):
        pack(float("inf"))


# ---- durable runs ---------------------------------------------------------------------------


def durable(path: Path, scenario: al.Scenario, **options: Any) -> al.Run:
    run = al.autonomous.start(al.Lab(scenario, **options), store=Store(path))
    run.finish()
    return run


def test_a_run_comes_back_as_it_was(tmp_path):
    faults = al.FaultPlan(rate=0.3, persistence={"permanent": 1.0})
    lab = {"planner": "search", "strategy": "retry_then_replan(1)", "faults": faults}
    run = durable(tmp_path, generate("medium", 1), seed=3, **lab)
    assert run.state.replan_history
    with Store(tmp_path, read_only=True) as store:
        found = store.load_run()
    assert (found.run, found.workflow, found.visited) == (run.run_id, "autonomous", run.visited)
    assert [s.digest for s in found.states] == [s.digest for s in run.states]
    assert found.states == run.states
    recorded = [s.row() for each in found.spans for s in each]
    assert recorded == [json.loads(json.dumps(s.row())) for s in run.spans[1:]]


def test_an_edit_of_a_durable_run_is_kept(tmp_path):
    lab = al.Lab(generate("medium", 1), planner="reference", strategy="never")
    run = al.autonomous.start(lab, store=Store(tmp_path))
    run.run_until("plan_execution")
    run.edit(now=5.0)
    run.step()
    run.edit(plan=run.plan.without(run.plan.steps[-1].step_id), answer="x")
    with Store(tmp_path, read_only=True) as store:
        found = store.load_run()
    assert found.states == run.states
    assert found.visited == run.visited
    resumed = al.Run.resume(Store(tmp_path), lab)
    assert resumed.replay().identical
    assert run.replay().identical


def test_an_interrupt_right_after_the_commit_leaves_one_visit(tmp_path, monkeypatch):
    """The visit is on disk and not in memory; made again, it is written again and counts once."""
    store = Store(tmp_path)
    run = al.autonomous.start(
        al.Lab(generate("medium", 1), planner="reference", strategy="never"), store=store
    )
    run.run_until("plan_execution")
    committed = Store.checkpoint

    def interrupted(*arguments: Any, **named: Any) -> None:
        committed(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.step()
    monkeypatch.undo()
    assert store.load_run().visited == ["load_config", "planning", "plan_execution"]
    assert run.visited == ["load_config", "planning"]
    run.finish()
    found = store.load_run()
    assert found.visited == run.visited
    assert found.states == run.states
    assert run.replay().identical


def test_several_runs_lie_side_by_side(tmp_path):
    first = durable(tmp_path, generate("easy", 0), planner="reference", strategy="never")
    second = durable(tmp_path, generate("easy", 1), planner="reference", strategy="never")
    with Store(tmp_path) as store:
        assert store.run_ids() == [first.run_id, second.run_id]
        assert store.load_run().states == second.states
        assert store.load_run(first.run_id).states == first.states
        with pytest.raises(RunError, match=f"no run nobody; runs: {first.run_id}"):
            store.load_run("nobody")
    with Store(tmp_path / "empty") as store, pytest.raises(RunError, match="runs: none"):
        store.load_run()


def test_the_journal_comes_back_from_the_disk(tmp_path):
    with Store(tmp_path) as store:
        journal = store.start_run("r", "autonomous", State())
        other = store.start_run("q", "autonomous", State())
        journal.start(Address(2, "s", 1), "send", "aa")
        journal.start(Address(3, "s", 2, 1), "send", "bb")
        journal.finish(Address(3, "s", 2, 1), "send", "bb", {"x": [1]}, None)
        other.start(Address(2, "s", 1), "look", "cc")
        again = store.load_run("r").journal
        assert again.entries == journal.entries
        assert again.find(Address(2, "s", 1), "send", "aa") == Entry(
            Address(2, "s", 1), "send", "aa"
        )
        assert again.find(Address(3, "s", 2, 1), "send", "bb").result == {"x": [1]}
        assert again.find(Address(9), "send", "aa") is None
        journal.finish(Address(4, talk="think#2"), "lm:m", "dd", 1, None)
        rows = store.connection.execute("SELECT outcome FROM journal ORDER BY seq").fetchall()
        assert ["talk" in json.loads(told) for (told,) in rows] == [False] * 4 + [True]
        assert store.load_run("r").journal.find(Address(4, talk="think#2"), "lm:m", "dd").result


def test_what_a_step_writes_does_not_grow(tmp_path):
    """300 steps with 200-character results: the last cost what the first did."""
    text = "x" * 200
    note = al.tool(lambda text: {"said": text}, name="note", effect="write")
    steps = [
        {"stepId": f"s{i}", "name": f"s{i}", "actionType": "call_tool", "targetResource": "note",
         "parameters": {"text": f"{i:03d}{text}"}}
        for i in range(300)
    ]  # fmt: skip
    strategy = get_strategy("never").within(executions=1000)
    run = al.autonomous.start(
        al.Lab(tools=[note], planner=Fixed(steps), strategy=strategy), "go", store=Store(tmp_path)
    )
    run.finish()
    assert run.state.executions == 300
    sizes = [
        (len(zlib.decompress(changes)), len(zlib.decompress(found)))
        for _, _, _, node, changes, found in rows(tmp_path / "study.db", "checkpoints")
        if node == "plan_execution"
    ]
    early, late = sizes[5:55], sizes[-55:-5]  # without the first and last, which do more
    for i in (0, 1):
        assert sum(s[i] for s in late) <= 1.03 * sum(s[i] for s in early)  # "99" and "100" differ
    assert max(sum(s) for s in sizes) < 5000  # and the plan, 100 kB, is not in it


# ---- files that are none of ours, and files that cannot be written ------------------------------


def test_a_newer_version_is_refused_and_left_alone(tmp_path):
    filled(tmp_path).close()
    raw = sqlite3.connect(tmp_path / "study.db")
    raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    raw.close()
    before = (tmp_path / "study.db").read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreVersionError, match=rf"newer agentlab \(format {VERSION + 1}"):
            Store(tmp_path, read_only)
    assert (tmp_path / "study.db").read_bytes() == before


def test_a_foreign_sqlite_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "mine.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE cells (mine)")
    raw.commit()
    raw.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match="no agentlab results"):
            Store(path, read_only)
    assert path.read_bytes() == before


def test_a_refused_file_is_not_held_open(tmp_path, monkeypatch):
    (tmp_path / "study.db").write_text("no database")
    closed = []
    monkeypatch.setattr(Store, "close", lambda self: closed.append(self.path.name))
    with pytest.raises(StoreError):
        Store(tmp_path)
    assert closed == ["study.db"]


def test_what_is_no_sqlite_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "study.db"
    path.write_text("name,age\n" * 1000)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="no SQLite file"):
            Store(tmp_path, read_only)
    assert path.read_text() == "name,age\n" * 1000


def test_a_store_that_does_not_exist_is_not_made_by_reading(tmp_path):
    with pytest.raises(StoreError, match="no such results file"):
        Store(tmp_path / "nowhere", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_the_file_says_that_it_is_ours(tmp_path):
    Store(tmp_path / "named.db").close()
    raw = sqlite3.connect(tmp_path / "named.db")
    assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    raw.close()


@pytest.mark.parametrize("where", ["below a file", "in /proc", "a folder of that name"])
def test_where_nothing_can_be_written_the_message_says_so(tmp_path, where):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.db").mkdir()
    path = {
        "below a file": tmp_path / "file" / "results",
        "in /proc": Path("/proc/agentlab"),
        "a folder of that name": tmp_path / "folder.db",
    }[where]
    with pytest.raises(StoreWriteError, match=r"cannot be written.*choose a folder you may write"):
        Store(path)


def as_nobody(do: Any) -> str:
    """Return what ``do`` returns in a process without root's privileges (root may do anything)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            text = str(do())
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_read_only_folder_can_be_read_and_not_written(tmp_path):
    filled(tmp_path).close()
    for folder in (tmp_path, *tmp_path.parents):  # let nobody in, as pytest does not
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    tmp_path.chmod(0o555)
    (tmp_path / "study.db").chmod(0o444)
    try:
        told = as_nobody(lambda: Store(tmp_path))
        assert told.startswith("StoreWriteError:")
        assert "cannot be written" in told
        assert "choose a folder you may write to" in told
        assert as_nobody(lambda: Store(tmp_path / "new")).startswith("StoreWriteError:")
        assert as_nobody(lambda: list(Store(tmp_path, read_only=True).cells())) == "['one']"
    finally:
        tmp_path.chmod(0o755)


def test_a_locked_file_is_named_as_such(tmp_path):
    store = filled(tmp_path)
    store.connection.execute("PRAGMA busy_timeout = 20")
    raw = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreWriteError, match="another process is writing"):
        store.add_cells([cell("two")])
    assert list(store.cells()) == ["one"]  # reading goes on meanwhile
    raw.execute("ROLLBACK")
    raw.close()
    store.add_cells([cell("two")])
    assert list(store.cells()) == ["one", "two"]
    store.close()


def write_pairs(store: Store, written: list[str]) -> None:
    """Write cells in pairs without end; ``written`` gets those that were acknowledged."""
    for n in range(1000):
        pair = [f"{n}a", f"{n}b"]
        store.add_cells([cell(key, row={"text": key * 500}) for key in pair])
        written += pair


def test_on_a_full_disk_what_was_finished_is_kept(tmp_path):
    store, written = Store(tmp_path), []
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 8}")
    with pytest.raises(StoreWriteError, match="the disk is full; what was finished is kept") as e:
        write_pairs(store, written)
    assert "\n" not in str(e.value)
    assert 2 <= len(written) < 100
    assert list(store.cells()) == written  # a batch is there whole or not at all
    store.close()
    with Store(tmp_path) as again:
        assert list(again.cells()) == written
        again.add_cells([cell("after")])  # there is room again
        assert list(again.cells()) == [*written, "after"]


def test_a_durable_run_on_a_full_disk_stops_and_goes_on(tmp_path):
    store = Store(tmp_path)
    lab = al.Lab(generate("hard", 0), planner="reference", strategy="never")
    run = al.autonomous.start(lab, store=store)
    run.run_until("plan_execution")
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreWriteError, match="disk is full"):
        run.finish()
    stood = len(run.visited)
    assert not run.finished
    assert len(run.states) == stood + 1  # the visit that could not be written did not happen
    with Store(tmp_path, read_only=True) as other:
        assert other.load_run().states == run.states
    store.connection.execute("PRAGMA max_page_count = 100000")
    run.finish()
    assert run.verdict.success
    store.close()
    undisturbed = al.autonomous.start(lab)
    undisturbed.finish()
    assert run.states == undisturbed.states
    assert run.replay().identical


DAMAGE = [
    ("cells", "row", "{"), ("cells", "row", "[]"),
    ("meta", "value", b"\xff"), ("meta", "value", "{"),
    ("traces", "spans", b"x"), ("traces", "spans", pack([[1]])), ("runs", "first", b"\x00"),
    ("runs", "first", pack({"visit": "x"})), ("checkpoints", "changes", b"\x01"),
    ("checkpoints", "changes", pack({"zz": {"=": 1}})), ("checkpoints", "spans", pack([[1]])),
    ("checkpoints", "visit", -5), ("journal", "outcome", "[" * 100_000),
    ("journal", "outcome", "[]"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column", "value"), DAMAGE, ids=lambda x: str(x)[:12])
def test_damaged_contents_are_one_error_that_names_the_file(tmp_path, table, column, value):
    with filled(tmp_path) as store:
        store.connection.execute(f"DROP TRIGGER no_update_{table}")
        store.connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        with pytest.raises(StoreError, match=r"study\.db: what is stored there is damaged"):
            (store.meta(), store.cells(), store.trace("one"), list(store.traces()),
             store.load_run("run"))  # fmt: skip
