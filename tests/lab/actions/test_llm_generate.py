"""``llm_generate``: the prompt and the system prompt as they are, recorded, journalled, charged."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.errors import LMUnavailable
from agentlab.lab.talk import SECONDS_A_CALL, SECONDS_A_TOKEN
from agentlab.lm.scripted import scripted
from agentlab.minds.planners.fixed import Fixed
from agentlab.state.config import AgentConfig

WRITER = AgentConfig(id="writer", system_prompt="You write.")


def generate(step_id="draft", *dependencies, **parameters):
    return {
        "stepId": step_id, "name": step_id, "actionType": "llm_generate",
        "parameters": parameters, "dependencies": list(dependencies),
    }  # fmt: skip


def started(plan, model, **options):
    options = {"reflector": "rules", "responder": "template", "strategy": "never", **options}
    lab = al.Lab(planner=Fixed(plan), lm=model, agent=WRITER, **options)
    return al.autonomous.start(lab, "a haiku, please")


def sent(model, n=0):
    document = model.engine.requests[n]
    return str(document.system), [str(part.text) for m in document.messages for part in m.parts]


def test_a_prompt_and_its_reply():
    model = scripted(["one two three", "four"])
    plan = [generate("a", prompt="write ${x}".replace("${x}", "it")),
            generate("b", prompt="go on: ${a}")]  # fmt: skip
    run = started({"steps": plan, "answer": "${b}"}, model)
    state = run.finish()
    assert dict(state.results) == {"a": "one two three", "b": "four"}
    assert state.answer == "four"
    assert [sent(model, n)[1] for n in (0, 1)] == [["write it"], ["go on: one two three"]]
    assert "You write." in sent(model)[0]


def test_without_a_prompt_the_users_input_is_sent():
    model = scripted(["ok"])
    started([generate()], model).finish()
    assert sent(model)[1] == ["a haiku, please"]


def test_a_reference_that_is_no_text_is_sent_as_json(notes, step):
    model = scripted(["ok"])
    plan = [step("s", parameters={"n": [1, {"a": True}]}), generate("b", prompt="${s.n}")]
    started(plan, model, tools=[notes.tool()]).finish()
    assert sent(model)[1] == ['[1,{"a":true}]']


def test_it_is_recorded_journalled_charged_and_replayed():
    model = scripted(["one two three"])
    run = started([generate(prompt="p")], model)
    run.finish()
    [span] = run.recorder.of_kind("lm")
    assert (span.step_id, span.attempt) == ("draft", 1)
    parents = {s.span_id: s for s in run.spans}
    assert parents[span.parent_id].name == "llm_generate"
    assert run.state.lm_calls == 1
    assert run.state.lm_tokens > 0
    assert run.state.now == pytest.approx(SECONDS_A_CALL + 3 * SECONDS_A_TOKEN)
    [entry] = run.journal.entries.values()
    assert entry.finished
    assert entry.address.step_id == "draft"
    report = run.replay()
    assert report.identical, report
    assert report.served == 1
    assert len(model.engine.requests) == 1


def test_a_failure_of_the_model_fails_the_step_and_may_be_retried():
    model = scripted([LMUnavailable("it is down"), "again"])
    run = started([generate(prompt="p")], model)
    run.finish()
    assert "it is down" in run.plan.step("draft").error
    model = scripted([LMUnavailable("it is down"), "again"])
    run = started([generate(prompt="p")], model, strategy="retry(1)")
    assert run.finish().results["draft"] == "again"
    assert run.state.lm_calls == 2


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"targetResource": "gpt"}, "llm_generate has none, got 'gpt'"),
        ({"parameters": {"promt": "x"}}, "parameter 'promt' is none of llm_generate's; did you"),
    ],
)
def test_what_is_wrong_is_said_at_planning_time(fields, text):
    run = started([{**generate(), **fields}], scripted([]))
    assert text in run.finish().error


def test_a_lab_without_a_model_says_so_at_planning_time(notes):
    run = notes.run([generate()])
    assert "llm_generate needs a language model, and this lab has none: Lab(lm=" in run.state.error
    assert run.visited == ["load_config", "planning", "final_response"]
