"""The workflow ``resident``: its graph, what triggers a decision, and what a decision does.

Sessions and threads are in tests/test_planning_loop.py; here every run is stepped.
"""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.errors import PlanEditError, RunError
from agentlab.minds.base import checked_plan
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.minds.strategies.triggers import changes
from agentlab.runs.graph import END
from agentlab.state.state import EXECUTE_NEXT_TASK, FINAL_RESPONSE, REFLECT, REPLAN
from agentlab.workflows.named import get_workflow
from agentlab.workflows.nodes.resident import execute, monitor, plan, react, replan
from agentlab.workflows.resident import resident

BEGIN = ["load_config", "plan", "execute"]
REPLANNED = ["react", "replan", "plan", "execute"]


def event(kind="EXTERNAL_SIGNAL", **fields):
    return al.ContextChangeEvent(type=kind, **fields)


def triggers(run):
    """What the run was asked to decide about: (trigger point, action)."""
    return [
        (s.input["point"] if s.input else None, s.name)
        for s in run.spans
        if s.kind == "decision" and s.name not in ("plan", "replan")
    ]


class Answers:
    """Decide what is given, in order; the last again and again. ``asked`` lists the triggers."""

    def __init__(self, *decisions):
        self.decisions, self.asked = decisions, []

    def __call__(self, trigger, state, bench):
        self.asked.append(trigger)
        made = self.decisions[min(len(self.asked), len(self.decisions)) - 1]
        return made if isinstance(made, al.ReplanDecision) else al.ReplanDecision(action=made)

    def strategy(self, milestones=False, batch=3, **bounds):
        rule = changes(al.ContextChangeEvent(type="TASK_INTERRUPTED").severity, batch, milestones)
        return Strategy("answers", rule, self, Budget(**bounds), watches=True)


@pytest.fixture
def begin(notes):
    def start(*plans, **options):
        return resident.start(notes.lab(*plans, **options), "do it")

    return start


@pytest.fixture
def finish(begin):
    def finished(*plans, **options):
        run = begin(*plans, **options)
        run.finish()
        return run

    return finished


# ---- the graph ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "fields", "target"),
    [
        ("load_config", {}, "plan"),
        ("load_config", {"error": "e"}, "final_response"),
        ("plan", {"next_action": EXECUTE_NEXT_TASK}, "execute"),
        ("plan", {"next_action": FINAL_RESPONSE}, "final_response"),
        ("execute", {"next_action": EXECUTE_NEXT_TASK}, "monitor"),
        ("monitor", {"next_action": EXECUTE_NEXT_TASK}, "monitor"),
        ("monitor", {"next_action": REFLECT}, "react"),
        ("monitor", {"next_action": FINAL_RESPONSE}, "final_response"),
        ("react", {"next_action": EXECUTE_NEXT_TASK}, "monitor"),
        ("react", {"next_action": REPLAN}, "replan"),
        ("react", {"next_action": FINAL_RESPONSE}, "final_response"),
        ("replan", {"next_action": REPLAN}, "plan"),
        ("final_response", {}, END),
        *((node, {"next_action": REFLECT}, "react") for node in ("plan", "execute", "replan")),
    ],
)
def test_routes(node, fields, target):
    assert resident.route(node, al.State(**fields)) == target


def test_its_nodes():
    assert get_workflow("resident") is resident is al.resident
    assert {plan, execute, monitor, react, replan} < set(resident.nodes.values())


def test_the_strategy_where_the_lab_names_none(notes, step, chain):
    from agentlab.lm.scripted import scripted

    assert resident.start(notes.lab([step("a")])).lab.strategy.name == "event_driven"
    asked = resident.start(al.Lab(chain(), lm=scripted([]))).lab.strategy
    assert asked.name == "event_driven(decider='lm')"
    named = notes.lab([step("a")], strategy="never")
    assert resident.start(named).lab.strategy.name == "never"
    assert resident.start(notes.lab([step("a")]).bind(strategy="retry(1)")).lab.strategy.name == (
        "retry(1)"
    )
    assert al.autonomous.start(notes.lab([step("a")])).lab.strategy.name == (
        "reflect_on_total_failure"
    )


