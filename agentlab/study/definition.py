"""A study as a YAML file, and what ``agentlab eval`` takes where nothing is said.

::

    suite: travel                     # a name, or a .jsonl file beside this one
    planner: [search, reference(noise=0.2)]
    strategy: [never, retry(2), retry_then_replan(2)]
    fault_rate: [0, 0.1, 0.3]
    seeds: 10
    faults: transient                 # a preset, or the fields of a fault plan
    budget: replans=1,3               # in place of the strategies' own
    limit: 20                         # scenarios, spread over the suite
    out: results/travel               # from where the command runs

A value stands for a list of one. Names with arguments are looked up, never evaluated.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from agentlab.base.built_in import BUILT_IN
from agentlab.base.documents import digest
from agentlab.base.files import DOCUMENT, STDIN, is_file, read_file, shown
from agentlab.base.refusals import explain
from agentlab.base.strict_json import read_yaml
from agentlab.base.values import record
from agentlab.environments.fault_plan import FaultKind, FaultPlan, Persistence, Visibility
from agentlab.environments.guard import guarded
from agentlab.environments.named import get_environment
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite, load_suite, recorded_study, suite_names
from agentlab.errors import AgentLabError, ConfigError, JsonError, UnknownNameError, seen
from agentlab.minds.strategies.budgets import budget_levels, budget_words
from agentlab.study.grid import AXES, GIVEN, grid
from agentlab.study.lists import parse_rates
from agentlab.study.study import Study

_NO_ANSWER = {FaultKind.ERROR: 0.7, FaultKind.TIMEOUT: 0.3}
_BAD_ANSWER = {FaultKind.ERROR: 0.5, FaultKind.EMPTY_RESULT: 0.25, FaultKind.WRONG_RESULT: 0.25}

PRESETS: Mapping[str, FaultPlan | None] = {
    "scenario": None,
    "transient": FaultPlan(kinds=_NO_ANSWER),
    "permanent": FaultPlan(kinds=_NO_ANSWER, persistence={Persistence.PERMANENT: 1.0}),
    "announced": FaultPlan(kinds=_BAD_ANSWER),
    "silent": FaultPlan(kinds=_BAD_ANSWER, visibility={Visibility.SILENT: 1.0}),
}
"""What may go wrong, by name. ``scenario``: what each scenario says itself. ``transient`` and
``permanent`` are errors and timeouts that hit one call, or break the tool for good. ``announced``
and ``silent`` are the same draws of missing, empty and wrong results; of silent ones the agent is
not told."""


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _rates(value: Any) -> Any:
    parts = [parse_rates(v) if isinstance(v, str) else (v,) for v in _listed(value)]
    return tuple(chain.from_iterable(parts))


def _budgets(value: Any) -> Any:
    return tuple(dict.fromkeys(chain.from_iterable(map(budget_levels, _listed(value)))))


Text = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(strict=True)]
Positive = Annotated[int, Field(strict=True, ge=1)]
Rate = Annotated[float, Field(strict=True)]
Names = Annotated[tuple[Text, ...], BeforeValidator(_listed)]
Some = Field(min_length=1)
"""Of a list: at least one."""


@record
class Definition:
    """What a study is made of, as text and numbers.

    Parameters
    ----------
    suite : str
        A name or a path that ends in ``.jsonl``.
    planner : tuple of str
        Empty: "search" and "reference(noise=0.2)"; "reference" for "search" where the world offers
        nothing to search.
    strategy, workflow, workers, lm, reflector, responder, review, budget : tuple
        The other axes of the grid. Of budgets a file takes what ``grid`` does: ``replans=1,3``,
        ``{replans: [1, 3], seconds: 60}``, or a list of such.
    fault_rate : tuple of float
    seeds : int or tuple of int
    faults : str or FaultPlan
        A name in ``PRESETS``, or a plan.
    limit : int, optional
        Take this many scenarios (see ``spread``).
    out : str, optional
        Folder of the results; default: ``results/`` and the suite's name.
    """

    suite: Text
    planner: Names = ()
    strategy: Annotated[Names, Some] = ("never", "retry(2)", "retry_then_replan(2)", "on_error")
    workflow: Annotated[Names, Some] = ("autonomous",)
    workers: Annotated[tuple[Positive, ...], BeforeValidator(_listed), Some] = (1,)
    fault_rate: Annotated[tuple[Rate, ...], BeforeValidator(_rates), Some] = (0.0, 0.1, 0.3)
    seeds: Positive | Annotated[tuple[Whole, ...], Some] = 5
    faults: Text | FaultPlan = "scenario"
    out: Text | None = None
    lm: Names = ()
    reflector: Names = ()
    responder: Names = ()
    review: Names = ()
    budget: Annotated[Names, BeforeValidator(_budgets)] = ()
    limit: Positive | None = None

    @property
    def folder(self) -> Path:
        """Where the results go."""
        if self.out:
            return Path(self.out)
        if self.suite == STDIN:
            return Path("results/stdin")
        path = self.suite.endswith(".jsonl")
        return Path("results") / (Path(self.suite).stem if path else self.suite.replace("/", "-"))

    def study(self, *, controls: bool = True, record: str | None = None) -> Study:
        """Build the study.

        Parameters
        ----------
        controls : bool
            Add floor, ceiling and fault-free twins.
        record : str, optional
            File of recorded LM calls (see ``Study``).

        Raises
        ------
        AgentLabError
            A name is unknown, or a value cannot be used.
        """
        suite = load_suite(self.suite)
        arms = grid(
            planner=self.planner or default_planners(suite), strategy=self.strategy,
            workflow=self.workflow, workers=self.workers,
            **{k: v for k in GIVEN if (v := getattr(self, k))},
        )  # fmt: skip
        return Study(
            arms,
            suite if self.limit is None else spread(suite, self.limit),
            fault_rate=self.fault_rate,
            seeds=self.seeds,
            faults=fault_plan(self.faults),
            out=self.folder,
            controls=controls,
            record=record,
        )

    def replace(self, **changes: Any) -> Definition:
        """Return it with the named fields changed; None changes nothing."""
        return replace(self, **{k: v for k, v in changes.items() if v is not None})


def default_planners(suite: Suite) -> tuple[str, str]:
    """Return the planners that a suite is evaluated with where none is named."""
    worlds = {s.environment: s for s in suite}
    searchable = all(_offers_calls(scenario) for scenario in worlds.values())
    return ("search" if searchable else "reference", "reference(noise=0.2)")


def _offers_calls(scenario: Scenario) -> bool:
    world = guarded(get_environment(scenario.environment))
    calls = world.candidates(world.initial(scenario), scenario.goal)
    return next(iter(calls), None) is not None


def fault_plan(faults: str | FaultPlan) -> FaultPlan | None:
    """Return the plan that a preset's name stands for; None leaves it to the scenarios.

    Raises
    ------
    UnknownNameError
        There is no such preset.
    """
    if isinstance(faults, FaultPlan):
        return faults
    if faults not in PRESETS:
        raise UnknownNameError("faults", faults, PRESETS)
    return PRESETS[faults]


def spread(suite: Suite, limit: int) -> Suite:
    """Return ``limit`` scenarios of a suite, as many of each cluster as of any other.

    Which ones is a matter of their ids alone, and a smaller limit takes a part of a larger one.

    Raises
    ------
    ConfigError
        ``limit`` is not positive.
    """
    if limit < 1:
        raise ConfigError(f"a study needs at least one scenario, got a limit of {limit}")
    taken: Counter[str] = Counter()
    order = []
    for scenario in sorted(suite, key=lambda s: digest(s.id)):
        cluster = scenario.cluster or scenario.id
        order.append((taken[cluster], digest(scenario.id), scenario.id))
        taken[cluster] += 1
    chosen = {name for _, _, name in sorted(order)[:limit]}
    return Suite(suite.name, [s for s in suite if s.id in chosen])


def read_definition(path: str | Path) -> Definition:
    """Read a study from a YAML file.

    Returns
    -------
    Definition
        ``out`` defaults to ``results/`` and the file's name.

    Raises
    ------
    ConfigError
        The file cannot be read, is no YAML, or has a key or value that cannot be used.
    """
    path = Path(path)
    try:
        document = read_yaml(read_file(path, ConfigError, DOCUMENT))
    except JsonError as e:
        raise ConfigError(f"{shown(path)}: not YAML: {e}") from e
    if not isinstance(document, dict):
        expected = "expected keys such as 'suite: travel'"
        raise ConfigError(f"{shown(path)}: {expected}, got {seen(document)}")
    try:
        made = TypeAdapter(Definition).validate_python(document)
    except ValidationError as e:
        raise ConfigError(f"{shown(path)}: {explain(e, Definition)}") from e
    beside = path.parent / made.suite
    mine = made.suite.endswith(".jsonl") and is_file(beside)
    out = made.out or str(Path("results") / path.stem)
    return made.replace(suite=str(beside) if mine else None, out=out)


def recorded_definition(suite: str, lm: Sequence[str]) -> Definition | None:
    """Return the study that a shipped recording was made with, if that is what is asked for.

    A recording knows the prompts of one study; another fault rate or strategy leads to prompts that
    it has no reply to. So its study is what is run where nothing else is said.

    Parameters
    ----------
    suite : str
    lm : sequence of str
        Names of models; only one, ``recorded`` or ``recorded:NAME``, can be a recording's study.

    Returns
    -------
    Definition or None
        None: no recording that ships was made on this suite.
    """
    if len(lm) != 1 or lm[0].partition(":")[0] != "recorded":
        return None
    path = recorded_study(lm[0].partition(":")[2])
    found = None if path is None else read_definition(path)
    return found if found is not None and found.suite == suite else None


def command(study: Study) -> str | None:
    """Return the ``agentlab eval`` command that makes the study again; None: no command can.

    None where arms are objects or no full grid, or where the suite is not one that ships.
    """
    axes: dict[str, list[Any]] = {
        name: list(dict.fromkeys(getattr(arm, name) for arm in study.arms)) for name in AXES
    }
    preset = next((n for n, plan in PRESETS.items() if plan == study.faults), None)
    limit = _limit(study.suite)
    expressible = (
        all(arm.named for arm in study.arms)
        and len(study.arms) == prod(len(values) for values in axes.values())
        and all(len(axes[name]) == 1 or None not in axes[name] for name in GIVEN)
        and study.seeds == tuple(range(len(study.seeds)))
        and budget_words(filter(None, axes["budget"])) is not None
        and preset is not None
        and limit is not None
    )
    if not expressible:
        return None
    words = ["agentlab", "eval", study.suite.name]
    for name in ("planner", "strategy"):
        words += [word for value in axes[name] for word in (f"--{name}", value)]
    if axes["workflow"] != ["autonomous"]:
        words += ["--workflow", ",".join(axes["workflow"])]
    axes["budget"] = budget_words(filter(None, axes["budget"])) or []
    for name in GIVEN:
        words += [word for value in axes[name] if value for word in (f"--{name}", value)]
    words += ["--fault-rate", ",".join(f"{rate:g}" for rate in study.fault_rates)]
    words += ["--seeds", str(len(study.seeds))]
    words += ["--faults", str(preset)] if study.faults is not None else []
    if axes["workers"] != [1]:
        words += [word for number in axes["workers"] for word in ("--workers", str(number))]
    words += ["--limit", str(len(study.suite))] if limit else []
    words += [] if study.controls else ["--no-controls"]
    words += ["--record", str(study.record)] if study.record is not None else []
    return shlex.join([*words, "--out", str(study.out)])


def _limit(suite: Suite) -> bool | None:
    """Return whether a suite is part of the one that ships under its name; None: it is not.

    The name may come out of a stranger's folder: nothing but what ships is read by it.
    """
    if suite.name not in suite_names() and suite.name not in BUILT_IN["environment"]:
        return None
    try:
        whole = load_suite(suite.name)
    except AgentLabError:
        return None
    found = [s.digest for s in suite]
    if found == [s.digest for s in whole]:
        return False
    return True if found == [s.digest for s in spread(whole, len(suite))] else None
