"""Parts of a lab by name, and what they must be."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agentlab.base.arrived import chance, refused, whole
from agentlab.environments.base import Environment, clock_of
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.suites import find_recording
from agentlab.errors import ConfigError, UnknownNameError, seen
from agentlab.lab.bench import Executor
from agentlab.lab.executor import SimulatedExecutor
from agentlab.lab.threads import ThreadedExecutor
from agentlab.lm.endpoint import endpoint_variables
from agentlab.lm.model import Model
from agentlab.minds.base import Decider, Planner
from agentlab.minds.functions import mind_of
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


def checked_workers(workers: Any) -> int:
    """Return the number of workers, or refuse what is none."""
    number = whole("workers", workers, 1)
    if number > WORKERS:
        told = f"at most {WORKERS:,}, as each may be a thread"
        raise ConfigError(f"workers must be {told}, got {seen(number)}")
    return number


def planner_of(planner: Any) -> Planner:
    """Return a planner, looked up where it is a name; refuse what is none."""
    made: Planner = mind_of("planner", planner)
    return made


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
    if not isinstance(name, str):
        raise refused("executor", "'simulated' or 'threads'", name)
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
    made = mind_of(kind, given)
    if model is None and _asks(made):
        told = given if isinstance(given, str) else type(made).__name__
        raise ConfigError(
            f"the {kind} {seen(told)} asks a language model: name one, e.g. {_EXAMPLE}"
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


def _with_rate(plan: FaultPlan, rate: Any) -> FaultPlan:
    return plan.replace(rate=chance("fault_rate", rate))
