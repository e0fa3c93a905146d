"""Sessions on threads of their own: what reaches them from outside, and how they end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import agentlab as al
from agentlab.errors import ConfigError, PlanEditError, RunError, UnknownNameError
from agentlab.minds.base import checked_plan
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.strategies.presets import event_driven
from agentlab.state.state import LoopStatus
from agentlab.workflows.sessions import PlanningLoopRegistry

LONG = 30.0


def event(kind="EXTERNAL_SIGNAL", **fields):
    return al.ContextChangeEvent(type=kind, **fields)


def ours():
    """The threads of sessions and of calls, without those that are kept for later ones."""
    kept = ("agentlab tools", "agentlab calls")
    started = [t for t in threading.enumerate() if t.name.startswith("agentlab")]
    return [t for t in started if t.name not in kept]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    for thread in ours():
        thread.join(5)
    assert ours() == []


class Gate:
    """Something that is waited for inside a tool, planner, decider or responder."""

    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, *_, **__):
        self.reached.set()
        assert self.open.wait(LONG)
        return {}


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open.set()


class Gated:
    """A planner, decider and responder that waits at a gate before it does what another does."""

    def __init__(self, gate, inner):
        self.gate, self.inner = gate, inner

    def plan(self, request, bench):
        self.gate()
        return self.inner.plan(request, bench)

    def decide(self, trigger, state, bench):
        self.gate()
        return self.inner

    def respond(self, state, bench):
        self.gate()
        return self.inner


# ---- the seven behaviours of the page ------------------------------------------------------------


def test_step_two_of_three_fails_and_step_three_is_replaced(notes, step):
    class Planner:
        requests: list = []

        def plan(self, request, bench):
            self.requests.append(request)
            steps = [
                [step("one", parameters={"n": 1}), step("two", "broken", "one"),
                 step("three", "note", "two")],
                [step("four", parameters={"n": "${one.n}"})],
            ]  # fmt: skip
            return checked_plan({"steps": steps[request.number]}, request, bench)

    planner = Planner()
    with al.PlanningLoop(notes.lab(planner=planner)) as loop:
        session = loop.start("do it")
        session.wait(LONG)
    assert session.status == "COMPLETED"
    (record,) = session.replan_history
    assert record.decision.action == "REPLAN_REMAINING"
    assert [s.step_id for s in record.before.steps] == ["one", "two", "three"]
    assert [s.step_id for s in session.current_plan.steps] == ["one", "four"]
    assert notes.made == [("note", {"n": 1}), ("broken", {}), ("note", {"n": 1})]
    assert [s.step_id for s in planner.requests[1].done] == ["one"]
    assert planner.requests[1].results["one"] == {"n": 1}


def test_three_successes_complete(notes, step):
    with al.PlanningLoop(
        notes.lab([step("a"), step("b", "note", "a"), step("c", "note", "b")])
    ) as loop:
        session = loop.start("do it")
        session.wait(LONG)
    assert session.status is LoopStatus.COMPLETED
    assert [s.step_id for s in session.completed_tasks] == ["a", "b", "c"]
    assert session.replan_count == 0


def test_the_fourth_failure_aborts_and_replans_are_told(notes, step, heard):
    log = heard()
    with al.PlanningLoop(notes.lab(*[[step(f"s{i}", "broken")] for i in range(9)])) as loop:
        session = loop.start("do it", log)
        session.wait(LONG)
    assert (session.status, session.replan_count) == ("ABORTED", 3)
    assert len(notes.made) == 4
    told = [(e.reason, e.count) for e in log.events if e.kind == "replan_required"]
    assert [count for _, count in told] == [1, 2, 3]
    assert [reason for reason, _ in told] == [r.decision.reasoning for r in session.replan_history]
    assert session.handler is log
    assert log.events[-2].kind == "complete"
    assert log.events[-2].session_id == session.session_id
    assert "limit of replans" in log.events[-2].final_response


def lonely(step, number):
    """A plan whose tool calls carry the session's number, with a failure in every third."""
    bad = "broken" if number % 3 == 0 else "note"
    steps = [step(f"s{i}", "note", *([f"s{i - 1}"] if i else []), parameters={"of": number, "i": i})
             for i in range(3)]  # fmt: skip
    return [[*steps, step("last", bad, "s2", parameters={"of": number})],
            [step("mended", parameters={"of": number, "was": "${s0.of}"})]]  # fmt: skip


