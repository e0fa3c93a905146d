"""Faults: every kind, persistence and visibility at the call seam, one by one; draws and targets.

Most tests go through ``lab.call``, the one door, on ``chain`` (a write tool), on a little shop
(reads, disturbances, constraints) or on a function that notes each call.
"""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import digest, is_json, merge_patch
from agentlab.base.schemas import object_schema
from agentlab.environments.base import Environment, Outcome
from agentlab.environments.fault_plan import (
    LM_KINDS,
    FaultKind,
    FaultPlan,
    Outage,
    Persistence,
    TargetedFault,
    WorldEvent,
)
from agentlab.lab.falsify import emptied, falsify
from agentlab.lab.faults import advance, event_time, fault_for, rate_fault
from agentlab.state.state import State
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool
from agentlab.trace.journal import Address

TIMEOUT = 30.0
ANNOUNCED = {  # kind: error code, took effect, seconds
    "error": ("unavailable", False, 1),
    "timeout": ("timeout", False, TIMEOUT),
    "timeout_after_commit": ("timeout", True, TIMEOUT),
    "rate_limit": ("rate_limit", False, 1),
    "empty_result": ("malformed_result", True, 1),
    "wrong_result": ("malformed_result", True, 1),
    "partial_result": ("malformed_result", True, 1),
    "renamed_field": ("malformed_result", True, 1),
}
SILENT = {  # kind: what is told of {"stage": s, "token": t}, took effect
    "error": (lambda s, t: {"stage": s, "token": t}, False),
    "empty_result": (lambda s, t: {}, True),
    "partial_result": (lambda s, t: {"stage": s}, True),
    "renamed_field": (lambda s, t: {"stage_v2": s, "token": t}, True),
}
PERSISTENCES = ("transient", "permanent", "until")


class Door:
    """A state and the door to it; calls change the state."""

    def __init__(self, lab, **fields):
        self.lab, self.state = lab, lab.initial_state(**fields)

    def call(self, tool, step="s", **arguments):
        self.state, result, error = self.lab.call(
            self.state, Address(self.state.visit, step), tool, arguments
        )
        return result, error

    def stage(self, i=0, tool="advance"):
        """Call for the i-th stage of a chain with the right token."""
        stages, tokens = self.state.world["stages"], self.state.world["tokens"]
        token = tokens[stages[i - 1]] if i else "start"
        return self.call(tool, stage=stages[i], token=token)


def targeted(kind, persistence="transient", visibility="announced", tool="advance", **where):
    target = TargetedFault(
        tool=tool, kind=kind, persistence=persistence, visibility=visibility, **where
    )
    return FaultPlan(targets=(target,))


@pytest.fixture
def door(chain):
    """Make a door to a three-stage chain in which the call for the first stage is struck."""
    scenario = chain()

    def make(kind, persistence="transient", visibility="announced", **options):
        where = {"arguments": {"stage": scenario.world["stages"][0]}}
        return Door(al.Lab(scenario, faults=targeted(kind, persistence, visibility, **where)))

    return make


# ---- one kind at a time on a write -----------------------------------------------------------


def check_delivered(door, kind, persistence, visibility, committed):
    (record,) = door.state.delivered
    first = door.state.world["stages"][0]
    assert record.tool == "advance"
    assert record.arguments == digest({"stage": first, "token": "start"})
    assert (record.occurrence, record.step_id) == (0, "s")
    assert (record.at, record.committed) == (door.state.now, committed)
    fault = record.fault
    assert (fault.kind, fault.source) == (kind, "target")
    assert (fault.persistence, fault.visibility) == (persistence, visibility)
    (call,) = door.state.calls
    assert (call.faulted, call.committed, call.step_id) == (True, committed, "s")
    tool, span = door.lab.recorder.spans
    assert (tool.kind, span.kind, span.name, span.parent_id) == ("tool", "fault", kind, 1)
    assert span.output["visibility"] == visibility
    assert span.output["committed"] is committed


