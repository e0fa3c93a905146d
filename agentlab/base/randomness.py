"""Counter-based randomness: a draw is a function of the names it is keyed by.

No generator is shared or advanced, so the order in which draws are made changes nothing and two
processes agree. The hash is BLAKE2b, read as a 53-bit fraction.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def uniform(*names: object) -> float:
    """Return the draw in [0, 1) that belongs to ``names``.

    Examples
    --------
    >>> uniform(0, "a") == uniform(0, "a"), uniform(0, "a") == uniform(1, "a")
    (True, False)
    """
    text = "\x1f".join(map(str, names))
    raw = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(raw, "big") >> 11) / 9007199254740992.0


def generator(*names: object) -> random.Random:
    """Return a local generator seeded by ``names``, for generators of scenarios and noise."""
    text = "\x1f".join(map(str, names))
    return random.Random(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest()))


def choose(weights: Mapping[K, float], draw: float) -> K:
    """Return the key that ``draw`` in [0, 1) falls on.

    Keys are taken in alphabetical order, so that equal mappings choose alike however they were
    written down.

    Examples
    --------
    >>> choose({"a": 1, "b": 3}, 0.2), choose({"a": 1, "b": 3}, 0.3)
    ('a', 'b')
    """
    left = draw * sum(weights.values())
    for key in sorted(weights, key=str):
        left -= weights[key]
        if left < 0:
            return key
    return max((key for key in weights if weights[key] > 0), key=str)  # rounding left a rest
