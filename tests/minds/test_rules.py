"""The rule-based reflector: by counting, and by what is broken for good."""

from __future__ import annotations

import pytest

from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.rules import RuleReflector, counts
from agentlab.state.decisions import ReflectionResult
from agentlab.state.state import State


def state_of(notes, step, *statuses):
    run = notes.start([step(f"s{i}") for i in range(len(statuses))])
    run.run_until("plan_execution")
    plan = run.plan
    for i, status in enumerate(statuses):
        error = "it broke" if status in ("failed", "interrupted") else None
        plan = plan.with_step(f"s{i}", status=status, error=error)
    return run.state.replace(task_plan=plan), run.lab


def test_counts(notes, step):
    state, _ = state_of(notes, step, "completed", "failed", "failed", "skipped", "pending")
    number = counts(state)
    assert {k.value: n for k, n in number.items()} == {
        "completed": 1, "failed": 2, "skipped": 1, "pending": 1, "running": 0, "interrupted": 0,
    }  # fmt: skip
    assert set(counts(State()).values()) == {0}


@pytest.mark.parametrize(
    ("statuses", "achieved", "replan"),
    [
        (("completed", "completed"), True, False),
        (("completed", "skipped"), True, False),
        (("completed", "failed"), False, False),
        (("completed", "pending"), False, False),
        (("failed", "failed"), False, True),
        (("failed", "skipped"), False, True),
        (("interrupted",), False, True),
        (("skipped", "skipped"), False, False),
        (("pending",), False, False),
    ],
)
def test_its_judgement(notes, step, statuses, achieved, replan):
    state, lab = state_of(notes, step, *statuses)
    result = RuleReflector().reflect(state, lab)
    assert isinstance(result, ReflectionResult)
    assert (result.goal_achieved, result.need_replan) == (achieved, replan)
    failed = sum(s in ("failed", "interrupted") for s in statuses)
    assert f"{statuses.count('completed')} completed, {failed} failed" in result.analysis
    if replan:
        assert result.replan_reason == "nothing completed; first error: it broke"


def test_it_names_what_is_broken_for_good(notes, step):
    gone = notes.broken("gone", permanent=True)
    run = notes.run([step("a", "gone")], [step("b")], tools=[gone])
    assert run.state.replan_history[0].decision.new_context_hints == (
        "avoid gone: permanently broken",
    )


def test_when_every_tool_is_broken_for_good_no_plan_is_worth_making(notes, step):
    gone = notes.broken("gone", permanent=True)
    lab = notes.lab().bind(planner=Fixed([step("a", "gone")], [step("b", "gone")]))
    from agentlab.tools.tool import ToolRegistry
    from agentlab.workflows.autonomous import autonomous

    run = autonomous.start(lab.bind(tools=ToolRegistry([gone])))
    run.finish()
    assert run.state.loop_count == 0
    assert "every tool is permanently broken" in run.state.reflection.analysis
    assert run.state.reflection.need_replan is False
