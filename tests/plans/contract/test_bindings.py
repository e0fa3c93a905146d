"""From a contract to a plan: bindings against input schemas, ids, and the run that follows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.schemas import object_schema
from agentlab.errors import PlanParseError, PlanValidationError
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans.contract.bindings import plan_reply, to_task_plan
from agentlab.plans.contract.spec import PlanSpec, PlanStep
from agentlab.plans.graph import levels

IN = object_schema(["n"], n={"type": "integer", "minimum": 0}, l={"type": "array", "maxItems": 2})


def step(step_id, *dependencies, **fields):
    return PlanStep(
        **{
            "step_id": step_id, "objective": f"Do {step_id}.", "dependencies": dependencies,
            "execution_target": "tool:note", "input_schema": IN, "output_schema": {},
            "completion_criteria": "It is noted.", **fields,
        }
    )  # fmt: skip


def spec(*steps):
    return PlanSpec(revision=4, objective="Note it.", steps=steps)


def told(made, bindings, **options):
    with pytest.raises(PlanValidationError) as e:
        to_task_plan(made, bindings, **options)
    return {(v.step, v.field) for v in e.value.violations}


def test_a_plan_of_a_contract():
    out = {"type": "string"}
    made = spec(
        step("b", "a", output_schema=out),
        step("a", status="COMPLETED", result=3),
        step("c", "a", "b", execution_target="agent:writer", input_schema={}),
    )
    plan = to_task_plan(made, {"a": {"n": 1}, "b": {"n": "${a.x}"}}, answer="got ${b}")
    a, b, c = plan.steps  # in the order of the dependencies
    assert (a.step_id, b.step_id, c.step_id) == ("a", "b", "c")
    assert (b.action_type, b.target_resource, b.parameters) == (
        "call_tool",
        "note",
        {"n": "${a.x}"},
    )
    assert (c.action_type, c.target_resource, c.parameters) == ("call_sub_agent", "writer", {})
    assert (b.expectation, b.enforced) == (out, True)
    assert a.status == "pending"  # a COMPLETED that was read is no proof
    assert a.result is None
    assert a.description == "Do a.\nDone when: It is noted."
    assert c.dependencies == ("a", "b")
    assert plan.answer == "got ${b}"
    assert plan.user_intent == "Note it."
    assert "revision 4" in plan.summary


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({}, "parameters"),
        ({"m": 1, "n": 1}, "parameters"),
        ({"n": "x"}, "parameters.n"),
        ({"n": -1}, "parameters.n"),
        ({"n": 1, "l": ["${a}", 1, 2]}, None),
        ({"n": 1, "l": [1, 2, 3]}, "parameters.l"),
        ({"n": "${a.n}"}, None),
        ({"n": "${a.n}", "l": "${a.l}"}, None),
        ({"n": "${a.n}", "k": 1}, "parameters"),
        ({"l": "${a.l}"}, "parameters"),
        ({"n": "$${a.n}"}, "parameters.n"),
        ({"n": "${a"}, "parameters"),
        ({"n": {1}}, "parameters"),
        ([1], "parameters"),
        (None, "parameters"),
    ],
    ids=str,
)
def test_parameters_against_the_input_schema(parameters, field):
    made = spec(step("a"), step("b"))
    bindings = {"a": {"n": 1}, "b": parameters}
    if field is None:
        assert to_task_plan(made, bindings).step("b").parameters == parameters
    else:
        assert told(made, bindings) == {("b", field)}


def test_everything_that_is_wrong_is_told():
    found = told(spec(step("a"), step("b")), {"b": {"n": "x"}, "c": {}}, answer="${a")
    assert found == {("a", "parameters"), ("b", "parameters.n"), ("c", "bindings"),
                     (None, "answer")}  # fmt: skip


def test_a_spec_that_was_not_validated_is_no_crash():
    assert told(spec(step("a", "gone")), {"a": {"n": 1}}) == {("a", "dependencies")}
    bad = step("a", input_schema={"type": "nonsense"})
    assert told(spec(bad), {"a": {"n": 1}}) == {("a", "parameters")}


def test_references_that_lead_nowhere():
    with pytest.raises(PlanParseError, match=r"\$\{gone\} names no known step"):
        to_task_plan(spec(step("a")), {"a": {"n": "${gone}"}})
    made = to_task_plan(spec(step("a")), {"a": {"n": "${gone}"}}, known={"gone"})
    assert made.steps[0].dependencies == ()
    with pytest.raises(PlanParseError, match="cyclic"):
        to_task_plan(spec(step("a"), step("b", "a")), {"a": {"n": "${b}"}, "b": {"n": 1}})


def test_ids_that_are_no_slugs():
    """A step id is any text; the plan's ids are slugs, and digits in a reference are indices."""
    made = spec(step("1"), step("0", "1"), step("读 一", "0"), step("a b", "读 一"))
    bindings = {"1": {"n": 1}, "0": {"n": "${1}"}, "读 一": {"n": "${0}"}, "a b": {"n": 2}}
    plan = to_task_plan(made, bindings)
    assert [s.name for s in plan.steps] == ["1", "0", "读 一", "a b"]
    first, second, third, last = plan.steps
    assert second.dependencies == (first.step_id,)
    assert second.parameters == {"n": f"${{{first.step_id}}}"}
    assert third.dependencies == (second.step_id,)
    assert third.parameters == {"n": f"${{{second.step_id}}}"}
    assert last.dependencies == (third.step_id,)


