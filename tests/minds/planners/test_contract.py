"""``contract``: the planner by itself and in a lab, with scripted models."""

from __future__ import annotations

import json
import pickle

import pytest

import agentlab as al
from agentlab.base.schemas import schema_validator
from agentlab.errors import (
    ConfigError,
    LMCutOff,
    LMRateLimited,
    LMRefused,
    LMTimeout,
    PlanValidationError,
    ScriptExhausted,
    StudyError,
)
from agentlab.lm.model import Model
from agentlab.lm.scripted import cut_off, rate_limited, refused, say, scripted, timed_out
from agentlab.lm.serde import lm15, load_dspy
from agentlab.minds.planners.contract import Contract, bindings_schema
from agentlab.minds.planners.contract_graph import (
    ContractPlanner,
    ContractProgram,
    PlanMode,
    SpecRequest,
    graph_schema,
)
from agentlab.plans.contract.codec import PlanCodec
from agentlab.plans.contract.spec import PlanCapability, PlanStepStatus
from agentlab.plans.contract.validator import PlanValidator
from agentlab.state.config import AgentConfig, AgentRegistry, AgentSettings

dspy = load_dspy()


@al.tool
def search(query: str) -> str:
    """Look it up."""
    raise AssertionError("a planner executes nothing")


SEARCH = PlanCapability.tool(search, {"type": "string"})
WRITER = PlanCapability.agent(
    AgentConfig(id="writer", description="writes"), {"type": "object"}, {"type": "string"}
)
RULES = PlanValidator([SEARCH, WRITER])
ASKED = SpecRequest(objective="Research two sources and summarise them", revision=3)


def node(step_id, *dependencies, target="tool:search", **fields):
    return {
        "stepId": step_id, "objective": f"Do {step_id}.", "executionTarget": target,
        "dependencies": list(dependencies), "completionCriteria": "It is done.", **fields,
    }  # fmt: skip


RULED = {"reflector": "rules", "responder": "template"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
NODES = [node("summary", "a", "b", target="agent:writer"), node("a"), node("b")]
GRAPH = json.dumps({"steps": NODES})


def planned(*script, request=ASKED, rules=RULES, **options):
    model = scripted(list(script), **options)
    spec = ContractPlanner(rules, model).plan(request)
    assert len(model.engine.requests) == 1
    return spec, model.engine


def told(*script, **options):
    """(step, field) of what is told of a reply; the model was asked once."""
    model = scripted(list(script) * 2)
    with pytest.raises(PlanValidationError) as e:
        ContractPlanner(RULES, model).plan(ASKED, **options)
    assert len(model.engine.requests) == 1
    if isinstance(script[0], str):
        assert e.value.reply == script[0]  # what was said can be looked at
    return {(v.step, v.field) for v in e.value.violations}


# ---- DIRECT ----------------------------------------------------------------------------------


def test_direct_asks_nobody_and_executes_nothing():
    model = scripted([])
    request = SpecRequest(
        objective="Find it", revision=7, mode=PlanMode.DIRECT, direct_target="tool:search"
    )
    spec = ContractPlanner(RULES, model).plan(request)
    assert model.engine.requests == []
    assert (spec.revision, spec.objective) == (7, "Find it")
    [step] = spec.steps
    assert (step.step_id, step.execution_target, step.dependencies) == (
        "step-1",
        "tool:search",
        (),
    )
    assert step.status is PlanStepStatus.PENDING
    assert (step.input_schema, step.output_schema) == (search.parameters, {"type": "string"})
    assert RULES.validate_generated(spec) is spec
    assert ContractPlanner(RULES).plan(request) == spec  # no model is needed


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mode": "DIRECT"}, "expected a registered direct target, got None"),
        ({"mode": "DIRECT", "direct_target": ""}, "expected a registered direct target"),
        ({"mode": "DIRECT", "direct_target": "tool:serach"}, "did you mean 'tool:search'"),
        ({"mode": "DIRECT", "direct_target": "search"}, "known: agent:writer, tool:search"),
        ({"mode": "DECOMPOSE", "direct_target": "tool:search"}, "expected no direct target"),
        ({"revision": 0}, "expected a revision of at least 1, got 0"),
        ({"objective": " "}, "the objective is blank"),
    ],
)
def test_a_request_that_contradicts_itself(fields, problem):
    model = scripted([GRAPH])
    with pytest.raises(ConfigError, match=problem):
        ContractPlanner(RULES, model).plan(SpecRequest(**{"objective": "x", **fields}))
    assert model.engine.requests == []


