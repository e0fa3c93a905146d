"""Persistent vectors and maps, held against lists and dicts."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st
from pyrsistent import pmap as foreign_map, pvector as foreign_vector

from agentlab.base.persistent import FULL, WIDTH, PersistentMap, PersistentVector, pmap, pvector

SIZES = st.sampled_from([0, 1, WIDTH - 1, WIDTH, WIDTH + 1, WIDTH**2 - 1, WIDTH**2 + WIDTH + 1])


class Clash(str):
    """A key whose hash is that of every other."""

    def __hash__(self) -> int:
        return 7


@given(SIZES, st.lists(st.tuples(st.sampled_from("asd"), st.integers(0, 2000)), max_size=12))
def test_a_vector_is_the_list_that_had_the_same_done_to_it_and_older_ones_stay(size, changes):
    vector, plain = pvector(range(size)), list(range(size))
    versions = [(vector, list(plain))]
    for what, n in changes:
        if what == "a":
            vector, plain = vector.append(n), [*plain, n]
        elif plain:
            at = n % len(plain)
            plain = plain.copy()
            if what == "s":
                vector, plain[at] = vector.set(at, -n), -n
            else:
                vector = vector.delete(at - len(plain))
                del plain[at]
        versions.append((vector, list(plain)))
    for vector, plain in versions:
        assert len(vector) == len(plain)
        assert list(vector) == plain
        assert [vector[i] for i in range(-len(plain), len(plain))] == plain * 2
        assert list(vector[1:-1]) == plain[1:-1]
        assert vector == pvector(plain) == plain
        assert hash(vector) == hash(pvector(plain))


@pytest.mark.parametrize("size", [WIDTH**3 - 1, WIDTH**3 + 40])
def test_a_vector_may_be_deep(size):
    built, grown = pvector(range(size)), pvector()
    for i in range(size):
        grown = grown.append(i)
    assert grown == built
    assert list(grown.set(5, -1))[:7] == [0, 1, 2, 3, 4, -1, 6]
    assert grown[size - 1] == size - 1


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 63, 64, 65, 1055, 1056, 1057, 1100])
def test_a_vector_begins_with_what_it_grew_from(size):
    items = [object() for _ in range(size + 40)]
    vector = pvector(items[:size])
    later = vector
    for item in items[size:]:
        assert later.begins_with(vector)
        later = later.append(item)
    assert later.begins_with(later)
    assert later.begins_with(pvector(items[:size]))  # however it was made
    assert not vector.begins_with(later)
    if size:
        assert not later.set(size - 1, object()).begins_with(vector)
        assert not later.set(0, object()).begins_with(vector)


@given(st.integers(0, 100), st.integers(-120, 120), st.integers(-120, 120), st.integers(1, 3))
def test_a_slice_is_that_of_the_list(size, start, stop, step):
    assert list(pvector(range(size))[start:stop:step]) == list(range(size))[start:stop:step]


def test_there_is_no_item_outside():
    for index in (2, -3):
        with pytest.raises(IndexError, match="there are 2 items"):
            pvector([1, 2])[index]
        with pytest.raises(IndexError, match="out of range"):
            pvector([1, 2]).set(index, 0)


@given(
    st.sampled_from([str, Clash]),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3 * FULL)), max_size=80),
)
def test_a_map_is_the_dict_that_had_the_same_done_to_it_and_older_ones_stay(kind, changes):
    table, plain = pmap(), {}
    versions = [(table, dict(plain))]
    for inside, n in changes:
        key = kind(n)
        if inside:
            table, plain = table.set(key, n), {**plain, key: n}
        else:
            table, plain = table.discard(key), {k: v for k, v in plain.items() if k != key}
        versions.append((table, dict(plain)))
    for table, plain in versions[:: max(1, len(versions) // 9)]:
        assert len(table) == len(plain)
        assert dict(table) == plain
        assert table == plain == pmap(plain)
        assert all(table[k] == v and table.get(k) == v and k in table for k, v in plain.items())
        assert table.get("nobody") is None
        assert "nobody" not in table


def test_a_key_that_is_taken_out_must_be_there():
    assert pmap({"a": 1}).remove("a") == {}
    with pytest.raises(KeyError):
        pmap({"a": 1}).remove("b")


def test_a_small_map_keeps_the_order_in_which_it_was_written():
    assert list(pmap({"b": 1, "a": 2}).set("0", 3)) == ["b", "a", "0"]


def test_both_can_be_pickled_and_look_like_what_they_are():
    vector, table = pvector(range(70)), pmap({f"k{i}": i for i in range(70)})
    again = pickle.loads(pickle.dumps([vector, table]))
    assert again == [vector, table]
    assert [type(a) for a in again] == [PersistentVector, PersistentMap]
    assert repr(pvector([1]).append(2)) == "pvector([1, 2])"
    assert repr(pmap({"a": 1})) == "pmap({'a': 1})"


def test_those_of_pyrsistent_are_equal_to_them():
    assert pvector([1, 2]) == foreign_vector([1, 2])
    assert pmap({"a": 1}) == foreign_map({"a": 1})
