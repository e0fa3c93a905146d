"""A function in place of a mind that has one method: a planner, a reflector, a responder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from agentlab.base.arrived import accepts, arrived, called, is_factory, is_maker, refused, required
from agentlab.base.built_in import METHOD
from agentlab.base.registry import registry
from agentlab.errors import ConfigError, suggest
from agentlab.minds.strategies.base import Strategy


class ByFunction:
    """A mind whose one method is a function.

    Parameters
    ----------
    function : callable
        Of (request, kit) a planner; of (state, kit) a reflector or responder.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class FunctionPlanner(ByFunction):
    """A planner that is a function of (request, kit)."""

    def plan(self, request: Any, kit: Any) -> Any:
        """Return what the function plans."""
        return self.function(request, kit)


class FunctionReflector(ByFunction):
    """A reflector that is a function of (state, kit)."""

    def reflect(self, state: Any, kit: Any) -> Any:
        """Return what the function makes of the execution."""
        return self.function(state, kit)


class FunctionResponder(ByFunction):
    """A responder that is a function of (state, kit)."""

    def respond(self, state: Any, kit: Any) -> Any:
        """Return what the function tells the user."""
        return self.function(state, kit)


_BY_FUNCTION: dict[str, type[ByFunction]] = {
    "planner": FunctionPlanner, "reflector": FunctionReflector, "responder": FunctionResponder,
}  # fmt: skip
_OF = {"planner": "request, kit", "reflector": "state, kit", "responder": "state, kit"}
_STRATEGY = ("name", "budget", "triggered", "decide", "watches", "when_no_plan")
"""What a run asks of a strategy."""


def mind_of(kind: str, given: Any) -> Any:
    """Return a planner, reflector or responder: of a name, a class, a function, or as it is.

    Raises
    ------
    ConfigError, UnknownNameError
        It is none, or a name that is not known.
    """
    if isinstance(given, str):
        return registry(kind).build(given)
    method, of = METHOD[kind], _OF[kind]
    expected = f"a name or an object with {method}({of})"
    made = given
    if is_maker(given):
        if isinstance(given, type) and not callable(getattr(given, method, None)):
            raise refused(kind, expected, given, _names(kind))
        made = called(kind, expected, given)
    elif is_factory(given) and accepts(given, 2):
        made = _BY_FUNCTION[kind](given)
        if inspect.iscoroutinefunction(given):
            raise ConfigError(
                f"{kind}: {arrived(given)} is async and would not be awaited; make it a plain def"
            )
    makes_its_own = hasattr(type(made), "__getattr__") and not hasattr(type(made), method)
    if makes_its_own and not _of_dspy(made):
        return made  # nobody knows before they are asked for
    if isinstance(made, str) or not callable(getattr(made, method, None)):
        raise refused(kind, f"{expected} or a function of ({of})", given, _instead(kind, given))
    _check_method(kind, made, getattr(made, method))
    return made


def _check_method(kind: str, made: Any, method: Any) -> None:
    """Refuse a method that cannot be called as it will be, before anything has run."""
    told = f"{kind}: {METHOD[kind]} of {arrived(made)}"
    if not accepts(method, 2):
        raise ConfigError(f"{told} must take ({_OF[kind]}), got {required(method)}")
    if inspect.iscoroutinefunction(method):
        raise ConfigError(f"{told} is async and would not be awaited; make it a plain def")


def strategy_of(given: Any) -> Strategy:
    """Return a strategy: of a name, of what makes one without arguments, or as it is.

    Raises
    ------
    ConfigError, UnknownNameError
        It is none, or a name that is not known.
    """
    made = given
    if isinstance(given, str):
        made = registry("strategy").build(given)
    elif is_factory(given):
        made = called("strategy", "a name or an agentlab.Strategy", given)
    lacking = [n for n in _STRATEGY if not hasattr(made, n)]
    if isinstance(made, (str, type)) or lacking:
        lacks = f"it has no {', '.join(lacking)}; " if 0 < len(lacking) < len(_STRATEGY) else ""
        raise refused(
            "strategy", "a name or an agentlab.Strategy", given, lacks + _names("strategy")
        )
    strategy: Strategy = made
    return strategy


def _names(kind: str) -> str:
    return suggest("", registry(kind))


def _of_dspy(given: Any) -> bool:
    return any(c.__module__.partition(".")[0] == "dspy" for c in type(given).__mro__)


def _instead(kind: str, given: Any) -> str:
    if _of_dspy(given):
        if kind == "planner":
            return (
                "a dspy program is asked by a planner that knows its prompt: "
                "al.planners.Structured(program), or an object whose plan(request, kit) calls it"
            )
        return f"a dspy program is asked by an object whose {METHOD[kind]}(state, kit) calls it"
    return _names(kind)
