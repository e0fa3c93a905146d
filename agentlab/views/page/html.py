"""A run as static HTML: the plan as a graph, its steps, what happened, the state and its changes.

Every function takes records and returns ``Html``; nothing here is live, loads anything or needs a
widget. ``run_html`` puts the pieces together for viewers without widgets; the Inspector shows the
same pieces one at a time. Long things are cut, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentlab.base.documents import shortened
from agentlab.base.values import Value
from agentlab.plans.graph import diff
from agentlab.plans.task_plan import TaskPlan, TaskStep
from agentlab.runs.graph import END, WAIT
from agentlab.runs.people import REVIEW
from agentlab.runs.run import Run
from agentlab.state.decisions import ReplanRecord
from agentlab.state.state import HOMES, State
from agentlab.trace.delta import Change, delta
from agentlab.trace.span import Span
from agentlab.views.page.drawing import part, plan_svg, status_word, timeline
from agentlab.views.page.markup import (
    MOST_ROWS,
    SHORT,
    Child,
    Html,
    beside,
    brief,
    markup,
    more,
    pairs,
    pre,
    table,
    tag,
)
from agentlab.views.page.waiting import waiting_html
from agentlab.views.people import told
from agentlab.views.text import json_text

LOGGED = ("decision", "fault", "event")
"""Kinds of spans that say what happened."""

NOTHING = tag("i", "nothing")

WAITS, PAUSED = "waits for people", "paused"
"""Said of a run that stands, and has not ended."""


def run_html(run: Run) -> str:
    """Return a run as a self-contained piece of HTML."""
    state = run.state
    parts = [
        head(run),
        waiting_html(run),
        graph(state.task_plan),
        section("Steps", steps_table(state), opened=True),
        section("What happened", log(run.spans), opened=True),
        section("Timeline", timeline(run.spans)),
        section("Trace", span_tree(run.spans)),
        section("LM calls", lm_calls(run.spans)) if run.recorder.of_kind("lm") else None,
        section("State", state_html(state)),
    ]
    style = tag("style", Html(beside("agentlab.css")))  # colours are the notebook theme's own
    return style + tag("div", parts, class_="agentlab agentlab-static")


def section(title: str, body: Html, *, opened: bool = False) -> Html:
    """Return something that can be folded away."""
    return tag("details", tag("summary", title), body, open=opened, class_="agentlab-section")


# ---- where a run stands ---------------------------------------------------------------------


def head(run: Run) -> Html:
    """Say what runs, where it stands and what it has used up."""
    state = run.state
    name = run.lab.scenario.id if run.lab.scenario is not None else run.run_id
    facts: list[tuple[str, Any]] = [
        ("workflow", run.workflow.name), ("strategy", run.lab.strategy.name),
        ("seed", state.seed), ("visits", len(run.visited)), ("time", f"{state.now:g} s"),
        ("calls", state.tool_calls), ("replans", state.replan_count),
        ("faults", len(state.delivered)),
    ]  # fmt: skip
    if run.lineage is not None:
        facts.append(("fork of", f"{run.lineage.run_id} at {run.lineage.at}"))
    word, reasons = standing(run)
    kind = {"✓": "good", "✗": "bad"}.get(word[0], "open")
    return tag(
        "header",
        tag("strong", name), tag("span", word, class_=f"agentlab-chip agentlab-{kind}"),
        tag("span", [(" ", tag("span", k, " ", tag("b", v))) for k, v in facts],
            class_="agentlab-facts"),
        tag("p", state.user_input, class_="agentlab-task"),
        tag("p", "; ".join(reasons), class_="agentlab-quiet") if reasons else None,
        tag("p", "stopped by ", tag("b", state.stopped_by)) if state.stopped_by else None,
        tag("p", "error: ", state.error, class_="agentlab-error") if state.error else None,
        _response(state.final_response) if state.final_response else None,
    )  # fmt: skip


def _response(text: str) -> Html:
    """Show the first line of a response; the rest unfolds."""
    first, _, rest = text.strip().partition("\n")
    if not rest and len(first) <= 2 * SHORT:
        return tag("p", first, class_="agentlab-answer")
    line = tag("summary", shortened(first, 2 * SHORT), class_="agentlab-answer")
    return tag("details", line, pre(text), data_key="response", class_="agentlab-response")


def standing(run: Run) -> tuple[str, tuple[str, ...]]:
    """Say where a run stands, in words, and what is missing when it ended without success."""
    try:
        if run.next_node == WAIT:
            return PAUSED if run.paused else WAITS if run.stands else f"before {REVIEW}", ()
        if run.next_node != END:
            return f"before {run.next_node}", ()
        if run.lab.scenario is None:
            return "finished", ()
        verdict = run.verdict
    except Exception as e:  # a router or a checker is the user's own code: show what it says
        return f"✗ {type(e).__name__}", (str(e),)
    return ("✓ goal reached", ()) if verdict.success else ("✗ goal missed", verdict.reasons)


def graph(plan: TaskPlan | None, selected: str | None = None, *, live: bool = False) -> Html:
    """Return the plan's graph, also when there is no plan yet."""
    if plan is None:
        return tag("p", "There is no plan yet.", class_="agentlab-quiet agentlab-noplan")
    return plan_svg(plan, selected, live=live)


