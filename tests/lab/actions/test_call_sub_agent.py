"""``call_sub_agent``: another agent's run inside a step: nested, charged, bounded, replayed."""

from __future__ import annotations

import json
import time

import pytest

import agentlab as al
from agentlab.environments.fault_plan import FaultPlan, TargetedFault
from agentlab.lm.scripted import scripted
from agentlab.lm.serde import prompt_text
from agentlab.lm.settings import ModelSettings
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.named import PLANNERS
from agentlab.minds.strategies.named import get_strategy
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings
from agentlab.trace.journal import EXECUTOR, Address


def ask(step_id, agent, *dependencies, **parameters):
    return {
        "stepId": step_id, "name": step_id, "actionType": "call_sub_agent",
        "targetResource": agent, "parameters": parameters, "dependencies": list(dependencies),
    }  # fmt: skip


def _maker(plan):
    return lambda: Fixed(plan, plan, plan)


@pytest.fixture
def planned(monkeypatch):
    """Register planners of given plans, which a registry can name."""

    def register(**plans):
        for name, plan in plans.items():
            monkeypatch.setitem(PLANNERS._own, name, _maker(plan))

    return register


def registry(*agents, **more):
    return AgentRegistry([AgentSettings(**a) for a in agents], **more)


NOTE = ToolSettings(id="note", name="note")


@pytest.fixture
def pair(planned, step):
    planned(p_worker={"steps": [step("look", parameters={"n": 7})], "answer": "${look.n}"})
    return registry(
        {"id": "boss", "sub_agents": ["worker"]},
        {"id": "worker", "planner": "p_worker", "tools": ["note"], "strategy": "retry(1)"},
        tools=[NOTE],
    )


OPTIONS = {}


@pytest.fixture(params=["simulated", "threads"], autouse=True)
def executor(request, monkeypatch):
    monkeypatch.setitem(OPTIONS, "executor", request.param)
    return request.param


def boss(agents, *plans, agent="boss", **options):
    options = {**OPTIONS, **options}
    return al.Lab(agent=agent, agents=agents, planner=Fixed(*plans), **options)


def test_its_response_and_answer_are_the_result(notes, pair, step):
    steps = [ask("w", "worker", input="find it"), step("use", parameters={"got": "${w.answer}"})]
    plan = {"steps": steps, "answer": "${w.response}"}
    run = al.autonomous.start(boss(pair, plan, tools=[notes.tool()]), "do it")
    state = run.finish()
    assert state.results["w"]["answer"] == 7
    assert "The answer is 7." in state.results["w"]["response"]
    assert state.answer == state.results["w"]["response"]
    assert [a for _, a in notes.made] == [{"n": 7}, {"got": 7}]


def calls(run):
    """Return where calls were written down, without what an executor notes of its own."""
    return [a.step_id for a, entry in run.journal.entries.items() if entry.name != EXECUTOR]


def test_its_trace_stands_under_the_step(notes, pair):
    run = al.autonomous.start(boss(pair, [ask("w", "worker")], tools=[notes.tool()]), "do it")
    run.finish()
    spans = {s.span_id: s for s in run.spans}
    inner = next(s for s in run.spans if s.kind == "run" and s.name == "worker")
    assert spans[inner.parent_id].name == "call_sub_agent"
    assert (inner.step_id, inner.input) == ("w", "do it")  # the user's input where none is given
    nodes = [s.name for s in run.spans if s.kind == "node" and s.parent_id == inner.span_id]
    assert nodes == ["load_config", "planning", "plan_execution", "reflection", "final_response"]
    [tool] = run.recorder.of_kind("tool")
    assert tool.step_id == "w/look"
    assert tool.visit == inner.visit == 2
    chain = []
    while tool.parent_id:
        tool = spans[tool.parent_id]
        chain.append(tool.kind)
    assert chain == ["action", "step", "node", "run", "action", "step", "node", "run"]


