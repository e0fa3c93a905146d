"""A world that somebody else wrote, watched: each call of it is held to the contract.

A world that changes what it is given rewrites the states before it, so that forks and replays lie;
nothing shows it at the time. So what a function of such a world is given is written out before and
after it, and what it returns is looked at. That costs two texts of the world a call (one where the
same world is asked again). Worlds that ship pay nothing: ``check_environment`` holds them to it on
all their scenarios, in the tests. Freezing the world instead would cost each of them a copy, and
what is frozen is no plain JSON any more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from agentlab.base.documents import canonical, is_json
from agentlab.base.values import Document, Value
from agentlab.environments.base import Begun, Call, Environment, Evidence, Outcome, Verdict, breach
from agentlab.environments.scenario import Goal, Scenario
from agentlab.errors import EnvironmentContractError, seen
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Tool, ToolRegistry


def guarded(environment: Environment) -> Environment:
    """Return an environment whose calls are watched; one that ships is returned as it is."""
    ships = type(environment).__module__.partition(".")[0] == "agentlab"
    return environment if ships else Guarded(environment)


class Guarded(Environment):
    """Stands for a user's environment, asks it, and refuses what breaks the contract.

    Raises
    ------
    EnvironmentContractError
        By every function: it raised, changed what it was given, or returned something else.
    """

    def __init__(self, watched: Environment) -> None:
        self._watched = watched
        self._known: tuple[Any, str] = (None, "null")
        self.name, self.clock = watched.name, watched.clock

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._watched, name)

    def __reduce__(self) -> Any:
        return Guarded, (self._watched,)

    @cached_property
    def registry(self) -> ToolRegistry:
        """The tools by name."""
        with breach(self._watched, "tools"):
            return self._watched.registry

    # ---- asking ----------------------------------------------------------------------------

    def _asked(
        self, what: str, function: str, expected: str, fits: Callable[[Any], bool], *given: Any
    ) -> Any:
        before = [self._written(what, value) for value in given]
        with breach(self._watched, what):
            answer = getattr(self._watched, function)(*given)
        if not fits(answer):
            self._refuse(f"{what} returned {seen(answer)}; expected {expected}")
        self._unchanged(what, given, before)
        return answer

    def _each(self, what: str, function: str, *given: Any) -> Iterator[Call] | None:
        answer = self._asked(what, function, "calls", lambda a: a is None or _iterable(a), *given)
        return None if answer is None else self._calls(what, iter(answer), given)

    def _calls(self, what: str, calls: Iterator[Any], given: tuple[Any, ...]) -> Iterator[Call]:
        before = [self._written(what, value) for value in given]
        while True:
            with breach(self._watched, what):
                call = next(calls, None)
            self._unchanged(what, given, before)  # it may be a generator, which only begins here
            if call is None:
                return
            if not isinstance(call, Call) or not is_json(call.arguments):
                self._refuse(f"{what} returned {seen(call)}; expected a Call of JSON arguments")
            yield call

    def _unchanged(self, what: str, given: Iterable[Any], before: Iterable[str]) -> None:
        for value, text in zip(given, before, strict=True):
            self._forget(value)
            if self._written(what, value) != text:
                is_world = isinstance(value, dict)
                kind = "world" if is_world else type(value).__name__.lower()
                self._refuse(f"{what} changed the {kind} it was given, which nobody may")

    def _written(self, what: str, value: Any) -> str:
        """Return a value as text; that of the world that was asked last is known."""
        known, text = self._known
        if known is value and known is not None:
            return text
        try:
            text = canonical(_plain(value))
        except (TypeError, ValueError, RecursionError) as e:
            self._refuse(f"{what}: what it was given is no JSON: {e}")
        if isinstance(value, dict):
            self._known = (value, text)
        return text

    def _forget(self, value: Any) -> None:
        if self._known[0] is value:
            self._known = (None, "null")

    def _refuse(self, problem: str) -> None:
        raise EnvironmentContractError(f"environment {seen(self.name)}: {problem}")

    # ---- the contract ----------------------------------------------------------------------

    def tools(self) -> tuple[Tool, ...]:
        """See ``Environment.tools``."""
        made = self._asked(
            "tools", "tools", "a tuple of tools",
            lambda a: isinstance(a, (tuple, list)) and all(isinstance(t, Tool) for t in a),
        )  # fmt: skip
        return tuple(made)

    def begin(self, world: Document, call: Call) -> Begun | ToolError:
        """See ``Environment.begin``."""
        begun: Begun | ToolError = self._asked(
            f"begin of {call.tool}", "begin", "a Begun (seconds of at least 0) or a ToolError",
            _begins, world, call,
        )  # fmt: skip
        return begun

    def apply(self, world: Document, call: Call) -> Outcome:
        """See ``Environment.apply``."""
        what = f"apply of {call.tool}"
        outcome: Outcome = self._asked(
            what, "apply", "an Outcome of a JSON world, JSON learned, and a ToolError or None",
            lambda a: _ends(a, world), world, call,
        )  # fmt: skip
        if not is_json(outcome.result):
            self._refuse(f"{what}: its result is no JSON: {seen(outcome.result)}")
        told = copy.deepcopy((outcome.result, outcome.learned))  # of which it may keep a part
        return replace(outcome, result=told[0], learned=told[1])

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """See ``Environment.unmet``."""
        reasons = self._asked("unmet", "unmet", "a tuple of texts", _texts, goal, world)
        return tuple(reasons)

    def check(self, goal: Goal, evidence: Evidence) -> Verdict:
        """See ``Environment.check``."""
        verdict: Verdict = self._asked(
            "check", "check", "a Verdict", lambda a: isinstance(a, Verdict) and _texts(a.reasons),
            goal, evidence,
        )  # fmt: skip
        return verdict

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """See ``Environment.candidates``."""
        return self._each("candidates", "candidates", belief, goal) or ()

    def moves(self, world: Document, goal: Goal) -> Iterable[Call] | None:
        """See ``Environment.moves``."""
        return self._each("moves", "moves", world, goal)

    def uses_up(self, call: Call) -> bool:
        """See ``Environment.uses_up``."""
        return bool(self._asked("uses_up", "uses_up", "True or False", _anything, call))

    def initial(self, scenario: Scenario) -> Document:
        """See ``Environment.initial``."""
        return self._document("initial", scenario)

    def belief(self, scenario: Scenario) -> Document:
        """See ``Environment.belief``."""
        return self._document("belief", scenario)

    def _document(self, function: str, scenario: Scenario) -> Document:
        made: Document = self._asked(
            function, function, "a JSON object", lambda a: isinstance(a, dict) and is_json(a),
            copy.deepcopy(scenario),  # other runs start from the same
        )  # fmt: skip
        return made

    def capacities(self, world: Document) -> Mapping[str, int]:
        """See ``Environment.capacities``."""
        found: Mapping[str, int] = self._asked(
            "capacities", "capacities", "a mapping from names to whole numbers",
            lambda a: isinstance(a, Mapping) and all(type(n) is int for n in a.values()), world,
        )  # fmt: skip
        return found

    def key(self, world: Document) -> Hashable:
        """See ``Environment.key``."""
        key: Hashable = self._asked("key", "key", "something hashable", _hashable, world)
        return key

    def estimate(self, goal: Goal, world: Document) -> float:
        """See ``Environment.estimate``."""
        return float(self._asked("estimate", "estimate", "seconds", _number, goal, world))

    def disturb(self, world: Document, call: Call, draw: float) -> dict[str, Any] | None:
        """See ``Environment.disturb``."""
        what = f"disturb of {call.tool}"
        patch: dict[str, Any] | None = self._asked(
            what, "disturb", "a merge patch or None", _patch, world, call, draw
        )
        return copy.deepcopy(patch)

    def constrain(self, world: Document, draw: float) -> dict[str, Any] | None:
        """See ``Environment.constrain``."""
        patch: dict[str, Any] | None = self._asked(
            "constrain", "constrain", "a merge patch or None", _patch, world, draw
        )
        return copy.deepcopy(patch)

    def understood(self, belief: Document, payload: Document) -> dict[str, Any] | None:
        """See ``Environment.understood``."""
        patch: dict[str, Any] | None = self._asked(
            "understood", "understood", "a merge patch or None", _patch, belief, payload
        )
        return copy.deepcopy(patch)


def _plain(value: Any) -> Any:
    """Return what can be changed of what a function is given, as JSON."""
    if isinstance(value, Goal):
        return value.conditions
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Call):
        return value.arguments
    if isinstance(value, Evidence):
        calls = [c.to_json() for c in value.calls]
        return [value.initial, value.world, calls, value.answer]
    return value


def _begins(answer: Any) -> bool:
    if not isinstance(answer, Begun):
        return isinstance(answer, ToolError)
    seconds = answer.seconds
    return _number(seconds) and 0 <= seconds < math.inf and _texts(answer.holds)


def _ends(answer: Any, before: Document) -> bool:
    return (
        isinstance(answer, Outcome)
        and isinstance(answer.world, dict)
        and (answer.world is before or is_json(answer.world))
        and isinstance(answer.learned, dict)
        and is_json(answer.learned)
        and (answer.error is None or isinstance(answer.error, ToolError))
    )


def _patch(answer: Any) -> bool:
    return answer is None or (isinstance(answer, dict) and is_json(answer))


def _texts(answer: Any) -> bool:
    return isinstance(answer, (tuple, list)) and all(isinstance(text, str) for text in answer)


def _number(answer: Any) -> bool:
    number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
    return number and not math.isnan(answer)


def _hashable(answer: Any) -> bool:
    try:
        hash(answer)
    except TypeError:
        return False
    return True


def _iterable(answer: Any) -> bool:
    return isinstance(answer, Iterable) and not isinstance(answer, (str, Mapping))


def _anything(answer: Any) -> bool:
    return True
