"""Arms: the configurations under comparison, and the grid that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from agentlab.base.values import Json, digest
from agentlab.errors import AgentLabError, StudyError, suggest
from agentlab.lab.lab import Lab
from agentlab.minds.base import Planner
from agentlab.minds.planners.named import get_planner
from agentlab.minds.strategies.base import Strategy
from agentlab.minds.strategies.named import get_strategy
from agentlab.workflows.named import get_workflow

MINDS = ("lm", "reflector", "responder")
"""Axes that are written down only where they were given."""


@dataclass(frozen=True)
class Arm:
    """One configuration under comparison.

    Parameters
    ----------
    planner : str or Planner
        A name with arguments, or an object.
    strategy : str or Strategy
    workflow : str
    workers : int
        Steps that may be under way at once, at least 1.
    lm : str, optional
        Name of a language model (see ``Lab``).
    reflector, responder : str, optional
        "rules" and "template", or "lm"; default: the model where there is one.
    """

    planner: str | Planner = "search"
    strategy: str | Strategy = "never"
    workflow: str = "autonomous"
    workers: int = 1
    lm: str | None = None
    reflector: str | None = None
    responder: str | None = None

    @property
    def named(self) -> bool:
        """True when it is made of names alone, so that it can be written down as JSON."""
        return isinstance(self.planner, str) and isinstance(self.strategy, str)

    @property
    def planner_name(self) -> str:
        """The planner as results call it."""
        if isinstance(self.planner, str):
            return self.planner
        return str(getattr(self.planner, "name", type(self.planner).__name__))

    @property
    def strategy_name(self) -> str:
        """The strategy as results call it."""
        return self.strategy if isinstance(self.strategy, str) else self.strategy.name

    @property
    def label(self) -> str:
        """What tells it from other arms, in a few words."""
        parts = [self.planner_name, self.strategy_name]
        parts += [self.workflow] if self.workflow != "autonomous" else []
        parts += [f"workers={self.workers}"] if self.workers != 1 else []
        parts += [] if self.lm is None else [self.lm.partition("@")[0]]
        given = {"reflector": self.reflector, "responder": self.responder}
        parts += [f"{k}={v}" for k, v in given.items() if v is not None]
        return " × ".join(parts)

    def to_json(self) -> dict[str, Json]:
        """Return the arm as JSON; an object is stood for by its name and a digest of its code.

        An object that changes when it is used stays the arm that it was when this was first asked.
        """
        cached: dict[str, Json] | None = self.__dict__.get("_json")
        if cached is None:
            cached = self.__dict__["_json"] = {
                "planner": _written(self.planner),
                "strategy": _written(self.strategy),
                "workflow": self.workflow,
                "workers": self.workers,
                **{k: v for k in MINDS if (v := getattr(self, k)) is not None},
            }
        return cached


def _written(value: Any) -> Json:
    if isinstance(value, str):
        return value
    import cloudpickle

    code = cloudpickle.dumps(value)
    return {"object": type(value).__name__, "digest": digest(code.hex())}


def arm_from_json(document: dict[str, Json]) -> Arm:
    """Return the arm that ``to_json`` wrote.

    Raises
    ------
    StudyError
        It was made of notebook objects, which are not stored.
    """
    for name in ("planner", "strategy"):
        if not isinstance(document[name], str):
            raise StudyError(
                f"the {name} of this arm is an object of a notebook ({document[name]['object']}); "
                "it is not stored, so it cannot be run from here: open the study where it is made"
            )
    return Arm(**document)


def grid(**axes: Any) -> tuple[Arm, ...]:
    """Make the arms of a factorial grid: every combination of the given values.

    Parameters
    ----------
    **axes
        ``planner``, ``strategy``, ``workflow``, ``workers``, ``lm``, ``reflector``, ``responder``:
        a value or a list of values.

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
    """
    known = [f.name for f in fields(Arm)]
    for name in axes:
        if name not in known:
            raise StudyError(f"an arm has no {name!r}; {suggest(name, known)}")
    values = [_listed(v) for v in axes.values()]
    if any(not v for v in values):
        raise StudyError("an axis of the grid has no value")
    arms = tuple(
        Arm(**dict(zip(axes, combination, strict=True))) for combination in product(*values)
    )
    return check_arms(arms)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def check_arms(arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """Return the arms after building each once; two of one label are refused.

    Raises
    ------
    StudyError
        Says which arm cannot be built, and why.
    """
    checked: Sequence[Arm] = tuple(arms)
    if not checked:
        raise StudyError("a study needs at least one arm; make some with agentlab.grid(...)")
    for arm in checked:
        if not isinstance(arm, Arm):
            raise StudyError(f"expected arms made by agentlab.grid(...), got {arm!r}")
        try:
            planner = get_planner(arm.planner) if isinstance(arm.planner, str) else arm.planner
            if not isinstance(planner, Planner):
                raise StudyError(f"planner {arm.planner!r} has no method plan(request, bench)")
            chosen = arm.strategy
            strategy = get_strategy(chosen) if isinstance(chosen, str) else chosen
            Lab(
                lm=arm.lm, planner=planner, strategy=strategy, reflector=arm.reflector,
                responder=arm.responder,
            )  # fmt: skip
            get_workflow(arm.workflow)
        except AgentLabError as e:
            raise StudyError(f"arm {arm.label!r}: {e}") from e
        if isinstance(arm.workers, bool) or not isinstance(arm.workers, int) or arm.workers < 1:
            raise StudyError(f"arm {arm.label!r}: workers must be an integer of at least 1")
    labels = [a.label for a in checked]
    doubled = sorted({label for label in labels if labels.count(label) > 1})
    if doubled:
        raise StudyError(f"two arms are called {doubled[0]!r}; give their objects a name")
    return tuple(checked)
