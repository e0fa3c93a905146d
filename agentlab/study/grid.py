"""Arms: the configurations under comparison, and the grid that makes them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain, product
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from agentlab.base.arrived import arrived, instance, refused
from agentlab.base.documents import Json, digest
from agentlab.base.shown import briefly
from agentlab.errors import AgentLabError, ConfigError, StudyError, seen, suggest
from agentlab.lab.lab import Lab
from agentlab.lab.named import checked_workers, planner_of
from agentlab.lm.model import Model
from agentlab.minds.base import Planner, Reflector, Responder
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.minds.strategies.budgets import bounded, budget_levels, budget_text
from agentlab.minds.strategies.named import get_strategy
from agentlab.state.tool_loop import PendingApproval
from agentlab.study.addresses import DIGITS, apart, asked_at, model_of
from agentlab.study.bounds import check_axes
from agentlab.study.given import ARMS, listed, object_of
from agentlab.study.identity import Described, label_of, name_of
from agentlab.workflows.named import get_workflow
from agentlab.workflows.workflow import Workflow

if TYPE_CHECKING:
    import pandas as pd


ALWAYS = ("planner", "strategy")
"""Axes that every arm's label names."""

Reviewer = Callable[[PendingApproval], Any]
"""Answers for a call that waits (see ``Lab``)."""


@dataclass(frozen=True)
class Stored:
    """Stands for an object of an arm that was read from a folder, where objects are not kept.

    Parameters
    ----------
    name : str
        What results call it.
    digest : str
    """

    name: str
    digest: str


@dataclass(frozen=True)
class Arm:
    """One configuration under comparison.

    Parameters
    ----------
    planner : str or Planner
        A name with arguments, or an object.
    strategy : str or Strategy
    workflow : str or Workflow
    workers : int
        Steps that may be under way at once, at least 1.
    lm : str or Model, optional
        A language model, or the name of one (see ``Lab``).
    reflector, responder : str or object, optional
        "rules" and "template", or "lm"; default: the model where there is one.
    review : str or callable, optional
        Who answers where a tool needs approval: "approve", "reject" or a function (see ``Lab``).
    budget : str, mapping or Budget, optional
        Bounds in place of the strategy's own: "replans=3,seconds=60", {"replans": 3}, or a whole
        ``Budget``. Kept as text (see ``agentlab.minds.strategies.budgets``).
    """

    planner: str | Planner = "search"
    strategy: str | Strategy = "never"
    workflow: str | Workflow = "autonomous"
    workers: int = 1
    lm: str | Model | None = None
    reflector: str | Reflector | None = None
    responder: str | Responder | None = None
    review: str | Reviewer | None = None
    budget: str | Mapping[str, float | None] | Budget | None = None

    def __post_init__(self) -> None:
        for axis, value in ((a, getattr(self, a)) for a in AXES):
            if isinstance(value, Stored) or value is None:
                continue
            taken = budget_text(value) if axis == "budget" else object_of(axis, value)
            object.__setattr__(self, axis, taken)

    __repr__ = briefly(lambda arm: [arm.label])

    @property
    def named(self) -> bool:
        """True when it is made of names alone, so that it can be made again anywhere."""
        return not any(True for _ in self._objects())

    def _objects(self) -> Iterator[tuple[str, Any]]:
        for axis in AXES:
            value = getattr(self, axis)
            if value is not None and not isinstance(value, (str, int)):
                yield axis, value

    def called(self, axis: str) -> Json:
        """Return what results call the arm's planner, strategy, workflow, lm, ...; None: none."""
        value = self.to_json().get(axis)
        return value["object"] if isinstance(value, dict) else value

    @cached_property
    def factors(self) -> dict[str, Json]:
        """Every axis with its value, as results call it: a name, a number or None."""
        return {axis: self.called(axis) for axis in AXES}

    @property
    def options(self) -> dict[str, Any]:
        """What a lab is told of the arm: every axis but the workflow, which is no part of a lab.

        Of the budget it is told by the strategy, whose bounds it takes the place of.
        """
        told = {axis: getattr(self, axis) for axis in AXES if axis not in ("workflow", "budget")}
        if self.budget is not None:
            own = get_strategy(self.strategy) if isinstance(self.strategy, str) else self.strategy
            if not isinstance(own, Strategy):
                raise StudyError(f"a budget bounds an agentlab.Strategy, got {arrived(own)}")
            told["strategy"] = bounded(own, str(self.budget))
        return told

    @cached_property
    def label(self) -> str:
        """What tells it from other arms, in a few words."""
        words = []
        for axis, value in self.factors.items():
            if axis in ALWAYS or value != DEFAULTS[axis]:
                bare = axis in (*ALWAYS, "workflow", "lm", "budget")
                words.append(str(value) if bare else f"{axis}={value}")
                if axis == "lm" and isinstance(self.lm, str):
                    words[-1] = model_of(self.lm) + self.__dict__.get("_endpoint", "")
        return " × ".join(words)

    def to_json(self) -> dict[str, Json]:
        """Return the arm as JSON; an object is stood for by its name and a digest of what it is.

        An object that changes when it is used stays the arm that it was when this was first asked.
        """
        cached: dict[str, Json] | None = self.__dict__.get("_json")
        if cached is None:
            cached = self.__dict__["_json"] = {
                axis: _written(value) for axis in AXES if (value := getattr(self, axis)) is not None
            }
        return cached

    def key(self) -> dict[str, Json]:
        """Return what a cell's key takes of the arm: what objects are and not how they are called.

        So the same arm may be called otherwise beside other arms.
        """
        found = self.to_json().items()
        return {k: {"digest": v["digest"]} if isinstance(v, dict) else v for k, v in found}

    def call_by_digest(self) -> None:
        """Add a few digits to what objects are called; another arm is called the same."""
        for axis, _ in self._objects():
            written = self.to_json()[axis]
            assert isinstance(written, dict)
            plain = str(written["object"]).partition("#")[0]
            written["object"] = f"{plain}#{str(written['digest'])[:DIGITS]}"
        for name in ("factors", "label"):
            self.__dict__.pop(name, None)

    @property
    def asked_at(self) -> str:
        """Where its model is asked, if others beside it ask one of that name elsewhere."""
        return str(self.__dict__.get("_asked_at", ""))

    def call_by_endpoint(self, told: str) -> None:
        """Put what tells its endpoint behind the model's name; another arm asks another one."""
        self.__dict__["_endpoint"] = told
        self.__dict__.pop("label", None)

    def check_made(self) -> None:
        """Refuse an arm that was read from a folder and cannot be made again from there.

        Raises
        ------
        StudyError
            It is made of objects, which are not stored.
        """
        for axis, value in self._objects():
            if isinstance(value, Stored):
                raise StudyError(
                    f"the {axis} of this arm is an object of a notebook or script ({value.name}); "
                    "it is not stored, so it cannot be run from here: open the study where it is "
                    "made"
                )

    def unclear(self) -> list[str]:
        """Say what of it will not be known again in another process, and why; best nothing."""
        found = []
        for axis, value in self._objects():
            if isinstance(value, Stored) or name_of(value) is not None:
                continue
            if met := Described(value).unclear:
                found.append(f"{axis} {label_of(value)} holds {', '.join(met)}")
        return found


