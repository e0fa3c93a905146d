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
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("agentlab-session")])


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
    session._ordered = lambda order: (steps.append(0), looked(order))[1]
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


@pytest.fixture(params=["simulated", "threads"])
def paused(notes, step, request):
    """A session that was paused while the call of ``a`` went on; ``go`` lets that call end."""
    began, go = threading.Event(), threading.Event()

    def hold():
        began.set()
        assert go.wait(SECONDS)

    steps = [step("a", "hold"), step("b", "note", "a"), step("c", "note", "b")]
    loop = al.PlanningLoop(notes.lab(steps, tools=[notes.tool("hold", hold)]))
    session = loop.start("x", config=al.LoopConfig(executor=request.param, milestones=False))
    assert began.wait(SECONDS)
    session.pause(by="Ada")
    if request.param == "simulated":  # the call is part of a visit there
        go.set()
    until(lambda: session.run.paused)
    yield session, go
    go.set()
    session.stop()


def test_a_pause_lets_its_thread_sleep_until_it_goes_on(paused, notes):
    session, go = paused
    go.set()
    visits = len(session.run.visited)
    time.sleep(0.2)
    assert len(session.run.visited) == visits
    session.go_on(by="Ada")
    assert session.wait(SECONDS).ended == "completed"
    assert [n for n, _ in notes.made] == ["hold", "note", "note"]
    assert session.run.replay().identical
    with pytest.raises(RunError, match="not paused"):
        session.go_on()


def test_a_pause_ends_with_a_stop(paused):
    session, _ = paused
    session.stop()
    assert session.wait(SECONDS).ended == "aborted"
    assert session.run.replay().identical


def test_what_is_decided_and_asked_in_a_pause_comes_when_it_goes_on(paused):
    session, go = paused
    go.set()
    orders = [ReplanDecision(action=ReplanAction.CONTINUE, reasoning=r) for r in ("one", "two")]
    futures = [session.decide(order) for order in orders]
    futures.append(session.react())
    time.sleep(0.1)
    assert not any(f.done() for f in futures)
    session.go_on()
    made = [f.result(SECONDS) for f in futures]
    assert [d.reasoning for d in made[:2]] == ["one", "two"]
    assert session.wait(SECONDS).ended == "completed"
    assert session.run.replay().identical


def test_a_decision_and_a_pause_at_once(paused):
    """Whatever comes first: the decision is answered by itself, and the pause holds."""
    session, go = paused
    go.set()
    for n in range(20):
        session.go_on()
        order = ReplanDecision(action=ReplanAction.CONTINUE, reasoning=str(n))
        try:
            session.pause()
            future = session.decide(order)
            until(lambda: session.run.paused or session.run.finished)
            session.go_on()
            made = future.result(SECONDS)
        except RunError:  # it has ended
            break
        assert made.reasoning == str(n)
        session.pause()
        until(lambda: session.run.paused or session.run.finished)
        if session.run.finished:
            break