def test_a_plan_that_works_ends_completed(finish, step, notes):
    """Three successes: a decision at each phase but the last, which the end outranks."""
    run = finish([step("a"), step("b", "note", "a"), step("c", "note", "b")])
    assert run.visited == [
        *BEGIN, "monitor", "react", "monitor", "react", "monitor", "final_response",
    ]  # fmt: skip
    assert triggers(run) == [("phase_end", "CONTINUE")] * 2
    assert [e.type for e in run.state.events] == ["MILESTONE_REACHED"] * 3
    assert run.state.loop_status == run.state.task_plan.status.upper() == "COMPLETED"
    assert run.state.replan_count == 0


def test_steps_of_one_level_cost_one_decision(finish, step):
    run = finish([step("a"), step("b"), step("c", "note", "a", "b"), step("d", "note", "c")])
    assert triggers(run) == [("phase_end", "CONTINUE")] * 2
    told = [e.description for e in run.state.events]
    assert told == [
        "phase 1 of 3 is done: a, b", "phase 2 of 3 is done: c", "phase 3 of 3 is done: d",
    ]  # fmt: skip
    assert [e.payload for e in run.state.events] == [{"phase": i, "of": 3} for i in (1, 2, 3)]


def test_execute_hands_over_and_monitor_waits(notes, begin, step):
    tools = [notes.tool("slow", seconds=5.0), notes.tool("quick", seconds=1.0)]
    run = begin([step("a", "slow"), step("b", "quick"), step("c", "quick", "b")], tools=tools,
                workers=2, strategy="event_driven(milestones=False)")  # fmt: skip
    run.run_until("monitor")
    assert [u.step_id for u in run.state.under_way] == ["a", "b"]
    assert (run.state.now, notes.made) == (0.0, [])
    assert run.state.loop_status == "MONITORING"
    run.step()
    assert [s.step_id for s in run.state.completed_tasks] == ["b"]
    assert [s.step_id for s in run.state.pending_tasks] == ["a", "c"]
    assert run.state.now == 1.0
    run.step()
    assert [u.step_id for u in run.states[-1].under_way] == ["a"]
    run.finish()
    assert run.state.loop_status == "COMPLETED"


def test_the_words_of_the_page_are_readable(begin, step):
    run = begin([step("a"), step("b", "broken")], [step("c")])
    statuses = []
    while not run.finished:
        statuses.append((run.next_node, run.state.loop_status.value))
        run.step()
    assert statuses == [
        ("load_config", "PLANNING"), ("plan", "PLANNING"), ("execute", "EXECUTING"),
        ("monitor", "MONITORING"), ("monitor", "EXECUTING"), ("react", "REACTING"),
        ("replan", "REPLANNING"), ("plan", "REPLANNING"), ("execute", "EXECUTING"),
        ("monitor", "MONITORING"), ("final_response", "MONITORING"),
    ]  # fmt: skip
    state = run.state
    assert (state.goal, state.current_plan, state.replan_count) == ("do it", state.task_plan, 1)
    assert state.context_changes == tuple(state.events)
    assert [s.step_id for s in state.completed_tasks] == ["a", "c"]
    assert (state.pending_tasks, state.loop_status) == ((), "COMPLETED")
    assert al.State().pending_tasks == al.State().completed_tasks == ()


# ---- a failure, and what is done about it --------------------------------------------------------


class Remembering:
    """Plan the steps given for each number; ``requests`` keeps what it was asked."""

    def __init__(self, *plans):
        self.plans, self.requests = plans, []

    def plan(self, request, bench):
        self.requests.append(request)
        return checked_plan({"steps": self.plans[request.number]}, request, bench)


def test_a_failure_replaces_the_rest_and_keeps_what_is_done(notes, begin, step, heard):
    planner = Remembering(
        [step("a", parameters={"n": 7}), step("b", "broken", "a"), step("c", "note", "b")],
        [step("d", parameters={"m": "${a.n}"})],
    )
    log = heard()
    run = begin(planner=planner, handler=log)
    run.finish()
    assert notes.made == [("note", {"n": 7}), ("broken", {}), ("note", {"m": 7})]
    assert [(s.step_id, s.status) for s in run.plan.steps] == [
        ("a", "completed"), ("d", "completed"),
    ]  # fmt: skip
    assert run.state.loop_status == "COMPLETED"
    request = planner.requests[1]
    assert request.scope == "remaining"
    assert [s.step_id for s in request.done] == ["a"]
    assert request.results == {"a": {"n": 7}}
    assert [e.type for e in request.changes] == ["TASK_FAILED", "DEPENDENCY_BROKEN"]
    assert any("it is broken" in hint for hint in request.hints)
    (record,) = run.state.replan_history
    assert record.events == request.changes
    assert [s.step_id for s in record.before.steps] == ["a", "b", "c"]
    assert [s.step_id for s in record.after.steps] == ["a", "d"]
    assert (record.at, record.decision.action) == (2.0, "REPLAN_REMAINING")
    replans = [e for e in log.events if e.kind == "replan_required"]
    assert [(e.reason, e.count) for e in replans] == [(record.decision.reasoning, 1)]
    thought = [e.text for e in log.events if e.kind == "thinking_content"]
    assert f"REPLAN_REMAINING: {record.decision.reasoning}" in thought


