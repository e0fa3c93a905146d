"""Records as static HTML for notebooks: plan, state, scenario, suite, study, verdict, replay.

Each is short; what is long is cut and says so, and what cannot be shown is shown as its line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice
from typing import Any

from agentlab.views.page import html
from agentlab.views.page.markup import Child, Html, beside, brief, markup, pairs, pre, table, tag
from agentlab.views.text import counted

MOST = 12
"""Rows of a suite or a study that are shown."""


def page(make: Callable[[Any], Child]) -> Callable[[Any], str]:
    """Return the function that makes a self-contained piece of HTML of a record."""

    @wraps(make)
    def made(record: Any) -> str:
        try:
            body: Child = make(record)
        except Exception:  # of a record that is half built or damaged
            body = tag("p", repr(record))
        style = tag("style", Html(beside("agentlab.css")))
        return style + tag("div", body, class_="agentlab agentlab-static agentlab-record")

    return made


def _title(word: str, name: Any, *facts: Any) -> Html:
    shown = [(" ", tag("span", f)) for f in facts if f not in (None, "")]
    told = tag("span", shown, class_="agentlab-facts") if shown else None
    return tag("header", tag("strong", word, " ", name), told)


@page
def plan_page(plan: Any) -> Child:
    """Draw a plan and list its steps."""
    from agentlab.state.state import State

    state = State.made(task_plan=plan)
    return markup(
        _title("plan", plan.plan_id, plan.status.value, counted(len(plan), "step")),
        tag("p", plan.summary, class_="agentlab-quiet") if plan.summary else None,
        html.graph(plan), html.section("Steps", html.steps_table(state), opened=True),
    )  # fmt: skip


@page
def step_page(step: Any) -> Child:
    """Tell what a step does and where it stands."""
    from agentlab.plans.task_plan import TaskPlan
    from agentlab.state.state import State

    state = State.made(task_plan=TaskPlan(steps=(step.replace(dependencies=()),)))
    return html.step_details(state, step.step_id)


@page
def state_page(state: Any) -> Child:
    """Tell where a state stands, its plan, and every field that is not as it began."""
    plan = state.task_plan
    return markup(
        _title("state", f"before visit {state.visit}", f"{state.now:g} s", state.next_action),
        tag("p", brief(state.user_input), class_="agentlab-task"),
        html.graph(plan) if plan is not None else None,
        html.section("Fields", html.state_html(state), opened=plan is None),
    )


@page
def scenario_page(scenario: Any) -> Child:
    """Tell a scenario: task, goal, world, and what may go wrong."""
    goal = scenario.goal.model_dump(mode="json", exclude_defaults=True)
    faults = scenario.faults.model_dump(mode="json", exclude_defaults=True)
    steps = scenario.reference.steps if scenario.reference is not None else ()
    return markup(
        _title("scenario", scenario.id, scenario.environment, scenario.difficulty),
        tag("p", scenario.task, class_="agentlab-task"),
        html.section("Goal", pre(goal), opened=True),
        html.section("World, as the agent is told", pre(scenario.world)),
        html.section("Faults", pre(faults)) if faults else None,
        html.section("Reference plan", pre([f"{s.step_id}: {s.tool}" for s in steps]))
        if steps else None,
    )  # fmt: skip


@page
def suite_page(suite: Any) -> Child:
    """List the first scenarios of a suite."""
    rows = [(tag("b", s.id), s.environment, s.difficulty, brief(s.task)) for s in suite[:MOST]]
    return markup(
        _title("suite", suite.name, counted(len(suite), "scenario")),
        table(("scenario", "environment", "difficulty", "task"), rows), _rest(len(suite)),
    )  # fmt: skip


@page
def study_page(study: Any) -> Child:
    """Tell what a study runs and how far it is."""
    done, total = _done(study), _cells(study)
    rows = [(tag("b", a.label), a.called("planner"), a.called("strategy"), a.called("lm") or "")
            for a in islice(study.arms, MOST)]  # fmt: skip
    facts: Sequence[tuple[str, Child]] = (
        ("suite", f"{study.suite.name} ({counted(len(study.suite), 'scenario')})"),
        ("fault rates", ", ".join(f"{r:g}" for r in study.fault_rates)),
        ("seeds", _seeds(study.seeds)), ("results", str(study.out)),
        ("runs", f"{total:,}" if done is None else f"{done:,} of {total:,} are finished"),
    )  # fmt: skip
    return markup(
        _title("study", "", counted(len(study.arms), "arm")),
        pairs(facts),
        table(("arm", "planner", "strategy", "lm"), rows),
        _rest(len(study.arms)),
    )


def _cells(study: Any) -> int:
    sizes = (study.arms, study.suite, study.fault_rates, study.seeds)
    product = 1
    for one in sizes:
        product *= len(one)
    return product


def _done(study: Any) -> int | None:
    """Return how many of its runs are finished; None: nobody knows without making the folder."""
    try:
        return len(study.runs)
    except Exception:  # no results yet, or a folder that cannot be read
        return 0 if not (study.out / "study.db").exists() else None


def _seeds(seeds: Sequence[int]) -> str:
    shown = ", ".join(map(str, seeds[:MOST]))
    return shown if len(seeds) <= MOST else f"{shown}, … ({len(seeds)} in all)"


def _rest(count: int) -> Html | None:
    if count <= MOST:
        return None
    return tag("p", f"{MOST} of {count:,} are shown.", class_="agentlab-quiet")


@page
def verdict_page(verdict: Any) -> Child:
    """Say whether the goal was reached, and what is missing."""
    word, kind = ("✓ goal reached", "good") if verdict.success else ("✗ goal missed", "bad")
    chip = tag("span", word, class_=f"agentlab-chip agentlab-{kind}")
    reasons = [tag("p", reason) for reason in verdict.reasons[:MOST]]
    return markup(tag("header", chip), reasons, _rest(len(verdict.reasons)))


@page
def replay_page(report: Any) -> Child:
    """Say whether a replay came out as it was recorded."""
    word, kind = ("✓ identical", "good") if report.identical else ("✗ different", "bad")
    chip = tag("span", word, class_=f"agentlab-chip agentlab-{kind}")
    return markup(tag("header", chip), tag("p", brief(str(report))))


@page
def lab_page(lab: Any) -> Child:
    """Tell what a lab works with."""
    scenario, model = lab.scenario, lab.model
    facts: Sequence[tuple[str, Child]] = (
        ("scenario", scenario.id if scenario is not None else html.NOTHING),
        ("planner", getattr(lab.planner, "name", type(lab.planner).__name__)),
        ("strategy", lab.strategy.name), ("seed", lab.seed),
        ("fault rate", f"{lab.faults.rate:g}"),
        ("lm", model.name if model is not None else html.NOTHING),
        ("tools", brief(", ".join(lab.tools))), ("workers", lab.workers),
    )  # fmt: skip
    return markup(_title("lab", ""), pairs(facts))
