"""The grid: every combination is an arm, and what cannot be built is refused before a run."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

import agentlab as al
from agentlab.errors import StudyError
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.planners.search import Search
from agentlab.minds.strategies.named import get_strategy
from agentlab.study.grid import Arm, arm_from_json, check_arms, grid

PLANNERS = ["search", "reference", "reference(noise=0.2)"]
STRATEGIES = ["never", "retry(1)", "retry(2)", "on_error"]


def subsets(values):
    return st.lists(st.sampled_from(values), min_size=1, unique=True)


@given(subsets(PLANNERS), subsets(STRATEGIES), subsets([1, 2, 3]))
def test_a_grid_is_every_combination_in_order(planners, strategies, workers):
    arms = grid(planner=planners, strategy=strategies, workers=workers)
    expected = [Arm(p, s, workers=w) for p, s, w in product(planners, strategies, workers)]
    assert list(arms) == expected
    assert len({a.label for a in arms}) == len(arms)


def test_a_value_alone_is_an_axis_of_one():
    assert grid(planner="search") == (Arm("search"),)
    assert grid() == (Arm(),)
    assert [a.workflow for a in grid(workflow=("autonomous",))] == ["autonomous"]


def test_a_label_names_what_is_not_the_default():
    assert Arm("search", "retry(2)").label == "search × retry(2)"
    assert Arm("search", "never", workers=3).label == "search × never × workers=3"
    assert Arm(Search(), get_strategy("retry(1)")).label == "Search × retry(1)"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"planer": "search"}, "an arm has no 'planer'; did you mean 'planner'"),
        ({"planner": "serach"}, "arm 'serach × never': unknown planner 'serach'; did you mean"),
        ({"strategy": "retrai(2)"}, "unknown strategy 'retrai'; did you mean 'retry'"),
        ({"strategy": ["never", "retry(n=2)"]}, r"arm 'search × retry\(n=2\)': strategy retry"),
        ({"strategy": "retry(-1)"}, "k: expected a number greater than or equal to 0, got -1"),
        ({"planner": "reference(noise=2)"}, "noise between 0 and 1, got 2"),
        ({"planner": "__import__('os')"}, "unknown planner"),
        ({"planner": "search(lambda: 1)"}, "literal arguments"),
        ({"workflow": "autonomus"}, "unknown workflow 'autonomus'; did you mean 'autonomous'"),
        ({"workers": 0}, "workers must be an integer of at least 1"),
        ({"workers": True}, "workers must be an integer of at least 1"),
        ({"strategy": []}, "an axis of the grid has no value"),
        ({"planner": ["search", "search"]}, "two arms are called 'search × never'"),
        ({"planner": [Search(), Search()]}, "two arms are called 'Search#.* same"),
        ({"planner": 3}, r"or an object with plan\(request, kit\).*, got 3"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_arm_and_the_reason(axes, message):
    with pytest.raises(StudyError, match=message):
        grid(**axes)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ((), "at least one arm"),
        (["search"], r"agentlab.grid\(...\), got text 'search'"),
    ],
)
def test_what_is_no_arm_is_refused(arms, message):
    with pytest.raises(StudyError, match=message):
        check_arms(arms)


@pytest.mark.parametrize("arm", grid(planner=PLANNERS, strategy=STRATEGIES, workers=[1, 2]))
def test_a_named_arm_is_json_and_back(arm):
    assert arm.named
    assert arm_from_json(arm.to_json()) == arm


def test_an_object_is_stood_for_by_its_name_and_code():
    one, two = Arm(Fixed([])), Arm(Fixed([{"stepId": "a"}]))
    assert not one.named
    assert one.to_json()["planner"]["object"] == "Fixed"
    assert one.to_json() == Arm(Fixed([])).to_json()  # the same content is the same arm
    assert one.to_json() != two.to_json()
    read = arm_from_json(one.to_json())
    assert (read.label, read.to_json(), read.named) == (one.label, one.to_json(), False)
    with pytest.raises(StudyError, match=r"the planner of this arm is an object .*\(Fixed"):
        read.check_made()
    own = Arm("search", get_strategy("retry(1)").within(replans=0))
    with pytest.raises(StudyError, match=r"the strategy of this arm is an object .*\(retry\(1\)\)"):
        arm_from_json(own.to_json()).check_made()


def test_an_object_that_changes_when_it_is_used_stays_the_arm_it_was():
    """A planner that counts its calls must not make its finished cells unfindable."""

    class Counting(Search):
        name = "counting"
        calls = 0

        def plan(self, request, bench):
            self.calls += 1
            return super().plan(request, bench)

    planner = Counting()
    study = al.Study(grid(planner=planner), al.load_suite("chain")[:2], seeds=1, controls=False)
    assert len(study.run(processes=1)) == 2
    assert planner.calls == 2
    assert len(study.run(processes=1)) == 2
    assert planner.calls == 2  # nothing was run again
