"""A pause is a visit, and so is what ends it: stored, replayed, forked; nothing else changes."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.errors import RunError
from agentlab.runs.graph import END, Graph, node
from agentlab.runs.run import Run
from agentlab.trace.journal import Address

ways = {
    "finish": lambda run: run.finish(),
    "iterate": lambda run: list(run.iterate()),
    "run_until": lambda run: run.run_until(lambda _: run.stands),
}
each_way = pytest.mark.parametrize("way", ways.values(), ids=ways)


@pytest.fixture
def desk(notes, step):
    """Steps a and b, then r, which needs approval beside c, which needs none."""
    notes.refund = notes.tool("refund", effect="irreversible", needs_approval=True)
    notes.steps = [step("a"), step("b", "note", "a"), step("r", "refund", "b"),
                   step("c", "note", "b")]  # fmt: skip
    return notes


def start(desk, workflow=al.autonomous, steps=4, store=None, **options):
    lab = desk.lab(desk.steps[:steps], tools=[desk.refund], **options)
    return workflow.start(lab, "go", store=store)


def nodes(run):
    return [n for n in run.visited if n not in ("(pause)", "(go on)")]


def known(state):
    """Return a state without what counts visits, and without times of threads."""
    data = state.to_json()
    for name in ("visit", "now"):
        data.pop(name)
    return data


def reference(desk, workflow, steps, **options):
    run = start(desk, workflow, steps, **options)
    run.finish()
    return run


# ---- one pause -----------------------------------------------------------------------------


@each_way
def test_a_pause_before_the_first_step_is_heard_and_going_on_ends_it(desk, way):
    run = start(desk, steps=2)
    run.pause(by="Ada")
    assert (run.visited, run.paused) == ([], False)  # nobody has heard of it
    way(run)
    assert (run.visited, run.next_node, run.waiting) == (["(pause)"], "WAIT", ())
    assert (run.paused, run.stands, run.finished) == (True, True, False)
    assert run.state.loop_signal == "paused"
    assert "visits, paused>" in repr(run)
    way(run)
    assert run.finished
    assert run.visited[:3] == ["(pause)", "(go on)", "load_config"]
    assert run.state.loop_signal == "running"
    told = [(s.name, s.output) for s in run.spans if s.output and "by" in s.output]
    assert told == [("pause", {"by": "Ada"}), ("go on", {"by": "a person"})]
    assert run.replay().identical


def test_iterate_yields_what_is_visited(desk):
    run = start(desk, steps=2)
    run.step()
    run.pause()
    names = [n for n, _ in run.iterate()]
    names += [n for n, _ in run.iterate()]
    assert names == run.visited[1:]
    assert names[:3] == ["(pause)", "(go on)", "planning"]


def test_a_step_is_a_visit_also_of_a_pause(desk):
    run = start(desk, steps=2)
    run.step()
    run.pause()
    assert [run.step().node for _ in range(3)] == ["(pause)", "(go on)", "planning"]


def test_two_pauses_count_once(desk):
    run = start(desk, steps=2)
    run.pause(by="Ada")
    run.pause(by="Bob")
    run.finish()
    run.pause(by="Eve")  # it is paused already
    run.finish()
    assert run.finished
    assert [s.output["by"] for s in run.spans if s.name == "pause"] == ["Ada"]


def test_a_node_that_raises_forgets_no_pause(notes, step):
    """Whoever asked, while the node was under way, has asked."""

    def asks(**arguments):
        run.pause(by="Eve")
        raise KeyboardInterrupt

    run = notes.start([step("a", "asks")], tools=[notes.tool("asks", asks)])
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    run.finish()
    assert run.paused
    assert run.visited[-1] == "(pause)"


def test_of_a_pause_of_a_run_that_has_ended_nothing_comes(desk):
    run = start(desk, steps=2)
    run.finish()
    visits = list(run.visited)
    run.pause()
    assert run.finish() is run.state
    run.say("again")
    run.finish()
    assert run.visited[: len(visits) + 1] == [*visits, "(say)"]
    assert "(pause)" not in run.visited


def test_only_a_run_that_is_paused_goes_on(desk):
    run = start(desk, steps=2)
    with pytest.raises(RunError, match="not paused; it stands before 'load_config'"):
        run.go_on()


def test_going_on_to_a_node_stops_there_and_keeps_what_the_loop_said(desk):
    run = start(desk, steps=2)
    run.run_until("plan_execution")
    run.edit(loop_signal="limit")
    run.pause()
    run.finish()
    run.run_until("plan_execution")
    assert run.visited[-2:] == ["(pause)", "(go on)"]
    assert (run.next_node, run.state.loop_signal) == ("plan_execution", "limit")


def test_nobody_speaks_in_the_pause_of_a_turn(desk):
    run = start(desk, steps=2)
    run.run_until("plan_execution")
    run.pause()
    run.finish()
    with pytest.raises(RunError, match="under way, before 'plan_execution'"):
        run.say("stop")


def test_what_is_edited_in_a_pause_holds(desk):
    run = start(desk, steps=2)
    run.run_until("plan_execution")
    run.pause()
    run.finish()
    run.edit(plan=run.plan.without("b"))
    assert run.paused
    run.finish()
    assert len(desk.made) == 1
    assert run.replay().identical


def test_a_graph_of_ones_own_is_paused_too(desk):
    seen = []

    @node
    def first(state, lab):
        run.pause()  # as a handler or another thread would
        return state

    @node
    def second(state, lab):
        seen.append(state.visit)
        return state

    graph = Graph("two", [first, second], {"first": "second", "second": END}, "first")
    run = Run.start(graph, desk.lab(desk.steps), "go")
    run.finish()
    assert (run.visited, seen) == (["first", "(pause)"], [])
    run.finish()
    assert (run.visited[2:], seen) == (["(go on)", "second"], [3])


# ---- with people -----------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", [al.autonomous, al.resident])
@pytest.mark.parametrize("executor", ["simulated", "threads"])
def test_going_on_leaves_what_waits_for_people(desk, workflow, executor):
    run = start(desk, workflow, executor=executor)
    run.run_until(lambda state: bool(state.held))
    run.pause()
    run.finish()
    assert (run.paused, [p.call_id for p in run.waiting]) == (True, ["r"])
    assert "paused, waiting for people: r" in repr(run)
    run.finish()
    assert (run.paused, run.stands, [p.call_id for p in run.waiting]) == (False, True, ["r"])
    assert "(go on)" in run.visited
    run.review("r", "approve")
    run.finish()
    assert sorted(n for n, _ in desk.made) == ["note", "note", "note", "refund"]
    assert run.replay().identical


def test_a_review_in_a_pause_is_no_going_on(desk):
    run = start(desk)
    run.run_until(lambda state: bool(state.held))
    run.pause()
    run.finish()
    run.review("r", "approve")
    assert run.paused
    run.finish()
    assert run.finished
    assert run.replay().identical


def test_a_pause_of_a_run_that_waits_is_heard_after_the_answer(desk):
    run = start(desk)
    run.finish()
    visits = len(run.visited)
    run.pause()
    run.finish()
    assert len(run.visited) == visits
    run.review("r", "approve")
    run.finish()
    assert run.visited[visits:] == ["(review)", "(pause)"]
    run.finish()
    assert run.finished


def test_what_is_said_where_it_waits_ends_the_pause(desk):
    run = start(desk)
    run.finish()
    run.pause()
    run.step()  # heard at once
    assert run.paused
    run.say("forget it")
    assert run.visited[-2:] == ["(review)", "(say)"]
    assert not run.paused
    run.finish()
    assert run.replay().identical


# ---- anywhere, any number ----------------------------------------------------------------------


@pytest.mark.parametrize("workflow", [al.autonomous, al.resident])
@pytest.mark.parametrize("durable", [False, True])
@settings(max_examples=20, deadline=None)
@given(at=st.sets(st.integers(0, 9)), how=st.sampled_from(sorted(ways)))
def test_pauses_change_nothing_but_the_number_of_visits(
    workflow, durable, at, how, notebook, step, tmp_path_factory
):
    desk = notebook()
    desk.refund = desk.tool("refund")
    desk.steps = [step("a"), step("b", "note", "a"), step("x", "broken", "a"), step("c")]
    options = {"strategy": "event_driven", "seed": 3}
    plain = reference(desk, workflow, 4, **options)
    made, desk.made = desk.made, []
    folder = tmp_path_factory.mktemp("store") if durable else None
    run = start(desk, workflow, 4, store=folder, **options)
    while not run.finished:
        if len(nodes(run)) in at and run.visited[-1:] != ["(go on)"]:
            run.pause()
            run.finish()
            assert run.paused
            assert run.fork().paused
            ahead = run.fork(at=-1)
            assert not ahead.paused
            if durable:
                run = Run.resume(folder, run.lab, run.run_id)
                assert run.paused
            before = run.visited[:]
            run.fork(at=-1)
            assert run.visited == before
            run.go_on()
        run.step()
    assert nodes(run) == nodes(plain)
    assert known(run.state) == known(plain.state)
    assert run.visited.count("(pause)") == len([n for n in at if n < len(nodes(plain))])
    assert desk.made == made
    assert run.replay().identical
    if durable:
        again = Run.resume(folder, run.lab, run.run_id)
        assert (again.visited, again.state) == (run.visited, run.state)
        assert again.replay().identical


def test_forks_before_and_after_a_pause(desk):
    run = start(desk, steps=2)
    run.run_until("plan_execution")
    run.pause()
    run.finish()
    run.finish()
    at = run.visited.index("(pause)")
    before, inside, after = (run.fork(at=n) for n in (at, at + 1, at + 2))
    assert [f.paused for f in (before, inside, after)] == [False, True, False]
    for fork in (before, inside, after):
        assert fork.finish().ended == "completed"
        assert fork.replay().identical
    assert "(pause)" not in before.visited
    assert inside.visited == after.visited == run.visited
    run.rewind(at + 1)
    assert run.paused
    run.rewind(at)
    assert not run.paused
    assert run.finish().ended == "completed"


# ---- threads -----------------------------------------------------------------------------------


@each_way
def test_a_pause_does_not_wait_for_a_call_under_way_in_resident(notes, step, way):
    began, done = threading.Event(), threading.Event()

    def slow():
        began.set()
        assert done.wait(20)

    lab = notes.lab([step("a", "slow"), step("b", "note", "a")], executor="threads",
                    tools=[notes.tool("slow", slow)])  # fmt: skip
    run = al.resident.start(lab, "go")
    thread = threading.Thread(target=way, args=[run])
    thread.start()
    assert began.wait(20)
    run.pause()
    thread.join(20)
    assert not thread.is_alive()
    assert run.paused
    assert [u.step_id for u in run.state.under_way] == ["a"]
    done.set()
    assert run.finish().ended == "completed"
    assert [n for n, _ in notes.made] == ["slow", "note"]
    assert run.replay().identical


def test_standing_takes_no_time(desk):
    import time

    run = start(desk, steps=2, executor="threads")
    run.run_until("plan_execution")
    run.pause()
    run.finish()
    time.sleep(0.5)
    run.finish()
    assert run.state.now < 0.5


# ---- a process that dies -----------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
import agentlab as al

folder, log, then = sys.argv[1:]

@al.tool(effect="write")
def work(n: int) -> int:
    "Work."
    with open(log, "a") as file:
        file.write(f"{n} ")
    return n

plan = [
    {"name": f"s{n}", "actionType": "call_tool", "targetResource": "work", "parameters": {"n": n},
     "dependencies": [n - 1] if n else []}
    for n in range(4)
]
lab = al.Lab(tools=[work], planner=al.planners.Fixed(plan), executor=EXECUTOR)
if then == "start":
    run = al.WORKFLOW.start(lab, "work", store=folder)
    run.run_until(lambda state: len(state.task_results) == 2)
    run.pause(by="Ada")
    run.finish()
    os.kill(os.getpid(), signal.SIGKILL)
run = al.Run.resume(folder, lab)
assert run.paused == (then == "go on"), run
if then == "go on":
    run.go_on()
    os.kill(os.getpid(), signal.SIGKILL)
run.finish()
print(run.state.ended, run.replay().identical)
"""


