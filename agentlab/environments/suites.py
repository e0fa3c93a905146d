"""The suites that ship, by name. Each is a JSONL file, checked when it is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from pydantic import ValidationError

from agentlab.base.arrived import instance
from agentlab.base.files import STDIN, read_file, shown
from agentlab.base.refusals import explain
from agentlab.base.shown import shown_by
from agentlab.base.strict_json import read_json
from agentlab.environments.guard import guarded
from agentlab.environments.named import ENVIRONMENTS, get_environment
from agentlab.environments.scenario import Scenario, tool_step
from agentlab.errors import (
    AgentLabError,
    JsonError,
    PlanParseError,
    ScenarioError,
    UnknownNameError,
    seen,
)
from agentlab.plans.parsing import parse_plan

LINES = 100_000
"""Scenarios of a suite at most: each is checked before anything is run."""


def folder() -> Path:
    """Return where the datasets lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "_datasets"
    return inside if inside.is_dir() else package.parent / "datasets"


def suite_names() -> list[str]:
    """Return the names of the suites that ship."""
    return sorted(p.stem for p in folder().glob("*.jsonl"))


def load_suite(name: str | Path) -> Suite:
    """Return a suite by name, or read it from a path that ends in ``.jsonl``.

    Parameters
    ----------
    name : str or Path
        "quickstart", "chain", "travel", "blocks", "workshop", a file, "-" for standard input, or an
        environment that has ``scenarios()``, such as "agentdojo/travel".

    Raises
    ------
    UnknownNameError
        No suite has that name.
    ScenarioError
        The file is not what it must be.
    """
    instance("suite", name, (str, Path), "a name, such as 'travel', or a .jsonl file")
    if isinstance(name, Path) or str(name).endswith(".jsonl") or name == STDIN:
        return read_suite(name, check=check_scenario)
    if name in suite_names():
        return _shipped(name)
    brought = getattr(ENVIRONMENTS.get(name), "scenarios", None)
    if brought is None:
        raise UnknownNameError("suite", name, [*suite_names(), *brought_names()])
    suite: Suite = brought()
    return suite


def brought_names() -> list[str]:
    """Return the suites that worlds bring along, each called PACKAGE/PART as its world is."""
    return [name for name in ENVIRONMENTS if "/" in name]


def check_scenario(scenario: Scenario) -> None:
    """Check that a scenario can be used: its environment exists and its reference plan is a plan.

    Raises
    ------
    UnknownNameError
        No such environment, or the reference plan calls a tool that it does not have.
    ScenarioError
        The reference plan has a cycle, a dangling dependency or a malformed reference.
    """
    environment = guarded(get_environment(scenario.environment))
    if scenario.reference is None:
        return
    for step in scenario.reference.steps:
        if step.tool not in environment.registry:
            where = f"reference step {seen(step.step_id)}"
            raise UnknownNameError("tool", step.tool, environment.registry, where)
    steps = [
        tool_step(s.step_id, s.tool, s.arguments, s.dependencies) for s in scenario.reference.steps
    ]
    try:
        parse_plan({"steps": steps, "answer": scenario.reference.answer})
    except PlanParseError as e:
        raise ScenarioError(f"reference plan: {'; '.join(e.violations)}") from e


def find_recording(name: str) -> Path:
    """Return the file of a shipped recording by name (default: quickstart), or a path as it is.

    Raises
    ------
    UnknownNameError
        There is no such recording.
    """
    if name.endswith((".jsonl", ".gz")):
        return Path(name)
    shipped = {p.name.split(".")[0]: p for p in (folder() / "recordings").glob("*.jsonl*")}
    if (name or "quickstart") not in shipped:
        raise UnknownNameError("recording", name or "quickstart", shipped)
    return shipped[name or "quickstart"]


def recorded_study(name: str) -> Path | None:
    """Return the study (YAML) that a shipped recording was made with; None: it has none beside it.

    Raises
    ------
    UnknownNameError
        There is no such recording.
    """
    recording = find_recording(name)
    beside = recording.with_name(f"{recording.name.split('.')[0]}.yaml")
    return beside if beside.is_file() else None


def find_agents(name: str) -> Path:
    """Return the file of the agent registry that ships, named ``example``, or a path as it is."""
    return folder() / "examples" / "agents.yaml" if name == "example" else Path(name)


@lru_cache(maxsize=32)
def _shipped(name: str) -> Suite:
    return read_suite(folder() / f"{name}.jsonl", name)


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
        expected = "a list of scenarios"
        self.name = str(instance("suite: name", name, str, "a text"))
        self.scenarios: tuple[Scenario, ...] = tuple(
            instance("suite", scenarios, Iterable, expected)
        )
        for n, one in enumerate(self.scenarios):
            instance(f"suite[{n}]", one, Scenario, "a Scenario", "Scenario(**document) makes one")
        if not self.scenarios:
            raise ScenarioError(f"suite {seen(name)} holds no scenario")
        doubled = sorted(i for i, n in Counter(s.id for s in self.scenarios).items() if n > 1)
        if doubled:
            told = f"holds these ids more than once: {seen(doubled)}"
            raise ScenarioError(f"suite {seen(name)} {told}")

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
            kind = f"scenario of suite {seen(self.name)}"
            raise UnknownNameError(kind, index, [s.id for s in self])
        return self.scenarios[index]

    def __len__(self) -> int:
        return len(self.scenarios)

    def __repr__(self) -> str:
        return f"Suite({self.name!r}, {len(self)} scenarios)"

    _repr_html_ = shown_by("agentlab.views.page.records:suite_page")

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
        A line is no scenario: the message names file, line and field; or an id occurs twice.
    """
    path = Path(path)
    # Not splitlines(): a text may hold U+2028 and its like, which JSON does not escape.
    text = read_file(path, ScenarioError, stdin=True)
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or len(lines) > LINES:
        problem = f"{len(lines):,} scenarios, more than {LINES:,}" if lines else "holds no scenario"
        raise ScenarioError(f"{shown(path)}: {problem}")
    found: dict[str, tuple[int, Scenario]] = {}
    for number, line in lines:
        scenario = _read_line(f"{shown(path)}, line {number}", line, check)
        before, _ = found.setdefault(scenario.id, (number, scenario))
        if before != number:
            raise ScenarioError(
                f"{shown(path)}, line {number}: the id {seen(scenario.id)} is that of line {before}"
            )
    stem = "stdin" if str(path) == STDIN else path.stem
    return Suite(name or stem, [scenario for _, scenario in found.values()])


def _read_line(where: str, line: str, check: Callable[[Scenario], None]) -> Scenario:
    try:
        scenario = Scenario.model_validate(read_json(line))
        check(scenario)
        return scenario
    except JsonError as e:
        raise ScenarioError(f"{where}: not JSON: {e}") from e
    except ValidationError as e:
        raise ScenarioError(f"{where}: {explain(e, Scenario)}") from e
    except AgentLabError as e:
        raise ScenarioError(f"{where}: {e}") from e


def write_suite(suite: Suite, path: str | Path) -> None:
    """Write a suite as JSONL, leaving out fields that hold their default."""
    with Path(path).open("w", encoding="utf-8") as file:
        for scenario in suite:
            document = scenario.model_dump(mode="json", exclude_defaults=True)
            file.write(json.dumps(document, ensure_ascii=False, sort_keys=True) + "\n")
