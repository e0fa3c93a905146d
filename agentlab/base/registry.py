"""Names: ``retry(2)``, ``reference(noise=0.2)``, ``mymodule:Greedy(k=2)``, and what they stand for.

A name is looked up, never evaluated: its arguments are literals, and anything else is refused.
There is one registry for each kind in ``KINDS``, and one form for all of them::

    register("planner", "greedy", Greedy)              # a class or function: what it makes
    register("planner", "greedy", Greedy(k=2))         # an object: itself
    register("planner", "greedy", "mymodule:Greedy")   # text: imported when it is first used

    @register("planner", "greedy")                     # the same, above a class or function
    class Greedy: ...

``module:attribute`` can also stand where a name stands; nothing needs to be registered then. A
package adds names by entry points of the group ``agentlab``, called KIND.NAME::

    [project.entry-points.agentlab]
    "planner.greedy" = "greedy_planners:Greedy"

What ships is text in ``built_in``, so nothing is imported before it is used, and what looks a name
up need not import those who bear it. That is the one way in which a module reaches one above it.

A name may come out of a file that somebody else wrote. So of a module that is named only what can
be of the kind is called: a class that has the kind's method, or a function of a module that uses
agentlab; ``os:system('...')`` is refused. Steps of a plan are a model's words: an action type is
looked up among what is registered and is never a module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, partial
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from agentlab.base.arrived import instance
from agentlab.base.built_in import BUILT_IN, METHOD, SHARED
from agentlab.base.names import Named, parse_name
from agentlab.errors import AgentLabError, ConfigError, UnknownNameError, raised, seen, suggest

T = TypeVar("T")

GROUP = "agentlab"
"""The group of entry points by which packages add names, each called KIND.NAME."""


class Sent(NamedTuple):
    """What another process registered: it is unpickled when it is first asked for."""

    data: bytes
    error: str = ""
    """Why it could not be sent."""

    def opened(self, kind: str, name: str) -> Any:
        """Return the thing itself.

        Raises
        ------
        ConfigError
            It could not be pickled there, or cannot be unpickled here.
        """
        import cloudpickle

        error = self.error
        if not error:
            try:
                return cloudpickle.loads(self.data)
            except Exception as e:
                error = f"{type(e).__name__}: {e}"
        raise ConfigError(f"{kind} {seen(name)} did not reach this worker process: {error}")


class Registry(Mapping[str, Any]):
    """What names of one kind stand for; as a mapping, what each stands for without arguments.

    Parameters
    ----------
    kind : str
        What it holds, for messages ("planner").
    built_in : mapping of str to str
        Name to ``module:attribute``.
    method : str
        What everything of the kind has; empty: anything will do.
    shared : bool
        A name stands for one object, made once.
    """

    def __init__(
        self, kind: str, built_in: Mapping[str, str] | None = None, method: str = "",
        shared: bool = False,
    ) -> None:  # fmt: skip
        self.kind, self._method, self._shared = kind, method, shared
        self._built_in = dict(built_in or {})
        self._own: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self._sent: dict[str, Sent] = {}

    def register(self, name: str, thing: Any) -> None:
        """Let a name stand for a factory, an object, or what a ``module:attribute`` is.

        A name that a user gave before is given anew, so that a cell can be run twice.

        Raises
        ------
        ConfigError
            The name is taken by what ships, or the text names no module.
        """
        instance(f"name of a {self.kind}", name, str, "a text")
        if name in self._built_in:
            raise ConfigError(f"{self.kind} {seen(name)} ships with agentlab; take another name")
        if isinstance(thing, str) and ":" not in parse_name(thing).name:
            raise ConfigError(
                f"{self.kind} {seen(name)}: expected 'module:attribute', got {seen(thing)}"
            )
        if isinstance(thing, Sent) and thing == self._sent.get(name):
            return
        self._own[name] = thing
        self._made.pop(name, None)
        if isinstance(thing, Sent):
            self._sent[name] = thing

    def added(self) -> dict[str, Any]:
        """Return what a user registered."""
        return dict(self._own)

    def build(self, text: str) -> Any:
        """Return what ``name(arguments)`` or ``module:attribute(arguments)`` stands for.

        Raises
        ------
        ConfigError
            The text is malformed, the arguments do not fit, or it is none of the kind.
        UnknownNameError
            The name is not registered, or the module has no such attribute.
        """
        if text in self._made:
            return self._made[text]
        asked = Named(text, [], {}) if self._local(text) is not None else parse_name(text)
        if ":" in asked.name:
            thing = _imported(self.kind, asked.name)
            if _is_function(thing) and not _uses_agentlab(thing):
                raise ConfigError(
                    f"{self.kind} {seen(text)}: a function is only called where its module uses "
                    f'agentlab; put @agentlab.register("{self.kind}", ...) above it'
                )
        else:
            thing = self._local(asked.name)
            if isinstance(thing, Sent):
                thing = self._own[asked.name] = thing.opened(self.kind, asked.name)
            if thing is None:
                thing = _entry_points(self.kind).get(asked.name)
        if thing is None:
            raise UnknownNameError(self.kind, asked.name, self)
        made = self._make(text, thing, asked)
        if self._shared:
            self._made[text] = made
        return made

    def _make(self, text: str, thing: Any, asked: Named) -> Any:
        if isinstance(thing, str):
            where = parse_name(thing)
            thing = _imported(self.kind, where.name)
            if where.positional or where.named:
                thing = partial(thing, *where.positional, **where.named)
        if isinstance(thing, type):
            self._check(text, thing)  # before it is called
        if isinstance(thing, type) or _is_function(thing):
            made = self._called(text, thing, asked)
        elif asked.positional or asked.named:
            raise ConfigError(
                f"{self.kind} {seen(text)}: {asked.name} is an object; give no arguments"
            )
        else:
            made = thing
        self._check(text, made)
        if self.kind == "action" and ":" not in text and made.type != text:
            raise ConfigError(
                f"action {seen(text)}: its type is {seen(made.type)}; register it under that"
            )
        return made

    def _called(self, text: str, factory: Callable[..., Any], asked: Named) -> Any:
        signature = _signature(factory)
        try:
            signature.bind(*asked.positional, **asked.named)
        except TypeError as e:
            unknown = [k for k in asked.named if k not in signature.parameters]
            hint = f"; {suggest(unknown[0], signature.parameters)}" if unknown else ""
            raise ConfigError(
                f"{self.kind} {asked.name}{signature_text(factory)}: got {seen(text)}: {e}{hint}"
            ) from e
        try:
            return factory(*asked.positional, **asked.named)
        except (AgentLabError, KeyboardInterrupt) as e:
            if type(e) is not ConfigError:  # a subclass says by its kind what is wrong
                raise
            raise ConfigError(f"{self.kind} {seen(text)}: {e}") from e
        except (TypeError, ValueError) as e:
            raise ConfigError(f"{self.kind} {seen(text)}: {e}") from e
        except BaseException as e:  # of a factory that is anybody's: SystemExit, for one
            raise ConfigError(f"{self.kind} {seen(text)}: {raised(e)}") from e

    def _check(self, text: str, thing: Any) -> None:
        if self._method and not hasattr(thing, self._method):
            raise ConfigError(
                f"{self.kind} {seen(text)}: expected something with a method {self._method}(...), "
                f"got {seen(thing)}"
            )

    def _local(self, name: str) -> Any:
        """Return what a name stands for, or None; what packages add takes long to look through."""
        return self._built_in.get(name, self._own.get(name))

    def __getitem__(self, name: str) -> Any:
        if name in self._made:
            return self._made[name]
        if name not in self:
            raise KeyError(name)
        return self.build(name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return self._local(name) is not None or name in _entry_points(self.kind)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._built_in, **self._own, **_entry_points(self.kind)})

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _entry_points(kind: str) -> dict[str, str]:
    """Return the names of a kind that installed packages add."""
    start = f"{kind}."
    return {k.removeprefix(start): v for k, v in _all_entry_points() if k.startswith(start)}


@cache
def _all_entry_points() -> tuple[tuple[str, str], ...]:
    from importlib.metadata import entry_points

    return tuple((point.name, point.value) for point in entry_points(group=GROUP))


def _imported(kind: str, text: str) -> Any:
    """Return the attribute of a module that ``module:attribute`` names."""
    module, _, path = text.partition(":")
    try:
        found: Any = import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # SystemExit, for one
        named = isinstance(e, ModuleNotFoundError) and f"{module}.".startswith(f"{e.name}.")
        if not named:
            problem = f"importing {module} raised {raised(e)}"
            raise ConfigError(f"{kind} {seen(text)}: {problem}") from e
        raise ConfigError(
            f"{kind} {seen(text)}: there is no module {seen(module)}; it must be installed, on "
            "sys.path, or a file of the folder in which the command runs"
        ) from e
    for part in path.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(found) if not n.startswith("_")]
            raise UnknownNameError(kind, part, names, where=f"module {seen(module)}")
        found = getattr(found, part)
    return found


def _is_function(thing: Any) -> bool:
    return isinstance(thing, partial) or inspect.isroutine(thing)


def _uses_agentlab(function: Any) -> bool:
    """Return whether the module of a function holds anything of agentlab's, and is none of it."""
    if not isinstance(function, FunctionType) or _root(function) == "agentlab":
        return False
    return any(_root(v) == "agentlab" for v in list(function.__globals__.values()))


