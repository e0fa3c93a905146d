"""Values: replacing fields, digests, merge patches, and what counts as JSON."""

from __future__ import annotations

import copy
import json
import math
import pickle

import pytest
from hypothesis import example, given, settings, strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

import agentlab as al
from agentlab.base.documents import canonical, digest, is_json, merge_patch, set_path
from agentlab.base.fields import thaw
from agentlab.base.persistent import pmap, pvector
from agentlab.base.refusals import explain
from agentlab.base.trail import At
from agentlab.base.values import Value
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.scenario import Goal
from agentlab.errors import ConfigError, PlanValidationError
from agentlab.lm.settings import ModelSettings
from agentlab.plans.contract.codec import PlanCodec
from agentlab.plans.contract.validator import PlanValidator
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.state.events import ContextChangeEvent
from agentlab.state.messages import said
from agentlab.state.records import TaskResult
from agentlab.state.state import State
from agentlab.tools.calls import CallRecord, ToolError
from agentlab.tools.tool import Permissions
from agentlab.workflows.sessions import LoopConfig

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
)  # fmt: skip
keys = st.sampled_from("abc") | st.text(st.characters(exclude_categories=("Cs",)), max_size=3)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, documents, max_size=4)
fast = settings(deadline=None, max_examples=80)


WHERE = (
    "calls", "config", "decisions", "events", "plans.parsing", "plans.task_plan", "scenario",
    "state", "tools.tool",
)  # fmt: skip


def records() -> list[type[Value]]:
    """Every record of floors 0 to 2."""
    found, waiting = [], [Value]
    while waiting:
        classes = waiting.pop().__subclasses__()
        waiting += classes
        found += [c for c in classes if c.__module__.removeprefix("agentlab.") in WHERE]
    return found


ANYTHING = {
    "CallRecord.result", "State.answer", "TaskResult.result", "TaskStep.result", "UnderWay.refused",
}  # fmt: skip
FIELDS = [(cls, name) for cls in records() for name in cls.model_fields]


@pytest.mark.parametrize(("cls", "name"), FIELDS, ids=lambda x: getattr(x, "__name__", x))
def test_replace_refuses_a_wrong_type(cls, name):
    record = cls.model_construct()
    wrong = object()
    if f"{cls.__name__}.{name}" in ANYTHING:
        assert getattr(record.replace(**{name: wrong}), name) is wrong
        return
    with pytest.raises(ConfigError, match=rf"^{cls.__name__}: field {name}: [^\n]*$"):
        record.replace(**{name: wrong})


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (State(), {"loop_count": -1}),
        (State(), {"max_task_iterations": -1}),
        (State(), {"task_results": ["no result"]}),
        (State(), {"events": [{"type": "NO_SUCH"}]}),
        (State(), {"world": [("a", 1)]}),
        (State(), {"world": pmap()}),
        (TaskStep(), {"importance": 1.01}),
        (TaskStep(), {"status": "done"}),
        (TaskPlan(), {"complexity": 11}),
        (FaultPlan(), {"rate": 1.5}),
        (FaultPlan(), {"kinds": {}}),
        (Permissions(), {"effects": ["no such"]}),
        (ModelSettings(model_id="m"), {"max_tokens": 0}),
    ],
)
def test_replace_keeps_the_constraints(record, change):
    with pytest.raises(ConfigError, match=f"field {next(iter(change))}"):
        record.replace(**change)


def test_replace_changes_what_it_names_and_shares_the_rest():
    world = {"a": {"b": 1}}
    old = State(world=world, seed=7, messages=[said("hello")])
    new = old.replace(seed=8, belief={})
    assert (old.seed, new.seed) == (7, 8)
    assert new == State(world=world, seed=8, messages=[said("hello")], belief={})
    assert old == State(world=world, seed=7, messages=[said("hello")])
    assert new.world is old.world is world
    assert new.messages is old.messages
    assert type(new) is State
    assert new.model_fields_set == {"world", "seed", "messages", "belief"}


def test_replace_names_the_nearest_field():
    with pytest.raises(ConfigError, match=r"State has no field 'loop_cout'.*'loop_count'"):
        State().replace(loop_cout=1)


def test_records_are_frozen_and_closed():
    with pytest.raises(ValidationError, match="frozen"):
        State().seed = 1
    with pytest.raises(ConfigError, match="State: field sed: is no field of it, got 1; did you"):
        State(sed=1)


