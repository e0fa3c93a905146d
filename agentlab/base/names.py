"""A name with literal arguments, ``retry(2)`` or ``module:attribute(k=2)``, taken apart.

It is read and never evaluated. Python's own parser reads it, and is given no text so long that it
takes a while or its stack is not enough.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any, NamedTuple

from agentlab.errors import ConfigError, seen

LENGTH = 10_000
"""Characters of a name with its arguments."""

_MODULE = re.compile(r"\s*([A-Za-z_][\w.]*:[A-Za-z_][\w.]*)\s*(\(.*\))?\s*", re.DOTALL)


class Named(NamedTuple):
    """A name, taken apart."""

    name: str
    positional: list[Any]
    named: dict[str, Any]


def parse_name(text: str) -> Named:
    """Split ``name(1, key=2)`` or ``module:attribute(1, key=2)`` into name and arguments.

    Raises
    ------
    ConfigError
        The text is no name with literal arguments.

    Examples
    --------
    >>> tuple(parse_name("retry_then_replan(2, wait=1.5)"))
    ('retry_then_replan', [2], {'wait': 1.5})
    """
    if not isinstance(text, str) or len(text) > LENGTH:
        raise _no_name(text)
    found = _MODULE.fullmatch(text)
    call = text if found is None else f"attribute{found[2] or ''}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an escape that is none, or "is" with a literal
            tree = ast.parse(call.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:  # the last: nested deeply
        raise _no_name(text) from e
    function = tree.func if isinstance(tree, ast.Call) else tree
    if not isinstance(function, ast.Name):
        raise _no_name(text)
    name = function.id if found is None else found[1]
    if not isinstance(tree, ast.Call):
        return Named(name, [], {})
    try:
        positional = [ast.literal_eval(a) for a in tree.args]
        pairs = [(k.arg, ast.literal_eval(k.value)) for k in tree.keywords]
    except (ValueError, TypeError, RecursionError, MemoryError) as e:
        raise _no_name(text) from e
    named = {key: value for key, value in pairs if key is not None}
    if len(named) < len(pairs):  # a key twice, or ``**mapping``
        raise _no_name(text)
    return Named(name, positional, named)


def _no_name(text: str) -> ConfigError:
    return ConfigError(
        f"expected a name with literal arguments such as 'retry(2)' or 'reference(noise=0.2)', or "
        f"'module:attribute', got {seen(text)}"
    )
