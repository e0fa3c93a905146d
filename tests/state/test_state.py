"""The state of a run: JSON and back, what it shares, what it says."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import given, settings, strategies as st
from pydantic.alias_generators import to_camel

from agentlab.base.persistent import PersistentVector, pmap, pvector
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import FaultKind, FaultPlan, Persistence
from agentlab.errors import ConfigError
from agentlab.lab.lab import Lab
from agentlab.lm.settings import ModelSettings
from agentlab.minds.strategies.base import Budget
from agentlab.plans.task_plan import InterruptionContext, StepStatus, TaskPlan, TaskStep
from agentlab.state.config import AgentConfig, KnowledgeBase, SubAgent, ToolSettings
from agentlab.state.decisions import (
    ReflectionResult,
    ReplanAction,
    ReplanDecision,
    ReplanRecord,
    Trigger,
    TriggerPoint,
)
from agentlab.state.events import ChangeType, ContextChangeEvent, Severity
from agentlab.state.messages import Message, Part, ToolCall, said, told
from agentlab.state.records import DeliveredFault, Failure, Fault, TaskResult, UnderWay
from agentlab.state.state import FLAT, HOMES, State
from agentlab.state.tool_loop import PendingApproval, Review, Todo, ToolLoop
from agentlab.state.turn import Reference, Totals, Turn
from agentlab.tools.calls import CallRecord, ToolError
from agentlab.trace.delta import apply, delta
from agentlab.workflows.autonomous import autonomous

MODEL = ModelSettings(model_id="m", temperature=0.5)
STEP = TaskStep(
    step_id="find",
    name="查找",
    parameters={"to": "${0.x}", "n": None},
    status=StepStatus.INTERRUPTED,
    result=[1, None, {"a": "\u2028"}],
    expectation={"type": "array"},
    interruption_context=InterruptionContext(reason="killed"),
)
PLAN = TaskPlan(steps=(STEP, TaskStep(step_id="book", dependencies=("find",), expectation="ok")))
DECISION = ReplanDecision(
    action=ReplanAction.RETRY, step_id="find", wait=2.5, steps_to_cancel=(1,), correction={"a": 1}
)
FAULT = Fault(kind=FaultKind.TIMEOUT, persistence=Persistence.UNTIL, until=30.0, draw=0.25)
FULL = State(
    agent_id="helpdesk",
    user_id="u",
    session_id="s",
    user_input="订机票",
    agent_config=AgentConfig(
        id="helpdesk",
        sub_agents=(SubAgent(id="b"),),
        tools=(ToolSettings(id="t", name="t"),),
        model=MODEL,
        knowledge_bases=(KnowledgeBase(id="k", retrieval={"topK": 3}),),
    ),
    llm_model_config=MODEL,
    dataset_list=("k",),
    retrieval_config={"topK": 3},
    messages=[
        said("x"),
        Message(
            role="assistant",
            parts=(Part(type="thinking", text="hm"), Part(text="I look")),
            tool_calls=(ToolCall(call_id="r1_0", name="find", arguments={"q": 1}),),
        ),
        told("r1_0", "gone", is_error=True),
    ],
    turn=Turn(since=Totals(executions=2), user_intent="buy", references=(Reference(n=1),)),
    loop=ToolLoop(
        task_plan_text="1. buy",
        task_todo_list=(Todo(content="buy", status="done"),),
        pending_approvals=(PendingApproval(call_id="book", tool="book", arguments={"id": 7}),),
        reviews={"book#1": Review(call_id="book", attempt=1, asked="ab", answer="approve")},
        loop_signal="paused",
        task_execution_result={"rounds": 2},
    ),
    notes={"seen": [1, 2], "where": {"a": None}},
    replan_count=1,
    max_replans=2,
    outcome="aborted",
    planning_mode=False,
    task_plan=PLAN,
    current_task_index=1,
    task_results=[
        TaskResult(step_id="find", status=StepStatus.FAILED, error="timeout: late", attempt=1),
        TaskResult(step_id="find", status=StepStatus.COMPLETED, result={"id": 7}, attempt=2),
    ],
    reflection=ReflectionResult(analysis="a", goal_achieved=False, suggestions=("again",)),
    need_replan=True,
    max_task_iterations=9,
    loop_count=1,
    max_loops=2,
    next_action="replan",
    final_response="Done",
    error="none really",
    answer={"cost": 12.5, "ids": [1, 2]},
    results={"find": {"id": 7, "none": None}},
    attempts={"find": 2},
    replan_history=[ReplanRecord(at=1.5, visit=3, decision=DECISION, before=PLAN, after=PLAN)],
    trigger=Trigger(point=TriggerPoint.AFTER_STEP, reason="failed", step_id="find"),
    last_decision=DECISION,
    forced_decision=ReplanDecision(action=ReplanAction.ABORT, spent="replans"),
    failures=[Failure(tool="book", arguments="0123", code="sold_out", permanent=True)],
    guard={"abc": 1},
    stopped_by="abort",
    events=[
        ContextChangeEvent(
            type=ChangeType.TASK_FAILED, severity=Severity.WARNING, payload={"code": "x"}
        )
    ],
    events_decided=1,
    accepted=("find",),
    visit=4,
    executions=3,
    tool_calls=5,
    lm_calls=2,
    lm_tokens=100,
    parse_failures=1,
    lm_requests={"k": 2},
    lm_prompts={"p": 1},
    submissions=6,
    plans=2,
    seed=11,
    scenario_id="travel-1",
    now=12.25,
    initial={"a": 1},
    world={"a": 2, "seen": {"x": True}},
    belief={"a": 1},
    calls=[
        CallRecord(tool="book", arguments={"id": 7}, result="ok", finished=3.0),
        CallRecord(
            tool="book", arguments={"id": 8}, error=ToolError(code="c", message="m"), faulted=True
        ),
    ],
    under_way=[
        UnderWay(step_id="book", action_type="call_tool", attempt=1, submission=3, fault=FAULT)
    ],
    not_before={"find": 14.5},
    fault_plan=FaultPlan(rate=0.1, kinds={FaultKind.TIMEOUT: 1, FaultKind.ERROR: 2}),
    occurrences={"book:0123": 2},
    standing={"book": FAULT},
    delivered=[
        DeliveredFault(fault=FAULT, tool="book", arguments="0123", truth={"sold": {"x": True}})
    ],
    world_events_done=("strike",),
)


def same_after_json(state: State) -> None:
    plain = state.to_json()
    text = json.dumps(plain, allow_nan=False)
    for again in (State.model_validate(json.loads(text)), State.model_validate_json(text)):
        assert again == state
        assert again.digest == state.digest
        assert again.to_json() == plain
        for name in State.model_fields:  # an equal list is no vector
            assert isinstance(getattr(again, name), PersistentVector) == isinstance(
                getattr(state, name), PersistentVector
            )


def test_every_field_survives_json():
    default = State()
    unset = [n for n in State.model_fields if getattr(FULL, n) == getattr(default, n)]
    assert unset == [], "give each field of a state a value here"
    same_after_json(FULL)
    same_after_json(default)


@pytest.mark.parametrize("strategy", ["never", "retry_then_replan(1)"])
def test_the_states_of_a_run_survive_json(strategy):
    lab = Lab(generate("easy", 0), planner="search", strategy=strategy, fault_rate=0.4, seed=3)
    run = autonomous.start(lab)
    run.finish()
    assert run.state.delivered
    for state in run.states:
        same_after_json(state)


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
documents = st.dictionaries(text, json_values, max_size=3)


@given(
    st.builds(
        State,
        world=documents,
        belief=documents,
        answer=json_values,
        results=documents,
        messages=st.lists(st.builds(said, text), max_size=3),
        notes=documents,
        tool_result=json_values,
        now=st.floats(0, 1e9),
        user_input=text,
        task_results=st.lists(
            st.builds(
                TaskResult,
                stepId=text,
                status=st.sampled_from(StepStatus),
                result=json_values,
                error=st.none() | text,
            ),
            max_size=2,
        ),
    )
)
@settings(deadline=None, max_examples=30)
def test_any_data_survives_json(state):
    same_after_json(state)


def test_the_seeds_keys():
    """spec/autonomous.md, 'State keys', in the seeds' spelling."""
    plain = FULL.to_json()
    assert {
        "taskPlan", "currentTaskIndex", "taskResults", "planningMode", "reflection", "needReplan",
        "maxTaskIterations", "loopCount", "maxLoops", "nextAction", "finalResponse", "error",
        "llmModelConfig", "userId", "sessionId",
    } <= plain.keys()  # fmt: skip
    assert {
        "stepIndex", "stepId", "name", "description", "actionType", "targetResource", "parameters",
        "dependencies", "importance", "skippable", "status", "result", "error", "expectation",
        "enforced", "interruptionContext",
    } == plain["taskPlan"]["steps"][0].keys()  # fmt: skip
    default = State()
    assert (default.max_task_iterations, default.max_loops, default.loop_count) == (20, 3, 0)


