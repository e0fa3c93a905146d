"""What was registered by name in one process is known in the workers."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.base.registry import registered


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


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"sesion_id": "x"}, "did you mean 'session_id'"),
        ({"now": "soon"}, "the first state: now: "),
    ],
)
def test_a_wrong_field_of_the_first_state_is_one_clear_error(field, told):
    with pytest.raises(al.AgentLabError, match=told):
        al.autonomous.start(al.Lab(al.load_suite("chain")[0]), **field)