def test_two_hundred_sessions_do_not_touch_each_other(notebook, step):
    everyone = threading.Event()

    class Planner:
        def plan(self, request, bench):
            assert everyone.wait(LONG)
            number = int(request.user_input)
            return checked_plan({"steps": lonely(step, number)[request.number]}, request, bench)

    notes, registry = notebook(), PlanningLoopRegistry()
    loop = al.PlanningLoop(notes.lab(planner=Planner()), registry)

    def start(n):
        session = loop.start(str(n), config=al.LoopConfig(batch_react_size=9))
        told = event("TASK_INTERRUPTED", description=f"for {n}")
        loop.publish_event(session.session_id, told)
        return session

    with ThreadPoolExecutor(8) as pool:
        sessions = dict(enumerate(pool.map(start, range(200))))
    assert len(registry.active_sessions) == len(ours()) == 200
    everyone.set()
    for n, session in sessions.items():
        state = session.wait(LONG)
        mended = n % 3 == 0
        assert (session.status, session.replan_count) == ("COMPLETED", int(mended))
        ids = ["s0", "s1", "s2", "mended" if mended else "last"]
        assert [s.step_id for s in session.completed_tasks] == ids
        assert {c.arguments["of"] for c in state.calls} == {n}
        assert all(r["of"] == n for r in state.results.values())
        assert {e.session_id for e in state.events} == {session.session_id}
        published = [e.description for e in state.events if e.type == "TASK_INTERRUPTED"]
        assert published == [f"for {n}"]
        assert str(n) in state.final_response
        assert session.run.replay().identical
    assert len({s.session_id for s in sessions.values()}) == len(sessions) == 200
    made = Counter(arguments["of"] for name, arguments in notes.made)
    assert made == {n: 5 if n % 3 == 0 else 4 for n in range(200)}
    assert registry.active_sessions == ()


def test_events_published_during_decisions_are_neither_lost_nor_handled_twice(notes, step):
    """16 threads publish while the run decides; each event is in one decision, and once."""
    accepted, done = Counter(), threading.Event()

    class Slow:
        def __call__(self, trigger, state, bench):
            time.sleep(0.002)
            return al.ReplanDecision(action="CONTINUE")

    plan = [step(f"s{i}", "note", *([f"s{i - 1}"] if i else [])) for i in range(60)]
    strategy = event_driven()
    strategy = al.Strategy("slow", strategy.trigger, Slow(), watches=True)
    run = al.resident.start(notes.lab(plan, strategy=strategy), "do it")
    run.run_until("monitor")

    def publish(k):
        rng = random.Random(k)
        made = []
        for i in range(200):
            severity = rng.choice(["INFO", "WARNING", "CRITICAL"])
            try:
                run.publish(event(description=f"{k}/{i}", severity=severity))
                made.append(f"{k}/{i}")
            except RunError:
                break
            if done.is_set():
                break
            time.sleep(rng.random() / 500)
        return made

    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(publish, k) for k in range(16)]
        run.finish()
        done.set()
        for future in futures:
            accepted.update(future.result())
    heard = Counter(e.description for e in run.state.events if e.type == "EXTERNAL_SIGNAL")
    assert heard == accepted
    assert set(heard.values()) == {1}
    decisions = []
    for before, after in zip(run.states, run.states[1:], strict=False):
        if after.last_decision is not before.last_decision:
            decisions.append(after.last_decision)
    decided = Counter(
        e.description for d in decisions for e in d.events if e.type == "EXTERNAL_SIGNAL"
    )
    assert not decided - heard
    assert set(decided.values()) == {1}
    late = [e.description for e in run.state.fresh_events if e.type == "EXTERNAL_SIGNAL"]
    assert decided + Counter(late) == heard
    assert len(decisions) > 20
    assert sum(len(d.events) > 1 for d in decisions) > 5  # some came while one was being made
    for k in range(16):  # the order of each publisher is kept
        mine = [int(d.split("/")[1]) for d in heard if d.startswith(f"{k}/")]
        assert mine == sorted(mine)
    assert run.replay().identical


# ---- stop ----------------------------------------------------------------------------------------


def stopped(loop, session):
    before = time.perf_counter()
    loop.stop(session.session_id)
    assert time.perf_counter() - before < 1.0
    assert session.status == "ABORTED"
    assert loop.registry.active_sessions == ()
    with pytest.raises(UnknownNameError):
        loop.get_session(session.session_id)


