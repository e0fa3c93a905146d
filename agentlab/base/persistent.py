"""Persistent vectors and maps: a changed one shares all but the way to what changed.

A run keeps every state, and a state holds what has grown over the whole run, so versions of a
vector or a map are kept by the thousand. Their nodes are plain tuples and dicts: the garbage
collector meets a node that versions share once. (It looks through every version of a ``pvectorc``
vector from end to end, which made a run of N steps cost N². That package's vectors are accepted
where one of ours is expected.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, TypeVar, overload

T = TypeVar("T")
V = TypeVar("V")

BITS = 5
WIDTH = 1 << BITS
MASK = WIDTH - 1
FULL = 16
"""Keys in a bucket before it is split."""
DEEPEST = 12
"""Levels after which a hash has no bits left that could tell keys apart."""


class PersistentVector(Sequence[T]):
    """A vector whose changes are new vectors; make one with ``pvector``.

    Examples
    --------
    >>> old = pvector([1, 2])
    >>> old.append(3).set(0, 9), old
    (pvector([9, 2, 3]), pvector([1, 2]))
    """

    __slots__ = ("_length", "_root", "_shift", "_tail")

    def __init__(self, items: Iterable[T] = ()) -> None:
        given = tuple(items)
        self._length, self._shift = len(given), BITS
        if len(given) <= WIDTH:
            self._root: Any = ()
            self._tail = given
            return
        cut = max(0, len(given) - 1) // WIDTH * WIDTH
        self._tail = given[cut:]
        nodes: list[Any] = [given[i : i + WIDTH] for i in range(0, cut, WIDTH)]
        while len(nodes) > WIDTH:
            nodes = [tuple(nodes[i : i + WIDTH]) for i in range(0, len(nodes), WIDTH)]
            self._shift += BITS
        self._root = tuple(nodes)

    def _changed(self, length: int, shift: int, root: Any, tail: tuple[T, ...]) -> Any:
        new = object.__new__(PersistentVector)
        new._length, new._shift, new._root, new._tail = length, shift, root, tail
        return new

    def append(self, item: T) -> PersistentVector[T]:
        """Return the vector with one more item."""
        shift, root, tail = self._shift, self._root, self._tail
        if len(tail) < WIDTH:
            return self._changed(self._length + 1, shift, root, (*tail, item))  # type: ignore[no-any-return]
        at = self._length - WIDTH
        if at >> shift == WIDTH:
            root, shift = (root, _way(shift, tail)), shift + BITS
        else:
            root = _pushed(root, shift, at, tail)
        return self._changed(self._length + 1, shift, root, (item,))  # type: ignore[no-any-return]

    def extend(self, items: Iterable[T]) -> PersistentVector[T]:
        """Return the vector with more items."""
        new = self
        for item in items:
            new = new.append(item)
        return new

    def set(self, index: int, item: T) -> PersistentVector[T]:
        """Return the vector with another item at an index."""
        at, length = self._place(index), self._length
        cut = length - len(self._tail)
        if at >= cut:
            tail = (*self._tail[: at - cut], item, *self._tail[at - cut + 1 :])
            return self._changed(length, self._shift, self._root, tail)  # type: ignore[no-any-return]
        root = _replaced(self._root, self._shift, at, item)
        return self._changed(length, self._shift, root, self._tail)  # type: ignore[no-any-return]

    def delete(self, index: int) -> PersistentVector[T]:
        """Return the vector without the item at an index; takes time for every other item."""
        at, items = self._place(index), tuple(self)
        return PersistentVector((*items[:at], *items[at + 1 :]))

    def _place(self, index: int) -> int:
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(f"index {index} is out of range: there are {self._length} items")
        return at

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> PersistentVector[T]: ...
    def __getitem__(self, index: int | slice) -> T | PersistentVector[T]:
        length = self._length
        cut = length - len(self._tail)
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if start >= cut and step == 1:
                return PersistentVector(self._tail[start - cut : max(stop - cut, 0)])
            return PersistentVector(self[i] for i in range(start, stop, step))
        at = index if 0 <= index < length else self._place(index)
        if at >= cut:
            return self._tail[at - cut]
        node = self._root
        for shift in range(self._shift, 0, -BITS):
            node = node[at >> shift & MASK]
        return node[at & MASK]  # type: ignore[no-any-return]

    def begins_with(self, earlier: PersistentVector[Any]) -> bool:
        """Say whether the items of an earlier vector come first in this one, the very same."""
        if len(earlier) > self._length:
            return False
        if self._root is earlier._root:
            return all(map(is_, earlier._tail, self._tail))
        return all(map(is_, earlier, self))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        if not self._root:
            return iter(self._tail)
        leaves: Iterable[Any] = self._root
        for _ in range(BITS, self._shift, BITS):
            leaves = chain.from_iterable(leaves)
        return chain(chain.from_iterable(leaves), self._tail)

    def __add__(self, other: Iterable[T]) -> PersistentVector[T]:
        return self.extend(other)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes, tuple)):
            return False
        return len(other) == self._length and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"pvector({list(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PersistentVector, (tuple(self),)


def _way(shift: int, leaf: Any) -> Any:
    for _ in range(0, shift, BITS):
        leaf = (leaf,)
    return leaf


def _pushed(node: Any, shift: int, at: int, leaf: Any) -> Any:
    """Return a node with one more leaf at its end."""
    if shift == BITS:
        return (*node, leaf)
    i = at >> shift & MASK
    if i == len(node):
        return (*node, _way(shift - BITS, leaf))
    return (*node[:i], _pushed(node[i], shift - BITS, at, leaf))


def _replaced(node: Any, shift: int, at: int, item: Any) -> Any:
    i = at >> shift & MASK
    inner = _replaced(node[i], shift - BITS, at, item) if shift else item
    return (*node[:i], inner, *node[i + 1 :])


class PersistentMap(Mapping[str, V]):
    """A map whose changes are new maps; make one with ``pmap``.

    Up to 16 keys it is one dict, which is copied; then 32 of them, and so on.

    Examples
    --------
    >>> old = pmap({"a": 1})
    >>> old.set("b", 2).discard("a"), old
    (pmap({'b': 2}), pmap({'a': 1}))
    """

    __slots__ = ("_length", "_root")

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        self._root: Any = {}
        self._length = 0
        if items:
            whole = self.update(items)
            self._root, self._length = whole._root, whole._length

    @staticmethod
    def _changed(length: int, root: Any) -> Any:
        new = object.__new__(PersistentMap)
        new._length, new._root = length, root
        return new

    def set(self, key: str, value: V) -> PersistentMap[V]:
        """Return the map with a value at a key."""
        root = self._root
        if type(root) is dict and len(root) < FULL:
            bucket = {**root, key: value}
            return self._changed(len(bucket), bucket)  # type: ignore[no-any-return]
        length = self._length + (key not in self)
        return self._changed(length, _set(root, hash(key), 0, key, value))  # type: ignore[no-any-return]

    def remove(self, key: str) -> PersistentMap[V]:
        """Return the map without a key, which must be there."""
        if key not in self:
            raise KeyError(key)
        return self._changed(self._length - 1, _without(self._root, hash(key), key))  # type: ignore[no-any-return]

    def discard(self, key: str) -> PersistentMap[V]:
        """Return the map without a key, where it is there."""
        return self.remove(key) if key in self else self

    def update(self, other: Mapping[str, V]) -> PersistentMap[V]:
        """Return the map with the values of another."""
        new = self
        for key, value in other.items():
            new = new.set(key, value)
        return new

    def _bucket(self, key: object) -> dict[str, V]:
        node, bits = self._root, hash(key)
        while type(node) is tuple:
            node, bits = node[bits & MASK], bits >> BITS
        return node  # type: ignore[no-any-return]

    def __getitem__(self, key: str) -> V:
        return self._bucket(key)[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value at a key, or ``default``."""
        root = self._root
        return (root if type(root) is dict else self._bucket(key)).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._bucket(key)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(_buckets(self._root))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"pmap({dict(self.items())!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PersistentMap, (dict(self.items()),)


