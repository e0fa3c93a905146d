"""What a reader should know before believing the numbers of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentlab.base.documents import percent
from agentlab.study.compare import limits, pairwise
from agentlab.study.frames import infrastructure_by_cause
from agentlab.study.metrics import few_faults
from agentlab.study.pairing import complete_runs, under_faults
from agentlab.study.study import Study
from agentlab.trace.store import Store
from agentlab.views.text import counted

if TYPE_CHECKING:
    import pandas as pd

LEAST_FAULTS = 10
"""New faults in an arm and rate below which a reader is warned."""


def cautions(study: Study) -> list[str]:
    """Return what a reader should know before believing the numbers, a sentence each."""
    runs = study.runs
    asked = len(study.arms) * len(study.suite) * len(study.fault_rates) * len(study.seeds)
    found = []
    if len(runs) < asked:
        found.append(
            f"The study is not finished: {len(runs):,} of {asked:,} runs are here. "
            f"{_ranked_on(runs)} The same command goes on with it."
        )
    if causes := infrastructure_by_cause(runs):
        found.append(_spoilt(runs, causes))
    crashed = int((runs["status"] == "crashed").sum())
    if crashed:
        found.append(f"{counted(crashed, 'run')} crashed and count as failures (--retry-failed).")
    missed = int((runs["lm_misses"] > 0).sum())
    if missed:
        found.append(
            f"{counted(missed, 'run')} of {len(runs):,} asked for a reply that the recording does "
            "not hold and went on without; nothing in them tells of the model from there on. A "
            "recording knows the prompts of one study: other planners, strategies, rates or seeds "
            "lead to others."
        )
    if runs["arm"].nunique() > 1:
        compared = pairwise(runs, "success", "arm")
        if compared["smallest_difference"].isna().all() and compared["n_tasks"].any():
            found.append(limits(compared))
    few = few_faults(runs, least=LEAST_FAULTS)
    if len(few):
        found.append(
            f"{counted(len(few), 'pair')} of arm and fault rate met fewer than {LEAST_FAULTS} "
            "new faults in all, too few to speak of; take more seeds or tasks."
        )
    found += _of_controls(runs, study.controls)
    with Store(study.out, read_only=True) as store:
        codes = store.meta().get("code", [])
    if len(codes) > 1:
        found.append(f"The results were made by {len(codes)} versions of the code (--allow-mixed).")
    return found


def _of_controls(runs: pd.DataFrame, controls: bool) -> list[str]:
    """Return what is to be known of floors and ceilings."""
    found = []
    if controls and (unknown := float(runs["ceiling"].isna().mean())) > 0:
        found.append(
            f"The ceiling is unknown for {percent(unknown, 1)} of the runs; floor, ceiling and "
            "normalised success leave them out."
        )
    if controls and runs["floor"].isna().any():
        found.append("A floor crashed: what doing nothing reaches there is unknown.")
    if broken := int((runs["ceiling_found_by"] == "crashed").sum()):
        found.append(
            f"The ceilings of {counted(broken, 'run')} crashed and are unknown (--retry-failed)."
        )
    if (runs["ceiling_found_by"] == "reference").any():
        found.append(
            "Part of the ceiling is the fault-free reference plan, as that world cannot be "
            "searched; no arm is bound by it."
        )
    return found


def _ranked_on(runs: pd.DataFrame) -> str:
    tasks = complete_runs(under_faults(runs))["scenario"].nunique()
    if not tasks:
        return "No task is complete in all arms, so they are not ranked."
    return f"Arms are ranked on the {counted(tasks, 'task')} complete in all of them."


def _spoilt(runs: pd.DataFrame, causes: Mapping[str, int]) -> str:
    counts = ", ".join(f"{cause} {n:,}" for cause, n in causes.items())
    return (
        f"{counted(sum(causes.values()), 'run')} of {len(runs):,} measured nothing, as no answer "
        f"was to be had from a model ({counts}). They are left out, and with them the runs of the "
        "other arms with the same task, rate and seed (--retry-failed asks again)."
    )