def test_what_it_took_is_charged(notes, pair, executor):
    run = al.autonomous.start(boss(pair, [ask("w", "worker")], tools=[notes.tool()]), "do it")
    state = run.finish()
    assert (state.tool_calls, state.executions) == (1, 1)
    assert state.now == 1.0 if executor == "simulated" else 0.0 < state.now < 1.0
    assert run.plan.step("w").status == "completed"


def test_in_threads_it_has_threads_of_its_own_and_the_clock_goes_on(notes, pair, step):
    tools = [notes.tool(), notes.tool("nap", do=lambda: time.sleep(0.1))]
    plan = [step("a", "nap"), ask("w", "worker", "a"), step("b", "nap")]
    lab = boss(pair, plan, tools=tools, workers=2, executor="threads")
    run = al.autonomous.start(lab, "do it")
    state = run.finish()
    assert [s.status for s in run.plan.steps] == ["completed"] * 3
    assert state.results["w"]["answer"] == 7
    [inner] = [s for s in run.recorder.of_kind("tool") if s.step_id == "w/look"]
    assert 0.1 <= inner.sim_start <= inner.sim_end <= state.now < 5
    made = len(notes.made)
    assert run.replay().identical
    assert len(notes.made) == made == 3


def test_it_is_replayed_and_resumed_without_calling_anything(notes, pair, tmp_path):
    lab = boss(pair, [ask("a", "worker"), ask("b", "worker")], tools=[notes.tool()])
    run = al.autonomous.start(lab, "do it")
    run.finish()
    assert len(notes.made) == 2
    assert sorted(calls(run)) == ["a#1/2:look", "b#1/2:look"]  # one address each
    report = run.replay()
    assert report.identical, report
    assert (report.served, len(notes.made)) == (2, 2)


def test_a_durable_run_with_a_sub_agent(notes, pair, tmp_path):
    lab = boss(pair, [ask("a", "worker"), ask("b", "worker")], tools=[notes.tool()])
    run = al.autonomous.start(lab, "do it", store=str(tmp_path / "s"))
    run.run_until(lambda s: "a" in s.results)
    again = al.Run.resume(str(tmp_path / "s"), lab)
    assert again.finish().results["b"]["answer"] == 7
    assert len(notes.made) == 2


def test_a_sub_agent_has_its_own_model_planner_strategy_and_tools(notes, pair):
    lab = boss(pair, [ask("w", "worker")], tools=[notes.tool(), notes.tool("other")])
    state = lab.initial_state("x")
    sub = lab.sub_lab("worker", state, Address(0, "w", 1))
    assert set(sub.tools) == {"note"}
    assert sub.strategy.name == "retry(1)"
    assert sub.ancestors == ("boss",)
    assert sub.model is None
    models = [ModelSettings(model_id="openai/own"), ModelSettings(model_id="openai/other")]
    agents = registry(
        {"id": "a", "sub_agents": ["b", "c"], "model": "openai/own"},
        {"id": "b", "model": "openai/other", "temperature": 0.5}, {"id": "c", "sub_agents": ["b"]},
        models=models,
    )  # fmt: skip
    lab = boss(agents, [], agent="a")
    assert lab.model.name == "openai/own"
    named = lab.sub_lab("b", state, Address(0, "w", 1))
    assert (named.model.name, named.model.settings["temperature"]) == ("openai/other", 0.5)
    heir = lab.sub_lab("c", state, Address(0, "w", 1))
    assert heir.model.name == "openai/own"
    assert heir.sub_lab("b", state, Address(0, "w", 1)).model.name == "openai/other"
    told = boss(agents, [], agent="a", lm=scripted(["x"], name="scripted/given"))
    for lab in (told, told.sub_lab("b", state, Address(0, "w", 1))):
        assert lab.model.name == "scripted/given"


