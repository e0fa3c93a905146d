"""What is published reaches the planner that replans: as belief, in words, with its time."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

import agentlab as al
from agentlab.environments.base import fitting
from agentlab.minds.base import checked_plan
from agentlab.minds.planners.prompted import situation_text
from agentlab.state.decisions import ReplanDecision
from agentlab.state.events import ContextChangeEvent


class Asked:
    """A planner of given plans that keeps its requests."""

    def __init__(self, *plans):
        self.plans, self.requests = plans, []

    def plan(self, request, kit):
        self.requests.append(request)
        return checked_plan({"steps": list(self.plans[request.number])}, request, kit)


def constraint(text="no trains", **payload):
    return ContextChangeEvent(type="NEW_CONSTRAINT", description=text, payload=payload)


def heard(notes, step, *events, **options):
    """Return a resident run that heard events before its second step, and its planner."""
    planner = Asked([step("a"), step("b", "note", "a")], [step("c")], [step("d")])
    lab = notes.lab(planner=planner, strategy="event_driven", **options)
    run = al.resident.start(lab, "go")
    run.run_until("monitor")
    for event in events:
        run.publish(event)
    run.finish()
    return run, planner


def test_a_constraint_reaches_the_request_and_the_words_of_the_replan(notes, step):
    run, planner = heard(notes, step, constraint(budget=5))
    request = planner.requests[1]
    [change] = [e for e in request.changes if e.type == "NEW_CONSTRAINT"]
    assert (change.description, change.payload) == ("no trains", {"budget": 5})
    text = situation_text(request)
    assert 'a new constraint: no trains {"budget":5}' in text
    assert run.replay().identical


def test_a_constraint_still_holds_at_the_replan_after(notes, step):
    planner = Asked([step("a"), step("b", "note", "a")], [step("c"), step("x", "broken", "c")],
                    [step("d")])  # fmt: skip
    lab = notes.lab(planner=planner, strategy="event_driven")
    run = al.resident.start(lab, "go")
    run.run_until("monitor")
    run.publish(constraint())
    run.finish()
    assert len(planner.requests) == 3
    assert "no trains" in situation_text(planner.requests[2])


def test_without_such_events_no_section_is_added(notes, step):
    planner = Asked([step("a"), step("x", "broken")], [step("c")])
    notes.run(planner=planner, strategy="on_error")
    assert planner.requests[1].changes
    assert "meanwhile" not in situation_text(planner.requests[1])


def test_a_world_that_understands_a_payload_has_it_in_the_belief():
    scenario = al.load_suite("travel")[0]
    lab = al.Lab(scenario, strategy="event_driven")
    for payload, believed in (({"budget": 7}, 7), ({"budget": "less"}, None), ({"mood": 1}, None)):
        run = al.resident.start(lab)
        run.run_until("monitor")
        before = run.state.belief["budget"]
        run.publish(constraint(**payload))
        run.run_until("react")
        assert run.state.belief["budget"] == (before if believed is None else believed)
        assert "mood" not in run.state.belief
        assert run.state.world["budget"] == before


@pytest.mark.parametrize("said", ["mind the gap", ["mind the gap"], ("mind the gap",)])
@pytest.mark.parametrize("name", ["newContextHints", "new_context_hints"])
def test_hints_are_a_text_or_a_list_in_either_spelling(notes, step, said, name):
    made = ReplanDecision.model_validate({"action": "REPLAN_REMAINING", name: said})
    assert made.new_context_hints == ("mind the gap",)
    planner = Asked([step("a"), step("b")], [step("c")])
    run = notes.start(planner=planner, strategy="on_error")
    run.run_until(lambda state: "a" in state.results)
    run.edit(forced_decision=made, next_action="reflect")
    run.finish()
    assert "mind the gap" in planner.requests[1].hints
    assert "- mind the gap" in situation_text(planner.requests[1])


def test_an_empty_hint_is_none():
    assert ReplanDecision(action="CONTINUE", new_context_hints=" ").new_context_hints == ()


def test_the_wall_time_stands_in_the_span_and_the_handlers_event_and_never_in_the_state(
    notes, step
):
    class Listener:
        told = []

        def on_context_change(self, event, occurred_at):
            self.told.append((event.description, occurred_at))

    planner = Asked([step("a"), step("b", "note", "a")], [step("c")], [step("d")])
    lab = notes.lab(planner=planner, strategy="event_driven", handler=Listener())
    run = al.resident.start(lab, "go")
    run.run_until("monitor")
    run.publish(constraint())
    run.run_until("react")
    [span] = [s for s in run.recorder.of_kind("event") if s.name == "NEW_CONSTRAINT"]
    moment = span.attributes["occurredAt"]
    assert abs(datetime.fromisoformat(moment).timestamp() - span.started) < 60
    assert Listener.told == [("no trains", moment)]
    assert moment not in json.dumps(run.state.to_json())
    fork = run.fork()
    assert fork.finish() == run.finish()
    assert run.replay().identical


def test_an_interrupted_step_keeps_where_it_stood(notes, step):
    slow = notes.tool("slow", seconds=9.0)
    planner = Asked([step("a", "slow"), step("b")], [step("c")])
    lab = notes.lab(planner=planner, strategy="event_driven", workers=2, tools=[slow])
    run = al.resident.start(lab, "go")
    run.run_until(lambda state: "b" in state.results)
    run.edit(
        forced_decision=ReplanDecision(
            action="REPLAN_FULL", reasoning="all is different", new_context_hints="begin anew"
        ),
        next_action="reflect",
    )
    run.finish()
    kept = planner.requests[1].earlier.step("a").interruption_context
    assert (kept.reason, kept.tool, kept.attempt) == (
        "REPLAN_FULL: all is different", "slow", 1,
    )  # fmt: skip
    assert (kept.started, kept.at) == (0.0, 1.0)
    assert "a: slow({}) interrupted: REPLAN_FULL: all is different" in situation_text(
        planner.requests[1]
    )
    assert run.replay().identical


PLAN = {"userIntent": "u", "summary": "s", "complexity": 1, "steps": []}


def test_planning_and_reflection_think_aloud_where_a_model_streams(notes):
    class Listener:
        def __init__(self):
            self.told = {}

        def on_thinking_content(self, stage, text):
            self.told.setdefault(stage, []).append(text)

    def steps(*ids):
        return json.dumps({**PLAN, "steps": [
            {"stepId": i, "name": i, "description": "", "actionType": "call_tool",
             "targetResource": "broken", "parameters": {}, "dependencies": []} for i in ids
        ]})  # fmt: skip

    judged = json.dumps({
        "analysis": "it went badly", "goalAchieved": False, "needReplan": False,
        "replanReason": "", "suggestions": [],
    })  # fmt: skip
    model = al.lm.scripted_model([steps("a"), judged, "Sorry."])
    listener = Listener()
    run = notes.start(
        planner="structured", lm=model, handler=listener, strategy="reflect_on_total_failure"
    )
    run.finish()
    assert steps("a") in "".join(listener.told["planning"])
    assert judged in "".join(listener.told["reflection"])
    assert "Sorry." not in str(listener.told)


def test_fitting_goes_by_the_kinds_of_what_is_there():
    belief = {"a": {"b": 1, "c": "x"}, "d": [1], "e": True}
    assert fitting(belief, {"a": {"b": 2.5}}) == {"a": {"b": 2.5}}
    for odd in ({"a": 1}, {"a": {"z": 1}}, {"e": 1}, {"d": {}}, {"a": None}, {"a": {"b": None}}):
        assert fitting(belief, odd) is None
