"""What a public function is given, held to what it takes.

``takes`` names the kinds of arguments beside the function, as annotations that pydantic checks, so
that a wrong one is refused by name where it is given and not by an operator somewhere below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import signature
from typing import Annotated, Any, TypeVar, cast

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from agentlab.base.refusals import MOST, problems
from agentlab.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

Positive = Annotated[int, Field(ge=1, strict=True)]
"""1, 2, 3, ..."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]

Flag = StrictBool


def takes(**kinds: Any) -> Callable[[F], F]:
    """Return a decorator that holds arguments to kinds; scalars of numpy count as Python's.

    Parameters
    ----------
    **kinds
        Parameter to an annotation. A default is not checked, and neither is what is not named.

    Examples
    --------
    >>> @takes(k=Positive)
    ... def thrice(k=1):
    ...     return 3 * k
    >>> thrice("3")
    Traceback (most recent call last):
        ...
    agentlab.errors.ConfigError: thrice: k: expected a whole number, got '3'
    """

    def decorate(function: F) -> F:
        parameters = signature(function).parameters.values()
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

        @wraps(function)
        def held(*given: Any, **named: Any) -> Any:
            values = [_held(function, n, v, kinds) for n, v in zip(names, given, strict=False)]
            rest = {n: _held(function, n, v, kinds) for n, v in named.items()}
            return function(*values, *given[len(values) :], **rest)

        return cast(F, held)

    return decorate


def _held(function: Any, name: str, value: Any, kinds: dict[str, Any]) -> Any:
    if name not in kinds:
        return value
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        _adapter(kinds[name]).validate_python(value, strict=True)
        return value  # as it was given: it may be part of a name
    except ValidationError as e:
        what = function.__name__ if function.__name__ != "__init__" else _owner(function)
        told = problems(e, wire=False, within=name)
        more = f"; and {len(told) - MOST:,} more" if len(told) > MOST else ""
        raise ConfigError(f"{what}: {'; '.join(told[:MOST])}{more}") from None


def _owner(function: Any) -> str:
    return str(function.__qualname__).rpartition(".")[0].rpartition(".")[2]


@cache
def _adapter(kind: Any) -> Any:
    return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True)).validator