_UNNAMED: list[Any] = []
"""Objects that nothing tells from others but that they are themselves; kept, so they stay so."""
_PROCESS = uuid.uuid4().hex


DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(Arm)}
AXES = tuple(DEFAULTS)
"""What arms may differ in; all tables, frames and pages go by it."""

GIVEN = tuple(axis for axis, value in DEFAULTS.items() if value is None)
"""Axes that are written down only where they were given."""


def varying(table: pd.DataFrame) -> list[str]:
    """Return the axes in which the arms of a table differ."""
    return [a for a in AXES if a in table and table[a].nunique(dropna=False) > 1]


def _written(value: Any) -> Json:
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Stored):
        return {"object": value.name, "digest": value.digest}
    found = Described(value)
    told: list[Json] = [name_of(value), found.json]
    if found.unclear and name_of(value) is None:
        if not any(value is other for other in _UNNAMED):
            _UNNAMED.append(value)
        told += [_PROCESS, next(n for n, other in enumerate(_UNNAMED) if other is value)]
    return {"object": label_of(value), "digest": digest(told)}


def arm_from_json(document: dict[str, Json]) -> Arm:
    """Return the arm that ``to_json`` wrote; ``Stored`` stands for objects."""
    values: dict[str, Any] = {
        axis: Stored(str(v["object"]), str(v["digest"])) if isinstance(v, dict) else v
        for axis, v in document.items()
    }
    return Arm(**values)


class Axes(TypedDict, total=False):
    """What ``grid`` takes, for type checkers: of each axis a value or a list of values."""

    planner: str | Planner | Sequence[str | Planner]
    strategy: str | Strategy | Sequence[str | Strategy]
    workflow: str | Workflow | Sequence[str | Workflow]
    workers: int | Sequence[int]
    lm: str | Model | Sequence[str | Model | None] | None
    reflector: str | Reflector | Sequence[str | Reflector | None] | None
    responder: str | Responder | Sequence[str | Responder | None] | None
    review: str | Reviewer | Sequence[str | Reviewer | None] | None
    budget: SomeBudgets | Sequence[SomeBudgets | None] | None


SomeBudgets = str | Mapping[str, "float | Sequence[float | None] | None"] | Budget
"""One budget, or by several values of a kind several."""