def test_the_fourth_failure_aborts_without_asking(begin, step, heard):
    log, answers = heard(), Answers("REPLAN_REMAINING")
    run = begin(*[[step(f"s{i}", "broken")] for i in range(9)], handler=log)
    run.finish()
    assert run.visited == [*BEGIN, *["monitor", *REPLANNED] * 3, "monitor", "react",
                           "final_response"]  # fmt: skip
    assert triggers(run)[-1][1] == "ABORT"
    assert (run.state.loop_status, run.state.stopped_by) == ("ABORTED", "replans")
    assert "no replan is left" in run.state.final_response
    counts = [e.count for e in log.events if e.kind == "replan_required"]
    assert counts == [1, 2, 3]
    assert len(run.state.replan_history) == 3
    assert answers.asked == []


def test_at_the_cap_a_milestone_does_not_end_a_healthy_run(finish, step):
    run = finish([step("a", "broken")], [step("b"), step("c", "note", "b")],
                 strategy="event_driven(replans=1)")  # fmt: skip
    assert triggers(run)[1:] == [("phase_end", "CONTINUE")]
    assert run.state.loop_status == "COMPLETED"


def test_at_the_cap_a_replan_becomes_abort(finish, step):
    answers = Answers("REPLAN_FULL")
    run = finish([step("a"), step("b", "note", "a")], strategy=answers.strategy(True, replans=0))
    assert [t.point for t in answers.asked] == ["phase_end"]
    assert run.state.last_decision.action == "ABORT"
    assert (run.state.loop_status, run.state.stopped_by) == ("ABORTED", "replans")


def test_a_continue_accepts_a_failure(finish, step):
    answers = Answers("CONTINUE")
    run = finish([step("a"), step("b", "broken")], strategy=answers.strategy())
    assert run.state.accepted == ("b",)
    assert run.state.loop_status == "COMPLETED"
    assert run.plan.step("b").status == "failed"


def test_skippable_failures_need_no_decision(finish, step):
    run = finish([step("a", "broken", skippable=True), step("b"),
                  step("c", "note", "a", skippable=True)])  # fmt: skip
    assert triggers(run) == [("phase_end", "CONTINUE")]
    assert {s.step_id: s.status for s in run.plan.steps} == {
        "a": "failed", "b": "completed", "c": "skipped",
    }  # fmt: skip
    assert run.state.loop_status == "COMPLETED"
    broken = [(e.type, e.severity) for e in run.state.events if e.type != "MILESTONE_REACHED"]
    assert broken == [("TASK_FAILED", "WARNING"), ("DEPENDENCY_BROKEN", "WARNING")]


def test_warnings_gather_to_a_batch(finish, step):
    bad = [step(f"s{i}", "broken", skippable=True) for i in range(4)]
    run = finish([*bad, step("z", "note", "s0", "s1", "s2", "s3", skippable=True), step("last")],
                 [step("n")], strategy="event_driven(milestones=False)")  # fmt: skip
    assert triggers(run) == [("event", "REPLAN_REMAINING")]
    assert len(run.state.replan_history[0].events) == 3
    assert [s.step_id for s in run.plan.steps] == ["n"]
    never = finish([*bad, step("last")], strategy="event_driven(milestones=False, batch=5)")
    assert triggers(never) == []
    assert never.state.loop_status == "COMPLETED"


def test_the_end_outranks_a_batch(finish, step):
    bad = [step(f"s{i}", "broken", skippable=True) for i in range(3)]
    run = finish(bad)
    assert (triggers(run), run.state.loop_status) == ([], "COMPLETED")


