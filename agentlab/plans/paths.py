"""A JMESPath of a plan, evaluated within a bound of work and of size.

A path comes from a model. A few characters of it double a result (``[@,@]``), as often as they are
written: that is small while the parts are shared, and gigabytes when it is written down. So every
step of an evaluation is counted, and whatever is put together is measured as it would be written.
What is only picked out of a result has no bound: it is there already.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from jmespath import compile as compiled
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.visitor import TreeInterpreter

from agentlab.base.documents import Json, is_json, shortened
from agentlab.errors import ReferenceError_

LONGEST = 4096
"""Characters of a path."""

WORK = 500_000
"""Parts of an expression that are evaluated, and elements that are handed on, for one value."""

SIZE = 1 << 22
"""Characters, about, that what is put together may take; more where the results take more."""

_PICKS = frozenset({
    "field", "index", "current", "identity", "subexpression", "index_expression", "pipe",
    "or_expression", "and_expression",
})  # fmt: skip
"""Parts of an expression that put nothing together."""


@lru_cache(maxsize=4096)
def compile_path(path: str) -> Any:
    """Compile a JMESPath.

    Raises
    ------
    ReferenceError_
        It is none.
    """
    if len(path) > LONGEST:
        reason = f"{len(path):,} characters, more than the {LONGEST:,} that are read"
        raise ReferenceError_(f"{shortened(path, 400)!r} is no JMESPath: {reason}")
    try:
        return compiled(path)
    except (JMESPathError, RecursionError, ValueError) as e:  # ValueError: an endless index
        reason = shortened(str(e).splitlines()[0], 400)
        raise ReferenceError_(f"{shortened(path, 400)!r} is no JMESPath: {reason}") from e


class Bound:
    """What the references of one value may cost: work, and characters that they put in."""

    def __init__(self) -> None:
        self._work = WORK
        self._known: dict[int, tuple[Any, int]] = {}  # id -> (kept alive, size)

    def spend(self, work: int) -> None:
        """Count work; raise ReferenceError_ where it is too much."""
        self._work -= work
        if self._work < 0:
            raise ReferenceError_(f"takes more than {WORK:,} steps to evaluate; pick less")

    def check(self, size: int, source: Json, times: int = 1) -> None:
        """Raise ReferenceError_ where a size is too large for what is made from a source."""
        if size > SIZE and size > times * self.size(source):
            raise ReferenceError_(f"gives more than {SIZE:,} characters; pick less")

    def size(self, value: Json) -> int:
        """Return the characters, about, that a value takes when it is written down."""
        if isinstance(value, str):
            return len(value) + 2
        if not isinstance(value, (list, dict)):
            return 8
        known = self._known.get(id(value))
        if known is None:
            inner = value if isinstance(value, list) else value.values()
            size = 2 + 2 * len(value) + sum(map(self.size, inner))
            size += sum(map(len, value)) if isinstance(value, dict) else 0
            known = self._known[id(value)] = (value, size)
        return known[1]


def evaluate(path: str, result: Json, bound: Bound | None = None) -> Json:
    """Return what a JMESPath finds in a result.

    Parameters
    ----------
    path : str
    result : JSON
    bound : Bound, optional
        Shared by all references of one value; None: one of its own.

    Raises
    ------
    ReferenceError_
        It is no JMESPath, cannot be evaluated, takes or gives too much, or gives no JSON.
    """
    interpreter = _Interpreter(bound or Bound(), result)
    try:
        value = interpreter.visit(compile_path(path).parsed, result)
        made = not interpreter.made or is_json(value)
    # What jmespath's functions raise is up to their arguments: ceil() of infinity, [::0], ...
    except (JMESPathError, RecursionError, ValueError, TypeError, ArithmeticError) as e:
        if isinstance(e, ReferenceError_):
            raise
        raise ReferenceError_(shortened(" ".join(str(e).split()), 400)) from e
    if not made:
        raise ReferenceError_("gives what is no JSON, or is nested too deep")
    return value


class _Interpreter(TreeInterpreter):
    """Counts what it does, and measures what it makes."""

    def __init__(self, bound: Bound, result: Json) -> None:
        super().__init__()
        self._functions = _Functions(bound, result)
        self._bound, self._result = bound, result
        self.made = False
        """Whether anything was put together."""

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._bound.spend(1)
        value = super().visit(node, *args, **kwargs)
        if node["type"] not in _PICKS:
            self.made = True
            if isinstance(value, (list, dict)):
                self._bound.spend(len(value))
            self._bound.check(self._bound.size(value), self._result)
        return value

    def visit_comparator(self, node: Any, value: Any) -> Any:
        for child in node["children"]:
            self._bound.spend(self._bound.size(self.visit(child, value)) >> 8)
        return super().visit_comparator(node, value)


class _Functions(Functions):
    """jmespath's own, each charged for what it goes through."""

    def __init__(self, bound: Bound, result: Json) -> None:
        self._bound, self._result = bound, result

    def call_function(self, function_name: str, resolved_args: Iterable[Any]) -> Any:
        given = list(resolved_args)
        sizes = list(map(self._bound.size, given))
        self._bound.spend(sum(sizes) >> 8)
        if function_name == "join" and len(given) == 2 and isinstance(given[1], list):
            self._bound.check(sizes[0] * len(given[1]), self._result)
        return super().call_function(function_name, given)
