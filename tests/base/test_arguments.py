"""Arguments of public functions: held by name, however they are given."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, strategies as st

from agentlab.base.arguments import Flag, Positive, takes
from agentlab.errors import ConfigError


@takes(k=Positive, on=Flag)
def given_to(first, k=1, *more, on=False, **rest):
    return first, k, more, on, rest


@given(st.integers(1, 100), st.booleans(), st.lists(st.integers(), max_size=3))
def test_what_fits_arrives_as_it_was_given(k, on, more):
    assert given_to("a", k, *more, on=on, z=3) == ("a", k, tuple(more), on, {"z": 3})
    assert given_to("a", on=np.bool_(on), k=np.int64(k)) == ("a", k, (), on, {})


@given(st.one_of(st.text(), st.floats(), st.none(), st.integers(max_value=0), st.booleans()))
def test_what_does_not_fit_is_refused_by_name_by_place_or_keyword(value):
    with pytest.raises(ConfigError, match="given_to: k: expected a"):
        given_to("a", value)
    with pytest.raises(ConfigError, match="given_to: k: expected a"):
        given_to("a", k=value)


def test_a_constructor_is_told_by_its_class_and_signatures_stay():
    class Oven:
        @takes(heat=Positive)
        def __init__(self, heat=1):
            self.heat = heat

    with pytest.raises(ConfigError, match=r"Oven: heat: expected a whole number, got 'hot'"):
        Oven("hot")
    assert str(inspect.signature(Oven)) == "(heat=1)"
    assert Oven(2).heat == 2


def test_a_missing_argument_is_pythons_own_error():
    with pytest.raises(TypeError, match="first"):
        given_to()
