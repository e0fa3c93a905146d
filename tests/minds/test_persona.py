"""What an agent's configuration says reaches every model that works for it."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.lm.scripted import scripted
from agentlab.minds.by_model import LMDecider, LMReflector, LMResponder
from agentlab.state.config import AgentRegistry, AgentSettings
from agentlab.state.decisions import Trigger, TriggerPoint

SYSTEM, USER = "You are Ada, who counts in dozens.", "Mind the house rules."
STEP = {"stepId": "a", "actionType": "call_tool", "targetResource": "note", "parameters": {}}
PLAN = json.dumps({"summary": "s", "steps": [{**STEP, "dependencies": []}], "answer": None})
GRAPH = json.dumps(
    {"steps": [{"stepId": "a", "objective": "o", "executionTarget": "tool:note",
                "dependencies": [], "completionCriteria": "c"}]}
)  # fmt: skip
BOUND = '{"parameters": {"a": {}}, "answer": null}'


def lab_of(notes, replies, prompts=(SYSTEM, USER), **options):
    agent = AgentSettings(id="ada", system_prompt=prompts[0], user_prompt=prompts[1])
    model = scripted(replies)
    made = al.Lab(
        agent="ada", agents=AgentRegistry(agents=[agent]), tools=[notes.tool(), notes.broken()],
        lm=model, **options,
    )  # fmt: skip
    return made, model.engine


def parts(request):
    """The system message and the user's last one."""
    *_, user = request.messages
    system = request.system if isinstance(request.system, str) else str(request.system)
    return system, "".join(p.text for p in user.parts)


@pytest.mark.parametrize(
    ("planner", "replies"), [("structured", [PLAN, "done"]), ("contract", [GRAPH, BOUND, "done"])]
)
def test_planners_and_responder(notes, planner, replies):
    lab, engine = lab_of(notes, replies, planner=planner, responder="lm", strategy="never")
    run = al.autonomous.start(lab, "go")
    run.finish()
    assert run.state.final_response == "done"
    assert len(engine.requests) == len(replies)
    for request in engine.requests:
        system, user = parts(request)
        assert SYSTEM in system.split("\n\n")[0]
        assert user.startswith(f"{USER}\n\n## ")


@pytest.mark.parametrize("point", [TriggerPoint.AFTER_STEP, TriggerPoint.EVENT])
def test_reflector_responder_and_decider(notes, point):
    reflection = '{"analysis": "", "goalAchieved": false, "needReplan": false, "replanReason": "", "suggestions": []}'  # noqa: E501
    decision = '{"action": "CONTINUE", "reasoning": "", "newContextHints": [], "confidence": 1}'
    lab, engine = lab_of(notes, [reflection, decision, "done"], planner="structured")
    state = al.nodes.load_config(lab.initial_state("go"), lab)
    with lab.asking(state):
        LMReflector().reflect(state, lab)
        LMDecider().decide(Trigger(point=point, reason="r"), state, lab)
        assert LMResponder().respond(state, lab) == "done"
    assert len(engine.requests) == 3
    for request in engine.requests:
        system, user = parts(request)
        assert SYSTEM in system
        assert user.startswith(USER)


def test_an_agent_that_says_nothing_changes_no_prompt(notes):
    said = []
    for prompts in (("", ""), (" \n", "")):
        lab, engine = lab_of(notes, [PLAN, "done"], prompts, planner="structured", responder="lm")
        al.autonomous.start(lab, "go").finish()
        said.append([parts(r) for r in engine.requests])
    model = scripted([PLAN, "done"])
    tools = [notes.tool(), notes.broken()]
    lab = al.Lab(tools=tools, lm=model, planner="structured", responder="lm")
    al.autonomous.start(lab, "go").finish()
    said.append([parts(r) for r in model.engine.requests])
    assert said[0] == said[1] == said[2]
