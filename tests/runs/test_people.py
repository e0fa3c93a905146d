"""Runs that wait for people: answers and turns as visits, stored, replayed, forked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

import agentlab as al
from agentlab.environments.chain import Chain
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.suites import Suite
from agentlab.errors import RunError, StoreVersionError, StudyError, UnknownNameError
from agentlab.minds.base import checked_plan
from agentlab.runs.run import Run
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings

both = pytest.mark.parametrize("executor", ["simulated", "threads"])
stored = pytest.mark.parametrize("durable", [False, True])


@pytest.fixture
def desk(notes):
    notes.refund = notes.tool("refund", effect="irreversible", needs_approval=True)
    return notes


class Turns:
    """A planner that goes by what the user says last: "refund N" or anything else."""

    def plan(self, request, kit):
        word, _, number = request.user_input.partition(" ")
        tool = word if word in kit.tools else "note"
        step = {"stepId": f"s{request.number}", "name": tool, "actionType": "call_tool",
                "targetResource": tool, "parameters": {"order": number}}  # fmt: skip
        return checked_plan({"steps": [step]}, request, kit)


def lab(desk, **options):
    return desk.lab(tools=[desk.refund], **{"planner": Turns(), **options})


def waiting(desk, tmp_path=None, durable=False, workflow=al.autonomous, **options):
    store = {"store": tmp_path} if durable else {}
    run = workflow.start(lab(desk, **options), "refund 17", **store)
    run.finish()
    assert run.next_node == "WAIT"
    return run


def made(desk):
    return [name for name, _ in desk.made]


# ---- where everything stands -------------------------------------------------------------------


def test_going_on_returns_where_it_waits_and_a_step_raises(desk):
    run = al.autonomous.start(lab(desk), "refund 17")
    names = [name for name, _ in run.iterate()]
    assert names == ["load_config", "planning", "plan_execution"]
    assert not run.finished
    assert run.finish() is run.state
    assert run.run_until("final_response") is run.state
    assert list(run.iterate()) == []
    with pytest.raises(RunError, match=r"waits for a review of s0 \(refund\): run.review"):
        run.step()
    assert "before 'WAIT', waiting for people: s0" in repr(run)
    assert run.visited == names


@both
@stored
def test_a_review_and_what_is_said_are_visits(desk, executor, durable, tmp_path):
    run = waiting(desk, tmp_path, durable, executor=executor)
    asked, at = run.state, len(run.visited)
    visit = run.review("s0", "approve", by="Ada")
    assert (visit.node, visit.index, visit.before) == ("(review)", at, asked)
    assert run.states[at] is asked
    assert run.state.visit == asked.visit + 1
    assert run.next_node == "plan_execution"
    run.finish()
    said = run.say("hello again", by="Bob")
    assert said.node == "(say)"
    assert run.next_node == run.workflow.entry
    assert [(s.name, s.output["by"]) for v in (visit, said) for s in v.spans] == [
        ("review", "Ada"), ("say", "Bob"),
    ]  # fmt: skip
    run.finish()
    assert made(desk) == ["refund", "note"]
    assert run.replay().identical
    assert made(desk) == ["refund", "note"]
    if durable:
        again = Run.resume(tmp_path, lab(desk, executor=executor))
        assert (again.visited, again.state) == (run.visited, run.state)
        assert again.replay().identical
        assert made(desk) == ["refund", "note"]


@both
@stored
def test_a_fork_of_a_review_stands_waiting_and_takes_another_answer(
    desk, executor, durable, tmp_path
):
    options = {"executor": executor, "strategy": "never"}
    run = waiting(desk, tmp_path, durable, **options)
    at = len(run.visited)
    run.review("s0", "approve")
    run.finish()
    fork = run.fork(at=at)
    assert (fork.next_node, [p.call_id for p in fork.waiting]) == ("WAIT", ["s0"])
    fork.review("s0", "edit", {"order": "18"})
    fork.finish()
    assert desk.made == [("refund", {"order": "17"}), ("refund", {"order": "18"})]
    no = run.fork(at=at, review={"s0": {"answer": "reject", "reason": "no", "by": "Ada"}})
    assert no.visited[-1] == "(review)"
    assert no.lineage.edits == ("review",)
    no.finish()
    assert no.plan.step("s0").error == "rejected: Ada did not approve: no"
    assert len(desk.made) == 2
    for one in (run, fork, no):
        assert one.replay().identical
    assert len(desk.made) == 2
    if durable:
        for one in (run, fork, no):
            again = Run.resume(tmp_path, lab(desk, **options), one.run_id)
            assert (again.visited, again.state) == (one.visited, one.state)
            assert again.states[at] == one.states[at]
            assert again.replay().identical
            if one is not run:
                assert (again.lineage.run_id, again.lineage.at) == (run.run_id, at)
        assert len(desk.made) == 2


def test_a_fork_that_waits_is_resumed_and_answered(desk, tmp_path):
    run = waiting(desk, tmp_path, durable=True)
    fork = run.fork()
    again = Run.resume(tmp_path, lab(desk))
    assert again.run_id == fork.run_id
    again.review(again.waiting[0].call_id, "approve")
    again.finish()
    still = Run.resume(tmp_path, lab(desk), run.run_id)
    assert still.next_node == "WAIT"
    assert made(desk) == ["refund"]


def test_a_replay_stops_where_the_recorded_answer_has_no_question(desk):
    run = waiting(desk)
    run.review("s0", "approve")
    run.finish()
    run.lab = run.lab.bind(tools=[desk.tool("refund", effect="irreversible")])
    report = run.replay()
    assert not report.identical
    assert report.matched == run.visited.index("(review)") - 1


# ---- turns ---------------------------------------------------------------------------------------


def test_saying_something_while_it_waits_rejects_what_waits(desk):
    run = waiting(desk)
    run.say("forget it")
    assert run.visited[-2:] == ["(review)", "(say)"]
    assert run.waiting == ()
    run.finish()
    assert made(desk) == ["note"]
    [failure] = run.state.failures
    assert failure.code == "rejected"
    assert run.replay().identical


@pytest.mark.parametrize("text", ["", "  ", None, 3])
def test_nothing_is_said_with_nothing(desk, text):
    run = waiting(desk)
    with pytest.raises(RunError, match="expected what the user says"):
        run.say(text)
    assert run.next_node == "WAIT"


def test_nobody_speaks_in_the_middle_of_a_turn(desk):
    run = al.autonomous.start(lab(desk), "note 1")
    run.step()
    with pytest.raises(RunError, match="under way, before 'planning'"):
        run.say("and now?")


def test_a_turn_has_its_own_budget_and_keeps_what_the_run_knows(desk):
    run = al.autonomous.start(lab(desk), "note 1", max_task_iterations=1)
    run.finish()
    first = run.state
    run.say("note 2")
    now = run.state
    assert (now.user_input, now.task_plan, now.final_response, now.outcome) == ("note 2",) + (
        None,
    ) * 3
    for kept in ("results", "attempts", "task_results", "failures", "calls", "events",
                 "replan_history", "world", "belief", "now", "executions", "notes"):  # fmt: skip
        assert getattr(now, kept) is getattr(first, kept), kept
    assert now.messages[:-1] == first.messages
    assert now.turn.since.executions == 1
    run.finish()
    assert run.state.stopped_by is None
    assert (run.state.executions, made(desk)) == (2, ["note", "note"])
    assert [m.role for m in run.state.messages] == ["user", "assistant"] * 2
    assert run.replay().identical


def test_a_question_asked_in_one_turn_is_none_of_the_next(desk):
    run = waiting(desk)
    run.review("s0", "approve")
    run.finish()
    run.say("refund 17")
    run.finish()
    assert [p.call_id for p in run.waiting] == ["s1"]  # asked anew, for a step of its own
    assert made(desk) == ["refund"]


# ---- changing what waits -------------------------------------------------------------------------


def other(plan, order="18"):
    return plan.with_step("s0", parameters={"order": order})


@both
@stored
def test_an_edit_of_the_arguments_asks_anew(desk, executor, durable, tmp_path):
    run = waiting(desk, tmp_path, durable, executor=executor)
    run.edit(plan=other(run.plan))
    assert run.waiting == ()
    assert run.next_node == "plan_execution"
    run.finish()
    assert [p.arguments for p in run.waiting] == [{"order": "18"}]
    run.review("s0", "approve")
    run.finish()
    assert desk.made == [("refund", {"order": "18"})]
    assert run.replay().identical


def test_an_edit_after_the_approval_asks_anew(desk):
    run = waiting(desk)
    run.review("s0", "approve")
    run.edit(plan=other(run.plan))
    run.finish()
    assert [p.arguments for p in run.waiting] == [{"order": "18"}]
    assert desk.made == []


def test_a_fork_with_other_arguments_asks_anew(desk):
    run = waiting(desk)
    at = len(run.visited)
    run.review("s0", "approve")
    fork = run.fork(at=at, plan=other(run.states[at].task_plan))
    fork.finish()
    assert [p.arguments for p in fork.waiting] == [{"order": "18"}]
    fork = run.fork(at=at + 1, plan=other(run.states[at].task_plan))
    fork.finish()
    assert [p.arguments for p in fork.waiting] == [{"order": "18"}]
    assert desk.made == []


def test_a_plan_that_gets_something_else_to_do_does_it_and_waits_again(desk, step):
    run = waiting(desk)
    more = al.TaskPlan.model_validate({"steps": [*[s.to_json() for s in run.plan.steps],
                                                 step("extra")]})  # fmt: skip
    run.edit(plan=more)
    run.finish()
    assert made(desk) == ["note"]
    assert [p.call_id for p in run.waiting] == ["s0"]


def test_a_replan_that_drops_the_step_drops_the_question(desk):
    from agentlab.state.decisions import ReplanAction, ReplanDecision

    decision = ReplanDecision(action=ReplanAction.REPLAN_FULL, reasoning="no")
    run = waiting(desk, workflow=al.resident, strategy="event_driven")
    run.edit(forced_decision=decision, next_action="reflect", user_input="note 1")
    run.finish()
    assert run.finished
    assert run.waiting == ()
    assert run.state.held == ()
    assert made(desk) == ["note"]


# ---- other doors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("review", "calls"), [(None, 0), ("approve", 1), ("reject", 0)])
def test_inside_a_sub_agent_only_the_lab_answers(desk, step, review, calls, fresh_names):
    agents = AgentRegistry(
        [AgentSettings(id="boss", sub_agents=["clerk"]),
         AgentSettings(id="clerk", tools=["refund"], strategy="never", planner="plans")],
        tools=[ToolSettings(id="refund", name="refund")],
    )  # fmt: skip

    class Plans:
        def plan(self, request, kit):
            inner = "refund" in kit.tools and request.user_input != "outer"
            one = step("r", "refund") if inner else step(
                "ask", "clerk", actionType="call_sub_agent", parameters={"input": "inner"}
            )  # fmt: skip
            return checked_plan({"steps": [one]}, request, kit)

    al.register("planner", "plans", Plans)
    made_by = al.Lab(tools=[desk.refund], agent="boss", agents=agents, planner=Plans(),
                     review=review, strategy="never")  # fmt: skip
    run = al.autonomous.start(made_by, "outer")
    run.finish()
    assert run.finished
    assert len(desk.made) == calls
    if review is None:
        assert "Lab(review=...)" in json.dumps([s.error for s in run.spans if s.error])
    assert run.replay().identical


class Shop(Chain):
    """A chain whose tools ask."""

    name = "shop"

    def tools(self):
        return tuple(replace(t, needs_approval=True) for t in super().tools())


def test_who_reviews_is_an_axis_of_a_study(fresh_names):
    al.register("environment", "shop", Shop)
    scenarios = [s.replace(environment="shop") for s in al.load_suite("chain")[:2]]
    options = {"suite": Suite("shops", scenarios), "fault_rate": 0, "seeds": 1, "controls": False}
    with pytest.raises(StudyError, match="give review="):
        al.Study(al.grid(planner="search"), **options)
    study = al.Study(al.grid(planner="search", review=["approve", "reject"]), **options)
    runs = study.run()
    assert set(runs["status"]) == {"done"}
    assert runs.groupby("review")["success"].mean().to_dict() == {"approve": 1.0, "reject": 0.0}


# ---- a lab that is given later ------------------------------------------------------------------


def small(call):
    return "approve" if int(call.arguments["order"]) < 18 else {"answer": "reject", "by": "Ada"}


@both
@stored
@pytest.mark.parametrize("review", ["approve", "reject", small])
def test_a_fork_whose_lab_answers_does_so_when_it_goes_on(
    desk, executor, durable, review, tmp_path
):
    options = {"executor": executor, "strategy": "never"}
    run = waiting(desk, tmp_path, durable, **options)
    fork = run.fork(lab=lab(desk, review=review, **options))
    assert (fork.next_node, [p.call_id for p in fork.waiting]) == ("WAIT", ["s0"])
    assert not fork.stands
    fork.finish()
    assert fork.finished
    assert fork.visited[len(run.visited)] == "(review)"
    [told] = [s for s in fork.spans if s.name == "review"]
    assert told.output["by"] == "lab"
    assert made(desk) == [] if review == "reject" else ["refund"]
    assert run.next_node == "WAIT"
    assert fork.replay().identical
    if durable:
        again = Run.resume(tmp_path, lab(desk, **options), fork.run_id)
        assert (again.visited, again.state) == (fork.visited, fork.state)
        assert again.replay().identical


@both
@pytest.mark.parametrize("review", ["approve", small])
def test_a_lab_given_at_resume_answers_what_waits(desk, executor, review, tmp_path):
    options = {"executor": executor, "strategy": "never"}
    run = waiting(desk, tmp_path, True, **options)
    again = Run.resume(tmp_path, lab(desk, review=review, **options))
    again.finish()
    again.say("refund 18")  # and is asked in the same visit from here on
    again.finish()
    assert again.visited.count("(review)") == 1
    assert [s.output["answer"] for s in again.spans if s.name == "review"] == [
        "approve", "approve" if review == "approve" else "reject",
    ]  # fmt: skip
    assert again.visited[: len(run.visited)] == run.visited
    assert again.replay().identical
    for options["review"] in (review, None):
        last = Run.resume(tmp_path, lab(desk, **options))
        assert last.state == again.state
        assert last.replay().identical is (options["review"] is not None)


def test_a_lab_that_answers_does_so_before_other_steps_go_on(desk, step):
    plan = [step("r", "refund", parameters={"order": "1"}), step("a"), step("b", "note", "a")]
    run = al.autonomous.start(desk.lab(plan, tools=[desk.refund]), "go")
    run.run_until(lambda state: bool(state.held))
    assert run.next_node == "plan_execution"
    fork = run.fork(lab=desk.lab(plan, tools=[desk.refund], review="approve"))
    assert fork.step().node == "(review)"
    fork.finish()
    assert sorted(made(desk)) == ["note", "note", "refund"]
    assert fork.replay().identical


def test_a_lab_whose_answer_does_not_fit_raises_and_the_call_waits(desk):
    fork = waiting(desk).fork(lab=lab(desk, review=lambda call: "perhaps"))
    visited = list(fork.visited)
    with pytest.raises(UnknownNameError, match="perhaps"):
        fork.finish()
    assert (fork.visited, [p.call_id for p in fork.waiting]) == (visited, ["s0"])
    fork.review("s0", "approve")
    assert fork.finish().ended == "completed"


def test_a_pause_comes_before_the_labs_answer(desk):
    fork = waiting(desk).fork(lab=lab(desk, review="approve"))
    fork.pause()
    fork.finish()
    assert (fork.paused, made(desk)) == (True, [])
    fork.finish()
    assert fork.visited[-5:-3] == ["(go on)", "(review)"]
    assert fork.replay().identical


# ---- a process that dies while it waits ----------------------------------------------------------

SCRIPT = """
import os, signal, sys
import agentlab as al

