"""What is given to a study and its arms, taken for what is meant, or refused before a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from agentlab.base.arrived import chance, is_factory, refused
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite, load_suite
from agentlab.errors import AgentLabError, ConfigError, StudyError
from agentlab.lab.taken import faults_of, no_model, reviewer_of, scenarios_of
from agentlab.lm.model import Model
from agentlab.lm.of_dspy import is_dspy_lm, text_of_dspy
from agentlab.minds.functions import mind_of, strategy_of

ARMS = "arms made by agentlab.grid(...)"


def object_of(axis: str, given: Any) -> Any:
    """Return an object of an arm's axis as a lab would take it; names are left for the lab.

    Raises
    ------
    ConfigError
        It can be nothing of the kind.
    """
    if given is None or isinstance(given, str):
        return given
    if axis in ("planner", "reflector", "responder"):
        return mind_of(axis, given)
    if axis == "strategy":
        return strategy_of(given)
    if axis == "review":
        return reviewer_of(given)
    if axis == "lm" and not isinstance(given, Model):
        if is_dspy_lm(given):
            return text_of_dspy(given)
        raise no_model(given)
    return given


def listed(given: Any) -> list[Any]:
    """Return the arms, or what stands for them, as a list.

    Raises
    ------
    StudyError
        It is no list of arms.
    """
    if isinstance(given, (str, bytes, PathLike, Suite, Scenario)):
        do = "the arms come first: al.Study(arms, suite)"
        raise refused("arms", ARMS, given, do, StudyError)
    if isinstance(given, Mapping) or is_factory(given) or not isinstance(given, Iterable):
        return [given]
    return list(given)


def suite_of(given: Any) -> Suite:
    """Return a suite: of a name, a file, scenarios, one scenario, or a DataFrame of them.

    Raises
    ------
    StudyError, UnknownNameError, ScenarioError
        It is none.
    """
    if isinstance(given, Suite):
        return given
    if isinstance(given, (str, PathLike)):
        return load_suite(given)  # type: ignore[arg-type]
    try:
        return Suite("custom", scenarios_of(given))
    except ConfigError as e:
        raise StudyError(str(e)) from e


def rates_of(given: Any) -> tuple[float, ...]:
    """Return the fault rates of a study, each once.

    Raises
    ------
    StudyError
        One is no probability, or there is none.
    """
    many = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    rates = [chance("fault_rate", rate, StudyError) for rate in (given if many else [given])]
    if not rates:
        raise StudyError("a study needs at least one fault rate")
    return tuple(dict.fromkeys(rate + 0.0 for rate in rates))  # -0.0 is 0.0


def plan_of(given: Any) -> FaultPlan | None:
    """Return what may go wrong in all scenarios; None: what each says.

    Raises
    ------
    StudyError
        It is no plan of faults.
    """
    try:
        return None if given is None else faults_of(given, None)
    except AgentLabError as e:
        raise StudyError(str(e)) from e


def folder_of(what: str, given: Any) -> Path | None:
    """Return a path that may be left out.

    Raises
    ------
    StudyError
        It is none.
    """
    if given is None:
        return None
    if isinstance(given, (str, PathLike)):
        return Path(given)
    raise refused(what, "a path", given, error=StudyError)


def flag_of(what: str, given: Any) -> bool:
    """Return a truth value, of numpy's too.

    Raises
    ------
    StudyError
        It is none.
    """
    if isinstance(given, bool) or type(given).__name__ == "bool":
        return bool(given)
    raise refused(what, "True or False", given, error=StudyError)
