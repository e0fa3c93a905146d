"""A plan of ``search`` ends with a call that shows the answer, where no result shows it."""

from __future__ import annotations

import jmespath
import pytest

import agentlab as al
from agentlab.environments.fault_plan import SPOILS_RESULT

ASKED = [
    s for name in ("travel", "blocks", "workshop") for s in al.load_suite(name)
    if s.goal.answer is not None and s.difficulty != "hard" and s.goal.deadline is None
]  # fmt: skip


def finished(scenario: al.Scenario, faults: al.FaultPlan, strategy: str = "oracle") -> al.Run:
    run = al.autonomous.start(
        al.Lab(scenario, planner="search", strategy=strategy, faults=faults, fault_rate=0.0)
    )
    run.finish()
    return run


@pytest.mark.parametrize("visibility", ["announced", "silent"])
@pytest.mark.parametrize("kind", ["timeout_after_commit", *sorted(SPOILS_RESULT)])
def test_whatever_spoilt_the_first_result_the_answer_is_had(kind, visibility):
    """Each tool that shows the answer spoils its first result, one that shows it again included."""
    for scenario in ASKED[::3]:
        tools = (*scenario.goal.answer.tools, "list_bookings")
        faults = al.FaultPlan(
            targets=[
                al.TargetedFault(tool=tool, occurrence=0, kind=kind, visibility=visibility)
                for tool in dict.fromkeys(tools)
            ]
        )
        run = finished(scenario, faults)
        assert run.verdict.success, (scenario.id, run.verdict.reasons, run.state.stopped_by)


def test_an_agent_that_was_told_of_the_loss_asks_again_too():
    scenario = al.load_suite("travel")["travel-easy-012"]
    lost = [al.TargetedFault(tool="book_hotel", kind="timeout_after_commit")]
    run = finished(scenario, al.FaultPlan(targets=lost), "on_error(9)")
    # the agent does not know that it has paid; it pays again, and is told what it asks for
    assert run.state.answer == jmespath.search(scenario.goal.answer.world, run.state.world)


def test_a_plan_does_not_ask_for_what_a_step_shows():
    for scenario in ASKED:
        run = finished(scenario, al.FaultPlan())
        assert run.verdict.success
        assert "list_bookings" not in {c.tool for c in run.state.calls}


def test_a_tool_that_was_left_out_is_asked_when_only_it_shows_the_answer():
    scenario = al.load_suite("travel")["travel-easy-012"]
    lost = [al.TargetedFault(tool="book_hotel", kind="timeout_after_commit")]
    often = [
        al.TargetedFault(tool="list_bookings", occurrence=n, kind=kind)
        for n, kind in enumerate(("error", "error", "empty_result", "error"))
    ]
    run = finished(scenario, al.FaultPlan(targets=[*lost, *often]))
    assert run.verdict.success, run.verdict.reasons
    assert [c.tool for c in run.state.calls].count("list_bookings") == 5
