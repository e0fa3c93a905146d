"""Names with arguments: ``retry(2)``, ``reference(noise=0.2)``.

A name is looked up in a registry and its arguments are literals (numbers, strings, booleans, None,
lists, maps). Nothing is evaluated: the text is parsed and anything that is no literal is refused.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from agentlab.errors import ConfigError, UnknownNameError, suggest

T = TypeVar("T")


def parse_name(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split ``name(1, key=2)`` into its name, positional and named arguments.

    Raises
    ------
    ConfigError
        The text is no name with literal arguments.

    Examples
    --------
    >>> parse_name("retry_then_replan(2, wait=1.5)")
    ('retry_then_replan', [2], {'wait': 1.5})
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as e:
        raise _no_name(text) from e
    if isinstance(tree, ast.Name):
        return tree.id, [], {}
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        raise _no_name(text)
    try:
        positional = [ast.literal_eval(a) for a in tree.args]
        pairs = [(k.arg, ast.literal_eval(k.value)) for k in tree.keywords]
    except (ValueError, TypeError) as e:
        raise _no_name(text) from e
    named = {key: value for key, value in pairs if key is not None}
    if len(named) < len(pairs):  # a key twice, or ``**mapping``
        raise _no_name(text)
    return tree.func.id, positional, named


def _no_name(text: str) -> ConfigError:
    return ConfigError(
        f"expected a name with literal arguments such as 'retry(2)' or 'reference(noise=0.2)', "
        f"got {text!r}"
    )


class Registry(Mapping[str, Callable[..., T]], Generic[T]):
    """Factories by name.

    Parameters
    ----------
    kind : str
        What it holds, for messages ("planner").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, Callable[..., T]] = {}

    def register(self, name: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Register the decorated factory under ``name``."""

        def put(factory: Callable[..., T]) -> Callable[..., T]:
            self._factories[name] = factory
            return factory

        return put

    def added(self) -> dict[str, Callable[..., T]]:
        """Return the factories that a user registered, for handing them to other processes."""
        own = {n: f for n, f in self._factories.items() if not _ours(f)}
        return own

    def build(self, text: str) -> T:
        """Return what ``name(arguments)`` stands for.

        Raises
        ------
        ConfigError
            The text is malformed, or the arguments do not fit.
        UnknownNameError
            The name is not registered.
        """
        name, positional, named = parse_name(text)
        if name not in self._factories:
            raise UnknownNameError(self.kind, name, self._factories)
        factory = self._factories[name]
        signature = inspect.signature(factory)
        try:
            signature.bind(*positional, **named)
        except TypeError as e:
            unknown = [k for k in named if k not in signature.parameters]
            hint = f"; {suggest(unknown[0], signature.parameters)}" if unknown else ""
            raise ConfigError(
                f"{self.kind} {name}{signature_text(factory)}: got {text!r}: {e}{hint}"
            ) from e
        try:
            return factory(*positional, **named)
        except (TypeError, ValueError) as e:
            raise ConfigError(f"{self.kind} {text!r}: {e}") from e

    def __getitem__(self, name: str) -> Callable[..., T]:
        return self._factories[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)


def _ours(factory: Callable[..., Any]) -> bool:
    return str(getattr(factory, "__module__", "")).partition(".")[0] == "agentlab"


def signature_text(factory: Callable[..., Any]) -> str:
    """Return a factory's parameters with defaults, without types: ``(k=1, wait=0.0)``."""
    parameters = inspect.signature(factory).parameters.values()
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"
