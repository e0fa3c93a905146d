"""The lab: what it accepts, what a run starts from, and ``call``, the one door to tools."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import agentlab as al
from agentlab.base.documents import digest
from agentlab.base.schemas import object_schema
from agentlab.environments.base import Environment, Outcome
from agentlab.environments.fault_plan import FaultPlan
from agentlab.errors import ConfigError, ReplayError, ToolFailure, UnknownNameError
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.search import Search
from agentlab.minds.rules import RuleReflector, TemplateResponder
from agentlab.plans.task_plan import ActionType
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool
from agentlab.trace.journal import Address, Entry, MemoryJournal, ReplayJournal
from agentlab.workflows.nodes import plan_execution

HERE = Address(0, "s", 1)


def called(lab, tool, state=None, **arguments):
    return lab.call(lab.initial_state() if state is None else state, HERE, tool, arguments)


# ---- what it accepts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"planner": "serach"}, UnknownNameError, "did you mean 'search'?"),
        ({"strategy": "retry_then_repaln(2)"}, UnknownNameError, "did you mean 'retry_then"),
        (
            {"planner": object()},
            ConfigError,
            "or an object with plan(request, kit)",
        ),
        ({"planner": "search(import os)"}, ConfigError, "a name with literal arguments"),
        ({"workers": 0}, ConfigError, "workers"),
        ({"workers": True}, ConfigError, "workers"),
        ({"workers": 1.5}, ConfigError, "workers"),
        ({"fault_rate": 1.5}, ConfigError, "between 0 and 1, got 1.5"),
        ({"fault_rate": -0.1}, ConfigError, "between 0 and 1"),
        ({"fault_rate": "0.1"}, ConfigError, "between 0 and 1, got text '0.1'"),
        ({"fault_rate": True}, ConfigError, "between 0 and 1"),
        ({"fault_rate": float("nan")}, ConfigError, "between 0 and 1, got nan"),
        ({"tools": [Tool("advance")]}, ConfigError, "two tools are called 'advance'"),
    ],
)
def test_what_it_does_not_accept(chain, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        al.Lab(chain(), **options)


def test_an_unknown_environment_is_named(chain):
    with pytest.raises(UnknownNameError, match="did you mean 'chain'"):
        al.Lab(chain().replace(environment="chian"))


def test_defaults(chain):
    lab = al.Lab(chain())
    assert isinstance(lab.planner, Search)
    assert lab.strategy.name == "reflect_on_total_failure"
    assert (lab.workers, lab.seed, lab.handler) == (1, 0, None)
    assert isinstance(lab.reflector, RuleReflector)
    assert isinstance(lab.responder, TemplateResponder)
    assert set(lab.tools) == {"advance", "advance_slowly"}
    assert set(lab.actions) == set(ActionType) - {"rag_query"}
    assert "chain-3-000" in repr(lab)


def test_the_faults_are_the_scenarios_the_labs_or_take_the_rate(chain):
    own = FaultPlan(rate=0.2, kinds={"timeout": 1})
    scenario = chain().replace(faults=own)
    assert al.Lab(scenario).initial_state().fault_plan == own
    assert al.Lab(scenario, fault_rate=0.5).faults == own.replace(rate=0.5)
    other = FaultPlan(rate=0.3)
    assert al.Lab(scenario, faults=other).faults == other
    assert al.Lab(scenario, faults=other, fault_rate=0).faults == other.replace(rate=0.0)
    assert al.Lab(tools=[], planner=Fixed()).faults == FaultPlan()


def test_bind_shares_everything_but_what_is_named(chain):
    lab = al.Lab(chain(), seed=1)
    first = lab.initial_state()
    assert lab.initial_state() is first
    bound = lab.bind(handler=object(), planner="reference", strategy="on_error(2)", seed=5)
    assert bound.scenario is lab.scenario
    assert bound.tools is lab.tools
    assert type(bound.planner).__name__ == "Reference"
    assert bound.strategy.name == "on_error(replans=2)"
    assert (bound.initial_state().seed, bound.initial_state().max_loops) == (5, 2)
    assert (lab.seed, lab.handler, lab.initial_state()) == (1, None, first)
    with pytest.raises(ConfigError, match="a lab has no"):
        lab.bind(plannr="reference")


# ---- what a run starts from -------------------------------------------------------------------


def test_the_first_state_of_a_scenario(chain):
    scenario = chain().replace(hidden={"tokens": {"x": "hidden"}})
    state = al.Lab(scenario, seed=7, strategy="on_error(2)").initial_state()
    assert state.user_input == scenario.task
    assert (state.seed, state.scenario_id) == (7, scenario.id)
    assert state.world == state.initial
    assert state.world["tokens"]["x"] == "hidden"
    assert state.belief == scenario.world
    assert (state.max_loops, state.max_task_iterations) == (2, 100)
    assert (state.now, state.visit, state.next_action) == (0.0, 0, "")


def test_the_defaults_of_the_seeds_keys(notes):
    state = notes.lab().initial_state()
    assert (state.max_task_iterations, state.max_loops, state.loop_count) == (20, 3, 0)
    assert state.planning_mode is True
    assert (state.current_task_index, len(state.task_results)) == (0, 0)
    assert (state.task_plan, state.reflection, state.need_replan) == (None, None, False)
    assert (state.final_response, state.error, state.next_action) == (None, None, "")
    keys = {
        "taskPlan", "currentTaskIndex", "taskResults", "planningMode", "reflection", "needReplan",
        "maxTaskIterations", "loopCount", "maxLoops", "nextAction", "finalResponse", "error",
        "userInput", "userId", "sessionId", "agentId", "agentConfig", "messages",
    }  # fmt: skip
    document = state.to_json()
    assert keys <= document.keys()
    assert type(state).model_validate(document) == state


def test_fields_of_the_first_state(chain):
    lab = al.Lab(chain())
    state = lab.initial_state("other words", session_id="S", user_id="U")
    assert (state.user_input, state.session_id, state.user_id) == ("other words", "S", "U")
    assert lab.initial_state().session_id == ""


# ---- judging ----------------------------------------------------------------------------------


def test_verdict(chain, notes):
    lab = al.Lab(chain())
    state = lab.initial_state()
    assert lab.verdict(state).reasons == ("0 of 3 stages done", "answer None is not " + repr(
        lab.scenario.world["tokens"][lab.scenario.world["stages"][-1]]))  # fmt: skip
    run = al.autonomous.start(lab)
    run.finish()
    assert lab.verdict(run.state).success
    late = lab.scenario.replace(goal=lab.scenario.goal.replace(deadline=2.5))
    assert "finished at 3 s, after 2.5 s" in al.Lab(late).verdict(run.state).reasons
    with pytest.raises(ConfigError, match="without a scenario"):
        notes.lab().verdict(state)


# ---- the one door -----------------------------------------------------------------------------


def test_a_call_that_goes_well(notes):
    lab = notes.lab(tools=[notes.tool("slow", lambda a: {"sum": a + 1}, seconds=2.5)])
    state, result, error = called(lab, "slow", a=1)
    assert (result, error) == ({"sum": 2}, None)
    assert notes.made == [("slow", {"a": 1})]
    assert (state.now, state.tool_calls) == (2.5, 1)
    (call,) = state.calls
    assert (call.tool, call.arguments, call.result) == ("slow", {"a": 1}, {"sum": 2})
    assert (call.started, call.finished, call.step_id) == (0.0, 2.5, "s")
    assert (call.committed, call.faulted, call.error) == (True, False, None)
    (span,) = lab.recorder.spans
    assert (span.kind, span.name, span.step_id, span.attempt) == ("tool", "slow", "s", 1)
    assert (span.input, span.output, span.error) == ({"a": 1}, {"sum": 2}, None)
    assert (span.sim_start, span.sim_end) == (0.0, 2.5)
    assert span.attributes == {"occurrence": 0, "committed": True}
    assert dict(state.occurrences) == {f"slow:{digest({'a': 1})}": 1}


def test_a_call_into_the_world(chain):
    lab = al.Lab(chain())
    stage = lab.scenario.world["stages"][0]
    before = lab.initial_state()
    state, result, error = called(lab, "advance", stage=stage, token="start")
    assert error is None
    assert (state.world["done"], state.belief["done"], before.world["done"]) == (1, 1, 0)
    assert result["token"] == state.world["tokens"][stage]
    state, result, error = called(lab, "advance", state, stage=stage, token="start")
    assert (result, error.code) == (None, "out_of_turn")
    assert state.world["done"] == 1
    assert (state.calls[1].committed, state.failures[0].code) == (False, "out_of_turn")


@pytest.mark.parametrize(
    ("permissions", "text"),
    [
        (al.Permissions(deny=frozenset({"note"})), "tool 'note' is denied in this lab"),
        (al.Permissions(effects=frozenset({Effect.READ})), "tool 'note' is write; this lab allows"),
    ],
)
def test_permissions(notes, permissions, text):
    state, result, error = called(notes.lab(permissions=permissions), "note")
    assert (result, error.code, error.permanent) == (None, "denied", True)
    assert text in error.message
    assert notes.made == []
    assert (state.now, state.calls[0].committed) == (0.0, False)


def test_an_unknown_tool_is_refused_with_the_nearest_name(notes):
    _, result, error = called(notes.lab(), "nott")
    assert (result, error.code, error.permanent) == (None, "unknown_tool", True)
    assert "did you mean 'note'?" in error.message


def test_arguments_are_checked_first(notes):
    typed = notes.tool("typed", parameters=object_schema(n={"type": "integer"}))
    lab = notes.lab(tools=[typed], fault_rate=1.0)
    for arguments in ({"n": "x"}, {}, {"n": 1, "m": 2}):
        _, _, error = called(lab, "typed", **arguments)
        assert (error.code, error.permanent) == ("bad_arguments", False)
        assert "arguments of 'typed'" in error.message
    assert notes.made == []


class Panic(BaseException):
    """As a native extension's is."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_interrupt_is_a_persons(notes):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        called(notes.lab(tools=[notes.tool("slow", interrupted)]), "slow")


