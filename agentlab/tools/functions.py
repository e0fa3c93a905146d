"""Functions as tools: what may be one, and what is read of it when the tool is made.

A function is called by names, once, and returns. So what takes any number of arguments or none by
name, what yields, what has annotations that mean nothing, and what no JSON can be made of is
refused here, by the name of function and parameter, and not when an agent calls it.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from agentlab.errors import ConfigError, raised, seen, told
from agentlab.tools.docstring import described
from agentlab.tools.signature import NOTHING, Parameter, Signature, resolved


class Read(NamedTuple):
    """What was read of a function."""

    function: Callable[..., Any]
    name: str
    description: str
    signature: Signature
    schema: dict[str, Any] | None = None
    """Given by who wrapped it; None: the signature's."""


def read(thing: Any, free: bool = False) -> Read:
    """Return what a tool needs to know of a function.

    Parameters
    ----------
    thing : callable
        A function, method, partial, lambda, object with ``__call__``, dataclass or pydantic model,
        or a ``dspy.Tool``.
    free : bool
        A schema for its arguments is given: the signature need not say everything.

    Raises
    ------
    ConfigError
        It cannot be a tool; the message says why, and what to do.
    """
    if _is_of(thing, "dspy", "Tool"):
        return _of_dspy(thing, free)
    function = thing.__func__ if isinstance(thing, staticmethod) else thing
    _refuse(function)
    name = name_of(function)
    signature = _signature(function, name)
    _refuse_method(function, name, signature)
    bound = function.keywords if isinstance(function, partial) else {}
    asked = [p for p in signature.parameters.values() if p.name not in bound]
    for parameter in asked:
        _refuse_kind(parameter, name, free)
    named = [p for p in asked if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    text = inspect.getdoc(_plain(function)) or inspect.cleandoc(_called(function).__doc__ or "")
    description, told_of = described(text, [p.name for p in named])
    names, globals_ = _names(function), _globals(function)

    def hint(annotation: Any, where: str) -> Any:
        if annotation is inspect.Parameter.empty:
            return NOTHING
        try:
            return resolved(annotation, names, globals_)
        except Exception as e:
            if free:
                return NOTHING
            raise ConfigError(
                f"{name}, {where}: the annotation {told(repr(annotation), 200)} cannot be resolved "
                f"({told(raised(e), 200)}): import what it names where the function is written, or "
                "define it there before the tool is made"
            ) from e

    parameters = tuple(
        Parameter(
            p.name, hint(p.annotation, f"parameter {p.name!r}"),
            NOTHING if p.default is p.empty else p.default, told_of.get(p.name, ""),
        )
        for p in named
    )  # fmt: skip
    gives = function if inspect.isclass(function) else signature.return_annotation
    gives = hint(inspect.Parameter.empty if gives is inspect.Signature.empty else gives, "return")
    return Read(function, name, description, Signature(name, parameters, gives, free))


def name_of(function: Any) -> str:
    """Return what a function is called; an object by its class."""
    plain = _plain(function)
    return str(getattr(plain, "__name__", type(plain).__name__))


def _plain(function: Any) -> Any:
    return function.func if isinstance(function, partial) else function


def _called(function: Any) -> Any:
    """Return what runs when it is called."""
    plain = _plain(function)
    is_object = not (inspect.isroutine(plain) or inspect.isclass(plain))
    return type(plain).__call__ if is_object else plain


def _is_of(thing: Any, package: str, name: str) -> bool:
    """Say whether a thing's class is, or inherits from, one of a package that is not imported."""
    return any(
        c.__module__.partition(".")[0] == package and c.__name__ == name
        for c in type(thing).__mro__
    )


def _of_dspy(thing: Any, free: bool) -> Read:
    try:
        found = read(thing.func, free)
        schema = None
    except ConfigError:
        if not thing.args:
            raise
        found, schema = read(thing.func, free=True), _dspy_schema(thing)
    description = thing.desc or found.description
    return found._replace(name=thing.name or found.name, description=description, schema=schema)


def _dspy_schema(thing: Any) -> dict[str, Any]:
    """Return the schema of a tool whose function takes anything: dspy was told what."""
    return {"type": "object", "properties": dict(thing.args), "additionalProperties": False}


# ---- what cannot be a tool -------------------------------------------------------------------


def _refuse(thing: Any) -> None:
    """Refuse what is no function, and functions that do not return."""
    if isinstance(thing, classmethod):
        raise ConfigError(
            f"expected a function to make a tool of, got the class method {name_of(thing)!r} "
            "without its class: give it bound, as Class.method"
        )
    if hasattr(thing, "args_schema") and hasattr(thing, "invoke"):
        name, kind = getattr(thing, "name", "?"), type(thing).__name__
        raise ConfigError(
            f"expected a function to make a tool of, got {name!r}, a {kind} of LangChain: give "
            "the function that it was made of (its .func or .coroutine), or one of your own that "
            "calls its .invoke({...})"
        )
    if not callable(thing):
        raise ConfigError(f"expected a function to make a tool of, got {seen(thing)}")
    name, called = name_of(thing), _called(thing)
    for yields, kind in (
        (inspect.isgeneratorfunction, "a generator"),
        (inspect.isasyncgenfunction, "an async generator"),
    ):
        if yields(called):
            raise ConfigError(
                f"{name}: expected a function that returns its result, got {kind}, which yields: "
                "collect what it yields and return the list"
            )
    if inspect.isclass(thing):
        _refuse_class(thing, name)


def _refuse_class(thing: type, name: str) -> None:
    data = not issubclass(thing, (Enum, BaseException))
    try:
        if data:
            TypeAdapter(thing)
    except Exception:
        data = False
    if not data:
        raise ConfigError(
            f"{name}: a class whose objects are no JSON cannot be a tool: give a dataclass, a "
            "pydantic model, or a function that returns what is to be told"
        )


def _signature(function: Any, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError) as e:
        raise ConfigError(
            f"{name}: nothing is known of its parameters ({told(raised(e), 200)}): write a "
            "function of your own that calls it"
        ) from e


def _refuse_method(function: Any, name: str, signature: inspect.Signature) -> None:
    """Refuse a method without its object."""
    if not isinstance(function, types.FunctionType):
        return
    first = next(iter(signature.parameters), "")
    owner = function.__qualname__.rpartition(".")[0]
    if first in ("self", "cls") and owner and not owner.endswith("<locals>"):
        raise ConfigError(
            f"{name}, parameter {first!r}: a method of {owner} without its object: make the tool "
            f"of a bound one, agentlab.tool({owner.rpartition('.')[2]}(...).{name})"
        )


def _refuse_kind(parameter: inspect.Parameter, name: str, free: bool) -> None:
    kind, shown = parameter.kind, str(parameter).partition(":")[0]
    if kind is parameter.POSITIONAL_ONLY:
        raise ConfigError(
            f"{name}: a tool needs named parameters, and {parameter.name!r} is positional-only: "
            "take away the slash behind it"
        )
    if kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and not free:
        raise ConfigError(
            f"{name}: a tool needs named parameters, and {shown} takes any: name each, take a list "
            "or dict in one parameter, or say what may be sent with tool(parameters={...})"
        )


# ---- names in annotations --------------------------------------------------------------------


def _written(function: Any) -> Any:
    """Return the function in which the annotations stand."""
    called = _called(function)
    if inspect.isclass(called):
        called = called.__init__
    return inspect.unwrap(getattr(called, "__func__", called))


def _globals(function: Any) -> dict[str, Any]:
    plain = _plain(function)
    if inspect.isclass(plain):
        return dict(vars(sys.modules.get(plain.__module__, types)))
    return getattr(_written(function), "__globals__", {})


def _names(function: Any) -> Mapping[str, Any]:
    """Return the names that were to be seen where a function was written, beside the module's.

    Those that it closes over, and those of the functions and classes around it, while they run.
    """
    written = _written(function)
    code, names = getattr(written, "__code__", None), dict[str, Any]()
    if code is None:
        return names
    around = set(_around(getattr(written, "__qualname__", "")))
    frame = sys._getframe(1)
    while frame is not None and around:
        if frame.f_code.co_qualname in around and frame.f_globals is written.__globals__:
            names = {**frame.f_locals, **names}
        frame = frame.f_back  # type: ignore[assignment]
    for name, cell in zip(code.co_freevars, written.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return names


def _around(qualified: str) -> Iterator[str]:
    """Yield the qualified names of the functions and classes around one."""
    owner = qualified.rpartition(".")[0]
    while owner:
        if not owner.endswith("<locals>"):
            yield owner
        owner = owner.rpartition(".")[0]
