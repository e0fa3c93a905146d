"""Oracles: precision and recall by hand, and a recursive edit distance."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.study import plan_scores

few = settings(max_examples=60, deadline=None)
labels = st.lists(st.sampled_from("abcd"), max_size=6)


def test_node_and_edge_f1_by_hand():
    assert plan_scores.node_f1("aab", "abc") == pytest.approx(2 / 3)
    assert plan_scores.node_f1("aab", "abc", multiset=False) == pytest.approx(0.8)
    assert plan_scores.node_f1([], []) == 1
    assert plan_scores.node_f1([], "a") == 0
    assert plan_scores.edge_f1(pairwise("abc"), pairwise("abd")) == 0.5


@few
@given(labels, labels, st.booleans())
def test_f1_is_the_harmonic_mean_of_precision_and_recall(plan, reference, multiset):
    got = plan_scores.node_f1(plan, reference, multiset=multiset)
    assert got == plan_scores.node_f1(reference, plan, multiset=multiset)
    p, r = (x if multiset else sorted(set(x)) for x in (plan, reference))
    left, hits = list(r), 0
    for x in p:
        if x in left:
            left.remove(x)
            hits += 1
    if hits:
        precision, recall = hits / len(p), hits / len(r)
        assert got == pytest.approx(2 * precision * recall / (precision + recall))
    else:
        assert got == (not p and not r)


@few
@given(labels, st.lists(labels, min_size=1, max_size=3))
def test_edit_distance_is_the_recursive_one(plan, references):
    @cache
    def distance(a, b):
        if not a or not b:
            return len(a) + len(b)
        swap = distance(a[1:], b[1:]) + (a[0] != b[0])
        return min(swap, distance(a[1:], b) + 1, distance(a, b[1:]) + 1)

    want = min(distance(tuple(plan), tuple(r)) / max(len(plan), len(r), 1) for r in references)
    assert plan_scores.normalised_edit_distance(plan, references) == want


def test_edit_distance_needs_a_reference():
    with pytest.raises(ValueError, match="at least one reference"):
        plan_scores.normalised_edit_distance("abc", [])


def test_efficiency_and_speed_up():
    assert plan_scores.parallel_efficiency(3, 4) == 0.75
    assert plan_scores.speed_up([2, 2, 4], 4) == 2
    assert np.isnan(plan_scores.speed_up([], 0))
    with pytest.raises(ValueError, match="makespan >= 0"):
        plan_scores.parallel_efficiency(1, -1)
