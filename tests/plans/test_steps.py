"""The steps of a plan know where they stand: what is kept up to date is what is found afresh."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from agentlab.plans.steps import WORD, Places, Standing, Steps
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep

STATUSES = list(StepStatus)


@st.composite
def histories(draw):
    """Return steps that depend on each other and on strangers, and changes of their statuses."""
    count = draw(st.integers(1, 9))
    steps = []
    for i in range(count):
        before = [f"s{k}" for k in range(i)] + ["stranger"]
        needed = draw(st.lists(st.sampled_from(before), max_size=4))
        steps.append(TaskStep(step_id=f"s{i}", dependencies=tuple(needed)))
    change = st.tuples(st.integers(0, count - 1), st.sampled_from(STATUSES))
    return steps, draw(st.lists(change, max_size=25))


def told(standing: Standing) -> dict:
    found = {name: getattr(standing, name) for name in Standing.__slots__}
    found = {k: list(v) if isinstance(v, Places) else v for k, v in found.items()}
    return {**found, "count": {k: n for k, n in standing.count.items() if n}}


@given(histories())
def test_where_steps_stand_after_any_changes_is_what_looking_at_all_of_them_says(history):
    steps, changes = history
    listed = Steps(steps)
    assert listed.standing is listed.standing
    for place, status in changes:
        listed = listed.put(place, listed[place].put(status=status))
        assert told(listed.standing) == told(Standing.of(tuple(listed), listed.shape))


@given(histories())
def test_what_changed_between_two_versions_is_known_to_whoever_follows(history):
    steps, changes = history
    versions = [Steps(steps)]
    for place, status in changes:
        versions.append(versions[-1].put(place, versions[-1][place].put(status=status)))
    for i, earlier in enumerate(versions):
        for k, later in enumerate(versions[i:], start=i):
            assert later.changed(earlier) == {place for place, _ in changes[i:k]}
    aside = versions[0].put(0, versions[0][0].put(error="x"))
    if len(versions) > 1:
        assert aside.changed(versions[-1]) is None
        assert versions[-1].changed(aside) is None


@given(st.sets(st.integers(0, 3 * WORD)), st.integers(0, 3 * WORD), st.booleans())
def test_places_are_a_set_in_order(inside, place, put):
    places = Places(inside)
    changed = places.put(place, put)
    assert list(places) == sorted(inside)
    assert list(changed) == sorted(inside | {place} if put else inside - {place})
    assert (place in changed, bool(changed)) == (put, bool(list(changed)))


def test_steps_are_a_sequence_like_the_tuple_they_are_made_of():
    given_ = tuple(TaskStep(step_id=i) for i in "abc")
    plan = TaskPlan(steps=given_)
    numbered = tuple(s.replace(step_index=i) for i, s in enumerate(given_))
    assert plan.steps == numbered
    assert numbered == plan.steps
    assert plan.steps == list(numbered)
    assert plan.steps != numbered[:2]
    assert (plan.steps[-1], plan.steps[1:]) == (numbered[2], numbered[1:])
    assert len(plan.steps) == 3
    assert plan.steps + given_[:1] == (*numbered, given_[0])
    assert repr(plan.steps) == repr(numbered)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert TaskPlan(steps=plan.steps) == plan
    assert TaskPlan.model_validate(plan.to_json()) == plan


@pytest.mark.parametrize("steps", ["ab", [1], [TaskStep(), "x"], {"a": 1}, None])
def test_what_are_no_steps_are_refused(steps):
    with pytest.raises(ValueError, match="steps"):
        TaskPlan(steps=steps)
    with pytest.raises(ValueError, match=r"expected a list|TaskStep"):
        TaskPlan().replace(steps=steps)
