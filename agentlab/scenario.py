"""Scenarios: one task with its world, its goal and what may go wrong, and suites of them.

A scenario is data. ``world`` is what the agent is told at the start (its first belief); ``hidden``
is a merge patch that turns it into the truth. ``reference`` is a plan known to reach the goal when
nothing fails. ``faults`` says what may go wrong; a study sets its rate.

A suite is a JSONL file, a scenario a line, checked against ``datasets/scenario.schema.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, Any, overload

from pydantic import AfterValidator, Field, ValidationError

from agentlab.errors import AgentLabError, ScenarioError, UnknownNameError
from agentlab.values import Document, Value, explain


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
        raise ValueError(f"expected weights >= 0 that do not all vanish, got {value!r}")
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


class AnswerGoal(Value):
    """The answer that is asked for, and where it comes from."""

    world: str
    """JMESPath into the final world: the right value."""
    tools: tuple[str, ...]
    """Tools whose result shows the value."""
    result: str
    """JMESPath into that result."""


class Goal(Value):
    """What must hold in the end."""

    conditions: Document = {}
    """What the environment's checker reads."""
    answer: AnswerGoal | None = None
    deadline: float | None = Field(default=None, gt=0)
    """Simulated seconds; later is too late. None: no limit."""


class ReferenceStep(Value):
    """One call of a reference plan; arguments may hold ``${step.path}``."""

    step_id: str
    tool: str
    arguments: Document = {}
    dependencies: tuple[str, ...] = ()


class ReferencePlan(Value):
    """A plan known to reach the goal when nothing fails."""

    steps: tuple[ReferenceStep, ...] = ()
    answer: str | None = None
    """Template over references."""


class Scenario(Value):
    """One task with its world, its goal and its faults."""

    id: str = Field(min_length=1)
    environment: str
    """Name of the environment whose functions apply."""
    task: str
    """What the user asks for."""
    world: Document
    """What the agent is told at the start."""
    hidden: Document = {}
    """Merge patch from ``world`` to the truth."""
    goal: Goal
    reference: ReferencePlan | None = None
    difficulty: str = "medium"
    cluster: str | None = None
    """Tasks that share a template, for clustered statistics; None: the task itself."""
    faults: FaultPlan = FaultPlan()


class Suite(Sequence[Scenario]):
    """A named, ordered dataset of scenarios.

    Parameters
    ----------
    name : str
        How the suite is called in results.
    scenarios : sequence of Scenario
        With unique ids.

    Raises
    ------
    ScenarioError
        The suite is empty or an id occurs twice.
    """

    def __init__(self, name: str, scenarios: Sequence[Scenario]) -> None:
        self.name = name
        self.scenarios = tuple(scenarios)
        if not self.scenarios:
            raise ScenarioError(f"suite {name!r} holds no scenario")
        ids = [s.id for s in self.scenarios]
        doubled = sorted({i for i in ids if ids.count(i) > 1})
        if doubled:
            raise ScenarioError(f"suite {name!r} holds these ids more than once: {doubled}")

    @overload
    def __getitem__(self, index: int | str) -> Scenario: ...
    @overload
    def __getitem__(self, index: slice) -> Suite: ...
    def __getitem__(self, index: int | str | slice) -> Scenario | Suite:
        if isinstance(index, slice):
            return Suite(self.name, self.scenarios[index])
        if isinstance(index, str):
            for scenario in self.scenarios:
                if scenario.id == index:
                    return scenario
            raise UnknownNameError(f"scenario of suite {self.name!r}", index, [s.id for s in self])
        return self.scenarios[index]

    def __len__(self) -> int:
        return len(self.scenarios)

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self.scenarios)

    def __repr__(self) -> str:
        return f"Suite({self.name!r}, {len(self)} scenarios)"

    def where(self, **fields: Any) -> Suite:
        """Return the scenarios whose named fields equal the given values."""
        kept = [s for s in self if all(getattr(s, k) == v for k, v in fields.items())]
        return Suite(self.name, kept)


def read_suite(
    path: str | Path,
    name: str | None = None,
    check: Callable[[Scenario], None] = lambda scenario: None,
) -> Suite:
    """Read a suite from a JSONL file.

    Parameters
    ----------
    path : str or Path
    name : str, optional
        Default: the file's name without its ending.
    check : callable
        Raises an AgentLabError for a scenario that cannot be used.

    Raises
    ------
    ScenarioError
        A line is no scenario: the message names file, line and field.
    """
    path = Path(path)
    try:
        # Not splitlines(): a text may hold U+2028 and its like, which JSON does not escape.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise ScenarioError(f"{path}: cannot be read: {e}") from e
    scenarios = [
        _read_line(path, number, line, check)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return Suite(name or path.stem, scenarios)


def _read_line(path: Path, number: int, line: str, check: Callable[[Scenario], None]) -> Scenario:
    try:
        document = json.loads(line, parse_constant=_no_constant)
        scenario = Scenario.model_validate(document)
        check(scenario)
        return scenario
    except json.JSONDecodeError as e:
        raise ScenarioError(f"{path}, line {number}: not JSON: {e.msg} (column {e.colno})") from e
    except ValidationError as e:
        raise ScenarioError(f"{path}, line {number}: {explain(e)}") from e
    except AgentLabError as e:
        raise ScenarioError(f"{path}, line {number}: {e}") from e


def _no_constant(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is no JSON number", "", 0)


def write_suite(suite: Suite, path: str | Path) -> None:
    """Write a suite as JSONL, leaving out fields that hold their default."""
    with Path(path).open("w", encoding="utf-8") as file:
        for scenario in suite:
            document = scenario.model_dump(mode="json", exclude_defaults=True)
            file.write(json.dumps(document, ensure_ascii=False, sort_keys=True) + "\n")
