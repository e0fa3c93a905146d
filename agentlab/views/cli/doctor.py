"""What this installation has: suites, packages, a folder to write to, a run that works."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agentlab.environments import suites
from agentlab.version import __version__
from agentlab.views.text import line

if TYPE_CHECKING:
    from rich.table import Table


PACKAGES = (
    "dspy", "pydantic", "pandas", "numpy", "scipy", "matplotlib", "joblib",
    "jsonschema-rs", "jmespath", "typer", "rich",
)  # fmt: skip
EXTRAS = {"notebook": "jupyterlab", "agentdojo": "agentdojo", "mcp": "mcp"}
"""An extra, and a module that it brings."""

Check = tuple[str, str, str]
"""Name; "ok", "missing" (an option that is not there) or "broken"; details."""


def checks() -> Iterator[Check]:
    """Yield what was checked, one after the other."""
    yield "agentlab", "ok", f"{__version__} in {Path(__file__).parents[2]}"
    yield "python", "ok", sys.version.split()[0]
    for name in PACKAGES:
        yield name, *_package(name)
    for extra, module in EXTRAS.items():
        yield extra, *_extra(extra, module)
    yield "processors", "ok", str(os.cpu_count())
    yield "folder", *_writable()
    yield "datasets", *_datasets()
    yield "a run", *_self_test()


def _package(name: str) -> tuple[str, str]:
    try:
        return "ok", version(name)
    except PackageNotFoundError:
        return "broken", f"not installed: pip install {name}"


def _extra(extra: str, module: str) -> tuple[str, str]:
    if find_spec(module) is not None:
        return "ok", "optional, installed"
    return "missing", f"optional: pip install 'agentlab-sandbox[{extra}]'"


def _writable() -> tuple[str, str]:
    try:
        with tempfile.TemporaryFile(dir=os.getcwd()) as file:
            file.write(b"x")
    except OSError as e:
        return "broken", f"{os.getcwd()} cannot be written: {e.strerror}; use --out"
    return "ok", f"{os.getcwd()} can be written"


def _datasets() -> tuple[str, str]:
    from agentlab.errors import AgentLabError

    try:
        found = {name: len(suites.load_suite(name)) for name in suites.suite_names()}
    except AgentLabError as e:
        return "broken", str(e)
    if not found:
        return "broken", f"no suite in {suites.folder()}"
    return "ok", ", ".join(f"{name} ({n})" for name, n in found.items())


def _self_test() -> tuple[str, str]:
    """Solve a chain scenario without faults."""
    from agentlab.lab.lab import Lab
    from agentlab.workflows.named import get_workflow

    start = time.perf_counter()
    try:
        lab = Lab(suites.load_suite("chain")[0], planner="search", strategy="never", seed=0)
        run = get_workflow("autonomous").start(lab)
        run.finish()
        verdict = run.verdict
    except Exception as e:  # whatever it is, that is what is broken
        return "broken", f"{type(e).__name__}: {e}"
    seconds = time.perf_counter() - start
    if not verdict.success:
        return "broken", f"chain was not solved: {'; '.join(verdict.reasons)}"
    return "ok", f"chain solved in {1000 * seconds:.0f} ms"


def suites_table() -> Table:
    """Return the suites with their size, environments and difficulties."""
    from agentlab.views.cli.terminal import table

    made = table("suite", ">scenarios", "environment", "difficulty")
    for name in suites.suite_names():
        suite = suites.load_suite(name)
        worlds = ", ".join(dict.fromkeys(s.environment for s in suite))
        count = Counter(s.difficulty for s in suite)
        difficulties = ", ".join(f"{n} {d}" for d, n in count.items())
        made.add_row(line(name), str(len(suite)), line(worlds), line(difficulties))
    there = find_spec("agentdojo") is not None
    for name in suites.brought_names():
        how = "external" if there else "external: pip install 'agentlab-sandbox[agentdojo]'"
        made.add_row(name, "", name, how)
    return made
