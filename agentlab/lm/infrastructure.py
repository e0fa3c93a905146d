"""Calls that failed for infrastructure: the endpoint gave no reply, whatever was asked.

Such a call tells nothing of the agent that made it, so a run with one is no measurement of it. What
a model did with the request (refused it, was cut off, wrote what cannot be read, found it too long)
is the agent's own, and so is a request that the endpoint rejects. A fault that was injected is what
a study measures, and a request that a recording has no reply to was never sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.errors import (
    LMDenied,
    LMError,
    LMRateLimited,
    LMTimeout,
    LMUnavailable,
    LMUnknownModel,
)
from agentlab.lm.faulty import FAILS

_TABLE: tuple[tuple[type[LMError], str], ...] = (
    (LMDenied, "denied"),
    (LMUnknownModel, "unknown model"),
    (LMRateLimited, "rate limited"),
    (LMTimeout, "timed out"),
    (LMUnavailable, "unavailable"),
)

CAUSES = tuple(cause for _, cause in _TABLE)
"""Why a call may have failed for infrastructure, once its retries were spent."""

LASTING = ("denied", "unknown model")
"""Causes that no waiting mends: one answer is enough to know."""


def cause_of(error: str | LMError | None, faults: Iterable[str] = ()) -> str | None:
    """Return why a call failed for infrastructure; None: it did not.

    Parameters
    ----------
    error : str, LMError or None
        What was raised; or "Type: message", as spans have it.
    faults : iterable of str
        Kinds of the faults that were injected into the call.

    Returns
    -------
    str or None
        One of ``CAUSES``.

    Examples
    --------
    >>> cause_of("LMTimeout: openai/local gave no reply in time")
    'timed out'
    >>> cause_of("LMTimeout: openai/local gave no reply in time", ["timeout"]) is None
    True
    """
    if error is None or not FAILS.isdisjoint(faults):
        return None
    if isinstance(error, LMError):
        return next((cause for kind, cause in _TABLE if isinstance(error, kind)), None)
    name = error.partition(":")[0]
    return next((cause for kind, cause in _TABLE if kind.__name__ == name), None)
