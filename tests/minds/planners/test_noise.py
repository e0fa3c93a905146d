"""Noise: shares, what stands, cut-off replies, and what replanning can mend of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from math import sqrt
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.documents import canonical, digest
from agentlab.base.strict_json import read_json
from agentlab.environments.chain import generate
from agentlab.environments.scenario import ReferenceStep
from agentlab.errors import ConfigError, JsonError, PlanParseError
from agentlab.minds.planners.named import get_planner
from agentlab.minds.planners.noise import MISTAKES, Noise, spoilt
from agentlab.plans.references import references

some = settings(deadline=None, derandomize=True)
shares = st.floats(0, 1)


def asked(seed=0, number=0, attempt=0):
    return SimpleNamespace(seed=seed, number=number, attempt=attempt)


def kit(scenario="s", tools=()):
    return SimpleNamespace(scenario=SimpleNamespace(id=scenario), tools=dict(tools))


def within(count, n, p):
    return abs(count - n * p) <= 3.5 * sqrt(n * p * (1 - p)) + 1e-9


def about(n):
    return {f"s{i}": ["call", {"n": i}] for i in range(n)}


def kinds(noise, steps, **request):
    found = noise.mistakes(steps, asked(**request), kit())
    return {i: m.kind for i, m in found.items()}


# ---- shares -----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("persistence", [0.0, 0.4, 1.0])
def test_shares(share, persistence):
    """Each plan errs at ε; what stands is made again in the next, the rest again by chance."""
    noise, steps, n = Noise(share, persistence), about(4000), 4000
    first, second = (noise.mistakes(steps, asked(number=k), kit()) for k in (0, 1))
    for made in (first, second):
        assert within(len(made), n, share)
        assert within(sum(m.stands for m in made.values()), len(made), persistence)
        for kind in MISTAKES:
            assert within(sum(m.kind == kind for m in made.values()), len(made), 1 / len(MISTAKES))
    again = sum(i in second for i in first)
    assert within(again, len(first), persistence + (1 - persistence) * share)
    assert all(second[i] == m for i, m in first.items() if m.stands)


@given(low=shares, high=shares, persistence=shares, seed=st.integers(0, 99))
@some
def test_what_is_spoilt_at_a_low_share_is_spoilt_alike_at_a_higher_one(
    low, high, persistence, seed
):
    low, high = sorted((low, high))
    fewer, more = (kinds(Noise(e, persistence), about(40), seed=seed) for e in (low, high))
    assert fewer.items() <= more.items()


@given(
    persistence=shares, number=st.integers(0, 5), seed=st.integers(0, 99),
    left=st.lists(st.integers(0, 39), unique=True),
)  # fmt: skip
@some
def test_a_mistake_goes_by_what_the_step_does_and_by_nothing_beside_it(
    persistence, number, seed, left
):
    """Neither its place and name, nor what else is planned; where it stands, nor the plan."""
    noise, steps = Noise(0.5, persistence), about(40)
    whole = noise.mistakes(steps, asked(seed, number), kit())
    renamed = {f"again{i}": steps[f"s{i}"] for i in left}
    part = noise.mistakes(renamed, asked(seed, number), kit())
    assert {i.removeprefix("again"): m for i, m in part.items()} == {
        str(i): whole[f"s{i}"] for i in left if f"s{i}" in whole
    }
    later = noise.mistakes(steps, asked(seed, number + 1), kit())
    stands = {i: m for i, m in whole.items() if m.stands}
    assert stands == {i: m for i, m in later.items() if m.stands}
    assert persistence < 1 or stands == whole


def test_seeds_and_scenarios_err_on_their_own():
    noise, steps = Noise(0.5), about(40)
    found = {digest(list(kinds(noise, steps, seed=s).items())) for s in range(20)}
    assert len(found) == 20
    other = noise.mistakes(steps, asked(), kit("other"))
    assert {i: m.kind for i, m in other.items()} != kinds(noise, steps)


# ---- the spoilt plan --------------------------------------------------------------------------


TOOLS = {n: SimpleNamespace(parameters={"type": "object"}) for n in ("call", "other")}


@given(seed=st.integers(0, 999), n=st.integers(0, 7), share=shares, cut=st.integers(0, 7))
@some
def test_a_spoilt_plan_is_well_formed_and_what_is_left_of_it_the_same(seed, n, share, cut):
    steps = [
        ReferenceStep.calling(
            f"s{i}", "call", {"n": i, "of": f"${{s{i - 1}.v}}" if i else 0}, [f"s{i - 1}"] * (i > 0)
        )
        for i in range(n)
    ]
    ids = {s.step_id: [s.tool, s.arguments] for s in steps}
    mistakes = Noise(share).mistakes(ids, asked(seed), kit())
    whole = spoilt(steps, mistakes, kit(tools=TOOLS))
    met = set()
    for step in whole:
        assert set(step.dependencies) <= met
        assert {r.step for r in references(step.arguments)} <= met
        met.add(step.step_id)
    assert len(met) == len(whole)
    assert mistakes or whole == steps
    # what is left after the first steps were done is spoilt as it was
    left = [s.step_id for s in steps[cut:]]
    rest = spoilt(steps, mistakes, kit(tools=TOOLS), left)
    shape = [(s.step_id, s.tool, s.arguments["n"]) for s in whole
             if s.step_id.removesuffix("_again") in left and "n" in s.arguments]  # fmt: skip
    assert [(s.step_id, s.tool, s.arguments["n"]) for s in rest] == shape


# ---- replies that are cut off -----------------------------------------------------------------


@pytest.mark.parametrize(("persistence", "both"), [(1.0, 0.3), (0.0, 0.09), (0.5, 0.195)])
def test_the_share_of_replies_that_are_no_plan(persistence, both):
    noise, n = Noise(0, persistence, 0.3), 3000
    found = Counter()
    for seed in range(n):
        cut = []
        for attempt in (0, 1):
            try:
                noise.cut({"steps": []}, ["x"], asked(seed, attempt=attempt), kit())
            except PlanParseError:
                cut.append(attempt)
        found[tuple(cut)] += 1
    assert within(found[0,] + found[0, 1], n, 0.3)
    assert within(found[0, 1], n, both)


@given(st.integers(0, 99), st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.none()))
@some
def test_what_is_left_of_a_reply_is_its_beginning_and_no_json(seed, reply):
    with pytest.raises(PlanParseError, match=r"\(reply\): ") as caught:
        Noise(unparseable=1.0).cut(reply, [], asked(seed), kit())
    text = caught.value.reply
    assert text
    assert canonical(reply).startswith(text)
    assert text != canonical(reply)
    with pytest.raises(JsonError):
        read_json(text)


@pytest.mark.parametrize("planner", ["reference", "search"])
def test_it_goes_the_way_of_every_reply_that_does_not_parse(planner):
    ends = Counter()
    for seed in range(60):
        lab = al.Lab(generate("easy", 0), seed=seed, strategy="never",
                     planner=f"{planner}(unparseable=0.5, persistence=0)")  # fmt: skip
        run = al.autonomous.start(lab)
        run.finish()
        (plan,) = [s for s in run.recorder.of_kind("decision") if s.name == "plan"]
        told = (plan.attributes or {}).get("parse_failures", [])
        assert len(told) == run.state.parse_failures
        assert all(t.startswith("not a valid plan: (reply): ") for t in told)
        if run.state.parse_failures == 2:
            assert run.state.stopped_by == "no_plan"
            assert run.state.error == told[-1]
            assert not run.verdict.success
        else:
            assert run.verdict.success
        ends[run.state.parse_failures] += 1
    assert min(ends[0], ends[1], ends[2]) > 5


# ---- in runs ----------------------------------------------------------------------------------


def succeeded(planner, strategy, suite, seeds=3):
    found = set()
    for scenario in suite:
        lab = al.Lab(scenario, planner=planner, strategy=strategy)
        for seed in range(seeds):
            run = al.autonomous.start(lab.bind(seed=seed))
            run.finish()
            if run.verdict.success:
                found.add((scenario.id, seed))
    return found


@pytest.mark.parametrize("suite", ["chain", "travel", "blocks"])
def test_replanning_alone_mends_no_mistake_of_a_planner_with_one_plan(suite):
    """Without faults the same cells succeed, however often it plans; redrawn, it mends them."""
    tasks = al.load_suite(suite)[::3][:7]
    once = succeeded("reference(noise=0.25)", "never", tasks)
    assert 0 < len(once) < 3 * len(tasks)
    for strategy in ("on_error", "every_step", "retry_then_replan(1)"):
        assert succeeded("reference(noise=0.25)", strategy, tasks) == once
    redrawn = "reference(noise=0.25, persistence=0)"
    free = succeeded(redrawn, "on_error", tasks) - succeeded(redrawn, "never", tasks)
    assert len(free) > len(tasks) / 2


@pytest.mark.parametrize("strategy", ["never", "on_error", "every_step"])
def test_a_double_is_tried_once_however_often_the_rest_is_planned(strategy):
    scenario, met = generate("medium", 0, length=2), 0
    first, second = scenario.reference.steps
    for seed in range(120):
        lab = al.Lab(scenario, planner="reference(noise=0.3)", strategy=strategy, seed=seed)
        does = {s.step_id: [s.tool, s.arguments] for s in (first, second)}
        found = lab.planner.noise.mistakes(does, asked(seed), lab)
        if {i: m.kind for i, m in found.items()} == {first.step_id: "insert"}:
            run = al.autonomous.start(lab)
            run.finish()
            stages = [c.arguments["stage"] for c in run.state.calls]
            assert stages == [first.step_id, first.step_id, second.step_id]
            assert run.verdict.success
            met += 1
    assert met > 2


@pytest.mark.parametrize("suite", ["chain", "travel", "blocks"])
def test_a_planner_that_keeps_alternatives_mends_some(suite):
    tasks = al.load_suite(suite)[::3][:7]
    once, again = (succeeded("search(noise=0.25)", s, tasks) for s in ("never", "on_error"))
    assert once <= again
    assert len(again - once) > len(tasks) / 3


def test_it_goes_round_the_call_that_it_gets_wrong():
    """``advance`` is always called with a wrong argument; ``advance_slowly`` is got right."""
    scenario, ways = generate("medium", 0, length=1), Counter()
    for seed in range(150):
        lab = al.Lab(scenario, planner="search(noise=0.3)", strategy="on_error", seed=seed)
        arguments = {"stage": scenario.world["stages"][0], "token": "start"}
        calls = {t: [t, arguments] for t in ("advance", "advance_slowly")}
        request = asked(seed)
        found = {t: m.kind for t, m in lab.planner.noise.mistakes(calls, request, lab).items()}
        run = al.autonomous.start(lab)
        run.finish()
        called = [c.tool for c in run.state.calls]
        if found == {"advance": "wrong_argument"}:
            assert called == ["advance", "advance_slowly"]
            assert run.verdict.success
            ways["round"] += 1
        elif found == dict.fromkeys(calls, "wrong_argument"):
            # no way is left: it stays with the quickest, and with its mistake
            assert set(called) <= {"advance", "advance_slowly"}
            assert not run.verdict.success
            ways["none"] += 1
        elif not found:
            assert called == ["advance"]
            ways["right"] += 1
    assert min(ways["round"], ways["right"]) > 3


@pytest.mark.parametrize("workers", [1, 3])
def test_a_spoilt_search_plan_keeps_the_order_that_was_proved(workers):
    """Of two calls that are where they were meant to be, one that had to come first still does."""
    claims = 0
    for scenario in al.load_suite("blocks")[:4]:
        for seed in range(6):
            plans = []
            for planner in ("search", "search(noise=0.3)"):
                lab = al.Lab(scenario, planner=planner, seed=seed, workers=workers)
                run = al.autonomous.start(lab)
                run.run_until("plan_execution")
                plans.append(run.plan)
            meant, made = ({s.step_id: before(p, s) for s in p.steps} for p in plans)
            order = [s.step_id for s in plans[0].steps if s.step_id in made]
            here = [s.step_id for s in plans[1].steps if s.step_id in meant]
            moved = {a for a, b in zip(order, here, strict=True) if a != b}
            for step_id in set(here) - moved:
                needed = (meant[step_id] & made.keys()) - moved
                assert needed <= made[step_id]
                claims += len(needed)
    assert claims > 100


def before(plan, step):
    found, queue = set(), list(step.dependencies)
    while queue:
        at = queue.pop()
        if at not in found and at in plan:
            found.add(at)
            queue += plan.step(at).dependencies
    return found


PRINTS = """
import agentlab as al
from agentlab.base.documents import digest
for planner in ("reference", "search"):
    for number, strategy in enumerate(("never", "on_error", "every_step(3)")):
        scenario = al.load_suite("travel")[4]
        lab = al.Lab(scenario, planner=f"{planner}(noise=0.4, persistence=0.5, unparseable=0.1)",
                     strategy=strategy, seed=3, fault_rate=0.1 * number)
        run = al.autonomous.start(lab)
        run.run_until("plan_execution")
        print(planner, digest(run.plan.to_json()))