# ---- DECOMPOSE -------------------------------------------------------------------------------


def test_the_model_makes_the_graph():
    spec, engine = planned(GRAPH)
    assert (spec.revision, spec.objective) == (ASKED.revision, ASKED.objective)
    assert [s.step_id for s in spec.steps] == ["summary", "a", "b"]
    assert spec.steps[0].dependencies == ("a", "b")
    assert spec.steps[0].input_schema == {"type": "object"}
    assert spec.steps[1].input_schema == search.parameters
    [prompt] = engine.prompts
    assert ASKED.objective in prompt
    assert "- tool:search(query: string) -> string: Look it up." in prompt
    assert "- agent:writer() -> string: writes" in prompt
    assert PlanCodec().decode(PlanCodec().encode(spec)) == spec


def test_the_schema_is_sent_or_told_and_never_both():
    for sends in (True, False):
        _, engine = planned(GRAPH, response_schema=sends)
        sent = json.dumps(engine.requests[0].config.response_format or {}, default=str)
        assert ("completionCriteria" in sent) is sends
        assert ('"additionalProperties"' in engine.prompts[0]) is not sends


def test_the_graph_fits_its_schema():
    fits = schema_validator(graph_schema(RULES)).is_valid
    assert fits(json.loads(GRAPH))
    assert not fits({"steps": []})
    assert not fits({"steps": [node("a", target="tool:other")]})
    assert not fits({"steps": [{**node("a"), "status": "COMPLETED"}]})
    assert fits({"steps": []}) is False
    nothing = schema_validator(graph_schema(PlanValidator((), min_steps=0)))
    assert nothing.is_valid({"steps": []})
    assert not nothing.is_valid({"steps": [node("a")]})


def test_a_fence_is_taken_off_as_everywhere():
    assert planned(f"```json\n{GRAPH}\n```")[0] == planned(GRAPH)[0]


def whole():
    return json.loads(PlanCodec().encode(planned(GRAPH)[0]))


def test_a_model_may_write_the_whole_document():
    assert planned(json.dumps(whole()))[0] == planned(GRAPH)[0]


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("schemaVersion", 2, "schemaVersion"),
        ("revision", 4, "revision"),
        ("objective", "Buy shares", "objective"),
        ("note", 1, "note"),
    ],
)
def test_what_the_application_says_is_not_the_models(key, value, field):
    assert told(json.dumps({**whole(), key: value})) == {(None, field)}


def test_an_objective_beside_a_graph_is_checked_too():
    assert planned(json.dumps({"objective": ASKED.objective, "steps": NODES}))[0]
    assert told(json.dumps({"objective": "Buy shares", "steps": NODES})) == {(None, "objective")}


@pytest.mark.parametrize("key", ["schemaVersion", "revision", "objective", "steps"])
def test_a_whole_document_with_a_field_missing(key):
    assert told(json.dumps({k: v for k, v in whole().items() if k != key})) in (
        {(None, key)},
        {(None, "schemaVersion")},
    )


@pytest.mark.parametrize(
    "key", ["inputSchema", "outputSchema", "status", "result", "error", "completionCriteria"]
)
def test_a_whole_document_with_a_field_of_a_step_missing(key):
    document = whole()
    del document["steps"][1][key]
    assert told(json.dumps(document)) == {("a", key)}


