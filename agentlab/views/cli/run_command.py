"""``agentlab run``: one task for a configured agent, told on the terminal as it goes on.

The response is written to stdout, token by token where the model streams; what leads to it goes to
stderr, so that the response alone can be piped on.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentlab.base.files import shown
from agentlab.base.strict_json import read_json_file
from agentlab.errors import ConfigError, seen
from agentlab.state.state import Outcome
from agentlab.views.cli.asking import People
from agentlab.views.cli.options import NoLock, Trust
from agentlab.views.cli.progress import Progress
from agentlab.views.cli.trusting import trusting

if TYPE_CHECKING:
    from agentlab.runs.kept import Made
    from agentlab.runs.run import Run


_Review = Annotated[
    str | None,
    typer.Option(help="approve or reject every call that needs approval [the terminal is asked]."),
]


def run(
    task: Annotated[str, typer.Argument(help="What the agent is asked.")],
    agent: Annotated[
        str,
        typer.Option(
            help="FILE:ID, an agent in a YAML or TOML file (-: stdin); example:assistant."
        ),
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
        str | None,
        typer.Option(help="A plan as .json (-: stdin), to be carried out as it is."),
    ] = None,
    workflow: Annotated[str, typer.Option(help="How it is gone about.")] = "autonomous",
    workers: Annotated[
        int, typer.Option(min=1, help="Steps under way at once; more than one: in threads.")
    ] = 1,
    review: _Review = None,
    out: Annotated[
        str | None, typer.Option(help="Folder to keep the run in, to replay, show or resume it.")
    ] = None,
    no_lock: NoLock = False,
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
    keeping = kept.keeping(graph, lab, made, task, out, progress, lock=not no_lock)
    with keeping as under_way:
        progress.tell(f"kept in {out} as run {under_way.run_id}")
        _finish(under_way, people, progress)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the run is kept.")],
    run: Annotated[str, typer.Argument(help="Its id, or the beginning [the latest].")] = "",
    review: _Review = None,
    no_lock: NoLock = False,
    trust: Trust = False,
) -> None:
    """Go on with a kept run that waits, or whose process ended; no finished call is made again.

    What a folder of others would start, ask, import or open is shown first, and asked.
    Exit codes as of agentlab run. Example: agentlab resume runs/helpdesk --review approve
    """
    from agentlab.lab.taken import reviewer_of
    from agentlab.runs import kept

    reviewer_of(review)  # an unknown one is an error that names the known
    progress = Progress(sys.stdout, sys.stderr)
    under_way = kept.load(
        folder, run, replay=False, handler=progress, lock=not no_lock, trust=trusting(trust)
    )
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
            f"agent {seen(agent)} has no language model to plan with: --lm names one, as in "
            "--lm openai/gpt-4o-mini; or give the plan by --plan FILE.json"
        )
    return made


def _read_plan(path: Path) -> Any:
    document = read_json_file(path, ConfigError, stdin=True)
    if not isinstance(document, (dict, list)):
        raise ConfigError(
            f"{shown(path)}: expected a plan (an object with steps) or a list of steps"
        )
    return document
