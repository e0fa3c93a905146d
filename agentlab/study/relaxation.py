"""A quick proof that a goal is out of reach: nothing may fail any more, but what must fail now.

Of a call it is known what it meets if it is made again and again from here on. One that breaks its
tool before it ever takes effect is doomed, whatever else is done before. A goal that is out of
reach without the doomed calls, though all others never fail, is out of reach. That is a search over
worlds alone, which are few where the ways between them are without end (blocks can be moved to and
fro for ever). What the world does by itself, it may do at any time.

Where a doomed call could be rescued, nothing is proved: see ``final``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import count

from agentlab.base.documents import digest, merge_patch
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment
from agentlab.environments.fault_plan import LM_KINDS, FaultKind, FaultPlan, Persistence
from agentlab.environments.scenario import Goal
from agentlab.lab.faults import NOT_EXECUTED, rate_fault, target_fault
from agentlab.state.records import Fault
from agentlab.state.state import State
from agentlab.tools.tool import Effect

TRIES = 100
"""How far ahead the draws of a call are looked at."""


def out_of_reach(environment: Environment, goal: Goal, state: State, cap: int = 1000) -> bool:
    """Say whether a goal is certainly out of reach from a state in which no fault stands.

    Parameters
    ----------
    environment : Environment
    goal : Goal
    state : State
    cap : int
        Worlds that are looked into before nothing is said.
    """
    if not final(state.fault_plan) or environment.moves(state.world, goal) is None:
        return False
    relaxed, ticket = _Relaxed(environment, goal, state), count()
    seen = {environment.key(state.world)}
    queue = [(environment.estimate(goal, state.world), next(ticket), state.world)]
    for _ in range(cap):
        if not queue:
            return True
        _, _, world = heapq.heappop(queue)
        if not environment.unmet(goal, world):
            return False
        for after in relaxed.further(world):
            key, left = environment.key(after), environment.estimate(goal, after)
            if key not in seen and (left < math.inf or state.fault_plan.events):
                seen.add(key)
                heapq.heappush(queue, (left, next(ticket), after))
    return False


class _Relaxed:
    """The worlds that calls lead to which are not doomed."""

    def __init__(self, environment: Environment, goal: Goal, state: State) -> None:
        self.environment, self.goal, self.state = environment, goal, state
        self.known: dict[tuple[str, str], bool] = {}

    def further(self, world: Document) -> Iterator[Document]:
        """Yield what one call, or the world itself, leads to; reads, which only help, at once."""
        for event in self.state.fault_plan.events:
            yield merge_patch(world, event.patch)
        calls = [c for c in self.environment.moves(world, self.goal) or () if self._works(c)]
        registry, looked = self.environment.registry, world
        for call in calls:
            if registry[call.tool].effect is Effect.READ:
                looked = self.environment.apply(looked, call).world
        if self.environment.key(looked) != self.environment.key(world):
            yield looked
            return
        for call in calls:
            outcome = self.environment.apply(world, call)
            if outcome.error is None:
                yield outcome.world

    def _works(self, call: Call) -> bool:
        name = (call.tool, digest(call.arguments))
        if name not in self.known:
            self.known[name] = not doomed(self.state, call)
        return self.known[name]


def final(plan: FaultPlan) -> bool:
    """Say whether a call that is doomed stays so, whatever happens under a plan.

    Not so where a tool can get a fault that does no harm, as it fails no more; where draws can be
    used up while a fault stands for a time; and where a fault changes the world.
    """
    kinds = _possible(plan)
    if FaultKind.WORLD_CHANGE in {kind for kind, _ in kinds}:
        return False
    if _nothing_works(plan):
        return True
    lasting = {(kind, one) for kind, one in kinds if one is not Persistence.TRANSIENT}
    return (
        all(one is Persistence.PERMANENT and kind in NOT_EXECUTED for kind, one in lasting)
        and (FaultKind.RATE_LIMIT, Persistence.TRANSIENT) not in kinds
    )  # it stands for a time


def _possible(plan: FaultPlan) -> set[tuple[FaultKind, Persistence]]:
    """Return the kinds of faults that may strike tools, each with how long it may last."""
    kinds = {(target.kind, target.persistence) for target in plan.targets}
    if plan.rate:
        lasts = [one for one, weight in plan.persistence.items() if weight]
        kinds |= {(kind, one) for kind, weight in plan.kinds.items() if weight for one in lasts}
    return {(kind, one) for kind, one in kinds if kind not in LM_KINDS}


def _nothing_works(plan: FaultPlan) -> bool:
    """Say whether every call fails without having been carried out."""
    every = plan.rate == 1 and not plan.tools
    return every and {kind for kind, _ in _possible(plan)} <= NOT_EXECUTED


def doomed(state: State, call: Call) -> bool:
    """Say whether a call that is made again and again breaks its tool before it takes effect."""
    plan = state.fault_plan
    if _nothing_works(plan):
        return True
    passing = [o for o in plan.outages if o.tool == call.tool and o.seconds is not None]
    if passing:  # calls made meanwhile use up what would break the tool later
        return False
    key = digest(call.arguments)
    made = state.occurrences.get(f"{call.tool}:{key}", 0)
    for n in range(made, made + TRIES):
        faults = _may_meet(state, call, key, n)
        if any(f is None or f.kind not in NOT_EXECUTED for f in faults):
            return False
        if all(f is not None and f.persistence is Persistence.PERMANENT for f in faults):
            return True
    return False


def _may_meet(state: State, call: Call, key: str, occurrence: int) -> list[Fault | None]:
    """Return the faults of which a call meets one, by when it is made; None: it may meet none."""
    plan, found = state.fault_plan, list[Fault | None]()
    for target in plan.targets:
        ever = target.replace(after=None, before=None)
        fault = target_fault(ever, state, call.tool, call.arguments, occurrence, "")
        if fault is not None:
            found.append(fault)
            if ever == target:
                return found
    drawn = None
    if plan.rate and (not plan.tools or call.tool in plan.tools):
        drawn = rate_fault(plan, state.seed, state.scenario_id, call.tool, key, occurrence)
    lm = drawn is not None and drawn.kind in LM_KINDS
    return [*found, None if lm else drawn]