# ---- steps ----------------------------------------------------------------------------------


def steps_table(state: State, selected: str | None = None) -> Html:
    """Tabulate the steps of the plan as it stands, and what was replaced on the way."""
    plan = state.task_plan
    if plan is None:
        return tag("p", "There is no plan yet.", class_="agentlab-quiet")
    shown, left_out = part(plan, selected)
    rows = [
        (
            status_word(s.status), tag("b", s.step_id), s.label, ", ".join(s.dependencies),
            state.attempts.get(s.step_id, 0) or "", brief(s.error or s.result),
        )
        for s in shown.steps
    ]  # fmt: skip
    body = table(
        ("status", "step", "does", "after", "tries", "result or error"), rows,
        [(s.step_id, s.step_id == selected) for s in shown.steps],
    )  # fmt: skip
    answer = tag("p", "Answer: ", tag("code", plan.answer)) if plan.answer else None
    return markup(
        left_out, body, answer, [_replan(i, r) for i, r in enumerate(state.replan_history, 1)]
    )


def _replan(number: int, record: ReplanRecord) -> Html:
    change, decision = diff(record.before, record.after), record.decision
    return tag(
        "p", tag("b", f"Replan {number}"), f" at {record.at:g} s, {decision.action}: ",
        f"{len(change.kept)} steps kept, {len(change.removed)} taken out, {len(change.added)} new",
        f". {decision.reasoning}" if decision.reasoning else None, class_="agentlab-quiet",
    )  # fmt: skip


def step_details(state: State, step_id: str, spans: Iterable[Span] = ()) -> Html:
    """Show all that is known of one step: what it should do and how each attempt went."""
    step = _find(state, step_id)
    if step is None:
        return tag("p", f"The plan has no step {step_id!r} here.", class_="agentlab-quiet")
    facts: list[tuple[str, Child]] = [
        ("does", f"{step.action_type} {step.target_resource}".strip()),
        ("parameters", tag("code", json_text(step.parameters))),
        ("after", ", ".join(step.dependencies) or NOTHING),
        ("importance", f"{step.importance:g}{', skippable' if step.skippable else ''}"),
    ]
    facts += [
        (k, v) for k in ("name", "description") if (v := getattr(step, k)) not in ("", step_id)
    ]
    if step.expectation is not None:
        facts.append(("expected", tag("code", json_text(step.expectation))))
    if step.error is not None:
        facts.append(("error", tag("span", step.error, class_="agentlab-error")))
    if step.interruption_context is not None:
        facts.append(("interrupted", str(step.interruption_context)))
    if step.result is not None:
        facts.append(("result", pre(step.result)))
    made = [s for s in spans if s.kind == "step" and s.step_id == step_id]
    tries = [
        (s.attempt, s.visit, f"{s.sim_start:g} to {s.sim_end:g} s", s.error or brief(s.output))
        for s in made
    ]
    return tag(
        "div", tag("h4", step_id, " ", status_word(step.status)), pairs(facts),
        table(("attempt", "visit", "time", "result or error"), tries) if tries else None,
        class_="agentlab-details",
    )  # fmt: skip


