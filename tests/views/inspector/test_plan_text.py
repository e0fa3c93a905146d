"""Editing what remains of a plan as text: every problem listed, nothing lost, nothing broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al


def steps_of(view: dict) -> list[str]:
    return [s["stepId"] for s in json.loads(view["editor"]["text"])["steps"]]


def test_the_text_is_what_remains_of_the_plan(run, front_end):
    front = front_end(run)
    front("run", node="plan_execution")
    assert steps_of(front.view) == ["a", "b"]
    front("step")
    document = json.loads(front.view["editor"]["text"])
    assert document == {
        "steps": [
            {"stepId": "b", "name": "b", "actionType": "call_tool", "targetResource": "note",
             "parameters": {}, "dependencies": ["a"]},
        ]
    }  # fmt: skip
    front("check_plan", text=front.view["editor"]["text"])
    assert front.said == "The plan can be carried out."


def test_apply_an_edited_plan(run, notes, front_end):
    front = front_end(run)
    front("run", node="plan_execution")
    front("step")
    notes.made.clear()
    new = {"name": "c", "actionType": "call_tool", "targetResource": "note",
           "parameters": {"m": "${a.n}"}, "importance": 0.9}  # fmt: skip
    view = front("apply_plan", text=json.dumps([new]))
    assert not front.failed, front.said
    assert view["editor"]["accepted"] == 1
    assert view["editor"]["errors"] == []
    assert [s.step_id for s in run.plan.steps] == ["a", "c"]
    assert json.loads(view["editor"]["text"])["steps"][0]["importance"] == 0.9
    front("run")
    assert notes.made == [("note", {"m": 1})]
    assert run.replay().identical


def test_fork_with_an_edited_plan_from_the_past(run, notes, front_end):
    front = front_end(run)
    front("run")
    front("look", at=3)
    text = front.view["editor"]["text"]
    assert steps_of(front.view) == ["b"]
    front("apply_plan", text=text)
    assert front.failed
    assert "this is the past" in front.said
    notes.made.clear()
    document = json.loads(text)
    document["steps"][0]["parameters"] = {"m": 7}
    view = front("fork_plan", text=json.dumps(document))
    assert not front.failed
    assert view["editor"]["accepted"] == 1
    fork = front.widget.run
    assert fork.lineage.edits == ("plan",)
    assert view["runs"][1].endswith("at 3, plan edited")
    front("run")
    assert notes.made == [("note", {"m": 7})]
    assert run.plan.step("b").parameters == {}


@pytest.mark.parametrize(("text", "errors"), [
    ("{", ["not JSON"]),
    ("", ["not JSON"]),
    ("3", ["expected an object with steps, got '3'"]),
    ('{"steps": 3}', ["steps"]),
    ('{"stepz": []}', ["stepz"]),
    ('[{"name": "", "actionType": "call_tool"}]', ["name"]),
    ('[{"name": "x", "actionType": "cal_tool", "targetResource": "note"}]',
     ["did you mean 'call_tool'"]),
    ('[{"name": "x", "actionType": "call_tool", "targetResource": "notes", "dependencies": ["q"]},'
     ' {"name": "y", "actionType": "nope"}]', ["unknown tool 'notes'", "unknown action type 'nope'",
                                            "unknown step 'q'"]),
    ('[{"name": "x", "actionType": "call_tool", "targetResource": "note", "dependencies": ["q"]}]',
     ["depends on unknown step 'q'"]),
    ('[{"name": "x", "actionType": "call_tool", "targetResource": "note",'
     ' "parameters": {"q": "${a"}}]',
     ["${a"]),
    ('{"steps": [], "answer": "${gone}"}', ["unknown step 'gone'"]),
])  # fmt: skip
def test_what_is_wrong_with_a_plan_is_listed_and_nothing_is_lost(run, text, errors, front_end):
    front = front_end(run)
    front("run", node="plan_execution")
    front("step")
    before, shown = run.state, front.view["editor"]["text"]
    for action in ("check_plan", "apply_plan", "fork_plan"):
        view = front(action, text=text)
        assert front.failed
        assert len(view["editor"]["errors"]) == len(errors)
        for found, expected in zip(view["editor"]["errors"], errors, strict=True):
            assert expected in found
        assert view["editor"]["text"] == shown
        assert view["editor"]["accepted"] == 0
    assert run.state is before
    assert front.widget.runs == [run]
    assert front("check_plan", text=shown)["editor"]["errors"] == []


def test_there_is_no_plan_to_edit_before_planning(run, front_end):
    front = front_end(run)
    front("apply_plan", text="[]")
    assert front.view["editor"]["errors"] == ["there is no plan yet; step past 'planning' first"]


def test_a_new_step_never_takes_an_id_that_was_used(notes, step, front_end):
    run = notes.start(
        [step("a"), step("b", "broken")], [step("c"), step("d")], strategy="on_error(replans=1)"
    )
    run.run_until(lambda s: len(s.replan_history) == 1)
    assert [s.step_id for s in run.plan.steps] == ["a", "c", "d"]
    front = front_end(run)
    row = {"actionType": "call_tool", "targetResource": "note"}
    front("apply_plan", text=json.dumps([{"name": n, **row} for n in ("a", "b", "c")]))
    assert [s.step_id for s in run.plan.steps] == ["a", "a_2", "b_2", "c"]


def test_a_step_under_way_stays_and_is_not_in_the_text(notes, step, front_end):
    run = notes.start([step("a"), step("b"), step("c", "note", "b")], workers=2)
    run.run_until("plan_execution")
    run.step()
    (running,) = [s.step_id for s in run.plan.steps if s.status == "running"]
    front = front_end(run)
    assert running not in steps_of(front.view)
    new = {"name": "d", "actionType": "call_tool", "targetResource": "note"}
    front("apply_plan", text=json.dumps([{**new, "dependencies": [running]}]))
    assert not front.failed, front.view["editor"]
    front("run")
    assert run.plan.step("d").status == "completed"


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(), max_size=40) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(
        st.sampled_from(["steps", "name", "actionType", "parameters", "dependencies", "answer"]), x,
        max_size=4),
    max_leaves=12).map(json.dumps))  # fmt: skip
def test_no_text_breaks_the_editor(text, front_end):
    run = al.autonomous.start(al.Lab(al.load_suite("chain")[0]))
    run.run_until("plan_execution")
    front = front_end(run)
    before = run.state
    view = front("apply_plan", text=text)
    if front.failed:
        assert run.state is before
        assert view["editor"]["errors"]
    else:
        assert run.replay().identical
