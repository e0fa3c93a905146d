"""Counter-based draws: uniform, independent, and functions of their names."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy import stats

from agentlab.base.randomness import choose, generator, uniform

N = 4000


def draws(*names):
    return np.array([uniform(*names, i) for i in range(N)])


def test_draws_are_uniform():
    sample = draws(0, "chain-medium-000", "advance")
    assert stats.kstest(sample, "uniform").pvalue > 0.01
    assert stats.chisquare(np.histogram(sample, 50, (0, 1))[0]).pvalue > 0.01
    assert sample.min() >= 0
    assert sample.max() < 1
    assert len(np.unique(sample)) == N


@pytest.mark.parametrize("other", [(1, "a"), (0, "b"), (0, "a", "x")])
def test_draws_of_neighbouring_keys_are_independent(other):
    table = np.histogram2d(draws(0, "a"), draws(*other), 8, ((0, 1), (0, 1)))[0]  # (8, 8)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4  # one fixed sample: no flakes


def test_low_bits_are_random_too():
    bits = (np.array([uniform("bits", i) for i in range(N)]) * 2**53).astype(np.int64)
    ones = [(bits >> k & 1).sum() for k in range(53)]
    assert min(stats.binomtest(int(n), N).pvalue for n in ones) > 0.01 / 53


def test_a_draw_depends_on_its_names_only():
    forward = [uniform(0, "call", i) for i in range(20)]
    uniform("something", "else")
    assert [uniform(0, "call", i) for i in reversed(range(20))] == forward[::-1]
    assert uniform("a", "bc") != uniform("ab", "c")
    assert uniform("a", "b") != uniform("b", "a")
    assert uniform() == uniform()


def test_draws_are_the_same_in_every_process_and_version():
    code = (
        "from agentlab.base.randomness import generator, uniform\n"
        "import sys\n"
        "sys.stdout.write(f\"{uniform(0, 'travel', 3)!r} {generator(0, 'x').random()!r}\")"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in "12"
    }  # fmt: skip
    assert seen == {f"{uniform(0, 'travel', 3)!r} {generator(0, 'x').random()!r}"}
    assert uniform(0, "travel", 3) == 0.03466122813131023


def test_generators_are_local_and_keyed():
    one, two, other = generator(0, "x"), generator(0, "x"), generator(1, "x")
    one.random()
    first = [two.random() for _ in range(5)]
    assert [generator(0, "x").random() for _ in range(2)] == [first[0]] * 2
    assert one.random() == first[1]
    assert other.random() != first[0]


# ---- choosing --------------------------------------------------------------------------------

weights = st.lists(st.sampled_from([0, 0.1, 0.2, 0.3, 1, 2.5, 7]), min_size=1, max_size=6).filter(
    lambda w: sum(w) > 0
)


@given(weights, st.floats(0, 1, exclude_max=True))
@example([0.1, 0.2, 0.3, 0], 1 - 2**-53)
@settings(deadline=None, max_examples=120)
def test_choose_never_takes_what_has_no_weight(w, draw):
    assert w[choose(dict(enumerate(w)), draw)] > 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.integers(0, 2**20 - 1))
@settings(deadline=None, max_examples=120)
def test_choose_is_the_inverse_of_the_cumulative_sum(w, numerator):
    draw = numerator / 2**20
    expected = np.searchsorted(np.cumsum(w), draw * sum(w), side="right")
    assert choose(dict(enumerate(w)), draw) == expected


@given(st.permutations("abcde"), st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_choose_ignores_the_order_in_which_the_weights_are_written(names, draw):
    w = dict(zip("abcde", (0.5, 2, 0, 1, 3), strict=True))
    assert choose({name: w[name] for name in names}, draw) == choose(w, draw)


def test_choose_keeps_to_the_weights():
    w = {"d": 6, "a": 1, "b": 0, "c": 3}
    picked = [choose(w, uniform("pick", i)) for i in range(N)]
    counts = [picked.count(k) for k in "acd"]
    assert stats.chisquare(counts, [N * 0.1, N * 0.3, N * 0.6]).pvalue > 0.01
