"""Whatever a model replies, a planner's door gives a plan or one PlanParseError."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.lm.scripted import scripted
from agentlab.plans.task_plan import TaskPlan
from agentlab.state.decisions import ReflectionResult, Trigger

GOOD = {
    "structured": {"summary": "s", "steps": [
        {"stepId": "1", "actionType": "call_tool", "targetResource": "note",
         "parameters": {"x": "${2.y}"}, "dependencies": ["2"]},
        {"stepId": "2", "actionType": "call_tool", "targetResource": "note", "parameters": {},
         "dependencies": []}], "answer": "${1}"},
    "contract": {"steps": [
        {"stepId": "1", "objective": "o", "executionTarget": "tool:note", "dependencies": [],
         "completionCriteria": "c"}]},
    "reflection": {"analysis": "a", "goalAchieved": True, "needReplan": False,
                   "replanReason": "", "suggestions": []},
}  # fmt: skip
ODD = [
    "\\ud800", "1" * 5_000, "${", "}", "${9.a}", "[" * 300, "true", "1.0", "NaN", "null", "\x00",
    "<think>", "</think>", "```", "\ufeff", "²", "١", " ", '"', "\\", "{", "-", "${a[?", "\udce9",
]  # fmt: skip


@st.composite
def replies(draw, kind):
    text = json.dumps(GOOD[kind])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.sampled_from([0, 0, 1, 1, 3, 9])))
        odd = draw(st.sampled_from(ODD)) * draw(st.sampled_from([1, 1, 40]))
        text = text[:at] + odd + text[end:]
    return text


@pytest.mark.parametrize("planner", ["structured", "contract"])
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_plan_or_one_parse_error(notebook, planner, data):
    text = data.draw(replies(planner))
    bound = json.dumps({"parameters": {"1": {}}, "answer": None})
    model = scripted(lambda request, n: text if n % 2 == 0 or planner != "contract" else bound)
    lab = notebook().lab(planner=planner, lm=model, strategy="never")
    run = al.autonomous.start(lab, "do it")
    run.finish()
    assert run.state.error is None or "plan" in run.state.error.lower()
    assert run.state.task_plan is None or isinstance(run.state.task_plan, TaskPlan)
    run.state.to_json()


@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_reflection_or_the_rule(notebook, data):
    from agentlab.minds.by_model import LMDecider, LMReflector

    text = data.draw(replies("reflection"))
    lab = notebook().lab(lm=scripted([("", text)]), strategy="never")
    run = al.autonomous.start(lab, "do it")
    with lab.asking(run.state):
        assert isinstance(LMReflector().reflect(run.state, lab), ReflectionResult)
        LMDecider().decide(Trigger(point="plan_end", reason="r"), run.state, lab)
