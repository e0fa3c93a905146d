"""A loop of tool calls on the LM seam: asked by typed requests, done as a plan that grows."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.environments.fault_plan import FaultPlan, TargetedFault
from agentlab.errors import LMTooLong, RunError
from agentlab.lm.scripted import cut_off, refused, say, scripted
from agentlab.plans.task_plan import TaskPlan, TaskStep
from agentlab.runs.graph import END, node
from agentlab.runs.run import Run
from agentlab.state.messages import Message, told
from agentlab.workflows.workflow import Workflow

MADE = []


@al.tool(effect="write")
def look(place: str) -> str:
    """Look around in a place."""
    MADE.append(place)
    return f"saw {place}"


@al.tool(effect="write")
def take(thing: str, count: int = 1) -> str:
    """Take something."""
    MADE.append(thing)
    return f"took {count} {thing}"


def text(said):
    return {"type": "text", "text": said}


@node
def reasoning(state, lab):
    """Ask with everything that was said."""
    request = {
        "system": "Use the tools.", "messages": [m.to_lm() for m in state.messages],
        "tools": list(lab.tools.values()),
    }  # fmt: skip
    with lab.asking(state, name="reasoning") as talk:
        said = talk.ask(request)
    state = talk.charged(state)
    if said.message is not None:
        asked = Message.from_lm(said.message, f"r{state.visit}_{{}}".format)
        state = state.replace(messages=state.messages.append(asked))
    answer = said.text if said.finish_reason == "stop" else said.finish_reason
    return state.replace(next_action=said.finish_reason, final_response=answer)


@node
def acting(state, lab):
    """Carry the calls out as steps of the plan."""
    calls = state.messages[-1].tool_calls
    new = [
        TaskStep(
            step_id=c.call_id, name=c.name, target_resource=c.name, parameters=c.arguments
        )
        for c in calls
    ]  # fmt: skip
    plan = state.task_plan or TaskPlan()
    state = state.replace(task_plan=plan.with_steps((*plan.steps, *new)))
    for step in new:
        state = lab.executor.submit(state, lab, state.task_plan.step(step.step_id))
    while state.under_way:
        state = lab.executor.wait(state, lab)
    ended = (state.task_plan.step(c.call_id) for c in calls)
    results = [
        told(s.step_id, s.error or json.dumps(s.result), is_error=s.error is not None)
        for s in ended
    ]
    return state.replace(messages=state.messages.extend(results))


def after_reasoning(state):
    return "acting" if state.next_action == "tool_call" else END


loop = Workflow(
    "loop", [reasoning, acting], {"reasoning": after_reasoning, "acting": "reasoning"}, "reasoning"
)


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


SCRIPT = (
    {"text": "I look.", "tool_calls": [call("look", place="hall"), call("look", place="attic")]},
    {"tool_calls": [call("take", thing="lamp", count=2)]},
    "I saw hall and attic, and took the lamps.",
)


def native(script=SCRIPT):
    return scripted(list(script), function_calling=True)


def lab(executor, model=None, **options):
    model = native() if model is None else model
    return al.Lab(tools=[look, take], lm=model, workers=2, executor=executor, **options)


@pytest.fixture(autouse=True)
def nothing_made():
    MADE.clear()


both = pytest.mark.parametrize("executor", ["simulated", "threads"])


def finished(executor, model=None, **options):
    run = loop.start(lab(executor, model, **options), "look around")
    run.finish()
    return run


def statuses(run):
    return [(s.name, s.status.value) for s in run.plan.steps]


@both
def test_it_finishes_and_replays(executor):
    run = finished(executor)
    assert run.state.final_response == SCRIPT[-1]
    assert sorted(MADE) == ["attic", "hall", "lamp"]
    assert statuses(run) == [("look", "completed")] * 2 + [("take", "completed")]
    assert run.replay().identical
    assert len(MADE) == 3
    first, second, last = run.recorder.of_kind("lm")
    assert [s.output["finish_reason"] for s in (first, second, last)] == ["tool_call"] * 2 + [
        "stop"
    ]
    ids = [p["id"] for s in (first, second) for p in s.output["message"]["parts"] if "id" in p]
    assert len(set(ids)) == 3
    assert [t["name"] for t in first.input["tools"]] == ["look", "take"]
    assert second.input["messages"][2]["parts"][0]["content"] == [text('"saw hall"')]


@both
def test_it_is_resumed(executor, tmp_path):
    run = loop.start(lab(executor), "look around", store=tmp_path)
    run.step()
    run.step()
    made = sorted(MADE)
    again = Run.resume(tmp_path, lab(executor, native(SCRIPT[1:])), workflow=loop)
    again.finish()
    assert again.state.final_response == SCRIPT[-1]
    assert sorted(MADE) == sorted([*made, "lamp"])
    assert again.replay().identical


@both
def test_a_fork_calls_other_tools(executor):
    run = finished(executor)
    MADE.clear()
    reply = {"text": "Rather the cellar.", "tool_calls": [call("look", place="cellar")]}
    fork = run.fork(at=2, replies={0: reply}, lab=lab(executor, native(SCRIPT[2:])))
    fork.finish()
    assert MADE == ["cellar"]
    assert [c.call_id for c in fork.state.messages[4].tool_calls] == ["r2_0"]
    assert fork.replay().identical
    plain = run.fork(at=0, replies={0: "No need."})
    plain.finish()
    assert (plain.state.final_response, MADE) == ("No need.", ["cellar"])


def test_replies_that_are_none():
    run = finished("simulated")
    for reply in ({}, {"say": "x"}, {"tool_calls": [{"arguments": {}}]}, {"text": 3}, 3,
                  {"tool_calls": [{"name": "look", "arguments": [1]}]},
                  {"text": "x", "finish_reason": "end"}):  # fmt: skip
        with pytest.raises(RunError, match="expected"):
            run.fork(at=0, replies={0: reply})


def struck(executor, kind, seed=0):
    target = TargetedFault(tool="lm", kind=kind, occurrence=0)
    return finished(executor, faults=FaultPlan(targets=(target,)), seed=seed)


@both
def test_a_malformed_call_fails_as_a_step(executor):
    forms = set()
    for seed in range(6):
        script = native([*SCRIPT[:1], *SCRIPT[2:]])
        target = TargetedFault(tool="lm", kind="lm_malformed", before=0.1)
        run = finished(executor, script, faults=FaultPlan(targets=(target,)), seed=seed)
        assert sorted(s for _, s in statuses(run)) == ["completed", "failed"]
        assert next(d.fault.kind.value for d in run.state.delivered) == "lm_malformed"
        [failed] = [s for s in run.plan.steps if s.error]
        forms.update(failed.parameters)
        assert failed.error
        assert run.replay().identical
        assert run.state.final_response.endswith("took the lamps.")
    assert forms == {"partial_json", "arguments"}


@both
def test_a_reply_that_is_cut_off_is_an_outcome(executor):
    run = struck(executor, "lm_cut_off")
    assert (run.state.next_action, run.visited, MADE) == ("length", ["reasoning"], [])
    message = run.state.messages[1]
    assert message.text == "I look."
    assert list(message.tool_calls[-1].arguments) == ["partial_json"]
    assert "no JSON object" in message.tool_calls[-1].problem
    assert run.replay().identical


@both
def test_a_refusal_is_an_outcome(executor):
    run = struck(executor, "lm_refused")
    assert (run.state.next_action, run.visited, MADE) == ("content_filter", ["reasoning"], [])
    assert run.replay().identical


@both
def test_too_long_is_an_outcome(executor, tmp_path):
    model = native([LMTooLong("the prompt has 9 tokens too many", model="m")])
    run = loop.start(lab(executor, model), "look around", store=tmp_path)
    run.finish()
    assert (run.state.next_action, run.state.lm_calls) == ("too_long", 1)
    assert run.replay().identical
    [span] = run.recorder.of_kind("lm")
    assert span.error.startswith("LMTooLong: ")


def outcome(reply, **options):
    made = lab("simulated", native([reply]))
    with made.asking(made.initial_state("x")) as talk:
        return talk.ask({"messages": [{"role": "user", "parts": [text("x")]}], **options})


def test_an_outcome_tells_all_there_is():
    said = outcome(say("Well.", tool_calls=[{"id": "mine", **call("look", place="hall")}]))
    assert (said.finish_reason, said.text) == ("tool_call", "Well.")
    [asked] = said.tool_calls
    assert (asked.id, asked.name, asked.arguments) == ("mine", "look", {"place": "hall"})
    assert asked.problem is None
    assert said.usage == {"input_tokens": 1, "output_tokens": 4, "total_tokens": 5}
    wrong = outcome({"tool_calls": [{"name": "look", "arguments": '{"place": '}]}).tool_calls[0]
    assert "no JSON object: '{\"place\": '" in wrong.problem
    assert outcome(cut_off("Onc")).finish_reason == "length"
    assert outcome(refused("No.")).finish_reason == "content_filter"


def test_the_settings_of_the_model_are_those_of_a_typed_request():
    from dataclasses import replace

    model = replace(native(["x", "y"]), settings={"temperature": 0.5, "max_tokens": 9})
    made = lab("simulated", model)
    with made.asking(made.initial_state("x")) as talk:
        talk.ask({"messages": [{"role": "user", "parts": [text("x")]}]})
        talk.ask(
            {"messages": [{"role": "user", "parts": [text("x")]}], "config": {"max_tokens": 3}}
        )
    asked = [(r.config.temperature, r.config.max_tokens) for r in model.engine.requests]
    assert asked == [(0.5, 9), (0.5, 3)]


def test_what_is_no_request():
    made = lab("simulated")
    with made.asking(made.initial_state("x")) as talk:
        for request in (
            {},
            {"messages": []},
            {"messages": [{"role": "user"}]},
            {"messages": "x"},
            3,
        ):
            with pytest.raises(RunError, match="expected a request"):
                talk.ask(request)
    with pytest.raises(RunError, match="inside"):
        talk.ask({"messages": [{"role": "user", "parts": [text("x")]}]})
    nobody = al.Lab(tools=[look])
    with nobody.asking(nobody.initial_state("x")) as talk, pytest.raises(RunError, match="model"):
        talk.ask({"messages": [{"role": "user", "parts": [text("x")]}]})


def tagged(reply):
    """A reply as a model writes it that takes no tools."""
    if isinstance(reply, str):
        return reply
    tags = (f"<tool_call>{json.dumps(c)}</tool_call>" for c in reply["tool_calls"])
    return "\n".join([reply.get("text", ""), *tags]).strip()


@both
@pytest.mark.parametrize("kind", [None, "lm_malformed", "lm_cut_off", "lm_refused"])
def test_by_text_the_loop_is_the_same(executor, kind):
    spoken = scripted([tagged(reply) for reply in SCRIPT])
    faults = FaultPlan()
    if kind is not None:
        faults = FaultPlan(targets=(TargetedFault(tool="lm", kind=kind, occurrence=0),))
    one = finished(executor, faults=faults)
    other = finished(executor, spoken, faults=faults)
    assert list(other.state.messages) == list(one.state.messages)
    assert other.visited == one.visited
    assert [s.input for s in other.recorder.of_kind("lm")] == [
        s.input for s in one.recorder.of_kind("lm")
    ]
    assert other.replay().identical