@pytest.mark.parametrize("persistence", PERSISTENCES)
@pytest.mark.parametrize(
    ("kind", "asked"),
    [(kind, "announced") for kind in ANNOUNCED]
    + [(kind, "silent") for kind in ("timeout", "timeout_after_commit", "rate_limit")],
)
def test_announced(door, kind, persistence, asked):
    code, committed, seconds = ANNOUNCED[kind]
    d = door(kind, persistence, asked)
    before = d.state
    result, error = d.stage()
    assert result is None
    assert (error.code, error.permanent) == (code, persistence == "permanent")
    assert d.state.now == seconds
    assert (d.state.world != before.world) is committed
    assert d.state.world["done"] == committed
    assert d.state.belief is before.belief
    if kind == "rate_limit" and persistence == "transient":
        persistence = "until"
    check_delivered(d, kind, persistence, "announced", committed)
    truth = d.state.delivered[0].truth
    assert truth.get("done") == (1 if committed else None)
    (failure,) = d.state.failures
    assert (failure.tool, failure.code, failure.count) == ("advance", code, 1)
    assert failure.permanent is (persistence == "permanent")


@pytest.mark.parametrize("persistence", PERSISTENCES)
@pytest.mark.parametrize("kind", SILENT)
def test_silent(door, kind, persistence):
    told, committed = SILENT[kind]
    d = door(kind, persistence, "silent")
    before = d.state
    first = before.world["stages"][0]
    result, error = d.stage()
    assert error is None
    assert result == told(first, before.world["tokens"][first])
    assert d.state.now == 1
    assert d.state.world["done"] == committed
    assert d.state.belief["done"] == 1  # what the agent takes from a call that looked right
    assert not d.state.failures
    right = merge_patch(d.state.belief, d.state.delivered[0].truth)
    assert right == d.state.world
    check_delivered(d, kind, persistence, "silent", committed)


@pytest.mark.parametrize("persistence", PERSISTENCES)
def test_a_wrong_result_falsifies_what_is_told_and_what_is_learned_alike(door, persistence):
    d = door("wrong_result", persistence, "silent")
    first = d.state.world["stages"][0]
    token = d.state.world["tokens"][first]
    result, error = d.stage()
    assert error is None
    false = {k for k in ("stage", "token") if result[k] != {"stage": first, "token": token}[k]}
    assert len(false) == 1
    assert d.state.world["done"] == 1
    assert token in d.state.world["seen"]
    if false == {"token"}:
        assert token not in d.state.belief["seen"]
        assert result["token"] in d.state.belief["seen"]
    check_delivered(d, "wrong_result", persistence, "silent", True)
    truth = d.state.delivered[0].truth
    unlearnt = {result["token"]: None} if false == {"token"} else {}
    assert truth == {"done": 1, "seen": {token: True, **unlearnt}}
    assert merge_patch(d.state.belief, truth) == d.state.world


@pytest.mark.parametrize("visibility", ["announced", "silent"])
def test_latency_spike(door, visibility):
    d = door("latency_spike", "transient", visibility)
    first = d.state.world["stages"][0]
    result, error = d.stage()
    assert error is None
    assert result == {"stage": first, "token": d.state.world["tokens"][first]}
    assert d.state.now == 1 * (3 + 7 * 0.5)  # the draw of a target is 0.5
    assert d.state.world["done"] == d.state.belief["done"] == 1
    check_delivered(d, "latency_spike", "transient", visibility, True)


@pytest.mark.parametrize("draw", [0.0, 0.25, 0.999])
def test_a_latency_spike_takes_three_to_ten_times_as_long(draw):
    from agentlab.lab.faults import duration
    from agentlab.state.records import Fault

    seconds = duration(Fault(kind="latency_spike", draw=draw), Tool("t"), 2.0)
    assert seconds == pytest.approx(6 + 14 * draw)


@pytest.mark.parametrize("kind", ["world_change", "new_constraint"])
def test_a_world_that_cannot_be_disturbed_is_not(door, kind):
    d = door(kind)
    assert d.stage()[1] is None
    assert d.state.world["done"] == 1
    assert not d.state.delivered
    assert d.state.calls[0].faulted is False


@pytest.mark.parametrize("kind", sorted(LM_KINDS))
def test_what_strikes_lms_does_not_strike_tools(door, chain, kind):
    assert door(kind).stage()[1] is None
    d = Door(al.Lab(chain(), faults=FaultPlan(rate=1, kinds={kind: 1})))
    assert d.stage()[1] is None
    assert not d.state.delivered