"""


def test_every_arm_and_every_process_errs_alike():
    said = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PRINTS]
        ended = subprocess.run(command, env=env, text=True, capture_output=True, check=True)
        said.append(ended.stdout.splitlines())
    assert said[0] == said[1]
    assert len(said[0]) == 6
    assert len(set(said[0])) == 2  # a plan a planner, whatever the strategy and the faults


# ---- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", ["reference", "search"])
@pytest.mark.parametrize("name", ["noise", "persistence", "unparseable"])
@pytest.mark.parametrize("value", ["1.5", "-0.1", "'much'", "True", "None", "1e999", "(0.1,)"])
def test_what_is_no_share_is_refused(planner, name, value):
    with pytest.raises(ConfigError, match=f"expected {name} between 0 and 1, got "):
        get_planner(f"{planner}({name}={value})")


@pytest.mark.parametrize("planner", ["reference", "search"])
def test_names_with_arguments(planner):
    made = get_planner(f"{planner}(noise=0.2, persistence=0.5, unparseable=0.1)")
    assert made.noise == Noise(0.2, 0.5, 0.1)
    assert get_planner(planner).noise == Noise(0.0, 1.0, 0.0)
    with pytest.raises(ConfigError, match="did you mean 'persistence'"):
        get_planner(f"{planner}(noise=0.2, persistense=1)")
    with pytest.raises(ValueError, match="expected noise between 0 and 1, got nan"):
        Noise(float("nan"))
