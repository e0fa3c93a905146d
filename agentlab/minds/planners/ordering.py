"""From a chain of calls to a partial order: an ordering stays where the world says that it matters.

``search`` proves one sequence. Which of its orderings are needed is decided by making the calls in
other orders on the world that was planned on: an ordering is dropped when every order that is left
makes each call possible, with the result it had in the sequence, and ends in the same world.

Three steps. Needs: call i stays before j when j, made without i (and without what fails for want
of i), fails or returns another result. Then all that may happen is played through: from every set
of calls that can be over at some time, each call that can be next. Where one fails, returns
something else, or the same set of calls leads to two worlds, an ordering of the sequence is put
back, and it is played again. In the end nothing is left to complain of; at worst it is the chain.

References
----------
Bäckström (1998), Computational aspects of reordering plans: a partial order whose every
linearisation is a plan is a deordering of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from agentlab.base.documents import Json, canonical
from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call, Environment
from agentlab.tools.tool import Effect

SETS = 300
"""Sets of finished calls that are played through; of larger plans the rest is not looked at."""


def deordered(
    environment: Environment, world: Document, path: Sequence[tuple[Call, Json]]
) -> list[set[int]]:
    """Return for each call of a sequence the places of the calls that must come before it.

    Parameters
    ----------
    environment : Environment
    world : dict
        Where the sequence starts.
    path : sequence of (Call, result)
        Calls that succeed in this order, with what they return.

    Returns
    -------
    list of set of int
        All predecessors, not only the direct ones. An irreversible call comes after everything
        that precedes it in the sequence, so that none is made while something before it failed.
    """
    play = _Play(environment, world, path)
    before: list[set[int]] = []
    for j, (call, _) in enumerate(path):
        final = environment.registry[call.tool].effect is Effect.IRREVERSIBLE
        needed = set(range(j)) if final else {i for i in range(j) if play.needs(j, i)}
        before.append(needed.union(*(before[i] for i in needed)))
    while (found := play.trouble(before)) is not None:
        i, j = found
        if i < 0 or i in before[j]:  # it depends on what the world's key does not tell
            return [set(range(j)) for j in range(len(path))]
        before[j] |= {i}
        for k in range(j, len(path)):
            before[k] = before[k].union(*(before[i] for i in before[k]))
    return before


class _Play:
    """Plays calls of a sequence in other orders."""

    def __init__(
        self, environment: Environment, world: Document, path: Sequence[tuple[Call, Json]]
    ) -> None:
        self.environment, self.first, self.path = environment, world, path
        self.results = [canonical(result) for _, result in path]
        self.prefixes = [world]  # the world before each call of the sequence
        for i in range(len(path)):
            after = self._made(self.prefixes[i], i)
            self.prefixes.append(self.prefixes[i] if after is None else after)

    def needs(self, j: int, i: int) -> bool:
        """Say whether call j fails, or returns something else, when i was left out."""
        world = self.prefixes[i]
        for k in range(i + 1, j):
            after = self._made(world, k)
            world = world if after is None else after
        return self._made(world, j) is None

    def _made(self, world: Document, i: int) -> Document | None:
        """Make a call; None: it cannot start, fails, or returns other than in the sequence."""
        call = self.path[i][0]
        if not isinstance(self.environment.begin(world, call), Begun):
            return None
        outcome = self.environment.apply(world, call)
        if outcome.error is not None or canonical(outcome.result) != self.results[i]:
            return None
        return outcome.world

    def trouble(self, before: Sequence[set[int]]) -> tuple[int, int] | None:
        """Return an ordering (first, second) that is missing, or None."""
        count = len(self.path)
        worlds: dict[frozenset[int], tuple[Hashable, int]] = {}
        queue: list[tuple[frozenset[int], Document]] = [(frozenset(), self.first)]
        while queue and len(worlds) < SETS:
            over, world = queue.pop()
            for j in range(count):
                if j in over or not before[j] <= over:
                    continue
                after = self._made(world, j)
                if after is None:
                    return self._blamed(j, over)
                reached, key = over | {j}, self.environment.key(after)
                known, last = worlds.setdefault(reached, (key, j))
                if known != key:  # j and what was last on the other way do not commute
                    return min(j, last), max(j, last)
                if last == j:
                    queue.append((reached, after))
        return None

    @staticmethod
    def _blamed(j: int, over: frozenset[int]) -> tuple[int, int]:
        """Return the ordering that keeps call j from failing where these calls are over."""
        later = [i for i in over if i > j]
        if later:
            return j, min(later)
        return max((i for i in range(j) if i not in over), default=j - 1), j


def direct(before: Sequence[set[int]]) -> list[list[int]]:
    """Return the predecessors that do not follow from others."""
    return [sorted(b.difference(*(before[i] for i in b))) for b in before]
