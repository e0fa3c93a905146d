"""Names where there is little room: short, and never two that read the same."""

from hypothesis import given, strategies as st

from agentlab.views.names import LONGEST_NAME, apart, called_beside

ARM = st.tuples(
    st.sampled_from([f"a_long_planner(option={i}, another=0.{i})" for i in range(4)]),
    st.sampled_from(["never", "retry_then_replan(2, wait=3.0)", "reflect_on_total_failure"]),
).map(" × ".join)


@given(st.lists(st.one_of(ARM, st.text(max_size=60)), unique=True, max_size=12))
def test_two_names_never_read_the_same(names):
    called = called_beside(names)
    assert list(called) == names
    assert len(set(called.values())) == len(names)


@given(st.lists(st.text(max_size=60), unique=True, max_size=6), st.integers(3, 40))
def test_what_is_short_enough_is_not_cut(names, length):
    for name, cut in zip(names, apart(names, length), strict=True):
        assert cut == name or len(cut) >= length


def test_arms_that_differ_at_their_ends_stay_short():
    assert max(map(len, apart([f"{'x' * 50}{i}" for i in range(9)], LONGEST_NAME))) == LONGEST_NAME
