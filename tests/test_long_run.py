"""A run of N steps costs N times what a step costs: calls, items and bytes are counted."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from contextlib import contextmanager

import pytest

import agentlab as al
from agentlab.base.persistent import PersistentMap, PersistentVector
from agentlab.base.values import Value
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import scripted
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans.steps import Steps
from agentlab.runs.graph import END, Graph, node
from agentlab.trace.store import Store

SIZES = (40, 80, 160)


@al.tool
def work(n: int) -> dict:
    """Return at once, but fail where it is told to."""
    if n < 0:
        raise ValueError("told to")
    return {"n": n}


def chain(steps: int, *, failing: bool = False, wide: bool = False) -> list[dict]:
    return [
        {
            "stepId": f"s{i}", "name": f"s{i}", "actionType": "call_tool",
            "targetResource": "work", "dependencies": [f"s{i - 1}"] if i and not wide else [],
            "parameters": {"n": -1 if failing and not i else i},
        }
        for i in range(steps)
    ]  # fmt: skip


def started(steps: int, workflow: str = "autonomous", store: object = None, **options) -> al.Run:
    plan = chain(steps, failing=options.pop("failing", False), wide=options.pop("wide", False))
    lab = al.Lab(tools=[work], planner=Fixed(plan), executor="simulated", **options)
    return getattr(al, workflow).start(lab, "go", store=store, max_task_iterations=10 * steps)


def calls_of(action: Callable[[], object]) -> int:
    """Count the calls that an action makes, of Python functions, generators and C functions."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return number


def assert_linear(counts: list[int], most: float = 2.2) -> None:
    """Twice as many steps more cost twice as much more, not four times."""
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert second <= most * first, counts


@contextmanager
def looked_at(monkeypatch: pytest.MonkeyPatch):
    """Count the items of vectors, maps and plans that are looked through."""
    seen = [0]
    with monkeypatch.context() as patched:
        for kind in (PersistentVector, PersistentMap, Steps):

            def through(self, inner=kind.__iter__):
                seen[0] += len(self)
                return inner(self)

            patched.setattr(kind, "__iter__", through)
        yield seen


WAYS = {
    "autonomous": {},
    "workers": {"workers": 4},
    "wide": {"wide": True},
    "retry": {"strategy": "retry(1)"},
    "every step decided": {"strategy": "every_step", "failing": True},
    "nothing can start": {"failing": True},
    "resident": {"workflow": "resident"},
    "undecided": {"workflow": "resident", "strategy": "event_driven(milestones=False)"},
    "undecided too": {"strategy": "event_driven('INFO', batch=1000, milestones=False)"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_twice_as_long_makes_twice_as_many_calls(way):
    def of(steps: int) -> int:
        run = started(steps, **dict(WAYS[way]))
        number = calls_of(lambda: run.finish(100 * steps))
        assert run.finished
        return number

    of(5)  # imports, caches
    assert_linear([of(n) for n in SIZES])


@pytest.mark.parametrize("way", ["autonomous", "resident", "retry"])
def test_a_durable_run_looks_through_nothing_that_it_did_not_change(way, tmp_path, monkeypatch):
    def of(steps: int) -> tuple[int, int]:
        with Store(tmp_path / f"{steps}.db") as store:
            run = started(steps, store=store, **dict(WAYS[way]))
            with looked_at(monkeypatch) as seen:
                number = calls_of(lambda: run.finish(100 * steps))
        return number, seen[0]

    of(5)
    calls, items = zip(*(of(n) for n in SIZES), strict=True)
    assert_linear(list(calls))
    assert_linear(list(items))


@node
def asks(state, lab):
    """Ask what was never asked before."""
    text = f"question {state.visit}"
    with lab.asking(state) as talk:
        talk.ask({"messages": [{"role": "user", "parts": [{"type": "text", "text": text}]}]})
    return talk.charged(state)


@pytest.mark.parametrize("rate", [0, 0.5])
def test_a_durable_run_looks_through_no_count_of_requests_that_it_did_not_change(
    rate, tmp_path, monkeypatch
):
    faults = al.FaultPlan(kinds={"lm_cut_off": 1.0}, rate=rate)
    tape = Recording(tmp_path / "tape.jsonl", "record")
    model = scripted(lambda request, n: "yes").recorded(tape)
    lab = al.Lab(tools=[], lm=model, faults=faults)

    def of(rounds: int) -> int:
        graph = Graph("asks", [asks], {"asks": lambda s: END if s.visit == rounds else "asks"},
                      "asks")  # fmt: skip
        with Store(tmp_path / f"{rounds}.db") as store:
            run = al.Run.start(graph, lab, "go", store=store)
            with looked_at(monkeypatch) as seen:
                run.finish()
            assert len(run.state.lm_requests) == rounds
            assert len(run.state.lm_prompts) == (rounds if rate else 0)
            assert bool(run.state.delivered) is bool(rate)
            assert store.load_run().states == run.states
        return seen[0]

    of(5)
    assert_linear([of(n) for n in SIZES])


def test_what_is_read_back_is_the_run_and_reading_is_linear_too(tmp_path):
    loads, replays = [], []
    for steps in (5, *SIZES):
        with Store(tmp_path / f"{steps}.db") as store:
            run = started(steps, store=store)
            run.finish()
        with Store(tmp_path / f"{steps}.db") as store:
            loads.append(calls_of(lambda store=store: store.load_run()))
            again = al.Run.resume(store, run.lab)
            assert again.states == run.states
            reports = []
            replays.append(calls_of(lambda again=again, into=reports: into.append(again.replay())))
            assert reports[0].identical
    assert_linear(loads[1:])
    assert_linear(replays[1:])


def test_a_history_of_states_takes_memory_in_proportion_to_its_steps():
    def of(steps: int) -> int:
        tracemalloc.start()
        try:
            run = started(steps)
            run.finish()
            assert len(run.states) > steps
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    of(5)
    assert_linear([of(n) for n in (200, 400, 800)], most=2.5)  # vectors grow a level deeper


def test_a_step_validates_nothing_that_our_own_code_made(monkeypatch):
    """What ``replace`` is asked for in a run does not depend on the number of steps."""

    def of(steps: int) -> int:
        number, replace = [0], Value.replace

        def counted(self, **changes):
            number[0] += 1
            return replace(self, **changes)

        with monkeypatch.context() as patched:
            patched.setattr(Value, "replace", counted)
            started(steps).finish()
        return number[0]

    assert of(10) == of(40)


def test_a_plan_of_five_thousand_steps_ends():
    run = started(5_000)
    run.finish()
    assert run.plan.count(al.TaskStep().status) == 0
    assert len(run.state.results) == 5_000
