"""Generators of scenarios, seeded; the suites that ship are what they return."""

from __future__ import annotations

import json
from pathlib import Path

from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite, write_suite

QUICKSTART = {
    "chain": ("chain-easy-000", "chain-medium-000", "chain-medium-001", "chain-hard-000"),
    "travel": ("travel-easy-000", "travel-easy-001", "travel-medium-000", "travel-hard-001"),
    "blocks": ("blocks-easy-000", "blocks-easy-001", "blocks-medium-000", "blocks-hard-000"),
}
"""What the quickstart suite takes from the others."""


def generated() -> dict[str, Suite]:
    """Make every shipped suite anew with its generator; the files hold what this returns."""
    from agentlab.environments import chain
    from agentlab.environments.generators import blocks, travel, workshop

    made = [module.suite() for module in (chain, travel, blocks, workshop)]
    suites = {suite.name: suite for suite in made}
    picked = [suites[name][i] for name, ids in QUICKSTART.items() for i in ids]
    return {**suites, "quickstart": Suite("quickstart", picked)}


def freeze(to: Path) -> None:
    """Write every shipped suite, and the JSON Schema of a scenario, into a folder."""
    for name, suite in generated().items():
        write_suite(suite, to / f"{name}.jsonl")
    schema = Scenario.model_json_schema(by_alias=True)
    text = json.dumps(schema, indent=2, sort_keys=True) + "\n"
    (to / "scenario.schema.json").write_text(text, encoding="utf-8")