@pytest.mark.parametrize(
    "status", ["PLANNING", "EXECUTING", "MONITORING", "REACTING", "REPLANNING"]
)
def test_stop_in_every_status(notes, step, gate, monkeypatch, status):
    """The session is held in a status, by what it waits for there, and stopped."""
    plans = Fixed([step("a", "broken"), step("b")], [step("c")])
    lab = notes.lab(planner=plans)
    node = {
        "PLANNING": "plan", "EXECUTING": "execute", "MONITORING": "monitor", "REACTING": "react",
        "REPLANNING": "replan",
    }[status]  # fmt: skip
    inner = al.resident.nodes[node]

    def held(state, bench):
        gate()
        return inner.function(state, bench)

    nodes = [al.node(held) if n is inner else n for n in al.resident.nodes.values()]
    object.__setattr__(nodes[list(al.resident.nodes).index(node)], "name", node)
    graph = al.Workflow("held", nodes, al.resident.routers, al.resident.entry)
    monkeypatch.setattr("agentlab.workflows.planning_loop.resident", graph)
    loop = al.PlanningLoop(lab)
    session = loop.start("do it")
    assert gate.reached.wait(LONG)
    assert session.status == status
    stopped(loop, session)
    assert session.abandoned == (f"agentlab-session-{session.session_id}",)
    made = list(notes.made)
    gate.open.set()
    state = session.wait(LONG)
    assert session.status == "ABORTED"
    assert session.abandoned == ()
    hands_over = status in ("EXECUTING", "MONITORING")  # one step may have been, before the stop
    assert len(notes.made) - len(made) <= hands_over
    assert state.final_response is not None
    assert session.replan_count <= 1


def test_stop_of_a_session_that_has_ended_changes_nothing(notes, step):
    loop = al.PlanningLoop(notes.lab([step("a")]))
    session = loop.start("do it")
    session.wait(LONG)
    loop.stop(session.session_id)
    session.stop()
    loop.stop("nobody")
    assert session.status == "COMPLETED"
    assert session.abandoned == ()


def test_stop_while_the_response_is_written(notes, step, gate):
    lab = notes.lab([step("a")], responder=Gated(gate, "said"))
    loop = al.PlanningLoop(lab)
    session = loop.start("do it")
    assert gate.reached.wait(LONG)
    stopped(loop, session)
    gate.open.set()
    session.wait(LONG)
    session.stop()
    assert session.status == "ABORTED"  # as it was when it was left


def test_stop_from_the_session_s_own_thread(notes, step):
    class Stopper:
        def on_replan_required(self, reason, count):
            loop.stop(session.session_id)

    ready = threading.Event()

    def wait(**arguments):
        assert ready.wait(LONG)
        raise ValueError

    lab = notes.lab([step("a", "wait")], [step("b")], tools=[notes.tool("wait", wait)])
    loop = al.PlanningLoop(lab)
    session = loop.start("do it", Stopper())
    ready.set()
    state = session.wait(LONG)
    assert session.status == "ABORTED"
    assert "somebody stopped the session" in state.final_response


def test_a_stop_tells_the_user_by_template_and_cancels(notes, step, gate, heard):
    log = heard()
    lab = notes.lab([step("a", "hold"), step("b", "note", "a")], tools=[notes.tool("hold", gate)],
                    responder=Gated(Gate(), "never"))  # fmt: skip
    loop = al.PlanningLoop(lab)
    session = loop.start("do it", log)
    assert gate.reached.wait(LONG)
    threading.Timer(0.1, gate.open.set).start()
    stopped(loop, session)
    state = session.wait(LONG)
    assert "It stopped because the run was aborted." in state.final_response
    assert state.last_decision.action == "ABORT"
    assert log.events[-2].final_response == state.final_response
    assert [name for name, _ in notes.made] == ["hold"]


def test_leaving_the_loop_stops_what_is_left(notes, step, gate):
    before = 0.0
    with al.PlanningLoop(notes.lab(planner=Gated(gate, Fixed([step("a")])))) as loop:
        sessions = [loop.start("do it") for _ in range(20)]
        assert gate.reached.wait(LONG)
        before = time.perf_counter()
    assert time.perf_counter() - before < 2
    assert {s.status for s in sessions} == {LoopStatus.ABORTED}
    assert loop.registry.active_sessions == ()


# ---- tools in threads ----------------------------------------------------------------------------


def working(notes, step, *tools, **options):
    """A loop over a plan of one step for each tool, and a last one after all of them."""
    plan = [step(t.name, t.name) for t in tools]
    plan.append(step("last", "note", *(t.name for t in tools)))
    return al.PlanningLoop(notes.lab(plan, [step("new")], tools=tools, workers=4, **options))