def _root(thing: Any) -> str:
    name = getattr(thing, "__name__", "") if inspect.ismodule(thing) else None
    return str(name or getattr(thing, "__module__", "")).partition(".")[0]


@lru_cache(maxsize=256)
def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    """Return what a class or function takes: a study asks for each name in every cell."""
    return inspect.signature(factory)


def signature_text(factory: Callable[..., Any]) -> str:
    """Return a factory's parameters with defaults, without types: ``(k=1, wait=0.0)``."""
    parameters = inspect.signature(factory).parameters.values()
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"


# ---- one registry a kind ---------------------------------------------------------------------

_REGISTRIES = {
    kind: Registry(kind, names, METHOD.get(kind, ""), kind in SHARED)
    for kind, names in BUILT_IN.items()
}
KINDS = tuple(_REGISTRIES)


def registry(kind: str) -> Registry:
    """Return the registry of a kind.

    Raises
    ------
    UnknownNameError
        There is no such kind.
    """
    if not isinstance(kind, str) or kind not in _REGISTRIES:
        raise UnknownNameError("kind", kind, KINDS)
    return _REGISTRIES[kind]


def register(kind: str, name: str, thing: Any = None) -> Callable[[T], T]:
    """Make something known by a name, here and in the worker processes of studies.

    Parameters
    ----------
    kind : str
        "planner", "strategy", "action", "workflow", "environment", "retriever", "reflector" or
        "responder".
    name : str
        An action's is its ``type``, and an environment's its ``name``.
    thing : class, function, object or str, optional
        A class or function is called with the arguments that follow the name; an object stands for
        itself; "module:attribute" is imported when it is first used. Left out: what this decorates.

    Raises
    ------
    UnknownNameError
        There is no such kind.
    ConfigError
        The name is taken by what ships.
    """
    of_kind = registry(kind)

    def put(decorated: T) -> T:
        of_kind.register(name, decorated)
        return decorated

    if thing is not None:
        put(thing)
    return put