def test_ids_that_are_taken_get_others():
    plan = to_task_plan(
        spec(step("a"), step("b", "a")), {"a": {"n": 1}, "b": {"n": "${a}"}}, taken={"a"}
    )
    assert [s.step_id for s in plan.steps] == ["a_2", "b"]
    assert plan.step("b").parameters == {"n": "${a_2}"}


def test_another_action():
    made = spec(step("a", execution_target="tool:time/now", input_schema={}))
    plan = to_task_plan(made, {}, actions={"tool:time/now": ("mcp_call", "time/now")})
    assert (plan.steps[0].action_type, plan.steps[0].target_resource) == ("mcp_call", "time/now")
    assert to_task_plan(made, {}).steps[0].action_type == "call_tool"


@given(st.data(), st.integers(1, 8))
@settings(deadline=None, max_examples=60)
def test_what_depends_on_what_stays(data, n):
    order = data.draw(st.permutations(range(n)))
    needs = {i: data.draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
             for i in range(n)}  # fmt: skip
    made = spec(*(step(f"s{i}", *(f"s{d}" for d in needs[i]), input_schema={}) for i in order))
    plan = to_task_plan(made, {})
    assert {s.step_id: set(s.dependencies) for s in plan.steps} == {
        f"s{i}": {f"s{d}" for d in found} for i, found in needs.items()
    }
    assert sum(map(len, levels(plan))) == n


# ---- carried out -----------------------------------------------------------------------------


def carried_out(notes, *steps, bindings, **options):
    lab = notes.lab(plan_reply(spec(*steps), bindings), **options)
    run = al.autonomous.start(lab, "do it")
    run.finish()
    return run


def test_any_workflow_executes_it(notes):
    run = carried_out(
        notes, step("b", "a"), step("a"), bindings={"a": {"n": 1}, "b": {"n": "${a.n}"}}
    )
    assert notes.made == [("note", {"n": 1}), ("note", {"n": 1})]
    assert [s.status for s in run.plan.steps] == ["completed", "completed"]
    assert run.replay().identical


def test_an_output_outside_the_contract_fails_the_step(notes):
    wanted = object_schema(n={"type": "integer", "minimum": 5})
    run = carried_out(
        notes, step("a", output_schema=wanted), step("b", "a"), step("c", output_schema=wanted),
        bindings={"a": {"n": 1}, "b": {"n": "${a.n}"}, "c": {"n": 7}}, strategy="never",
    )  # fmt: skip
    assert {s.step_id: s.status for s in run.plan.steps} == {
        "a": "failed", "b": "failed", "c": "completed",
    }  # fmt: skip
    assert "1 is less than the minimum of 5" in run.plan.step("a").error


def test_completion_criteria_are_shown_and_not_judged(notes):
    run = carried_out(notes, step("a", completion_criteria="Pigs fly."), bindings={"a": {"n": 1}})
    assert run.plan.steps[0].status == "completed"
    assert "Done when: Pigs fly." in run.plan.steps[0].description


def test_it_is_a_plan_like_any_other():
    plan = to_task_plan(spec(step("a"), step("b", "a")), {"a": {"n": 1}, "b": {"n": 2}})
    assert [s.step_id for s in plan.without("a", cascade=True).steps] == []
    assert plan.edit("b", parameters={"n": 3}).step("b").enforced
    assert type(plan).model_validate_json(plan.model_dump_json()) == plan
    assert Fixed(plan_reply(spec(step("a")), {"a": {"n": 1}})).replies[0]["steps"]
