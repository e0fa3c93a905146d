"""Endpoints that fail: what the calls of a run tell of them, and when a study has to stop.

A run with a call that failed for infrastructure (see ``agentlab.lm.infrastructure``) is stored and
is no measurement. Workers send what became of their calls with each cell; who asked counts, so the
calls of all processes and threads are counted together, in the order in which their cells come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from agentlab.base.documents import shortened
from agentlab.errors import StudyError, seen
from agentlab.lab.named import connected
from agentlab.lm.infrastructure import cause_of
from agentlab.lm.model import Model
from agentlab.lm.probe import refusals
from agentlab.lm.recording import Recording
from agentlab.study.grid import Arm
from agentlab.trace.span import Span
from agentlab.trace.stored import EndpointCall

MAX_LM_ERRORS = 10
"""Calls in a row that an endpoint may fail before a study stops, where nobody says."""

TOLD = 500
"""Characters of an error that are sent and shown."""


def endpoint_calls(model: Model | None, spans: Iterable[Span]) -> tuple[EndpointCall, ...]:
    """Return how the LM calls of a run with a model ended for their endpoint, in their order.

    Left out is what tells nothing of it: a call that was served, that met an injected fault, or
    that came back without a reply for another reason.
    """
    calls = []
    for span in (s for s in spans if s.kind == "lm"):
        cause = cause_of(span.error, span.attributes.get("faults", ()))
        asked = not span.attributes.get("served")
        if asked and (cause is not None or span.output is not None):
            error = "" if cause is None else shortened((span.error or "").partition(": ")[2], TOLD)
            calls.append(EndpointCall(_place(model, span.name), cause, error))
    return tuple(calls)


def _place(model: Model | None, asked: str) -> str:
    endpoint = model.endpoint if model is not None and model.name == asked else None
    return asked if endpoint is None else endpoint.place


class Streaks:
    """Counts for each endpoint the calls that failed since its last reply.

    Parameters
    ----------
    limit : int or None
        How many are too many; 0 or None: no number.

    Raises
    ------
    StudyError
        The limit is no number of calls.
    """

    def __init__(self, limit: int | None) -> None:
        number = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
        if limit is not None and not number:
            raise StudyError(
                f"max_lm_errors is a number of calls, or 0 for no limit, got {seen(limit)}"
            )
        self.limit = limit or 0
        self._failed: dict[str, list[EndpointCall]] = {}

    def broken(self, calls: Iterable[EndpointCall]) -> list[EndpointCall]:
        """Count calls; return those in a row that are too many, [] while there are none."""
        for call in calls:
            row = self._failed.setdefault(call.endpoint, [])
            if call.cause is None:
                row.clear()
            else:
                row.append(call)
            if self.limit and len(row) >= self.limit:
                return row
        return []


def stopped(row: list[EndpointCall], out: Path) -> StudyError:
    """Return the error of a study that stops after a row of failed calls."""
    causes = ", ".join(f"{cause} {n}" for cause, n in Counter(c.cause for c in row).most_common())
    return StudyError(
        f"the study stopped: {len(row)} LM calls in a row failed at {row[-1].endpoint} ({causes}); "
        f"the last: {row[-1].error}. What was finished is kept in {out}. When the endpoint is well "
        "again, --retry-failed (retry_failed=True) goes on, and runs once more what it failed; "
        "--max-lm-errors (max_lm_errors) sets the limit, 0: none"
    )


def check_access(arms: Iterable[Arm], tape: Recording | None = None) -> None:
    """Ask every endpoint of some arms for a word, before a run depends on it.

    Nobody is asked for a script, nor where a recording has something of the model: it may have all.

    Parameters
    ----------
    arms : iterable of Arm
    tape : Recording, optional
        Serves calls in place of the models.

    Raises
    ------
    StudyError
        A key is missing or refused, or an endpoint does not know the model. That one cannot be
        reached, or is slow, is no error here.
    """
    models = {arm.lm for arm in arms if isinstance(arm.lm, str)}
    given = [*map(connected, sorted(models)), *(a.lm for a in arms if isinstance(a.lm, Model))]
    asked = [m for m in given if not _served(m, m.recording) and not _served(m, tape)]
    endpoints = {(e.place, e.wire): e for e in (m.endpoint for m in asked) if e is not None}
    if found := refusals(endpoints.values()):
        raise StudyError(f"no cell was run, since {'; '.join(map(str, found))}")


def _served(model: Model, recording: Recording | None) -> bool:
    if recording is None or recording.mode == "record":
        return False
    return recording.mode == "replay" or any(li["model"] == model.name for li in recording.lines())