def test_a_stop_cancels_a_tool_that_listens(notes, step):
    told = threading.Event()

    def listen(**arguments):
        told.set()
        token = al.cancel_token()
        while True:
            token.wait(LONG)
            token.check()

    loop = working(notes, step, notes.tool("listen", listen))
    session = loop.start("do it")
    assert told.wait(LONG)
    stopped(loop, session)
    assert session.abandoned == ()
    assert ours() == []
    assert session.current_plan.step("listen").status == "interrupted"
    assert session.current_plan.step("last").status == "pending"


def test_a_tool_that_ignores_its_token_is_left_and_listed(notes, step, gate):
    loop = working(notes, step, notes.tool("deaf", gate))
    session = loop.start("do it")
    assert gate.reached.wait(LONG)
    stopped(loop, session)
    assert session.abandoned == ("deaf of step deaf",)
    assert [t.name for t in ours()] == ["agentlab deaf"]
    state = session.wait(LONG)
    gate.open.set()
    for thread in ours():
        thread.join(5)
    assert session.abandoned == ()
    assert session.run.state is state  # its late result is never applied
    assert "deaf" not in state.results
    assert session.run.replay().identical


def test_an_event_wakes_the_monitor_while_a_tool_works(notes, step, gate):
    """The decision is made, and the rest replaced, while the tool is under way; it may finish."""
    loop = working(notes, step, notes.tool("long", gate))
    with loop:
        session = loop.start("do it")
        assert gate.reached.wait(LONG)
        loop.publish_event(session.session_id, event("NEW_CONSTRAINT", description="hurry"))
        end = time.monotonic() + LONG
        while session.replan_count == 0 and time.monotonic() < end:
            time.sleep(0.01)
        asked = loop.react(session.session_id)
        assert asked.result(LONG).action == "CONTINUE"
        assert [u.step_id for u in session.run.state.under_way] == ["long"]
        gate.open.set()
        session.wait(LONG)
    assert session.status == "COMPLETED"
    assert sorted(s.step_id for s in session.completed_tasks) == ["long", "new"]
    assert session.run.replay().identical


def test_a_decision_interrupts_a_tool_that_works(notes, step, gate):
    loop = working(notes, step, notes.tool("long", gate))
    with loop:
        session = loop.start("do it")
        assert gate.reached.wait(LONG)
        decision = al.ReplanDecision(action="REPLAN_FULL", reasoning="start over")
        assert loop.execute_replan(session, decision).result(LONG).action == "REPLAN_FULL"
        session.wait(LONG)
    assert session.status == "COMPLETED"
    assert [s.step_id for s in session.completed_tasks] == ["new"]
    context = session.replan_history[0].before.step("long").interruption_context
    assert context.reason == "REPLAN_FULL: start over"
    assert session.abandoned == ("long of step long",)


def test_in_threads_a_fork_marks_what_is_under_way_interrupted(notes, step, gate):
    loop = working(notes, step, notes.tool("long", gate))
    with loop:
        session = loop.start("do it")
        assert gate.reached.wait(LONG)
        while not session.run.state.under_way:  # until the visit that handed it over has ended
            time.sleep(0.01)
        fork = session.run.fork()
        gate.open.set()
        fork.finish()
        session.wait(LONG)
    assert session.status == "COMPLETED"
    assert "TASK_INTERRUPTED" in [e.type for e in fork.state.events]
    assert fork.state.loop_status == "COMPLETED"
    assert [s.step_id for s in fork.state.completed_tasks] == ["new"]


@pytest.mark.parametrize("attempt", range(3))
def test_a_storm_of_events_while_tools_work_in_threads(notes, step, attempt):
    nap = notes.tool("nap", lambda **_: time.sleep(0.003) or {})
    plan = [step(f"s{i}", "nap", *([f"s{i - 4}"] if i > 3 else [])) for i in range(60)]
    loop = al.PlanningLoop(notes.lab(plan, tools=[nap], workers=4))
    session = loop.start("do it", config=al.LoopConfig(batch_react_size=10**6))

    def publish(k):
        told = []
        for i in range(100):
            try:
                loop.publish_event(
                    session.session_id, event(severity="WARNING", description=f"{k}/{i}")
                )
            except (RunError, UnknownNameError):
                break
            told.append(f"{k}/{i}")
            time.sleep(0.001)
        return told

    with ThreadPoolExecutor(16) as pool:
        told = Counter(d for made in pool.map(publish, range(16)) for d in made)
    state = session.wait(LONG)
    assert session.status == "COMPLETED"
    assert Counter(e.description for e in state.events if e.type == "EXTERNAL_SIGNAL") == told
    assert len(notes.made) == 60
    assert session.run.replay().identical