MESSAGE = said("m")


def test_a_kept_history_grows_with_what_changes_and_not_with_what_is_there():
    """With tuples, 3,000 kept states of up to 3,000 messages hold 36 MB of references."""
    tracemalloc.start()
    states = [State(world={"k": list(range(1000))})]
    for i in range(3000):
        last = states[-1]
        states.append(last.replace(messages=last.messages.append(MESSAGE), visit=i))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 20e6
    assert [len(s.messages) for s in states[::1000]] == [0, 1000, 2000, 3000]
    assert {id(s.world) for s in states} == {id(states[0].world)}


def test_plain_maps_become_persistent():
    state = State(results={"a": 1}, messages=(said("x"),))
    assert (state.results, state.messages) == (pmap({"a": 1}), pvector([said("x")]))
    assert state.replace(attempts={"a": 2}).attempts == pmap({"a": 2})


# ---- flat for people, nested inside ----------------------------------------------------------


def test_flat_names_stand_for_one_field_each():
    assert len(FLAT) == sum(len(cls.model_fields) for cls in HOMES.values())
    assert FLAT.keys() & State.model_fields.keys() == set()


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_name_is_read_written_and_edited(name):
    value = getattr(getattr(FULL, FLAT[name]), name)
    assert getattr(FULL, name) == value
    assert State().edited(**{name: value}) == State().replace(
        **{FLAT[name]: HOMES[FLAT[name]]().replace(**{name: value})}
    )
    document = FULL.to_json()
    for spelled in (name, to_camel(name)):
        flat = {to_camel("agent_id"): "a", spelled: document[to_camel(name)]}
        assert getattr(State.model_validate(flat), name) == value
    assert to_camel(name) in document