def _find(state: State, step_id: str) -> TaskStep | None:
    """Return a step of the plan, or of one that was replaced (the latest)."""
    plans = [r.before for r in state.replan_history]
    plans += [state.task_plan] if state.task_plan is not None else []
    found = (s for plan in reversed(plans) for s in plan.steps if s.step_id == step_id)
    return next(found, None)


# ---- the state and what changed -------------------------------------------------------------


def state_html(state: State) -> Html:
    """Show every field that differs from its default; secrets are never among them."""
    default, fields = State().flat(), state.flat()
    secret = {n for n, f in State.model_fields.items() if f.exclude}
    names = [n for n in fields if n not in secret and fields[n] != default[n]]
    quiet = len(fields) - len(names)
    rows = [_field(n, fields[n]) for n in names]
    rest = tag("p", f"{quiet} fields hold their default.", class_="agentlab-quiet")
    return tag("div", rows, rest, class_="agentlab-state")


def _field(name: str, value: Any) -> Html:
    text = json_text(value)
    if len(text) <= SHORT:
        return tag("p", tag("b", name), " ", tag("code", text))
    size = f"{len(value)} items" if hasattr(value, "__len__") and not isinstance(value, str) else ""
    summary = tag("summary", tag("b", name), " ", tag("span", size, class_="agentlab-quiet"))
    return tag("details", summary, pre(value), data_key=f"state {name}")


def diff_html(before: State, after: State) -> Html:
    """Tabulate what changed between two states, down to the value."""
    rows = list(changes(before, after))
    shown = [
        (tag("b", path), NOTHING if old is NOTHING else brief(old),
         NOTHING if new is NOTHING else brief(new))
        for path, old, new in rows[:MOST_ROWS]
    ]  # fmt: skip
    if not shown:
        return tag("p", "Nothing changed.", class_="agentlab-quiet")
    return markup(table(("field", "before", "after"), shown), more(len(rows)))


def changes(before: Value, after: Value) -> Iterator[tuple[str, Any, Any]]:
    """Yield the changed values of a record: path, before, after; ``NOTHING`` where there is none.

    Parameters
    ----------
    before, after : Value
        Of one class.
    """
    for name, change in delta(before, after).items():
        if name in HOMES:  # people see their fields flat
            yield from changes(getattr(before, name), getattr(after, name))
            continue
        yield from _leaves(name, change, getattr(before, name), getattr(after, name))


