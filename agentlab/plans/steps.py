"""The steps of a plan: a persistent sequence that knows where each step stands.

A run of N steps changes one of them 2 N times and keeps every state, so a change must cost what it
changes. ``with_step`` shares all other steps, and what is asked at every visit is kept up to date
along with it: which step has an id, which are not settled, which could start, which never can. All
of that is found again from the steps alone where somebody asks first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar, overload

from agentlab.base.persistent import PersistentVector, pvector
from agentlab.base.trail import Trail, onward, since

WORD = 1024
"""Places in one word of ``Places``: five words hold a plan of 5,000 steps."""

PENDING, COMPLETED = "pending", "completed"
OPEN = frozenset({"pending", "running"})
"""What is not settled."""
BROKEN = frozenset({"failed", "interrupted"})


class Step(Protocol):
    """What is asked of a step."""

    @property
    def step_id(self) -> str:
        """Its id."""

    @property
    def status(self) -> str:
        """Where it stands."""

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Ids of the steps that must be completed before."""


S = TypeVar("S", bound=Step)


class Places:
    """A persistent set of places in a sequence, in order.

    Examples
    --------
    >>> list(Places([2000, 3]).put(7, True).put(3, False))
    [7, 2000]
    """

    __slots__ = ("_words",)

    def __init__(self, places: Iterable[int] = ()) -> None:
        words: list[int] = []
        for place in places:
            words += [0] * (place // WORD + 1 - len(words))
            words[place // WORD] |= 1 << place % WORD
        self._words = tuple(words)

    def put(self, place: int, inside: bool) -> Places:
        """Return the set with a place put in or taken out."""
        at, bit = place // WORD, 1 << place % WORD
        words = self._words
        if at >= len(words):
            words += (0,) * (at + 1 - len(words))
        if (words[at] & bit != 0) is inside:
            return self
        changed = object.__new__(Places)
        changed._words = (*words[:at], words[at] ^ bit, *words[at + 1 :])
        return changed

    def __contains__(self, place: int) -> bool:
        at = place // WORD
        return at < len(self._words) and bool(self._words[at] >> place % WORD & 1)

    def __bool__(self) -> bool:
        return any(self._words)

    def first(self) -> int | None:
        """Return the first place, or None."""
        for at, word in enumerate(self._words):
            if word:
                return at * WORD + (word & -word).bit_length() - 1
        return None

    def __iter__(self) -> Iterator[int]:
        for at, word in enumerate(self._words):
            while word:
                low = word & -word
                yield at * WORD + low.bit_length() - 1
                word ^= low


class Shape:
    """What does not change when a step only moves on: ids, and who depends on whom."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.place: dict[str, int] = {}
        for i, step in enumerate(steps):
            self.place.setdefault(step.step_id, i)
        self.dependents: list[list[int]] = [[] for _ in steps]
        self.outside: dict[int, tuple[str, ...]] = {}
        """Place to its dependencies that are no steps of this plan."""
        self._phase: list[int] = []
        for i, step in enumerate(steps):
            inside = [self.place[d] for d in dict.fromkeys(step.dependencies) if d in self.place]
            for k in inside:
                self.dependents[k].append(i)
            if any(d not in self.place for d in step.dependencies):
                self.outside[i] = tuple(d for d in step.dependencies if d not in self.place)
            self._phase.append(max((self._phase[k] + 1 for k in inside if k < i), default=0))

    @cached_property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """The places by level: a step's level is the longest way to it."""
        found: list[list[int]] = [[] for _ in range(max(self._phase, default=-1) + 1)]
        for place, level in enumerate(self._phase):
            found[level].append(place)
        return tuple(map(tuple, found))

    def phase(self, place: int) -> int:
        """Return the level of a step."""
        return self._phase[place]


class Standing:
    """Where the steps stand; each change of a status makes a new one."""

    __slots__ = ("broken", "count", "left", "lost", "missing", "startable", "unsettled")

    count: dict[str, int]
    """Status to the number of steps."""
    broken: Places
    """Settled badly: neither completed nor skipped."""
    unsettled: Places
    startable: Places
    """Pending, and every dependency within the plan is completed."""
    lost: Places
    """Pending, with a dependency within the plan that is settled otherwise, or with one outside."""
    missing: PersistentVector[int]
    """Place to the number of dependencies within the plan that are not completed."""
    left: PersistentVector[int]
    """Phase to the number of steps that are not settled."""

    @classmethod
    def of(cls, steps: Sequence[Step], shape: Shape) -> Standing:
        """Return where the steps stand, looking at all of them."""
        new = cls()
        new.count = {}
        missing, left, lost = [0] * len(steps), [0] * len(shape.phases), set(shape.outside)
        for i, step in enumerate(steps):
            new.count[step.status] = new.count.get(step.status, 0) + 1
            left[shape.phase(i)] += step.status in OPEN
            for k in shape.dependents[i] if step.status != COMPLETED else ():
                missing[k] += 1
                if step.status not in OPEN:
                    lost.add(k)
        pending = [i for i, s in enumerate(steps) if s.status == PENDING]
        new.broken = Places(i for i, s in enumerate(steps) if s.status in BROKEN)
        new.unsettled = Places(i for i, s in enumerate(steps) if s.status in OPEN)
        new.startable = Places(i for i in pending if not missing[i])
        new.lost = Places(i for i in pending if i in lost)
        new.missing, new.left = pvector(missing), pvector(left)
        return new

    def after(self, steps: Sequence[Step], shape: Shape, place: int, old: str) -> Standing:
        """Return where the steps stand after the status of one changed from ``old``."""
        status = steps[place].status
        new = object.__new__(Standing)
        new.count = {**self.count, old: self.count[old] - 1, status: self.count.get(status, 0) + 1}
        new.missing, new.left, new.unsettled = self.missing, self.left, self.unsettled
        new.startable, new.lost, new.broken = self.startable, self.lost, self.broken
        open_, was_open = status in OPEN, old in OPEN
        if open_ is not was_open:
            phase = shape.phase(place)
            new.left = new.left.set(phase, new.left[phase] + (1 if open_ else -1))
            new.unsettled = new.unsettled.put(place, open_)
            new.broken = new.broken.put(place, status in BROKEN)
        elif not open_:
            new.broken = new.broken.put(place, status in BROKEN)
        more = (old == COMPLETED) - (status == COMPLETED)
        bad, was_bad = not open_ and status != COMPLETED, not was_open and old != COMPLETED
        for k in shape.dependents[place] if more or bad is not was_bad else ():
            new.missing = new.missing.set(k, new.missing[k] + more)
            still = k in new.lost and (not was_bad or new._broken(steps, shape, k))
            new._sort(steps, shape, k, bad or still)
        if status == PENDING:
            new._sort(steps, shape, place, new._broken(steps, shape, place))
        elif old == PENDING:
            new.startable = new.startable.put(place, False)
            new.lost = new.lost.put(place, False)
        return new

    def _sort(self, steps: Sequence[Step], shape: Shape, place: int, broken: bool) -> None:
        pending = steps[place].status == PENDING
        self.startable = self.startable.put(place, pending and not self.missing[place])
        self.lost = self.lost.put(place, pending and (broken or place in shape.outside))

    @staticmethod
    def _broken(steps: Sequence[Step], shape: Shape, place: int) -> bool:
        """Say whether a dependency within the plan is settled and not completed."""
        known = (shape.place.get(d) for d in steps[place].dependencies)
        status = (steps[k].status for k in known if k is not None)
        return any(s not in OPEN and s != COMPLETED for s in status)


class Steps(Sequence[S]):
    """The steps of a plan; equal to any sequence of the same steps.

    Parameters
    ----------
    steps : iterable
        In a topological order.
    """

    __slots__ = ("_items", "_shape", "_standing", "_trail")

    def __init__(self, steps: Iterable[S] = ()) -> None:
        self._items: PersistentVector[S] = pvector(steps)
        self._shape: Shape | None = None
        self._standing: Standing | None = None
        self._trail: Trail = ([], 0)

    def put(self, place: int, step: S) -> Steps[S]:
        """Return the steps with one in the place of another."""
        old = self._items[place]
        new: Steps[S] = object.__new__(Steps)
        new._items = self._items.set(place, step)
        new._trail = onward(self._trail, place)
        alike = step.step_id == old.step_id and step.dependencies == old.dependencies
        new._shape = self._shape if alike else None
        new._standing = self._standing if alike else None
        if new._shape is not None and new._standing is not None and step.status != old.status:
            new._standing = new._standing.after(new._items, new._shape, place, old.status)
        return new

    @property
    def shape(self) -> Shape:
        """Ids, and who depends on whom."""
        if self._shape is None:
            self._shape = Shape(self)
        return self._shape

    @property
    def standing(self) -> Standing:
        """Where each step stands."""
        if self._standing is None:
            self._standing = Standing.of(self, self.shape)
        return self._standing

    def changed(self, earlier: Steps[S]) -> set[int] | None:
        """Return the places that were put since earlier steps; None: these do not follow them."""
        places = since(self._trail, earlier._trail)
        return None if places is None else set(places)

    @overload
    def __getitem__(self, index: int) -> S: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[S]: ...
    def __getitem__(self, index: int | slice) -> S | Sequence[S]:
        if isinstance(index, slice):
            return tuple(self._items[index])
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[S]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Steps):
            return self is other or bool(self._items == other._items)
        if not isinstance(other, Sequence) or isinstance(other, str):
            return False
        return list(self._items) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self._items))

    def __add__(self, other: Iterable[S]) -> tuple[S, ...]:
        return (*self._items, *other)

    def __radd__(self, other: Iterable[S]) -> tuple[S, ...]:
        return (*other, *self._items)

    def __repr__(self) -> str:
        return repr(tuple(self._items))

    def __reduce__(self) -> tuple[Any, ...]:
        return Steps, (tuple(self._items),)
