"""What may go wrong in a scenario: kinds of faults, and the plan that orders them."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from agentlab.base.values import Document, Value

INFRASTRUCTURE = frozenset({"unavailable", "timeout", "rate_limit", "malformed_result"})
"""Error codes of faults: they say something about the tool, not about the arguments."""


class FaultKind(StrEnum):
    """What goes wrong with a call, an LM or the world."""

    ERROR = "error"
    TIMEOUT = "timeout"
    TIMEOUT_AFTER_COMMIT = "timeout_after_commit"
    RATE_LIMIT = "rate_limit"
    EMPTY_RESULT = "empty_result"
    WRONG_RESULT = "wrong_result"
    PARTIAL_RESULT = "partial_result"
    RENAMED_FIELD = "renamed_field"
    LATENCY_SPIKE = "latency_spike"
    WORLD_CHANGE = "world_change"
    NEW_CONSTRAINT = "new_constraint"
    LM_MALFORMED = "lm_malformed"
    LM_CUT_OFF = "lm_cut_off"
    LM_REFUSED = "lm_refused"


SPOILS_RESULT = frozenset(
    {
        FaultKind.EMPTY_RESULT,
        FaultKind.WRONG_RESULT,
        FaultKind.PARTIAL_RESULT,
        FaultKind.RENAMED_FIELD,
    }
)
"""The call takes effect, and what it returned is not what it should be."""

LM_KINDS = frozenset({FaultKind.LM_MALFORMED, FaultKind.LM_CUT_OFF, FaultKind.LM_REFUSED})


class Persistence(StrEnum):
    """How long a fault stands: this call only, for ever, or for ``duration`` simulated seconds."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNTIL = "until"


class Visibility(StrEnum):
    """Announced: an error comes back. Silent: the result, and what is learned from it, is false."""

    ANNOUNCED = "announced"
    SILENT = "silent"


def _weights(value: dict[Any, float]) -> dict[Any, float]:
    if not all(0 <= w < inf for w in value.values()) or sum(value.values()) <= 0:
        raise ValueError("expected weights >= 0 that do not all vanish")
    return value


Weights = AfterValidator(_weights)


class TargetedFault(Value):
    """A fault that strikes named calls, whatever the rate. What is left out matches anything."""

    tool: str
    """Name of the tool."""
    arguments: Document | None = None
    """Arguments that must be equal in the call (a subset of them)."""
    occurrence: int | None = Field(default=None, ge=0)
    """Which repetition of the same call in the run, from 0."""
    step: str | None = None
    """Step id of the caller."""
    after: float | None = None
    """Earliest simulated time, seconds."""
    before: float | None = None
    """Simulated time from which it no longer strikes, seconds."""
    kind: FaultKind = FaultKind.ERROR
    persistence: Persistence = Persistence.TRANSIENT
    visibility: Visibility = Visibility.ANNOUNCED


class Outage(Value):
    """A tool that is down for a while. ``chance`` is drawn once for a (seed, scenario, name)."""

    name: str
    tool: str
    start: float = Field(default=0.0, ge=0)
    seconds: float | None = Field(default=None, gt=0)
    """Length in simulated seconds; None: for ever."""
    chance: float = Field(default=1.0, ge=0, le=1)


class WorldEvent(Value):
    """A change of the world that nobody in the run makes.

    It happens with ``chance`` (None: the plan's fault rate) at a time drawn from ``between``.
    """

    name: str
    kind: FaultKind = FaultKind.WORLD_CHANGE
    patch: Document
    """Merge patch on the world."""
    between: tuple[float, float] = (0.0, 0.0)
    """Simulated seconds."""
    chance: float | None = Field(default=None, ge=0, le=1)
    visibility: Visibility = Visibility.SILENT
    """Announced: the same patch reaches the belief, and an event is published."""
    description: str = ""


class FaultPlan(Value):
    """What goes wrong: by rate, at targets, on schedule.

    The draw of a call depends on (seed, scenario, tool, arguments, occurrence) and on nothing
    else, so two strategies meet the same faults wherever they make the same call, and the faults
    at a low rate are a subset of those at a higher one.
    """

    rate: float = Field(default=0.0, ge=0, le=1)
    """Probability that a call meets a fault."""
    kinds: Annotated[dict[FaultKind, float], Weights] = {FaultKind.ERROR: 1.0}
    persistence: Annotated[dict[Persistence, float], Weights] = {Persistence.TRANSIENT: 1.0}
    visibility: Annotated[dict[Visibility, float], Weights] = {Visibility.ANNOUNCED: 1.0}
    duration: float = Field(default=30.0, gt=0)
    """Simulated seconds that a fault with persistence "until" (and a rate limit) stands."""
    tools: tuple[str, ...] = ()
    """Tools that may fail by rate; empty: all."""
    targets: tuple[TargetedFault, ...] = ()
    outages: tuple[Outage, ...] = ()
    events: tuple[WorldEvent, ...] = ()

    @property
    def by_rate_alone(self) -> bool:
        """True where nothing goes wrong at rate 0: no targets, outages, or events left to chance.

        What the world does for certain is no fault: it is the task.
        """
        chancy = any(event.chance not in (None, 0, 1) for event in self.events)
        return not (self.targets or self.outages or chancy)

    def fault_free(self) -> FaultPlan:
        """Return the plan under which nothing goes wrong; what happens for certain still does."""
        certain = tuple(event for event in self.events if event.chance == 1)
        return self.replace(rate=0.0, targets=(), outages=(), events=certain)

    @classmethod
    def mixed(cls, permanent: float, silent: float, **kinds: float) -> FaultPlan:
        """Return a plan of kinds by weight, without a rate.

        Parameters
        ----------
        permanent, silent : float
            Shares of the faults that stand for ever, and of those that nobody is told of.
        **kinds : float
            Weight of each kind ("error", "timeout", ...).

        Examples
        --------
        >>> FaultPlan.mixed(permanent=0.2, silent=0.0, error=1.0).persistence["permanent"]
        0.2
        """
        lasting = {Persistence.TRANSIENT: 1 - permanent, Persistence.PERMANENT: permanent}
        seen = {Visibility.ANNOUNCED: 1 - silent, Visibility.SILENT: silent}
        weights = {FaultKind(kind): weight for kind, weight in kinds.items()}
        return cls(kinds=weights, persistence=lasting, visibility=seen)
