"""``final_response``: the answer as a value, how the plan ended, and what the user is told."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.workflows.nodes import final_response


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (None, None),
        ("${a.n}", 3),
        ("${a}", {"n": 3, "list": [{"id": "x"}]}),
        ("${a.list[0].id}", "x"),
        ("${a.n} of ${b.total}", "3 of 4"),
        ("plain", "plain"),
        ("${a.nothing}", None),
        ("${c.x}", None),
        ("$${a}", "${a}"),
    ],
)
def test_the_answer_is_a_value(notes, step, answer, value):
    steps = [
        step("a", parameters={"n": 3, "list": [{"id": "x"}]}),
        step("b", parameters={"total": 4}),
        step("c", "broken"),
    ]
    run = notes.run({"steps": steps, "answer": answer})
    assert run.state.answer == value
    assert type(run.state.answer) is type(value)
    shown = f"The answer is {value}." if isinstance(value, (int, str)) else None
    assert shown is None or shown in run.state.final_response
    if value is None:
        assert "The answer" not in run.state.final_response


def test_it_ends_the_run(notes, step):
    run = notes.run([step("a")])
    assert run.state.next_action == ""
    assert run.finished
    assert run.visited[-1] == "final_response"


def test_whoever_the_responder_is_writes_it(notes, step):
    class Poet:
        def respond(self, state, bench):
            return f"{len(state.results)} done, {bench.strategy.name}"

    run = notes.run([step("a")], responder=Poet(), strategy="never")
    assert run.state.final_response == "1 done, never"


@pytest.mark.parametrize(
    ("plan", "strategy", "status"),
    [
        (("note",), "never", "completed"),
        (("note", "broken"), "never", "failed"),
        (("note",), "every_step(1)", "completed"),
        (("broken",), "retry(0)", "aborted"),
        (("broken",), "on_error(replans=0)", "aborted"),
    ],
)
def test_how_the_plan_ended(notes, step, plan, strategy, status):
    steps = [step(f"s{i}", tool) for i, tool in enumerate(plan)]
    run = notes.run(steps, [], strategy=strategy)
    assert run.plan.status == status


def test_alone_on_a_state(notes, step):
    lab = notes.lab([step("a")])
    run = al.autonomous.start(lab, "x")
    run.run_until("final_response")
    after = final_response(run.state, lab)
    assert after.final_response == "All 1 steps were completed.\n- a: {}\nAssessment: " + (
        "1 completed, 0 failed, 0 skipped."
    )
    assert run.state.final_response is None