# ---- from outside --------------------------------------------------------------------------------


@pytest.fixture
def held(notes, step, gate):
    """A session whose first step waits, and its visit with it; its plan has two more."""
    lab = notes.lab([step("a", "hold"), step("b", "note", "a"), step("c", "note", "b")],
                    [step("d")], tools=[notes.tool("hold", gate)])  # fmt: skip
    with al.PlanningLoop(lab) as loop:
        config = al.LoopConfig(milestones=False, executor="simulated")
        session = loop.start("do it", config=config)
        assert gate.reached.wait(LONG)
        yield loop, session, gate


def test_what_a_session_tells(held):
    loop, session, gate = held
    assert loop.get_session(session.session_id) is session
    assert loop.registry.active_sessions == (session,)
    assert session.status == "MONITORING"
    assert (session.original_goal, session.replan_count, session.max_replans) == ("do it", 0, 3)
    assert (session.react_threshold, session.batch_react_size) == ("WARNING", 3)
    assert [s.step_id for s in session.current_plan.steps] == ["a", "b", "c"]
    assert session.run_context is session.run.lab
    assert session.start_time.tzinfo is not None
    assert repr(session) == f"<session {session.session_id} MONITORING, 0 replans>"
    with pytest.raises(RunError, match="has not ended within 0 s"):
        session.wait(0)
    loop.publish_event(session.session_id, event(severity="INFO"))
    assert [e.type for e in session.pending_events] == ["EXTERNAL_SIGNAL"]
    gate.open.set()
    session.wait(LONG)
    assert session.status == "COMPLETED"
    assert loop.registry.active_sessions == ()


def test_react_is_a_decision_to_come(held):
    loop, session, gate = held
    future = loop.react(session.session_id)
    assert not future.done()
    assert not future.cancel()
    gate.open.set()
    decision = future.result(LONG)
    assert decision.action == "CONTINUE"
    assert decision.events[-1].description == "somebody asks for a decision"
    session.wait(LONG)
    assert session.status == "COMPLETED"
    assert session.run.replay().identical


def test_react_where_the_session_ends_first(held):
    loop, session, gate = held
    future = loop.react(session.session_id)
    loop.stop(session.session_id)
    gate.open.set()
    answer = future.exception(LONG) or future.result()
    assert isinstance(answer, RunError) or answer.action == "ABORT"
    with pytest.raises(UnknownNameError):
        loop.react(session.session_id)
    session.wait(LONG)
    with pytest.raises(RunError, match="the run has ended"):
        session.react()
    with pytest.raises(RunError, match="has ended"):
        session.decide(al.ReplanDecision(action="CONTINUE"))


def test_a_decision_that_is_put_in(held):
    loop, session, gate = held
    decision = al.ReplanDecision(action="REPLAN_REMAINING", reasoning="I know better")
    future = loop.execute_replan(session, decision)
    gate.open.set()
    assert future.result(LONG).reasoning == "I know better"
    session.wait(LONG)
    assert [s.step_id for s in session.completed_tasks] == ["a", "d"]
    assert session.replan_history[0].decision.reasoning == "I know better"
    assert session.run.replay().identical


def test_a_decision_that_cancels_what_is_completed(held):
    loop, session, gate = held
    with pytest.raises(PlanEditError, match="step 7 cannot be cancelled"):
        loop.execute_replan(
            session, al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(7,))
        )
    late = loop.execute_replan(
        session, al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(0,))
    )
    gate.open.set()  # "a" completes before the decision is looked at
    assert isinstance(late.exception(LONG), PlanEditError)
    session.wait(LONG)
    assert session.status == "COMPLETED"


def test_a_session_whose_node_raises_ends_and_tells(notes, step):
    class Broken:
        def plan(self, request, bench):
            raise ZeroDivisionError("planner's own")

    loop = al.PlanningLoop(notes.lab(planner=Broken()))
    session = loop.start("do it")
    with pytest.raises(ZeroDivisionError, match="planner's own"):
        session.wait(LONG)
    assert session.status == "ABORTED"
    assert loop.registry.active_sessions == ()
    with pytest.raises(RunError):
        session.run.publish(event())


