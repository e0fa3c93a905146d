"""What the Inspector shows of a run, made of records: HTML for the panels, values for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentlab.environments.fault_plan import LM_KINDS, FaultKind, Persistence
from agentlab.runs.run import Run
from agentlab.runs.visits import Visit
from agentlab.state.events import ChangeType
from agentlab.trace.span import Span
from agentlab.views.page import html
from agentlab.views.page.drawing import timeline
from agentlab.views.page.markup import Child, clean, markup, tag
from agentlab.views.page.waiting import waiting_html
from agentlab.views.people import told

PUBLISHED = (ChangeType.NEW_CONSTRAINT, ChangeType.EXTERNAL_SIGNAL)
"""Types of events that a person publishes; the others are the run's own."""


def offered(run: Run) -> dict[str, Any]:
    """Return what the front end offers to choose from, and which of it is possible now."""
    where, _ = html.standing(run)
    return {
        "ended": where not in (html.WAITS, html.PAUSED) and not where.startswith("before "),
        "waits": where == html.WAITS,
        "nodes": [clean(n) for n in run.workflow.nodes],
        "tools": [clean(t) for t in run.lab.tools],
        "kinds": [k.value for k in FaultKind if k not in LM_KINDS],
        "persistence": [p.value for p in Persistence],
        "events": [t.value for t in PUBLISHED],
        "targets": [f"{t.kind} on {clean(t.tool)}" for t in run.state.fault_plan.targets],
    }


def panels(run: Run, at: int, step: str | None, spans: Sequence[Span]) -> dict[str, str]:
    """Return the HTML of each panel, with the state before visit ``at``.

    Parameters
    ----------
    step : str or None
        The selected one.
    spans : sequence of Span
        What was recorded before that visit.
    """
    state, chosen = run.states[at], step
    if chosen is None and state.task_plan is not None and state.task_plan.remaining:
        chosen = state.task_plan.remaining[0].step_id
    details = html.step_details(state, chosen, spans) if chosen is not None else None
    last = [s for s in spans if s.visit == at - 1 and s.kind != "run"]
    changed: Child = "Nothing has run yet."
    if at > 0:
        changed = html.diff_html(run.states[at - 1], state)
    heading = f"Changed by visit {at - 1}, {run.visited[at - 1]}" if at else "Changes"
    return {
        "head": html.head(run),
        "waiting": waiting_html(run, live=True) or "",
        "graph": html.graph(state.task_plan, step, live=True),
        "steps": markup(details, html.steps_table(state, step)),
        "state": markup(tag("h4", heading), changed, tag("h4", "State"), html.state_html(state)),
        "trace": markup(
            tag("h4", f"Visit {at - 1}" if at else "Nothing has run yet"),
            html.span_tree(last) if at else None,
            tag("h4", "What happened so far"), html.log(spans),
            tag("h4", "Timeline, simulated seconds"), timeline(spans),
        ),
        "lm": html.lm_calls(spans, live=True),
    }  # fmt: skip


def happened(visit: Visit) -> str:
    """Say what a visit did, in a line: steps, decisions, and what people said."""
    found = [
        told(s) or s.name if s.kind == "decision" else f"{s.step_id} {s.error or 'completed'}"
        for s in visit.spans
        if s.kind in ("decision", "step")
    ]
    return ", ".join(found)


def named(run: Run) -> str:
    """Return what a run is called among its forks."""
    if run.lineage is None:
        return f"run {run.run_id[:6]}"
    edits = f", {' and '.join(run.lineage.edits)} edited" if run.lineage.edits else ""
    return f"fork {run.run_id[:6]} at {run.lineage.at}{edits}"


def stands(run: Run) -> str:
    """Say why a run stands although it has not ended, or nothing."""
    if run.paused:
        return "The run is paused; step or run to go on."
    calls = ", ".join(c.call_id for c in run.waiting)
    return f"The run waits for {calls or 'people'}." if run.stands and not run.finished else ""
