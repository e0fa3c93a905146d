"""Results made false: what a silent fault does to what a tool returned."""

from __future__ import annotations

from typing import Any

from agentlab.base.documents import Json
from agentlab.environments.fault_plan import (
    FaultKind,
)

# ---- false results -------------------------------------------------------------------------


def falsify(
    result: Json, learned: dict[str, Any], kind: FaultKind, draw: float
) -> tuple[Json, dict[str, Any]]:
    """Return a false result, and what is falsely learned from it.

    Examples
    --------
    >>> falsify({"price": 100}, {"F1": {"price": 100}}, FaultKind.WRONG_RESULT, 0.0)
    ({'price': 110}, {'F1': {'price': 110}})
    """
    if kind is FaultKind.EMPTY_RESULT:
        return emptied(result), learned
    if kind is FaultKind.PARTIAL_RESULT:
        return _partial(result), learned
    if kind is FaultKind.RENAMED_FIELD:
        return _renamed(result), learned
    leaves = sorted({repr(leaf): leaf for leaf in _leaves(result)}.items())
    if not leaves:
        return result, learned
    old = leaves[min(int(draw * len(leaves)), len(leaves) - 1)][1]
    new = _wrong(old, draw)
    return _swap(result, old, new), _swap(learned, old, new)


def emptied(result: Json) -> Json:
    """Return a result of the same shape with nothing in it."""
    if isinstance(result, dict):
        return {k: emptied(v) for k, v in result.items() if isinstance(v, (dict, list))}
    return [] if isinstance(result, list) else {}


def _partial(result: Json) -> Json:
    if isinstance(result, list):
        return result[: len(result) // 2]
    if isinstance(result, dict):
        lists = [k for k, v in result.items() if isinstance(v, list) and v]
        if lists:
            return {k: _partial(v) if k in lists else v for k, v in result.items()}
        return dict(list(result.items())[:-1])
    return {}


def _renamed(result: Json) -> Json:
    if isinstance(result, dict) and result:
        first, *_ = result
        return {(f"{k}_v2" if k == first else k): v for k, v in result.items()}
    return {"value": result}


def _leaves(value: Json) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    if isinstance(value, list):
        return [leaf for v in value for leaf in _leaves(v)]
    return [] if value is None or isinstance(value, bool) else [value]


def _wrong(leaf: Any, draw: float) -> Any:
    if isinstance(leaf, int):
        return leaf + max(1, round(abs(leaf) * (0.1 + 0.4 * draw)))
    if isinstance(leaf, float):
        return leaf * (1.1 + 0.4 * draw) + 0.01
    return f"{leaf}-x"


def _swap(value: Json, old: Json, new: Json) -> Json:
    if isinstance(value, dict):
        return {
            (new if k == old and isinstance(new, str) else k): _swap(v, old, new)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_swap(v, old, new) for v in value]
    return new if type(value) is type(old) and value == old else value
