"""Wrong objects, wherever something is given: taken for what is meant, or refused in our words.

Every parameter of what is public meets every one of a crowd of objects. What is raised is an
``AgentLabError`` of one line that shows no foreign ``repr``.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import agentlab as al
from agentlab.errors import AgentLabError, ConfigError, PlanError, StudyError
from agentlab.lm.connect import connect
from agentlab.minds.planners.search import Search
from agentlab.tools.tool import Tool

SECRET = "sk-very-secret"


class Opaque:
    def __repr__(self):
        raise RuntimeError("no repr")


class Secret:
    def __repr__(self):
        return f"Secret({SECRET})"


class Needs:
    def __init__(self, argument):
        self.argument = argument


def nothing():
    return None


def one(a):
    return None


def two(a, b):
    return None


def free(*a, **k):
    return None


def failing():
    raise KeyError("boom")


async def later(*a):
    return None


SCENARIO = al.load_suite("chain")[0]
LAB = al.Lab(SCENARIO)


def crowd():
    import dspy

    return [
        None, 3, -1, 1.5, float("nan"), float("inf"), True, "", "zzz", "3", b"x", [], [1], ["a"],
        {}, {"a": 1}, (1, 2), {1}, object(), Opaque(), Secret(), [Secret()], {"a": Secret()},
        Opaque, int, Needs, nothing, one, two, free, failing, later, lambda: 1, sys,
        pd.DataFrame([{"a": 1}]), np.arange(2), np.int64(1), np.bool_(True), Path("nowhere.zzz"),
        ValueError("x"), dspy.LM("openai/gpt-4o-mini", api_key=SECRET), dspy.Predict("a -> b"),
        SCENARIO, al.load_suite("chain"), LAB, al.autonomous.start(LAB), al.autonomous,
        al.strategies.retry(1), al.Arm(), al.planners.Search(), al.Budget(), al.FaultPlan(),
        al.State(), al.TaskPlan(),
    ]  # fmt: skip


def started():
    run = al.autonomous.start(LAB)
    run.step()
    run.step()
    return run


def of_run(name, **given):
    method = getattr(al.Run, name)
    return lambda **k: method(started(), **k), method, given


def plain(function, like=None, **given):
    return function, like or function, given


@functools.cache
def studied():
    """A small study that has run, for what reads its results."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    suite = al.load_suite("chain")[:2]
    study = al.Study(al.grid(strategy=["never", "retry(1)"]), suite, seeds=1, out=folder)
    study.run(processes=1, progress=False)
    return study


def of_study(_method, **given):
    method = getattr(al.Study, _method)
    return lambda **k: method(studied(), **k), method, given


def drawing(name, what, value):
    """A plot; what it draws is made when it is called."""
    function = getattr(al.plots, name)

    def draw(**k):
        function(**{what: value()} | k)
        plt.close("all")

    return draw, function, {}


def of(place, names, **given):
    """Functions of a namespace, with what they cannot do without."""
    return {name: plain(getattr(place, name), **given) for name in names.split()}