@pytest.mark.parametrize(
    ("do", "code", "text", "permanent"),
    [
        (ToolFailure("all gone", code="sold_out", permanent=True), "sold_out", "all gone", True),
        (ToolFailure("try later"), "error", "try later", False),
        (ValueError("no"), "exception", "ValueError: no", False),
        (KeyError("k"), "exception", "KeyError: 'k'", False),
        (SystemExit(2), "exception", "SystemExit: 2", False),
        (MemoryError(), "exception", "MemoryError: ", False),
        (GeneratorExit(), "exception", "GeneratorExit: ", False),
        (Panic("no bounds"), "exception", "Panic: no bounds", False),
        (
            BaseExceptionGroup("two", [Panic()]),
            "exception",
            "BaseExceptionGroup: two (1 sub-exception)",
            False,
        ),
        (Mute(), "exception", "Mute: (its text raised RuntimeError)", False),
    ],
)
def test_whatever_a_function_raises_becomes_an_error_that_can_be_read(
    notes, do, code, text, permanent
):
    def fail():
        raise do

    state, result, error = called(notes.lab(tools=[notes.tool("fail", fail)]), "fail")
    assert (result, error) == (None, ToolError(code=code, message=text, permanent=permanent))
    assert state.failures[0].permanent is permanent
    assert state.now == 1.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"\xff", object(), [object()]])
