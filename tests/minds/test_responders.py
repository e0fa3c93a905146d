"""The template: answer, results, what failed and why, what never started, why it stopped."""

from __future__ import annotations

import pytest

from agentlab.minds.rules import REASONS, TemplateResponder
from agentlab.state.state import State


def respond(state):
    return TemplateResponder().respond(state, None)


def test_all_of_it(notes, step):
    plan = {
        "steps": [
            step("find", parameters={"price": 9}, name="find a flight"),
            step("book", "broken", name="book it"),
            step("tell", "note", "book", skippable=True, name="tell Ann"),
            step("pay", "note", name="pay"),
        ],
        "answer": "${find.price}",
    }
    run = notes.start(plan, strategy="never")
    run.edit(max_task_iterations=2)
    run.finish()
    assert run.state.final_response.splitlines() == [
        "The answer is 9.",
        "1 of 4 steps were completed.",
        '- find a flight: {"price":9}',
        "- book it: failed (error: it is broken)",
        "Not started: tell Ann, pay.",
        "It stopped because the limit of step executions was reached.",
        "Assessment: 1 completed, 1 failed, 0 skipped; the budget of executions is spent.",
    ]


def test_when_all_went_well(notes, step):
    run = notes.run([step("a", parameters={"text": "é"}), step("b")])
    assert run.state.final_response.splitlines() == [
        "All 2 steps were completed.",
        '- a: {"text":"é"}',
        "- b: {}",
        "Assessment: 2 completed, 0 failed, 0 skipped.",
    ]


def test_what_was_skipped_or_interrupted_is_said(notes, step):
    run = notes.start([step("a"), step("b")])
    run.run_until("plan_execution")
    plan = run.plan.with_step("a", status="skipped", error="dependency not met: x (failed)")
    plan = plan.with_step("b", status="interrupted")
    text = respond(run.state.replace(task_plan=plan))
    assert text == (
        "0 of 2 steps were completed.\n- b: interrupted, outcome unknown\n"
        "- a: skipped (dependency not met: x (failed))"
    )


def test_an_error(notes, step):
    assert respond(State(error="no agent")) == "Your request could not be carried out: no agent"
    run = notes.run([step("a")])
    assert "Error: no more plans." in respond(run.state.replace(error="no more plans"))


def test_nothing_to_do():
    assert respond(State(user_input="hi")) == "There was nothing to carry out for: hi"


@pytest.mark.parametrize("reason", [*REASONS, "something else"])
def test_every_reason_to_stop_is_told_in_words(notes, step, reason):
    run = notes.run([step("a")])
    told = f"It stopped because {REASONS.get(reason, reason)}."
    assert told in respond(run.state.replace(stopped_by=reason))


def test_every_way_to_stop_has_words():
    assert set(REASONS) == {
        "executions", "tool_calls", "lm_tokens", "seconds", "replans", "abort", "no_progress",
        "no_plan",
    }  # fmt: skip


def test_long_values_are_cut(notes, step):
    run = notes.run({"steps": [step("a", parameters={"text": "x" * 500})], "answer": "${a.text}"})
    lines = run.state.final_response.splitlines()
    assert lines[0].endswith("….")
    assert all(len(line) < 230 for line in lines)
    assert len(run.state.answer) == 500
