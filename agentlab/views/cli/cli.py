"""``agentlab`` on the command line: thin over ``Study``, the report and the stored traces.

Every mistake of a user gives one message on stderr and exit code 2; Ctrl-C gives 130 and keeps what
was finished. Heavy modules are imported inside the commands, so that help is instant.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from agentlab.base.files import shown
from agentlab.errors import AgentLabError, StudyError
from agentlab.version import __version__
from agentlab.views.cli import options
from agentlab.views.cli.results import check_measured, say, show_results
from agentlab.views.cli.run_command import resume, run
from agentlab.views.cli.trusting import trusting
from agentlab.views.text import counted, visible

if TYPE_CHECKING:
    from agentlab.study.definition import Definition
    from agentlab.study.study import Study

USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
"""The root of what is wrong with the words of a command."""


class Commands(TyperGroup):
    """The commands, with one place where every failure becomes a message and an exit code."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command and exit with 0, 1 (a check failed), 2 (a mistake) or 130 (Ctrl-C).

        1 is also for a study with runs that measured nothing, 2 for what is not to be had. Where
        nobody reads the output any more, as behind ``| head``, it ends quietly with 0.
        """
        try:
            code = super().main(*args, **more | {"standalone_mode": False})
            sys.stdout.flush()  # what cannot be written is told here, and not after the end
        except USAGE_ERROR as e:
            context = getattr(e, "ctx", None)
            where = context.command_path if context is not None else "agentlab"
            say(f"error: {e.format_message()} (see {where} --help)")
            code = 2
        except AgentLabError as e:
            say(f"error: {e}")
            code = 2
        except BrokenPipeError:  # who read the output has gone, as head does: nobody's mistake
            code = _left()
        except OSError as e:
            say(f"error: {shown(e.filename or 'input or output')}: {e.strerror or e}")
            code = _left() or 2
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command; a Ctrl-C that it did not answer itself ends it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # before it gets to typer, for which it is a failed check
            raise typer.Exit(_left()) from None


def _left() -> int:
    """Write nothing more: what is left in the buffer would be tried again at the exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