# ---- how long it stands ----------------------------------------------------------------------

STANDING = [k for k in (*ANNOUNCED, "latency_spike") if k != "rate_limit"]


def next_stage(d):
    return d.state.world["done"]


@pytest.mark.parametrize("kind", STANDING)
def test_a_transient_fault_is_gone_with_the_next_call(door, kind):
    d = door(kind)
    d.stage()
    assert not d.state.standing
    d.state = d.state.replace(fault_plan=FaultPlan())
    assert d.stage(next_stage(d))[1] is None
    assert len(d.state.delivered) == 1


@pytest.mark.parametrize("kind", [*STANDING, "rate_limit"])
def test_a_permanent_fault_stands_on_its_tool_and_on_no_other(door, kind):
    d = door(kind, "permanent")
    d.stage()
    d.state = d.state.replace(fault_plan=FaultPlan())
    d.state = advance(d.state, 1e6)
    d.stage(next_stage(d))
    assert [r.fault.source for r in d.state.delivered] == ["target", "standing"]
    assert [r.fault.kind for r in d.state.delivered] == [kind, kind]
    assert list(d.state.standing) == ["advance"]
    if kind != "latency_spike":
        assert "for good" in d.state.calls[1].error.message or "timeout" in kind
    assert d.stage(next_stage(d), "advance_slowly")[1] is None
    assert len(d.state.delivered) == 2


@pytest.mark.parametrize("kind", STANDING)
@pytest.mark.parametrize("duration", [5.0, 40.0])
def test_a_fault_with_an_end_stands_until_then(door, kind, duration):
    d = door(kind, "until")
    d.state = d.state.replace(fault_plan=d.state.fault_plan.replace(duration=duration))
    d.stage()
    end = d.state.now + duration
    assert d.state.standing["advance"].until == end
    d.state = d.state.replace(fault_plan=FaultPlan())
    late = advance(d.state, end)
    d.state = advance(d.state, end - 0.001)
    d.stage(next_stage(d))
    assert d.state.delivered[-1].fault.source == "standing"
    if kind == "error":
        assert d.state.calls[-1].error.message == f"advance is unavailable until {end:g} s"
    d.state = late
    assert d.stage(next_stage(d))[1] is None
    assert len(d.state.delivered) == 1


def test_a_rate_limit_ends_after_its_duration(door):
    d = door("rate_limit")
    d.stage()
    d.state = d.state.replace(fault_plan=FaultPlan(duration=30))
    assert d.state.now == 1
    for _ in range(30):
        assert d.stage()[1].code == "rate_limit"
    assert d.state.now == 31
    assert d.stage()[1] is None


def test_a_silent_fault_that_stands_lies_every_time(door):
    d = door("error", "permanent", "silent")
    for _ in range(3):
        result, error = d.stage()
        assert error is None
        assert result["token"]
    assert d.state.world["done"] == 0
    assert len(d.state.delivered) == 3


# ---- a function tool --------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", ["announced", "silent"])
@pytest.mark.parametrize("kind", [*ANNOUNCED, "latency_spike", "world_change", "new_constraint"])
def test_on_a_function(notes, kind, visibility):
    made = notes.tool("look", lambda key: {"key": key, "hits": [1, 2, 3, 4]}, effect="read")
    lab = notes.lab(tools=[made], faults=targeted(kind, "transient", visibility, "look"))
    d = Door(lab)
    result, error = d.call("look", key="k")
    code, executed, seconds = ANNOUNCED.get(kind, (None, True, 1))
    true = {"key": "k", "hits": [1, 2, 3, 4]}
    told = {
        "error": {},
        "empty_result": {"hits": []},
        "partial_result": {"key": "k", "hits": [1, 2]},
        "renamed_field": {"key_v2": "k", "hits": [1, 2, 3, 4]},
    }
    assert notes.made == ([("look", {"key": "k"})] if executed else [])
    if kind in ("latency_spike", "world_change", "new_constraint"):
        assert (result, error) == (true, None)
        assert len(d.state.delivered) == (kind == "latency_spike")
        return
    assert len(d.state.delivered) == 1
    if visibility == "announced" or kind not in (*told, "wrong_result"):
        assert (result, error.code) == (None, code)
        assert d.state.now == seconds
    elif kind == "wrong_result":
        assert error is None
        assert result != true
        assert result.keys() == true.keys()
    else:
        assert (result, error) == (told[kind], None)
    assert d.state.calls[0].committed is executed