def test_a_threshold_says_what_counts(finish, begin, step):
    for threshold, expected in (("INFO", 1), ("WARNING", 0)):
        strategy = f"event_driven(threshold={threshold!r}, batch=2, milestones=False)"
        run = begin([step("a"), step("b"), step("c")], [step("d")], strategy=strategy)
        run.run_until("monitor")
        for _ in range(2):
            run.publish(event(severity="INFO"))
        run.finish()
        assert len(triggers(run)) == expected


# ---- a stall -----------------------------------------------------------------------------------


def test_a_stall_asks_and_to_continue_there_aborts(finish, step):
    answers = Answers("CONTINUE")
    run = finish([step("a", "broken"), step("b"), step("c", "note", "a")],
                 strategy=answers.strategy())  # fmt: skip
    assert [t.point for t in answers.asked] == ["event", "stall"]  # b went on in between
    assert run.state.last_decision.action == "ABORT"
    assert "nothing can start" in run.state.last_decision.reasoning
    assert (run.state.loop_status, run.state.stopped_by) == ("ABORTED", "abort")
    assert run.plan.step("c").status == "pending"
    assert run.plan.step("b").status == "completed"


def test_a_stall_is_told_whatever_the_threshold(notes, finish, step):
    answers = Answers("REPLAN_REMAINING")
    run = finish([step("a", "broken", skippable=True), step("b", "note", "a")], [step("c")],
                 strategy=answers.strategy(batch=99))  # fmt: skip
    assert [t.point for t in answers.asked] == ["stall"]
    assert [e.type for e in run.state.replan_history[0].events] == [
        "TASK_FAILED", "MILESTONE_REACHED", "DEPENDENCY_BROKEN",
    ]  # fmt: skip
    assert run.state.loop_status == "COMPLETED"


def test_a_step_that_cannot_even_start_is_decided_about(notes, finish, step):
    plans = [[step("a"), step("b", parameters={"x": "${a.nothing}"})], [step("c")]]
    run = finish(*plans, strategy="event_driven(milestones=False)")
    assert run.state.loop_count == 1
    assert [s.step_id for s in run.plan.steps] == ["a", "c"]
    first = finish([step("a", "void"), step("b")], strategy="event_driven")
    assert first.state.stopped_by == "no_plan"


# ---- what a decision cancels ---------------------------------------------------------------------


def under_way(notes, begin, step, decision, *later, workers=3, **options):
    tools = [notes.tool(f"t{i}", seconds=float(i)) for i in (1, 5, 9)]
    run = begin([step("a", "t1"), step("b", "t5"), step("c", "t9"), step("d", "note", "c")],
                *later, tools=tools, workers=workers, strategy="event_driven(milestones=False)",
                **options)  # fmt: skip
    run.run_until("monitor")
    run.step()
    run.edit(forced_decision=decision, next_action=REFLECT)
    run.finish()
    return run


def test_replan_remaining_lets_what_is_under_way_finish(notes, begin, step):
    run = under_way(notes, begin, step, al.ReplanDecision(action="REPLAN_REMAINING"), [step("e")])
    assert {s.step_id: s.status for s in run.plan.steps} == dict.fromkeys("abce", "completed")
    assert [n for n, _ in notes.made] == ["t1", "note", "t5", "t9"]


def test_replan_remaining_interrupts_what_it_names(notes, begin, step):
    decision = al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(1, 3), reasoning="why")
    run = under_way(notes, begin, step, decision, [step("e")])
    assert {s.step_id: s.status for s in run.plan.steps} == dict.fromkeys("ace", "completed")
    interrupted = [r for r in run.state.task_results if r.status == "interrupted"]
    assert [(r.step_id, r.error) for r in interrupted] == [("b", "REPLAN_REMAINING: why")]
    assert "t5" not in [n for n, _ in notes.made]
    assert triggers(run) == [(None, "REPLAN_REMAINING")]  # its own interruption is no news
    assert run.state.loop_status == "COMPLETED"


def test_what_a_decision_interrupts_makes_no_batch(notes, begin, step):
    tools = [notes.tool("slow", seconds=50.0)]
    plans = [[step(f"s{i}", "slow") for i in range(4)], [step("a"), step("b", "note", "a")]]
    run = begin(*plans, tools=tools, workers=4, strategy="event_driven(milestones=False)")
    run.run_until("monitor")
    run.edit(forced_decision=al.ReplanDecision(action="REPLAN_FULL"), next_action=REFLECT)
    run.finish()
    assert [e.type for e in run.state.events if e.severity == "WARNING"] == ["TASK_INTERRUPTED"] * 4
    assert triggers(run) == [(None, "REPLAN_FULL")]
    assert run.state.loop_status == "COMPLETED"