def test_flat_is_every_field_and_nothing_that_is_kept_beside_them():
    homes = [State(), *(cls() for cls in HOMES.values())]
    names = {n for h in homes for n in type(h).model_fields} - set(HOMES)
    states = [State(), FULL]
    for home in HOMES:  # a record that grew remembers where, and its digest
        fields = {n: v for n, v in getattr(FULL, home) if isinstance(v, PersistentVector | Mapping)}
        grown = getattr(FULL, home).replace(**fields)
        assert len(grown.digest) == 16
        states.append(FULL.put(**{home: grown}))
    for state in states:
        assert set(state.flat()) == names
        assert {n: state.flat()[n] for n in FLAT} == {n: getattr(state, n) for n in FLAT}


def test_json_is_flat_and_comes_back_the_same():
    document = FULL.to_json()
    assert set(HOMES) & set(document) == set()
    assert State.model_validate(json.loads(json.dumps(document))).to_json() == document


def test_an_unknown_flat_name_is_told_with_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'user_intent'"):
        _ = State().user_intnt
    with pytest.raises(ConfigError, match="no field 'user_intnt'"):
        State().edited(user_intnt="x")
    with pytest.raises(ConfigError, match="rounds_since_todo_update: expected a number greater"):
        State().edited(rounds_since_todo_update=-1)