def test_a_result_that_is_not_json_is_an_error_of_a_call_that_took_effect(notes, value):
    state, result, error = called(notes.lab(tools=[notes.tool("odd", lambda: value)]), "odd")
    assert (result, error.code, error.permanent) == (None, "not_json", True)
    assert "odd returned a" in error.message
    assert state.calls[-1].committed
    assert state.failures[0].permanent


def test_a_function_and_the_state_share_nothing(notes):
    kept = {"list": [1]}

    def spoil(box):
        box.append("spoilt")
        return kept

    arguments = {"box": []}
    lab = notes.lab(tools=[notes.tool("spoil", spoil)])
    state, result, _ = lab.call(lab.initial_state(), HERE, "spoil", arguments)
    kept["list"].append(2)
    assert result == {"list": [1]}
    assert state.calls[0].result == {"list": [1]}
    assert arguments == {"box": []}


def test_failures_are_counted_by_tool_arguments_and_code(notes):
    lab = notes.lab()
    state = lab.initial_state()
    for key in (1, 2, 1, 1):
        state, _, _ = lab.call(state, HERE, "broken", {"key": key})
    assert [(f.tool, f.code, f.count) for f in state.failures] == [
        ("broken", "error", 3),
        ("broken", "error", 1),
    ]
    assert state.failures[0].arguments == digest({"key": 1})


