"""The public names, pinned: a name that comes or goes is a decision."""

from __future__ import annotations

import ast
import types
from importlib import import_module
from pathlib import Path

import pytest

import agentlab

NAMES = [
    "AgentConfig",
    "AgentLabError",
    "Arm",
    "Budget",
    "ContextChangeEvent",
    "Environment",
    "FaultPlan",
    "Goal",
    "Inspector",
    "Lab",
    "LoopConfig",
    "Permissions",
    "PlanningLoop",
    "ReplanDecision",
    "Run",
    "Scenario",
    "State",
    "Strategy",
    "Study",
    "Suite",
    "TargetedFault",
    "TaskPlan",
    "TaskStep",
    "Workflow",
    "__version__",
    "actions",
    "autonomous",
    "cancel_token",
    "check_environment",
    "environments",
    "grid",
    "lm",
    "load_suite",
    "node",
    "nodes",
    "planners",
    "plans",
    "plots",
    "register",
    "register_environment",
    "report",
    "resident",
    "strategies",
    "tool",
]


def test_the_names():
    assert sorted(agentlab.__all__) == sorted(NAMES)
    assert dir(agentlab) == sorted(NAMES)
    assert len(set(agentlab.__all__)) == len(agentlab.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_resolves(name):
    value = getattr(agentlab, name)
    assert value is not None
    assert getattr(agentlab, name) is value
    if not isinstance(value, types.ModuleType) and isinstance(value, type | types.FunctionType):
        assert value.__name__ == name
        assert value.__doc__


def test_type_checkers_see_the_same_names():
    """The imports under ``if TYPE_CHECKING:`` are the ones that are made when a name is used."""
    tree = ast.parse(Path(agentlab.__file__).read_text(encoding="utf-8"))
    block = next(
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    )
    seen = {a.asname: (f"{n.module}.{a.name}", a.name) for n in block.body for a in n.names}
    assert set(seen) == set(agentlab.__all__)
    for name, (full, _) in seen.items():
        home, _, attribute = full.rpartition(".")
        value = getattr(agentlab, name)
        if isinstance(value, types.ModuleType):
            assert value.__name__ == full
        else:
            assert getattr(import_module(home), attribute) is value


SPACES = ("actions", "environments", "lm", "nodes", "planners", "plans", "plots", "strategies")


@pytest.mark.parametrize("name", SPACES)
def test_a_namespace_shows_its_names_and_no_internals(name):
    space = getattr(agentlab, name)
    assert {n for n in dir(space) if not n.startswith("_")} == set(space.__all__)
    for inner in space.__all__:
        assert getattr(space, inner) is not None
    with pytest.raises(AttributeError):
        getattr(space, "nothing")  # noqa: B009


def test_an_unknown_name_names_the_nearest():
    with pytest.raises(AttributeError, match="agentlab has no 'Labb'; did you mean 'Lab'"):
        agentlab.Labb  # noqa: B018
    with pytest.raises(ImportError, match="autonomus"):
        from agentlab import autonomus  # noqa: F401


def test_star_import():
    space: dict[str, object] = {}
    exec("from agentlab import *", space)
    assert set(NAMES) <= space.keys()