# ---- turns -----------------------------------------------------------------------------------

FRESH = {
    "turn", "loop", "task_plan", "current_task_index", "loop_count", "replan_count", "next_action",
    "final_response", "answer", "error", "outcome", "stopped_by", "reflection", "trigger",
    "need_replan", "last_decision", "forced_decision", "accepted", "guard", "not_before",
}  # fmt: skip


def test_the_next_turn_is_fresh_and_keeps_what_the_run_knows():
    state = FULL.next_turn("and now?")
    for name in FRESH - {"turn"}:
        assert getattr(state, name) == State.model_fields[name].get_default(
            call_default_factory=True
        )
    assert state.turn == Turn(
        since=Totals(executions=3, tool_calls=5, lm_tokens=100, seconds=12.25)
    )
    assert [m.text for m in state.messages] == ["x", "I look", "gone", "and now?"]
    assert state.events_decided == len(state.events)
    changed = FRESH | {"user_input", "messages", "events_decided"}
    for name in State.model_fields.keys() - changed:
        assert getattr(state, name) is getattr(FULL, name)


def test_a_budget_counts_from_the_start_of_the_turn():
    budget = Budget(executions=2, tool_calls=2, lm_tokens=50, seconds=5.0)
    state = FULL.replace(max_task_iterations=2)
    assert budget.spent(state.replace(turn=Turn())) == "executions"
    fresh = state.next_turn("again")
    assert budget.spent(fresh) is None
    assert budget.spent(fresh.replace(executions=5)) == "executions"
    assert budget.spent(fresh.replace(tool_calls=7)) == "tool_calls"
    assert budget.spent(fresh.replace(lm_tokens=150)) == "lm_tokens"
    assert budget.spent(fresh.replace(now=18.0)) == "seconds"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "PLANNING"),
        ({"final_response": "hi"}, "COMPLETED"),
        ({"final_response": "hi", "error": "e"}, "ABORTED"),
        ({"outcome": "completed"}, "COMPLETED"),
        ({"final_response": "hi", "outcome": "failed"}, "ABORTED"),
        ({"next_action": "execute_next_task"}, "EXECUTING"),
    ],
)
def test_the_status_needs_no_plan(fields, status):
    assert State(**fields).loop_status == status


# ---- messages --------------------------------------------------------------------------------


def test_a_message_goes_to_a_model_and_comes_back():
    for message in FULL.messages:
        document = message.to_lm()
        if message.role == "tool":
            [part] = document["parts"]
            assert (part["id"], part["is_error"], part["content"][0]["text"]) == (
                "r1_0",
                True,
                "gone",
            )
        else:
            assert Message.from_lm(document, lambda i: f"r1_{i}") == message


def test_calls_have_ids_of_ours():
    theirs = [{"type": "tool_call", "id": "same", "name": n, "input": {}} for n in "ab"]
    message = Message.from_lm({"role": "assistant", "parts": theirs}, lambda i: f"r7_{i}")
    assert [c.call_id for c in message.tool_calls] == ["r7_0", "r7_1"]


def test_a_change_deep_in_a_note_is_stored_as_that_change():
    note = {"found": [{"n": i, "text": "x" * 50} for i in range(50)], "at": {"page": 1}}
    before = State().replace(notes=State().notes.set("mine", note))
    after = before.replace(notes=before.notes.set("mine", {**note, "at": {"page": 2}}))
    change = delta(before, after)
    assert apply(before, json.loads(json.dumps(change))) == after
    assert len(json.dumps(change)) < 200


def test_a_changed_field_of_turn_or_loop_is_stored_as_that_field():
    before = State()
    before = before.replace(turn=before.turn.replace(user_intent="x" * 500))
    after = before.replace(turn=before.turn.replace(need_rag=True))
    change = delta(before, after)
    assert change == {"turn": {"v": {"need_rag": {"=": True}}}}
    assert apply(before, change) == after