@pytest.mark.parametrize("kind", ["empty_result", "wrong_result", "partial_result"])
def test_what_holds_nothing_cannot_be_falsified(notes, kind):
    made = notes.tool("look", lambda: {}, effect="read")
    d = Door(notes.lab(tools=[made], faults=targeted(kind, "permanent", "silent", "look")))
    assert d.call("look") == ({}, None)
    assert not d.state.delivered
    assert not d.state.standing


def test_a_call_that_fails_by_itself_is_not_counted_as_struck(notes):
    for visibility in ("announced", "silent"):
        for kind in ("empty_result", "timeout_after_commit", "latency_spike"):
            d = Door(notes.lab(faults=targeted(kind, "permanent", visibility, "broken")))
            result, error = d.call("broken")
            assert (result, error.code) == (None, "error")
            assert not d.state.delivered
            assert not d.state.standing


def test_a_silent_error_hides_nothing_where_the_call_would_have_failed(chain):
    d = Door(al.Lab(chain(), faults=targeted("error", "transient", "silent")))
    _, error = d.stage(1)  # out of turn
    assert error.code == "out_of_turn"
    assert not d.state.delivered


def test_a_refused_call_meets_no_fault(chain):
    d = Door(al.Lab(chain(), fault_rate=1.0))
    for arguments, code in (({"stage": 5, "token": "start"}, "bad_arguments"), ({}, None)):
        tool = "advance" if code else "no_such_tool"
        _, error = d.call(tool, **arguments)
        assert error.code == (code or "unknown_tool")
    assert not d.state.delivered
    assert not d.state.occurrences
    assert d.state.now == 0
    assert d.state.tool_calls == 2


# ---- reads, disturbances and constraints: a shop ----------------------------------------------


