"""The options of agentlab eval."""

from __future__ import annotations

from typing import Annotated

import typer

Suite = Annotated[
    str,
    typer.Argument(
        help="A suite, a .jsonl file, a study as .yaml; - reads a suite, JSON lines, from stdin."
    ),
]
Planner = Annotated[
    list[str] | None, typer.Option(help="A planner, e.g. search (model-based); give several.")
]
Strategy = Annotated[
    list[str] | None, typer.Option(help="A replan strategy, e.g. 'retry(2)'; give several.")
]
Workflow = Annotated[
    list[str] | None,
    typer.Option(help="How plans are gone about: autonomous,resident [autonomous]."),
]
FaultRate = Annotated[
    list[str] | None, typer.Option(help="Probabilities that a call meets a fault: 0,0.1,0.3")
]
Seeds = Annotated[str | None, typer.Option(help="N for seeds 0 ... N-1 [5], or the seeds: 1,2,3")]
Faults = Annotated[
    str | None,
    typer.Option(help="transient, permanent, announced, silent, or scenario (their own)."),
]
Workers = Annotated[list[str] | None, typer.Option(help="Steps under way at once: 1,4 [1].")]
Lm = Annotated[
    list[str] | None, typer.Option(help="A language model, e.g. openai/gpt-4o-mini; recorded.")
]
Reflector = Annotated[list[str] | None, typer.Option(help="rules or lm [lm where there is one].")]
Responder = Annotated[
    list[str] | None, typer.Option(help="template or lm [lm where there is one].")
]
Review = Annotated[
    list[str] | None, typer.Option(help="approve or reject, where a tool needs approval.")
]
Budget = Annotated[
    list[str] | None,
    typer.Option(help="Bounds of a run: replans=1,3,10; several kinds are combined."),
]
Record = Annotated[
    str | None, typer.Option(help="Keep LM calls in this .jsonl, and serve them from there.")
]
Processes = Annotated[int | None, typer.Option(min=1, help="Processes [one a processor].")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Runs that ask a language model at once [8].")
]
Out = Annotated[str | None, typer.Option(help="Results folder [results/SUITE].")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only N scenarios, spread over the suite.")]
AllowMixed = Annotated[bool, typer.Option("--allow-mixed", help="Add to results of other code.")]
RetryFailed = Annotated[
    bool,
    typer.Option(
        "--retry-failed",
        "--retry-crashed",
        help="Run again what crashed or whose language model's endpoint failed.",
    ),
]
MaxLmErrors = Annotated[
    int,
    typer.Option(min=0, help="Stop when an endpoint fails so many LM calls in a row; 0: never."),
]
NoControls = Annotated[
    bool, typer.Option("--no-controls", help="No floor, ceiling and fault-free twins.")
]
Report = Annotated[bool, typer.Option("--report", help="Write report.html as well.")]
Baseline = Annotated[
    str | None,
    typer.Option(help="Compare with this arm or level only, chosen before the numbers were seen."),
]
NoLock = Annotated[
    bool,
    typer.Option(
        "--no-lock",
        help="Take no lock on the results: where the file system has none and nobody else writes.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Agree to the programs, models, modules and files that a folder of others names.",
    ),
]