def test_the_world_may_refuse_a_call_when_it_starts():
    class Shut(Environment):
        name = "shut"

        def tools(self):
            return (Tool("knock", seconds=5.0),)

        def begin(self, world, call):
            return ToolError(code="shut", message="nobody is in")

        def apply(self, world, call):
            return Outcome(world, result="in")

        def unmet(self, goal, world):
            return ()

    scenario = al.Scenario(id="s", environment="shut", task="t", world={}, goal=al.Goal())
    lab = al.Lab(scenario, environment=Shut(), fault_rate=1.0)
    state, result, error = called(lab, "knock")
    assert (result, error.code, state.now) == (None, "shut", 0.0)
    assert not state.delivered


# ---- the journal ------------------------------------------------------------------------------


def journalled(notes, *entries, kind=MemoryJournal):
    journal = kind(entries)
    return notes.lab(tools=[notes.tool("read", effect="read")]).bind(journal=journal), journal


def test_a_call_of_a_function_is_written_down(notes):
    lab, journal = journalled(notes)
    called(lab, "note", a=1)
    there = HERE._replace(step_id="t")
    lab.call(lab.initial_state(), there, "broken", {"a": 1})
    one, two = journal.entries.values()
    assert one == Entry(HERE, "note", digest(["note", {"a": 1}]), True, {"a": 1}, None)
    assert (two.address, two.finished, two.result) == (there, True, None)
    assert two.error["code"] == "error"


@pytest.mark.parametrize("error", [None, ToolError(code="c", message="m")])
def test_a_finished_call_is_served_and_not_made(notes, error):
    request, result = digest(["note", {"a": 1}]), None if error else {"kept": 1}
    entry = Entry(HERE, "note", request, True, result, error and error.to_json())
    lab, _ = journalled(notes, entry)
    _, result, told = called(lab, "note", a=1)
    assert (result, told) == (entry.result, error)
    assert notes.made == []


def test_an_unfinished_write_is_interrupted_and_an_unfinished_read_is_made_again(notes):
    for tool, made in (("note", []), ("read", [("read", {})])):
        notes.made.clear()
        lab, _ = journalled(notes, Entry(HERE, tool, digest([tool, {}])))
        _, _, error = called(lab, tool)
        assert notes.made == made
        if tool == "note":
            assert error.code == "interrupted"
            assert "outcome is unknown" in error.message
        else:
            assert error is None


def test_what_was_recorded_otherwise_is_not_served(notes):
    lab, _ = journalled(notes, Entry(HERE, "note", digest(["note", {"a": 2}]), True, 5))
    with pytest.raises(ReplayError, match="with other arguments"):
        called(lab, "note", a=1)
    lab, _ = journalled(notes, kind=ReplayJournal)
    with pytest.raises(ReplayError, match="was not made there"):
        called(lab, "note", a=1)
    assert notes.made == []


def test_a_node_called_by_hand_makes_its_calls_each_time(notes, step):
    lab = notes.lab([step("a", parameters={"n": 1})])
    run = al.autonomous.start(lab)
    run.run_until("plan_execution")
    for _ in range(2):
        after = plan_execution(run.state, lab)
        assert dict(after.results) == {"a": {"n": 1}}
    plan = run.plan.edit("a", parameters={"n": 2})
    assert plan_execution(run.state.replace(task_plan=plan), lab).results["a"] == {"n": 2}
    assert [a["n"] for _, a in notes.made] == [1, 1, 2]
    assert len(lab.recorder.of_kind("tool")) == 3  # traced the same way, in the lab's recorder
    assert not run.recorder.of_kind("tool")


def test_a_tool_with_an_invalid_schema_fails_its_call(notes, step):
    odd = replace(notes.tool("odd"), parameters={"type": "nonsense"})
    run = notes.run([step("a", "odd", parameters={})], tools=[odd], strategy="never")
    assert run.state.final_response
    assert run.plan.step("a").status == "failed"
    assert notes.made == []


def test_a_lab_is_immutable():
    lab = al.Lab(al.load_suite("chain")[0])
    with pytest.raises(AttributeError, match=r"lab\.bind\(seed=\.\.\.\)"):
        lab.seed = 3
    with pytest.raises(AttributeError, match="immutable"):
        lab.bind(seed=3).seed = 4
    assert (lab.seed, lab.bind(seed=3).seed) == (0, 3)