def grid(**axes: Unpack[Axes]) -> tuple[Arm, ...]:
    """Make the arms of a factorial grid: every combination of the given values.

    Parameters
    ----------
    **axes
        ``planner``, ``strategy``, ``workflow``, ``workers``, ``lm``, ``reflector``, ``responder``,
        ``review``, ``budget``: a value or a list of values. A text or mapping with several values
        of a kind of budget stands for as many budgets: ``budget="replans=1,3,10"``.

    Returns
    -------
    tuple of Arm

    Raises
    ------
    StudyError
        An axis is unknown, or an arm cannot be built; every name is checked here, before a run.

    Examples
    --------
    >>> [a.label for a in grid(planner="search", strategy=["never", "retry(2)"])]
    ['search × never', 'search × retry(2)']
    >>> [a.label for a in grid(strategy="on_error", budget="replans=1,3")]
    ['search × on_error × replans=1', 'search × on_error × replans=3']
    """
    for name in axes:
        if name not in AXES:
            raise StudyError(f"an arm has no {seen(name)}; {suggest(name, AXES)}")
    try:
        values = [_budgets(v) if name == "budget" else _listed(v) for name, v in axes.items()]
    except ConfigError as e:
        raise StudyError(str(e)) from e
    check_axes(dict(zip(axes, values, strict=True)))
    try:
        arms = [Arm(**dict(zip(axes, chosen, strict=True))) for chosen in product(*values)]
    except AgentLabError as e:
        raise StudyError(str(e)) from e
    return check_arms(arms)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def _budgets(value: Any) -> list[str | None]:
    levels = [[None] if one is None else budget_levels(one) for one in _listed(value)]
    return list(chain.from_iterable(levels))


def workflow_of(arm: Arm) -> Workflow:
    """Return the workflow of an arm, looked up where it is a name.

    Raises
    ------
    StudyError, UnknownNameError, ConfigError
        There is none, or it is no workflow.
    """
    found = get_workflow(arm.workflow) if isinstance(arm.workflow, str) else arm.workflow
    if not isinstance(found, Workflow):
        raise refused("workflow", "a name or an agentlab.Workflow", found, error=StudyError)
    return found


def tell_apart(arms: Sequence[Arm]) -> None:
    """See to it that arms of other objects, or other endpoints, are called otherwise."""
    models: dict[str, list[Arm]] = {}
    for arm in arms:
        if isinstance(arm.lm, str):
            models.setdefault(model_of(arm.lm), []).append(arm)
    for asking in models.values():
        lms = dict.fromkeys(str(arm.lm) for arm in asking)
        if len(lms) > 1 and not all("_endpoint" in arm.__dict__ for arm in asking):
            told = apart(lms)
            for arm in asking:
                arm.call_by_endpoint(told[str(arm.lm)])
    places: dict[str, dict[str, list[Arm]]] = {}
    for arm in arms:
        if arm.lm is not None and not isinstance(arm.lm, Stored):
            name, place = asked_at(arm.lm) if isinstance(arm.lm, str) else _asked_at(arm)
            places.setdefault(name, {}).setdefault(place, []).append(arm)
    for place, asking in chain.from_iterable(p.items() for p in places.values() if len(p) > 1):
        for arm in asking:
            arm.__dict__["_asked_at"] = place
    for label, n in Counter(a.label for a in arms).items():
        if n > 1:
            for arm in (a for a in arms if a.label == label):
                arm.call_by_digest()


def _asked_at(arm: Arm) -> tuple[str, str]:
    written: Any = arm.to_json()["lm"]
    place = getattr(arm.lm, "base_url", None) or f"#{written['digest']}"
    return str(name_of(arm.lm)), place


def _arms(given: Any) -> Sequence[Arm]:
    """Return an arm, or the arms of the axes that a mapping holds."""
    if isinstance(given, Arm):
        return (given,)
    instance("arms", given, Mapping, ARMS, error=StudyError)
    return grid(**{str(k): v for k, v in given.items()})


def check_arms(arms: Arm | Iterable[Arm]) -> tuple[Arm, ...]:
    """Return the arms after building each once; two of one label are refused.

    Raises
    ------
    StudyError
        Says which arm cannot be built, and why.
    """
    checked = [arm for given in listed(arms) for arm in _arms(given)]
    if not checked:
        raise StudyError("a study needs at least one arm; make some with agentlab.grid(...)")
    for arm in checked:
        try:
            arm.check_made()
            Lab(**{**arm.options, "planner": planner_of(arm.planner), "workers": 1})
            workflow_of(arm)
            checked_workers(arm.workers)
        except AgentLabError as e:
            raise StudyError(f"arm {seen(arm.label)}: {e}") from e
    tell_apart(checked)
    doubled = [label for label, n in Counter(a.label for a in checked).items() if n > 1]
    if doubled:
        raise StudyError(f"two arms are called {seen(min(doubled))}, and they are the same")
    return tuple(checked)
