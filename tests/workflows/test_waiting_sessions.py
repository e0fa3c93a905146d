"""Sessions whose plan waits for a person: the thread sleeps, and wakes for four reasons."""

from __future__ import annotations

import threading
import time

import pytest

import agentlab as al
from agentlab.errors import RunError
from agentlab.state.decisions import ReplanAction, ReplanDecision

SECONDS = 20.0


def until(true):
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("agentlab")])


@pytest.fixture(params=["simulated", "threads"])
def waiting(notes, step, request):
    """A session that waits for a review of ``r``; ``steps`` counts what its thread does."""
    refund = notes.tool("refund", effect="irreversible", needs_approval=True)
    lab = notes.lab([step("a"), step("r", "refund", "a")], tools=[refund])
    loop = al.PlanningLoop(lab)
    session = loop.start("x", config=al.LoopConfig(executor=request.param))
    until(lambda: session.waiting and session.run.next_node == "WAIT")
    yield loop, session
    session.stop()


def test_its_thread_sleeps_and_a_review_wakes_it(waiting, notes):
    _, session = waiting
    steps = []
    step = session.run.step
    session.run.step = lambda: (steps.append(1), step())[1]
    looked = session._ordered
    session._ordered = lambda: (steps.append(0), looked())[1]
    before = time.thread_time()
    time.sleep(0.3)
    assert len(steps) <= 2
    assert time.thread_time() - before < 0.2
    with pytest.raises(RunError, match="did you mean 'r'"):
        session.review("rr", "approve")
    session.review("r", "approve", by="Ada")
    state = session.wait(SECONDS)
    assert state.ended == "completed"
    assert [n for n, _ in notes.made] == ["note", "refund"]
    assert session.run.replay().identical


def test_stopping_while_it_waits_takes_no_time(waiting, notes):
    loop, session = waiting
    began = time.monotonic()
    loop.stop(session.session_id)
    assert time.monotonic() - began < 2
    session.wait(SECONDS)
    assert session.status == "ABORTED"
    assert session.abandoned == ()
    assert [n for n, _ in notes.made] == ["note"]
    with pytest.raises(RunError):
        session.review("r", "approve")


def test_an_event_wakes_it_and_it_waits_again(waiting, notes):
    loop, session = waiting
    visits = len(session.run.visited)
    loop.publish_event(
        session.session_id,
        al.ContextChangeEvent(type="EXTERNAL_SIGNAL", severity="INFO", description="x"),
    )
    until(lambda: len(session.run.visited) > visits and session.run.next_node == "WAIT")
    time.sleep(0.1)
    assert len(session.run.visited) <= visits + 3
    assert any(e.description == "x" for e in session.run.state.events)
    session.review("r", "reject")
    session.wait(SECONDS)
    assert [n for n, _ in notes.made] == ["note"]
    assert session.run.replay().identical


def test_a_decision_wakes_it(waiting, notes):
    loop, session = waiting
    made = loop.execute_replan(
        session, ReplanDecision(action=ReplanAction.ABORT, reasoning="enough")
    )
    assert made.result(SECONDS).action == "ABORT"
    assert session.wait(SECONDS).stopped_by == "abort"
    assert [n for n, _ in notes.made] == ["note"]
    assert session.run.replay().identical


def test_a_demand_for_a_decision_wakes_it(waiting):
    loop, session = waiting
    assert loop.react(session.session_id).result(SECONDS).action in list(ReplanAction)