@pytest.mark.parametrize(
    ("claim", "field"),
    [
        ({"status": "COMPLETED"}, "status"),
        ({"status": "done"}, "status"),
        ({"result": "found"}, "result"),
        ({"error": ""}, "error"),
        ({"inputSchema": {}}, "inputSchema"),
        ({"outputSchema": {"$ref": "http://127.0.0.1:1/"}}, "outputSchema"),
        ({"executionTarget": "tool:shell"}, "executionTarget"),
        ({"executionTarget": "shell"}, "executionTarget"),
        ({"executionTarget": None}, "executionTarget"),
        ({"objective": " "}, "objective"),
        ({"dependencies": ["gone"]}, "dependencies"),
        ({"dependencies": ["a"]}, "dependencies"),
        ({"parameters": {}}, "parameters"),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["graph", "whole"])
def test_a_claim_is_checked_and_never_overwritten(claim, field, form):
    document = {"steps": [dict(n) for n in NODES]} if form == "graph" else whole()
    document["steps"][1] |= claim
    assert told(json.dumps(document)) == {("a", field)}


def test_a_plan_that_is_too_long_or_too_deep():
    chain = [node(f"s{i}", *([f"s{i - 1}"] if i else [])) for i in range(17)]
    assert told(json.dumps({"steps": chain})) == {("s16", "dependencies")}
    assert told(json.dumps({"steps": [node(f"s{i}") for i in range(65)]})) == {(None, "steps")}


@pytest.mark.parametrize(
    "text",
    ["Sure! Here is the plan.", GRAPH + GRAPH, GRAPH[:-1], "null", "[]", '"x"', "{" * 5000,
     '{"steps": [{"stepId": NaN}]}'],
)  # fmt: skip
def test_a_reply_that_is_no_document(text):
    assert {f for _, f in told(text)} <= {"(document)", "stepId"}


def test_a_graph_that_is_none():
    assert told("{}") >= {(None, "steps")}
    assert told('{"steps": {}}') >= {(None, "steps")}
    assert told('{"steps": [1]}') == {("steps[0]", "(step)")}
    assert told('{"steps": [{"stepId": "a", "stepId": "b"}]}') == {("b", "stepId")}


# ---- one reply of text, or none --------------------------------------------------------------


def test_an_empty_reply_is_refused():
    for text in ("", " \n"):
        assert told(say(text)) == {(None, "(reply)")}


class Saying:
    """An engine whose reply holds these parts."""

    def __init__(self, *parts):
        self.parts, self.calls = parts, 0

    def complete(self, request):
        self.calls += 1
        types = lm15()
        return types.Response(
            id=None, model=request.model, message=types.Message.assistant(list(self.parts)),
            finish_reason="tool_call", usage=types.Usage(input_tokens=1, output_tokens=1),
        )  # fmt: skip

    def close(self):
        pass


@pytest.mark.parametrize("said", [(), (GRAPH,)], ids=["alone", "beside a plan"])
def test_a_tool_call_is_refused(said):
    types = lm15()
    call = types.ToolCallPart(id="1", name="search", input={"query": "x"})
    engine = Saying(*map(types.TextPart, said), call)
    with pytest.raises(PlanValidationError, match="expected a plan, got a tool call"):
        ContractPlanner(RULES, Model("scripted/caller", engine)).plan(ASKED)
    assert engine.calls == 1


class Talkative(dspy.BaseLM):
    """An LM of somebody else's that gives several generations, or none."""

    def __init__(self, *texts, **settings):
        super().__init__(model="their/model", **settings)
        self.texts, self.calls = texts, 0

    def forward(self, prompt=None, messages=None, **settings):
        self.calls += 1
        choices = [{"message": {"content": t}, "finish_reason": "stop"} for t in self.texts]
        return {"choices": choices, "usage": {}, "model": self.model}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_several_generations_are_refused():
    for texts, number in (((GRAPH, GRAPH), 2), ((), 0)):
        lm = Talkative(*texts)
        with (
            dspy.context(lm=lm),
            pytest.raises(PlanValidationError, match=f"one generation, got {number}"),
        ):
            ContractPlanner(RULES).plan(ASKED)
        assert lm.calls == 1
    with dspy.context(lm=Talkative(GRAPH)):
        assert ContractPlanner(RULES).plan(ASKED) == planned(GRAPH)[0]


@pytest.mark.parametrize(
    "settings",
    [{"tools": [{"type": "function"}]}, {"functions": [{}]}, {"tool_choice": "auto"}],
    ids=str,
)
def test_a_model_with_tools_is_not_asked(settings):
    lm = Talkative(GRAPH, **settings)
    with (
        dspy.context(lm=lm),
        pytest.raises(ConfigError, match=f"got one with {next(iter(settings))}"),
    ):
        ContractPlanner(RULES).plan(ASKED)
    assert lm.calls == 0


def test_a_programs_own_model_is_not_asked():
    own, given = scripted([]), scripted([GRAPH])
    program = ContractProgram()
    program.set_lm(own.lm())
    assert ContractPlanner(RULES, given, program).plan(ASKED).steps
    assert own.engine.requests == []
    assert program.get_lm() is not None  # the user's own program is as it was


def test_nobody_to_ask():
    with dspy.context(lm=None), pytest.raises(ConfigError, match="asks a language model"):
        ContractPlanner(RULES).plan(ASKED)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (rate_limited(3), LMRateLimited),
        (timed_out(), LMTimeout),
        (refused(), LMRefused),
        (cut_off(GRAPH[:40]), LMCutOff),
        (ZeroDivisionError("a bug of the provider's"), ZeroDivisionError),
    ],
)
def test_what_a_provider_raises_passes_through(reply, error):
    model = scripted([reply, GRAPH])
    with pytest.raises(error):
        ContractPlanner(RULES, model).plan(ASKED)
    assert len(model.engine.requests) == 1


