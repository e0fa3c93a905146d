"""``structured``: plans that a language model writes as one JSON document, with scripted models."""

from __future__ import annotations

import json
import re

import pytest

import agentlab as al
from agentlab.base.schemas import object_schema, schema_validator
from agentlab.environments.named import get_environment
from agentlab.environments.suites import load_suite
from agentlab.errors import ConfigError, StudyError, UnknownNameError
from agentlab.lm.scripted import cut_off, rate_limited, refused, scripted
from agentlab.lm.serde import load_dspy
from agentlab.minds.planners.structured import MAX_STEPS, PlanProgram, Structured, plan_schema
from agentlab.tools.tool import Tool

dspy = load_dspy()
SUITES = ("chain", "travel", "blocks", "quickstart")


def reply(scenario, without=(), **names):
    """The scenario's reference plan as a model would write it; steps in ``without`` are done."""
    text = json.dumps(
        {
            "summary": "the reference plan",
            "steps": [
                {
                    "stepId": s.step_id, "actionType": "call_tool", "targetResource": s.tool,
                    "parameters": s.arguments,
                    "dependencies": [d for d in s.dependencies if d not in without],
                }
                for s in scenario.reference.steps
                if s.step_id not in without
            ],
            "answer": scenario.reference.answer,
        }
    )  # fmt: skip
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"').replace(f"${{{old}.", f"${{{new}.")
    return text


def started(scenario, script, **options):
    """A run of the planner alone: reflector and responder are the rules."""
    options = {"reflector": "rules", "responder": "template", **options}
    model = options.pop("model", None) or scripted(script)
    lab = al.Lab(scenario, planner=options.pop("planner", "structured"), lm=model, **options)
    return al.autonomous.start(lab), model.engine


def finished(scenario, script, **options):
    run, engine = started(scenario, script, **options)
    run.finish()
    return run, engine


@pytest.fixture(scope="module")
def travel():
    return load_suite("travel")["travel-medium-000"]


# ---- a plan, carried out ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["chain-medium-000", "travel-medium-000", "travel-hard-001", "blocks-medium-000"]
)
def test_a_plan_is_written_and_carried_out(name):
    scenario = load_suite(name.split("-")[0])[name]

    def write(request, n):
        assert scenario.task in request.messages[-1].text
        return reply(scenario)

    run, engine = finished(scenario, write)
    state = run.state
    assert run.verdict.success, run.verdict.reasons
    assert (len(engine.requests), state.lm_calls, state.parse_failures) == (1, 1, 0)
    assert [s.step_id for s in run.plan.steps] == [s.step_id for s in scenario.reference.steps]
    assert state.error is None
    assert run.replay().identical


def test_the_prompt_says_what_there_is_and_leaves_no_blank(travel):
    run, engine = finished(travel, lambda r, n: reply(travel))
    [prompt] = engine.prompts
    assert travel.task in prompt
    assert "Nothing has been done yet." in prompt
    assert '"budget":652' in prompt
    for tool in run.lab.tools.values():
        assert f"- {tool.name}(" in prompt
        assert tool.description in prompt
    assert "nights: integer" in prompt
    assert re.findall(r"(?<!\$)\{\w+\}", prompt) == []
    assert "seen" not in prompt.split("## known")[1].split("## situation")[0]


def test_optional_parameters_are_marked():
    tool = Tool("t", "Do.", parameters={"type": "object", "properties": {"a": {"type": "string"}}})
    two = Tool("u", "Do.", parameters=object_schema(["a"], a={"type": "string"}, b={}))
    model = scripted([json.dumps({"summary": "", "steps": [], "answer": None})])
    lab = al.Lab(tools=[tool, two], planner="structured", lm=model, responder="template")
    al.autonomous.start(lab, "x").finish()
    assert "- t(a?: string) -> any" in model.engine.prompts[0]
    assert "- u(a: string, b?: any) -> any" in model.engine.prompts[0]


def test_no_steps_is_a_plan(chain):
    run, _ = finished(chain(), ['{"summary": "", "steps": [], "answer": "four"}'])
    assert run.visited == ["load_config", "planning", "final_response"]
    assert (run.state.error, run.state.answer) == (None, "four")


def test_without_a_tool_only_the_empty_plan_fits():
    schema = plan_schema({})
    assert schema_validator(schema).is_valid({"summary": "", "steps": [], "answer": None})
    assert not schema_validator(schema).is_valid({"summary": "", "steps": [{}], "answer": None})


# ---- a replan --------------------------------------------------------------------------------


def fault(tool, after=0, **fields):
    return al.TargetedFault(tool=tool, kind="error", occurrence=after, **fields)


def test_a_replan_is_told_what_is_done_failed_stands_and_left(travel):
    broken = al.FaultPlan(
        targets=(al.TargetedFault(tool="book_flight", kind="error", persistence="permanent"),)
    )
    done = ["hotels_oslo", "flights_oslo", "flights_berlin", "hotel_oslo"]
    run, engine = finished(
        travel,
        lambda r, n: reply(travel) if n == 0 else reply(travel, without=done, flight_oslo="again"),
        strategy="on_error(1)", faults=broken,
    )  # fmt: skip
    first, second = engine.prompts
    told = second.split("## situation")[1]
    assert "hotels_oslo: call_tool search_hotels gave" in told or "hotels_oslo: search" in told
    assert '"id":"H16"' in told.split("Side effects")[0]
    assert "Side effects that stand:" in told
    assert "book_hotel" in told.split("Side effects that stand:")[1].split("Failed:")[0]
    failed = told.split("Failed:")[1]
    assert "flight_oslo" in failed
    assert run.plan.steps
    assert "failed: " in failed
    assert "flight_berlin" in failed.split("Planned before and not done:")[1]
    assert "Assessment: " in told
    assert "Replans left: 0" in told
    assert "Nothing has been done yet" not in told
    assert re.findall(r"(?<!\$)\{\w+\}", second) == []
    assert first.split("## situation")[0] != second.split("## situation")[0]  # the belief moved
    assert [s.step_id for s in run.plan.steps][:4] == done
    assert "again" in [s.step_id for s in run.plan.steps]
    assert not run.verdict.success


def test_a_replan_is_told_what_is_under_way_and_may_build_on_it(travel):
    """Flights fail while hotels are searched for: the new plan waits for them."""
    once = al.FaultPlan(targets=(fault("search_flights"),))
    running = ["hotels_oslo"]

    def script(request, number):
        return reply(travel) if number == 0 else reply(travel, without=running)

    slow = travel.replace(faults=al.FaultPlan())
    run, engine = started(slow, script, strategy="on_error", faults=once, workers=4)
    run.run_until(lambda s: s.under_way and any(r.error for r in s.task_results))
    under_way = [u.step_id for u in run.state.under_way]
    run.finish()
    assert "hotels_oslo" in under_way
    told = engine.prompts[1].split("## situation")[1]
    listed = told.split("Under way, not to be planned again")[1].split("\n- ")
    assert any("hotels_oslo: search_hotels" in line for line in listed[1:3])
    assert "- hotels_oslo: " not in told.split("Planned before and not done:")[1]
    [books] = [s for s in run.plan.steps if s.label == "book_hotel"]
    assert "hotels_oslo" in books.dependencies
    assert run.verdict.success, run.verdict.reasons


def test_a_replan_goes_on_from_the_results_it_was_told_of(travel):
    once = al.FaultPlan(targets=(fault("book_hotel"),))
    done = ["hotels_oslo", "flights_oslo", "flights_berlin"]
    script = [reply(travel), reply(travel, without=done, hotel_oslo="h2")]
    run, engine = finished(travel, script, strategy="on_error", faults=once)
    assert run.verdict.success, run.verdict.reasons
    assert run.state.answer == run.state.results["h2"]["code"]
    assert "Side effects that stand:" not in engine.prompts[1]  # the booking failed
    assert run.replay().identical


def test_a_full_replan_may_use_every_earlier_result(chain):
    """Nothing completed, so the reflector wants another plan; what it said is in the prompt."""
    scenario = chain(2)
    once = al.FaultPlan(targets=(fault("advance"),))
    script = [reply(scenario), reply(scenario, s0="t0", s1="t1", **{"1": "1"})]
    run, engine = finished(scenario, script, faults=once)
    told = engine.prompts[1].split("## situation")[1]
    assert "make a new one from where things stand" in told
    assert f"Assessment: {run.state.replan_history[0].decision.reflection.analysis}" in told
    assert "Done" not in told
    assert "Replans left: 2" in told


# ---- replies that do not parse ---------------------------------------------------------------

MISTAKES = {
    "prose": ("Sure! First search, then book.", "no JSON document"),
    "NaN": ('{"summary": NaN, "steps": []}', "NaN is no JSON"),
    "trailing": ('{"summary": "", "steps": []} done', "there is more after the document"),
    "a list": ("[]", "expected a PlanReply or a dict"),
    "wrong tool": (
        '{"steps": [{"stepId": "a", "actionType": "call_tool", "targetResource": "advnce"}]}',
        "did you mean 'advance'",
    ),
    "wrong action": (
        '{"steps": [{"stepId": "a", "actionType": "fly", "targetResource": "advance"}]}',
        "unknown action type 'fly'",
    ),
    "steps no list": ('{"steps": "none"}', "steps"),
    "a step no object": ('{"steps": [1]}', "steps.0"),
    "dangling": (
        '{"steps": [{"stepId": "a", "actionType": "call_tool", "targetResource": "advance", '
        '"parameters": {"stage": "x", "token": "${zz.token}"}}]}',
        "zz",
    ),
}


@pytest.mark.parametrize(("wrong", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_reply_that_does_not_parse_is_asked_for_once_more(chain, wrong, said):
    scenario = chain(2)
    run, engine = finished(scenario, [wrong, reply(scenario)])
    assert run.verdict.success
    assert (len(engine.requests), run.state.parse_failures, run.state.lm_calls) == (2, 1, 2)
    assert "the reply before was" in engine.prompts[1]
    assert said in engine.prompts[1]
    assert "the reply before was" not in engine.prompts[0]
    [plan] = [s for s in run.spans if s.kind == "decision" and s.name == "plan"]
    assert len(plan.attributes["parse_failures"]) == 1
    kept = next(s for s in run.spans if s.kind == "lm").output
    assert kept["message"]["parts"][0]["text"] == wrong  # the raw reply


@pytest.mark.parametrize(("wrong", "said"), MISTAKES.values(), ids=MISTAKES)
def test_twice_is_an_honest_end(chain, wrong, said):
    run, engine = finished(chain(), [wrong, wrong])
    state = run.state
    assert (len(engine.requests), state.parse_failures, state.stopped_by) == (2, 2, "no_plan")
    assert said in state.error
    assert state.task_plan is None
    assert state.tool_calls == 0
    assert state.final_response == f"Your request could not be carried out: {state.error}"
    assert "Traceback" not in state.final_response
    assert not run.verdict.success
    assert run.replay().identical


def test_a_fence_is_taken_off(chain):
    scenario = chain(2)
    run, _ = finished(scenario, [f"```json\n{reply(scenario)}\n```"])
    assert (run.verdict.success, run.state.parse_failures) == (True, 0)


# ---- no reply --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (cut_off('{"steps": ['), "cut off at the token limit"),
        (refused("No way."), "declined to answer: 'No way.'"),
        (rate_limited(3), "too many requests"),
    ],
)
def test_no_reply_is_an_honest_end(chain, answer, said):
    run, engine = finished(chain(), [answer], responder="lm")
    state = run.state
    assert said in state.error
    assert len(engine.requests) == 1  # neither asked again nor asked to tell of it
    assert (state.parse_failures, state.lm_calls, state.stopped_by) == (0, 1, "no_plan")
    assert state.final_response.startswith("Your request could not be carried out: ")
    assert said in state.final_response
    [span] = [s for s in run.spans if s.kind == "lm"]
    assert said in span.error
    assert run.replay().identical
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("kind", "calls", "said"),
    [
        ("lm_malformed", 2, "no JSON document"),
        ("lm_cut_off", 1, "cut off"),
        ("lm_refused", 1, "declined"),
    ],
)
@pytest.mark.parametrize("by_rate", [True, False])
def test_faults_of_the_model_end_a_run_honestly(chain, kind, calls, said, by_rate):
    scenario = chain(2)
    plan = al.FaultPlan(kinds={kind: 1.0}, rate=1.0) if by_rate else al.FaultPlan(
        targets=(al.TargetedFault(tool="lm", kind=kind),)
    )  # fmt: skip
    run, engine = finished(scenario, lambda r, n: reply(scenario), faults=plan, responder="lm")
    state = run.state
    assert said in state.error
    assert (state.lm_calls, len(engine.requests), state.tool_calls) == (calls, calls, 0)
    assert [(d.tool, str(d.fault.kind)) for d in state.delivered] == [("lm", kind)] * calls
    assert state.final_response.startswith("Your request could not be carried out: ")
    assert sum(state.lm_prompts.values()) == calls
    told = run.replay()
    assert told.identical, told.divergence
    assert len(engine.requests) == calls


def test_a_targeted_fault_of_one_asking_is_repaired_by_the_next(chain):
    scenario = chain(2)
    target = al.TargetedFault(tool="lm", kind="lm_malformed", occurrence=0, before=0.1)
    run, engine = finished(
        scenario, lambda r, n: reply(scenario), faults=al.FaultPlan(targets=(target,))
    )
    # The second asking holds the parse error, so it is another prompt: its occurrence is 0 too.
    assert len(engine.requests) == 2
    assert run.state.parse_failures == 2


def test_tool_faults_leave_the_model_alone(chain):
    scenario = chain(2)
    run, _ = finished(scenario, lambda r, n: reply(scenario), fault_rate=1.0, strategy="never")
    assert run.state.error is None
    assert dict(run.state.lm_prompts) == {}
    assert all(d.tool != "lm" for d in run.state.delivered)


def test_a_replan_without_a_reply_keeps_what_was_done(travel):
    once = al.FaultPlan(targets=(fault("book_hotel"),))
    run, _ = finished(travel, [reply(travel), refused()], strategy="on_error", faults=once)
    state = run.state
    assert state.stopped_by == "no_plan"
    assert "declined" in state.error
    assert "3 of 6 steps were completed." in state.final_response
    assert "Error: scripted/model declined to answer" in state.final_response


# ---- what it costs ---------------------------------------------------------------------------


def test_time_and_tokens_follow_the_declared_formula(chain):
    from agentlab.lab.talk import SECONDS_A_CALL, SECONDS_A_TOKEN

    scenario = chain(2)
    wrong = "one two three"
    run, engine = started(scenario, [wrong, reply(scenario)])
    run.run_until("plan_execution")
    out = [3, len(reply(scenario).split())]
    read = [len(p.split()) for p in engine.prompts]
    assert run.state.lm_tokens == sum(out) + sum(read)
    expected = [SECONDS_A_CALL + SECONDS_A_TOKEN * n for n in out]
    assert run.state.now == pytest.approx(sum(expected))
    spans = [s for s in run.spans if s.kind == "lm"]
    assert [s.sim_end - s.sim_start for s in spans] == pytest.approx(expected)
    assert [s.attributes["usage"]["output_tokens"] for s in spans] == out


def test_a_bound_on_tokens_stops_the_run(chain):
    from agentlab.minds.strategies.named import get_strategy

    scenario = chain(3)
    bounded = get_strategy("on_error").within(lm_tokens=10)
    run, _ = finished(scenario, [reply(scenario)], strategy=bounded)
    assert run.state.stopped_by == "lm_tokens"
    assert "the limit of LM tokens was reached" in run.state.final_response


# ---- the schema ------------------------------------------------------------------------------


def tools(name):
    return {t.name: t for t in get_environment(name).tools()}


@pytest.mark.parametrize("suite", SUITES)
def test_every_reference_plan_fits_the_schema(suite):
    checks = {}
    for scenario in load_suite(suite):
        name = scenario.environment
        if name not in checks:
            checks[name] = schema_validator(plan_schema(tools(name)))
        if scenario.reference is not None and len(scenario.reference.steps) <= MAX_STEPS:
            errors = list(checks[name].iter_errors(json.loads(reply(scenario))))
            assert errors == [], scenario.id


def test_the_shipped_suites_fit_the_bound_on_steps():
    long = [
        s.id
        for name in SUITES
        for s in load_suite(name)
        if s.reference is not None and len(s.reference.steps) > MAX_STEPS
    ]
    assert long == []


def test_what_is_no_plan_does_not_fit(travel):
    good = json.loads(reply(travel))
    check = schema_validator(plan_schema(tools("travel")))

    def fits(**step):
        changed = json.loads(json.dumps(good))
        changed["steps"][0] |= step
        return check.is_valid(changed)

    assert fits()
    assert not fits(targetResource="search_hotel")
    assert not fits(actionType="fly")
    assert not fits(parameters={})
    assert not fits(parameters={"city": "Oslo", "stars": 3})
    assert not fits(parameters={"city": 3})
    assert not fits(importance=1)
    assert not fits(dependencies=["a"] * 7)
    assert not fits(dependencies="a")
    assert not check.is_valid(good | {"steps": good["steps"][:1] * (MAX_STEPS + 1)})
    assert not check.is_valid(good | {"more": 1})
    assert not check.is_valid({"steps": []})
    flights = {"origin": "${a.b}", "destination": "Oslo", "day": "${a.day}"}
    assert fits(targetResource="search_flights", parameters=flights)
    assert not fits(targetResource="search_flights", parameters=flights | {"day": -1})
    assert not fits(targetResource="search_flights", parameters=flights | {"day": [1]})
    assert not fits(targetResource="search_hotels", parameters=flights)


def test_every_value_may_be_a_reference():
    colour = {"type": "string", "enum": ["red", "blue"]}
    tool = Tool("t", parameters=object_schema(colour=colour, n={"type": "integer"}, l={
        "type": "array", "items": {"type": "array", "items": {"type": "number"}}}))  # fmt: skip
    check = schema_validator(plan_schema({"t": tool}))
    values = {"colour": "${a.c}", "n": "${a.n}", "l": "${a.l}"}
    step = {
        "stepId": "s", "actionType": "call_tool", "targetResource": "t", "dependencies": [],
        "parameters": values,
    }  # fmt: skip
    assert check.is_valid({"summary": "", "steps": [step], "answer": None})
    step["parameters"] = {"colour": "red", "n": 2, "l": [[1.5]]}
    assert check.is_valid({"summary": "", "steps": [step], "answer": None})


def lists_of(schema, where="plan"):
    if isinstance(schema, dict):
        if "array" in str(schema.get("type")):
            yield where, schema.get("maxItems")
        for key, inner in schema.items():
            yield from lists_of(inner, f"{where}.{key}")
    elif isinstance(schema, list):
        for i, inner in enumerate(schema):
            yield from lists_of(inner, f"{where}.{i}")


@pytest.mark.parametrize("world", ["chain", "travel", "blocks"])
def test_every_list_is_bounded_at_every_level(world):
    inner = {"type": ["array", "null"], "items": {"type": "array", "maxItems": 2}}
    deep = {"type": "array", "items": {"type": "object", "properties": {"more": inner}}}
    more = Tool("deep", parameters=object_schema(l=deep))
    schema = plan_schema({**tools(world), "deep": more})
    found = dict(lists_of(schema))
    assert found["plan.properties.steps"] == MAX_STEPS
    assert None not in found.values(), found
    assert len(found) >= 3 + len(tools(world))
    assert "maxItems" not in deep | inner  # the tool's own schema is as it was


def test_one_planner_serves_labs_with_other_tools(chain, travel):
    planner = Structured()
    for scenario in (chain(2), travel, chain(3), travel):
        run, engine = finished(scenario, lambda r, n, s=scenario: reply(s), planner=planner)
        assert run.verdict.success
        sent = json.dumps(engine.requests[0].config.response_format)
        assert all(f'"{name}"' in sent for name in run.lab.tools)


# ---- how the endpoint is asked ---------------------------------------------------------------


def test_the_schema_is_sent_or_told_and_never_both(chain):
    scenario = chain(2)
    for sends in (True, False):
        model = scripted(lambda r, n: reply(scenario), response_schema=sends)
        run, engine = finished(scenario, None, model=model)
        assert run.verdict.success
        sent = json.dumps(engine.requests[0].config.response_format or {}, default=str)
        assert ("advance_slowly" in sent) is sends
        assert ('"additionalProperties"' in engine.prompts[0]) is not sends
        assert "Reply with one JSON document, the plan" in engine.prompts[0]


# ---- the program -----------------------------------------------------------------------------


def test_the_program_is_a_module_that_can_be_saved_and_loaded(tmp_path, chain):
    path = tmp_path / "planner.json"
    program = PlanProgram("Plan, but only on Tuesdays.")
    assert isinstance(program, dspy.Module)
    program.save(str(path))
    scenario = chain(2)
    run, engine = finished(
        scenario, lambda r, n: reply(scenario), planner=f"structured(program={str(path)!r})"
    )
    assert run.verdict.success
    assert engine.prompts[0].startswith("Plan, but only on Tuesdays.")
    again = PlanProgram()
    again.load(str(path))
    assert again.dump_state() == program.dump_state()


UNREADABLE = {
    "no JSON": "{", "other JSON": "[1]", "a number without end": f'{{"x": {"1" * 5000}}}',
    "no finite number": '{"x": 1e999}', "a key twice": '{"x": 1, "x": 2}',
    "nested without end": '{"x":' + "[" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("what", ["no such file", "a pickle", *UNREADABLE])
def test_a_program_that_cannot_be_read(tmp_path, what):
    path = tmp_path / ("p.pkl" if what == "a pickle" else "p.json")
    if what != "no such file":
        path.write_text(UNREADABLE.get(what, "x"))
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        Structured(path)
    with pytest.raises(StudyError, match="structured"):
        al.grid(planner=f"structured(program={str(path)!r})", lm="scripted:none.json")


def test_it_is_optimised_offline_and_used(tmp_path, chain):
    learnt = chain(2, seed=5)
    asked = scripted(lambda r, n: reply(learnt))
    example = dspy.Example(
        schema=plan_schema(tools("chain")), task=learnt.task, tools="- advance", known="{}",
        situation="Nothing has been done yet.",
    ).with_inputs("schema", "task", "tools", "known", "situation")  # fmt: skip
    before = dict(dspy.settings.config) if hasattr(dspy.settings, "config") else None
    with dspy.context(lm=asked.lm(), disable_history=True):
        optimizer = dspy.BootstrapFewShot(
            metric=lambda e, p, trace=None: len(p.plan["steps"]) == 2, max_bootstrapped_demos=1
        )
        better = optimizer.compile(PlanProgram(), trainset=[example])
    assert len(better.write.demos) == 1
    path = tmp_path / "better.json"
    better.save(str(path))
    scenario = chain(3)
    run, engine = finished(
        scenario, lambda r, n: reply(scenario), planner=f"structured({str(path)!r})"
    )
    assert run.verdict.success
    [request] = engine.requests
    assert len(request.messages) == 3  # the demonstration's two, then the task
    assert learnt.task in request.messages[0].text
    assert json.loads(request.messages[1].text) == json.loads(reply(learnt))
    assert scenario.task in request.messages[2].text
    if before is not None:
        assert dict(dspy.settings.config) == before


# ---- who may be asked ------------------------------------------------------------------------


def test_a_lab_without_a_model_is_refused(chain):
    with pytest.raises(ConfigError, match="planner 'structured' asks a language model"):
        al.Lab(chain(), planner="structured")
    with pytest.raises(ConfigError, match="strategy 'ask_on_error' asks a language model"):
        al.Lab(chain(), strategy="ask_on_error")
    for mind in ("reflector", "responder"):
        with pytest.raises(ConfigError, match=f"the {mind} 'lm' asks a language model"):
            al.Lab(chain(), **{mind: "lm"})
    lab = al.Lab(chain())
    with pytest.raises(ConfigError, match="asks a language model"):
        lab.bind(planner="structured")
    with pytest.raises(UnknownNameError, match="did you mean 'rules'"):
        al.Lab(chain(), reflector="rule")


def test_a_planner_object_is_the_same_arm_in_every_process(chain, tmp_path):
    """A study keys its cells by the arm, so it goes on elsewhere only when the digest is stable."""
    import subprocess
    import sys

    code = (
        "from agentlab.minds.planners.structured import PlanProgram, Structured\n"
        "from agentlab.study.grid import Arm\n"
        "print(Arm(planner=Structured(PlanProgram('Plan.'))).to_json()['planner']['digest'])"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = al.grid(planner=Structured(PlanProgram("Plan.")), lm="scripted:" + script(tmp_path))
    other = al.grid(planner=Structured(PlanProgram("Plot.")), lm="scripted:" + script(tmp_path))
    assert here[0].to_json()["planner"]["digest"] == there.stdout.strip()
    assert here[0].to_json() != other[0].to_json()


def script(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('["x"]')
    return str(path)


def test_a_programs_own_model_is_not_asked(chain):
    own = scripted([])
    program = PlanProgram()
    program.set_lm(own.lm())
    scenario = chain(2)
    run, engine = finished(scenario, [reply(scenario)], planner=Structured(program))
    assert run.verdict.success
    assert own.engine.requests == []
    assert len(engine.requests) == 1
    assert program.get_lm() is not None  # the user's own program is as it was
