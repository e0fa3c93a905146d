"""What was registered by name in one process is known in the workers."""

from __future__ import annotations

import importlib.util
import sys
import threading
from typing import Any

import pytest

import agentlab as al
from agentlab.study.carry import registered


def study(planner: Any, **options: Any) -> al.Study:
    options = {"fault_rate": 0.3, "seeds": 2, **options}
    return al.Study(al.grid(planner=planner), al.load_suite("chain")[:3], **options)


def test_planners_and_strategies_of_a_user_reach_the_workers(tmp_path, fresh_names):
    @al.register("planner", "mine")
    def mine(noise: float = 0.0):
        from agentlab.minds.planners.reference import Reference

        return Reference(noise)

    @al.register("strategy", "dogged")
    def dogged(k: int = 5):
        from agentlab.minds.strategies.named import get_strategy

        return get_strategy(f"retry({k})")

    mine.__module__ = dogged.__module__ = "__main__"  # as in a notebook: pickled by value
    assert {kind: set(own) for kind, own in registered().items()} == {
        "planner": {"mine"}, "strategy": {"dogged"},
    }  # fmt: skip
    arms = al.grid(planner=["mine", "mine(noise=0.5)"], strategy="dogged(3)")
    study = al.Study(arms, al.load_suite("chain")[:3], fault_rate=0.3, seeds=2, out=tmp_path)
    runs = study.run(processes=2)
    assert set(runs["status"]) == {"done"}, runs["error"].tolist()
    assert set(runs["planner"]) == {"mine", "mine(noise=0.5)"}


LOADED = """
import agentlab as al

def name():
    return Mine.name

class Mine(al.planners.Search):
    name = "mine"

    def plan(self, request, kit):
        assert name() == "mine"
        return super().plan(request, kit)
"""


@pytest.mark.parametrize("how", ["an object", "a name"])
def test_a_module_that_no_import_finds_is_sent_whole(tmp_path, fresh_names, monkeypatch, how):
    """As where a test, or a script of a folder that is gone, was loaded from its file."""
    (tmp_path / "loaded.py").write_text(LOADED)
    spec = importlib.util.spec_from_file_location("agentlab_test_loaded", tmp_path / "loaded.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    al.register("planner", "mine", module.Mine)
    runs = study(module.Mine() if how == "an object" else "mine").run(processes=2)
    assert set(runs["status"]) == {"done"}


class Unsendable(al.planners.Search):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Unreadable(al.planners.Search):
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


@pytest.mark.parametrize("planner", [Unsendable(), Unreadable()])
def test_a_name_that_cannot_be_sent_stops_only_what_uses_it(fresh_names, planner):
    al.register("planner", "lost", planner)
    assert set(study("search").run(processes=2)["status"]) == {"done"}
    runs = study("lost").run(processes=2)
    assert set(runs["status"]) == {"crashed"}
    assert runs["error"].str.contains("planner 'lost' did not reach this worker process").all()


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"sesion_id": "x"}, "did you mean 'session_id'"),
        ({"now": "soon"}, "the first state: State: field now: expected a number, got 'soon'"),
    ],
)
def test_a_wrong_field_of_the_first_state_is_one_clear_error(field, told):
    with pytest.raises(al.AgentLabError, match=told):
        al.autonomous.start(al.Lab(al.load_suite("chain")[0]), **field)