def test_a_script_that_is_over():
    with pytest.raises(ScriptExhausted):
        ContractPlanner(RULES, scripted([])).plan(ASKED)


def test_the_program_is_a_module_that_can_be_saved_and_loaded(tmp_path):
    path = tmp_path / "contract.json"
    ContractProgram("Plan on Tuesdays.", "Bind on Wednesdays.").save(str(path))
    again = Contract(str(path), max_steps=3)
    assert "Tuesdays" in again.program.write.signature.instructions
    there = pickle.loads(pickle.dumps(again))
    assert there.program.dump_state() == again.program.dump_state()
    assert there.options == {"max_steps": 3, "max_depth": 64}


# ---- in a lab --------------------------------------------------------------------------------


def replies(scenario, **changes):
    """What a model would say: the graph of the reference plan, then its bindings."""
    steps = scenario.reference.steps
    graph = [node(s.step_id, *s.dependencies, target=f"tool:{s.tool}") for s in steps]
    bound = {"parameters": {s.step_id: s.arguments for s in steps},
             "answer": scenario.reference.answer, **changes}  # fmt: skip
    return [json.dumps({"steps": graph}), json.dumps(bound)]


def finished(scenario, script, **options):
    model = scripted(script)
    options = {"planner": "contract", **RULED, **options}
    run = al.autonomous.start(al.Lab(scenario, lm=model, **options))
    run.finish()
    return run, model.engine


@pytest.mark.parametrize(
    "name", ["chain-medium-000", "travel-medium-000", "travel-hard-001", "blocks-medium-000"]
)
def test_a_contract_is_made_bound_and_carried_out(name):
    scenario = al.load_suite(name.split("-")[0])[name]
    run, engine = finished(scenario, replies(scenario))
    assert run.verdict.success, run.verdict.reasons
    assert (len(engine.requests), run.state.lm_calls, run.state.parse_failures) == (2, 2, 0)
    assert [s.step_id for s in run.plan.steps] == [s.step_id for s in scenario.reference.steps]
    for step in run.plan.steps:
        assert step.enforced
        assert step.expectation == run.lab.tools[step.target_resource].returns
    sent = [json.dumps(r.config.response_format) for r in engine.requests]
    assert all(f'"tool:{tool}"' in sent[0] for tool in run.lab.tools)
    assert all(f'"{s.step_id}"' in sent[1] for s in scenario.reference.steps)
    assert scenario.task in engine.prompts[0]
    assert scenario.task in engine.prompts[1]
    assert run.replay().identical


