"""The environment contract: a simulated world as pure functions over one JSON document.

``world`` is the truth, one JSON object that nobody changes in place; ``belief`` has the same shape
and holds what the agent knows. The very functions that execution applies to the world can be
applied to the belief, which is how the model-based planner ``search`` plans.

A call takes time. ``begin`` is asked when it starts and may refuse it; ``apply`` is asked when it
finishes, on the world of that moment, and returns the next world, the result or the error, and
``learned``: a merge patch on the belief with what the caller can conclude. Merge patches remove a
key with ``null``, so worlds hold no nulls.

Parameters that a tool lists in ``Tool.seen`` must carry values that an earlier call returned; the
environment keeps them in ``world["seen"]`` (a map from value to true), which is part of what is
learned. So gathering information is part of every plan.

Whether time is simulated is the world's to say: ``clock``. Where it is "simulated", a call takes
the seconds that ``begin`` says, and so does one of a real tool beside it what its tool says. A
world of which nobody says how long its calls take (a dataset's) says "wall": beside real tools it
lives in wall time. Without any, where nothing would take time, the seconds of ``begin`` count all
the same, so that its runs are the same each time.

Subclass ``Environment``, implement ``tools``, ``apply``, ``unmet`` and, for planners that search,
``candidates``; then run ``check_environment`` on it. ``moves`` lets studies say that a goal is out
of reach.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentlab.base.documents import Json, canonical, merge_patch
from agentlab.base.shown import briefly, cut, shown_by
from agentlab.base.values import Document
from agentlab.environments.scenario import Goal, Scenario
from agentlab.errors import EnvironmentContractError, raised, seen, suggest
from agentlab.tools.calls import CallRecord as CallRecord, ToolError
from agentlab.tools.tool import Tool, ToolRegistry


@dataclass(frozen=True, slots=True)
class Call:
    """A tool and its arguments, references already resolved."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that has started: how long it takes and what it holds meanwhile."""

    seconds: float
    holds: tuple[str, ...] = ()
    """Resources, all taken at once; one that is named twice is needed twice."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished call did."""

    world: Document
    """The next world (the same object when nothing changed)."""
    result: Json = None
    error: ToolError | None = None
    learned: dict[str, Any] = field(default_factory=dict)
    """Merge patch on the belief."""

    @property
    def committed(self) -> bool:
        """Whether the call took effect, as far as it tells itself."""
        return self.error is None or self.error.took_effect


def failed(
    world: Document, code: str, message: str, learned: dict[str, Any] | None = None, *,
    permanent: bool = False,
) -> Outcome:  # fmt: skip
    """Return the outcome of a call that changed nothing, and what it taught all the same."""
    error = ToolError(code=code, message=message, permanent=permanent)
    return Outcome(world, error=error, learned=learned or {})


def showing(
    world: Document, result: dict[str, Any], learned: dict[str, Any], ids: Iterable[str]
) -> Outcome:
    """Return the outcome of a read: what it taught, and which ids count as seen from now on.

    The world stays the same object when all of them were seen before.
    """
    seen = dict.fromkeys(ids, True)
    if not seen.keys() <= world["seen"].keys():
        world = {**world, "seen": {**world["seen"], **seen}}
    return Outcome(world, result, learned={**learned, "seen": seen})


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a goal is checked against."""

    initial: Document
    world: Document
    calls: Sequence[CallRecord] = ()
    answer: Json = None
    seconds: float = 0.0
    """Simulated time at the end."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the goal was reached, and what is missing."""

    success: bool
    reasons: tuple[str, ...] = ()

    __repr__ = briefly(
        lambda v: [
            "goal reached" if v.success else "goal missed", *(cut(r) for r in v.reasons[:2]),
            f"and {len(v.reasons) - 2} more reasons" if len(v.reasons) > 2 else "",
        ]
    )  # fmt: skip
    _repr_html_ = shown_by("agentlab.views.page.records:verdict_page")


CLOCKS = ("simulated", "wall")


