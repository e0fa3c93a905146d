"""The suites that ship, by name. Each is a JSONL file, checked when it is read."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from agentlab.environments import get_environment, provided_names, provided_suite
from agentlab.errors import PlanParseError, ScenarioError, UnknownNameError
from agentlab.plans.parsing import parse_plan
from agentlab.scenario import Scenario, Suite, read_suite, write_suite


def folder() -> Path:
    """Return where the datasets lie: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "_datasets"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "datasets"


def suite_names() -> list[str]:
    """Return the names of the suites that ship."""
    return sorted(p.stem for p in folder().glob("*.jsonl"))


def load_suite(name: str | Path) -> Suite:
    """Return a suite by name, or read it from a path that ends in ``.jsonl``.

    Parameters
    ----------
    name : str or Path
        "quickstart", "chain", "travel", "blocks", "workshop", "agentdojo/travel", or a file.

    Raises
    ------
    UnknownNameError
        No suite has that name.
    ScenarioError
        The file is not what it must be.
    """
    if isinstance(name, Path) or str(name).endswith(".jsonl"):
        return read_suite(name, check=check_scenario)
    provided = provided_suite(name)
    if provided is not None:
        return provided
    if name not in suite_names():
        raise UnknownNameError("suite", name, [*suite_names(), *provided_names()])
    return _shipped(name)


def check_scenario(scenario: Scenario) -> None:
    """Check that a scenario can be used: its environment exists and its reference plan is a plan.

    Raises
    ------
    UnknownNameError
        No such environment, or the reference plan calls a tool that it does not have.
    ScenarioError
        The reference plan has a cycle, a dangling dependency or a malformed reference.
    """
    environment = get_environment(scenario.environment)
    if scenario.reference is None:
        return
    for step in scenario.reference.steps:
        if step.tool not in environment.registry:
            where = f"reference step {step.step_id!r}"
            raise UnknownNameError("tool", step.tool, environment.registry, where)
    steps = [
        {
            "stepId": s.step_id, "name": s.step_id, "actionType": "call_tool",
            "targetResource": s.tool, "parameters": s.arguments,
            "dependencies": list(s.dependencies),
        }
        for s in scenario.reference.steps
    ]  # fmt: skip
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
    if name.endswith((".jsonl", ".jsonl.gz")):
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


QUICKSTART = {
    "chain": ("chain-easy-000", "chain-medium-000", "chain-medium-001", "chain-hard-000"),
    "travel": ("travel-easy-000", "travel-easy-001", "travel-medium-000", "travel-hard-001"),
    "blocks": ("blocks-easy-000", "blocks-easy-001", "blocks-medium-000", "blocks-hard-000"),
}
"""What the quickstart suite takes from the others."""


def generated() -> dict[str, Suite]:
    """Make every shipped suite anew with its generator; the files hold what this returns."""
    from agentlab.environments import (
        blocks_scenarios,
        chain,
        travel_scenarios,
        workshop_scenarios,
    )

    suites = {
        "chain": chain.suite(),
        "travel": travel_scenarios.suite(),
        "blocks": blocks_scenarios.suite(),
        "workshop": workshop_scenarios.suite(),
    }
    picked = [suites[name][i] for name, ids in QUICKSTART.items() for i in ids]
    return {**suites, "quickstart": Suite("quickstart", picked)}


def freeze(to: Path) -> None:
    """Write every shipped suite, and the JSON Schema of a scenario, into a folder."""
    for name, suite in generated().items():
        write_suite(suite, to / f"{name}.jsonl")
    schema = Scenario.model_json_schema(by_alias=True)
    text = json.dumps(schema, indent=2, sort_keys=True) + "\n"
    (to / "scenario.schema.json").write_text(text, encoding="utf-8")
