"""Replay: the recorded visits of a run made again, each compared with its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.errors import ReplayError, RunError
from agentlab.runs.people import BY_HAND, said_again
from agentlab.trace.compare import ReplayReport, first_difference, rows
from agentlab.trace.journal import ReplayJournal

if TYPE_CHECKING:
    from agentlab.runs.stepping import Stepper


def replayed(run: Stepper, again: Stepper, served: ReplayJournal) -> ReplayReport:
    """Make the visits of ``run`` again; stop at the first difference.

    Parameters
    ----------
    run : Stepper
    again : Stepper
        Stands where ``run`` began, with ``served`` for a journal.
    """
    total = len(run.visited) - run.origin
    for k in range(total):
        at = run.origin + k
        if at in run._edits:
            again.states[-1] = run._edits[at]
        make = _said_again if run.visited[at] in BY_HAND else _visited_again
        problem = make(run, again, k)
        if problem is not None:
            return ReplayReport(False, total, k, served.served, problem)
    return ReplayReport(True, total, total, served.served)


def _visited_again(run: Stepper, again: Stepper, k: int) -> str | None:
    """Make our k-th visit again; return the first difference, or None.

    The lab answers for calls where it did: it may have been given when the run was resumed.
    """
    at, recorded = run.origin + k, run.recorded(k)
    if again.next_node != run.visited[at]:
        return f"visit {at}: recorded node {run.visited[at]!r}, now {again.next_node!r}"
    answered = any((s.kind, s.name) == ("decision", "review") for s in recorded)
    reviewer = run.lab.reviewer if answered else None
    if again.lab.reviewer is not reviewer:
        again.lab = again.lab.bind(review=reviewer)
    try:
        visit = again.step()
    except ReplayError as e:
        return f"visit {at}: {e}"
    except Exception as e:  # the recorded visit raised nothing
        return f"visit {at}: now raises {type(e).__name__}: {e}"
    return first_difference(rows(recorded), rows(visit.spans))


def _said_again(run: Stepper, again: Stepper, k: int) -> str | None:
    """Put what a person said at our k-th visit into the replay."""
    recorded = run.recorded(k)
    try:
        visit = said_again(again, next(s for s in recorded if s.kind == "decision"))
    except RunError as e:
        return f"visit {run.origin + k}: {e}"
    return first_difference(rows(recorded), rows(visit.spans))
