"""Answers: which result shows what is right in the end, and the call that shows it where none does.

A receipt that was lost, or spoilt, is no source of an answer. Where the environment has a call that
tells the same once more (``Environment.moves``), a plan ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentlab.base.documents import Json
from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call, Environment
from agentlab.environments.scenario import AnswerGoal, Goal

Path = list[tuple[Call, Json]]
"""Calls, each with the result that is expected of it."""


def right_answer(environment: Environment, goal: Goal, world: Document, path: Path) -> Json:
    """Return what would be right to answer after a path from a world; None: nothing is known."""
    import jmespath

    if goal.answer is None:
        return None
    return jmespath.search(goal.answer.world, _after(environment, world, path))


def shows(wanted: AnswerGoal, result: Json, right: Json) -> bool:
    """Say whether a result has the right answer in its place."""
    import jmespath

    return right is not None and bool(jmespath.search(wanted.result, result) == right)


def told(
    environment: Environment, goal: Goal, world: Document, path: Path, results: Iterable[Json],
    allowed: Callable[[Call], bool],
) -> Path:  # fmt: skip
    """Return a path from a world with a call that shows the answer, where nothing else shows it.

    Parameters
    ----------
    environment : Environment
    goal : Goal
    world : dict
        Where the path begins.
    path : list of (Call, result)
    results : iterable of JSON
        What earlier calls returned.
    allowed : callable
        Says whether a call may be used.
    """
    wanted, right = goal.answer, right_answer(environment, goal, world, path)
    if wanted is None or right is None:
        return path
    if any(shows(wanted, result, right) for result in (*results, *(r for _, r in path))):
        return path
    end = _after(environment, world, path)
    ways: list[tuple[float, int, Call, Json]] = []
    for i, call in enumerate(environment.moves(end, goal) or environment.candidates(end, goal)):
        begun = environment.begin(end, call)
        outcome = environment.apply(end, call)
        fine = outcome.error is None and isinstance(begun, Begun) and allowed(call)
        if fine and isinstance(begun, Begun) and shows(wanted, outcome.result, right):
            ways.append((begun.seconds, i, call, outcome.result))
    return path if not ways else [*path, min(ways, key=lambda way: way[:2])[2:]]


def _after(environment: Environment, world: Document, path: Path) -> Document:
    for call, _ in path:
        world = environment.apply(world, call).world
    return world
