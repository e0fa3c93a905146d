"""What arrived in place of what was expected, told in a few words, and the error that tells it.

Of text and numbers their value is told, of everything else its kind alone: an object's own ``repr``
may be long, may fail, and may hold a key.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Collection, Mapping
from numbers import Real
from types import ModuleType
from typing import Any

from agentlab.errors import AgentLabError, ConfigError, a_kind, raised, seen


def arrived(value: Any) -> str:
    """Return what a value is, short and without what it holds.

    Examples
    --------
    >>> arrived("3"), arrived(int), arrived([1, 2]), arrived(arrived)
    ("text '3'", 'the class int', 'a list of 2', 'the function arrived')
    """
    kind = type(value).__name__
    if isinstance(value, str):
        return f"text {seen(value)}"
    if value is None or isinstance(value, (bool, int, float)):
        return seen(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if inspect.iscoroutine(value):
        return f"a coroutine of {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {getattr(value, '__name__', kind)}"
    size = _size(value)
    return a_kind(value) if size is None else f"{a_kind(value)} of {size}"


def instance(
    what: str, value: Any, kind: Any, expected: str, do: str = "",
    error: type[AgentLabError] = ConfigError,
) -> Any:  # fmt: skip
    """Return a value that is of a kind, or refuse it.

    Raises
    ------
    AgentLabError
        It is of none of the types.
    """
    if not isinstance(value, kind):
        raise refused(what, expected, value, do, error)
    return value


def _size(value: Any) -> int | None:
    if not isinstance(value, Collection):
        return None
    try:
        return len(value)
    except Exception:  # of an object that is anybody's
        return None


def refused(
    what: str, expected: str, value: Any, do: str = "", error: type[AgentLabError] = ConfigError
) -> AgentLabError:
    """Return the error that says what was expected, what arrived, and what to do.

    Examples
    --------
    >>> print(refused("a seed", "a whole number", "3", "give 3"))
    a seed: expected a whole number, got text '3'; give 3
    """
    return error(f"{what}: expected {expected}, got {arrived(value)}{f'; {do}' if do else ''}")


def whole(what: str, value: Any, least: int | None = None) -> int:
    """Return a whole number, of numpy's too.

    Raises
    ------
    ConfigError
        It is none, or less than the least.
    """
    bound = "" if least is None else f" of at least {least}"
    if not isinstance(value, (bool, str)) and type(value).__name__ != "bool":  # numpy's is one too
        try:
            number = operator.index(value)
        except Exception:  # of an object that is anybody's
            pass
        else:
            if least is None or number >= least:
                return number
    raise ConfigError(f"{what} must be an integer{bound}, got {arrived(value)}")


def chance(what: str, value: Any, error: type[AgentLabError] = ConfigError) -> float:
    """Return a probability, of numpy's too.

    Raises
    ------
    AgentLabError
        It is no number from 0 to 1.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if real and 0 <= value <= 1:
        return float(value)
    name = what.replace("_", " ")
    raise error(f"{what}: a {name} is a number between 0 and 1, got {arrived(value)}")


def required(function: Any) -> list[str] | None:
    """Return the arguments that a class or function cannot do without; None: nobody knows."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in free]


def is_maker(value: Any) -> bool:
    """Say whether a value is a class or function that makes something without arguments."""
    if isinstance(value, type):
        return True
    if not inspect.isroutine(value) or required(value) != []:
        return False
    kinds = {p.kind for p in inspect.signature(value).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL not in kinds  # f(*args) waits for some


def accepts(function: Any, n: int) -> bool:
    """Say whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * n)
    except TypeError:
        return False
    except ValueError:  # nobody knows
        return True
    return True


def called(what: str, expected: str, factory: Any) -> Any:
    """Return what a class or function makes that was given in place of what it makes.

    A name stands for the same: what it names is called without arguments.

    Raises
    ------
    ConfigError
        It needs arguments, or raised.
    """
    if inspect.iscoroutinefunction(factory):
        raise refused(what, expected, factory, "it is async and would not be awaited")
    needs = required(factory)
    if needs is None or needs:
        told = f"{getattr(factory, '__name__', 'it')}({', '.join(needs or ['...'])})"
        raise refused(what, expected, factory, f"call it: {told}")
    try:
        return factory()
    except Exception as e:
        told = f"calling it raised {raised(e)}"
        raise refused(what, expected, factory, told) from e


def is_factory(value: Any) -> bool:
    """Say whether a value is a class or a function, which makes things and is none."""
    return isinstance(value, type) or inspect.isroutine(value)


def is_table(value: Any) -> bool:
    """Say whether a value is a DataFrame, without importing pandas."""
    return hasattr(value, "columns") and hasattr(value, "to_dict") and not isinstance(value, type)


def rows_of(table: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a DataFrame as documents, without the cells that hold nothing."""
    return [
        {k: v for k, v in row.items() if v is not None and not (isinstance(v, float) and v != v)}
        for row in table.to_dict("records")
    ]
