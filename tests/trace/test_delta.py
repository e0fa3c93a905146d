"""Deltas: what they leave out is unchanged, what they hold brings the other state back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from pydantic import Field

from agentlab.base.documents import canonical, merge_patch
from agentlab.base.fields import Vector
from agentlab.base.persistent import pmap, pvector
from agentlab.base.trail import At, Gone, More
from agentlab.base.values import Value
from agentlab.environments.fault_plan import FaultKind, FaultPlan, Outage, TargetedFault
from agentlab.errors import PlanEditError
from agentlab.lm.settings import ModelSettings
from agentlab.plans.task_plan import InterruptionContext, StepStatus, TaskPlan, TaskStep
from agentlab.state.config import AgentConfig, ToolSettings
from agentlab.state.decisions import (
    ReplanAction,
    ReplanDecision,
    ReplanRecord,
    Trigger,
    TriggerPoint,
)
from agentlab.state.messages import said
from agentlab.state.records import DeliveredFault, Failure, Fault, TaskResult, UnderWay
from agentlab.state.state import State
from agentlab.tools.calls import CallRecord, ToolError
from agentlab.trace.delta import apply, delta

NAMES = st.sampled_from(["a", "b", "c", "d"])
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300, 2**70])
LEAVES = st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "x", "1", "é", "\ud800"])
JSON = st.recursive(
    LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(NAMES, x, max_size=3), max_leaves=8
)
DOCUMENTS = st.dictionaries(NAMES, JSON, max_size=4)


def round_trip(old: State, new: State) -> State:
    """Return ``new`` as it comes back: ``old`` with the delta, which went through JSON text."""
    text = json.dumps(delta(old, new), allow_nan=False)
    return apply(old, json.loads(text))


def same(a: State, b: State) -> bool:
    """Compare through and through: 1, 1.0 and True are three things."""
    return canonical(a.to_json()) == canonical(b.to_json())


@st.composite
def faults(draw: Any) -> Fault:
    kind = draw(st.sampled_from(list(FaultKind)[:6]))
    return Fault(kind=kind, draw=draw(st.sampled_from([0.0, 0.5])), until=draw(st.none() | NUMBERS))


@st.composite
def fault_plans(draw: Any) -> FaultPlan:
    kinds = draw(
        st.dictionaries(st.sampled_from(list(FaultKind)[:4]), st.integers(1, 3), min_size=1)
    )
    target = TargetedFault(tool="t", arguments=draw(st.none() | DOCUMENTS))
    outage = Outage(name="o", tool="t", start=draw(st.sampled_from([0.0, 1.5])))
    return FaultPlan(
        rate=draw(st.sampled_from([0.0, 0.5])),
        kinds=kinds,
        targets=draw(st.sampled_from([(), (target,), (target, target)])),
        outages=draw(st.sampled_from([(), (outage,)])),
        tools=draw(st.sampled_from([(), ("t",), ("u",)])),
    )


@st.composite
def plans(draw: Any) -> TaskPlan:
    steps = [
        TaskStep(step_index=i, step_id=f"s{i}", parameters=draw(DOCUMENTS))
        for i in range(draw(st.integers(0, 4)))
    ]
    return TaskPlan(plan_id=draw(st.sampled_from(["plan-0", "plan-1"])), steps=tuple(steps))


def edited(draw: Any, plan: TaskPlan | None) -> TaskPlan | None:
    """Change a plan the ways in which runs and people change it."""
    how = draw(st.sampled_from(["new", "none", "settle", "again", "without", "insert", "answer"]))
    if plan is None or how == "new":
        return draw(plans())
    if how == "none":
        return None
    if how == "answer":
        return plan.replace(answer=draw(st.sampled_from([None, "${s0.a}"])))
    if how == "insert":
        fresh = TaskStep(step_id=f"n{draw(st.integers(0, 9))}", expectation=draw(EXPECTATIONS))
        try:
            return plan.insert(fresh, at=draw(st.integers(0, len(plan))))
        except PlanEditError:
            return plan
    if not plan.steps:
        return plan
    step = draw(st.sampled_from(plan.steps)).step_id
    if how == "again":
        return plan.with_step(
            step, status=StepStatus.PENDING, result=None, error=None, interruption_context=None
        )
    if how == "without":
        try:
            return plan.without(step)
        except PlanEditError:
            return plan
    status = draw(st.sampled_from(list(StepStatus)))
    changes: dict[str, Any] = {"status": status, "result": draw(JSON), "error": draw(TEXTS)}
    if status is StepStatus.INTERRUPTED:
        changes["interruption_context"] = InterruptionContext(reason=draw(st.sampled_from("xy")))
    return plan.with_step(step, **changes)


TEXTS = st.none() | st.sampled_from(["", "went wrong", "é"])
EXPECTATIONS = st.none() | st.sampled_from(["a > `1`", {"type": "object"}, {"type": "array"}])
ITEMS = {
    "task_results": lambda draw: TaskResult(
        step_id=draw(NAMES), status=draw(st.sampled_from(list(StepStatus))), result=draw(JSON)
    ),
    "failures": lambda draw: Failure(tool=draw(NAMES), arguments="", code="e"),
    "calls": lambda draw: CallRecord(
        tool=draw(NAMES), arguments=draw(DOCUMENTS), result=draw(JSON),
        error=draw(st.sampled_from([None, ToolError(code="e", message="m")])),
    ),
    "under_way": lambda draw: UnderWay(
        step_id=draw(NAMES), action_type="call_tool", attempt=1, submission=0,
        fault=draw(st.none() | faults()), refused=draw(JSON),
    ),
    "delivered": lambda draw: DeliveredFault(
        fault=draw(faults()), tool="t", arguments="", truth=draw(DOCUMENTS)
    ),
    "messages": lambda draw: said(draw(NAMES)),
}  # fmt: skip


def changed(draw: Any, state: State) -> State:
    """Change a state in one way of those in which nodes and people change it."""
    how = draw(st.sampled_from(["scalar", "plan", "vector", "map", "document", "json", "faults"]))
    if how == "scalar":
        decision = ReplanDecision(action=ReplanAction.RETRY, step_id=draw(NAMES))
        return draw(
            st.sampled_from(
                [
                    state.replace(now=state.now + 1.5, visit=state.visit + 1),
                    state.replace(error="e"),
                    state.replace(error=None),
                    state.replace(last_decision=decision, world_events_done=("x",)),
                    state.replace(world_events_done=("x", "y"), dataset_list=()),
                    state.replace(trigger=Trigger(point=TriggerPoint.AFTER_STEP, reason="r")),
                    state.replace(trigger=None, last_decision=None, seed=7),
                ]
            )
        )
    if how == "plan":
        return state.replace(task_plan=edited(draw, state.task_plan))
    if how == "faults":
        return state.replace(fault_plan=draw(fault_plans()))
    if how == "json":
        return state.replace(answer=draw(JSON))
    if how == "vector":
        name = draw(st.sampled_from(sorted(ITEMS)))
        vector, item = getattr(state, name), ITEMS[name](draw)
        ways = [vector.append(item), vector.extend([item, item]), pvector()]
        if vector:
            ways += [vector.set(0, item), vector.delete(len(vector) - 1), vector[1:]]
        return state.replace(**{name: draw(st.sampled_from(ways))})
    if how == "map":
        name = draw(st.sampled_from(["results", "attempts", "occurrences", "standing"]))
        table, key = getattr(state, name), draw(NAMES)
        value = draw(faults() if name == "standing" else JSON)
        removed = table.remove(key) if key in table else table
        return state.replace(**{name: draw(st.sampled_from([table.set(key, value), removed]))})
    name = draw(st.sampled_from(["world", "belief", "initial", "retrieval_config"]))
    old = getattr(state, name)
    new = draw(st.sampled_from([merge_patch(old, draw(DOCUMENTS)), draw(DOCUMENTS), old]))
    return state.replace(**{name: new})


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_chain_of_deltas_brings_every_state_back(data):
    """Each state is rebuilt from the rebuilt one before it, as a resumed run is."""
    restored = true = State()
    for _ in range(data.draw(st.integers(1, 8))):
        before = true
        for _ in range(data.draw(st.integers(1, 3))):
            true = changed(data.draw, true)
        restored = apply(restored, json.loads(json.dumps(delta(before, true), allow_nan=False)))
        assert same(restored, true)
        assert restored.digest == true.digest


@given(DOCUMENTS, DOCUMENTS)
@example({"a": [1]}, {"a": [True]})
@example({"a": [0.0]}, {"a": [-0.0]})
@example({"a": 1}, {"a": 1.0})
@example({"a": {"b": 0}}, {"a": {"b": False}})
@example({"a": {"b": 1}}, {"a": {}})
@example({"a": None}, {})
@example({"a": {"=": 1, "-": ["k"], "k": {}}}, {"a": {"=": 2, "-": [], "k": {"v": 1}}})
def test_any_document_becomes_any_other(old, new):
    before, after = State(world=old, answer=old), State(world=new, answer=new)
    assert same(round_trip(before, after), after)


class Log(Value):
    items: Vector = Field(default_factory=pvector)


@given(st.lists(JSON, max_size=4), st.lists(JSON, max_size=4))
@example([1], [True])
@example([[1, 2]], [[1.0, 2]])
def test_any_vector_becomes_any_other(old, new):
    before, after = Log(items=old), Log(items=new)
    assert same(round_trip(before, after), after)


@given(plans(), plans())
def test_any_plan_becomes_any_other(old, new):
    before, after = State(task_plan=old), State(task_plan=new)
    assert same(round_trip(before, after), after)


def test_records_inside_records_come_back_with_their_types():
    plan = TaskPlan(steps=(TaskStep(step_id="a"), TaskStep(step_index=1, step_id="b")))
    decision = ReplanDecision(action=ReplanAction.REPLAN_FULL)
    record = ReplanRecord(at=1.0, visit=2, decision=decision, before=plan, after=plan)
    agent = AgentConfig(id="a", name="A", tools=(ToolSettings(id="t", tool_id="t", name="t"),))
    new = State(task_plan=plan, replan_history=[record], agent_config=agent)
    new = new.replace(standing=pmap({"t": Fault(kind=FaultKind.ERROR)}))
    back = round_trip(State(), new)
    assert back == new
    assert isinstance(back.replan_history[0], ReplanRecord)
    assert isinstance(back.standing["t"].kind, FaultKind)
    assert isinstance(back.task_plan.steps[1], TaskStep)
    third = agent.replace(tools=(agent.tools[0].replace(description="d"),))
    assert round_trip(back, back.replace(agent_config=third)).agent_config == third


def test_a_secret_is_never_in_a_delta():
    old = State(llm_model_config=ModelSettings(model_id="m", api_key="one"))
    new = State(llm_model_config=ModelSettings(model_id="n", api_key="another"))
    assert delta(old, new) == {"llm_model_config": {"v": {"model_id": {"=": "n"}}}}
    assert "another" not in json.dumps(delta(State(), new))


# ---- only what changed ----------------------------------------------------------------------


def test_nothing_changed_is_nothing():
    state = State(
        world={"a": {"b": 1}}, messages=[said("m")], results={"r": 1}, task_plan=TaskPlan()
    )
    assert delta(state, state) == {}
    again = state.replace(
        world={"a": {"b": 1}}, task_plan=TaskPlan(), error=None, world_events_done=()
    )
    assert delta(state, again) == {}


def test_one_key_deep_in_a_document_is_that_key():
    world = {"flights": {f"F{i}": {"seats": i} for i in range(1000)}, "hotels": {}}
    flights = {**world["flights"], "F7": {"seats": 6}}
    del flights["F9"]
    change = delta(State(world=world), State(world={**world, "flights": flights}))
    inner = {"k": {"F7": {"k": {"seats": {"=": 6}}}}, "-": ["F9"]}
    assert change == {"world": {"k": {"flights": inner}}}


def test_an_appended_item_is_that_item():
    old = State(
        messages=[said(f"{i}") for i in range(1000)], results={str(i): i for i in range(1000)}
    )
    new = old.replace(messages=old.messages.append(said("m")), results=old.results.set("x", 1))
    assert delta(old, new) == {
        "messages": {"+": [said("m").to_json()]},
        "results": {"k": {"x": {"=": 1}}},
    }


def test_one_step_of_a_plan_is_what_changed_of_it():
    plan = TaskPlan(steps=tuple(TaskStep(step_index=i, step_id=f"s{i}") for i in range(100)))
    new = plan.with_step("s5", status=StepStatus.COMPLETED, result={"x": 1})
    fields = {"status": {"=": "completed"}, "result": {"=": {"x": 1}}}
    steps = {"i": {"5": {"v": fields}}}
    change = delta(State(task_plan=plan), State(task_plan=new))
    assert change == {"task_plan": {"v": {"steps": steps}}}


def test_what_did_not_change_is_shared():
    old = State(world={"a": {"b": 1}, "c": {"d": 1}}, messages=[said("m")])
    new = old.replace(world={**old.world, "c": {"d": 2}})
    back = round_trip(old, new)
    assert back.world["a"] is old.world["a"]
    assert back.messages is old.messages


@pytest.mark.parametrize("field", ["task_plan", "messages", "world"])
def test_a_delta_that_does_not_fit_is_refused(field):
    """A store damaged by hand gives an error, never another state."""
    with pytest.raises(ValueError, match="valid"):
        apply(State(), {field: {"=": 3}})


@st.composite
def puts(draw: Any) -> dict[str, Any]:
    """Return what our own code puts: a place, an end, or the whole of a map or vector."""
    key, value = draw(NAMES), draw(JSON)
    return draw(
        st.sampled_from(
            [
                {"results": At(key, value)}, {"results": Gone(key)}, {"now": 2.0},
                {"messages": More((said(key), said("more")))}, {"messages": pvector([said(key)])},
                {"results": pmap({key: value})},
                {"results": At(key, value), "messages": More((said(key),)), "answer": value},
            ]
        )
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 9), puts(), st.booleans()), max_size=9))
def test_a_trail_of_places_never_hides_what_changed(history):
    versions = [State()]
    for origin, change, first in history:
        state = versions[origin % len(versions)]  # some are begun from twice
        if first and state.messages:
            state = state.put(messages=At(0, said("first")))
        versions.append(state.put(**change))
    for old in versions:
        for new in versions:
            assert same(round_trip(old, new), new)


def test_a_trail_tells_the_places_and_a_whole_is_not_told_apart():
    a, b, c = map(said, "abc")
    first = State().put(messages=More((a,)))
    later = first.put(results=At("x", 1)).put(messages=More((b,)), results=Gone("y"), now=1.0)
    assert later.places(first) == {"results": {"x", "y"}, "messages": set()}
    assert first.places(later) is None
    assert later.replace(messages=later.messages.append(c)).places(first)["messages"] is None
    assert delta(first, later) == {
        "messages": {"+": [b.to_json()]}, "results": {"k": {"x": {"=": 1}}}, "now": {"=": 1.0},
    }  # fmt: skip


def test_a_vector_that_grew_and_changed_is_written_as_both():
    old = Log(items=["a", {"n": 1}, "c", "d"])
    new = old.replace(items=old.items.set(1, {"n": 2}).append("e"))
    assert delta(old, new) == {"items": {"i": {"1": {"k": {"n": {"=": 2}}}}, "+": ["e"]}}
    assert same(round_trip(old, new), new)
    old = State(accepted=("x", "y"))
    assert delta(old, old.replace(accepted=("x", "y", "z"))) == {"accepted": {"+": ["z"]}}