def test_a_step_that_is_tried_again_is_not_accepted_any_more(begin, step):
    answers = Answers("CONTINUE", "ABORT")
    run = begin([step("a", "broken"), step("b", "note"), step("c", "note", "b")],
                strategy=answers.strategy())  # fmt: skip
    run.run_until(lambda s: s.accepted == ("a",))
    run.edit(forced_decision=al.ReplanDecision(action="RETRY", step_id="a"), next_action=REFLECT)
    run.step()
    assert run.state.accepted == ()
    run.finish()
    assert len(answers.asked) == 2  # about its first and its second failure
    assert run.state.loop_status == "ABORTED"


def test_steps_that_stay_are_told_to_the_planner(notes, begin, step):
    planner = Remembering([step("a"), step("b"), step("c")], [step("d")])
    run = begin(planner=planner)
    run.run_until("monitor")
    decision = al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(1,))
    run.edit(forced_decision=decision, next_action=REFLECT)
    run.finish()
    assert [s.step_id for s in planner.requests[1].under_way] == ["a"]
    assert [h.split()[0] for h in planner.requests[1].hints] == ["c"]
    assert [s.step_id for s in run.plan.steps] == ["a", "c", "d"]


def test_replan_full_cancels_all_and_tells_what_stands(notes, begin, step):
    planner = Remembering(
        [step("a", parameters={"n": 1}), step("b", "slow")], [step("a2", parameters={"n": 1})]
    )
    run = begin(planner=planner, tools=[notes.tool("slow", seconds=50.0)], workers=2)
    run.run_until("monitor")
    run.step()
    run.edit(forced_decision=al.ReplanDecision(action="REPLAN_FULL"), next_action=REFLECT)
    run.finish()
    assert [s.step_id for s in run.plan.steps] == ["a2"]
    assert planner.requests[1].scope == "full"
    assert planner.requests[1].done == ()
    assert planner.requests[1].side_effects == ('note({"n":1})',)
    assert [r.status for r in run.state.task_results if r.step_id == "b"] == ["interrupted"]
    assert run.state.now < 50
    assert run.state.loop_status == "COMPLETED"


def test_abort_cancels_all_and_says_why(notes, begin, step):
    run = under_way(notes, begin, step, al.ReplanDecision(action="ABORT", reasoning="no use"))
    assert {s.step_id: s.status for s in run.plan.steps} == {
        "a": "completed", "b": "interrupted", "c": "interrupted", "d": "pending",
    }  # fmt: skip
    assert run.state.loop_status == "ABORTED"
    assert "no use" in run.state.final_response


@pytest.mark.parametrize(("index", "text"), [(0, "is completed"), (9, "steps are 0 ... 3")])
def test_cancelling_what_is_completed_or_unknown_is_an_error(notes, begin, step, index, text):
    decision = al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(index,))
    with pytest.raises(PlanEditError, match=text):
        under_way(notes, begin, step, decision)


# ---- what others publish -------------------------------------------------------------------------


def test_a_published_event_is_decided_about_before_more_is_done(notes, begin, step):
    run = begin([step("a"), step("b", "note", "a")], [step("c")])
    run.run_until("monitor")
    run.publish(event("NEW_CONSTRAINT", description="the budget is cut", payload={"left": 3}))
    run.step()
    (heard,) = run.state.events
    assert (heard.severity, heard.session_id, heard.occurred_at) == ("CRITICAL", "", 0.0)
    assert run.next_node == "react"
    run.finish()
    assert triggers(run)[0] == ("event", "REPLAN_REMAINING")
    assert run.state.replan_history[0].events == (heard,)
    assert [s.step_id for s in run.plan.steps] == ["a", "c"]  # it was under way
    assert run.replay().identical
    assert run.replay().served == 3  # two tools, one contact with the inbox


def test_to_hear_something_is_not_to_end_a_step(begin, step):
    """A strategy that asks after every step is not asked after an event."""
    run = begin([step("a"), step("b")], strategy="retry(1)")
    run.run_until("monitor")
    run.step()
    asked = []
    kept = type(run.lab.strategy).triggered

    def triggered(strategy, point, state, step_id=None):
        asked.append((point, step_id))
        return kept(strategy, point, state, step_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(run.lab.strategy), "triggered", triggered)
        run.publish(event())
        run.step()
        assert asked == []
        run.step()
        assert asked == [("after_step", "b")]