BOUND = (
    "planner strategy seed handler tools permissions review scenario reflector responder workers"
)
CALLS = {
    "Lab": plain(al.Lab, scenario=SCENARIO),
    "Arm": plain(al.Arm),
    "grid": plain(al.grid, al.Arm),
    "Study": plain(al.Study, arms=al.grid(), suite="chain"),
    "start": plain(al.Run.start, workflow=al.autonomous, lab=LAB),
    "Inspector": plain(al.Inspector, run=al.autonomous.start(LAB)),
    "load_suite": plain(al.load_suite, name="chain"),
    "Suite": plain(al.Suite, name="mine", scenarios=[SCENARIO]),
    "PlanningLoop": plain(al.PlanningLoop, lab=LAB),
    "register": plain(al.register, kind="planner", name="mine", thing=Search),
    "register_environment": plain(al.register_environment, environment=LAB.environment),
    "check_environment": plain(
        al.check_environment, environment=LAB.environment, scenario=SCENARIO
    ),
    "Workflow": plain(
        al.Workflow, name="w", nodes=[al.node(two)], routers={"two": "END"}, entry="two"
    ),
    "Scenario": plain(
        al.Scenario, id="a", environment="chain", task="t", world={}, goal={}
    ),
    "fork": of_run("fork"),
    "edit": of_run("edit"),
    "rewind": of_run("rewind", to=0),
    "review": of_run("review", call_id="a", answer="approve"),
    "say": of_run("say", text="a"),
    "ask_again": of_run("ask_again", call=None),
    "Study.run": of_study("run", processes=1),
    "Study.compare": of_study("compare"),
    "Study.leaderboard": of_study("leaderboard"),
    "Study.power": of_study("power"),
    "Study.seeds_for": of_study("seeds_for", width=0.5),
    "Study.frame": of_study("frame", name="runs"),
    "Study.find": of_study("find", cell=""),
    "Study.trace": of_study("trace", cell=""),
    "Study.replay": of_study("replay", cell=""),
    "Study.rerun": of_study("rerun", cell=""),
    "fault_curve": drawing("fault_curve", "runs", lambda: studied().runs),
    "fault_panels": drawing("fault_panels", "runs", lambda: studied().runs),
    "differences": drawing("differences", "table", lambda: studied().compare()),
    "plan_graph": drawing("plan_graph", "plan", al.TaskPlan),
    **of(al.strategies, "retry retry_then_replan on_error ask_on_error every_step every oracle"),
    **of(al.strategies, "reflect_on_total_failure event_driven"),
    **of(al.planners, "Contract Reference Search Structured"),
    "tool_step": plain(al.planners.tool_step, step_id="a", tool="b", arguments={}),
    **of(al.lm, "Reply say cut_off", text="a"),
    **of(al.lm, "Scripted scripted_model", script=["a"]),
    "refused": plain(al.lm.refused),
    "Recording": plain(al.lm.Recording, path="calls.jsonl"),
    "connect": plain(connect, text="openai/none@http://127.0.0.1:9/v1"),
}  # fmt: skip


def parameters(like):
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(like).parameters.values()
    return [p.name for p in found if p.kind not in kinds and p.name not in ("self", "cls")]


CASES = [(name, p) for name, (_, like, _) in CALLS.items() for p in parameters(like)]


def held(call):
    """Make a call; what it raises is ours, one line, and shows nothing of anybody."""
    try:
        call()
    except AgentLabError as e:
        text = str(e)
        assert SECRET not in text
        assert "\n" not in text
        assert len(text) < 1000


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_a_wrong_object_is_taken_or_refused(name, parameter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a path may be a name
    warnings.simplefilter("ignore")
    call, _, given = CALLS[name]
    for value in crowd():
        held(lambda v=value: call(**{**given, parameter: v}))


@pytest.mark.parametrize("name", BOUND.split())
def test_a_lab_is_bound_with_no_wrong_object(name):
    for value in crowd():
        held(lambda v=value: LAB.bind(**{name: v}))


# ---- what is meant is taken ---------------------------------------------------------------------


def plan_nothing(request, kit):
    return {"steps": []}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"planner": Search}, "Search"),
        ({"planner": plan_nothing}, "FunctionPlanner"),
        ({"strategy": al.strategies.retry}, "retry"),
        ({"scenario": [SCENARIO]}, SCENARIO.id),
        ({"scenario": SCENARIO.to_json()}, SCENARIO.id),
        ({"seed": np.int64(4)}, "seed=4"),
        ({"environment": type(LAB.environment)}, SCENARIO.id),
    ],
)
def test_what_can_mean_one_thing_is_taken(given, told):
    assert told in repr(al.Lab(**{"scenario": SCENARIO, **given}))