def test_the_bindings_fit_their_schema(chain):
    scenario = chain(3)
    _, engine = finished(scenario, replies(scenario))
    fits = schema_validator(engine.requests[1].config.response_format["schema"]).is_valid
    good = json.loads(replies(scenario)[1])
    assert fits(good)
    first = scenario.reference.steps[0].step_id
    assert not fits(
        {**good, "parameters": {k: v for k, v in good["parameters"].items() if k != first}}
    )
    assert not fits({**good, "parameters": {**good["parameters"], "other": {}}})
    assert bindings_schema(()) == bindings_schema([])


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ((0, "no plan"), "(document): not JSON"),
        ((0, json.dumps({"steps": [node("a", target="tool:fly")]})), "unknown capability"),
        ((0, json.dumps({"steps": [node("a", status="COMPLETED")]})), "a planner writes PENDING"),
        ((1, "no bindings"), "(document): not JSON"),
        ((1, "[]"), "bindings: the reply"),
        ((1, '{"parameters": {}}'), "bindings: the reply"),
        ((1, '{"parameters": {}, "answer": null}'), "parameters: "),
        ((1, '{"parameters": {"x": {}}, "answer": null}'), "step 'x', bindings: unknown step"),
        ((1, '{"parameters": {}, "answer": "${x"}'), "answer: "),
        ((1, lambda bound: bound.replace("${", "${gone_")), "names no known step"),
    ],
)  # fmt: skip
def test_a_reply_that_breaks_the_contract_is_told_and_asked_for_once_more(chain, broken, problem):
    """By the node, for this planner as for every other; the planner itself asks once."""
    scenario = chain(2)
    graph, bound = replies(scenario)
    which, text = broken
    text = text(bound) if callable(text) else text
    script = [text, graph, bound] if which == 0 else [graph, text, graph, bound]
    run, engine = finished(scenario, script)
    assert run.verdict.success
    assert run.state.parse_failures == 1
    assert len(engine.requests) == len(script)
    assert problem in engine.prompts[-2]
    assert f"The reply was: {text}" in engine.prompts[-2]
    [decision] = [s for s in run.recorder.of_kind("decision") if s.name == "plan"]
    assert problem in decision.attributes["parse_failures"][0]


def test_two_broken_replies_are_no_plan(chain):
    run, engine = finished(chain(2), ["no plan", "no plan either", "never asked"])
    assert len(engine.requests) == 2
    assert run.state.task_plan is None
    assert "(document)" in run.state.error


def test_nothing_to_do_is_a_plan_and_asks_for_no_bindings(chain):
    run, engine = finished(chain(), ['{"steps": []}'])
    assert len(engine.requests) == 1
    assert run.state.error is None
    assert run.plan.steps == ()


