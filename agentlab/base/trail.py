"""Trails: in which places a value was changed on the way from another, so that nobody has to look.

``Value.put`` takes ``More``, ``At`` and ``Gone`` in place of a whole vector or map, and notes the
place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentlab.base.persistent import PersistentMap, PersistentVector


class More(NamedTuple):
    """For ``put``: these items appended to the vector."""

    items: tuple[Any, ...]

    def on(self, old: PersistentVector[Any]) -> PersistentVector[Any]:
        """Return the vector with them."""
        return old.append(self.items[0]) if len(self.items) == 1 else old.extend(self.items)


class At(NamedTuple):
    """For ``put``: this value at a key of the map, or at an index of the vector."""

    key: Any
    value: Any

    def on(self, old: Any) -> Any:
        """Return the map or vector with it."""
        return old.set(self.key, self.value)


class Gone(NamedTuple):
    """For ``put``: this key taken out of the map, where it is in."""

    key: Any

    def on(self, old: PersistentMap[Any]) -> PersistentMap[Any]:
        """Return the map without it."""
        return old.discard(self.key)


Trail = tuple[list[tuple[Any]], int]
"""Which places were changed on the way to a value, one entry a change.

Values that follow each other share one list, and each knows how much of it is its own past; the
second that follows the same one begins a list of its own.
"""


def onward(trail: Trail, entry: Any) -> Trail:
    """Return a trail with one more entry."""
    entries, length = trail
    own = (entry,)
    entries.append(own)
    if entries[length] is not own:  # somebody went on from here before, in any thread
        return [own], 1
    return entries, length + 1


def since(trail: Trail, earlier: Trail) -> list[Any] | None:
    """Return the entries after an earlier trail; None: this one does not follow it."""
    if trail[0] is not earlier[0] or earlier[1] > trail[1]:
        return None
    return [entry for (entry,) in trail[0][earlier[1] : trail[1]]]


class All:
    """In a trail: a vector or map was changed as a whole."""