def test_a_critical_event_outranks_the_end_and_a_milestone_does_not(notes, begin, step):
    for kind, expected in (("NEW_CONSTRAINT", ["a", "b"]), ("MILESTONE_REACHED", ["a"])):
        run = begin([step("a")], [step("b")], tools=[])
        run.run_until("monitor")
        run.step()
        assert run.next_node == "final_response"
        back = run.fork(at=-1)
        back.publish(event(kind))
        back.finish()
        assert [s.step_id for s in back.plan.steps] == expected


def test_somebody_who_insists_does_not_make_it_a_run_without_progress(chain):
    """The same plan in the same situation: but there was something new each time."""
    run = resident.start(al.Lab(chain(3), strategy="event_driven(replans=9)"))
    for _ in range(5):
        run.run_until("monitor")
        run.publish(event(description="again"))
        run.run_until("react")
    run.finish()
    assert run.state.replan_count == 5
    assert run.state.loop_status == "COMPLETED"
    assert run.verdict.success


def test_what_comes_too_late_is_kept_and_then_refused(begin, step):
    run = begin([step("a")])
    run.run_until("final_response")
    run.publish(event(description="late"))
    run.finish()
    assert [e.description for e in run.state.events][-1] == "late"
    assert run.state.loop_status == "COMPLETED"
    with pytest.raises(RunError, match="the run has ended; nobody hears of EXTERNAL_SIGNAL"):
        run.publish(event())
    assert run.replay().identical
    run.rewind(len(run.visited) - 1)
    run.publish(event(description="again"))
    run.finish()
    assert [e.description for e in run.state.events][-1] == "again"


def test_an_event_of_another_session_is_refused(begin, step):
    run = begin([step("a")])
    with pytest.raises(RunError, match="the event is of session 'X', this is ''"):
        run.publish(event(session_id="X"))


def test_a_fork_has_the_events_before_it_and_no_others(notes, begin, step):
    run = begin([step("a"), step("b", "note", "a"), step("c", "note", "b")])
    run.run_until("monitor")
    run.publish(event("TASK_INTERRUPTED", description="one"))
    run.finish()
    heard = run.visited.index("monitor")
    for at in range(len(run.visited) + 1):
        fork = run.fork(at=at)
        fork.finish()
        assert ("one" in [e.description for e in fork.state.events]) == (at > heard)
        assert fork.state.loop_status == "COMPLETED"