def test_a_replan_is_told_and_may_use_what_is_done(chain):
    scenario = chain(3)
    steps = scenario.reference.steps
    first, second, third = (s.step_id for s in steps)
    slow = [node(s.step_id, *s.dependencies, target=f"tool:{s.tool}") for s in steps]
    slow[1]["executionTarget"] = "tool:advance_slowly"
    rest = [node("redo", target="tool:advance"), node(third, "redo", target="tool:advance")]
    arguments = {s.step_id: s.arguments for s in steps}
    last = json.loads(json.dumps(arguments[third]).replace(f"{{{second}", "{redo"))
    answer = scenario.reference.answer
    again = {"parameters": {"redo": arguments[second], third: last}, "answer": answer}
    broken = al.TargetedFault(tool="advance_slowly", kind="error", persistence="permanent")
    run, engine = finished(
        scenario,
        [json.dumps({"steps": slow}), replies(scenario)[1],
         json.dumps({"steps": rest}), json.dumps(again)],
        strategy="on_error(1)", faults=al.FaultPlan(targets=(broken,)),
    )  # fmt: skip
    assert run.verdict.success, run.verdict.reasons
    assert len(engine.requests) == 4
    for prompt in engine.prompts[2:]:
        assert "Done (refer to these results by their step ids)" in prompt
        assert "advance_slowly" in prompt.split("Failed:")[1]
    assert run.plan.step("redo").dependencies == ()
    assert run.plan.step("redo").parameters["token"] == f"${{{first}.token}}"


def test_a_silent_fault_that_breaks_the_output_contract_fails_the_step(chain):
    """With other planners it is an event; under a contract the step is not done."""
    scenario = chain(2)
    faults = al.FaultPlan(
        targets=(al.TargetedFault(tool="advance", kind="renamed_field", visibility="silent"),)
    )
    run, _ = finished(scenario, replies(scenario), strategy="never", faults=faults)
    assert run.plan.steps[0].status == "failed"
    assert "required property" in run.plan.steps[0].error


def test_it_plans_over_sub_agents_and_texts(notes):
    tool = notes.tool("note", parameters={"$schema": DRAFT_7}, returns={"$schema": DRAFT_7})
    steps = [node("w", target="tool:llm_generate"), node("n", "w", target="tool:note")]
    bound = {"parameters": {"w": {"prompt": "hi"}, "n": {"text": "${w}"}}, "answer": "${w}"}
    model = scripted([json.dumps({"steps": steps}), json.dumps(bound), "written"])
    lab = al.Lab(
        tools=[tool], planner="contract", lm=model, responder="template", reflector="rules"
    )
    run = al.autonomous.start(lab, "write it")
    run.finish()
    assert [(s.action_type, s.target_resource) for s in run.plan.steps] == [
        ("llm_generate", ""), ("call_tool", "note"),
    ]  # fmt: skip
    assert run.state.answer == "written"
    assert notes.made == [("note", {"text": "written"})]


def test_a_tool_that_cannot_be_a_capability_is_no_plan(notes):
    tool = notes.tool("far", parameters={"type": "object", "$ref": "http://127.0.0.1:1/x"})
    model = scripted([])
    lab = al.Lab(
        tools=[tool], planner="contract", lm=model, responder="template", reflector="rules"
    )
    run = al.autonomous.start(lab, "write it")
    run.finish()
    assert model.engine.requests == []
    assert "capability 'tool:far'" in run.state.error


def test_a_lab_without_a_model_is_refused(chain):
    with pytest.raises(ConfigError, match="planner 'contract' asks a language model"):
        al.Lab(chain(), planner="contract")


def test_any_text_is_a_step_id(notes):
    """Ids are property names of the schema that asks for bindings."""
    ids = ["required", "type", "$ref", "读", "1"]
    steps = [node(i, target="tool:note") for i in ids]
    bound = {"parameters": {i: {"n": i} for i in ids}, "answer": "${1.n}"}
    model = scripted([json.dumps({"steps": steps}), json.dumps(bound)])
    lab = al.Lab(tools=[notes.tool()], planner="contract", lm=model, **RULED)
    run = al.autonomous.start(lab, "go")
    run.finish()
    sent = model.engine.requests[1].config.response_format["schema"]
    assert schema_validator(sent).is_valid(bound)
    assert [made[1]["n"] for made in notes.made] == ids
    assert run.state.answer == "1"


def test_a_blank_task_is_no_plan(notes):
    model = scripted([])
    run = al.autonomous.start(
        al.Lab(tools=[notes.tool()], planner="contract", lm=model, **RULED), " "
    )
    run.finish()
    assert "the task is blank" in run.state.error
    assert model.engine.requests == []


