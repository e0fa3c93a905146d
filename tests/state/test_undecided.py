"""What is undecided is what a look through all events finds, whatever way led to the state."""

from __future__ import annotations

import pickle

from hypothesis import given, strategies as st

import agentlab as al
from agentlab.base.trail import At, More
from agentlab.state.events import REACT, ChangeType, Severity
from agentlab.state.undecided import KEPT, undecided

events = st.builds(
    al.ContextChangeEvent,
    type=st.sampled_from(ChangeType), severity=st.sampled_from(Severity),
    description=st.sampled_from("abc"), payload=st.sampled_from([{}, {REACT: "x"}, {"y": 1}]),
)  # fmt: skip
changes = st.one_of(
    st.tuples(st.just("come"), st.lists(events, max_size=3)),
    st.tuples(st.just("decided"), st.just(None)),
    st.tuples(st.just("replaced"), st.lists(events, max_size=4)),
    st.tuples(st.just("first"), events),
    st.tuples(st.just("other"), st.integers(0, 9)),
    st.tuples(st.just("back"), st.integers(0, 9)),
    st.tuples(st.just("stored"), st.just(None)),
)


def made(state, states, kind, what):
    match kind:
        case "come":
            return state.put(events=More(tuple(what)))
        case "decided":
            return state.replace(events_decided=len(state.events))
        case "replaced":
            return state.replace(events=what, events_decided=0)
        case "first":
            return state.put(events=At(0, what)) if state.events else state
        case "other":
            return state.put(occurrences=At("t", what))
        case "back":
            return states[what % len(states)]
        case "stored":
            return pickle.loads(pickle.dumps(state))


@given(st.lists(changes, max_size=25), st.randoms(use_true_random=False))
def test_it_is_what_a_look_through_all_finds(way, random):
    states = [al.State()]
    for kind, what in way:
        state = made(states[-1], states, kind, what)
        states.append(state)
        if random.random() < 0.3:
            continue
        fresh, found = list(state.events[state.events_decided :]), undecided(state)
        for severity in Severity:
            expected = [e for e in fresh if e.severity is severity]
            assert list(found.by_severity[severity]) == expected
        asking = [e for e in fresh if e.payload.get(REACT)]
        assert list(found.asking) == asking
        rest = [e for e in fresh if e.type == "MILESTONE_REACHED" and not e.payload.get(REACT)]
        assert list(found.milestones) == rest


def test_it_is_no_part_of_the_state():
    state = al.State()
    other = state.put(events=More((al.ContextChangeEvent(type="EXTERNAL_SIGNAL"),)))
    before = other.to_json()
    undecided(other)
    assert other.to_json() == before
    assert other == al.State.model_validate(before)
    assert KEPT not in pickle.loads(pickle.dumps(other)).__dict__
