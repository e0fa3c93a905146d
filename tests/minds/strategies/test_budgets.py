"""Budgets as text: one spelling each, every combination, and what is none is refused."""

from __future__ import annotations

from dataclasses import asdict, fields
from itertools import product

import pytest
from hypothesis import given, strategies as st

from agentlab.errors import ConfigError
from agentlab.minds.strategies.base import Budget
from agentlab.minds.strategies.budgets import (
    KINDS,
    MOST,
    bounded,
    budget_levels,
    budget_text,
    budget_words,
)
from agentlab.minds.strategies.named import get_strategy

COUNTS = st.integers(0, MOST)
AMOUNTS = COUNTS | st.floats(0, MOST, allow_nan=False, allow_infinity=False)
BOUNDS = {
    "replans": COUNTS, "executions": COUNTS, "depth": COUNTS, "tool_calls": st.none() | COUNTS,
    "lm_tokens": st.none() | COUNTS, "seconds": st.none() | AMOUNTS,
}  # fmt: skip
MAPPINGS = st.fixed_dictionaries({}, optional=BOUNDS).filter(bool)


def test_every_bound_of_a_strategy_is_a_kind():
    assert KINDS == tuple(f.name for f in fields(Budget)) == tuple(asdict(Budget()))
    assert set(BOUNDS) == set(KINDS)


@given(MAPPINGS)
def test_a_budget_has_one_spelling_that_says_all_of_it(bounds):
    text = budget_text(bounds)
    assert budget_text(text) == budget_text(dict(reversed(bounds.items()))) == text
    own = get_strategy("retry_then_replan(1)")
    made = bounded(own, text)
    assert asdict(made.budget) == {**asdict(own.budget), **bounds}
    assert (made.name, made.trigger, made.scope) == (own.name, own.trigger, own.scope)


@given(st.fixed_dictionaries(BOUNDS))
def test_a_whole_budget_takes_the_place_of_all(bounds):
    budget = Budget(**bounds)
    own = get_strategy("on_error").within(tool_calls=7, seconds=9.0)
    assert bounded(own, budget_text(budget)).budget == budget


SEVERAL = st.fixed_dictionaries(
    {}, optional={k: st.lists(v, min_size=1, max_size=3, unique=True) for k, v in BOUNDS.items()}
).filter(bool)


@given(SEVERAL)
def test_several_bounds_stand_for_every_combination(kinds):
    levels = budget_levels(kinds)
    by_hand = {
        budget_text(dict(zip(kinds, bounds, strict=True))) for bounds in product(*kinds.values())
    }
    assert set(levels) == by_hand
    assert len(levels) == len(by_hand)
    words = budget_words(levels)
    assert words is not None
    assert len(words) == len(kinds)
    assert set(budget_levels(",".join(words))) == set(levels)


@given(st.lists(MAPPINGS, max_size=4))
def test_budgets_that_are_no_combinations_have_no_words(mappings):
    levels = list(dict.fromkeys(map(budget_text, mappings)))
    words = budget_words(levels)
    if words is None:
        kinds = [{part.partition("=")[0] for part in level.split(",")} for level in levels]
        told = {k: {p for lv in levels for p in lv.split(",") if p.startswith(f"{k}=")}
                for k in set().union(*kinds)}  # fmt: skip
        whole = 1
        for bounds in told.values():
            whole *= len(bounds)
        assert any(k != kinds[0] for k in kinds) or whole != len(levels)
    elif levels:
        assert set(budget_levels(",".join(words))) == set(levels)


def test_examples():
    assert budget_levels(" replans = 1, 3 ,10") == ("replans=1", "replans=3", "replans=10")
    assert budget_levels("seconds=1e3,2.50,tool_calls=none") == (
        "tool_calls=none,seconds=1000", "tool_calls=none,seconds=2.5",
    )  # fmt: skip
    assert budget_levels("replans=1,replans=3,replans=1") == ("replans=1", "replans=3")
    assert budget_words([]) == []
    assert budget_words(["replans=1", "tool_calls=5"]) is None


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("replan=1", "unknown kind of budget 'replan'; did you mean 'replans'?"),
        ({"token": 1}, "unknown kind of budget 'token'; did you mean 'lm_tokens'?"),
        ({3: 1}, "unknown kind of budget '3'"),
        ("tool calls=1", "did you mean 'tool_calls'"),
        ("", "expected a budget such as 'replans=3'"),
        ("3", "got '3'; kinds: replans, executions"),
        ("replans", "got 'replans'; kinds: replans, executions"),
        ({}, "expected a budget such as"),
        ({"replans": []}, "got no bound"),
        (3, "expected a budget such as .* got 3$"),
        (None, "got None$"),
        ("replans=many", "^budget replans: expected a number, got 'many'$"),
        ("seconds=", "budget seconds: expected a number or none, got ''"),
        ("replans=1,,2", "budget replans: expected a number, got ''"),
        ("replans=1.5", "budget replans: expected a whole number, got 1.5"),
        ("replans=none", "budget replans: expected a whole number, got None"),
        ("replans=-1", "expected a number greater than or equal to 0, got -1"),
        ({"replans": True}, "expected a whole number, got True"),
        ({"seconds": True}, "expected a number, got True"),
        ({"replans": "two"}, "expected a number, got 'two'"),
        ("seconds=inf", "expected a number or none, got 'inf'"),
        ({"seconds": float("inf")}, "at most 1,000,000,000,000,000, got inf"),
        ({"seconds": float("nan")}, "got nan"),
        ({"replans": 10**400}, "at most 1,000,000,000,000,000, got 1000"),
        ("seconds=1e400", "at most"),
        ("replans=1_0", "expected a number, got '1_0'"),
        ("replans=" + "x" * 5000, "expected a number, got 'xxx"),
    ],
    ids=lambda x: str(x)[:25],
)
def test_what_is_no_budget_is_refused(budget, message):
    with pytest.raises(ConfigError, match=message) as told:
        budget_levels(budget)
    assert len(str(told.value)) < 300
    assert "\n" not in str(told.value)


def test_one_budget_is_not_several():
    with pytest.raises(ConfigError, match="which stands for 2 budgets; give them to a grid"):
        budget_text("replans=1,3")
