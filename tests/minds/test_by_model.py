"""Reflector, responder and decider that ask a model, and the rules that they fall back to."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.lm.scripted import cut_off, rate_limited, refused, say, scripted
from agentlab.minds.by_model import LMDecider, LMReflector, LMResponder
from agentlab.minds.programs import situation
from agentlab.minds.rules import RuleReflector, TemplateResponder
from agentlab.state.decisions import ReplanAction

BROKEN = al.FaultPlan(
    targets=(al.TargetedFault(tool="advance", kind="error", persistence="permanent"),)
)
ONCE = al.FaultPlan(targets=(al.TargetedFault(tool="advance", kind="error", before=0.5),))


class Heard:
    """A handler that keeps what it is told."""

    def __init__(self):
        self.tokens, self.completed, self.replans = [], [], []

    def on_token(self, text):
        self.tokens.append(text)

    def on_complete(self, text, session_id):
        self.completed.append(text)

    def on_replan_required(self, reason, count):
        self.replans.append(reason)


def started(scenario, script, **options):
    """A run with the search planner and a scripted model."""
    options = {"reflector": "rules", "responder": "template", **options}
    model = scripted(script)
    return al.autonomous.start(al.Lab(scenario, lm=model, **options)), model.engine


def finished(scenario, script, **options):
    run, engine = started(scenario, script, **options)
    run.finish()
    return run, engine


# ---- the responder ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["All three stages are done.", "Done:\n\n- a\n- b\n", "  spaced ", "done", "größe ✓"]
)
def test_the_response_is_streamed_as_it_is_said(chain, text):
    heard = Heard()
    run, engine = finished(chain(), [text], responder="lm", handler=heard)
    assert run.state.final_response == text
    assert "".join(heard.tokens) == text
    assert len(heard.tokens) == max(1, len(text.split()))
    assert heard.completed == [text]
    assert run.state.lm_calls == len(engine.requests) == 1
    assert run.replay().identical


def test_the_response_is_the_same_where_nobody_listens(chain):
    silent, _ = finished(chain(), ["It is done."], responder="lm")
    heard, _ = finished(chain(), ["It is done."], responder="lm", handler=Heard())
    assert silent.state == heard.state


def test_a_model_that_cannot_stream_gives_one_token(chain):
    from dataclasses import replace

    heard = Heard()
    lab = al.Lab(
        chain(), lm=replace(scripted(["It is done."]), streams=False), reflector="rules",
        handler=heard,
    )  # fmt: skip
    al.autonomous.start(lab).finish()
    assert heard.tokens == ["It is done."]


def test_the_responder_is_shown_results_and_troubles(chain):
    run, engine = finished(chain(), ["Sorry."], responder="lm", faults=BROKEN, strategy="never")
    [prompt] = engine.prompts
    plan = run.plan
    assert run.state.user_input in prompt
    for step in plan.steps:
        assert f"- {step.step_id} ({step.label}) {step.status}" in prompt
    assert plan.steps[0].error in prompt
    assert "Replans left: 0." in prompt
    assert "Assessment: " in prompt


@pytest.mark.parametrize(
    ("answer", "told", "said"),
    [
        (cut_off("All is do"), "All is do", "cut off"),
        (refused("I won't."), "I won't.", "declined"),
        (rate_limited(), "", "too many requests"),
        ("", "", "replied nothing"),
        (" \n ", " \n ", "replied nothing"),
    ],
)
def test_where_no_answer_comes_the_template_answers_and_says_so(chain, answer, told, said):
    heard = Heard()
    run, engine = finished(chain(), [answer], responder="lm", handler=heard)
    final = run.state.final_response
    by_template = TemplateResponder().respond(run.state, run.lab)
    assert final.startswith(by_template)
    assert said in final.rpartition("(Written by template: ")[2]
    assert heard.completed == [final]
    assert "".join(heard.tokens) == (f"{told}\n\n{final}" if told else final)
    assert run.verdict.success  # the work was done, whoever tells of it
    assert len(engine.requests) == 1
    assert run.replay().identical


def test_after_an_error_the_model_is_not_asked(chain, tmp_path):
    run, engine = finished(chain(), [], responder="lm", agent=f"{tmp_path}/no.yaml:x")
    assert run.state.error is not None
    assert engine.requests == []
    state = run.state
    assert LMResponder().respond(state, run.lab) == TemplateResponder().respond(state, run.lab)


# ---- the reflector ---------------------------------------------------------------------------


def judged(**fields):
    told = {
        "analysis": "it broke", "goalAchieved": False, "needReplan": True,
        "replanReason": "another tool may do", "suggestions": ["use advance_slowly"],
    }  # fmt: skip
    return json.dumps(told | fields)


def test_the_models_judgement_counts(chain):
    heard = Heard()
    run, engine = finished(chain(), [judged()], reflector="lm", faults=BROKEN, handler=heard)
    first = run.state.replan_history[0].decision
    assert (first.action, first.reasoning) == (ReplanAction.REPLAN_FULL, "another tool may do")
    assert first.new_context_hints == ("use advance_slowly",)
    assert first.reflection.analysis == "it broke"
    assert heard.replans == ["another tool may do"]
    assert len(engine.requests) == run.state.lm_calls == 1
    assert "Judge how it went" in engine.prompts[0]
    assert run.replay().identical


def test_a_model_that_sees_no_hope_ends_the_run(chain):
    said = judged(needReplan=False, replanReason="", suggestions=[])
    run, _ = finished(chain(), [said], reflector="lm", faults=BROKEN)
    assert run.state.loop_count == 0
    assert run.state.reflection.analysis == "it broke"
    assert "Assessment: it broke." in run.state.final_response


WRONG = ["no idea", "[]", judged(goalAchieved="perhaps"), judged(more=1), '{"analysis": "x"}']


@pytest.mark.parametrize("wrong", WRONG)
def test_an_unusable_judgement_is_asked_for_once_more(chain, wrong):
    run, engine = finished(chain(), [wrong, judged()], reflector="lm", faults=BROKEN)
    assert run.state.replan_history[0].decision.reflection.analysis == "it broke"
    second = engine.prompts[1].split("## mind")[1]
    assert "Your reply before could not be used: " in second
    assert "Replans left: 3." in second  # what stood there before still does
    assert "errors.pydantic.dev" not in second
    assert run.replay().identical


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (["no", "no"], "the reply could not be used: the reply is no JSON document"),
        (["", ""], "empty"),
        ([refused()], "declined"),
        ([cut_off("{")], "cut off"),
        ([rate_limited()], "too many requests"),
    ],
)
def test_where_no_judgement_comes_the_rule_judges_and_says_so(chain, script, said):
    run, engine = finished(chain(), script, reflector="lm", faults=BROKEN)
    reflection = run.state.replan_history[0].decision.reflection
    assert "(by rule, since " in reflection.analysis
    assert said in reflection.analysis
    assert reflection.need_replan
    assert len(engine.requests) == len(script)
    lab = run.lab.bind()
    at = run.visited.index("reflection")
    ruled = RuleReflector().reflect(run.states[at], lab)
    assert reflection.analysis.startswith(ruled.analysis)
    assert reflection.replan_reason == ruled.replan_reason


def test_the_reflector_is_asked_only_when_the_strategy_wants_it(chain):
    _, engine = finished(chain(), [], reflector="lm")
    assert engine.requests == []


# ---- the decider -----------------------------------------------------------------------------


def decided(action, **fields):
    told = {"action": action, "reasoning": "I think so", "newContextHints": [], "confidence": 0.7}
    return json.dumps(told | fields)


@pytest.mark.parametrize("action", ["RETRY", "REPLAN_REMAINING", "REPLAN_FULL"])
def test_the_models_decision_is_carried_out(chain, action):
    run, engine = finished(chain(), [decided(action)], strategy="ask_on_error", faults=ONCE)
    [decision] = [s for s in run.spans if s.kind == "decision" and s.name != "plan"][:1]
    assert decision.output["action"] == action
    assert decision.output["reasoning"] == "I think so"
    assert decision.output["confidence"] == 0.7
    assert run.verdict.success
    assert run.state.loop_count == (action != "RETRY")
    [prompt] = engine.prompts
    told = prompt.split("## mind")[1]
    assert "What happened: step " in told
    assert "Replans left: 3." in told
    assert run.state.lm_calls == 1
    assert run.replay().identical


def test_a_decision_to_stop(chain):
    run, _ = finished(chain(), [decided("ABORT")], strategy="ask_on_error", faults=ONCE)
    assert run.state.stopped_by == "abort"
    assert "the run was aborted" in run.state.final_response


def test_a_decision_to_go_on(chain):
    run, _ = finished(
        chain(), lambda r, n: decided("CONTINUE"), strategy="ask_on_error", faults=ONCE
    )
    assert (run.state.loop_count, run.state.stopped_by) == (0, None)
    assert not run.verdict.success


def test_what_a_new_plan_should_mind_reaches_the_planner(chain):
    said = decided("REPLAN_REMAINING", newContextHints=["mind the gap"])
    run, _ = finished(chain(), [said], strategy="ask_on_error", faults=ONCE)
    assert run.state.replan_history[0].decision.new_context_hints == ("mind the gap",)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (["no", decided("FLY")], "the reply could not be used: field action"),
        ([decided("RETRY", confidence=2)] * 2, "confidence"),
        ([decided("REPLAN_FULL", stepsToCancel=[-1])] * 2, "step -1 cannot be cancelled"),
        ([decided("CONTINUE", stepsToCancel=[99])] * 2, "step 99 cannot be cancelled"),
        ([decided("CONTINUE", correction={"stage": 3})] * 2, "fields correction"),
        ([decided("RETRY", wait=1e9)] * 2, "fields wait"),
        ([refused()], "declined"),
        ([rate_limited()], "too many requests"),
    ],
)
def test_where_no_decision_comes_the_rest_is_planned_anew(chain, script, said):
    run, engine = finished(chain(), script, strategy="ask_on_error", faults=ONCE)
    decision = run.state.replan_history[0].decision
    assert decision.action is ReplanAction.REPLAN_REMAINING
    assert "(by rule, since " in decision.reasoning
    assert said in decision.reasoning
    assert len(engine.requests) == len(script)
    assert run.verdict.success


def test_retrying_what_is_broken_for_good_is_no_decision(chain):
    run, _ = finished(
        chain(), lambda r, n: decided("RETRY"), strategy="ask_on_error", faults=BROKEN
    )
    first = run.state.replan_history[0].decision
    assert first.action is ReplanAction.REPLAN_REMAINING
    assert "permanently" in first.reasoning
    assert run.verdict.success


def test_a_model_that_retries_without_end_runs_into_the_budget(chain):
    """An error each time, never called permanent: the budget of executions ends it."""
    always = al.FaultPlan(targets=(al.TargetedFault(tool="advance", kind="timeout"),))
    run, engine = finished(
        chain(), lambda r, n: decided("RETRY"), strategy="ask_on_error", faults=always
    )
    assert run.state.stopped_by == "executions"
    assert run.state.executions == 100
    assert len(engine.requests) <= 100


def test_replans_by_the_model_are_bounded(chain):
    always = al.FaultPlan(kinds={"error": 1.0}, rate=1.0)
    run, _ = finished(
        chain(), lambda r, n: decided("REPLAN_FULL"), strategy="ask_on_error(2)", faults=always
    )
    assert run.state.loop_count == 2
    assert run.state.stopped_by == "replans"


def test_a_lab_without_a_model_has_no_decider(chain):
    assert al.Lab(chain()).decider is None
    assert isinstance(al.Lab(chain(), lm=scripted([])).decider, LMDecider)


# ---- who judges and answers ------------------------------------------------------------------


def test_the_model_judges_and_answers_where_there_is_one(chain):
    lab = al.Lab(chain(), lm=scripted([]))
    assert isinstance(lab.reflector, LMReflector)
    assert isinstance(lab.responder, LMResponder)
    ruled = al.Lab(chain(), lm=scripted([]), reflector="rules", responder="template")
    assert isinstance(ruled.reflector, RuleReflector)
    assert isinstance(ruled.responder, TemplateResponder)
    bare = al.Lab(chain())
    assert isinstance(bare.reflector, RuleReflector)
    assert isinstance(bare.responder, TemplateResponder)


def test_the_situation_before_anything_happened(chain):
    told = situation(al.Lab(chain()).initial_state())
    assert told["intent"] == ""
    assert told["steps"] == "(no steps)"


def test_prompts_are_of_text_alone(chain):
    """No blank is left, and nothing that only the lab may know is told."""
    run, engine = finished(
        chain(), [judged(), say("done")], reflector="lm", responder="lm", faults=BROKEN
    )
    for prompt in engine.prompts:
        assert "{question}" not in prompt
        assert "None" not in prompt
        assert "<" not in prompt
    assert run.state.lm_calls == 2