@pytest.mark.parametrize(
    "suite",
    [
        SCENARIO, [SCENARIO.to_json()], pd.DataFrame([SCENARIO.to_json()]), (SCENARIO,),
        SCENARIO.to_json(),
    ],
)  # fmt: skip
def test_scenarios_in_any_form_are_a_suite(suite, tmp_path):
    study = al.Study({"planner": "search"}, suite, out=tmp_path)
    assert [s.digest for s in study.suite] == [SCENARIO.digest]


def test_a_dspy_lm_is_taken_with_its_settings_and_without_showing_its_key():
    import dspy

    given = dspy.LM(
        "openai/local", api_key=SECRET, api_base="http://127.0.0.1:9/v1", temperature=0.3,
        max_tokens=50,
    )  # fmt: skip
    model = al.Lab(SCENARIO, lm=given).model
    assert (model.name, model.base_url) == ("openai/local", "http://127.0.0.1:9/v1")
    assert model.settings == {"temperature": 0.3, "max_tokens": 50}
    assert SECRET not in repr(model) + repr(vars(model)) + json.dumps(model.describe())
    arms = al.grid(lm=[dspy.LM("openai/gpt-4o-mini", temperature=0.2), None])
    assert [a.lm for a in arms] == ["openai/gpt-4o-mini?temperature=0.2", None]
    with pytest.raises(ConfigError, match="organization, which is not kept here"):
        al.Lab(SCENARIO, lm=dspy.LM("openai/gpt-4o-mini", organization="o"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"scenario": "travel"},
            r"that is a suite; take one of it: al.load_suite\('travel'\)",
        ),
        ({"scenario": al.load_suite("chain")}, "take one of them"),
        ({"seed": "3"}, "seed must be an integer, got text '3'"),
        ({"lm": [1]}, "a list of replies is a script"),
        ({"strategy": one}, r"call it: one\(a\)"),
        ({"planner": later}, "is async"),
        ({"tools": {"a": two}}, "'a' names no tool of that name"),
        ({"agent": {"id": 1}}, "agent: field id: expected text, got 1"),
    ],
)
def test_what_to_do_is_told(given, words):
    with pytest.raises(AgentLabError, match=words):
        al.Lab(**{"scenario": SCENARIO, **given})


def test_arguments_in_the_wrong_order_are_told():
    with pytest.raises(StudyError, match="the arms come first"):
        al.Study("chain", al.grid())


# ---- what minds return --------------------------------------------------------------------------

STEP = {
    "name": "first", "actionType": "call_tool",
    "targetResource": next(n for n, t in LAB.tools.items() if isinstance(t, Tool)),
}  # fmt: skip


class Returns:
    name = "greedy"

    def __init__(self, value):
        self.value = value

    def plan(self, request, kit):
        return self.value() if callable(self.value) else self.value

    respond = plan


@pytest.mark.parametrize(
    "plan", [{"steps": [STEP]}, [STEP], json.dumps({"steps": [STEP]}), json.dumps([STEP])]
)
def test_a_plan_in_another_form_is_taken(plan):
    run = al.autonomous.start(al.Lab(SCENARIO, planner=Returns(plan)))
    run.run_until(lambda s: s.task_plan is not None)
    assert [s.step_id for s in run.state.task_plan.steps] == ["first"]


@pytest.mark.parametrize(
    "value", [None, 3, "no plan", later, object(), [1], {"step": []}, Secret()]
)
def test_what_is_no_plan_is_a_planning_that_failed(value):
    run = al.autonomous.start(al.Lab(SCENARIO, planner=Returns(value)))
    state = run.finish()
    assert "planner 'greedy' returned" in state.error
    assert SECRET not in state.error
    assert state.stopped_by == "no_plan"
    assert issubclass(PlanError, AgentLabError)


def test_a_responder_that_returns_no_text_is_named():
    run = al.autonomous.start(al.Lab(SCENARIO, responder=Returns(3)))
    with pytest.raises(ConfigError, match="responder 'greedy' returned 3; expected a text"):
        run.finish()