def test_schemas_of_every_form_are_told_and_asked_for(notes):
    definitions = {"id": {"$ref": "#/$defs/text"}, "text": {"type": "string"}, "any": True}
    schema = {
        "type": "object", "$defs": definitions, "definitions": {"n": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/$defs/id"}, "b": True, "c": {"$ref": "#/$defs/any"},
                       "d": {"$ref": "#/definitions/n"}, "e": {"$ref": "#"}, "$ref": {}},
    }  # fmt: skip
    tool = notes.tool("odd", parameters=schema, returns={"type": "array", "items": True})
    bound = {"parameters": {"x": {"a": "t", "b": 1, "d": 2}}, "answer": None}
    model = scripted([json.dumps({"steps": [node("x", target="tool:odd")]}), json.dumps(bound)])
    run = al.autonomous.start(al.Lab(tools=[tool], planner="contract", lm=model, **RULED), "go")
    run.finish()
    assert (
        "- tool:odd(a?: any, b?: any, c?: any, d?: any, e?: any, $ref?: any) -> [any]"
        in (model.engine.prompts[0])
    )
    sent = model.engine.requests[1].config.response_format["schema"]
    inner = sent["properties"]["parameters"]["properties"]["x"]["properties"]
    assert {"$ref": "#/$defs/text"} in inner["a"]["anyOf"]
    assert {"$ref": "#/$defs/n"} in inner["d"]["anyOf"]
    assert sent["$defs"]["text"] == {"type": "string"}
    assert sent["$defs"]["n"] == {"type": "integer"}
    assert schema_validator(sent).is_valid(bound)
    assert run.plan.steps[0].status == "failed"  # what the tool gave is no list
    assert notes.made == [("odd", {"a": "t", "b": 1, "d": 2})]


def test_its_arguments(tmp_path):
    with pytest.raises(StudyError, match="max_steps: expected"):
        al.grid(planner="contract(max_steps=0)", lm="scripted:x.json")
    with pytest.raises(StudyError, match="max_step"):
        al.grid(planner="contract(max_step=3)", lm="scripted:x.json")
    with pytest.raises(ConfigError, match=r"saved as \.json"):
        Contract("p.pkl")
    assert Contract(max_steps=4).options == {"max_steps": 4, "max_depth": 64}


def test_it_is_an_arm_of_a_study(tmp_path, chain):
    scenario = chain(2)
    graph, bound = replies(scenario)
    path = tmp_path / "script.json"
    script = [{"when": "A plan was made of steps", "say": bound}, {"when": "", "say": graph}]
    path.write_text(json.dumps(script))
    arms = al.grid(planner=["contract", "contract(max_steps=1)"], strategy="never",
                   lm=f"scripted:{path}", **RULED)  # fmt: skip
    runs = al.Study(arms, suite=[scenario], seeds=1, fault_rate=[0], out=tmp_path / "out").run(
        processes=1
    )
    assert dict(zip(runs.planner, runs.success, strict=True)) == {
        "contract": True, "contract(max_steps=1)": False,
    }  # fmt: skip
    assert runs.lm_calls.tolist() == [2, 2]  # the second was refused twice, and asked no bindings


# ---- what is kept of it ----------------------------------------------------------------------