class Shop(Environment):
    """One thing to buy; it can be sold out under one's hands, and the budget can be cut."""

    name = "shop"

    def tools(self):
        return (
            Tool("look", parameters=object_schema(), effect=Effect.READ, seconds=2.0),
            Tool("buy", parameters=object_schema(), effect=Effect.WRITE, seconds=2.0),
        )

    def apply(self, world, call):
        if call.tool == "look":
            shown = {"stock": world["stock"], "price": world["price"]}
            return Outcome(world, result=shown, learned=shown)
        if world["stock"] < 1 or world["price"] > world["budget"]:
            code = "sold_out" if world["stock"] < 1 else "too_dear"
            learned = {"stock": world["stock"], "price": world["price"]}
            return Outcome(world, error=ToolError(code=code, message=code), learned=learned)
        after = {"stock": world["stock"] - 1, "bought": True}
        return Outcome({**world, **after}, result={"paid": world["price"]}, learned=after)

    def unmet(self, goal, world):
        return () if world["bought"] else ("nothing bought",)

    def disturb(self, world, call, draw):
        if call.tool != "buy":
            return None
        return {"stock": 0} if draw < 0.5 else {"price": 2 * world["price"]}

    def constrain(self, world, draw):
        return {"budget": world["price"] // 2}


SHOP = al.Scenario(
    id="shop", environment="shop", task="Buy it.", goal=al.Goal(),
    world={"stock": 2, "price": 100, "budget": 150, "bought": False}, hidden={"price": 120},
)  # fmt: skip


def shop(faults=FaultPlan(), **options):  # noqa: B008 - a frozen value
    return Door(al.Lab(SHOP, environment=Shop(), faults=faults, **options))


@pytest.mark.parametrize(
    ("kind", "result", "learned"),
    [
        ("error", {}, {}),
        ("empty_result", {}, {}),
        ("partial_result", {"stock": 2}, {}),
        ("renamed_field", {"stock_v2": 2, "price": 120}, {"stock": 2, "price": 120}),
    ],
)
def test_a_silent_fault_of_a_read(kind, result, learned):
    d = shop(targeted(kind, "transient", "silent", "look"))
    assert d.call("look") == (result, None)
    assert d.state.belief == {**SHOP.world, **learned}
    assert d.state.world == {**SHOP.world, "price": 120}
    taught = {"stock": 2, "price": 120} if kind != "error" else {}  # it was not even read
    assert d.state.delivered[0].truth == taught


def test_a_wrong_read_is_believed():
    d = shop(targeted("wrong_result", "transient", "silent", "look"))
    result, error = d.call("look")
    true = {"stock": 2, "price": 120}
    assert error is None
    assert result.keys() == true.keys()
    assert result != true
    assert d.state.belief == {**SHOP.world, **result}


@pytest.mark.parametrize("visibility", ["announced", "silent"])
def test_the_world_changes_under_the_calls_hands(visibility):
    d = shop(targeted("world_change", "transient", visibility, "buy"))
    result, error = d.call("buy")
    (record,) = d.state.delivered
    patch = record.truth
    assert patch == {"price": 240}  # the draw of a target is 0.5
    assert (result, error.code) == (None, "too_dear")
    assert d.state.world == {**SHOP.world, "price": 240}
    assert d.state.belief["price"] == 240  # the error says why
    assert record.committed is False


@pytest.mark.parametrize("visibility", ["announced", "silent"])
def test_a_new_constraint_is_believed_when_it_is_announced(visibility):
    d = shop(targeted("new_constraint", "transient", visibility, "look"))
    assert d.call("look") == ({"stock": 2, "price": 120}, None)
    assert d.state.world["budget"] == 60
    assert d.state.belief["budget"] == (60 if visibility == "announced" else 150)
    assert d.state.delivered[0].truth == {"budget": 60}


@pytest.mark.parametrize(
    ("persistence", "stands"), [("transient", (0, 0)), ("permanent", (1, 1)), ("until", (1, 0))]
)
@pytest.mark.parametrize("kind", ["world_change", "new_constraint"])
def test_how_long_the_world_is_disturbed(kind, persistence, stands):
    d = shop(targeted(kind, persistence, "silent", "buy"))
    d.call("buy")
    d.state = d.state.replace(fault_plan=FaultPlan())
    for moment in (0.0, 60.0):
        d.state = advance(d.state, moment)
        d.call("buy")
    d.call("look")  # it stands on its tool, not on this one
    assert [r.fault.source for r in d.state.delivered] == ["target"] + ["standing"] * sum(stands)


def test_a_rate_based_world_change_has_both_forms():
    seen = set()
    for seed in range(30):
        d = shop(FaultPlan(rate=1, kinds={"world_change": 1}), seed=seed)
        seen.add(d.call("buy")[1].code)
    assert seen == {"sold_out", "too_dear"}


# ---- world events -----------------------------------------------------------------------------


def event(visibility="silent", kind="world_change", **fields):
    fields = {"between": (3.0, 3.0), "chance": 1.0, "patch": {"stock": 0}, **fields}
    return WorldEvent(name="fire", kind=kind, visibility=visibility, **fields)


@pytest.mark.parametrize("visibility", ["announced", "silent"])
@pytest.mark.parametrize("kind", ["world_change", "new_constraint"])
def test_a_world_event_happens_at_its_time_once(kind, visibility):
    d = shop(FaultPlan(events=(event(visibility, kind, description="a fire"),)))
    d.call("look")
    assert (d.state.now, d.state.world["stock"]) == (2, 2)
    assert not d.state.delivered
    _, error = d.call("buy")  # under way from 2 to 4: applied to the world of then
    assert error.code == "sold_out"
    (record,) = d.state.delivered
    assert (record.tool, record.at, record.step_id) == ("fire", 3.0, None)
    assert (record.fault.source, record.fault.kind) == ("event", kind)
    assert record.truth == {"stock": 0}
    assert d.state.calls[1].faulted is False
    d.state = d.state.replace(world={**d.state.world, "stock": 7})
    assert advance(d.state, 99.0).world["stock"] == 7
    if visibility == "silent":
        assert not d.state.events
    else:
        (notice,) = d.state.events
        wanted = "NEW_CONSTRAINT" if kind == "new_constraint" else "EXTERNAL_SIGNAL"
        assert (notice.type, notice.severity) == (wanted, "CRITICAL")
        assert (notice.description, notice.payload) == ("a fire", {"stock": 0})
        assert notice.occurred_at == 3.0


def test_an_unseen_change_of_the_world_patches_no_belief():
    for visibility, stock in (("silent", 2), ("announced", 0)):
        state = shop(FaultPlan(events=(event(visibility),))).state
        after = advance(state, 10.0)
        assert after.world["stock"] == 0
        assert after.belief["stock"] == stock


def test_an_event_at_zero_has_happened_when_the_run_starts():
    state = shop(FaultPlan(events=(event(between=(0.0, 0.0)),))).state
    assert (state.world["stock"], state.initial["stock"]) == (0, 2)
    assert state.belief["stock"] == 2


def test_an_event_drawn_anew_into_the_past_happens_now():
    early = event(between=(0.0, 4.0))
    times = {s: event_time(State(seed=s, scenario_id="shop"), early) for s in range(50)}
    old, new = max(times, key=times.get), min(times, key=times.get)
    run = shop(FaultPlan(events=(early,)), seed=old)
    run.call("look")
    assert not run.state.delivered
    assert times[new] < 2 < times[old]
    state = advance(run.state.replace(seed=new), 5.0)
    assert [r.at for r in state.delivered] == [2.0]


def test_time_does_not_go_back():
    state = advance(shop().state, 5.0)
    assert advance(state, 3.0).now == 5.0


def test_events_happen_in_the_order_of_their_times():
    plan = FaultPlan(
        events=(
            event(between=(5, 5)),
            WorldEvent(name="delivery", patch={"stock": 9}, between=(1, 1), chance=1),
        )
    )
    state = advance(shop(plan).state, 8.0)
    assert [(r.tool, r.at) for r in state.delivered] == [("delivery", 1), ("fire", 5)]
    assert state.world["stock"] == 0
    assert state.now == 8.0


def test_an_event_without_a_chance_takes_the_rate():
    one = event(chance=None, between=(2.0, 6.0))
    happened = {}
    for rate in (0.0, 0.2, 0.6, 1.0):
        plan = FaultPlan(rate=rate)
        times = {s: event_time(State(seed=s, fault_plan=plan), one) for s in range(300)}
        happened[rate] = {s: t for s, t in times.items() if t is not None}
    assert not happened[0.0]
    assert len(happened[1.0]) == 300
    assert happened[0.2].items() < happened[0.6].items() < happened[1.0].items()
    assert abs(len(happened[0.2]) - 60) < 3.3 * sqrt(300 * 0.2 * 0.8)
    assert all(2 <= t < 6 for t in happened[1.0].values())
    assert max(happened[1.0].values()) - min(happened[1.0].values()) > 3


# ---- targets, outages, precedence -------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "struck"),
    [
        ({}, {0, 1, 2, 3}),
        ({"tool": "other"}, set()),
        ({"arguments": {"key": "a"}}, {0, 1, 3}),
        ({"arguments": {"key": "a", "more": 1}}, {3}),
        ({"arguments": {}}, {0, 1, 2, 3}),
        ({"occurrence": 0}, {0, 2, 3}),
        ({"occurrence": 1}, {1}),
        ({"occurrence": 2}, set()),
        ({"step": "two"}, {1, 2}),
        ({"after": 1.0}, {1, 2, 3}),
        ({"before": 2.0}, {0, 1}),
        ({"after": 1.0, "before": 2.0}, {1}),
        ({"step": "two", "occurrence": 0}, {2}),
    ],
)
def test_targets(notes, where, struck):
    d = Door(notes.lab(faults=targeted("error", **{"tool": "note", **where})))
    calls = [("one", {"key": "a"}), ("two", {"key": "a"}), ("two", {"key": "b"})]
    calls.append(("four", {"key": "a", "more": 1}))
    errors = [d.call("note", step, **arguments)[1] for step, arguments in calls]
    assert {i for i, error in enumerate(errors) if error is not None} == struck


