"""The executor: steps in simulated time; workers, shared resources, ties, expectations.

Two workers are two steps under way at once; what is under way is data in the state.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import agentlab as al
from agentlab.base.schemas import object_schema
from agentlab.environments.base import Environment, Outcome
from agentlab.environments.fault_plan import FaultPlan, TargetedFault
from agentlab.errors import EnvironmentContractError
from agentlab.lab.actions.named import ACTIONS
from agentlab.lab.bench import Action
from agentlab.lab.executor import unexpected
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans.task_plan import TaskStep
from agentlab.study.grid import Arm
from agentlab.tools.tool import Tool


def holding(notes, name, seconds, *holds):
    return replace(notes.tool(name, seconds=seconds), holds=holds)


def times(run):
    """Return step id -> (start, end) in simulated seconds of its last execution."""
    return {s.step_id: (s.sim_start, s.sim_end) for s in run.recorder.of_kind("step")}


# ---- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "end"), [(1, 6), (2, 3), (3, 3)])
def test_two_independent_steps_of_three_seconds(notes, step, workers, end):
    tools = [notes.tool("work", seconds=3.0)]
    run = notes.run([step("a", "work"), step("b", "work")], tools=tools, workers=workers)
    assert run.state.now == end
    assert [s.status for s in run.plan.steps] == ["completed", "completed"]
    assert len(notes.made) == 2


def test_a_shared_resource_makes_them_wait_for_each_other(notes, step):
    tools = [holding(notes, "bake", 3.0, "oven"), holding(notes, "roast", 3.0, "pan", "oven")]
    run = notes.run([step("a", "bake"), step("b", "roast")], tools=tools, workers=2)
    assert run.state.now == 6
    assert times(run) == {"a": (0, 3), "b": (3, 6)}
    apart = [tools[0], replace(tools[1], holds=("pan",))]
    assert notes.run([step("a", "bake"), step("b", "roast")], tools=apart, workers=2).state.now == 3


def test_three_steps_on_one_resource_go_one_after_the_other(notes, step):
    tools = [holding(notes, "bake", 2.0, "oven")]
    plan = [step(i, "bake") for i in "abc"]
    run = notes.run(plan, tools=tools, workers=3)
    assert times(run) == {"a": (0, 2), "b": (2, 4), "c": (4, 6)}


def test_the_next_to_finish_is_waited_for_and_ties_go_by_submission(notes, step):
    tools = [notes.tool("slow", seconds=5.0), notes.tool("quick", seconds=2.0)]
    plan = [step("a", "slow"), step("b", "quick"), step("c", "quick")]
    run = notes.run(plan, tools=tools, workers=3)
    assert [r.step_id for r in run.state.task_results] == ["b", "c", "a"]
    assert [name for name, _ in notes.made] == ["quick", "quick", "slow"]
    tied = notes.run([step(i, "slow") for i in "abcd"], tools=tools, workers=4)
    assert [r.step_id for r in tied.state.task_results] == list("abcd")


def test_a_visit_submits_what_is_ready_up_to_workers_and_waits_for_one(notes, step):
    tools = [notes.tool(f"t{n}", seconds=float(n)) for n in (1, 2, 3, 4)]
    run = notes.start([step(f"s{n}", f"t{n}") for n in (4, 3, 2, 1)], tools=tools, workers=2)
    run.run_until("plan_execution")
    under_way = []
    while run.next_node == "plan_execution":
        run.step()
        under_way.append([u.step_id for u in run.state.under_way])
        running = [s.step_id for s in run.plan.steps if s.status == "running"]
        assert sorted(running) == sorted(under_way[-1])
    assert under_way == [["s4"], ["s2"], ["s1"], []]
    assert times(run) == {"s4": (0, 4), "s3": (0, 3), "s2": (3, 5), "s1": (4, 5)}
    assert run.state.now == 5


def test_a_dependent_step_waits_for_what_it_depends_on(notes, step):
    tools = [notes.tool("long", seconds=4.0), notes.tool("short", seconds=1.0)]
    plan = [step("a", "long"), step("b", "short"), step("c", "short", "a"), step("d", "short", "b")]
    run = notes.run(plan, tools=tools, workers=4)
    assert times(run) == {"a": (0, 4), "b": (0, 1), "d": (1, 2), "c": (4, 5)}


def test_a_call_takes_effect_when_it_finishes_on_the_world_of_that_moment():
    class Counter(Environment):
        name = "counter"

        def tools(self):
            schema = object_schema()
            return tuple(Tool(f"in_{n}", parameters=schema, seconds=float(n)) for n in (1, 2, 3))

        def apply(self, world, call):
            after = {"n": world["n"] + 1}
            return Outcome(after, result=after, learned=after)

        def unmet(self, goal, world):
            return ()

    scenario = al.Scenario(id="c", environment="counter", task="t", world={"n": 0}, goal=al.Goal())
    plan = [
        {"name": f"s{n}", "actionType": "call_tool", "targetResource": f"in_{n}"} for n in (3, 1, 2)
    ]
    lab = al.Lab(scenario, environment=Counter(), planner=Fixed(plan), workers=3)
    run = al.autonomous.start(lab)
    run.finish()
    assert {i: r["n"] for i, r in run.state.results.items()} == {"s1": 1, "s2": 2, "s3": 3}


def test_a_fault_is_drawn_once_when_a_step_is_submitted(notes, step):
    target = TargetedFault(tool="work", before=1.0)
    tools = [notes.tool("work", seconds=3.0)]
    plan = [step("a", "work"), step("b", "work"), step("c", "work", "a")]
    run = notes.start(plan, tools=tools, workers=2, faults=FaultPlan(targets=(target,)))
    run.run_until("plan_execution")
    run.step()
    assert all(u.fault is not None for u in run.state.under_way)
    kept = run.fork(state={"fault_plan": FaultPlan()})
    for one in (run, kept):
        one.finish()
        assert {s.step_id: s.status for s in one.plan.steps} == {
            "a": "failed", "b": "failed", "c": "failed",
        }  # fmt: skip


def test_a_call_that_waits_for_a_resource_is_checked_and_struck_when_it_starts(notes, step):
    """Nothing is counted before: the oven is free at 3, and from 3 on it is broken."""
    target = TargetedFault(tool="roast", after=3.0)
    tools = [holding(notes, "bake", 3.0, "oven"), holding(notes, "roast", 2.0, "oven")]
    run = notes.start(
        [step("a", "bake"), step("b", "roast")], tools=tools, workers=2, strategy="never",
        faults=FaultPlan(targets=(target,)),
    )  # fmt: skip
    run.run_until(lambda s: bool(s.task_results))
    assert run.plan.step("b").status == "pending"
    assert (run.state.executions, run.state.tool_calls) == (1, 1)
    run.finish()
    assert times(run) == {"a": (0, 3), "b": (3, 5)}
    assert "unavailable" in run.plan.step("b").error
    early = target.replace(after=None, before=3.0)
    kept = notes.run(
        [step("a", "bake"), step("b", "roast")], tools=tools, workers=2,
        faults=FaultPlan(targets=(early,)),
    )  # fmt: skip
    assert kept.plan.step("b").status == "completed"


def test_a_step_that_needs_more_than_there_is_fails_and_is_not_counted(notes, step):
    run = notes.run(
        [step("a", "greedy"), step("b")], tools=[holding(notes, "greedy", 1.0, "oven", "oven")],
        strategy="never", workers=2,
    )  # fmt: skip
    assert run.plan.step("a").error == "needs oven, oven, which is more than there is"
    assert (run.plan.step("b").status, run.state.executions) == ("completed", 1)


def test_a_retry_is_made_at_its_time_though_something_else_is_under_way(notes, step):
    """It is checked at its time, too: by then the tool works."""
    tools = [notes.tool("long", seconds=20.0), notes.tool("flaky", seconds=1.0)]
    faults = FaultPlan(targets=(TargetedFault(tool="flaky", before=5.0),))
    run = notes.run(
        [step("a", "flaky"), step("b", "long")], tools=tools, strategy="retry(1, wait=10)",
        workers=2, faults=faults,
    )  # fmt: skip
    spans = [(s.step_id, s.sim_start, s.sim_end) for s in run.recorder.of_kind("step")]
    assert spans == [("a", 0, 1), ("a", 11, 12), ("b", 0, 20)]
    assert run.plan.step("a").status == "completed"


def test_a_step_that_waits_to_be_tried_again_lets_others_go_on(notes, step):
    tools = [notes.tool("work", seconds=1.0)]
    plan = [step("a", "broken"), step("b", "work"), step("c", "work", "b")]
    run = notes.run(plan, tools=tools, strategy="retry(1, wait=10)", workers=2)
    starts = [(s.step_id, s.sim_start) for s in run.recorder.of_kind("step")]
    assert ("a", 0) in starts
    assert ("a", 11) in starts
    assert [t for i, t in starts if i in "bc"] == [0, 1]


# ---- cancelling ---------------------------------------------------------------------------------


def test_a_cancelled_step_is_interrupted_never_takes_effect_and_frees_what_it_held(notes, step):
    tools = [holding(notes, "bake", 9.0, "oven"), notes.tool("look", seconds=1.0)]
    plan = [step("a", "bake"), step("b", "look"), step("c", "bake"), step("d", "look", "a")]
    run = notes.start(plan, tools=tools, workers=2, strategy="never")
    run.run_until("plan_execution")
    run.step()
    before = run.state
    assert [u.step_id for u in before.under_way] == ["a"]
    state = run.lab.executor.cancel(before, run.lab, ["a", "b", "d"], "the guests are gone")
    assert not state.under_way
    a, b, _, d = state.task_plan.steps
    assert (a.status, a.interruption_context.reason) == ("interrupted", "the guests are gone")
    assert (b.status, d.status) == ("completed", "pending")
    assert (state.events[-1].type, state.events[-1].task_id) == ("TASK_INTERRUPTED", "a")
    assert state.task_results[-1].status == "interrupted"
    assert run.recorder.of_kind("step")[-1].error == "the guests are gone"
    fork = run.fork(state={n: getattr(state, n) for n in ("under_way", "task_plan", "events")})
    fork.finish()
    assert times(fork) == {"c": (1, 10)}
    assert fork.plan.step("d").status == "failed"
    assert [name for name, _ in notes.made] == ["look", "bake"]
    run.finish()
    assert run.plan.step("a").status == "completed"


def test_to_cancel_what_is_not_under_way_changes_nothing(notes, step):
    run = notes.start([step("a"), step("b", "note", "a")])
    run.run_until("plan_execution")
    executor = run.lab.executor
    assert executor.cancel(run.state, run.lab, ["a", "nobody"], "why not") is run.state
    executor.notify()
    run.finish()
    executor.close()
    assert executor.cancel(run.state, run.lab, ["a"], "too late") is run.state


# ---- a step's trouble never ends the run ------------------------------------------------------


class Odd(Action):
    """Raises where it is told to."""

    type = "odd"
    result_form = "none"

    def __init__(self, where):
        self.where = where

    def begin(self, state, bench, step, parameters, attempt):
        if self.where == "begin":
            raise RuntimeError("cannot begin")
        begun = ACTIONS["aggregate"].begin(state, bench, step, parameters, attempt)
        return begun[0], begun[1].replace(action_type="odd")

    def finish(self, state, bench, under_way):
        raise RuntimeError("cannot finish")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("where", ["begin", "finish"])
def test_an_action_that_raises_fails_its_step(notes, step, where, workers):
    lab = notes.lab(
        [step("a", "", actionType="odd"), step("b")], strategy="never", workers=workers
    ).bind(actions={**ACTIONS, "odd": Odd(where)})
    run = al.autonomous.start(lab)
    run.finish()
    assert {s.step_id: (s.status, s.error) for s in run.plan.steps} == {
        "a": ("failed", f"RuntimeError: cannot {where}"),
        "b": ("completed", None),
    }
    assert run.state.executions == 2
    assert [r.attempt for r in run.state.task_results] == [1, 1]


@pytest.mark.parametrize("where", ["begin", "apply", "check", "disturb"])
@pytest.mark.parametrize("error", [ZeroDivisionError("bug"), SystemExit(2), RecursionError("deep")])
def test_what_escapes_an_environment_is_no_failure_of_a_step(where, error, tmp_path, fresh_names):
    """A broken world measures no agent: it ends the run, and in a study the cell."""

    class Cracked(Environment):
        name = "cracked"

        def tools(self):
            return (Tool("touch", effect="write"),)

        def begin(self, world, call):
            if where == "begin":
                raise error
            return super().begin(world, call)

        def apply(self, world, call):
            if where == "apply":
                raise error
            return Outcome(world, {})

        def check(self, goal, evidence):
            if where == "check":
                raise error
            return super().check(goal, evidence)

        def disturb(self, world, call, draw):
            if where == "disturb":
                raise error

        def unmet(self, goal, world):
            return ()

    al.register("environment", "cracked", Cracked)
    change = TargetedFault(tool="touch", kind="world_change")
    scenario = al.Scenario(
        id="c", environment="cracked", task="t", world={}, goal=al.Goal(),
        faults=FaultPlan(targets=(change,)),
    )  # fmt: skip
    planner = Fixed([{"name": "a", "actionType": "call_tool", "targetResource": "touch"}])
    lab = al.Lab(scenario, planner=planner, strategy="retry(3)")
    run = al.autonomous.start(lab)
    told = rf"environment 'cracked': .*raised {type(error).__name__}: {error}"
    if where == "check":
        run.finish()
        with pytest.raises(EnvironmentContractError, match=told):
            _ = run.verdict
    else:
        with pytest.raises(EnvironmentContractError, match=told):
            run.finish()
        assert run.next_node == "plan_execution"  # as it was before
        assert len(run.state.task_results) == 0
    arms = [Arm(planner, "retry(3)")]
    study = al.Study(arms, [scenario], seeds=1, controls=False, out=tmp_path)
    [row] = study.run(processes=1).to_dict("records")
    assert row["status"] == "crashed"
    assert row["error"].startswith("EnvironmentContractError: environment 'cracked': ")


def test_an_action_type_put_in_by_an_edit_fails_its_step(notes, step):
    run = notes.start([step("a"), step("b")], strategy="never")
    run.run_until("plan_execution")
    run.edit(plan=run.plan.edit("a", action_type="call_tol"))
    run.finish()
    a, b = run.plan.steps
    assert a.status == "failed"
    assert "unknown action type 'call_tol'; did you mean 'call_tool'?" in a.error
    assert b.status == "completed"
    assert run.state.executions == 1


def test_a_reference_that_does_not_resolve_fails_the_step_before_its_action_runs(notes, step):
    plan = [step("a", parameters={"x": 1}), step("b", parameters={"y": "${a.nothing}"})]
    run = notes.run(plan, strategy="never")
    failed = run.plan.step("b")
    assert failed.status == "failed"
    assert "${a.nothing} does not resolve" in failed.error
    assert "the result has the keys x" in failed.error
    assert notes.made == [("note", {"x": 1})]
    assert run.state.executions == 1
    assert [r.attempt for r in run.state.task_results] == [1, 0]
    assert dict(run.state.attempts) == {"a": 1}


def test_data_flows_along_references(notes, step):
    plan = [
        step("find", parameters={"flights": [{"id": "F1", "price": 9}, {"id": "F2", "price": 4}]}),
        step(
            "book", parameters={"id": "${find.min_by(flights,&price).id}", "n": "${find.flights}"}
        ),
        step("say", parameters={"text": "take ${book.id} for ${find.flights[1].price}, $${book}"}),
    ]
    run = notes.run(plan)
    assert [a for _, a in notes.made[1:]] == [
        {"id": "F2", "n": plan[0]["parameters"]["flights"]},
        {"text": "take F2 for 4, ${book}"},
    ]
    assert run.plan.step("book").dependencies == ("find",)
    assert run.plan.step("say").dependencies == ("book", "find")


# ---- expectations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expectation", "result", "problem"),
    [
        (None, {"n": 1}, None),
        ("n > `0`", {"n": 1}, None),
        ("n > `1`", {"n": 1}, "does not satisfy 'n > `1`'"),
        ("n", {}, "does not satisfy"),
        ("length(n) > `1`", {"n": 1}, "cannot be judged"),
        ("n[", {"n": 1}, "cannot be judged"),
        ({"type": "object", "required": ["n"]}, {"n": 1}, None),
        ({"type": "object", "required": ["m"]}, {"n": 1}, "is a required property"),
        ({"type": "nonsense"}, {"n": 1}, "cannot be judged"),
    ],
)
def test_an_expectation_that_is_not_met_is_an_event_and_no_failure(
    notes, step, expectation, result, problem
):
    given = {} if expectation is None else {"expectation": expectation}
    run = notes.run([step("a", parameters=result, **given)])
    assert run.plan.step("a").status == "completed"
    if problem is None:
        assert not run.state.events
    else:
        (event,) = run.state.events
        assert (event.type, event.severity) == ("TASK_UNEXPECTED_RESULT", "WARNING")
        assert problem in event.description
        assert event.task_id == "a"
        assert run.recorder.of_kind("event")[0].name == "TASK_UNEXPECTED_RESULT"


def test_an_enforced_expectation_that_is_not_met_fails_the_step(notes, step):
    wanted = {"type": "object", "required": ["m"]}
    plan = [
        step("a", parameters={"n": 1}, expectation=wanted, enforced=True),
        step("b", parameters={"n": "${a.n}"}),
        step("c", parameters={"m": 1}, expectation=wanted, enforced=True),
    ]
    run = notes.run(plan, strategy="never")
    assert [s.status for s in run.plan.steps] == ["failed", "failed", "completed"]
    assert "is a required property" in run.plan.step("a").error
    assert run.plan.step("a").result == {"n": 1}  # what came can be looked at, and not be used
    assert "a" not in run.state.results
    assert notes.made == [("note", {"n": 1}), ("note", {"m": 1})]
    assert [e.type for e in run.state.events] == ["TASK_FAILED", "DEPENDENCY_BROKEN", "TASK_FAILED"]


def test_a_failure_of_its_own_is_told_before_the_expectation(notes, step):
    wanted = {"type": "object", "required": ["m"]}
    run = notes.run([step("a", "broken", expectation=wanted, enforced=True)], strategy="never")
    assert run.plan.step("a").error == "error: it is broken"


def test_the_expectation_by_default_is_the_tools_response_schema(notes):
    numbers = notes.tool("numbers", returns={"type": "array"})
    lab = notes.lab(tools=[numbers])
    step = TaskStep(step_id="a", target_resource="numbers")
    assert unexpected(step, [1], lab) is None
    assert "is not of type" in unexpected(step, {"n": 1}, lab)
    own = step.replace(expectation="n")
    assert unexpected(own, {"n": 1}, lab) is None
    assert unexpected(TaskStep(step_id="a", target_resource="gone"), 1, lab) is None


@pytest.mark.parametrize(("skippable", "severity"), [(False, "CRITICAL"), (True, "WARNING")])
def test_a_failure_is_an_event(notes, step, skippable, severity):
    run = notes.run([step("a", "broken", skippable=skippable)], strategy="never")
    (event,) = run.state.events
    assert (event.type, event.severity, event.task_id) == ("TASK_FAILED", severity, "a")
    assert event.description == "error: it is broken"
    assert event.occurred_at == 1.0