def test_names_of_sessions(held):
    loop, session, gate = held
    with pytest.raises(UnknownNameError, match="unknown session 'nobody'"):
        loop.publish_event("nobody", event())
    with pytest.raises(RunError, match="there is a session"):
        loop.registry.register(session)
    with pytest.raises(RunError, match="the event is of session 'other'"):
        loop.publish_event(session.session_id, event(session_id="other"))
    for wrong in ("hello", {"type": "NEW_CONSTRAINT"}, None):
        with pytest.raises(RunError, match="expected a ContextChangeEvent"):
            loop.publish_event(session.session_id, wrong)
        with pytest.raises(RunError, match="expected a ReplanDecision, got"):
            loop.execute_replan(session, wrong)
    gate.open.set()
    session.wait(LONG)
    with pytest.raises(UnknownNameError, match="one that has ended is not known here"):
        loop.publish_event(session.session_id, event())


def test_the_configuration_is_strategy_and_executor(notes, step, chain):
    loop = al.PlanningLoop(notes.lab([step("a")], workers=1))
    config = al.LoopConfig(max_replans=1, react_threshold="INFO", batch_react_size=2)
    session = loop.start("do it", config=config, session_id="S")
    session.wait(LONG)
    assert session.session_id == "S"
    name = "event_driven(threshold='INFO', batch=2, replans=1)"
    assert session.run.lab.strategy.name == name
    assert session.run.lab.executor.wall
    simulated = loop.start("do it", config=al.LoopConfig(executor="simulated"))
    simulated.wait(LONG)
    assert not simulated.run.lab.executor.wall
    world = al.PlanningLoop(al.Lab(chain())).start()
    assert world.wait(LONG).task_plan.status == "completed"
    assert not world.run.lab.executor.wall
    with pytest.raises(ConfigError, match="threads"):
        al.PlanningLoop(al.Lab(chain())).start(config=al.LoopConfig(executor="threads"))
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        al.LoopConfig(batch_react_size=0)


def test_a_durable_session_goes_on_as_a_run(notes, step, tmp_path):
    lab = notes.lab([step("a"), step("b", "note", "a")])
    loop = al.PlanningLoop(lab)
    session = loop.start("do it", store=tmp_path / "s.db")
    state = session.wait(LONG)
    assert al.Run.resume(tmp_path / "s.db", lab).state == state


def test_the_same_decision_put_in_twice_is_answered_twice(held):
    loop, session, gate = held
    decision = al.ReplanDecision(action="CONTINUE", reasoning="go on")
    futures = [loop.execute_replan(session, decision) for _ in range(2)]
    gate.open.set()
    assert [f.result(LONG).reasoning for f in futures] == ["go on", "go on"]
    assert session.wait(LONG).loop_status == "COMPLETED"


def test_a_retry_of_what_is_under_way_or_no_step_is_refused(notes, step, gate):
    loop = working(notes, step, notes.tool("long", gate))
    with loop:
        session = loop.start("do it")
        assert gate.reached.wait(LONG)
        while not session.run.state.under_way:  # until the visit that handed it over has ended
            time.sleep(0.01)
        for step_id, problem in (
            ("long", "'long' is under way"), ("lnog", "expected a step"), (None, "got None"),
        ):  # fmt: skip
            with pytest.raises(PlanEditError, match=problem):
                session.decide(al.ReplanDecision(action="RETRY", step_id=step_id))
        gate.open.set()
        session.wait(LONG)
    assert session.status == "COMPLETED"
    assert [name for name, _ in notes.made].count("long") == 1


def test_whoever_put_a_decision_in_hears_when_it_could_not_be_made(held):
    """A node that raises ends the session, and nobody waits for ever."""
    loop, session, gate = held
    bad = al.ReplanDecision(action="CONTINUE", correction={"n": 1})
    future = loop.execute_replan(session, bad)
    session.run.lab.__dict__["strategy"] = None  # so that react raises
    gate.open.set()
    assert isinstance(future.exception(LONG), (RunError, AttributeError))
    assert session.status == "ABORTED"


def test_an_exit_in_a_planner_ends_its_session_only(notes):
    class Leaves:
        def plan(self, request, bench):
            raise SystemExit(3)

    session = al.PlanningLoop(notes.lab(planner=Leaves())).start("do it")
    with pytest.raises(RunError, match="a node raised SystemExit: 3"):
        session.wait(LONG)
    assert session.status == "ABORTED"
