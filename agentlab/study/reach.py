"""Reach: whether any sequence of calls reaches a goal under the faults of a cell.

Every way is followed through the very door that runs use, ``Lab.call``, over the world, the draws
that were used up, the faults that stand, and time where time counts. A move is a call of
``Environment.moves`` that the world would carry out: calling what must fail, only to use up a draw,
is no way of doing anything. The way that looks shortest is followed first, all of them if need be.

What keeps that small:

- A call is made again until it takes effect. One that breaks its tool before that is useless.
- Of the ways to one situation, the earliest stands for all: who is early can wait.
- A move that takes nothing from any other is made at once, and nothing else is tried from there.
  Not so where a call that it makes superfluous would leave its tool with a fault that does no harm:
  such a tool fails no more.
- While a fault stands for a time, one waits until it is over, or calls into it where the draw that
  comes next is a fault.
- Candidates, which are all that is needed while nothing fails, come before detours.
- A target that names a step strikes nothing here, as a step of another name may make the call.

Where something happens at a set time (outages, events, targets with a time) a call is made once,
not until it takes effect, and waiting for that time is a move.

An answer is had when the result of a call, whichever it was, holds the right value. What only the
text of an error quotes is not had, nor what would have to be worked out.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

import jmespath

from agentlab.base.documents import Json, digest
from agentlab.base.persistent import pmap
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment, holds
from agentlab.environments.fault_plan import SPOILS_RESULT, FaultKind
from agentlab.environments.scenario import Goal
from agentlab.lab.faults import (
    NOT_EXECUTED,
    advance,
    fault_for,
    outage_of,
    set_times,
    target_fault,
)
from agentlab.lab.lab import Lab
from agentlab.state.records import Fault
from agentlab.state.state import State
from agentlab.tools.tool import Effect
from agentlab.trace.journal import Address
from agentlab.trace.recorder import Recorder

TRIES = 100
"""How often a call is made for one move before it is given up."""

HARMLESS = NOT_EXECUTED | {FaultKind.LATENCY_SPIKE}
LOSSY = SPOILS_RESULT | {FaultKind.TIMEOUT_AFTER_COMMIT}


@dataclass(frozen=True, slots=True)
class Reached:
    """What was found."""

    success: bool | None
    """None: the search ended before it had seen everything."""
    state: State | None = None
    """The end of the way that was found."""


@dataclass(frozen=True, slots=True)
class Place:
    """A situation: what is so, and whether the right answer was shown on the way there."""

    state: State
    right: Json = None
    """The answer that would be right now; None where none is asked for, or there is none."""
    had: bool = True
    calm: bool = False
    """Whether the move that led here left no fault behind and lost nothing."""


class Reach:
    """The search of one cell.

    Parameters
    ----------
    lab : Lab
        With the scenario, the seed and the faults of the cell.
    first : State
        Where to start.
    cap : int
        Calls that are made before the search gives up.
    """

    def __init__(self, lab: Lab, first: State, cap: int) -> None:
        assert lab.environment is not None
        assert lab.scenario is not None
        self.lab, self.first, self.cap = lab.bind(recorder=Recorder()), first, cap
        self.environment: Environment = lab.environment
        self.goal: Goal = lab.scenario.goal
        self.times = set_times(first)
        self.unshadowed = first.fault_plan.replace(outages=())
        self.answer = None if self.goal.answer is None else jmespath.compile(self.goal.answer.world)
        self.calls = 0
        self.ticket = count()
        self.best: dict[Hashable, float] = {}
        """How early each situation was reached."""
        self.queue: list[tuple[float, float, int, Hashable, Place, list[Call] | None]] = []
        self.complete = True
        """Whether nothing that could matter was left out so far."""

    # ---- the search ----------------------------------------------------------------------

    def run(self) -> Reached:
        """Follow every way."""
        self._note([self._place(self.first, None)])
        while self.queue:
            *_, key, place, rest = heapq.heappop(self.queue)
            if place.state.now > self.best[key]:
                continue
            if place.had and not self.environment.unmet(self.goal, place.state.world):
                return Reached(True, place.state)
            if self.calls > self.cap:
                return Reached(None)
            self.lab.recorder.spans.clear()
            if rest is None:
                self._note(self._further(place))
            else:
                self._note([after for call in rest for after in self._made(place, call)])
        return Reached(False if self.complete else None)

    def _note(self, places: list[Place]) -> None:
        """Put situations down to be looked into, those that are new or were reached later."""
        for place in places:
            left, now, key = self._left(place.state), place.state.now, self._key(place)
            if left is not None and now < self.best.get(key, math.inf):
                self.best[key] = now
                self._put(place, left, key, None)

    def _put(self, place: Place, left: float, key: Hashable, rest: list[Call] | None) -> None:
        heapq.heappush(self.queue, (left, place.state.now, next(self.ticket), key, place, rest))

    def _left(self, state: State) -> float | None:
        """Return a lower bound on the seconds left; None: there is no way on, or none in time."""
        deadline = self.goal.deadline
        if deadline is not None and state.now > deadline:
            return None
        left = self.environment.estimate(self.goal, state.world)
        if len(state.world_events_done) < len(state.fault_plan.events):
            return left  # what happens by itself may help
        late = deadline is not None and state.now + left > deadline + 1e-9
        return None if late or left == math.inf else left

    def _key(self, place: Place) -> Hashable:
        state = place.state
        clocked = self.goal.deadline is not None or self._next(state) is not None
        since = 0.0 if clocked else state.now
        standing = frozenset(
            (tool, f.kind, f.visibility, f.draw, f.until and round(f.until - since, 6))
            for tool, f in state.standing.items()
            if f.until is None or f.until > state.now
        )
        world, passed = self.environment.key(state.world), bisect(self.times, state.now)
        return world, state.occurrences, standing, passed, place.had

    def _next(self, state: State) -> float | None:
        """Return when something happens next at a set time."""
        i = bisect(self.times, state.now)
        return self.times[i] if i < len(self.times) else None

    # ---- one move ------------------------------------------------------------------------

    def _further(self, place: Place) -> list[Place]:
        """Return the situations that one move leads to; leave the detours for later."""
        state = place.state
        calls = self._moves(state.world)
        ends = [f.until for f in state.standing.values() if f.until and f.until > state.now]
        ends += [t for t in [self._next(state)] if t is not None]
        if not ends and self.goal.deadline is None:
            for call in calls:
                alone = self._alone(place, calls, call) if self._takes_nothing(call) else None
                if alone is not None:
                    return [alone]
        straight = list(self.environment.candidates(state.world, self.goal))
        rest = [call for call in calls if call not in straight]
        if rest:
            left = self._left(state) or 0.0
            self._put(place, left, self._key(place), rest)
        found = [after for c in calls if c in straight for after in self._made(place, c)]
        if ends:
            found.append(self._place(advance(state, min(ends)), place))
        return found

    def _moves(self, world: Document) -> list[Call]:
        moves = self.environment.moves(world, self.goal)
        if moves is None:
            self.complete = False
            moves = self.environment.candidates(world, self.goal)
        return list(moves)

    def _takes_nothing(self, call: Call) -> bool:
        read = self.lab.tools[call.tool].effect is Effect.READ
        return read or not self.environment.uses_up(call)

    def _alone(self, place: Place, calls: list[Call], call: Call) -> Place | None:
        """Return where a move leads that need not be weighed against others; None: it must be.

        It lost nothing, and no call that it makes superfluous would leave a harmless fault.
        """
        made = self._made(place, call)
        if not made or not made[0].calm:
            return None
        later = self._moves(made[0].state.world)
        for other in [c for c in calls if c != call and c not in later]:
            standing = [p.state.standing for p in self._made(place, other)]
            if any(s is not place.state.standing for s in standing):
                return None
        return made[0]

    def _made(self, place: Place, call: Call) -> list[Place]:
        """Make a call until the world changes or the answer is had; nothing where it never is."""
        state, tool = place.state, call.tool
        broken, waits = self._for_good(state, tool), self._for_now(state, tool)
        if (broken is not None and broken.kind in NOT_EXECUTED) or (
            waits and not self._strikes(state, call)
        ):
            return []
        once = waits or self._next(state) is not None
        for _ in range(TRIES):
            self.calls += 1
            state, _, _ = self.lab.call(state, Address(0), tool, call.arguments)
            after = self._place(state, place)
            if after.had > place.had or self._differ(state.world, place.state.world):
                return [after]
            steady = self._for_good(state, tool) is not None or self._aimed_at(state, call)
            if steady or not state.calls[-1].faulted:
                return []
            if once or self._for_now(state, tool):
                return [after]
        self.complete = self.complete and state.fault_plan.rate == 1
        return []

    def _differ(self, world: Document, other: Document) -> bool:
        return world is not other and self.environment.key(world) != self.environment.key(other)

    def _for_good(self, state: State, tool: str) -> Fault | None:
        """Return the fault that every call of a tool meets from now on."""
        fault = self._over(state, tool)
        return fault if fault is not None and fault.until is None else None

    def _aimed_at(self, state: State, call: Call) -> bool:
        """Say whether one target strikes a call from now on, however often it is made."""
        made = state.occurrences.get(f"{call.tool}:{digest(call.arguments)}", 0)
        for target in state.fault_plan.targets:
            past = target.occurrence is not None and target.occurrence < made
            past = past or (target.before is not None and target.before <= state.now)
            ever = target.replace(occurrence=None, after=None, before=None)
            if not past and target_fault(ever, state, call.tool, call.arguments, made, ""):
                begun = target.after is None or target.after <= state.now
                return begun and target.occurrence is None and target.before is None
        return False

    def _for_now(self, state: State, tool: str) -> bool:
        """Say whether calls of a tool do nothing until a certain time."""
        fault = self._over(state, tool)
        return fault is not None and fault.until is not None and fault.kind in NOT_EXECUTED

    def _over(self, state: State, tool: str) -> Fault | None:
        """Return the fault that a call meets now whatever would be drawn for it."""
        standing: Fault | None = state.standing.get(tool)
        if standing is not None and (standing.until is None or state.now < standing.until):
            return standing
        return outage_of(state, tool) if state.fault_plan.outages else None

    def _strikes(self, state: State, call: Call) -> bool:
        """Say whether the next draw of a call is a fault, whatever stands above it."""
        bare = state.put(standing=pmap(), fault_plan=self.unshadowed)
        return fault_for(bare, call.tool, call.arguments, digest(call.arguments), "") is not None

    def _place(self, state: State, before: Place | None) -> Place:
        """Return a situation, and whether the answer was had on the way there from another."""
        if self.answer is None:
            return Place(state, calm=before is not None and self._calm(state, before.state))
        if before is not None and before.state.world is state.world:
            right = before.right
        else:
            right = self.answer.search(state.world)
        calls = state.calls
        if before is not None and before.right == right:
            if before.had:
                return Place(state, right, calm=self._calm(state, before.state))
            calls = calls[len(before.state.calls) :]
        had = right is not None and any(c.error is None and holds(c.result, right) for c in calls)
        return Place(state, right, had, before is not None and self._calm(state, before.state))

    def _calm(self, state: State, before: State) -> bool:
        """Say whether calls left no fault behind, and lost nothing that was asked for."""
        kinds = {d.fault.kind for d in state.delivered[len(before.delivered) :]}
        fine = HARMLESS if self.answer is not None else HARMLESS | LOSSY
        return state.standing is before.standing and kinds <= fine
