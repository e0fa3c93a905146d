"""A user's program, as type checkers see it: ``tests/test_typing.py`` has both look at it."""

from __future__ import annotations

from typing import Any

import agentlab as al


@al.tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"saw {place}"


@al.tool
def take(thing: str, count: int = 1) -> dict[str, int]:
    """Take something."""
    return {thing: count}


@al.register("planner", "typed_greedy")
class Greedy:
    """Look at one place."""

    def __init__(self, place: str = "hall") -> None:
        self.place = place

    def plan(self, request: al.planners.PlanRequest, kit: al.planners.Kit) -> al.TaskPlan:
        step = al.planners.tool_step("look", "look", {"place": self.place})
        return al.planners.checked_plan({"steps": [step]}, request, kit)


@al.node
def remember(state: al.State, lab: Any) -> al.State:
    """Keep what was seen."""
    return state.replace(notes=state.notes.set("seen", True))


flow = al.Workflow("typed", [remember], {"remember": "END"}, "remember")
lab = al.Lab(tools=[look, take], planner=Greedy(), strategy="never", review="approve")
run = al.autonomous.start(lab, "look around")
state = run.finish()
answer: str = state.final_response or ""
shown = look.name, take.parameters, run.plan.steps[0].step_id, answer
arms = al.grid(planner=["search", "reference(noise=0.2)"], strategy=al.strategies.retry(2))
study = al.Study(arms, suite=al.load_suite("chain"), fault_rate=[0, 0.1], seeds=2)
labels = [arm.label for arm in arms]
fork = run.fork(at=1, seed=3)
verdict: bool = fork.replay().identical