def test_an_outage_is_announced_with_its_end(notes):
    outage = Outage(name="night", tool="note", start=1.0, seconds=2.0)
    d = Door(notes.lab(faults=FaultPlan(outages=(outage,))))
    errors = [d.call("note", k=i)[1] for i in range(5)]
    assert [e and e.code for e in errors] == [None, "unavailable", "unavailable", None, None]
    assert errors[1].message == "note is unavailable until 3 s"
    assert {r.fault.source for r in d.state.delivered} == {"outage"}
    assert not d.state.standing
    assert d.call("broken")[1].code == "error"


def test_an_outage_without_an_end_never_ends(notes):
    plan = FaultPlan(outages=(Outage(name="gone", tool="note", start=0.0),))
    d = Door(notes.lab(faults=plan))
    d.state = advance(d.state, 1e9)
    assert d.call("note")[1].code == "unavailable"


def test_the_chance_of_an_outage_is_drawn_once_for_a_seed(notes):
    plan = FaultPlan(outages=(Outage(name="maybe", tool="note", chance=0.4),))
    down = 0
    for seed in range(200):
        d = Door(notes.lab(faults=plan, seed=seed))
        errors = {d.call("note", k=k)[1] is None for k in range(4)}
        assert len(errors) == 1
        down += errors == {False}
    assert abs(down - 80) < 3.3 * sqrt(200 * 0.4 * 0.6)


