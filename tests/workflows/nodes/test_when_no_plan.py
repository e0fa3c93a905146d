"""``when_no_plan``: a replan that gives no plan stops the run, or the old plan is kept."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.errors import ConfigError, LMUnavailable, PlanError, PlanParseError
from agentlab.minds.base import checked_plan
from agentlab.minds.strategies import scopes
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.minds.strategies.named import get_strategy
from agentlab.state.decisions import ReplanAction
from agentlab.workflows.named import get_workflow

KEEPING = (
    "every_step(when_no_plan='keep')", "every(2, when_no_plan='keep')",
    "on_error(when_no_plan='keep')", "retry_then_replan(1, when_no_plan='keep')",
    "event_driven(when_no_plan='keep')", "oracle(when_no_plan='keep')",
)  # fmt: skip
WORKFLOWS = ("autonomous", "resident")


class Once:
    """A planner that has one plan, and then answers otherwise; ``asked`` counts."""

    def __init__(self, plan, then):
        self.steps, self.then, self.asked = plan, then, 0

    def plan(self, request, kit):
        self.asked += 1
        if request.number == 0:
            return checked_plan({"steps": self.steps}, request, kit)
        if isinstance(self.then, Exception):
            raise self.then
        return checked_plan(self.then, request, kit)


NONE = {
    "no plan": PlanError("no way"),
    "not parsed": PlanParseError(["no JSON"], reply="{"),
    "no model": LMUnavailable("nobody answers"),
    "unknown tool": {"steps": [{"name": "x", "actionType": "call_tool", "targetResource": "y"}]},
    "cyclic": {
        "steps": [
            {"stepId": i, "name": i, "actionType": "call_tool", "targetResource": "note",
             "dependencies": [j]}
            for i, j in ("ab", "ba")
        ]
    },
}  # fmt: skip


def decisions(run):
    return [s for s in run.recorder.of_kind("decision")]


def kept(run):
    return [s for s in decisions(run) if s.name == "keep_plan"]


def finished(notes, planner, strategy, workflow="autonomous", **options):
    lab = notes.lab(planner=planner, strategy=strategy, **options)
    run = get_workflow(workflow).start(lab, "do it")
    run.finish(max_visits=500)
    return run


# ---- the run goes on --------------------------------------------------------------------------


@pytest.mark.parametrize("why", NONE)
@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("workers", [1, 3])
def test_whatever_the_reason_the_old_plan_is_carried_out(notes, step, why, workflow, workers):
    plan = [step("a"), step("b", "note", "a"), step("c", "note", "b", parameters={"n": 1})]
    planner = Once(plan, NONE[why])
    run = finished(notes, planner, "every_step(when_no_plan='keep')", workflow, workers=workers)
    state = run.state
    assert [(s.step_id, s.status) for s in run.plan.steps] == [
        ("a", "completed"), ("b", "completed"), ("c", "completed"),
    ]  # fmt: skip
    assert (run.plan.status, run.plan.plan_id) == ("completed", "plan-0")
    assert (state.error, state.stopped_by, state.outcome) == (None, None, "completed")
    assert len(notes.made) == 3
    # a replan that gave nothing is a replan all the same, and no accepted one
    assert state.replan_count == state.loop_count == len(kept(run)) > 1
    assert state.plans == 1 + state.replan_count
    assert len(state.replan_history) == 0
    stopped = finished(notes, Once(plan, NONE[why]), "every_step", workflow, workers=workers)
    assert (stopped.state.stopped_by, stopped.plan.status) == ("no_plan", "failed")
    assert not kept(stopped)


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_reader_sees_that_a_replan_failed_and_the_old_plan_was_kept(notes, step, workflow, heard):
    log = heard()
    plan = [step("a", "broken"), step("b")]
    lab = notes.lab(planner=Once(plan, NONE["no plan"]), strategy="on_error(when_no_plan='keep')")
    run = get_workflow(workflow).start(lab, "do it", handler=log)
    run.finish()
    names = [s.name for s in decisions(run)]
    at = names.index("REPLAN_REMAINING")
    assert names[at + 1 :][:1] == ["plan"] if workflow == "autonomous" else ["replan"]
    failed = [s for s in decisions(run) if s.name == "plan"][1]
    assert failed.error == "PlanError: no way"
    assert failed.output == {"kept": ("a", "b"), "added": (), "removed": (), "changed": ()}
    (told,) = kept(run)
    assert told.output == {
        "action": "CONTINUE", "reasoning": "no new plan: no way; the old plan is kept",
    }  # fmt: skip
    texts = [getattr(e, "content", None) for e in log.events if e.kind == "thinking_content"]
    assert any("the old plan is kept" in str(t) for t in [*texts, *map(vars, log.events)])
    assert [(s.step_id, s.status) for s in run.plan.steps] == [("a", "failed"), ("b", "completed")]


def test_the_failed_step_stays_failed_and_what_needs_it_ends_as_without_a_replan(notes, step):
    plan = [step("a", "broken"), step("b", "note", "a"), step("c"), step("d", "note", "c")]
    never = finished(notes, Once(plan, PlanError("no way")), "never")
    run = finished(notes, Once(plan, PlanError("no way")), KEEPING[0])
    both = [[(s.step_id, s.status, s.error) for s in r.plan.steps] for r in (never, run)]
    assert both[0] == both[1]
    assert (run.plan.status, run.state.outcome) == ("failed", "failed")
    assert [s.step_id for s in run.plan.steps if s.status == "completed"] == ["c", "d"]


@pytest.mark.parametrize("strategy", KEEPING)
@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("workers", [1, 2])
def test_who_asks_at_once_again_does_not_spin(notes, step, strategy, workflow, workers):
    """The planner is asked no more often than the budget says, and every run ends."""
    plan = [step("a", "broken"), step("b", "note", "a"), step("c", "note", "b"), step("d")]
    planner = Once(plan, PlanError("no way"))
    run = finished(notes, planner, strategy, workflow, workers=workers)
    assert run.finished
    assert planner.asked <= 1 + run.lab.strategy.budget.replans
    assert run.state.replans_left == run.lab.strategy.budget.replans - len(kept(run)) - (
        run.state.stopped_by == "no_plan"
    )


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_strategy_that_asks_everywhere_is_bound_by_its_budget(notes, step, workflow):
    always = Strategy(
        "always", lambda point, state, step_id: None if "failed" in point else "why not",
        scopes.rest, Budget(replans=4), ReplanAction.CONTINUE, when_no_plan="keep",
    )  # fmt: skip
    planner = Once([step("a"), step("b")], PlanError("no way"))
    run = finished(notes, planner, always, workflow)
    assert run.finished
    assert planner.asked == {"autonomous": 5, "resident": 3}[workflow]  # a plan that is done ends
    assert (run.plan.status, run.state.stopped_by) == ("completed", None)


def test_a_plan_of_which_nothing_is_left_is_not_kept(notes, step):
    run = finished(notes, Once([step("a", "broken")], PlanError("no way")), KEEPING[2])
    assert (run.plan.status, run.state.stopped_by) == ("failed", "no_plan")
    first = finished(notes, Once([step("a", "nothing")], PlanError("no way")), KEEPING[2])
    assert first.state.stopped_by == "no_plan"  # there is no old plan
    assert "nothing" in first.state.error


def test_a_strategy_that_decides_about_it_is_asked(notes, step):
    """``when_no_plan`` is for those that do not."""
    seen = []

    def trigger(point, state, step_id):
        seen.append(point)
        return "no plan" if point == "planning_failed" else (
            "failed" if point == "after_step" and step_id == "a" else None
        )  # fmt: skip

    def scope(trigger, state, kit):
        action = "ABORT" if trigger.point == "planning_failed" else "REPLAN_REMAINING"
        return al.ReplanDecision(action=action, reasoning=trigger.reason)

    own = Strategy("own", trigger, scope, when_no_plan="keep")
    run = finished(notes, Once([step("a"), step("b")], PlanError("no way")), own)
    assert "planning_failed" in seen
    assert (run.state.stopped_by, run.plan.status) == ("abort", "aborted")
    assert not kept(run)


def test_what_a_decision_cancels_by_name_is_not_carried_out_after_all(notes, step):
    plan = [step("a"), step("b"), step("c", "note", "b"), step("d")]
    run = notes.start(planner=Once(plan, PlanError("no way")), strategy=KEEPING[2])
    run.run_until("plan_execution")
    run.step()
    decision = al.ReplanDecision(action="REPLAN_REMAINING", steps_to_cancel=(1,))
    run.edit(forced_decision=decision, next_action="reflect")
    run.finish()
    assert [(s.step_id, s.status) for s in run.plan.steps] == [
        ("a", "completed"), ("d", "completed"),
    ]  # fmt: skip
    (failed,) = [s for s in decisions(run) if s.name == "plan" and s.error]
    assert failed.output["removed"] == ("b", "c")


# ---- replay, fork, resume ---------------------------------------------------------------------


@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("strategy", KEEPING)
def test_it_is_replayed_forked_and_resumed(workflow, workers, strategy, tmp_path):
    met = 0
    for seed in range(4):
        lab = al.Lab(
            generate("medium", 0), planner="search(noise=0.3, unparseable=0.4, persistence=0.5)",
            strategy=strategy, seed=seed, fault_rate=0.1, workers=workers,
        )  # fmt: skip
        run = get_workflow(workflow).start(lab)
        run.finish(max_visits=500)
        met += len(kept(run))
        assert run.replay().identical
        for at in {0, len(run.visited) // 2}:
            fork = run.fork(at=at)
            fork.finish()
            assert fork.state == run.state
        folder = tmp_path / str(seed)
        half = get_workflow(workflow).start(lab, store=folder)
        for _ in range(len(run.visited) // 2):
            half.step()
        again = al.Run.resume(folder, lab)
        again.finish()
        assert (again.visited, again.state) == (run.visited, run.state)
    assert met or "every" not in strategy


# ---- never worse than never -------------------------------------------------------------------


def cells(planner, strategy, suite, rate, seeds=3):
    found = {}
    for scenario in suite:
        lab = al.Lab(scenario, planner=planner, strategy=strategy, fault_rate=rate)
        for seed in range(seeds):
            run = al.autonomous.start(lab.bind(seed=seed))
            run.finish()
            found[scenario.id, seed] = run.verdict.success
    return found


@pytest.mark.parametrize("suite", ["chain", "travel", "blocks"])
@pytest.mark.parametrize(
    "planner", ["reference(unparseable=0.15)", "search(noise=0.1, unparseable=0.15)"]
)
def test_keeping_the_old_plan_is_never_worse_than_never(suite, planner):
    tasks = al.load_suite(suite)[::2][:8]
    for rate in (0, 0.1):
        never, stop, keep = (
            cells(planner, s, tasks, rate) for s in ("never", "every_step", KEEPING[0])
        )
        assert {c for c in never if never[c]} <= {c for c in keep if keep[c]}
        assert {c for c in stop if stop[c]} <= {c for c in keep if keep[c]}
        if rate == 0:  # where nothing fails, asking for more plans can only lose
            assert sum(stop.values()) < sum(never.values()) <= sum(keep.values())


# ---- as an arm --------------------------------------------------------------------------------


def test_it_is_an_arm_like_any_other(tmp_path):
    arms = al.grid(planner="reference(unparseable=0.3)", strategy=["every_step", KEEPING[0]])
    study = al.Study(arms, al.load_suite("chain")[:4], seeds=3, fault_rate=0, out=tmp_path)
    runs = study.run(processes=1)
    success = runs.groupby("strategy")["success"].mean()
    assert success[KEEPING[0]] > success["every_step"]
    found = study.frame("decisions")
    found = found[found["strategy"] == KEEPING[0]]
    rows = found[found["name"] == "keep_plan"]
    assert len(rows) > 0
    assert set(rows["action"]) == {"CONTINUE"}
    assert rows["reasoning"].str.startswith("no new plan: not a valid plan: (reply): ").all()
    assert rows["reasoning"].str.endswith("; the old plan is kept").all()
    # the plan that failed says what stays, and so does the decision before it
    failed = found[(found["name"] == "plan") & found["error"].notna() & found["kept"].notna()]
    assert len(failed) == len(rows)
    for row in rows.itertuples():
        before = found[(found["cell"] == row.cell) & (found["span_id"] < row.span_id)]
        decided = before[before["name"] == "REPLAN_REMAINING"].iloc[-1]
        assert list(decided["added"]) == []
        assert len(decided["kept"]) > 0


@pytest.mark.parametrize("text", KEEPING)
def test_names(text):
    strategy = get_strategy(text)
    assert strategy.when_no_plan == "keep"
    assert get_strategy(strategy.name) == strategy or strategy.name == text
    assert get_strategy(text.replace("'keep'", "'stop'")).when_no_plan == "stop"
    assert "when_no_plan" not in get_strategy(text.replace("'keep'", "'stop'")).name


@pytest.mark.parametrize("name", ["on_error", "every_step", "every", "oracle", "event_driven"])
@pytest.mark.parametrize("value", ["'kep'", "True", "None", "1"])
def test_what_is_neither_is_refused(name, value):
    with pytest.raises(ConfigError, match=r"when_no_plan: expected .*keep, stop"):
        get_strategy(f"{name}(when_no_plan={value})")


def test_a_session_may_keep_its_plan(notes, step):
    plan = [step("a", "broken"), step("b")]
    for when, status in (("stop", "pending"), ("keep", "completed")):
        planner = Once(plan, PlanError("no way"))
        with al.PlanningLoop(notes.lab(planner=planner)) as loop:
            session = loop.start("do it", config=al.LoopConfig(when_no_plan=when, max_replans=2))
            session.wait(60)
        assert session.run.plan.step("b").status == status
    with pytest.raises(ConfigError, match="when_no_plan"):
        al.LoopConfig(when_no_plan="kep")
