"""One worker with real tools: one thread a run, deadlines, events, what belongs to a thread."""

from __future__ import annotations

import contextvars
import gc
import signal
import sqlite3
import threading
import time
import weakref

import pytest

import agentlab as al
from agentlab.environments.base import clock_of
from agentlab.environments.chain import Chain, generate
from agentlab.environments.named import get_environment
from agentlab.errors import EnvironmentContractError
from agentlab.lab.executor import SimulatedExecutor
from agentlab.lab.threads import ThreadedExecutor
from agentlab.lab.worker import MOST_IDLE, Worker
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings
from agentlab.state.events import ContextChangeEvent

LONG = 20.0


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("agentlab "):
            thread.join(LONG)
            assert not thread.is_alive()


@pytest.fixture
def bench(notes):
    """Tools that note the thread in which they are called, and one that hangs until it may go."""
    notes.threads, notes.go_on = [], threading.Event()

    def look(**arguments):
        notes.threads.append(threading.current_thread())
        return arguments

    def hang(**arguments):
        notes.threads.append(threading.current_thread())
        notes.go_on.wait(LONG)
        return "late"

    notes.look, notes.hang = notes.tool("look", look), notes.tool("hang", hang, timeout=0.05)
    yield notes
    notes.go_on.set()


def started(bench, *plan, workflow=al.autonomous, **options):
    options = {"executor": None, "strategy": "never", **options}
    return workflow.start(bench.lab(*plan, tools=[bench.look, bench.hang], **options), "do it")


def test_all_calls_of_a_run_and_of_its_turns_are_made_in_one_thread(bench, step):
    run = started(bench, [step("a", "look"), step("b", "look", "a")], [step("c", "look")])
    run.finish()
    run.say("again")
    run.finish()
    [thread] = set(bench.threads)
    assert len(bench.threads) >= 3
    assert thread is not threading.current_thread()
    run.lab.executor.close()
    thread.join(LONG)
    assert not thread.is_alive()


def test_the_thread_ends_with_the_run_that_nobody_has_any_more(bench, step):
    run = started(bench, [step("a", "look")])
    run.finish()
    [thread] = bench.threads
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None
    thread.join(LONG)
    assert not thread.is_alive()


def test_only_so_many_threads_are_kept_for_runs_that_ended(bench, step):
    runs = [started(bench, [step("a", "look")]) for _ in range(MOST_IDLE + 5)]
    for run in runs:
        run.finish()
    for thread in bench.threads[:5]:
        thread.join(LONG)
    assert sum(t.is_alive() for t in bench.threads) <= MOST_IDLE


def test_a_call_that_hangs_ends_at_its_timeout_and_those_after_it_have_another_thread(bench, step):
    plan = [step("a", "look"), step("b", "hang"), step("c", "look"), step("d", "look")]
    run = started(bench, plan)
    run.finish()
    assert [s.status for s in run.plan.steps] == [
        "completed", "interrupted", "completed", "completed",
    ]  # fmt: skip
    a, b, c, d = bench.threads
    assert a is b
    assert c is d
    assert c is not a
    time.sleep(0.6)
    assert [(x.step_id, x.tool) for x in run.abandoned] == [("b", "hang")]
    assert run.replay().identical
    bench.go_on.set()
    a.join(LONG)
    assert not a.is_alive()


def test_an_event_is_heard_while_a_call_goes_on(bench, step):
    class Ends:
        def on_replan_required(self, reason, count):
            bench.go_on.set()

    bench.hang = bench.tool("hang", bench.hang.function, timeout=LONG)
    run = started(
        bench, [step("b", "hang")], [step("x", "look")], workflow=al.resident,
        strategy="event_driven", handler=Ends(),
    )  # fmt: skip

    def publish():
        while not bench.threads:
            time.sleep(0.005)
        run.publish(ContextChangeEvent(type="NEW_CONSTRAINT", description="stop that"))

    threading.Thread(target=publish).start()
    began = time.monotonic()
    run.finish()
    assert time.monotonic() - began < LONG / 2
    assert run.state.replan_count == 1
    assert run.state.replan_history[0].before.step("b").status == "running"


def test_what_a_tool_made_of_its_own_thread_serves_all_its_calls(notes, step):
    opened = []

    def ask(sql):
        if not opened:
            opened.append(sqlite3.connect(":memory:"))
        return [list(row) for row in opened[0].execute(sql)]

    tool = notes.tool("ask", ask)
    plan = [step(i, "ask", parameters={"sql": "select 1"}) for i in ("a", "b")]
    run = notes.run(plan, [plan[0]], tools=[tool], executor=None, strategy="never")
    run.say("again")
    run.finish()
    assert [r.status for r in run.state.task_results] == ["completed"] * 3
    run.lab.executor.worker.carry(opened.pop().close, lambda _: None)


def test_what_belongs_to_the_callers_thread_is_told_what_to_do(notes, step):
    with sqlite3.connect(":memory:") as ours:
        tool = notes.tool("ask", lambda: [list(row) for row in ours.execute("select 1")])
        run = notes.run([step("a", "ask")], tools=[tool], executor=None, strategy="never")
        error = run.plan.steps[0].error
        assert "same thread" in error
        assert "check_same_thread=False" in error
        assert "Lab(executor='simulated')" in error
        assert run.replay().identical
        run = notes.run([step("a", "ask")], tools=[tool], executor="simulated", strategy="never")
        assert run.plan.steps[0].status == "completed"
    ours.close()