folder, log, then = sys.argv[1:]

def note(what):
    with open(log, "a") as file:
        file.write(what + chr(10))

@al.tool(effect="write")
def look(order: int) -> str:
    "Look."
    note("look")
    return f"saw {order}"

@al.tool(effect="irreversible", needs_approval=True)
def refund(order: int) -> str:
    "Refund."
    note("refund")
    return f"refunded {order}"

plan = [
    {"name": "look", "actionType": "call_tool", "targetResource": "look",
     "parameters": {"order": 17}},
    {"name": "refund", "actionType": "call_tool", "targetResource": "refund",
     "parameters": {"order": 17}, "dependencies": [0]},
]
lab = al.Lab(tools=[look, refund], planner=al.planners.Fixed(plan), executor=EXECUTOR)
if then == "start":
    run = al.autonomous.start(lab, "refund 17", store=folder)
    run.finish()
    assert run.next_node == "WAIT"
    os.kill(os.getpid(), signal.SIGKILL)
run = al.Run.resume(folder, lab)
if then == "answer":
    assert [p.call_id for p in run.waiting] == ["refund"]
    run.review("refund", "approve")
    os.kill(os.getpid(), signal.SIGKILL)  # the answer is stored before review returns
run.finish()
print(run.state.ended, run.replay().identical)
"""


@both
def test_killed_while_it_waits_resumed_and_answered_nothing_is_repeated(executor, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("EXECUTOR", repr(executor)))
    log = tmp_path / "log"

    def process(then):
        words = [sys.executable, str(script), str(tmp_path / "store"), str(log), then]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)

    assert process("start").returncode == -signal.SIGKILL
    assert log.read_text().split() == ["look"]
    assert process("answer").returncode == -signal.SIGKILL
    assert log.read_text().split() == ["look"]
    last = process("finish")
    assert last.returncode == 0, last.stderr
    assert last.stdout.split() == ["completed", "True"]
    assert log.read_text().split() == ["look", "refund"]
    assert os.path.exists(log)


def test_a_file_of_the_format_before_is_refused_with_a_clear_word(desk, tmp_path):
    waiting(desk, tmp_path, durable=True)
    import sqlite3

    with sqlite3.connect(tmp_path / "study.db") as file:
        version = file.execute("PRAGMA user_version").fetchone()[0]
        file.execute(f"PRAGMA user_version = {version - 1}")
    with pytest.raises(StoreVersionError, match=r"older agentlab.*choose another folder"):
        Run.resume(tmp_path, lab(desk))


def test_faults_come_only_after_the_answer(desk):
    run = waiting(desk, faults=FaultPlan(rate=1.0))
    assert not run.state.delivered
    run.review("s0", "approve")
    run.finish()
    assert run.state.delivered


@pytest.mark.parametrize("arguments", ["abc", ["x"], [["order", "1"]], 5, True, ""])
def test_edited_arguments_that_are_no_mapping_are_refused_and_the_run_still_waits(desk, arguments):
    run = waiting(desk)
    [call] = run.waiting
    with pytest.raises(RunError, match="expected the arguments by name"):
        run.review(call.call_id, "edit", arguments)
    with pytest.raises(RunError, match="expected the arguments by name"):
        run.fork(review={call.call_id: {"answer": "edit", "arguments": arguments}})
    assert run.waiting == (call,)
