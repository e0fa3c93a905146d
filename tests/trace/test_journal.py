"""The journal: a call is written down before and after, and served by its address."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import agentlab as al
from agentlab.base.documents import digest
from agentlab.errors import ReplayError
from agentlab.minds.planners.search import Search
from agentlab.state.state import State
from agentlab.tools.tool import Tool
from agentlab.trace.journal import Address, Entry, MemoryJournal, NoJournal, ReplayJournal

HERE = Address(3, "s", 1)
ENTRY = Entry(HERE, "send", "hash", True, {"x": 1}, None)


def test_an_address_says_where_and_counts_what_is_left_out_as_nothing():
    assert Address(2) == (2, "", 0, 0, "")
    assert tuple(Address(2, "s", 1, 4, "plan")) == (2, "s", 1, 4, "plan")


def test_no_journal_knows_nothing():
    journal = NoJournal()
    journal.start(HERE, "send", "hash")
    journal.finish(HERE, "send", "hash", 1, None)
    assert journal.find(HERE, "send", "hash") is None


def test_a_call_is_unfinished_until_it_is_finished():
    journal = MemoryJournal()
    assert journal.find(HERE, "send", "hash") is None
    journal.start(HERE, "send", "hash")
    assert journal.find(HERE, "send", "hash") == Entry(HERE, "send", "hash")
    assert not journal.find(HERE, "send", "hash").finished
    journal.finish(HERE, "send", "hash", None, {"code": "c", "message": "m"})
    assert journal.find(HERE, "send", "hash").finished
    assert journal.find(HERE, "send", "hash").error == {"code": "c", "message": "m"}
    assert journal.find(HERE._replace(nth=1), "send", "hash") is None


ADDRESSES = st.builds(Address, st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 2))


@given(st.lists(st.tuples(ADDRESSES, st.booleans()), max_size=12))
def test_a_journal_is_what_its_entries_say(told):
    """Starting and finishing calls one by one equals the journal made of the entries left over."""
    journal = MemoryJournal()
    for address, finished in told:
        journal.start(address, "t", "h")
        if finished:
            journal.finish(address, "t", "h", list(address), None)
    last = dict(told)
    assert {a: e.finished for a, e in journal.entries.items()} == last
    assert MemoryJournal(journal.entries.values()).entries == journal.entries


# ---- a recording serves what it holds, and nothing else -------------------------------------


def test_a_recording_serves_and_counts():
    journal = ReplayJournal([ENTRY])
    assert journal.find(HERE, "send", "hash") is ENTRY
    assert journal.find(HERE, "send", "hash") is ENTRY
    assert journal.served == 2


@pytest.mark.parametrize(
    ("entries", "call", "message"),
    [
        ([], (HERE, "send", "hash"), r"no recorded call at \(3, 's', 1, 0\)"),
        ([ENTRY], (Address(4, "s", 1), "send", "hash"), r"no recorded call at \(4, 's', 1, 0\)"),
        ([Entry(HERE, "send", "hash")], (HERE, "send", "hash"), "no recorded call"),
        ([ENTRY], (HERE, "look", "hash"), "recorded send hash, now look hash"),
        ([ENTRY], (HERE, "send", "other"), "recorded send hash, now send other"),
    ],
)
def test_a_recording_never_invents(entries, call, message):
    journal = ReplayJournal(entries)
    with pytest.raises(ReplayError, match=message):
        journal.find(*call)
    assert journal.served == 0


# ---- what the call seam makes of it ----------------------------------------------------------


class Seam:
    """A lab with one tool of each effect, which notes what the journal knew when it was called."""

    def __init__(self, known: tuple[Entry, ...] = ()) -> None:
        self.journal = MemoryJournal(known)
        self.seen: list[Entry | None] = []

        def make(effect: str) -> Tool:
            def call(n: int) -> dict[str, int]:
                self.seen.append(self.journal.entries.get(HERE))
                return {"n": n}

            return al.tool(call, name=effect, effect=effect)

        tools = [make(e) for e in ("read", "idempotent", "write", "irreversible")]
        self.lab = al.Lab(tools=tools, planner="reference").bind(journal=self.journal)

    def call(self, tool: str):
        _, result, error = self.lab.call(State(), HERE, tool, {"n": 1})
        return result, error


def unfinished(tool: str) -> Entry:
    return Entry(HERE, tool, digest([tool, {"n": 1}]))


@pytest.mark.parametrize("tool", ["read", "idempotent", "write", "irreversible"])
def test_a_call_is_written_down_before_and_after(tool):
    seam = Seam()
    assert seam.call(tool) == ({"n": 1}, None)
    assert seam.seen == [unfinished(tool)]  # it was there before the call was made
    done = seam.journal.entries[HERE]
    assert (done.finished, done.result, done.error) == (True, {"n": 1}, None)


@pytest.mark.parametrize("tool", ["read", "write"])
def test_a_finished_call_is_served(tool):
    error = {"code": "sold_out", "message": "none left", "permanent": True}
    for result, told in (({"n": 9}, None), (None, error)):
        request = digest([tool, {"n": 1}])
        seam = Seam((Entry(HERE, tool, request, True, result, told),))
        found, failure = seam.call(tool)
        assert found == result
        assert (None if failure is None else failure.to_json()) == told
        assert seam.seen == []


@pytest.mark.parametrize("tool", ["read", "idempotent"])
def test_an_unfinished_call_that_may_be_repeated_is(tool):
    seam = Seam((unfinished(tool),))
    assert seam.call(tool) == ({"n": 1}, None)
    assert len(seam.seen) == 1
    assert seam.journal.entries[HERE].finished


@pytest.mark.parametrize("tool", ["write", "irreversible"])
def test_an_unfinished_write_is_interrupted_and_never_made_again(tool):
    seam = Seam((unfinished(tool),))
    for _ in range(2):
        result, error = seam.call(tool)
        assert (result, error.code, error.permanent) == (None, "interrupted", False)
        assert "its outcome is unknown" in error.message
    assert seam.seen == []
    kept = seam.journal.entries[HERE]  # so that a replay of the resumed run is told the same
    assert kept.finished
    assert kept.error["code"] == "interrupted"


def test_a_finished_call_with_other_arguments_is_not_taken_for_this_one():
    seam = Seam((Entry(HERE, "read", digest(["read", {"n": 2}]), True, {"n": 2}),))
    with pytest.raises(ReplayError, match="with other arguments"):
        seam.call("read")
    assert seam.seen == []


def test_a_replay_in_which_a_node_now_raises_says_where(chain, monkeypatch):
    run = al.autonomous.start(al.Lab(chain(), planner="search", strategy="never"))
    run.finish()
    assert run.replay().identical
    monkeypatch.setattr(Search, "plan", lambda *arguments: 1 / 0)
    report = run.replay()
    assert report.divergence == "visit 1: now raises ZeroDivisionError: division by zero"
    assert (report.identical, report.matched, report.visits) == (False, 1, len(run.visited))


def test_calls_into_a_simulated_world_are_not_written_down(chain):
    lab = al.Lab(chain(), planner="reference", strategy="never")
    run = al.autonomous.start(lab)
    run.finish()
    assert run.state.tool_calls == 3
    assert run.journal.entries == {}
