"""Action types: each states its contract, checks its steps at planning time, and is carried out."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.base.schemas import object_schema
from agentlab.errors import ConfigError
from agentlab.lab.actions.aggregate import Aggregate
from agentlab.lab.actions.call_tool import CallTool
from agentlab.lab.actions.named import ACTIONS, register_action
from agentlab.lab.bench import Action, StepOutcome, outcome_of
from agentlab.plans.task_plan import ActionType, TaskStep
from agentlab.state.records import UnderWay
from agentlab.tools.calls import ToolError

CONTRACT = (
    "type", "input_fields", "tools", "failure_policy", "side_effects", "result_form", "resumable",
    "needs_approval", "display",
)  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_every_action_states_its_contract(action):
    for name in CONTRACT:
        assert getattr(action, name) is not None
    assert ACTIONS[action.type] is action
    assert isinstance(action.resumable, bool)
    assert action.result_form
    assert action.type in set(ActionType)


def test_the_types_of_the_page():
    assert set(ActionType) == {
        "call_tool", "call_sub_agent", "rag_query", "llm_generate", "mcp_call", "aggregate",
    }  # fmt: skip
    assert set(ActionType) - set(ACTIONS) == {"rag_query"}  # it comes with its stage


# ---- call_tool --------------------------------------------------------------------------------


def test_call_tool_checks_its_target_and_parameters(notes):
    typed = notes.tool("typed", parameters=object_schema(name={"type": "string"}))
    lab = notes.lab(tools=[typed])
    check = lambda **fields: CallTool().check(TaskStep(step_id="a", **fields), lab)  # noqa: E731
    assert check(target_resource="typed", parameters={"name": "x"}) == []
    assert check(target_resource="typed") == []  # what is missing shows when it runs
    (problem,) = check(target_resource="typed", parameters={"nmae": "x"})
    assert problem == "parameter 'nmae' is none of typed's; did you mean 'name'? known: name"
    (problem,) = check(target_resource="typd")
    assert "targetResource: unknown tool 'typd'; did you mean 'typed'" in problem
    assert check(target_resource="note", parameters={"anything": 1}) == []


def test_call_tool_for_people(notes):
    step = TaskStep(step_id="a", name="greet", target_resource="note", parameters={"b": 1, "a": 2})
    assert CallTool().display(step) == 'note({"a":2,"b":1})'
    careful = notes.tool("careful", needs_approval=True)
    lab = notes.lab(tools=[careful])
    assert CallTool().needs_approval(step.replace(target_resource="careful"), lab) is True
    assert CallTool().needs_approval(step, lab) is False


def test_arguments_that_the_schema_refuses_fail_the_step(notes, step):
    typed = notes.tool("typed", parameters=object_schema(n={"type": "integer"}))
    plan = [step("a", "typed"), step("b", "typed", parameters={"n": "x"})]
    run = notes.run(plan, tools=[typed], strategy="never")
    for s in run.plan.steps:
        assert s.error.startswith("bad_arguments: arguments of 'typed'")
    assert notes.made == []
    assert run.state.now == 0


def test_outcomes():
    assert outcome_of({"n": 1}, None) == StepOutcome(result={"n": 1})
    error = ToolError(code="gone", message="sold out")
    assert outcome_of(None, error) == StepOutcome(error="gone: sold out")
    unknown = ToolError(code="interrupted", message="?")
    assert outcome_of(None, unknown) == StepOutcome(error="interrupted: ?", interrupted=True)


# ---- aggregate --------------------------------------------------------------------------------


def test_aggregate_sums_up_every_attempt_so_far(notes, step):
    plan = [
        step("a", parameters={"n": 1}),
        step("b", "broken"),
        step("sum", "", "a", actionType="aggregate", name="sum up"),
        step("c"),
    ]
    run = notes.run(plan, strategy="never")
    assert run.state.results["sum"] == {
        "summary": "a: completed; b: failed",
        "results": [
            {"name": "a", "status": "completed", "result": {"n": 1}},
            {"name": "b", "status": "failed", "error": "error: it is broken"},
        ],
    }
    assert run.state.now == 3  # it takes no simulated time
    assert run.state.tool_calls == 3
    (span,) = [s for s in run.recorder.of_kind("action") if s.name == "aggregate"]
    assert (span.step_id, span.output["summary"]) == ("sum", "a: completed; b: failed")


def test_aggregate_is_judged_when_it_finishes(notes, step):
    slow = notes.tool("slow", seconds=5.0)
    plan = [
        step("s", "slow"),
        step("sum", "", actionType="aggregate"),
        step("t", "", "s", actionType="aggregate"),
    ]
    run = notes.run(plan, tools=[slow], workers=2)
    assert run.state.results["sum"]["summary"] == ""
    assert run.state.results["t"]["summary"] == "sum: completed; s: completed"


def test_aggregate_needs_no_approval_and_shows_its_name(notes):
    step = TaskStep(step_id="a", name="sum up", action_type="aggregate")
    action = Aggregate()
    assert action.display(step) == "sum up"
    assert action.display(step.replace(name="")) == "aggregate"
    assert action.check(step, notes.lab()) == []
    assert action.needs_approval(step, notes.lab()) is False


# ---- the registry is open ---------------------------------------------------------------------


class Wait(Action):
    """Let simulated time pass."""

    type = "wait"
    input_fields = {"seconds": "how long"}
    result_form = "{'waited': seconds}"

    def check(self, step, bench):
        return [] if "seconds" in step.parameters else ["needs seconds"]

    def begin(self, state, bench, step, parameters, attempt):
        return state, UnderWay(
            step_id=step.step_id, action_type=self.type, attempt=attempt,
            submission=state.submissions, arguments=parameters, started=state.now,
            finishes=state.now + parameters["seconds"],
        )  # fmt: skip

    def finish(self, state, bench, under_way):
        return state, StepOutcome(result={"waited": under_way.arguments["seconds"]})


@pytest.fixture
def waiting(fresh_names):
    register_action(Wait())


def test_a_type_that_is_registered_can_be_planned_and_carried_out(notes, step, waiting):
    plan = [
        step("a", "", actionType="wait", parameters={"seconds": 7}),
        step("b", parameters={"n": "${a.waited}"}),
    ]
    run = notes.run(plan)
    assert run.state.now == 8
    assert notes.made == [("note", {"n": 7})]
    refused = notes.run([step("a", "", actionType="wait")])
    assert "step 'a': needs seconds" in refused.state.error
    register_action(Wait())  # a cell that is run twice
    with pytest.raises(ConfigError, match="action 'call_tool' ships with agentlab"):
        register_action(type("Mine", (Wait,), {"type": "call_tool"})())


def test_the_registry_is_read_only():
    with pytest.raises(TypeError):
        ACTIONS["mine"] = Wait()
    assert "wait" not in ACTIONS
    assert "wait" not in al.Lab(planner="reference").actions
