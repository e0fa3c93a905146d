"""Parts of a lab by name, and what they must be."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agentlab.base.arrived import chance, refused, whole
from agentlab.environments.base import Environment
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.suites import find_recording
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.lab.bench import Executor
from agentlab.lab.executor import SimulatedExecutor
from agentlab.lab.threads import ThreadedExecutor
from agentlab.lm.endpoint import endpoint_variables
from agentlab.lm.model import Model
from agentlab.minds.base import Decider, Planner
from agentlab.minds.functions import mind_of
from agentlab.minds.strategies.base import Strategy

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
    return whole("workers", workers, 1)


def planner_of(planner: Any) -> Planner:
    """Return a planner, looked up where it is a name; refuse what is none."""
    made: Planner = mind_of("planner", planner)
    return made


def executor_named(name: str | None, workers: int, environment: Environment | None) -> Executor:
    """Return the executor that a name stands for (None: see ``Lab``)."""
    if name is None:
        name = "threads" if workers > 1 and environment is None else "simulated"
    if not isinstance(name, str):
        raise refused("executor", "'simulated' or 'threads'", name)
    if name not in ("simulated", "threads"):
        raise UnknownNameError("executor", name, ("simulated", "threads"))
    if name == "simulated":
        return SimulatedExecutor()
    if environment is not None:
        raise ConfigError(
            "executor 'threads' lives in wall time, and a simulated world in simulated time: "
            "leave out executor= or the scenario"
        )
    return ThreadedExecutor()


def _mind(kind: str, given: Any, model: Model | None) -> Any:
    """Return the reflector or responder that a name stands for."""
    if given is None:
        rule = "rules" if kind == "reflector" else "template"
        given = rule if model is None else "lm"
    made = mind_of(kind, given)
    if model is None and getattr(type(made), "needs_model", False):
        told = given if isinstance(given, str) else type(made).__name__
        raise ConfigError(f"the {kind} {told!r} asks a language model: name one, e.g. {_EXAMPLE}")
    return made


def _decider() -> Decider:
    from agentlab.minds.by_model import LMDecider

    return LMDecider()


def _check_asked(planner: Planner, strategy: Strategy, model: Model | None) -> None:
    """Refuse a lab whose planner or strategy would ask a language model that is not there."""
    asking = ""
    if getattr(type(planner), "needs_model", False):
        asking = f"planner {getattr(planner, 'name', type(planner).__name__)!r}"
    elif getattr(strategy, "needs_model", False):
        asking = f"strategy {strategy.name!r}"
    if asking and model is None:
        raise ConfigError(f"the {asking} asks a language model: name one, e.g. {_EXAMPLE}")


def _with_rate(plan: FaultPlan, rate: Any) -> FaultPlan:
    return plan.replace(rate=chance("fault_rate", rate))