app = typer.Typer(
    cls=Commands, name="agentlab", add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started it: there is nobody to tell
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no "×" still gets its table
    sys.path.append(os.getcwd())  # where mymodule:Greedy is looked for last, as modules here are
    app()


@app.callback(invoke_without_command=True)
def agentlab(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """A factorial lab for replanning agents: evaluate, look into runs, replay, report."""
    if version:
        typer.echo(f"agentlab {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("run")(run)
app.command("resume")(resume)


@app.command("eval")
def evaluate(
    suite: options.Suite,
    planner: options.Planner = None,
    strategy: options.Strategy = None,
    workflow: options.Workflow = None,
    fault_rate: options.FaultRate = None,
    seeds: options.Seeds = None,
    faults: options.Faults = None,
    workers: options.Workers = None,
    lm: options.Lm = None,
    reflector: options.Reflector = None,
    responder: options.Responder = None,
    review: options.Review = None,
    budget: options.Budget = None,
    record: options.Record = None,
    processes: options.Processes = None,
    threads: options.Threads = None,
    out: options.Out = None,
    limit: options.Limit = None,
    allow_mixed: options.AllowMixed = False,
    retry_failed: options.RetryFailed = False,
    max_lm_errors: options.MaxLmErrors = 10,
    no_controls: options.NoControls = False,
    no_lock: options.NoLock = False,
    report: options.Report = False,
) -> None:
    """Compare planners and replan strategies on a suite.

    The same command goes on where it was stopped. Example: agentlab eval travel --strategy never
    --strategy 'retry(2)' --fault-rate 0,0.1 --seeds 10

    Exit code 1: runs are missing from the results, since their language model's endpoint failed;
    2: a mistake, a key or model that was refused, or an endpoint that failed too often.
    """
    from agentlab.study import lists

    definition = _definition(suite, lm or ()).replace(
        **_several(planner=planner, strategy=strategy, lm=lm, reflector=reflector,
                   responder=responder, review=review),
        workflow=lists.parse_names(",".join(workflow)) if workflow else None,
        fault_rate=lists.parse_rates(",".join(fault_rate)) if fault_rate else None,
        workers=lists.parse_workers(",".join(workers)) if workers else None,
        budget=lists.parse_budgets(budget) if budget else None,
        seeds=lists.parse_seeds(seeds) if seeds else None, faults=faults, limit=limit, out=out,
    )  # fmt: skip
    study = definition.study(controls=not no_controls, record=record)
    arms, scenarios = len(study.arms), len(study.suite)
    rates, number = len(study.fault_rates), len(study.seeds)
    typer.echo(
        f"{counted(arms, 'arm')} × {counted(scenarios, 'scenario')} of {visible(study.suite.name)} "
        f"× {counted(rates, 'fault rate')} × {counted(number, 'seed')} = "
        f"{counted(arms * scenarios * rates * number, 'run')}"
    )
    try:
        with _interrupts_here(processes):
            study.run(
                processes=processes, threads=threads, allow_mixed=allow_mixed,
                retry_failed=retry_failed, max_lm_errors=max_lm_errors, lock=not no_lock,
            )  # fmt: skip
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not cut the message off
        kept = _kept(study)
        are = "is" if kept == 1 else "are"
        finished = counted(kept, "finished run")
        say(f"interrupted; {finished} {are} kept in {study.out}; the same command goes on")
        raise typer.Exit(130) from None
    show_results(study, report)
    check_measured(study)


def _several(**given: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Return the options that were given, each value once."""
    from agentlab.study.lists import parse_names

    return {name: parse_names(",".join(values)) for name, values in given.items() if values}


def _definition(suite: str, lm: Sequence[str]) -> Definition:
    from agentlab.study.definition import Definition, read_definition, recorded_definition

    if suite.endswith((".yaml", ".yml")):
        return read_definition(suite)
    return recorded_definition(suite, lm) or Definition(suite)


def _kept(study: Study) -> int:
    try:
        return len(study.runs)
    except (AgentLabError, KeyError):  # interrupted before the first run was written
        return 0


@contextmanager
def _interrupts_here(processes: int | None) -> Iterator[None]:
    """Let Ctrl-C reach this process and none of the workers that it starts.

    A terminal sends SIGINT to every process in the foreground, and each worker would print a
    traceback. Workers inherit the signal mask of the thread that starts them, so this thread blocks
    SIGINT, while another, made before, takes it; Python then tells this one all the same.
    """
    if processes == 1 or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting it later would unblock SIGINT again (Python 3.11)
    done = threading.Event()
    threading.Thread(target=done.wait, daemon=True).start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        done.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---- looking into results ------------------------------------------------------------------

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.")]


@app.command()
def report(folder: Folder, baseline: options.Baseline = None) -> None:
    """Write DIR/report.html: one self-contained page."""
    from agentlab.study.study import Study
    from agentlab.views.page.report import write_report

    typer.echo(write_report(Study.open(folder), baseline=baseline))


@app.command()
def show(
    folder: Folder,
    run: Annotated[str | None, typer.Argument(help="Key of a run, or its beginning.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only runs that did not succeed.")
    ] = False,
    arm: Annotated[
        list[str] | None, typer.Option(help="Only arms that contain this text, or one of several.")
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="Only scenarios that contain this text, or one of several."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many runs.")] = 40,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long values.")] = False,
) -> None:
    """List the runs of a study or those kept by agentlab run, or tell one step by step."""
    from agentlab.runs import kept
    from agentlab.study.study import Study
    from agentlab.trace.store import Store
    from agentlab.views.cli.chosen import among
    from agentlab.views.cli.story import kept_story, kept_table, story
    from agentlab.views.cli.terminal import console, emit, runs_table

    if kept.holds_runs(folder):
        if failed or arm or scenario:
            raise StudyError(
                f"{folder}: holds kept runs; --failed, --arm and --scenario choose among a study's"
            )
        found = kept.look(folder, run) if run is not None else None
        told = kept_table(folder) if found is None else kept_story(found, 0 if full else 160)
        emit(console(), told)
        return
    study = Study.open(folder)
    runs = study.runs
    if run is not None:
        key, cell = study.find(run)
        rows = runs[runs["cell"] == key].to_dict("records")
        if not rows:
            raise StudyError(
                f"{folder}: run {key} is not finished yet; agentlab eval goes on with it"
            )
        with Store(folder, read_only=True) as store:
            row = store.cells()[key].row | {str(k): v for k, v in rows[0].items()}
        emit(console(), story(cell, row, study.trace(key), 0 if full else 160))
        return
    if runs.empty:
        typer.echo(f"no run is finished yet in {visible(folder)}; agentlab eval goes on with it")
        return
    wanted = among(runs["arm"], "arm", arm) & among(runs["scenario"], "scenario", scenario)
    reached = runs["success"].fillna(False).astype(bool)
    runs = runs[wanted & ~reached] if failed else runs[wanted]
    emit(console(), runs_table(runs.head(limit)))
    typer.echo(f"{min(limit, len(runs)):,} of {len(runs):,} runs")


@app.command()
def replay(
    folder: Folder,
    run: Annotated[
        str, typer.Argument(help="Key of a run, or its beginning [of those kept: the latest].")
    ] = "",
    trust: options.Trust = False,
) -> None:
    """Run a stored run again and compare; exit code 1 when it comes out otherwise.

    Models, tools and servers are not asked: what they said is served from the record.
    """
    from agentlab.runs import kept
    from agentlab.study.study import Study

    agreed = trusting(trust)
    if kept.holds_runs(folder):
        found = kept.replay(folder, run, trust=agreed)
    else:
        found = Study.open(folder, trust=agreed).replay(run)
    typer.echo(visible(f"{'identical' if found.identical else 'different'}: {found}"))
    if not found.identical:
        raise typer.Exit(1)


@app.command()
def calibrate(
    repetitions: Annotated[int, typer.Option(min=10, help="Simulated studies a row.")] = 1000,
    reduced: Annotated[bool, typer.Option("--reduced", help="A part of the grid.")] = False,
) -> None:
    """Measure by simulation what intervals, verdicts and visible differences promise."""
    from agentlab.study.calibration import measured

    before = ""
    for row in measured(repetitions, reduced=reduced):
        if row.table != before:
            before = row.table
            typer.echo(f"\n{row.table} ({row.promise}; {row.repetitions:,} repetitions a row)")
        typer.echo(f"  {row.value:>6.1%}  {row.case}")


@app.command()
def suites() -> None:
    """List the suites."""
    from agentlab.views.cli.doctor import suites_table
    from agentlab.views.cli.terminal import console, emit

    emit(console(), suites_table())


@app.command()
def doctor() -> None:
    """Check this installation; exit code 1 when something is broken."""
    from agentlab.views.cli.doctor import checks

    broken = False
    for name, state, what in checks():
        broken |= state == "broken"
        typer.echo(f"{state:<8} {name:<14} {visible(what)}")
    if broken:
        raise typer.Exit(1)