def test_a_sub_agent_that_plans_by_a_model(notes, pair):
    plan = {"summary": "", "answer": "${t}", "steps": [
        {"stepId": "t", "actionType": "llm_generate", "targetResource": "", "dependencies": [],
         "parameters": {"prompt": "a word"}}]}  # fmt: skip

    def script(request, n):
        prompt = prompt_text(request)
        if "Make a plan" in prompt:
            assert "llm_generate(prompt: string)" in prompt
            return json.dumps(plan)
        return "word" if "a word" in prompt else "the response"

    agents = registry({"id": "boss", "sub_agents": ["w"]}, {"id": "w", "planner": "structured"})
    run = al.autonomous.start(boss(agents, [ask("w", "w")], lm=scripted(script)), "do it")
    state = run.finish()
    assert state.results["w"] == {"response": "the response", "answer": "word"}
    assert state.lm_calls == 4  # plan, word, its response, ours
    assert {s.step_id for s in run.recorder.of_kind("lm")} == {"w", "w/t", ""}
    report = run.replay()
    assert report.identical, report
    [call] = [s for s in run.recorder.of_kind("lm") if s.step_id == "w/t"]
    fork = run.fork(at=call.visit, replies={1: "another"})
    assert fork.finish().results["w"] == {"response": "the response", "answer": "another"}
    assert [s.attributes["served"] for s in fork.recorder.of_kind("lm")][:3] == [True, True, False]
    assert fork.replay().identical


def test_what_goes_wrong_inside_fails_the_step(notes, planned, step):
    planned(p_bad=[step("x", "broken")], p_gone=[step("x", "gone")])
    agents = registry(
        {"id": "boss", "sub_agents": ["bad", "gone", "poor"]},
        {"id": "bad", "planner": "p_bad", "tools": ["broken"], "strategy": "never"},
        {"id": "gone", "planner": "p_gone"},
        {"id": "poor", "tools": ["note", "lost"]},
        tools=[NOTE, *(ToolSettings(id=n, name=n) for n in ("broken", "lost"))],
    )  # fmt: skip
    plan = [ask("a", "bad"), ask("b", "gone"), ask("c", "poor")]
    lab = boss(agents, plan, tools=[notes.tool(), notes.broken()], strategy="never")
    run = al.autonomous.start(lab, "do it")
    run.finish()
    errors = [s.error for s in run.plan.steps]
    assert errors[0].startswith("sub-agent 'bad': its plan failed: ")
    assert "it is broken" in errors[0]
    assert errors[1].startswith("sub-agent 'gone': not a valid plan: ")
    assert "tool 'lost' of agent 'poor' is a function that the lab was not given" in errors[2]
    assert run.state.tool_calls == 1


def test_faults_strike_inside_and_a_retry_outside_meets_others(notes, pair):
    """Occurrences go on from one attempt to the next, as for any call."""
    faults = FaultPlan(targets=(TargetedFault(tool="note", occurrence=0),))
    agents = AgentRegistry(
        [a.replace(strategy="never") for a in pair.agents.values()], tools=[NOTE]
    )
    lab = boss(
        agents, [ask("w", "worker")], tools=[notes.tool()], faults=faults, strategy="retry(1)"
    )
    run = al.autonomous.start(lab, "do it")
    state = run.finish()
    assert run.plan.step("w").status == "completed"
    assert [f.step_id for f in state.delivered] == ["w/look"]
    assert state.tool_calls == 2


@pytest.fixture
def ring(planned):
    planned(to_b=[ask("s", "b")], to_c=[ask("s", "c")], to_a=[ask("s", "a")])
    return registry(
        {"id": "a", "sub_agents": ["b"], "planner": "to_b", "strategy": "never"},
        {"id": "b", "sub_agents": ["c"], "planner": "to_c", "strategy": "never"},
        {"id": "c", "sub_agents": ["a"], "planner": "to_a"},
    )