@pytest.mark.parametrize("cls", records(), ids=lambda c: c.__name__)
def test_both_spellings(cls):
    """A record's JSON is camelCase; it is read in either spelling, and nothing else."""
    names = list(cls.model_fields)
    record = cls.model_construct(**{n: None for n in names if cls.model_fields[n].is_required()})
    wire = record.model_dump(warnings=False)
    assert set(wire) == {to_camel(n) for n in names if not cls.model_fields[n].exclude}
    for spelled in (names, wire):
        with pytest.raises(ValidationError) as e:
            cls.model_validate({"noSuchField": 1, **dict.fromkeys(spelled, object())})
        refused = [i["loc"] for i in e.value.errors() if i["type"] == "extra_forbidden"]
        assert refused == [("noSuchField",)]


# ---- digests ---------------------------------------------------------------------------------


def shuffled(value, order):
    """The same JSON value with the keys of every object in another order."""
    if isinstance(value, dict):
        items = [(k, shuffled(v, order)) for k, v in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(v, order) for v in value] if isinstance(value, list) else value


@given(documents, st.randoms(use_true_random=False))
@fast
def test_digest_ignores_the_order_of_keys_and_survives_json(value, order):
    assert digest(shuffled(value, order)) == digest(value)
    assert digest(json.loads(json.dumps(value))) == digest(value)


@given(documents, documents)
@fast
def test_digest_tells_values_apart(a, b):
    alike = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    assert (digest(a) == digest(b)) == alike


def test_digest_is_the_same_in_every_process_and_version():
    assert digest({"b": [1, 2.5, None, True], "a": "预订"}) == "c071089f9a91aeb8"


def test_digest_of_any_text():
    assert digest("\ud800") != digest("\ud801")  # a lone surrogate, as JSON text may spell it


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}, {"a": object()}])
def test_canonical_refuses_what_is_not_json(bad):
    with pytest.raises((TypeError, ValueError)):
        canonical(bad)


def test_a_record_caches_its_digest_and_replace_drops_it():
    goal = Goal(conditions={"a": 1})
    before = goal.digest
    assert before == goal.digest == digest(goal.to_json()) == Goal(conditions={"a": 1}).digest
    assert goal == Goal(conditions={"a": 1})
    assert goal.to_json() == Goal(conditions={"a": 1}).to_json()
    assert goal.replace(deadline=1.0).digest == Goal(conditions={"a": 1}, deadline=1.0).digest
    assert goal.replace(conditions={"a": 2}).digest != before


# ---- documents -------------------------------------------------------------------------------


def rfc7386(target, patch):
    """The pseudo code of RFC 7386, section 2, word for word, on copies."""
    if isinstance(patch, dict):
        target = copy.deepcopy(target) if isinstance(target, dict) else {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = rfc7386(target.get(name), value)
        return target
    return copy.deepcopy(patch)


@given(documents, documents)
@fast
def test_merge_patch_is_rfc_7386_and_changes_nothing(target, patch):
    before = copy.deepcopy((target, patch))
    assert canonical(merge_patch(target, patch)) == canonical(rfc7386(target, patch))
    assert canonical([target, patch]) == canonical(list(before))


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples(target, patch, result):
    assert merge_patch(target, patch) == result


def test_merge_patch_shares_what_it_does_not_touch():
    target = {"a": {"x": [1]}, "b": {"y": {}}}
    patched = merge_patch(target, {"b": {"z": 1}})
    assert patched["a"] is target["a"]
    assert patched["b"]["y"] is target["b"]["y"]
    assert merge_patch(target, {}) is target
    assert merge_patch(target, {"a": {}})["a"] is target["a"]


@given(objects, st.lists(keys, min_size=1, max_size=3), scalars)
@fast
def test_set_path(document, path, value):
    expected = copy.deepcopy(document)
    at = expected
    for key in path[:-1]:
        if not isinstance(at.get(key, {}), dict):
            return
        at = at.setdefault(key, {})
    at[path[-1]] = value
    before = canonical(document)
    assert canonical(set_path(document, path, value)) == canonical(expected)
    assert canonical(document) == before


odd = st.recursive(
    scalars | st.floats() | st.binary(max_size=2) | st.just(1 + 2j) | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=2)
    ),
    max_leaves=5,
)


