"""Parts of a lab by name."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agentlab.base.registry import registry
from agentlab.environments.base import Environment, clock_of
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.guard import guarded
from agentlab.environments.named import get_environment
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import find_recording
from agentlab.errors import ConfigError, UnknownNameError, seen
from agentlab.lab.bench import Executor
from agentlab.lab.executor import SimulatedExecutor
from agentlab.lab.threads import ThreadedExecutor
from agentlab.lm.endpoint import endpoint_variables
from agentlab.lm.model import Model
from agentlab.minds.base import Decider, Planner
from agentlab.minds.planners.named import get_planner
from agentlab.minds.strategies.base import Strategy

WORKERS = 1_000
"""Steps under way at once, threads and processes at most: the system runs no more at once."""

_EXAMPLE = "lm='openai/gpt-4o-mini'"


def connected(text: str) -> Model:
    """Connect a model by name, once: the labs of a study share it (see ``agentlab.lm.connect``).

    A key or an address that the environment got since makes it another model.
    """
    asked = not text.startswith(("scripted:", "recorded"))
    return _connected(text, hash(frozenset(endpoint_variables().items())) if asked else 0)


@lru_cache(maxsize=64)
def _connected(text: str, environment: int) -> Model:
    from agentlab.lm.connect import connect

    return connect(text, recordings=find_recording)


def environment_of(
    environment: Environment | None, scenario: Scenario | None
) -> Environment | None:
    """Return the world of a lab, or that of its scenario; one that a user wrote is watched."""
    if environment is None and scenario is not None:
        environment = get_environment(scenario.environment)
    return None if environment is None else guarded(environment)


def reviewer_of(review: Any) -> Any:
    """Return who reviews calls for people: "approve", "reject", a function, or None."""
    if review is None or callable(review):
        return review
    if review not in ("approve", "reject"):
        raise UnknownNameError("review", str(review), ("approve", "reject"))
    return review


def checked_workers(workers: Any) -> int:
    """Return the number of workers, or refuse what is none."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= WORKERS:
        raise ConfigError(
            "workers must be an integer of at least 1, and at most "
            f"{WORKERS:,} as each may be a thread, got {seen(workers)}"
        )
    return workers


def planner_of(planner: Any) -> Planner:
    """Return a planner, looked up where it is a name; refuse what is none."""
    found = get_planner(planner) if isinstance(planner, str) else planner
    if not isinstance(found, Planner):
        raise ConfigError(f"a planner needs a method plan(request, kit), got {seen(planner)}")
    return found


def executor_named(
    name: str | None, workers: int, environment: Environment | None, real: bool
) -> Executor:
    """Return the executor that a name stands for (None: see ``Lab``).

    Parameters
    ----------
    name : str or None
    workers : int
    environment : Environment or None
        Whose ``clock`` counts.
    real : bool
        Whether there are tools that are no world's.
    """
    simulated = environment is not None and clock_of(environment) == "simulated"
    if name is None:
        wall = not simulated and (real or (workers > 1 and environment is None))
        name = "threads" if wall else "simulated"
    if name not in ("simulated", "threads"):
        raise UnknownNameError("executor", name, ("simulated", "threads"))
    if name == "simulated":
        return SimulatedExecutor()
    if simulated:
        raise ConfigError(
            "executor 'threads' lives in wall time, and a simulated world in simulated time: "
            "leave out executor= or the scenario"
        )
    return ThreadedExecutor()


def executor_for(lab: Any, real: bool) -> Executor:
    """Return the executor of a lab that has such tools: the one it has, where that still serves."""
    named = executor_named(lab.executor_asked, lab.workers, lab.environment, real)
    here: Executor | None = vars(lab).get("executor")
    return here if here is not None and here.wall == named.wall else named


def executor_within(outer: Executor) -> Executor:
    """Return the executor of a sub-agent's run: clock and thread are those of the run around it."""
    if not outer.wall:
        return SimulatedExecutor()
    return ThreadedExecutor(worker=outer.worker if isinstance(outer, ThreadedExecutor) else None)


def _mind(kind: str, given: Any, model: Model | None) -> Any:
    """Return the reflector or responder that a name stands for."""
    if given is None:
        rule = "rules" if kind == "reflector" else "template"
        given = rule if model is None else "lm"
    made = registry(kind).build(given) if isinstance(given, str) else given
    if model is None and _asks(made):
        raise ConfigError(
            f"the {kind} {seen(given)} asks a language model: name one, e.g. {_EXAMPLE}"
        )
    return made


def _asks(mind: object) -> bool:
    """Say whether a mind asks a model: its class says so, for all of its kind or one by one."""
    return bool(getattr(type(mind), "needs_model", False) and mind.needs_model)  # type: ignore[attr-defined]


def _decider() -> Decider:
    from agentlab.minds.by_model import LMDecider

    return LMDecider()


def _check_asked(planner: Planner, strategy: Strategy, model: Model | None) -> None:
    """Refuse a lab whose planner or strategy would ask a language model that is not there."""
    asking = ""
    if _asks(planner):
        asking = f"planner {seen(getattr(planner, 'name', type(planner).__name__))}"
    elif getattr(strategy, "needs_model", False):
        asking = f"strategy {seen(strategy.name)}"
    if asking and model is None:
        raise ConfigError(f"the {asking} asks a language model: name one, e.g. {_EXAMPLE}")


def _with_rate(plan: FaultPlan, rate: float) -> FaultPlan:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise ConfigError(f"a fault rate is a number between 0 and 1, got {seen(rate)}")
    return plan.replace(rate=float(rate))