def test_an_agent_may_not_be_its_own_ancestor(ring):
    run = al.autonomous.start(al.Lab(agent="a", agents=ring, strategy="never"), "go")
    run.finish()
    assert "agent 'a' would be its own ancestor: a → b → c → a" in run.plan.step("s").error
    alone = registry({"id": "me", "sub_agents": ["me"]})
    run = al.autonomous.start(boss(alone, [ask("s", "me")], agent="me"), "go")
    assert "would be its own ancestor: me → me" in run.finish().error  # when it is planned


def test_nesting_has_a_limit(planned):
    planned(**{f"p{n}": [ask("s", f"a{n + 1}")] for n in range(5)}, p5=[])
    agents = registry(
        *(
            {"id": f"a{n}", "sub_agents": [f"a{n + 1}"], "planner": f"p{n}", "strategy": "never"}
            for n in range(5)
        ),
        {"id": "a5", "planner": "p5"},
    )
    run = al.autonomous.start(al.Lab(agent="a2", agents=agents), "go")
    run.finish()
    assert run.plan.step("s").status == "completed"  # a2 → a3 → a4 → a5: three deep
    run = al.autonomous.start(al.Lab(agent="a0", agents=agents), "go")
    run.finish()
    told = "sub-agents are nested too deep (at most 3): a0 → a1 → a2 → a3 → a4"
    assert told in run.plan.step("s").error
    shallow = get_strategy("never").within(depth=0)
    run = al.autonomous.start(boss(agents, [ask("s", "a5")], agent="a4", strategy=shallow), "go")
    assert "nested too deep (at most 0): a4 → a5" in run.finish().error


def test_functions_reach_a_sub_agent_of_one_that_has_no_use_for_them(notes, planned, step):
    planned(p_mid=[ask("s", "deep")], p_deep=[step("look", parameters={"n": 1})])
    agents = registry(
        {"id": "boss", "sub_agents": ["mid"]},
        {"id": "mid", "sub_agents": ["deep"], "planner": "p_mid"},
        {"id": "deep", "planner": "p_deep", "tools": ["note"]},
        tools=[NOTE],
    )
    run = al.autonomous.start(boss(agents, [ask("s", "mid")], tools=[notes.tool()]), "go")
    run.finish()
    assert notes.made == [("note", {"n": 1})]
    assert [s.step_id for s in run.recorder.of_kind("tool")] == ["s/s/look"]
    assert calls(run) == ["s#1/2:s#1/2:look"]


def test_unknown_sub_agents_are_named_when_it_is_planned(notes, pair):
    run = al.autonomous.start(boss(pair, [ask("s", "woker")]), "go")
    assert "unknown sub-agent 'woker'; did you mean 'worker'?" in run.finish().error
    run = al.autonomous.start(boss(pair, [ask("s", "worker", inptu=1)]), "go")
    assert (
        "parameter 'inptu' is none of call_sub_agent's; did you mean 'input'" in run.finish().error
    )


def test_a_configuration_without_a_registry_says_what_is_missing(pair):
    lab = al.Lab(agent=pair.load("boss"), planner=Fixed([ask("s", "worker")]), strategy="never")
    run = al.autonomous.start(lab, "go")
    run.finish()
    assert "cannot be looked up: Lab(agents=registry)" in run.plan.step("s").error


# ---- ids of inner steps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aimed", "struck"), [("look/look", ["look/look"]), ("look", []), ("own", ["own"])]
)
def test_inner_ids_have_the_outer_step_before_them_where_they_leave(
    notes, pair, step, aimed, struck
):
    """A fault that aims at a step, and an oracle, would take an inner step for an outer one."""
    faults = FaultPlan(targets=(TargetedFault(tool="note", step=aimed),))
    outer = [ask("look", "worker"), step("own", "note", "look", parameters={"n": 1})]
    lab = boss(pair, outer, tools=[notes.tool()], faults=faults, strategy="retry(1)")
    run = al.autonomous.start(lab, "do it")
    state = run.finish()
    assert {f.step_id for f in state.delivered} == set(struck)
    assert run.replay().identical