def test_the_contract_of_a_run_is_kept_with_what_its_revisions_changed(chain):
    scenario = chain(3)
    steps = scenario.reference.steps
    first, second, third = (s.step_id for s in steps)
    slow = [node(s.step_id, *s.dependencies, target=f"tool:{s.tool}") for s in steps]
    slow[1]["executionTarget"] = "tool:advance_slowly"
    rest = [node(second, target="tool:advance"), node("end", second, target="tool:advance")]
    arguments = {s.step_id: s.arguments for s in steps}
    again = {"parameters": {second: arguments[second], "end": arguments[third]}, "answer": None}
    broken = al.TargetedFault(tool="advance_slowly", kind="error", persistence="permanent")
    run, _ = finished(
        scenario,
        [json.dumps({"steps": slow}), replies(scenario)[1],
         json.dumps({"steps": rest}), json.dumps(again)],
        strategy="on_error(1)", faults=al.FaultPlan(targets=(broken,)),
    )  # fmt: skip
    kept = run.state.notes["contract"]
    codec = PlanCodec()
    spec = codec.read(kept["spec"])
    assert [s.step_id for s in spec.steps] == [s.step_id for s in run.plan.steps]
    assert [s.dependencies for s in spec.steps[1:]] == [(), (f"{second}_2",)]
    assert kept["revisions"] == [
        {"revision": 1, "kept": [], "added": [first, second, third], "removed": [], "changed": []},
        {"revision": 2, "kept": [first], "added": [f"{second}_2", "end"],
         "removed": [second, third], "changed": []},
    ]  # fmt: skip
    before = next(s.notes["contract"] for s in run.states if "contract" in s.notes)
    assert codec.read(before["spec"]).revision == 1
    assert run.fork(at=len(run.visited) - 1).state.notes == run.state.notes
    assert run.replay().identical


def test_a_note_that_is_no_contract_is_begun_anew(chain):
    scenario = chain(2)
    lab = al.Lab(scenario, planner="contract", lm=scripted(replies(scenario)), **RULED)
    run = al.autonomous.start(lab)
    run.edit(notes={"contract": {"spec": 3}})
    run.finish()
    assert [r["revision"] for r in run.state.notes["contract"]["revisions"]] == [1]


# ---- DIRECT in a lab -------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"parameters": {"n": 7}}])
def test_a_direct_contract_asks_nobody(notes, asked):
    tool = notes.tool("note", parameters={"type": "object", "properties": {"n": {}}})
    planner = Contract(direct="tool:note", **asked)
    run = al.autonomous.start(al.Lab(tools=[tool], planner=planner), "make a note")
    run.finish()
    assert [(s.step_id, s.target_resource) for s in run.plan.steps] == [("step-1", "note")]
    assert notes.made == [("note", asked.get("parameters", {}))]
    assert run.state.lm_calls == 0
    assert run.state.answer == run.plan.steps[0].result
    assert PlanCodec().read(run.state.notes["contract"]["spec"]).steps[0].step_id == "step-1"


def test_a_direct_contract_asks_for_parameters_that_it_must_have(notes):
    schema = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
    tool = notes.tool("note", parameters=schema)
    bound = {"parameters": {"step-1": {"n": "x"}}, "answer": None}
    model = scripted([json.dumps(bound)])
    lab = al.Lab(tools=[tool], planner='contract(direct="tool:note")', lm=model, **RULED)
    run = al.autonomous.start(lab, "note x")
    run.finish()
    assert notes.made == [("note", {"n": "x"})]
    assert len(model.engine.requests) == 1

    run = al.autonomous.start(al.Lab(tools=[tool], planner=Contract(direct="tool:note")), "go")
    run.finish()
    assert "asks a language model" in run.state.error


def test_a_direct_contract_with_an_agent_hands_the_task_over(notes):
    agents = AgentRegistry(
        agents=[AgentSettings(id="boss", sub_agents=("clerk",)), AgentSettings(id="clerk")]
    )
    lab = al.Lab(agent="boss", agents=agents, planner=Contract(direct="agent:clerk"))
    run = al.autonomous.start(lab, "file it")
    run.step()
    run.step()
    assert run.plan.steps[0].parameters == {"input": "file it"}


def test_a_direct_target_that_is_not_there_names_the_nearest(notes):
    run = al.autonomous.start(
        al.Lab(tools=[notes.tool("note")], planner=Contract(direct="tool:nota")), "go"
    )
    run.finish()
    assert "did you mean 'tool:note'" in run.state.error


def test_parameters_belong_to_a_direct_target():
    with pytest.raises(ConfigError, match="direct"):
        Contract(parameters={"n": 1})
