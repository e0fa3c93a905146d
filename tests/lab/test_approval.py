"""Approval: asked once, in one place, and no way round it."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.environments.fault_plan import FaultPlan, TargetedFault
from agentlab.errors import RunError, UnknownNameError
from agentlab.lab.executor import SimulatedExecutor
from agentlab.lab.threads import ThreadedExecutor
from agentlab.minds.base import checked_plan
from agentlab.plans.task_plan import StepStatus
from agentlab.state.decisions import ReplanAction, ReplanDecision
from agentlab.trace.journal import Address

ORDER = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
both = pytest.mark.parametrize("executor", ["simulated", "threads"])


@pytest.fixture
def desk(notes):
    """Tools of a help desk, one of which asks for approval."""
    notes.refund = notes.tool(
        "refund", effect="irreversible", needs_approval=True, parameters=ORDER, seconds=5.0
    )
    return notes


def refund(step, name="refund", *dependencies, order=17, **fields):
    return step(name, "refund", *dependencies, parameters={"order": order}, **fields)


def started(desk, *plan, workflow=al.autonomous, **options):
    return workflow.start(desk.lab(list(plan), tools=[desk.refund], **options), "do it")


def waiting(desk, *plan, **options):
    run = started(desk, *plan, **options)
    run.finish()
    assert run.next_node == "WAIT"
    return run


def made(desk):
    return [name for name, _ in desk.made]


# ---- no way round ---------------------------------------------------------------------------


def test_the_door_refuses_a_call_that_nobody_reviewed(desk, step):
    lab = desk.lab([refund(step)], tools=[desk.refund])
    state, result, error = lab.call(
        lab.initial_state("x"), Address(0, "refund", 1), "refund", {"order": 17}
    )
    assert (result, error.code, error.permanent, desk.made) == (None, "unapproved", True, [])
    assert state.calls[-1].error.code == "unapproved"


def test_a_node_of_a_users_own_is_no_way_round(desk, step):
    """Neither before the approved step runs, nor with other arguments, nor once more after it."""
    codes = []

    @al.node
    def sneaky(state, lab):
        for attempt, order in ((1, 17), (1, 18), (2, 17)):
            state, _, error = lab.call(
                state, Address(state.visit, "refund", attempt), "refund", {"order": order}
            )
            codes.append(error.code)
        return state

    inner = al.autonomous
    routers = {**inner.routers, "sneaky": "plan_execution"}
    after = inner.routers["plan_execution"]
    flow = al.Workflow(
        "flow", [*inner.nodes.values(), sneaky],
        {**routers, "plan_execution": lambda s: "sneaky" if len(codes) < 9 and after(s) != "WAIT"
         else after(s)}, inner.entry,
    )  # fmt: skip
    run = flow.start(desk.lab([refund(step), step("b"), step("c")], tools=[desk.refund]), "x")
    run.finish()
    run.review("refund", "approve")
    run.finish()
    assert run.finished
    assert set(codes) == {"unapproved"}
    assert len(codes) >= 9
    assert made(desk).count("refund") == 1


def test_a_review_of_other_arguments_or_another_attempt_does_not_serve(desk, step):
    run = waiting(desk, refund(step))
    run.review("refund", "approve")
    state, lab = run.state, run.lab
    review = state.loop.review_of("refund", 1)
    assert review.allows == review.asked
    again = state.replace(attempts=state.attempts.set("refund", 1))
    asked = lab.executor.submit(again, lab, again.task_plan.step("refund"))
    [held] = asked.held
    assert (held.attempt, held.call_id) == (2, "refund")
    other = run.plan.with_step("refund", parameters={"order": 18})
    changed = state.replace(task_plan=other)
    [held] = lab.executor.submit(changed, lab, other.step("refund")).held
    assert (held.attempt, held.arguments) == (1, {"order": 18})


# ---- the order: resolve, ask, count the attempt, draw the fault ----------------------------------


@both
def test_a_held_step_has_nothing_but_a_question(desk, step, executor):
    faults = FaultPlan(targets=(TargetedFault(tool="refund", kind="error"),))
    plan = [step("a", parameters={"n": 17}), step("refund", "refund", "a",
            parameters={"order": "${a.n}"})]  # fmt: skip
    run = waiting(desk, *plan, executor=executor, faults=faults)
    state = run.state
    [held] = state.held
    assert (held.call_id, held.tool, held.arguments) == ("refund", "refund", {"order": 17})
    assert (held.attempt, held.effect, held.reason) == (1, "irreversible", "")
    assert run.plan.step("refund").status is StepStatus.PENDING
    assert "refund" not in state.attempts
    assert (state.executions, state.tool_calls, state.submissions) == (1, 1, 1)
    assert not any(k.startswith("refund") for k in state.occurrences)
    assert not state.under_way
    assert not state.delivered
    assert not run.recorder.of_kind("fault")
    run.review("refund", "approve")
    run.finish()
    assert run.state.attempts["refund"] == 1
    assert [d.tool for d in run.state.delivered] == ["refund"]


def test_parameters_that_do_not_resolve_are_not_asked_about(desk, step):
    run = started(desk, step("a"), refund(step, "refund", "a", order="${a.nothing}"))
    run.finish()
    assert run.finished
    assert run.plan.step("refund").status is StepStatus.FAILED


@both
def test_a_step_that_may_be_held_says_nothing_before_it_runs(desk, step, executor, heard):
    handler = heard()
    run = waiting(desk, refund(step), executor=executor, handler=handler)
    told = [e.text for e in handler.events if e.kind == "thinking_content"]
    assert not any("refund" in t for t in told)
    run.review("refund", "approve")
    run.finish()
    assert any("refund" in e.text for e in handler.events if e.kind == "thinking_content")


# ---- held steps and the others -------------------------------------------------------------------


class Counting:
    """An executor that counts what is submitted."""

    def __init__(self, inner):
        self.inner, self.submits = inner, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def submit(self, *given):
        self.submits += 1
        return self.inner.submit(*given)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("workflow", [al.autonomous, al.resident])
@both
def test_others_go_on_and_nothing_spins(desk, step, executor, workflow, workers):
    plan = [refund(step), step("a"), step("b", "note", "a"), step("c", "note", "refund"), step("d")]
    run = started(desk, *plan, executor=executor, workflow=workflow, workers=workers)
    counting = Counting(run.lab.executor)
    run.lab = run.lab.bind(executor=counting)
    run.finish()
    assert run.next_node == "WAIT"
    statuses = {s.step_id: s.status.value for s in run.plan.steps}
    assert statuses == {
        "refund": "pending", "a": "completed", "b": "completed", "c": "pending", "d": "completed",
    }  # fmt: skip
    assert counting.submits <= 2 * len(plan)
    assert not any("can start" in e.description for e in run.state.events)
    assert not any(d.name == "ABORT" for d in run.recorder.of_kind("decision"))
    run.review("refund", "approve")
    run.finish()
    assert run.state.ended == "completed"
    assert made(desk).count("refund") == 1
    assert run.replay().identical


@both
def test_it_takes_no_resource_from_others(desk, step, executor):
    """It would be first to get it, being the longest; while it is held, nobody waits for it."""
    long = desk.tool(
        "bake", effect="write", needs_approval=True, seconds=9.0, holds=["oven"]
    )  # fmt: skip
    short = desk.tool("toast", seconds=1.0, holds=["oven"])
    plan = [step("bake", "bake"), step("t1", "toast"), step("t2", "toast")]
    lab = desk.lab(plan, tools=[long, short], workers=2, executor=executor)
    run = al.autonomous.start(lab, "x")
    run.finish(max_visits=50)
    assert [p.call_id for p in run.waiting] == ["bake"]
    assert made(desk) == ["toast", "toast"]
    run.review("bake", "approve")
    run.finish()
    assert run.state.ended == "completed"
    assert run.replay().identical


@both
def test_two_that_wait_are_answered_one_by_one(desk, step, executor):
    plan = [refund(step, "r1"), refund(step, "r2", order=18), step("end", "note", "r1", "r2")]
    run = waiting(desk, *plan, executor=executor, workers=2)
    assert [p.call_id for p in run.waiting] == ["r1", "r2"]
    run.review("r2", "approve")
    run.finish()
    assert [p.call_id for p in run.waiting] == ["r1"]
    assert desk.made == [("refund", {"order": 18})]
    run.review("r1", "approve")
    run.finish()
    assert run.state.ended == "completed"
    assert run.replay().identical


def test_in_resident_a_held_step_is_no_stall(desk, step):
    plan = [refund(step), step("broken", "broken", skippable=True)]
    run = waiting(desk, *plan, workflow=al.resident)
    assert not [d for d in run.recorder.of_kind("decision") if "nothing can start" in str(d.output)]


# ---- what is answered ----------------------------------------------------------------------------


def test_edited_arguments_are_held_against_the_schema(desk, step):
    run = waiting(desk, refund(step))
    for arguments in ({"order": "x"}, {}, {"order": 1.5}):
        with pytest.raises(RunError, match="still waits"):
            run.review("refund", "edit", arguments)
        assert [p.call_id for p in run.waiting] == ["refund"]
        assert run.visited[-1] != "(review)"
    with pytest.raises(RunError, match="come with the answer 'edit'"):
        run.review("refund", "edit")
    with pytest.raises(RunError, match="come with the answer 'edit'"):
        run.review("refund", "approve", {"order": 1})
    run.review("refund", "edit", {"order": 3}, by="Ada", reason="a typo")
    run.finish()
    assert desk.made == [("refund", {"order": 3})]
    [said] = [s for s in run.recorder.of_kind("decision") if s.name == "review"]
    assert said.input == {"tool": "refund", "arguments": {"order": 17}}
    assert said.output == {
        "answer": "edit", "arguments": {"order": 3}, "by": "Ada", "reason": "a typo",
    }  # fmt: skip


def test_an_approval_of_arguments_that_do_not_fit_raises(desk, step):
    run = waiting(desk, refund(step, order="seventeen"))
    with pytest.raises(RunError, match="still waits"):
        run.review("refund", "approve")
    run.review("refund", "reject")
    run.finish()
    assert run.plan.step("refund").error.startswith("rejected: ")


def test_unknown_answers_and_calls_give_the_nearest_name(desk, step):
    run = waiting(desk, refund(step))
    with pytest.raises(UnknownNameError, match="did you mean 'approve'"):
        run.review("refund", "aprove")
    with pytest.raises(RunError, match="did you mean 'refund'"):
        run.review("refnd", "approve")
    run.review("refund", "approve")
    with pytest.raises(RunError, match="waits for a review; none does"):
        run.review("refund", "approve")
    run.finish()
    with pytest.raises(RunError, match="none does"):
        run.review("refund", "reject")


class Rounds:
    """A planner whose n-th plan is the n-th given; it notes what it was told of failures."""

    def __init__(self, *plans):
        self.plans, self.told = plans, []

    def plan(self, request, kit):
        self.told.append(request.failures)
        return checked_plan({"steps": list(self.plans[request.number])}, request, kit)


@both
@pytest.mark.parametrize("strategy", ["never", "retry(3)", "retry_then_replan(3)", "every_step"])
def test_a_rejected_step_is_not_tried_again(desk, step, executor, strategy):
    planner = Rounds([refund(step)], [step("other")], [step("third")], [step("fourth")])
    run = waiting(desk, executor=executor, strategy=strategy, planner=planner)
    run.review("refund", "reject", reason="too much", by="Ada")
    run.finish()
    [failure] = run.state.failures
    assert (failure.tool, failure.code, failure.permanent) == ("refund", "rejected", True)
    assert run.state.task_results[0].error == "rejected: Ada did not approve: too much"
    assert "refund" not in made(desk)
    assert "refund" not in run.state.attempts
    decided = [s.name for s in run.recorder.of_kind("decision")]
    assert "RETRY" not in decided
    if strategy == "retry_then_replan(3)":
        assert planner.told[1] == (failure,)
        assert made(desk) == ["note"]
        assert run.state.ended == "completed"
    assert run.replay().identical


def test_a_model_that_would_retry_what_was_rejected_does_not(desk, step):
    again = ReplanDecision(action=ReplanAction.RETRY, step_id="refund", reasoning="once more")

    class Stubborn:
        asked = 0

        def decide(self, trigger, state, kit):
            self.asked += 1
            assert self.asked < 20
            return again

    for strategy in ("ask_on_error", "event_driven(decider='lm')"):
        planner = Rounds([refund(step)], [step("other")])
        model = al.lm.scripted_model(["{}"])
        run = started(desk, strategy=strategy, planner=planner, lm=model)
        run.lab = run.lab.bind(decider=Stubborn())
        run.finish()
        run.review("refund", "reject")
        run.finish(max_visits=60)
        assert run.finished
        assert "RETRY" not in [s.name for s in run.recorder.of_kind("decision")]
        assert "refund" not in made(desk)


# ---- irreversible calls whose outcome is unknown -------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "strategy", "attempts"),
    [
        ("irreversible", "retry(2)", 1),
        ("irreversible", "retry(2, unknown='repeat')", 2),
        ("irreversible", "retry_then_replan(2)", 1),
        ("irreversible", "retry_then_replan(2, unknown='repeat')", 2),
        ("write", "retry(2)", 1),
        ("write", "retry(2, unknown='repeat')", 2),
        ("read", "retry(2)", 2),
    ],
)
def test_a_timeout_of_an_irreversible_call_is_not_repeated(notes, step, effect, strategy, attempts):
    pay = notes.tool("pay", effect=effect)
    faults = FaultPlan(targets=(TargetedFault(tool="pay", kind="timeout_after_commit",
                                              occurrence=0),))  # fmt: skip
    run = notes.run([step("pay", "pay")], tools=[pay], strategy=strategy, faults=faults)
    assert run.state.attempts["pay"] == attempts
    assert made(notes).count("pay") == attempts
    assert run.state.task_results[0].status == ("failed" if effect == "read" else "interrupted")


def test_what_failed_for_certain_may_be_repeated(notes, step):
    pay = notes.tool("pay", effect="irreversible")
    faults = FaultPlan(targets=(TargetedFault(tool="pay", kind="error", occurrence=0),))
    run = notes.run([step("pay", "pay")], tools=[pay], strategy="retry(2)", faults=faults)
    assert run.state.attempts["pay"] == 2
    assert made(notes) == ["pay"]


def test_another_attempt_asks_anew_and_says_what_may_stand(desk, step):
    faults = FaultPlan(targets=(TargetedFault(tool="refund", kind="timeout_after_commit",
                                              occurrence=0),))  # fmt: skip
    run = waiting(desk, refund(step), strategy="retry(2, unknown='repeat')", faults=faults)
    run.review("refund", "approve")
    run.finish()
    [held] = run.waiting
    assert held.attempt == 2
    assert held.reason.startswith("attempt 1 ended with: timeout")
    assert "may have taken effect" in held.reason
    run.review("refund", "reject")
    run.finish()
    assert made(desk) == ["refund"]  # paid once
    assert run.replay().identical


# ---- the lab answers by itself -------------------------------------------------------------------


@both
@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_lab_that_answers_does_so_in_the_same_visit(desk, step, executor, answer):
    run = started(desk, refund(step), executor=executor, review=answer)
    run.finish()
    assert run.finished
    assert "(review)" not in run.visited
    assert made(desk) == (["refund"] if answer == "approve" else [])
    [said] = [s for s in run.recorder.of_kind("decision") if s.name == "review"]
    assert (said.output["answer"], said.output["by"]) == (answer, "lab")
    assert run.replay().identical


@both
def test_a_function_that_answers_is_asked_once(desk, step, executor, tmp_path):
    asked = []

    def reviewer(pending):
        asked.append(pending)
        return {"answer": "edit", "arguments": {"order": 4}, "by": "the desk", "reason": "rule 3"}

    lab = desk.lab([refund(step), step("b", "note", "refund")], tools=[desk.refund],
                   review=reviewer, executor=executor)  # fmt: skip
    run = al.autonomous.start(lab, "x", store=tmp_path)
    run.run_until(lambda s: "refund" in s.attempts)
    again = al.Run.resume(tmp_path, lab)
    again.finish()
    assert desk.made[0] == ("refund", {"order": 4})
    assert [(p.call_id, p.arguments) for p in asked] == [("refund", {"order": 17})]
    assert again.replay().identical
    assert len(asked) == 1


def test_a_visit_that_is_made_again_does_not_ask_twice(desk, step, tmp_path):
    """The answer is on disk before the call is made; a process that ends there loses nothing."""
    asked = []

    def reviewer(pending):
        asked.append(pending.call_id)
        return "approve"

    class Dies(SimulatedExecutor):
        def wait(self, state, bench):
            raise KeyboardInterrupt

    lab = desk.lab([refund(step)], tools=[desk.refund], review=reviewer)
    run = al.autonomous.start(lab, "x", store=tmp_path)
    run.run_until("plan_execution")
    run.lab = run.lab.bind(executor=Dies())
    with pytest.raises(KeyboardInterrupt):
        run.step()
    again = al.Run.resume(tmp_path, lab)
    again.finish()
    assert (asked, made(desk)) == (["refund"], ["refund"])
    assert again.replay().identical


@pytest.mark.parametrize("said", ["yes", 3, None, {"reply": "approve"}, {"answer": "edit"}])
def test_an_answer_that_is_none_fails_the_step_and_asks_nobody_else(desk, step, said):
    run = started(desk, refund(step), review=lambda pending: said)
    run.finish()
    assert run.finished
    assert "the review of" in run.plan.step("refund").error
    assert desk.made == []


def test_who_reviews_is_checked_when_the_lab_is_made(desk, step):
    with pytest.raises(UnknownNameError, match="did you mean 'approve'"):
        desk.lab([refund(step)], review="aprove")
    with pytest.raises(UnknownNameError, match="known: approve, reject"):
        desk.lab([refund(step)], review=3)


# ---- the clock ----------------------------------------------------------------------------------


def test_waiting_takes_no_time_on_any_clock(desk, step):
    import time

    for executor in ("simulated", "threads"):
        run = waiting(desk, step("a"), refund(step, "refund", "a"), executor=executor)
        before = run.state.now
        time.sleep(0.25)
        run.review("refund", "approve")
        assert run.state.now == before
        run.finish()
        [call] = [c for c in run.state.calls if c.tool == "refund"]
        assert call.started - before < 0.2
        assert isinstance(run.lab.executor, ThreadedExecutor | SimulatedExecutor)
        assert run.replay().identical


def test_an_event_ends_a_wait_that_took_no_time(desk, step):
    import time

    run = waiting(desk, refund(step), executor="threads", workflow=al.resident)
    before = run.state.now
    time.sleep(0.25)
    run.publish(al.ContextChangeEvent(type="EXTERNAL_SIGNAL", severity="INFO", description="x"))
    assert run.next_node == "monitor"
    run.step()
    assert run.state.now - before < 0.2
    run.finish()
    assert run.next_node == "WAIT"
    assert run.state.now - before < 0.2
    run.review("refund", "approve")
    run.finish()
    assert run.replay().identical
