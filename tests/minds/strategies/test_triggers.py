"""The trigger of what changed, against a look through all that is undecided."""

from __future__ import annotations

from hypothesis import given, strategies as st

import agentlab as al
from agentlab.base.trail import At, More
from agentlab.minds.strategies.triggers import changes, told
from agentlab.plans.task_plan import TaskStep
from agentlab.state.decisions import TriggerPoint
from agentlab.state.events import REACT, ChangeType, Severity

PLANS = {
    "open": al.TaskPlan(steps=(TaskStep(step_id="a"),)),
    "done": al.TaskPlan(steps=(TaskStep(step_id="a", status="completed"),)),
    "none": None,
}
events = st.builds(
    al.ContextChangeEvent,
    type=st.sampled_from(ChangeType), severity=st.sampled_from(Severity),
    task_id=st.sampled_from([None, "a", "gone", "never"]), description=st.sampled_from("xyz"),
    payload=st.sampled_from([{}, {}, {REACT: "t"}]),
)  # fmt: skip


def by_a_look_through_all(threshold, batch, milestones, point, state):
    fresh = state.fresh_events
    if point is TriggerPoint.EVENT:
        critical = [e for e in fresh if e.severity is Severity.CRITICAL]
        if critical:
            return told(critical)
        weighty = [e for e in fresh if e.severity.reaches(threshold)]
        return told(weighty) if len(weighty) >= batch and not state.done else None
    if point is TriggerPoint.PHASE_END and not state.done:
        reached = [e for e in fresh if e.payload.get(REACT)
                   or (milestones and e.type is ChangeType.MILESTONE_REACHED)]  # fmt: skip
        return told(reached) if reached else None
    return None


visits = st.tuples(st.lists(events, max_size=3), st.sampled_from(sorted(PLANS)), st.booleans())


@given(st.lists(visits), st.sampled_from(Severity), st.integers(1, 4), st.booleans())
def test_it_asks_when_a_look_through_all_would(way, threshold, batch, milestones):
    trigger = changes(threshold, batch, milestones)
    state = al.State().put(attempts=At("a", 1)).put(attempts=At("gone", 1))
    for come, plan, decided in way:
        state = state.put(events=More(tuple(come)), task_plan=PLANS[plan])
        for point in (TriggerPoint.EVENT, TriggerPoint.PHASE_END, TriggerPoint.AFTER_STEP):
            expected = by_a_look_through_all(threshold, batch, milestones, point, state)
            assert trigger(point, state, None) == expected
        if decided:
            state = state.put(events_decided=len(state.events))


def test_what_a_decision_interrupted_is_no_news():
    gone = al.ContextChangeEvent(type="TASK_INTERRUPTED", task_id="gone")
    state = al.State(events=[gone], task_plan=PLANS["open"])
    assert state.fresh_events == (gone,)  # it never ran, so nothing took it out
    state = state.put(attempts=At("gone", 1))
    assert state.fresh_events == ()
    here = state.put(attempts=At("a", 1), events=More((gone.replace(task_id="a"),)))
    assert [e.task_id for e in here.fresh_events] == ["a"]
