"""``agentlab run``: one task for a configured agent, told on the terminal as it goes on.

The response is written to stdout, token by token where the model streams; what leads to it goes to
stderr, so that the response alone can be piped on.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from agentlab.base.strict_json import read_json_file
from agentlab.base.values import shortened
from agentlab.errors import ConfigError
from agentlab.plans.task_plan import TaskPlan
from agentlab.state.state import Outcome
from agentlab.views.cli.asking import People

if TYPE_CHECKING:
    from agentlab.runs.kept import Made
    from agentlab.runs.run import Run
    from agentlab.state.state import State


LENGTH = 200
"""Characters after which a step's result is cut."""

_Review = Annotated[
    str | None,
    typer.Option(help="approve or reject every call that needs approval [the terminal is asked]."),
]


def run(
    task: Annotated[str, typer.Argument(help="What the agent is asked.")],
    agent: Annotated[
        str, typer.Option(help="FILE:ID, an agent in a YAML or TOML file; example:assistant.")
    ],
    lm: Annotated[
        str | None, typer.Option(help="A language model, for every agent [the agent's own].")
    ] = None,
    planner: Annotated[
        str | None, typer.Option(help="A planner [the agent's, else structured].")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="A replan strategy, e.g. 'retry(2)' [the agent's].")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(help="A plan as .json, to be carried out as it is.")
    ] = None,
    workflow: Annotated[str, typer.Option(help="How it is gone about.")] = "autonomous",
    workers: Annotated[
        int, typer.Option(min=1, help="Steps under way at once; more than one: in threads.")
    ] = 1,
    review: _Review = None,
    out: Annotated[
        str | None, typer.Option(help="Folder to keep the run in, to replay, show or resume it.")
    ] = None,
) -> None:
    """Let a configured agent carry a task out.

    Exit code 1: its plan did not complete, as the response says; 3: it is left waiting for a
    person, which only a run that is kept can be. Example: agentlab run "What time is it in Tokyo?"
    --agent example:clock --lm openai/gpt-4o-mini
    """
    from agentlab.runs import kept
    from agentlab.workflows.named import get_workflow

    graph = get_workflow(workflow)
    made = _made(agent, lm, planner, strategy, plan, workers)
    made = replace(made, workflow=workflow, review=review)
    progress = Progress(sys.stdout, sys.stderr)
    lab = made.lab()
    lab.agent()
    people = People(progress, review, out)
    people.check(lab)
    if out is None:
        _finish(graph.start(lab, task, handler=progress), people, progress)
        return
    with kept.keeping(graph, lab, made, task, out, progress) as under_way:
        progress.tell(f"kept in {out} as run {under_way.run_id}")
        _finish(under_way, people, progress)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the run is kept.")],
    run: Annotated[str, typer.Argument(help="Its id, or the beginning [the latest].")] = "",
    review: _Review = None,
) -> None:
    """Go on with a kept run that waits, or whose process ended; no finished call is made again.

    Exit codes as of agentlab run. Example: agentlab resume runs/helpdesk --review approve
    """
    from agentlab.lab.named import reviewer_of
    from agentlab.runs import kept

    reviewer_of(review)  # an unknown one is an error that names the known
    progress = Progress(sys.stdout, sys.stderr)
    under_way = kept.load(folder, run, replay=False, handler=progress)
    goes_on = f"goes on at visit {len(under_way.visited)}"
    progress.tell(f"run {under_way.run_id} {'had ended' if under_way.finished else goes_on}")
    _finish(under_way, People(progress, review, str(folder)), progress)


def _finish(run: Run, people: People, progress: Progress) -> None:
    state = people.finish(run)
    progress.close(state)
    if state.error is not None:
        raise ConfigError(state.error)
    if state.ended is not Outcome.COMPLETED:
        raise typer.Exit(1)


def _made(
    agent: str, lm: str | None, planner: str | None, strategy: str | None, plan: str | None,
    workers: int,
) -> Made:  # fmt: skip
    from agentlab.lab.agent import find_agent
    from agentlab.runs.kept import Made

    if plan is not None and planner is not None:
        raise ConfigError("--plan is carried out as it is: give it or --planner, not both")
    fixed = None if plan is None else _read_plan(Path(plan))
    registry, config = find_agent(agent)
    made = Made(config.id, registry, lm, planner, strategy, fixed, workers)
    if lm is None and config.model is None and plan is None and planner is None:
        raise ConfigError(
            f"agent {agent!r} has no language model to plan with: --lm names one, as in "
            "--lm openai/gpt-4o-mini; or give the plan by --plan FILE.json"
        )
    return made


def _read_plan(path: Path) -> Any:
    document = read_json_file(path, ConfigError)
    if not isinstance(document, (dict, list)):
        raise ConfigError(f"{path}: expected a plan (an object with steps) or a list of steps")
    return document


class Progress:
    """A handler that tells stages and steps on one stream, and the response on another.

    Parameters
    ----------
    out : file
        For the response.
    aside : file
        For everything else.
    """

    def __init__(self, out: TextIO, aside: TextIO) -> None:
        self._out, self._aside = out, aside
        self._told = 0
        self._failed = False
        self._written = ""

    def on_thinking_content(self, stage: str, text: str) -> None:
        """Tell what is being done."""
        self._say(f"{stage.replace('_', ' ')}: {text}")

    def on_node_complete(self, node: str, state: State) -> None:
        """Tell the plan that was made, and how steps ended."""
        if node in ("planning", "plan") and state.task_plan is not None:
            self._plan(state.task_plan)
        for result in state.task_results[self._told :]:
            ended = _text(result.result) if result.error is None else result.error
            self._say(f"{result.step_id} {result.status}: {ended}", 2)
        self._told = len(state.task_results)

    def on_replan_required(self, reason: str, count: int) -> None:
        """Tell why a new plan is made."""
        self._say(f"new plan {count}: {reason}")

    def on_error(self, error: str) -> None:
        """Keep the template's words back: the error is told as one message."""
        self._failed = True

    def on_token(self, text: str) -> None:
        """Write a piece of the response."""
        if self._failed:
            return
        from agentlab.views.cli.terminal import visible

        self._written += text
        self._out.write(visible(text))
        self._out.flush()

    def close(self, state: State) -> None:
        """Write what of the response has not been written."""
        response = state.final_response or ""
        if self._failed and state.task_plan is None:
            return
        self._failed = False
        if self._written != response:  # a model broke off, and the template took over
            if self._written:
                self.on_token("\n")
            self.on_token(response)
        self.on_token("\n")

    def _plan(self, plan: TaskPlan) -> None:
        self._say(f"plan: {len(plan)} steps" if len(plan) != 1 else "plan: 1 step")
        for step in plan.steps:
            self._say(f"{step.step_id}: {step.label}({_text(step.parameters)})", 2)

    def tell(self, text: str) -> None:
        """Tell something of the command's own."""
        self._say(text)

    def show(self, text: str, end: str = "\n") -> None:
        """Show text as it is, blanks and lines too."""
        from agentlab.views.cli.terminal import visible

        self._aside.write(visible(text) + end)
        self._aside.flush()

    def _say(self, text: str, indent: int = 0) -> None:
        from agentlab.views.cli.terminal import line

        self._aside.write(" " * indent + line(text) + "\n")
        self._aside.flush()


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, LENGTH)
