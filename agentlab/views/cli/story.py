"""A run told visit by visit, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentlab.runs.run import Run
from agentlab.state.events import ChangeType
from agentlab.study.cells import Cell
from agentlab.trace.span import Span
from agentlab.trace.store import Store
from agentlab.views.cli.terminal import table
from agentlab.views.people import arguments_text, title, told
from agentlab.views.text import json_text, line, visible

# ---- a run, step by step -------------------------------------------------------------------


def story(
    cell: Cell, row: dict[str, Any], spans: Sequence[Span], length: int = 160
) -> RenderableType:
    """Tell a stored run: plan, visits, calls, faults, decisions, response and verdict.

    Parameters
    ----------
    cell : Cell
    row : dict
        Its row of the ``runs`` frame, and the ``traceback`` of a crash.
    spans : sequence of Span
    length : int
        Characters after which a value is cut; 0: never.
    """
    ending = _ending(row, spans, length)
    return Group(_heading(cell, row), *_visits(spans, length), Text(""), *ending)


def _visits(spans: Sequence[Span], length: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    visit = None
    broken = {(s.visit, s.step_id) for s in spans if _is_interruption(s)}
    targets: dict[str, str] = {}
    for span in spans:
        by_hand = told(span) is not None and span.visit != visit  # no node did it
        if span.kind == "node" or by_hand:
            visit, name = span.visit, f"({span.name})" if by_hand else span.name
            parts += [Text(""), Text(f"visit {visit}  {name}", style="bold")]
            if span.error:
                parts.append(_indented(f"error: {line(span.error, length)}", 2, "red"))
        if span.kind == "node":
            continue
        targets |= _targets(span)
        if (span.visit, span.step_id) in broken:
            if span.kind == "step":
                parts += _interrupted(span, targets.get(span.step_id or "", ""), length)
                continue
            if _is_interruption(span):
                continue  # told with the step
        telling = _TOLD.get(span.kind)
        if telling is not None:
            parts += telling(span, length)
    return parts


def _is_interruption(span: Span) -> bool:
    return span.kind == "event" and span.name == ChangeType.TASK_INTERRUPTED


def _targets(span: Span) -> dict[str, str]:
    """Return what each step of a new plan calls, or whom."""
    output = span.output if isinstance(span.output, dict) else {}
    made = span.kind == "decision" and span.name == "plan"
    return {step: target for step, target, _ in output.get("steps", ())} if made else {}


def kept_table(folder: str | Path) -> Table:
    """Return a listing of kept runs: id, agent, task, how far each got."""
    made = table("run", "workflow", "agent", "task", ">visits", "ended")
    with Store(folder, read_only=True) as store:
        for name in store.run_ids():
            found = store.load_run(name)
            state = found.states[-1]
            open_ = "waits for approval" if state.held else "not finished"
            open_ = "paused" if state.paused else open_
            ended = open_ if state.final_response is None else "finished"
            made.add_row(
                name, found.workflow, line(state.agent_id), line(state.user_input, 60),
                str(len(found.visited)), line(state.error or state.stopped_by or ended),
            )  # fmt: skip
    return made


def kept_story(run: Run, length: int = 160) -> RenderableType:
    """Tell a kept run: plan, visits, calls, decisions, response, and what waits for people."""
    state = run.state
    head = Text(f"run {run.run_id}  {run.workflow.name}  {line(state.agent_id)}", style="bold")
    unfinished = "(paused)" if run.paused else "(not finished)"
    response = visible(state.final_response or unfinished)
    calls = [f"{title(c)} {arguments_text(c)} {c.reason}" for c in run.waiting]
    waits = [Text(""), Text("waits for approval", style="bold yellow")] if calls else []
    return Group(
        head, Text(line(state.user_input)), *_visits(run.spans, length),
        *waits, *(_indented(line(c), 2) for c in calls), Text(""),
        Text("final response", style="bold"), _indented(response, 2),
    )  # fmt: skip


def _heading(cell: Cell, row: dict[str, Any]) -> RenderableType:
    scenario = cell.scenario
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    where = f"{scenario.id} ({scenario.environment}, {scenario.difficulty})"
    facts.add_row("run", visible(row["cell"]))
    facts.add_row("arm", line(row["arm"]))
    facts.add_row("scenario", line(where))
    facts.add_row("faults", f"rate {cell.fault_rate:g}, seed {cell.seed}")
    facts.add_row("task", line(scenario.task))
    goal = scenario.goal.model_dump(mode="json", exclude_defaults=True)
    facts.add_row("goal", line(json_text(goal)))
    return facts


def _interrupted(span: Span, target: str, length: int) -> list[RenderableType]:
    """Tell a step that was interrupted: its attempt, what it called, since when, and why."""
    calling = f" while it called {target}" if target else ""
    text = f"interrupted{calling}, begun at {span.sim_start:g} s: {span.error}"
    return [*_step(span, length, ("!", "yellow")), _indented(line(text, length), 6, "yellow")]


def _step(span: Span, length: int, mark_of: tuple[str, str] | None = None) -> list[RenderableType]:
    mark, style = mark_of or (("✗", "red") if span.error else ("✓", "green"))
    times = f"{span.sim_start:g} → {span.sim_end:g} s"
    name = (line(span.step_id), "bold")
    tried = f"  attempt {span.attempt}  "
    return [Text.assemble((f"  {mark} ", style), name, tried, (times, "dim"))]


def _tool(span: Span, length: int) -> list[RenderableType]:
    call = f"{span.name}({_arguments(span.input)})"
    parts = [_indented(line(call, length), 6)]
    if span.error:
        parts.append(_indented(line(span.error, length), 6, "red"))
    else:
        parts.append(_indented(f"→ {line(json_text(span.output), length)}", 6, "dim"))
    return parts


def _fault(span: Span, length: int) -> list[RenderableType]:
    output = span.output if isinstance(span.output, dict) else {}
    how = ", ".join(str(output[k]) for k in ("persistence", "visibility") if k in output)
    return [_indented(f"fault: {line(span.name)} ({line(how)})", 6, "magenta")]


def _event(span: Span, length: int) -> list[RenderableType]:
    output = span.output if isinstance(span.output, dict) else {}
    return [
        _indented(line(f"event {span.name}: {output.get('description', '')}", length), 6, "dim")
    ]


def _decision(span: Span, length: int) -> list[RenderableType]:
    by_person = told(span)
    if by_person is not None:
        return [_indented(line(by_person, length), 2, "yellow")]
    output = span.output if isinstance(span.output, dict) else {}
    if span.name == "plan" and "steps" in output:
        scope = span.input.get("scope", "") if isinstance(span.input, dict) else ""
        parts = [_indented(f"plan ({scope}), {len(output['steps'])} steps", 2)]
        for step, target, arguments in output["steps"]:
            call = f"{line(step)}: {line(target)}({_arguments(arguments)})"
            parts.append(_indented(line(call, length), 4, "cyan"))
        return parts
    spent = f" ({output['spent']} spent)" if output.get("spent") else ""
    why = f": {output['reasoning']}" if output.get("reasoning") else ""
    return [_indented(line(f"decision {span.name}{spent}{why}", length), 2, "yellow")]


_TOLD = {
    "step": _step, "tool": _tool, "lm": _tool, "retrieval": _tool, "fault": _fault,
    "event": _event, "decision": _decision,
}  # fmt: skip


def _ending(row: dict[str, Any], spans: Sequence[Span], length: int) -> Iterable[RenderableType]:
    output = spans[0].output if spans and isinstance(spans[0].output, dict) else {}
    if output.get("final_response"):
        yield Text("final response", style="bold")
        yield _indented(visible(output["final_response"]), 2)
    if output.get("answer") is not None:
        yield Text(f"answer  {line(json_text(output['answer']), length)}")
    lost = row["status"] == "infrastructure"
    if lost:
        why = line(row["infrastructure"])
        yield Text(f"no measurement: the language model's endpoint failed ({why})", "bold red")
    if row["status"] == "crashed" or row.get("traceback"):
        yield Text("crashed" if lost else "crashed (counted as a failure)", style="bold red")
        yield _indented(visible(row.get("traceback") or row["error"]), 2)
        return
    reached = not lost and bool(row["success"])
    missed = f" ({line(row['reasons'])})" if row["reasons"] else ""
    if not lost:
        yield Text(
            f"goal {'reached' if reached else f'missed{missed}'}",
            style="bold green" if reached else "bold red",
        )
    stopped = row["stopped_by"] if isinstance(row["stopped_by"], str) else "the end of the plan"
    yield Text(
        f"stopped by {line(stopped)}; {row['replans']:.0f} replans, {row['tool_calls']:.0f} calls, "
        f"{row['faults_delivered']:.0f} faults, {row['sim_seconds']:g} simulated seconds"
    )


def _indented(text: str, by: int, style: str = "") -> RenderableType:
    return Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, by))


def _arguments(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return json_text(arguments)
    return ", ".join(f"{k}={json_text(v)}" for k, v in arguments.items())
