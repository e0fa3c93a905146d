"""Tools, their registry, argument checks, effect classes and permissions.

A tool is a description (name, JSON Schemas, effect class, duration) that an environment carries
out, or a Python function. The effect class decides what may be done with a call whose outcome is
unknown: a ``read`` or ``idempotent`` call may be made again, a ``write`` or ``irreversible`` one
may not.

JSON Schemas are Draft 2020-12, self-contained: no reference is ever fetched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Any, overload

from pydantic import BeforeValidator, Field, PlainSerializer

from agentlab.base.documents import Json
from agentlab.base.schemas import (
    check_schema as check_schema,
    object_schema as object_schema,
    schema_validator as schema_validator,
)
from agentlab.base.values import Amount, Document, Value, record
from agentlab.errors import ConfigError, UnknownNameError, seen
from agentlab.tools.calls import ToolError as ToolError
from agentlab.tools.functions import read
from agentlab.tools.signature import Signature


class Effect(StrEnum):
    """What a call does outside the agent."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"


REPEATABLE = frozenset({Effect.READ, Effect.IDEMPOTENT})


def _effect(value: Any) -> Any:
    known = [e.value for e in Effect]
    if isinstance(value, str) and value not in known:
        raise UnknownNameError("effect", value, known)
    return value


@record
class Tool:
    """One thing an agent can call.

    Parameters
    ----------
    name : str
        Unique within a lab.
    description : str
        For planners and people.
    parameters : dict
        JSON Schema of the arguments (an object schema).
    returns : dict
        JSON Schema of the result; ``{}`` accepts anything.
    effect : Effect
        What a call does outside the agent.
    seconds : float
        Duration in simulated seconds.
    holds : tuple of str
        Resources taken for that time, all at once.
    seen : tuple of str
        Parameters whose value must have been returned by an earlier call of the run.
    timeout : float
        Seconds after which a caller gives up (see ``agentlab.cancel_token``).
    needs_approval : bool
        True when a person must approve each call.
    service : str
        Who carries it out: "environment" or "function".
    function : callable, optional
        For service "function": called with the arguments by name; what it returns goes out as
        JSON, and what can be awaited is awaited.
    signature : Signature, optional
        What is made of the arguments for the function; default: nothing, it takes JSON.

    Raises
    ------
    UnknownNameError, ConfigError
        There is no such effect, or a time cannot be.
    """

    name: str
    description: str = ""
    parameters: Document = field(default_factory=lambda: {"type": "object"})
    returns: Document = field(default_factory=dict)
    effect: Annotated[Effect, BeforeValidator(_effect)] = Effect.READ
    seconds: Amount = 1.0
    holds: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    timeout: Annotated[float, Field(gt=0, strict=True)] = 30.0
    needs_approval: bool = False
    service: str = "environment"
    function: Callable[..., Any] | None = None
    signature: Signature | None = field(default=None, repr=False, compare=False)

    def check(self, arguments: Json) -> str | None:
        """Return what is wrong with the arguments, as they were sent, or None.

        They must fit the schema, so that "5" is no number, and the function's parameters must be
        made of them, so that "2024-02-30" is no date.

        Examples
        --------
        >>> print(Tool("t", parameters=object_schema(n={"type": "integer"})).check({"n": "x"}))
        arguments of 't': n: "x" is not of type "integer"
        """
        what = f"arguments of {seen(self.name)}"
        problem = check_schema(self.parameters, arguments, what)
        if problem is not None or self.signature is None:
            return problem
        problem = self.signature.problem(arguments)
        return None if problem is None else f"{what}: {problem}"

    def converted(self, arguments: dict[str, Json]) -> dict[str, Any]:
        """Return what the function is called with: objects of its own, made of what was sent."""
        if self.signature is None:
            return copy.deepcopy(arguments)
        return self.signature.arguments(arguments)


class ToolRegistry(Mapping[str, Tool]):
    """The tools of a lab by name.

    Raises
    ------
    ConfigError
        Two tools share a name.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in as_tools(tools):
            if tool.name in self._tools:
                raise ConfigError(f"two tools are called {seen(tool.name)}; names must be unique")
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            raise UnknownNameError("tool", name, self._tools) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the tool of that name, or ``default``."""
        return self._tools.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"ToolRegistry({', '.join(self._tools)})"


class Permissions(Value):
    """Which calls a lab lets through. Denied calls fail with code "denied"."""

    effects: Annotated[frozenset[Effect], PlainSerializer(sorted)] = frozenset(Effect)
    """Effect classes that are allowed."""
    deny: Annotated[frozenset[str], PlainSerializer(sorted)] = frozenset()
    """Tool names that are not, whatever their effect."""

    def refusal(self, tool: Tool) -> str | None:
        """Return why a call of ``tool`` is not allowed, or None."""
        if tool.name in self.deny:
            return f"tool {seen(tool.name)} is denied in this lab"
        if tool.effect not in self.effects:
            allowed = ", ".join(sorted(self.effects)) or "nothing"
            return f"tool {seen(tool.name)} is {tool.effect}; this lab allows {allowed}"
        return None


@overload
def tool(function: Callable[..., Any]) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect | str = Effect.READ,
    seconds: float = 1.0,
    holds: Iterable[str] = (),
    timeout: float = 30.0,
    parameters: dict[str, Any] | None = None,
    returns: dict[str, Any] | None = None,
    needs_approval: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    effect: Effect | str = Effect.READ,
    seconds: float = 1.0,
    holds: Iterable[str] = (),
    timeout: float = 30.0,
    parameters: dict[str, Any] | None = None,
    returns: dict[str, Any] | None = None,
    needs_approval: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a Python function; usable as a decorator, with or without arguments.

    The schemas of arguments and result come from the annotations, whatever pydantic knows, unless
    ``parameters`` and ``returns`` give them; descriptions come from the docstring. The function is
    called with objects of the annotated types. An ``async def`` runs in an event loop of the tools.

    Parameters
    ----------
    function : callable
        A function, method, partial, lambda, object with ``__call__``, dataclass, pydantic model or
        ``dspy.Tool``. What a partial binds is no parameter of the tool.

    Raises
    ------
    ConfigError
        It cannot be a tool; the message names function and parameter, and says what to do.

    Examples
    --------
    >>> @tool(effect="read")
    ... def add(a: int, b: int = 0) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add.check({"a": "x"}) is None
    False
    """

    def make(function: Callable[..., Any]) -> Tool:
        found = read(function, free=parameters is not None)
        return Tool(
            name=name or found.name,
            description=found.description,
            parameters=parameters or found.schema or found.signature.schema(),
            returns=found.signature.returns() if returns is None else returns,
            effect=effect,  # type: ignore[arg-type]
            seconds=seconds,
            holds=tuple(holds),
            timeout=timeout,
            needs_approval=needs_approval,
            service="function",
            function=found.function,
            signature=found.signature,
        )

    return make if function is None else make(function)


def as_tools(tools: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Return tools, each function among them made one.

    Raises
    ------
    ConfigError
        One cannot be made a tool, or it is no list of them.
    """
    if isinstance(tools, Tool) or not isinstance(tools, Iterable):
        raise ConfigError(f"expected a list of tools and functions, got {type(tools).__name__}")
    return tuple(t if isinstance(t, Tool) else tool()(t) for t in tools)