def _leaves(path: str, change: Change, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if "=" in change:
        yield path, old, new
    elif "+" in change:
        for i in range(len(old), len(new)):
            yield f"{path}[{i}]", NOTHING, new[i]
    elif "v" in change:
        for name, inner in change["v"].items():
            yield from _leaves(f"{path}.{name}", inner, getattr(old, name), getattr(new, name))
    elif "i" in change:
        for index, inner in change["i"].items():
            a, b = old[int(index)], new[int(index)]
            name = b.step_id if isinstance(b, TaskStep) else index
            yield from _leaves(f"{path}[{name}]", inner, a, b)
    else:
        for key, inner in change["k"].items():
            yield from _leaves(f"{path}.{key}", inner, old.get(key, NOTHING), new[key])
        for key in change.get("-", ()):
            yield f"{path}.{key}", old[key], NOTHING


# ---- spans ----------------------------------------------------------------------------------


def log(spans: Sequence[Span]) -> Html:
    """Tabulate decisions, faults and events in the order in which they came."""
    found = [s for s in spans if s.kind in LOGGED]
    if not found:
        return tag("p", "No decision, fault or event yet.", class_="agentlab-quiet")
    rows = [
        (s.visit, f"{s.sim_end:g} s", tag("span", s.kind, class_=f"agentlab-kind-{s.kind}"),
         tag("b", s.name), s.step_id, brief(_told(s)))
        for s in found[-MOST_ROWS:]
    ]  # fmt: skip
    return markup(
        more(len(found)), table(("visit", "time", "kind", "what", "step", "details"), rows)
    )


def _told(span: Span) -> Any:
    output = span.output if isinstance(span.output, dict) else {}
    if span.kind == "fault":
        words = ("persistence", "visibility", "tool", "source")
        return ", ".join(str(output[w]) for w in words if w in output)
    return (
        span.error
        or told(span)
        or output.get("description")
        or output.get("reasoning")
        or _asked(span)
    )


def _asked(span: Span) -> Any:
    asked = span.input if isinstance(span.input, dict) else {}
    return asked.get("reason") or asked.get("scope")


def span_tree(spans: Sequence[Span]) -> Html:
    """Return spans as a tree that unfolds to inputs, outputs and errors."""
    shown = spans[-MOST_ROWS:]
    if not shown:
        return tag("p", "Nothing was recorded here.", class_="agentlab-quiet")
    ids = {s.span_id for s in shown}
    below: dict[int, list[Span]] = {}
    for span in shown:
        below.setdefault(span.parent_id if span.parent_id in ids else 0, []).append(span)
    tree = [_branch(s, None, below) for s in below.get(0, [])]
    return tag("div", more(len(spans)), tree, class_="agentlab-tree")


def _branch(span: Span, parent: Span | None, below: dict[int, list[Span]]) -> Html:
    where = f" {span.step_id}" + (f" #{span.attempt}" if span.attempt else "")
    took = f"{span.sim_start:g} to {span.sim_end:g} s" if span.sim_end > span.sim_start else None
    line = tag(
        "summary", tag("span", span.kind, class_=f"agentlab-kind agentlab-kind-{span.kind}"), " ",
        tag("b", span.name), where if span.step_id and span.step_id != span.name else None,
        tag("span", took, class_="agentlab-took"),
        tag("span", shortened(span.error, SHORT), class_="agentlab-error") if span.error else None,
    )  # fmt: skip
    facts = [
        (k, pre(v)) for k in ("input", "output", "error", "attributes")
        if (v := getattr(span, k)) not in (None, {}) and v != getattr(parent, k, None)
    ]  # fmt: skip
    children = [_branch(s, span, below) for s in below.get(span.span_id, [])]
    opened = span.kind in ("run", "node", "step")
    key = f"span {span.span_id}"
    return tag(
        "details", line, children, section("data", pairs(facts)) if facts else None, open=opened,
        data_key=key,
    )  # fmt: skip


def lm_calls(spans: Iterable[Span], *, live: bool = False) -> Html:
    """Show prompt and reply of every LM call, the latest first; live ones have a button."""
    found = [s for s in spans if s.kind == "lm"]
    if not found:
        return tag("p", "This run has made no LM call.", class_="agentlab-quiet")
    calls = [_lm_call(i, s, live) for i, s in enumerate(found, 1)]
    return tag("div", more(len(found)), calls[: -MOST_ROWS - 1 : -1], class_="agentlab-lm")


def _lm_call(number: int, span: Span, live: bool) -> Html:
    about = f"{span.step_id or 'no step'}, visit {span.visit}, {span.seconds:.2f} s"
    facts = [(k, json_text(v)) for k, v in span.attributes.items()]
    edit = tag(
        "button", "Edit", type="button", data_call=number, class_="agentlab-button agentlab-edit",
        title="Ask with another prompt, or go on with another reply",
    )  # fmt: skip
    title = tag(
        "h4", f"{number}. {span.name} ", tag("span", about, class_="agentlab-quiet"),
        edit if live else None,
    )  # fmt: skip
    said = pre(span.reply) if isinstance(span.output, (dict, str)) else pre(span.output)
    return tag(
        "article", title,
        [tag("div", tag("b", r), pre(t), class_="agentlab-message") for r, t in span.messages()]
        or tag("div", tag("b", "prompt"), pre(span.input), class_="agentlab-message"),
        tag("div", tag("b", "reply"), said, class_="agentlab-reply"),
        tag("p", span.error, class_="agentlab-error") if span.error else None,
        pairs(facts) if facts else None,
        section("request and response as they were sent", pairs([
            ("request", pre(span.input)), ("response", pre(span.output)),
        ])),
    )  # fmt: skip
