"""Importing agentlab is light: what is heavy is imported where it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "IPython", "anywidget", "dspy", "ipywidgets", "jmespath", "joblib", "jsonschema",
    "jsonschema_rs", "litellm", "matplotlib", "numpy", "pandas", "pyarrow", "rich", "scipy",
    "tqdm", "typer", "yaml",
}  # fmt: skip
LIGHT = {
    "agentlab", "annotated_types", "pydantic", "pydantic_core", 
    "typing_extensions", "typing_inspection",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    """The distributions that a fresh process has loaded after ``code``."""
    report = (
        "import json, sys\n"
        "before = set(sys.modules)\n"  # what site and coverage tools bring along
        f"{code}\n"
        "names = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "sys.stdout.write(json.dumps(sorted(names - set(sys.stdlib_module_names))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", report], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_else():
    assert loaded("import agentlab") == {"agentlab"}


def test_the_package_knows_its_names_without_loading_anything():
    assert loaded("import agentlab\ndir(agentlab)\nagentlab.__version__") == {"agentlab"}


def test_the_words_load_pydantic_at_most():
    names = [
        "AgentConfig",
        "Goal",
        "Scenario",
        "State",
        "Suite",
        "TaskPlan",
        "TaskStep",
        "ReplanDecision",
    ]
    found = loaded("import agentlab as al\n" + "\n".join(f"al.{name}" for name in names))
    assert {m for m in found if not m.startswith("_")} <= LIGHT


@pytest.mark.parametrize("name", ["Lab", "Run", "Workflow", "autonomous", "load_suite", "tool"])
def test_the_loop_loads_nothing_heavy(name):
    found = loaded(f"import agentlab as al\nal.{name}")
    assert "pydantic" in found
    assert found & HEAVY == set()


def test_a_run_loads_no_table_no_plot_and_no_lm():
    code = (
        "import agentlab as al\n"
        "from agentlab.environments.chain import generate\n"
        "lab = al.Lab(generate('easy'), planner='search', strategy='retry(1)', fault_rate=0.2)\n"
        "al.autonomous.start(lab).finish()"
    )
    found = loaded(code)
    assert found & HEAVY <= {"jmespath", "jsonschema_rs"}


def test_a_grid_loads_no_plot_and_no_lm():
    found = loaded("import agentlab as al\nal.grid(planner=['search'], strategy=['never'])")
    assert found & {"dspy", "matplotlib", "IPython", "scipy", "pandas", "joblib"} == set()
