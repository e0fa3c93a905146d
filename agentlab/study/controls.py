"""Floor and ceiling: what doing nothing reaches, and what could be reached at all.

The ceiling of a cell is whether any sequence of calls reaches the goal under that cell's faults,
and has the answer where one is asked for. A witness is tried first: an agent that sees the truth,
repairs every fault and has an ample budget; if it succeeds, so could another. Where it fails,
``relaxation`` may prove at once that nothing would do; else ``reach`` follows all ways through the
faulted transition itself. At its cap of calls, and in worlds that do not know their moves, the
ceiling is unknown.

Worlds that offer no candidate calls cannot be searched; there the reference plan without faults
stands in, and is called that.

The search makes one call after the other. So where time is short and neither witness succeeds, it
bounds what one worker can reach; several may be quicker.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentlab.environments.base import no_op
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.guard import guarded
from agentlab.environments.named import get_environment
from agentlab.environments.scenario import Scenario
from agentlab.lab.lab import Lab
from agentlab.minds.planners.search import Search
from agentlab.minds.strategies import scopes, triggers
from agentlab.minds.strategies.base import Budget, Strategy
from agentlab.study.reach import Reach
from agentlab.study.relaxation import out_of_reach
from agentlab.workflows.autonomous import autonomous

MANY = 8
"""Workers of the witness that is tried where there is a deadline that one worker misses."""

WITNESS = Strategy(
    "witness",
    triggers.delivered_fault,
    scopes.first(scopes.step(12, wait=1.0), scopes.informed),
    Budget(replans=20, executions=400),
)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What could be reached in a cell."""

    success: bool | None
    """None: unknown, the search did not see everything."""
    seconds: float | None
    """Simulated seconds of the way that was found."""
    found_by: str
    """"witness", "search" or "reference" (the fault-free reference plan)."""


def floor(scenario: Scenario) -> bool:
    """Return whether doing nothing reaches the goal."""
    return no_op(guarded(get_environment(scenario.environment)), scenario).success


def ceiling(
    scenario: Scenario, seed: int, rate: float, faults: FaultPlan | None = None, cap: int = 4000
) -> Ceiling:
    """Return whether anything could reach the goal under a cell's faults.

    Parameters
    ----------
    scenario : Scenario
    seed : int
    rate : float
        Fault rate, 0 to 1.
    faults : FaultPlan, optional
        Default: the scenario's.
    cap : int
        Calls of the search before the answer is "unknown".
    """
    lab = Lab(
        scenario, planner=Search(privileged=True), strategy=WITNESS, seed=seed, fault_rate=rate,
        faults=faults,
    )  # fmt: skip
    assert lab.environment is not None
    first = lab.initial_state()
    if next(iter(lab.environment.candidates(first.world, scenario.goal)), None) is None:
        return _fault_free_reference(scenario)
    for workers in (1, MANY) if scenario.goal.deadline else (1,):
        run = autonomous.start(lab.bind(workers=workers))
        run.finish()
        if run.verdict.success:
            return Ceiling(True, run.state.now, "witness")
    if out_of_reach(lab.environment, scenario.goal, first):
        return Ceiling(False, None, "search")
    found = Reach(lab, first, cap).run()
    return Ceiling(found.success, None if found.state is None else found.state.now, "search")


def _fault_free_reference(scenario: Scenario) -> Ceiling:
    if scenario.reference is None:
        return Ceiling(None, None, "reference")
    lab = Lab(scenario, planner="reference", strategy="never", fault_rate=0.0)
    run = autonomous.start(lab)
    run.finish()
    return Ceiling(run.verdict.success, run.state.now, "reference")