def test_what_stands_goes_before_outage_target_and_rate(notes):
    plan = targeted("error", tool="note").replace(
        rate=1.0, kinds={"timeout": 1}, outages=(Outage(name="o", tool="note", start=5, seconds=9),)
    )
    d = Door(notes.lab(faults=plan))
    source = lambda state: fault_for(state, "note", {}, digest({}), "s").source  # noqa: E731
    assert source(d.state) == "target"
    assert source(d.state.replace(now=5.0)) == "outage"
    assert source(d.state.replace(fault_plan=plan.replace(targets=()))) == "rate"
    standing = {"note": {"kind": "error", "source": "standing", "until": 7.0}}
    stands = d.state.replace(now=5.0, standing=standing)
    assert source(stands) == "standing"
    assert source(stands.replace(now=7.0)) == "outage"


def test_a_rate_for_some_tools_only(notes):
    d = Door(notes.lab(faults=FaultPlan(rate=1.0, tools=("broken",))))
    assert d.call("note")[1] is None
    assert d.call("broken")[1].code == "unavailable"


# ---- draws ------------------------------------------------------------------------------------

KINDS = {k: 1.0 for k in FaultKind if k not in LM_KINDS}
MIXED = FaultPlan(
    rate=0.3, kinds=KINDS, persistence={p: 1.0 for p in Persistence},
    visibility={"announced": 2, "silent": 1},
)  # fmt: skip


def drawn(plan, n=4000, seed=0):
    keys = ((tool, digest(i), k) for tool in ("a", "b") for i in range(n // 4) for k in (0, 1))
    return {key: rate_fault(plan, seed, "scenario", *key) for key in keys}


def within(count, n, p):
    """Say whether a count lies within 99.9 % bounds of a binomial."""
    return abs(count - n * p) <= 3.3 * sqrt(n * p * (1 - p)) + 0.5


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.4])
def test_the_rate_is_the_share_of_calls_that_are_struck(rate):
    faults = drawn(MIXED.replace(rate=rate))
    struck = [f for f in faults.values() if f is not None]
    assert within(len(struck), len(faults), rate)
    if rate == 0.4:
        for kind in KINDS:
            assert within(sum(f.kind == kind for f in struck), len(struck), 1 / len(KINDS))
        free = [f for f in struck if f.kind not in ("timeout", "timeout_after_commit")]
        free = [f for f in free if f.kind != "rate_limit"]
        assert within(sum(f.visibility == "silent" for f in free), len(free), 1 / 3)
        for persistence in Persistence:
            share = sum(f.persistence == persistence for f in free)
            assert within(share, len(free), 1 / 3)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_faults_at_a_low_rate_are_a_subset_of_those_at_a_higher_one(one, other, seed):
    low, high = sorted((one, other))
    few = {k: f for k, f in drawn(MIXED.replace(rate=low), 400, seed).items() if f}
    many = {k: f for k, f in drawn(MIXED.replace(rate=high), 400, seed).items() if f}
    assert few.items() <= many.items()


def test_rates_at_the_ends():
    assert not any(drawn(MIXED.replace(rate=0.0)).values())
    assert all(drawn(MIXED.replace(rate=1.0)).values())


