"""What ``agentlab show`` tells of people: what waits for them, and what they said."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from agentlab.runs.run import Run
from agentlab.state.decisions import ReplanDecision
from agentlab.views.cli.cli import app
from agentlab.views.cli.story import kept_story, kept_table
from agentlab.workflows.named import get_workflow


def shown(what):
    to = Console(file=io.StringIO(), width=200, markup=False, highlight=False, emoji=False)
    to.print(what)
    return "\n".join(row.rstrip() for row in to.file.getvalue().splitlines())


@pytest.fixture
def waiting(notes, step, tmp_path):
    """A durable run that waits for the approval of a refund."""
    refund = notes.tool("refund", effect="irreversible", needs_approval=True)
    lab = notes.lab([step("pay", "refund", parameters={"order": 17})], tools=[refund])
    run = get_workflow("autonomous").start(lab, "refund it", store=str(tmp_path))
    run.finish()
    return run


def test_a_run_that_waits(waiting, tmp_path):
    text = shown(kept_story(waiting))
    assert 'waits for approval\n  pay: refund (irreversible) {"order": 17}\n' in text
    assert "(not finished)" in text
    assert "waits for approval" in shown(kept_table(tmp_path))


def test_what_was_said(waiting, tmp_path):
    waiting.review("pay", "edit", {"order": 18}, reason="typed\x1b[2J", by="Eve")
    waiting.finish()
    waiting.say("And now?")
    text = shown(kept_story(waiting))
    told = 'Eve changed and approved refund({"order":17}), which is now refund({"order":18}): typed'
    assert f"visit 3  (review)\n  {told}\\x1b[2J\n\nvisit 4  plan_execution\n" in text
    assert text.count("(review)") == 1
    assert f"visit {len(waiting.visited) - 1}  (say)\n  user: And now?\n" in text
    assert "waits for approval" not in text
    assert "not finished" in shown(kept_table(tmp_path))


def test_a_run_that_is_paused(notes, step, tmp_path):
    lab = notes.lab([step("a"), step("b")])
    run = get_workflow("autonomous").start(lab, "go", store=str(tmp_path))
    run.step()
    run.pause(by="Eve")
    run.finish()
    text = shown(kept_story(run))
    assert "visit 1  (pause)\n  Eve paused the run\n" in text
    assert "(paused)" in text
    assert "paused" in shown(kept_table(tmp_path))
    run.go_on(by="Bob")
    assert "visit 2  (go on)\n  Bob let the run go on\n" in shown(kept_story(run))
    assert "paused" not in shown(kept_table(tmp_path))


def test_it_is_told_from_the_folder_alone(waiting, tmp_path):
    waiting.review("pay", "reject", reason="no")
    again = Run.resume(str(tmp_path), waiting.lab)
    assert 'visit 3  (review)\n  a person rejected refund({"order":17}): no\n' in shown(
        kept_story(again)
    )


def test_an_answer_of_the_lab_is_no_visit_of_its_own(notes, step):
    ask = notes.tool("ask", needs_approval=True)
    run = notes.run([step("a", "ask")], tools=[ask], review="approve")
    text = shown(kept_story(run))
    assert "(review)" not in text
    assert "  lab approved ask({})\n" in text


def test_an_interrupted_step_is_told_with_what_it_called_and_since_when(notes, step):
    slow = notes.tool("slow", seconds=9.0)
    run = notes.start([step("a", "slow"), step("b")], tools=[slow], workers=2)
    run.run_until(lambda state: "b" in state.results)
    run.edit(
        forced_decision=ReplanDecision(action="ABORT", reasoning="all is off"),
        next_action="reflect",
    )
    run.finish()
    assert run.plan.step("a").status == "interrupted"
    text = shown(kept_story(run))
    reason = run.plan.step("a").interruption_context.reason
    told = f"interrupted while it called slow, begun at 0 s: {reason}\n"
    assert "  ! a  attempt 1  0 → " in text
    assert text.count(told) == 1
    assert "TASK_INTERRUPTED" not in text  # said once


@pytest.mark.parametrize("option", [["--failed"], ["--arm", "a"], ["--scenario", "s"]])
def test_options_for_a_study_are_refused_for_kept_runs(waiting, tmp_path, option):
    found = CliRunner().invoke(app, ["show", str(tmp_path), *option])
    assert found.exit_code == 2
    assert "holds kept runs" in found.stderr