def test_a_node_that_raises_loses_no_event(notes, begin, step, monkeypatch):
    run = begin([step("a")], [step("b")])
    run.run_until("monitor")
    run.publish(event(description="kept"))
    answer = type(run.lab.strategy).triggered
    monkeypatch.setattr(type(run.lab.strategy), "triggered", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.step()
    monkeypatch.setattr(type(run.lab.strategy), "triggered", answer)
    run.finish()
    assert [e.description for e in run.state.events].count("kept") == 1


def test_a_durable_run_hears_the_same_events_when_it_is_resumed(notes, step, tmp_path, monkeypatch):
    lab = notes.lab([step("a"), step("b", "note", "a")], [step("c")])
    run = resident.start(lab, "do it", store=tmp_path / "runs.db")
    run.run_until("monitor")
    run.publish(event(description="it rains"))
    state = run.state
    monkeypatch.setattr(run._store, "checkpoint", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # as if the process had ended before the checkpoint
        run.step()
    monkeypatch.undo()
    again = al.Run.resume(tmp_path / "runs.db", lab)
    assert again.state == state
    again.finish()
    assert next(e.description for e in again.state.events) == "it rains"
    assert again.state.loop_status == "COMPLETED"


# ---- a fold like any other -----------------------------------------------------------------------

DISTURBED = al.FaultPlan(kinds={"error": 2, "timeout": 1, "wrong_result": 1}, rate=0.3)


def traced(run):
    return [s.row()[2:10] + s.row()[12:14] for s in run.spans]


@pytest.mark.parametrize("seed", range(6))
def test_same_seed_same_events_same_decisions(chain, seed):
    runs = []
    for _ in range(2):
        lab = al.Lab(chain(5), seed=seed, faults=DISTURBED, strategy="event_driven(replans=6)")
        run = resident.start(lab)
        run.run_until("monitor")
        run.publish(event("TASK_INTERRUPTED", description="a warning"))
        run.finish()
        runs.append(run)
    one, two = runs
    assert one.state == two.state
    assert traced(one) == traced(two)
    assert triggers(one) == triggers(two)
    assert one.replay().identical


@pytest.mark.parametrize("seed", range(3))
def test_every_fork_comes_out_the_same(chain, seed):
    lab = al.Lab(chain(4), seed=seed, faults=DISTURBED, strategy="event_driven", workers=2)
    run = resident.start(lab)
    run.finish()
    for at in range(len(run.visited)):
        fork = run.fork(at=at)
        assert fork.finish() == run.state
        assert fork.visited == run.visited


@pytest.mark.parametrize("strategy", ["event_driven", "event_driven(batch=1, milestones=False)"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_both_workflows_decide_alike(chain, strategy, workers, seed):
    """The loop and ``autonomous`` share triggers, scope and budget: they do and reach the same."""
    outcomes = []
    for workflow in (al.autonomous, resident):
        lab = al.Lab(chain(5), seed=seed, faults=DISTURBED, strategy=strategy, workers=workers)
        run = workflow.start(lab)
        run.finish()
        state = run.state
        decisions = [d for d in triggers(run) if d[0] is not None]
        outcomes.append((
            [(c.tool, c.arguments, c.started, c.finished) for c in state.calls], state.answer,
            state.loop_count, run.verdict.success, state.stopped_by, decisions,
            [e.to_json() for e in state.events], state.task_plan,
        ))  # fmt: skip
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("strategy", ["never", "retry(2)", "retry_then_replan(1)", "every_step(3)"])
@pytest.mark.parametrize("seed", range(4))
def test_other_strategies_do_in_it_what_they_do_in_autonomous(chain, strategy, seed):
    runs = []
    for workflow in (al.autonomous, resident):
        lab = al.Lab(chain(5), seed=seed, faults=DISTURBED, strategy=strategy)
        run = workflow.start(lab)
        run.finish()
        runs.append(run)
    one, two = runs
    assert one.state.calls == two.state.calls
    assert one.verdict.success == two.verdict.success
    assert one.state.loop_count == two.state.loop_count


def test_a_change_in_the_world_is_heard_of(chain):
    """A world event that is announced arrives as an event of the run, in both workflows."""
    change = {
        "name": "news",
        "between": (1, 2),
        "chance": 1.0,
        "visibility": "announced",
        "kind": "new_constraint",
        "patch": {},
        "description": "!",
    }
    for workflow in (al.autonomous, resident):
        lab = al.Lab(chain(4), faults=al.FaultPlan(events=(change,)), strategy="event_driven")
        run = workflow.start(lab)
        run.finish()
        assert ("event", "REPLAN_REMAINING") in triggers(run)
        assert run.verdict.success


# ---- the model as decider ------------------------------------------------------------------------


def decided(action, **more):
    from agentlab.base.documents import canonical

    document = {"action": action, "reasoning": "so I say", "stepsToCancel": [],
                "newContextHints": [], "confidence": 0.5}  # fmt: skip
    return canonical(document | more)


def modelled(notes, script, *plans, **options):
    from agentlab.lm.scripted import scripted

    model = scripted(script)
    lab = notes.lab(*plans, lm=model, reflector="rules", responder="template",
                    strategy="event_driven(decider='lm')", **options)  # fmt: skip
    return resident.start(lab, "do it"), model.engine


def test_the_model_is_asked_with_the_situation_report(notes, step):
    script = [decided("CONTINUE"), decided("REPLAN_REMAINING", newContextHints=["use d"])]
    run, engine = modelled(notes, script, [step("a", parameters={"n": 7}), step("b", "broken", "a"),
                                           step("c", "note", "b")], [step("d")])  # fmt: skip
    run.finish()
    assert run.state.loop_status == "COMPLETED"
    first, second = engine.prompts
    for text in ("do it", '- 0: a (note) completed, gave {"n":7}', "MILESTONE_REACHED",
                 "- 1: b (broken) pending", "Replans left: 3."):  # fmt: skip
        assert text in first
    for text in ("CRITICAL TASK_FAILED at b: error: it is broken", "DEPENDENCY_BROKEN at c",
                 "- 1: b (broken) failed: error: it is broken", "nothing can start"):  # fmt: skip
        assert text in second
    assert "MILESTONE_REACHED" not in second  # that was decided about
    (record,) = run.state.replan_history
    assert (record.decision.reasoning, record.decision.confidence) == ("so I say", 0.5)
    assert record.decision.new_context_hints == ("use d",)
    assert run.replay().identical


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("no", "JSON"),
        (decided("FLY"), "action"),
        (decided("RETRY"), "action"),
        (decided("CONTINUE", confidence=3), "confidence"),
        (decided("REPLAN_REMAINING", stepsToCancel=[0]), "completed and cannot be cancelled"),
        (decided("REPLAN_REMAINING", stepsToCancel=[8]), "steps are 0"),
    ],
)
def test_a_malformed_decision_is_asked_for_once_more_then_the_rules_decide(notes, step, bad, said):
    plans = [[step("a"), step("b", "broken", "a")], [step("c")]]
    run, engine = modelled(notes, [decided("CONTINUE"), bad, bad], *plans)
    run.finish()
    decision = run.state.replan_history[0].decision
    assert decision.action == "REPLAN_REMAINING"
    assert "(by rule, since the reply could not be used: " in decision.reasoning
    assert said in decision.reasoning
    assert len(engine.requests) == 3
    good, engine = modelled(notes, [decided("CONTINUE"), bad, decided("CONTINUE")], *plans)
    good.finish()
    assert said in engine.prompts[2]
    assert good.state.last_decision.reasoning == "so I say"
    assert good.state.loop_status == "COMPLETED"


# ---- what an event teaches ---------------------------------------------------------------------


@pytest.mark.parametrize("workflow", ["resident", "autonomous"])
def test_an_event_teaches_what_planners_go_by(workflow):
    lab = al.Lab(
        al.load_suite("travel")["travel-easy-000"], planner="search", strategy="event_driven"
    )
    run = get_workflow(workflow).start(lab)
    run.run_until(lambda state: state.task_plan is not None)
    calm = run.fork()
    calm.finish()
    booked = [c.arguments["flight_id"] for c in calm.state.calls if c.tool == "book_flight"]
    full = {"flights": {flight: {"seats": 0} for flight in booked}}
    run.publish(event("NEW_CONSTRAINT", description="full", payload={"learned": full}))
    run.finish()
    assert booked
    assert not [c for c in run.state.calls if c.arguments.get("flight_id") in booked]
    assert run.verdict.success
    assert run.state.replan_count == 1
    assert run.replay().identical


@pytest.mark.parametrize("learned", [None, 1, [], "x"])
def test_what_is_no_patch_teaches_nothing(begin, learned, step):
    run = begin([step("a")])
    run.run_until("monitor")
    run.publish(event(payload={"learned": learned}))
    before = run.state.belief
    run.finish()
    assert run.state.belief == before


def test_what_depends_on_a_cancelled_step_is_cancelled_with_it(begin, step):
    old = [step("a"), step("b", "note", "a"), step("c", "note", "b"), step("d"), step("e")]
    decide = Answers(al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(1,)), "CONTINUE")
    run = begin(old, [step("new")], strategy=decide.strategy())
    run.run_until("monitor")
    run.publish(event("NEW_CONSTRAINT"))
    run.finish()
    record = run.state.replan_history[0]
    assert {s.step_id for s in record.after.steps} == {"a", "d", "e", "new"}
    assert run.state.loop_status == "COMPLETED"
    assert {r.step_id for r in run.state.task_results} == {"a", "d", "e", "new"}


@pytest.mark.parametrize("value", [float("nan"), {1}, [object()]])
def test_what_could_not_be_written_down_is_not_heard(begin, step, value):
    """Once in the inbox it would break every visit that takes it out."""
    run = begin([step("a")])
    for broken in (event(payload={"a": value}), {"type": "NEW_CONSTRAINT"}):
        with pytest.raises(RunError, match="expected a ContextChangeEvent with a payload of JSON"):
            run.publish(broken)
    run.finish()
    assert run.state.loop_status == "COMPLETED"


def test_a_last_visit_that_is_made_again_hears_what_came_since(begin, step, monkeypatch):
    run = begin([step("a")])
    run.run_until("final_response")
    run.publish(event(description="first"))
    append = run._append
    monkeypatch.setattr(run, "_append", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        run.step()
    monkeypatch.setattr(run, "_append", append)
    run.publish(event(description="second"))
    run.step()
    assert [e.description for e in run.state.events][-2:] == ["first", "second"]
    assert run.replay().identical
    with pytest.raises(RunError, match="has ended"):
        run.publish(event(description="third"))