@pytest.mark.parametrize("place", range(5))
def test_every_part_of_the_key_counts(place):
    names = [0, "scenario", "tool", "arguments", 0]
    others = [1, "scenarii", "tool2", "arguments2", 1]
    changed = [*names[:place], others[place], *names[place + 1 :]]
    plan = FaultPlan(rate=0.5)
    differ = sum(
        (rate_fault(plan, names[0], f"{names[1]}{i}", *names[2:]) is None)
        != (rate_fault(plan, changed[0], f"{changed[1]}{i}", *changed[2:]) is None)
        for i in range(400)
    )
    assert within(differ, 400, 0.5)


def test_the_draw_of_a_call_does_not_depend_on_what_was_called_before(notes):
    plan = FaultPlan(rate=0.5)

    def struck(order):
        d = Door(notes.lab(faults=plan, seed=3))
        found = {}
        for k in order:
            occurrence = sum(c == k for c, _ in found)
            found[k, occurrence] = d.call("note", k=k)[1] is None
        return found

    forward, backward = struck([*range(12), *range(12)]), struck([*range(11, -1, -1)] * 2)
    assert forward == backward
    assert len(set(forward.values())) == 2
    assert any(forward[k, 0] != forward[k, 1] for k in range(12))


def test_the_order_of_arguments_does_not_enter_the_key(notes):
    plan = FaultPlan(rate=0.5)
    for i in range(20):
        one, two = (Door(notes.lab(faults=plan)) for _ in range(2))
        assert one.call("note", a=i, b=2)[1] == two.call("note", b=2, a=i)[1]


# ---- falsified results ------------------------------------------------------------------------

scalars = st.integers(-(10**9), 10**9) | st.text("abc") | st.floats(-1e9, 1e9) | st.booleans()
results = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1), inner),
)


def shape(value):
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    return [shape(v) for v in value] if isinstance(value, list) else type(value)


def leaves(value):
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return [leaf for v in inner for leaf in leaves(v)]
    return [value]


@given(results, st.floats(0, 1, exclude_max=True))
@settings(max_examples=80, deadline=None)
def test_a_wrong_result_looks_right(result, draw):
    false, learned = falsify(result, {"copy": result}, FaultKind.WRONG_RESULT, draw)
    assert is_json(false)
    assert learned == {"copy": false}
    assert shape(false) == shape(result)
    old, new = leaves(result), leaves(false)
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if repr(a) != repr(b)]
    changed = {(type(a), a) for a, _ in pairs}  # zero is one value, whatever its sign
    assert len(changed) == any(not isinstance(x, bool) for x in old)


@given(results, st.sampled_from(["empty_result", "partial_result", "renamed_field"]))
@settings(max_examples=60, deadline=None)
def test_other_falsified_results_are_json_that_holds_no_more_than_before(result, kind):
    false, learned = falsify(result, {"x": 1}, FaultKind(kind), 0.5)
    assert is_json(false)
    assert learned == {"x": 1}
    more = Counter(map(repr, leaves(false))) - Counter(map(repr, leaves(result)))
    assert not more
    if kind == "empty_result":
        assert leaves(false) == []


def test_empty_partial_and_renamed():
    found = {"total": 3, "hits": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}
    assert emptied(found) == {"hits": []}
    assert falsify(found, {}, FaultKind.PARTIAL_RESULT, 0)[0] == {**found, "hits": [{"id": "a"}]}
    assert falsify([1, 2, 3, 4], {}, FaultKind.PARTIAL_RESULT, 0)[0] == [1, 2]
    assert falsify({"a": 1, "b": 2}, {}, FaultKind.PARTIAL_RESULT, 0)[0] == {"a": 1}
    renamed = falsify(found, {}, FaultKind.RENAMED_FIELD, 0)[0]
    assert list(renamed) == ["total_v2", "hits"]
    assert falsify(5, {}, FaultKind.RENAMED_FIELD, 0)[0] == {"value": 5}


def test_patches_leave_what_they_were_given():
    world = {"a": {"b": 1}}
    assert merge_patch(world, {"a": {"b": 2}}) == {"a": {"b": 2}}
    assert world == {"a": {"b": 1}}
