"""The suites that ship, by name. Each is a JSONL file, checked when it is read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from agentlab.environments import provided_names, provided_suite
from agentlab.errors import UnknownNameError
from agentlab.scenario import Suite, read_suite


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
        "quickstart", "chain", "travel", "blocks", "agentdojo/travel", or a file.

    Raises
    ------
    UnknownNameError
        No suite has that name.
    ScenarioError
        The file is not what it must be.
    """
    if isinstance(name, Path) or str(name).endswith(".jsonl"):
        return read_suite(name)
    provided = provided_suite(name)
    if provided is not None:
        return provided
    if name not in suite_names():
        raise UnknownNameError("suite", name, [*suite_names(), *provided_names()])
    return _shipped(name)


@lru_cache(maxsize=32)
def _shipped(name: str) -> Suite:
    return read_suite(folder() / f"{name}.jsonl", name)
