"""Runs under random plans, faults, strategies, workers, forks and edits (hypothesis).

The plans are given beforehand and call functions that note each call, or belong to chain scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import digest
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import FaultPlan
from agentlab.errors import ToolFailure
from agentlab.minds.planners.fixed import Fixed
from agentlab.minds.rules import REASONS
from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.plans.task_plan import TaskStep
from agentlab.state.decisions import ReplanAction
from agentlab.state.events import ChangeType, Severity
from agentlab.trace.compare import first_difference
from agentlab.workflows.named import get_workflow

some = partial(settings, deadline=None, derandomize=True)

TOOLS = ("add", "look", "fails", "gone", "slow")
STRATEGIES = (
    "never", "retry(1)", "retry(2, wait=3)", "retry_then_replan(1)", "retry_then_replan(0)",
    "on_error", "every_step(4)", "every(2, replans=3)", "reflect_on_total_failure", "oracle(4)",
    "event_driven", "event_driven(batch=1, milestones=False, replans=5)",
    "every_step(4, when_no_plan='keep')", "on_error(when_no_plan='keep')",
    "event_driven(when_no_plan='keep')",
)  # fmt: skip
PLANNERS = (
    "search", "reference(noise=0.2)", "search(noise=0.3, persistence=0.5, unparseable=0.3)",
)  # fmt: skip
KINDS = (
    "error", "timeout", "timeout_after_commit", "rate_limit", "empty_result", "wrong_result",
    "partial_result", "renamed_field", "latency_spike", "world_change",
)  # fmt: skip


def functions(made):
    """Make tools whose result depends on their arguments only, and that note their calls."""

    def make(name, do, **options):
        def call(n=0, data=None, **more):
            made.append((name, n, data))
            return do(n)

        parameters = {"type": "object", "properties": {"n": {}, "data": {}}}
        return al.tool(call, name=name, parameters=parameters, **options)

    def fails(n):
        if n % 2:
            raise ToolFailure("odd", code="odd")
        return {"value": n}

    def gone(n):
        raise ToolFailure("for good", code="gone", permanent=True)

    return [
        make("add", lambda n: {"value": n + 1, "list": [n, n]}, effect="write"),
        make("look", lambda n: {"value": n}, effect="read", seconds=0.5),
        make("fails", fails, effect="idempotent", seconds=2.0),
        make("gone", gone),
        make("slow", lambda n: {"value": -n}, effect="irreversible", seconds=7.0),
    ]


@st.composite
def steps(draw, prefix):
    """Draw the steps of a plan, with dependencies on, and data from, the steps before."""
    made = []
    for i in range(draw(st.integers(0, 5))):
        earlier = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        parameters = {"n": draw(st.integers(0, 3))}
        if earlier and draw(st.booleans()):
            path = draw(st.sampled_from(["value", "value", "nothing"]))
            parameters["data"] = f"${{{prefix}{earlier[0]}.{path}}}"
        made.append(
            {
                "stepId": f"{prefix}{i}",
                "name": f"{prefix}{i}",
                "actionType": "call_tool",
                "targetResource": draw(st.sampled_from(TOOLS)),
                "parameters": parameters,
                "dependencies": [f"{prefix}{n}" for n in earlier],
                "skippable": draw(st.integers(0, 3)) == 0,
            }
        )
    return made


composed = st.builds(
    Strategy,
    name=st.just("composed"),
    trigger=st.sampled_from(
        [triggers.after_failure, triggers.every(1), triggers.every(3), triggers.delivered_fault]
    ),
    scope=st.sampled_from(
        [
            scopes.first(scopes.step(1), scopes.rest),
            scopes.first(scopes.step(0), scopes.whole),
            scopes.informed,
            scopes.nothing,
        ]
    ),
    budget=st.builds(
        Budget,
        replans=st.integers(0, 4),
        executions=st.sampled_from([0, 3, 100]),
        tool_calls=st.sampled_from([None, None, 4]),
        seconds=st.sampled_from([None, None, 9.0]),
    ),
    when_spent=st.sampled_from([ReplanAction.ABORT, ReplanAction.CONTINUE]),
    when_no_plan=st.sampled_from(["stop", "keep"]),
)
strategies = st.sampled_from(STRATEGIES) | composed

faults = st.builds(
    FaultPlan,
    rate=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    kinds=st.dictionaries(st.sampled_from(KINDS), st.just(1.0), min_size=1, max_size=3),
    persistence=st.dictionaries(
        st.sampled_from(["transient", "permanent", "until"]), st.just(1.0), min_size=1
    ),
    visibility=st.dictionaries(st.sampled_from(["announced", "silent"]), st.just(1.0), min_size=1),
    duration=st.sampled_from([2.0, 30.0]),
)


@dataclass
class Setup:
    """What a run is made of; ``start`` makes a fresh one, with tools that note into ``made``."""

    plans: list
    chain: int | None
    strategy: str | Strategy
    faults: FaultPlan
    workers: int
    seed: int
    workflow: str = "autonomous"
    made: list = field(default_factory=list)

    def lab(self, made=None, **changes):
        options = {
            "strategy": self.strategy, "faults": self.faults, "workers": self.workers,
            "seed": self.seed, "tools": functions(self.made if made is None else made),
        } | changes  # fmt: skip
        if self.chain is not None:
            scenario = generate("medium", self.chain % 3, length=1 + self.chain % 5)
            return al.Lab(scenario, planner=PLANNERS[self.chain % len(PLANNERS)], **options)
        return al.Lab(planner=Fixed(*self.plans), executor="simulated", **options)

    def start(self, **changes):
        return get_workflow(self.workflow).start(self.lab(**changes), "do it")

    def run(self, **changes):
        run = self.start(**changes)
        run.finish(max_visits=2000)
        return run


setups = st.builds(
    Setup,
    plans=st.tuples(steps("a"), steps("b"), steps("c"), steps("d")).map(list),
    chain=st.none() | st.none() | st.integers(0, 29),
    strategy=strategies,
    faults=faults,
    workers=st.sampled_from([1, 1, 2, 3]),
    seed=st.integers(0, 9),
    workflow=st.sampled_from(["autonomous", "resident"]),
)


def rows(run):
    return [s.row() for s in run.spans if s.kind != "run"]


def executed(run, at=0):
    """Count the calls of functions that a recording from visit ``at`` on must have made."""
    journal = run.journal.entries
    return sum(a.visit >= at for a in journal)


def content(states):
    return [digest(s.to_json()) for s in states]


# ---- what holds of every run ------------------------------------------------------------------


@given(setups)
@some(max_examples=180)
def test_every_run_ends_within_its_bounds_and_says_how(heard, setup):
    log = heard()
    run = setup.run(handler=log)
    state, budget = run.state, run.lab.strategy.budget
    assert run.finished
    assert state.final_response
    assert state.next_action == ""
    assert state.executions <= budget.executions
    assert state.loop_count <= budget.replans
    assert state.plans <= budget.replans + 1
    assert len(state.replan_history) <= state.loop_count
    assert sum(node in ("planning", "plan") for node in run.visited) == state.loop_count + 1
    assert state.stopped_by is None or state.stopped_by in REASONS
    assert budget.tool_calls is None or state.tool_calls <= budget.tool_calls
    assert sum(r.attempt > 0 for r in state.task_results) == state.executions
    assert not state.under_way
    if state.task_plan is not None:
        statuses = {s.status for s in state.task_plan.steps}
        assert "running" not in statuses
        if state.stopped_by is None:
            assert "pending" not in statuses
        assert state.task_plan.status in ("completed", "failed", "aborted")
        whole = statuses <= {"completed", "skipped"}
        assert (state.task_plan.status == "completed") <= (whole or state.done)
        assert [s.step_index for s in state.task_plan.steps] == list(range(len(state.task_plan)))
    for node, before, after in zip(run.visited, run.states[:-1], run.states[1:], strict=True):
        ended = len(after.task_results) - len(before.task_results)
        stalled = after.trigger is not None and after.trigger.point == "stall"
        if node == "plan_execution":
            left = before.task_plan.remaining and after.stopped_by is None
            assert ended == 1 or (ended == 0 and (stalled or not left))
        elif node in ("execute", "monitor"):
            assert ended in (0, 1)
        elif node != "final_response":
            assert ended == 0 or after.last_decision.action == "REPLAN_FULL"
    times = [s.now for s in run.states]
    assert times == sorted(times)
    assert [s.visit for s in run.states] == list(range(len(run.states)))
    assert all(s.sim_start <= s.sim_end for s in run.spans)
    assert all(d.at <= state.now for d in state.delivered)
    assert len(state.calls) == len(run.recorder.of_kind("tool"))
    assert len(setup.made) == executed(run)
    open_stages = []
    for event in log.events:
        if event.kind == "thinking_stage_start":
            open_stages.append(event.stage)
        elif event.kind == "thinking_stage_end":
            assert open_stages.pop() == event.stage
    assert open_stages == []
    ids = [s.step_id for r in state.replan_history for s in r.before.steps]
    if state.task_plan is not None:
        ids += [s.step_id for s in state.task_plan.steps]
    assert set(state.results) <= set(ids)
    assert {r.step_id for r in state.task_results} <= set(ids)


@given(setups)
@some(max_examples=90)
def test_states_say_the_same_in_json(setup):
    state = setup.run().state
    again = type(state).model_validate(state.to_json())
    assert again == state
    assert digest(again.to_json()) == digest(state.to_json())


# ---- the same seed ----------------------------------------------------------------------------


@given(setups)
@some(max_examples=90)
def test_the_same_seed_gives_the_same_run(setup):
    one = setup.run()
    first = list(setup.made)
    setup.made.clear()
    two = setup.run()
    assert first_difference(rows(one), rows(two)) is None
    assert content(one.states) == content(two.states)
    assert first == setup.made


@given(setups, st.data())
@some(max_examples=90)
def test_rewound_and_gone_on_it_is_the_same_run(setup, data):
    run = setup.run()
    before, states = rows(run), content(run.states)
    run.rewind(data.draw(st.integers(0, len(run.visited))))
    run.finish()
    assert first_difference(before, rows(run)) is None
    assert content(run.states) == states


# ---- replay -----------------------------------------------------------------------------------


@given(setups)
@some(max_examples=120)
def test_replay_is_identical_and_calls_no_tool(setup):
    run = setup.run()
    before, made = content(run.states), len(setup.made)
    report = run.replay()
    assert report.divergence is None
    assert report.identical
    assert report.matched == report.visits == len(run.visited)
    assert report.served == made
    assert len(setup.made) == made
    assert content(run.states) == before


# ---- events that others publish ---------------------------------------------------------------


@given(
    setups,
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from(ChangeType), st.sampled_from(Severity)),
        max_size=6,
    ),
    st.data(),
)
@some(max_examples=150)
def test_published_events_are_heard_once_in_replays_and_forks_too(setup, published, data):
    run = setup.start()
    told = []
    while not run.finished:
        for at, kind, severity in published:
            if at == len(run.visited):
                told.append(f"event {len(told)}")
                run.publish(
                    al.ContextChangeEvent(type=kind, severity=severity, description=told[-1])
                )
        run.step()

    def heard(state):
        return [e.description for e in state.events if e.description.startswith("event ")]

    assert heard(run.state) == told
    decided = [
        e.description
        for before, after in pairwise(run.states)
        if after.last_decision is not before.last_decision
        for e in after.last_decision.events
        if e.description in told
    ]
    assert len(decided) == len(set(decided))
    report = run.replay()
    assert report.divergence is None
    at = data.draw(st.integers(0, len(run.visited)))
    fork = run.fork(at=at)
    fork.finish(max_visits=2000)
    assert heard(fork.state) == heard(run.states[at])
    assert fork.replay().identical


# ---- forks ------------------------------------------------------------------------------------


@given(setups, st.data())
@some(max_examples=150)
def test_a_fork_executes_only_what_comes_after_it(setup, data):
    run = setup.run()
    at = data.draw(st.integers(0, len(run.visited)))
    before, spans, kept = content(run.states), rows(run), list(run.states)
    setup.made.clear()
    fork = run.fork(at=at)
    assert setup.made == []
    fork.finish()
    assert len(setup.made) == executed(run, at)
    assert all(a is b for a, b in zip(fork.states, kept[: at + 1], strict=False))
    assert first_difference([r for r in spans if r[4] >= at], rows(fork)) is None
    assert content(fork.states) == before
    assert content(run.states) == before
    assert first_difference(spans, rows(run)) is None
    assert fork.replay().identical
    assert (fork.lineage.run_id, fork.lineage.at) == (run.run_id, at)


@st.composite
def edited(draw, plan):
    """Draw an edit of a plan: a step taken out, changed or put in; None where nothing can be."""
    free = [s.step_id for s in plan.steps if s.status == "pending"]
    kind = draw(st.sampled_from(["without", "edit", "insert"] if free else ["insert"]))
    if kind == "without":
        return plan.without(draw(st.sampled_from(free)), cascade=True)
    n = draw(st.integers(10, 13))
    if kind == "edit":
        return plan.edit(draw(st.sampled_from(free)), target_resource="add", parameters={"n": n})
    tool = draw(st.sampled_from(TOOLS))
    step = TaskStep(step_id="new", name="new", target_resource=tool, parameters={"n": n})
    return plan.insert(step)


@given(setups, st.data())
@some(max_examples=150)
def test_a_fork_with_an_edited_plan_leaves_the_original_as_it_was(setup, data):
    run = setup.run()
    places = [
        i for i, s in enumerate(run.states) if s.task_plan is not None and i < len(run.visited)
    ]
    if not places:
        return
    at = data.draw(st.sampled_from(places))
    plan = data.draw(edited(run.states[at].task_plan))
    before, spans = content(run.states), rows(run)
    setup.made.clear()
    fork = run.fork(at=at, plan=plan)
    fork.finish()
    assert content(run.states) == before
    assert first_difference(spans, rows(run)) is None
    assert content(fork.states[:at]) == before[:at]
    there = run.states[at]
    assert fork.state.calls[: len(there.calls)] == there.calls
    assert fork.state.task_results[: len(there.task_results)] == there.task_results
    assert len(setup.made) == executed(fork, at) == executed(fork)
    assert fork.replay().identical


@given(setups, st.data(), st.integers(10, 19))
@some(max_examples=90)
def test_a_fork_with_another_seed_keeps_the_past(setup, data, seed):
    run = setup.run()
    at = data.draw(st.integers(0, len(run.visited)))
    before = content(run.states)
    fork = run.fork(at=at, seed=seed)
    fork.finish()
    assert content(run.states) == before
    assert content(fork.states[:at]) == before[:at]
    there = run.states[at]
    for name in ("calls", "delivered", "task_results", "events"):
        assert getattr(fork.state, name)[: len(getattr(there, name))] == getattr(there, name)
    assert fork.state.seed == seed
    assert fork.replay().identical


# ---- common random numbers --------------------------------------------------------------------


def draws(run):
    """Map every logical call of a run to the fault it met by rate, or None.

    A call that another fault kept from its draw, or that the tool failed by itself, says nothing.
    """
    found = {}
    own = {(d.tool, d.arguments, d.occurrence): d.fault for d in run.state.delivered}
    for span in run.recorder.of_kind("tool"):
        key = (span.name, digest(span.input), span.attributes["occurrence"])
        fault = own.get(key)
        if fault is None and span.error is not None:
            continue
        assert key not in found
        if fault is None or fault.source == "rate":
            found[key] = fault
    return found


TRANSIENT = {"persistence": {"transient": 1.0}, "kinds": {
    k: 1.0 for k in ("error", "timeout", "empty_result", "wrong_result", "renamed_field")
}}  # fmt: skip


@given(setups, strategies, st.sampled_from([1, 2, 3]))
@some(max_examples=120)
def test_every_call_in_two_arms_gets_the_same_draw(setup, strategy, workers):
    setup.faults = setup.faults.replace(**TRANSIENT, rate=0.4)
    one = setup.run()
    options = {"strategy": strategy, "workers": workers}
    two = setup.run(**options)
    mine, other = draws(one), draws(two)
    for key in mine.keys() & other.keys():
        assert mine[key] == other[key]


@given(setups, strategies)
@some(max_examples=120)
def test_faults_at_a_low_rate_are_a_subset_of_those_at_a_higher_one(setup, strategy):
    plan = setup.faults.replace(**TRANSIENT)
    low = draws(setup.run(faults=plan.replace(rate=0.1)))
    high = draws(setup.run(faults=plan.replace(rate=0.3), strategy=strategy))
    for key in low.keys() & high.keys():
        if low[key] is not None:
            assert high[key] == low[key]


def test_the_properties_above_are_about_something():
    """Common calls, faults at both rates, and calls struck at the higher rate only, do occur."""
    common = struck = more = 0
    for seed in range(40):
        plan = FaultPlan(**TRANSIENT)
        setup = Setup([], 4 + 2 * seed, "retry(2)", plan, 1, seed)
        low = draws(setup.run(faults=plan.replace(rate=0.1)))
        high = draws(setup.run(faults=plan.replace(rate=0.3), strategy="retry_then_replan(1)"))
        both = low.keys() & high.keys()
        common += len(both)
        struck += sum(low[k] is not None for k in both)
        more += sum(low[k] is None and high[k] is not None for k in both)
    assert common > 50
    assert struck > 3
    assert more > 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_rate_does_not_enter_the_key(strategy):
    scenario = generate("medium", 1)
    for seed in range(5):
        found = {}
        for rate in (0.2, 0.5, 0.8):
            run = al.autonomous.start(
                al.Lab(scenario, strategy=strategy, seed=seed, fault_rate=rate)
            )
            run.finish()
            found[rate] = {k for k, f in draws(run).items() if f is not None}, draws(run).keys()
        for low, high in ((0.2, 0.5), (0.5, 0.8), (0.2, 0.8)):
            assert found[low][0] & found[high][1] <= found[high][0]