class Environment(ABC):
    """A simulated world. Instances hold no state of a run."""

    name: str = ""
    clock: str = "simulated"
    """"simulated" or "wall"."""

    @abstractmethod
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools, the same ones in every world of this environment."""

    @abstractmethod
    def apply(self, world: Document, call: Call) -> Outcome:
        """Carry out a call whose arguments satisfy the tool's schema; never change ``world``."""

    @abstractmethod
    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Return the goal conditions that do not hold in ``world``; empty: reached."""

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """Return the calls worth trying from here towards the goal, for planners that search.

        Every call that can lie on a shortest way to the goal must be among them.
        """
        return ()

    def moves(self, world: Document, goal: Goal) -> Iterable[Call] | None:
        """Return every call that serves the goal in some way from here; None: nobody knows.

        ``candidates`` may keep to the quickest way while nothing fails. When tools break, a detour
        may be all that is left, and the ceiling of a study has to know of it. Left out may be what
        the world would refuse and what ends in a dead end. Where the goal has an answer, the calls
        that show it once more are part of it.
        """
        return None

    def uses_up(self, call: Call) -> bool:
        """Say whether a move takes something (money, a place) that another way may need.

        One that does not is made as soon as it can be. Asked of writes alone: reads take nothing.
        """
        return True

    def initial(self, scenario: Scenario) -> Document:
        """Return the true world at the start."""
        return dict(merge_patch(scenario.world, scenario.hidden))

    def belief(self, scenario: Scenario) -> Document:
        """Return what the agent is told at the start."""
        return scenario.world

    def begin(self, world: Document, call: Call) -> Begun | ToolError:
        """Start a call: its duration and resources, or why it cannot start."""
        tool = self.registry[call.tool]
        return Begun(tool.seconds, tool.holds)

    def capacities(self, world: Document) -> Mapping[str, int]:
        """Return how many there are of the resources that calls hold; of others there is one."""
        return {}

    def key(self, world: Document) -> Hashable:
        """Return what makes two worlds the same for a search."""
        return canonical(world)

    def estimate(self, goal: Goal, world: Document) -> float:
        """Return a lower bound on the simulated seconds that are left to the goal."""
        return 0.0

    def disturb(self, world: Document, call: Call, draw: float) -> dict[str, Any] | None:
        """Return a merge patch that spoils what ``call`` is about to use, or None.

        ``draw`` in [0, 1) picks among the possibilities ("sold out", "price up").
        """
        return None

    def constrain(self, world: Document, draw: float) -> dict[str, Any] | None:
        """Return a merge patch that adds a constraint from outside, or None."""
        return None

    def understood(self, belief: Document, payload: Document) -> dict[str, Any] | None:
        """Return what a published constraint or signal means as a merge patch on the belief.

        None: it means nothing here; planners that read text are told it in words all the same.
        ``fitting`` is a rule for worlds whose beliefs people can read.
        """
        return None

    def check(self, goal: Goal, evidence: Evidence) -> Verdict:
        """Judge a finished run: conditions, deadline, answer."""
        reasons = [*self.unmet(goal, evidence.world), *too_late(goal, evidence)]
        if goal.answer is not None:
            reasons += _wrong_answer(goal.answer.world, evidence)
        return Verdict(not reasons, tuple(reasons))

    @cached_property
    def registry(self) -> ToolRegistry:
        """The tools by name."""
        return ToolRegistry(self.tools())


def clock_of(environment: Environment) -> str:
    """Return the clock that an environment lives by.

    Raises
    ------
    EnvironmentContractError
        It is neither "simulated" nor "wall".
    """
    if environment.clock not in CLOCKS:
        known = " or ".join(map(repr, CLOCKS))
        raise EnvironmentContractError(
            f"environment {environment.name!r}: clock must be {known}, got {environment.clock!r}; "
            f"{suggest(str(environment.clock), CLOCKS)}"
        )
    return environment.clock


def fitting(belief: Document, payload: Document) -> dict[str, Any] | None:
    """Return a payload that is a merge patch of what the belief has, of the same kinds; or None.

    Examples
    --------
    >>> belief = {"budget": 900, "flights": {"F1": {"seats": 3}}}
    >>> fitting(belief, {"budget": 700}), fitting(belief, {"flights": {"F1": {"seats": 0}}})
    ({'budget': 700}, {'flights': {'F1': {'seats': 0}}})
    >>> fitting(belief, {"budget": "less"}), fitting(belief, {"meals": 1})
    (None, None)
    """
    return dict(payload) if _fits(belief, payload) else None


def _fits(known: Json, said: Json) -> bool:
    if isinstance(known, Mapping) and isinstance(said, Mapping):
        return all(key in known and _fits(known[key], said[key]) for key in said)
    if _is_number(known) and _is_number(said):
        return True
    return known is not None and type(known) is type(said)


def too_late(goal: Goal, evidence: Evidence) -> list[str]:
    """Return what is wrong where a run ended after its deadline."""
    if goal.deadline is None or evidence.seconds <= goal.deadline:
        return []
    return [f"finished at {evidence.seconds:g} s, after {goal.deadline:g} s"]


def _wrong_answer(path: str, evidence: Evidence) -> list[str]:
    import jmespath

    right = jmespath.search(path, evidence.world)
    if right is None:
        return [f"nothing at {seen(path)} that could be answered"]
    if not _same(evidence.answer, right):
        return [f"answer {seen(evidence.answer)} is not {seen(right)}"]
    return []


def holds(result: Json, right: Json) -> bool:
    """Say whether a result, or anything in it, would be the right answer.

    Examples
    --------
    >>> holds({"bookings": [{"code": "A1"}]}, "A1"), holds({"token": "A1-x"}, "A1")
    (True, False)
    """
    if _same(result, right):
        return True
    if isinstance(result, dict):
        return any(holds(item, right) for item in result.values())
    return isinstance(result, list) and any(holds(item, right) for item in result)


def _same(answer: Json, right: Json) -> bool:
    """Compare an answer with the right value; numbers also match as text."""
    if _is_number(right) and isinstance(answer, str):
        try:
            return float(answer) == float(right)
        except ValueError:
            return False
    alike = type(answer) is type(right) or (_is_number(answer) and _is_number(right))
    return alike and bool(answer == right)


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def no_op(environment: Environment, scenario: Scenario) -> Verdict:
    """Judge doing nothing: the floor of a scenario."""
    world = environment.initial(scenario)
    return environment.check(scenario.goal, Evidence(initial=world, world=world))


class breach:  # noqa: N801 - it is used as a function
    """Turn what escapes an environment into an EnvironmentContractError: it is no step's failure.

    An agent must not be measured by it, so it ends the run; in a study, the cell. It is no
    generator: of one that an interrupt leaves behind, the end would be taken for a breach.

    Parameters
    ----------
    environment : Environment
    what : str
        Which of its functions is called, for the message.

    Raises
    ------
    EnvironmentContractError
        Whatever was raised inside, but for KeyboardInterrupt.
    """

    __slots__ = ("_environment", "_what")

    def __init__(self, environment: Environment, what: str) -> None:
        self._environment, self._what = environment, what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, e: BaseException | None, traceback: object) -> None:
        if e is None or isinstance(e, (KeyboardInterrupt, EnvironmentContractError)):
            return
        text = f"environment {seen(self._environment.name)}: {self._what} raised {raised(e)}"
        raise EnvironmentContractError(text) from e