def same(a, b):
    """Equal, with equal types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


@given(odd)
@example(float("inf"))
@example([float("-inf")])
@example({"a": float("nan")})
@example({1: 2})
@example((1,))
@fast
def test_is_json_says_whether_a_round_trip_is_exact(value):
    try:
        exact = same(json.loads(json.dumps(value, allow_nan=False)), value)
    except (TypeError, ValueError):
        exact = False
    assert is_json(value) == exact


def test_thaw_gives_plain_data():
    nested = pvector([pmap({"a": pvector([1, (2, 3)])}), ToolError(code="c", message="m")])
    assert thaw(nested) == [
        {"a": [1, [2, 3]]},
        {"code": "c", "message": "m", "permanent": False},
    ]
    assert type(thaw(nested)[0]["a"][1]) is list
    assert thaw("text") == "text"


# ---- growing fields --------------------------------------------------------------------------


def test_growing_fields_validate_what_arrives_as_data_and_keep_what_grew():
    state = State.model_validate({"taskResults": [{"stepId": "a", "status": "completed"}]})
    assert state.task_results == pvector([TaskResult(step_id="a", status="completed")])
    grown = state.task_results.append(TaskResult(step_id="b", status="failed"))
    assert state.replace(task_results=grown).task_results is grown
    assert len(state.task_results) == 1
    standing = State.model_validate({"standing": {"book": {"kind": "error"}}}).standing
    assert standing["book"].kind == "error"
    with pytest.raises(ValidationError):
        State.model_validate({"standing": {"book": {"kind": "no such"}}})


def test_documents_are_kept_by_reference():
    arguments = {"nested": {"list": [1]}}
    assert CallRecord(tool="t", arguments=arguments).arguments is arguments


# ---- what a validation error says ------------------------------------------------------------


def test_explain_names_field_problem_and_value():
    with pytest.raises(ValidationError) as e:
        State.model_validate({"loopCount": -1, "taskPlan": {"complexity": 11}, "sed": "s3cr3t"})
    text = explain(e.value, State)
    assert "\n" not in text
    assert "field loopCount: " in text
    assert "got -1" in text
    assert "field taskPlan.complexity: " in text
    assert "field sed: is no field of it, got 's3cr3t'; did you mean 'seed'?" in text
    assert "s3cr3t" in text
    hidden = explain(e.value, show=False)
    assert "s3cr3t" not in hidden
    assert "field sed: is no field of it, got str" in hidden
    assert "got str" in hidden


def test_explain_does_not_say_what_arrived_where_nothing_did():
    class Pair(BaseModel):
        left: int

    with pytest.raises(ValidationError) as e:
        Pair.model_validate({"right": 1})
    assert explain(e.value) == "field left: is missing"


def test_what_people_write_wrong_is_told_in_one_line():
    with pytest.raises(ConfigError) as e:
        ContextChangeEvent(type="NEW_CONSTRANT")
    assert str(e.value).startswith("ContextChangeEvent: field type: ")
    assert "did you mean 'NEW_CONSTRAINT'?" in str(e.value)
    with pytest.raises(ConfigError, match=r"LoopConfig: field max_replans: .* got -1"):
        LoopConfig(max_replans=-1)
    with pytest.raises(ConfigError, match=r"field decider: .*did you mean 'rules'"):
        LoopConfig(decider="rule")
    with pytest.raises(ConfigError, match="a lab has no 'sed'; did you mean 'seed'"):
        al.Lab(tools=[]).bind(sed=3)
    with pytest.raises(PlanValidationError, match="expected a PlanSpec, got str"):
        PlanCodec().encode("x")
    with pytest.raises(ConfigError, match="expected PlanCapability objects"):
        PlanValidator([print])
    assert "\n" not in str(e.value)


def test_a_record_that_our_own_code_made_is_the_one_that_was_validated():
    fields = {"step_id": "a", "status": StepStatus.COMPLETED, "result": {"x": [1]}, "attempt": 2}
    made, checked = TaskResult.made(**fields), TaskResult(**fields)
    assert made == checked
    assert json.dumps(made.to_json()) == json.dumps(checked.to_json())
    assert made.model_fields_set == checked.model_fields_set
    assert made.digest == checked.digest
    assert made.put(attempt=3) == checked.replace(attempt=3)


def test_a_value_that_is_pickled_leaves_behind_what_can_be_found_again():
    state = State().put(results=At("a", 1))
    assert state.digest == pickle.loads(pickle.dumps(state)).digest
    assert set(pickle.loads(pickle.dumps(state)).__dict__) == set(State.model_fields)