def test_an_error_that_has_nothing_to_do_with_threads_is_as_it_was(notes, step):
    def fail():
        raise ValueError("no thread 17 in this forum")

    run = notes.run([step("a", "f")], tools=[notes.tool("f", fail)], executor=None)
    assert "Lab(" not in run.plan.steps[0].error


def test_a_call_has_the_context_of_the_caller(notes, step):
    who = contextvars.ContextVar("who", default="nobody")
    run = notes.start(
        [step("a", "ask"), step("b", "ask", "a")], tools=[notes.tool("ask", who.get)],
        executor=None, strategy="never",
    )  # fmt: skip
    token = who.set("Ada")
    run.run_until(lambda state: "a" in state.results)
    who.set("Bob")
    run.finish()
    who.reset(token)
    assert (run.state.results["a"], run.state.results["b"]) == ("Ada", "Bob")


def test_a_sub_agent_calls_in_the_thread_of_the_run_around_it(bench, step, fresh_names):
    from agentlab.minds.planners.fixed import Fixed

    al.register("planner", "looker", lambda: Fixed([step("in", "look")]))
    agents = AgentRegistry(
        [
            AgentSettings(id="boss", sub_agents=["worker"]),
            AgentSettings(id="worker", planner="looker", tools=["look"]),
        ],
        tools=[ToolSettings(id="look", name="look")],
    )
    ask = step("ask", "worker", "a", actionType="call_sub_agent")
    plan = [step("a", "look"), ask, step("b", "look", "ask")]
    run = started(bench, plan, agent="boss", agents=agents)
    run.finish()
    assert [s.status for s in run.plan.steps] == ["completed"] * 3
    assert len(bench.threads) == 3
    assert len(set(bench.threads)) == 1
    assert run.replay().identical


def test_ctrl_c_comes_through_while_a_call_goes_on_and_the_run_goes_on(bench, step):
    bench.hang = bench.tool("hang", bench.hang.function, timeout=LONG)
    run = started(bench, [step("b", "hang")])

    def interrupt():
        while not bench.threads:
            time.sleep(0.005)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    bench.go_on.set()
    run.finish()
    assert run.plan.steps[0].status == "completed"
    assert len(bench.threads) == 1  # the call that went on was waited for, and not made again


def test_a_worker_leaves_a_thread_only_where_the_last_call_still_goes_on():
    worker, done, go_on = Worker(), threading.Event(), threading.Event()
    first = worker.carry(lambda: 1, lambda _: done.set())
    assert done.wait(LONG)
    assert worker.carry(lambda: go_on.wait(LONG), lambda _: None) is first
    second = worker.carry(lambda: 2, lambda _: None)
    assert second is not first
    worker.end()
    go_on.set()
    for thread in (first, second):
        thread.join(LONG)
        assert not thread.is_alive()


# ---- whose clock ---------------------------------------------------------------------------------


class Wall(Chain):
    """A chain that nobody can say the durations of."""

    name = "wall"
    clock = "wall"


def test_the_world_says_whether_time_is_simulated(bench, step):
    scenario = generate("easy", 0)

    def of(**options):
        return type(al.Lab(scenario, **options).executor)

    assert of(tools=[bench.look]) is SimulatedExecutor
    assert of(tools=[bench.look], workers=3) is SimulatedExecutor
    assert of(tools=[bench.look], environment=Wall()) is ThreadedExecutor
    assert of(environment=Wall()) is SimulatedExecutor
    assert of(environment=Wall(), executor="threads") is ThreadedExecutor
    assert of(tools=[bench.look], environment=Wall(), executor="simulated") is SimulatedExecutor
    assert type(al.Lab(scenario, environment=Wall()).bind(tools=[bench.look]).executor) is (
        ThreadedExecutor
    )
    assert clock_of(get_environment("agentdojo/banking")) == "wall"


def test_a_scenario_of_a_wall_clock_world_runs_by_wall_time_beside_real_tools(bench, step):
    from agentlab.minds.planners.fixed import Fixed

    scenario = generate("easy", 0, length=1)
    move = al.autonomous.start(al.Lab(scenario))
    move.finish()
    moves = [
        step(s.step_id, s.target_resource, *("a",), parameters=dict(s.parameters))
        for s in move.plan.steps
        if "${" not in str(s.parameters)
    ]  # fmt: skip
    lab = al.Lab(
        scenario, environment=Wall(), tools=[bench.look], strategy="never",
        planner=Fixed([step("a", "look"), *moves[:1]]),
    )  # fmt: skip
    run = al.autonomous.start(lab)
    run.finish()
    assert [s.status for s in run.plan.steps] == ["completed"] * len(run.plan.steps)
    assert run.state.now < 0.5  # of a tool that says that it takes a second
    assert run.replay().identical


def test_a_clock_that_is_none_is_refused():
    scenario = generate("easy", 0)
    odd = type("Odd", (Chain,), {"clock": "wal"})()
    with pytest.raises(EnvironmentContractError, match="did you mean 'wall'"):
        al.check_environment(odd, scenario)
    with pytest.raises(EnvironmentContractError, match="did you mean 'wall'"):
        al.Lab(scenario, environment=odd)


def test_a_budget_in_seconds_is_one_of_the_runs_clock(bench, step):
    bench.hang = bench.tool("hang", lambda: time.sleep(0.05), timeout=LONG)
    strategy = al.strategies.never().within(seconds=0.04)
    run = started(bench, [step("a", "hang"), step("b", "hang", "a")], strategy=strategy)
    run.finish()
    assert run.state.stopped_by == "seconds"
    assert [s.status for s in run.plan.steps] == ["completed", "pending"]
