"""A run: stepping, pausing, editing, rewinding, forking, replaying. (Durable runs: test_resume.)"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

import agentlab as al
from agentlab.environments.fault_plan import FaultPlan
from agentlab.errors import ConfigError, PlanEditError, RunError, UnknownNameError
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans.task_plan import TaskStep
from agentlab.runs.graph import END
from agentlab.state.decisions import ReplanAction
from agentlab.trace.compare import first_difference
from agentlab.trace.span import COLUMNS

PATH = ["load_config", "planning", "plan_execution", "plan_execution", "reflection"]


def rows(run, start=0):
    return [s.row() for s in run.spans[start:] if s.kind != "run"]


@pytest.fixture
def two(notes, step):
    """A run of two steps in which nothing has happened yet."""
    return notes.start([step("a", parameters={"n": 1}), step("b", "note", "a")])


# ---- going on ---------------------------------------------------------------------------------


def test_nothing_has_run_yet(two, notes):
    assert (two.visited, len(two.states), two.next_node) == ([], 1, "load_config")
    assert not two.finished
    assert two.state.user_input == "do it"
    with pytest.raises(RunError, match="no plan yet"):
        _ = two.plan
    assert notes.made == []
    assert "0 visits, before 'load_config'" in repr(two)


def test_step(two):
    visit = two.step()
    assert (visit.index, visit.node) == (0, "load_config")
    assert visit.before is two.states[0]
    assert visit.after is two.states[1] is two.state
    assert [s.kind for s in visit.spans] == ["node"]
    assert visit.seconds == visit.spans[0].seconds > 0
    assert {"agent_id", "agent_config", "visit"} <= visit.changes().keys()
    assert "load_config" in repr(visit)
    while not two.finished:
        visit = two.step()
        assert two.states[visit.index] is visit.before
        assert two.states[visit.index + 1] is visit.after
    assert two.visited == [*PATH, "final_response"]
    assert two.next_node == END
    assert "finished" in repr(two)
    with pytest.raises(RunError, match="finished; say something, rewind or fork"):
        two.step()


def test_spans_nest(two):
    two.finish()
    by_id = {s.span_id: s for s in two.spans}
    assert sorted(by_id) == list(range(1, len(two.spans) + 1))
    root = two.spans[0]
    assert (root.kind, root.name, root.parent_id) == ("run", "autonomous", 0)
    parents = {
        "node": "run",
        "decision": "node",
        "step": "node",
        "action": "step",
        "tool": "action",
    }
    for span in two.spans[1:]:
        assert by_id[span.parent_id].kind == parents[span.kind]
    assert root.output == {"final_response": two.state.final_response, "answer": None}
    assert root.sim_end == two.state.now == 2.0
    assert [s.visit for s in two.spans if s.kind == "node"] == list(range(6))


def test_iterate_is_a_stream_of_nodes_and_states(two):
    seen = list(two.iterate())
    assert [node for node, _ in seen] == two.visited
    assert [state for _, state in seen] == two.states[1:]


def test_finish_says_when_it_takes_too_long(two):
    with pytest.raises(RunError, match="not finished after 3 visits"):
        two.finish(max_visits=3)
    assert len(two.visited) == 3
    assert two.finish(max_visits=3).final_response


def test_run_until(two, notes):
    two.run_until("plan_execution")
    assert (two.visited, notes.made) == (PATH[:2], [])
    two.run_until("plan_execution")  # stands before it: one step is made
    assert len(notes.made) == 1
    two.run_until("reflection")
    assert two.visited == PATH[:4]
    assert two.next_node == "reflection"
    two.rewind(0)
    state = two.run_until(lambda state: len(state.results) == 1)
    assert two.visited == PATH[:3]
    assert state is two.state
    with pytest.raises(UnknownNameError, match="did you mean 'reflection'"):
        two.run_until("reflexion")
    with pytest.raises(RunError, match="ended without reaching 'load_config'"):
        two.run_until("load_config")
    two.rewind(0)
    with pytest.raises(RunError, match="did not reach 'final_response' in 2 visits"):
        two.run_until("final_response", max_visits=2)


@pytest.mark.parametrize("how", ["finish", "iterate", "run_until"])
def test_pause_from_another_thread(notes, step, how):
    started, go_on = threading.Event(), threading.Event()

    def wait():
        started.set()
        assert go_on.wait(10)

    run = notes.start([step("a", "wait"), step("b")], tools=[notes.tool("wait", wait)])
    went = {
        "finish": run.finish,
        "iterate": lambda: list(run.iterate()),
        "run_until": lambda: run.run_until("final_response"),
    }
    thread = threading.Thread(target=went[how])
    thread.start()
    assert started.wait(10)
    run.pause()
    go_on.set()
    thread.join(10)
    assert not thread.is_alive()
    assert run.visited == [*PATH[:3], "(pause)"]  # after the node that was under way
    assert [s.status for s in run.plan.steps] == ["completed", "pending"]
    assert run.finish().final_response
    assert [n for n in run.visited if n[0] != "("] == [*PATH, "final_response"]


def test_a_nodes_own_exception_raises_and_leaves_the_run_as_it_was(notes, step):
    class Broken:
        fixed = False

        def respond(self, state, bench):
            if not self.fixed:
                raise LookupError("no words")
            return "said"

    responder = Broken()
    run = notes.start([step("a")], responder=responder)
    run.run_until("final_response")
    before = list(run.states), list(run.visited), rows(run)
    with pytest.raises(LookupError, match="no words"):
        run.step()
    assert (run.states, run.visited, rows(run)) == before
    assert all(a is b for a, b in zip(run.states, before[0], strict=True))
    assert run.next_node == "final_response"
    responder.fixed = True
    assert run.finish().final_response == "said"
    assert run.replay().identical


def test_a_tool_that_finished_is_not_called_again_after_its_node_failed(notes, step):
    class Careless(al.Strategy):
        failing = True

        def triggered(self, point, state, step_id=None):
            if Careless.failing and point == "after_step":
                raise RuntimeError("a mistake in a strategy")
            return None

    base = notes.lab(strategy="never").strategy
    run = notes.start([step("a", parameters={"n": 1})], strategy=Careless(**vars(base)))
    run.run_until("plan_execution")
    with pytest.raises(RuntimeError, match="a mistake"):
        run.step()
    assert run.plan.step("a").status == "pending"
    Careless.failing = False
    fork = run.fork()
    run.step()
    assert dict(run.state.results) == {"a": {"n": 1}}
    assert len(notes.made) == 1  # served from the journal
    run.rewind(2)
    run.edit(plan=run.plan.edit("a", parameters={"n": 2}))
    run.step()
    assert notes.made[1:] == [("note", {"n": 2})]
    Careless.failing = True
    with pytest.raises(RuntimeError, match="a mistake"):
        fork.step()
    assert len(notes.made) == 3  # a fork has a journal of its own
    Careless.failing = False
    fork.edit(plan=fork.plan.edit("a", parameters={"n": 3}))  # another call at the same address
    fork.step()
    assert notes.made[3:] == [("note", {"n": 3})]


# ---- editing ----------------------------------------------------------------------------------


def test_edit_the_plan(two, notes):
    two.run_until("reflection")
    two.rewind(3)
    plan = two.plan.without("b").insert(TaskStep(step_id="c", name="c", target_resource="note"))
    two.edit(plan=plan)
    assert two.state.current_task_index == 1
    two.finish()
    assert {s.step_id: s.status for s in two.plan.steps} == {"a": "completed", "c": "completed"}
    assert two.replay().identical


def test_edit_fields_of_the_state(two):
    two.run_until("plan_execution")
    two.edit(fault_plan=FaultPlan(rate=1.0), max_loops=0)
    two.finish()
    assert two.plan.step("a").status == "failed"
    assert two.states[2].max_loops == 0
    assert two.states[1].max_loops == 3  # only where it stood
    assert two.replay().identical


@pytest.mark.parametrize(
    ("edit", "error", "text"),
    [
        ({"fault_plam": 1}, RunError, "did you mean 'fault_plan'"),
        ({"loop_count": "many"}, RunError, "the edit is refused"),
        ({"loop_count": -1}, RunError, "the edit is refused"),
        ({"task_results": 5}, RunError, "the edit is refused"),
        ({"plan": {"steps": []}}, ConfigError, "expected a TaskPlan"),
    ],
)
def test_edits_that_are_refused(two, edit, error, text):
    two.run_until("plan_execution")
    before = two.state
    with pytest.raises(error, match=text):
        two.edit(**edit)
    with pytest.raises(error, match=text):
        two.fork(**edit if "plan" in edit else {"state": edit})
    assert two.state is before


def test_what_is_settled_is_not_edited(two):
    two.rewind(0)
    two.run_until("plan_execution")
    two.step()
    settled = two.plan
    with pytest.raises(PlanEditError, match="'a' is completed"):
        settled.without("a")
    for changed in (
        settled.with_steps(settled.steps[1:]),
        settled.with_step("a", result={"n": 2}),
        settled.with_step("a", status="pending"),
    ):
        with pytest.raises(RunError, match="'a' is completed; an edit must leave it"):
            two.edit(plan=changed)
        with pytest.raises(RunError, match="an edit must leave it"):
            two.fork(plan=changed)


def test_a_step_under_way_is_not_edited(notes, step):
    run = notes.start([step("a"), step("b")], tools=[], workers=2)
    run.run_until("plan_execution")
    run.step()
    (running,) = [s.step_id for s in run.plan.steps if s.status == "running"]
    with pytest.raises(RunError, match=f"{running!r} is running"):
        run.edit(plan=run.plan.with_step(running, parameters={"x": 1}))


def test_a_plan_is_edited_around_a_step_under_way_that_refers_to_what_is_done(notes, step):
    plans = (
        [step("a", parameters={"n": 1}), step("b", "broken")],
        [step("c", "slow", parameters={"m": "${a.n}"}), step("d")],
    )
    slow = notes.tool("slow", seconds=9.0)
    run = notes.start(*plans, strategy="on_error", workers=2, tools=[slow])
    run.run_until(lambda s: bool(s.replan_history))
    run.step()
    assert run.plan.step("c").status == "running"
    run.edit(plan=run.plan.insert(TaskStep(step_id="e", name="e", target_resource="note")))
    run.finish()
    assert run.plan.step("e").status == "completed"


# ---- rewinding --------------------------------------------------------------------------------


@pytest.mark.parametrize("to", range(7))
def test_rewind(two, notes, to):
    two.finish()
    before, again = list(two.states), rows(two)
    state = two.rewind(to)
    assert state is before[to] is two.state
    assert two.visited == [*PATH, "final_response"][:to]
    assert max((s.visit for s in two.spans if s.kind != "run"), default=-1) == to - 1
    made = len(notes.made)
    two.finish()
    assert first_difference(again, rows(two)) is None
    assert two.states == before
    assert len(notes.made) - made == sum(2 <= v < 4 for v in range(to, 6))


def test_rewind_by_a_negative_number_and_out_of_range(two):
    two.finish()
    two.rewind(-2)
    assert two.next_node == "reflection"
    for wrong in (9, -9):
        with pytest.raises(RunError, match="expected a visit between 0 and 4"):
            two.rewind(wrong)
        with pytest.raises(RunError, match="expected a visit between 0 and 4"):
            two.fork(at=wrong)


def test_a_fork_is_not_rewound_past_its_origin(two):
    two.finish()
    fork = two.fork(at=3)
    fork.finish()
    assert fork.rewind(3) is two.states[3]
    with pytest.raises(RunError, match="before this run was forked"):
        fork.rewind(2)


# ---- forking ----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [99, -99, "planning", 1.5])
def test_a_fork_begins_at_a_visit(two, at):
    two.finish()
    with pytest.raises(RunError, match=r"expected .*a visit"):
        two.fork(at=at)


@pytest.mark.parametrize("at", range(7))
def test_fork_executes_nothing_of_what_came_before(two, notes, at):
    two.finish()
    states, spans = list(two.states), rows(two)
    notes.made.clear()
    fork = two.fork(at=at)
    assert all(a is b for a, b in zip(fork.states, states[: at + 1], strict=True))
    assert fork.visited == two.visited[:at]
    assert notes.made == []
    fork.finish()
    assert len(notes.made) == sum(2 <= v < 4 for v in range(at, 6))
    assert fork.state.replace() == two.state
    assert two.states == states
    assert first_difference(spans, rows(two)) is None
    mine = [r for r in spans if r[4] >= at]
    assert first_difference(mine, rows(fork)) is None
    assert all(s.visit >= at for s in fork.spans)


def test_lineage(two):
    two.finish()
    assert two.lineage is None
    fork = two.fork(at=2, plan=two.states[2].task_plan.without("b"), seed=4, state={"max_loops": 1})
    assert fork.lineage.run_id == two.run_id
    assert fork.lineage.at == 2
    assert set(fork.lineage.edits) == {"plan", "seed", "state"}
    assert fork.run_id != two.run_id
    again = fork.fork(at=-1) if fork.visited else None
    assert again.lineage.run_id == fork.run_id
    assert again.origin == 1
    assert (fork.state.seed, two.state.seed) == (4, 0)


def test_fork_with_an_edited_plan(two, notes):
    two.finish()
    notes.made.clear()
    fork = two.fork(at=3, plan=two.states[3].task_plan.edit("b", parameters={"m": "${a.n}"}))
    fork.finish()
    assert notes.made == [("note", {"m": 1})]
    assert two.plan.step("b").parameters == {}
    assert fork.replay().identical
    assert fork.replay().served == 1


def test_fork_with_a_decision(notes, step):
    run = notes.run([step("a"), step("b", "broken")], [step("c")], [step("d")], strategy="never")
    assert run.visited.count("planning") == 1
    at = run.visited.index("reflection")
    for action in (ReplanAction.REPLAN_REMAINING, ReplanAction.REPLAN_FULL):
        fork = run.fork(at=at, decision=al.ReplanDecision(action=action, reasoning="try"))
        fork.finish()
        kept = ["a"] if action is ReplanAction.REPLAN_REMAINING else []
        assert [s.step_id for s in fork.plan.steps] == [*kept, "c"]
        assert fork.state.loop_count == 1
        assert fork.state.forced_decision is None  # it is taken once
        assert fork.lineage.edits == ("decision",)
    retry = al.ReplanDecision(action="RETRY", step_id="b", wait=2)
    fork = run.fork(at=at, decision=retry)
    fork.finish()
    assert fork.state.attempts["b"] == 2
    assert fork.state.now == run.state.now + 3
    abort = run.fork(at=at, decision=al.ReplanDecision(action="ABORT"))
    abort.finish()
    assert (abort.state.stopped_by, abort.plan.status) == ("abort", "aborted")
    assert run.visited.count("planning") == 1


def test_fork_with_another_seed_redraws_only_the_future(chain):
    lab = al.Lab(chain(6), strategy="retry(3)", fault_rate=0.4, seed=1)
    run = al.autonomous.start(lab)
    run.finish()
    at = 5
    prefix = run.states[at]
    futures = set()
    for seed in range(8):
        fork = run.fork(at=at, seed=seed)
        fork.finish()
        assert fork.states[:at] == run.states[:at]
        assert fork.state.calls[: len(prefix.calls)] == prefix.calls
        assert fork.state.delivered[: len(prefix.delivered)] == prefix.delivered
        futures.add(tuple(c.faulted for c in fork.state.calls[len(prefix.calls) :]))
    assert len(futures) > 2
    same = run.fork(at=at, seed=1)
    same.finish()
    assert same.state == run.state


def test_fork_with_another_lab_takes_its_strategy_with_its_budget(notes, step):
    plans = ([step("a", "broken")], [step("b")])
    run = notes.start(*plans, strategy="never")
    run.run_until("plan_execution")
    fork = run.fork(lab=notes.lab(*plans, strategy="on_error(replans=2)"))
    fork.finish()
    assert (fork.state.max_loops, fork.state.loop_count) == (2, 1)
    assert fork.plan.step("b").status == "completed"
    run.finish()
    assert (run.state.max_loops, run.state.loop_count) == (0, 0)
    other = run.fork(at=1, lab=run.lab.bind(planner=Fixed([step("z")])))
    other.finish()
    assert [s.step_id for s in other.plan.steps] == ["z"]


def test_fork_with_a_handler(two, heard):
    two.finish()
    log = heard()
    two.fork(at=4, handler=log).finish()
    assert [e.node for e in log.events if e.kind == "node_start"] == [
        "reflection",
        "final_response",
    ]


def test_inject_a_fault(chain):
    run = al.autonomous.start(al.Lab(chain(), strategy="retry(1)"))
    run.run_until("plan_execution")
    target = al.TargetedFault(tool="advance", occurrence=0)
    fork = run.fork(state={"fault_plan": FaultPlan(targets=(target,))})
    for one, faults in ((run, 0), (fork, 3)):
        one.finish()
        assert one.verdict.success
        assert len(one.state.delivered) == faults


# ---- replaying --------------------------------------------------------------------------------


def test_replay_serves_what_was_recorded_and_calls_nothing(two, notes):
    two.finish()
    notes.made.clear()
    report = two.replay()
    assert (report.identical, report.divergence) == (True, None)
    assert (report.visits, report.matched, report.served) == (6, 6, 2)
    assert report.coverage == 1.0
    assert str(report) == "6 of 6 visits identical, 2 calls served"
    assert notes.made == []


def test_replay_of_a_run_that_is_not_finished_or_not_begun(two):
    assert two.replay().identical
    two.run_until("reflection")
    report = two.replay()
    assert (report.identical, report.visits) == (True, 4)


def test_replay_serves_recorded_errors(notes, step):
    run = notes.run([step("a", "broken"), step("b")], strategy="retry(2)")
    notes.made.clear()
    assert run.replay().identical
    assert notes.made == []


def test_replay_tells_no_handler(two, heard):
    log = heard()
    run = two.fork(handler=log)
    run.finish()
    heard = len(log.events)
    assert run.replay().identical
    assert len(log.events) == heard


def test_replay_reports_a_recorded_result_that_has_changed(two):
    two.finish()
    journal = two.journal.entries
    address = next(a for a in journal if a.step_id == "b")
    journal[address] = replace(journal[address], result={"other": 1})
    report = two.replay()
    assert not report.identical
    assert (report.matched, report.visits) == (3, 6)
    assert report.coverage == 0.5
    assert "step 'b'" in report.divergence
    assert "'other': 1" in report.divergence
    assert "first divergence" in str(report)


def test_replay_never_goes_on_past_what_was_recorded(two, notes):
    two.finish()
    journal = two.journal.entries
    gone = next(a for a in journal if a.step_id == "a")
    del journal[gone]
    notes.made.clear()
    report = two.replay()
    assert (report.identical, report.matched) == (False, 2)
    assert report.divergence.startswith("visit 2: no recorded call at (2, 'a', 1, 0)")
    assert notes.made == []


@pytest.mark.parametrize(
    ("change", "matched", "text"),
    [
        ({"targetResource": "broken"}, 1, "plan"),
        ({"parameters": {"n": 5}}, 1, "plan"),
        ({"stepId": "c"}, 1, "plan"),
        ({"importance": 0.1}, 6, None),  # nothing that is executed
    ],
)
def test_replay_reports_another_plan(notes, step, change, matched, text):
    run = notes.run([step("a", parameters={"n": 1}), step("b", "note", "a")])
    changed = [{**step("a", parameters={"n": 1}), **change},
               step("b", "note", change.get("stepId", "a"))]  # fmt: skip
    notes.made.clear()
    run.lab = run.lab.bind(planner=Fixed(changed))
    report = run.replay()
    assert (report.identical, report.matched) == (text is None, matched)
    if text:
        assert f"{text!r} at visit 1" in report.divergence
    assert notes.made == []


def test_replay_reports_another_request_at_the_same_address(two, notes):
    two.finish()
    two._edits[2] = two.states[2].replace(
        task_plan=two.states[2].task_plan.edit("a", parameters={"n": 9})
    )
    report = two.replay()
    assert not report.identical
    assert report.matched == 2
    assert "the call at (2, 'a', 1, 0) differs" in report.divergence


def test_replay_reports_another_way(notes, step):
    run = notes.run([step("a", "broken")], [step("b")])
    assert run.visited.count("planning") == 2
    notes.made.clear()
    run.lab = run.lab.bind(strategy="never")
    report = run.replay()
    assert not report.identical
    assert report.divergence.startswith("node 'reflection' at visit 3: output was")
    assert "'replan'" in report.divergence
    assert notes.made == []


def test_replay_of_a_fork_and_after_edit_and_rewind(two, notes):
    two.run_until("plan_execution")
    two.edit(fault_plan=FaultPlan(rate=0.0, targets=(al.TargetedFault(tool="note", step="b"),)))
    two.finish()
    assert two.plan.step("b").status == "failed"
    assert two.replay().identical
    fork = two.fork(at=3, state={"fault_plan": FaultPlan()})
    fork.finish()
    assert fork.plan.step("b").status == "completed"
    report = fork.replay()
    assert (report.identical, report.visits, report.served) == (True, 3, 1)
    two.rewind(2)
    two.edit(fault_plan=FaultPlan())
    two.finish()
    assert two.replay().identical


def test_first_difference():
    base = {
        "span_id": 1, "parent_id": 0, "kind": "tool", "name": "t", "visit": 2, "step_id": "s",
        "attempt": 1, "input": {}, "output": 1, "error": None, "started": 0.0, "seconds": 0.0,
        "sim_start": 0.0, "sim_end": 1.0, "attributes": {},
    }  # fmt: skip
    assert tuple(base) == COLUMNS

    def row(**changes):
        return list({**base, **changes}.values())

    assert (
        first_difference([row()], [row(span_id=9, parent_id=8, started=5.0, seconds=3.0)]) is None
    )
    compared = set(base) - {"span_id", "parent_id", "started", "seconds", "attributes"}
    for name in compared:
        text = first_difference([row(), row()], [row(), row(**{name: "other"})])
        assert f"tool 't' at visit 2, step 's' attempt 1: {name} was" in text
    assert first_difference([row()], []) == "1 spans were recorded, now 0"


# ---- threads ----------------------------------------------------------------------------------


def test_a_lab_is_shared_by_runs_in_threads(chain):
    lab = al.Lab(chain(6), strategy="retry_then_replan(1)", fault_rate=0.3, seed=5)
    alone = al.autonomous.start(lab)
    alone.finish()
    runs = [al.autonomous.start(lab) for _ in range(6)]
    threads = [threading.Thread(target=run.finish) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for run in runs:
        assert run.state == alone.state
        assert first_difference(rows(alone), rows(run)) is None
        ids = {s.span_id for s in run.spans}
        assert all(s.parent_id in ids for s in run.spans[1:])
    assert not lab.recorder.spans


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda p, a, b: (p, a.replace(dependencies=(b.step_id,)), b), "cyclic dependency"),
        (lambda p, a, b: (p, a, b, a), "occurs more than once"),
        (lambda p, a, b: (p, a, b.replace(dependencies=("nope",))), "unknown step 'nope'"),
        (lambda p, a, b: (p, a, b.replace(parameters={"x": "${nope.y}"})), "no known step"),
    ],
)
def test_a_hand_made_plan_that_is_none_is_refused(change, told):
    run = al.autonomous.start(al.Lab(al.load_suite("chain")[0]))
    run.run_until("plan_execution")
    run.step()
    before = run.state
    with pytest.raises(RunError, match=told):
        run.edit(plan=run.plan.replace(steps=change(*run.plan.steps)))
    assert run.state is before
    with pytest.raises(RunError, match=told):
        run.fork(plan=run.plan.replace(steps=change(*run.plan.steps)))