@pytest.mark.parametrize("workflow", ["autonomous", "resident"])
@pytest.mark.parametrize("executor", ["simulated", "threads"])
def test_killed_in_a_pause_resumed_and_finished(workflow, executor, tmp_path):
    script, log = tmp_path / "script.py", tmp_path / "log"
    text = SCRIPT.replace("EXECUTOR", repr(executor)).replace("WORKFLOW", workflow)
    script.write_text(textwrap.dedent(text))

    def process(then):
        words = [sys.executable, str(script), str(tmp_path / "store"), str(log), then]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)

    assert process("start").returncode == -signal.SIGKILL
    assert log.read_text().split() == ["0", "1"]
    assert process("go on").returncode == -signal.SIGKILL
    last = process("finish")
    assert last.returncode == 0, last.stderr
    assert last.stdout.split() == ["completed", "True"]
    assert log.read_text().split() == ["0", "1", "2", "3"]


def test_a_visit_that_a_process_ended_in_is_made_before_a_pause(notes, step, tmp_path):
    """Its calls are known by the number of the visit, and must not be made again."""
    lab = notes.lab([step("a"), step("b", "note", "a")])
    run = al.autonomous.start(lab, "go", store=tmp_path)
    run.run_until("plan_execution")
    at = len(run.visited)
    checkpoint = run._store.checkpoint

    def killed(*given, **options):
        raise KeyboardInterrupt

    run._store.checkpoint = killed  # the call was made and written down, the visit was not
    with pytest.raises(KeyboardInterrupt):
        run.step()
    run._store.checkpoint = checkpoint
    assert len(notes.made) == 1
    again = Run.resume(run._store, lab)
    assert any(a.visit == at for a in again.journal.entries if isinstance(a, Address))
    again.pause()
    again.finish()
    assert again.visited[at:] == ["plan_execution", "(pause)"]
    again.finish()
    assert len(notes.made) == 2
    assert again.replay().identical