def _buckets(node: Any) -> Iterator[dict[str, Any]]:
    if type(node) is tuple:
        for inner in node:
            yield from _buckets(inner)
    else:
        yield node


def _set(node: Any, bits: int, depth: int, key: str, value: Any) -> Any:
    if type(node) is tuple:
        i = bits & MASK
        return (*node[:i], _set(node[i], bits >> BITS, depth + 1, key, value), *node[i + 1 :])
    bucket = {**node, key: value}
    if len(bucket) <= FULL or depth == DEEPEST:
        return bucket
    parts: list[dict[str, Any]] = [{} for _ in range(WIDTH)]
    for k, v in bucket.items():
        parts[hash(k) >> BITS * depth & MASK][k] = v
    return tuple(parts)


def _without(node: Any, bits: int, key: str) -> Any:
    if type(node) is tuple:
        i = bits & MASK
        return (*node[:i], _without(node[i], bits >> BITS, key), *node[i + 1 :])
    return {k: v for k, v in node.items() if k != key}


def pvector(items: Iterable[T] = ()) -> PersistentVector[T]:
    """Return a persistent vector of these items."""
    return items if isinstance(items, PersistentVector) else PersistentVector(items)


def pmap(items: Mapping[str, V] | None = None) -> PersistentMap[V]:
    """Return a persistent map of these items."""
    return items if isinstance(items, PersistentMap) else PersistentMap(items)
