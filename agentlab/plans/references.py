"""Data flow between steps: ``${STEP.PATH}`` in a parameter string.

STEP is a step id (or an index, rewritten to the id when the plan is parsed) and PATH a JMESPath
into that step's result; ``${STEP}`` alone is the whole result. A string that is one whole
reference keeps the value's type; inside longer text the value is interpolated. ``$${`` stands for
a literal ``${``. The scanner matches braces and skips quoted text, since JMESPath uses both. What
is substituted is never scanned again. A null does not resolve, and no more is evaluated or put in
than is sensible (see ``agentlab.plans.paths``): references are written by models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from agentlab.base.documents import Json, canonical, shortened
from agentlab.errors import ReferenceError_

if TYPE_CHECKING:
    from agentlab.plans.paths import Bound

STEP_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_HEAD = re.compile(r"([0-9]+|[A-Za-z_][A-Za-z0-9_-]*)")


@dataclass(frozen=True, slots=True)
class Reference:
    """One ``${step.path}``."""

    step: str
    """Step id, or an index as digits."""
    path: str
    """JMESPath into the result; empty: all of it."""

    def __str__(self) -> str:
        dot = "" if not self.path or self.path.startswith("[") else "."
        return f"${{{self.step}{dot}{self.path}}}"


Part = str | Reference

REPEATS = 4
"""How often the results that a value refers to may be put in, on average, if they are large."""

_REMEMBERED = 10_000
"""Characters of a text whose parts are remembered: an endless one must not stay in memory."""


def parse(text: str) -> tuple[Part, ...]:
    """Split a parameter string into literal text and references.

    Raises
    ------
    ReferenceError_
        A reference has no closing brace, no step, or a path that is no JMESPath.

    Examples
    --------
    >>> parse("to ${find.flights[0].id}, $${5}")
    ('to ', Reference(step='find', path='flights[0].id'), ', ${5}')
    """
    return _remembered(text) if len(text) < _REMEMBERED else tuple(_scanned(text))


@lru_cache(maxsize=8192)
def _remembered(text: str) -> tuple[Part, ...]:
    return tuple(_scanned(text))


def _scanned(text: str) -> Iterator[Part]:
    literal: list[str] = []
    position, empty = 0, True
    while (start := text.find("${", position)) >= 0:
        if start > 0 and text[start - 1] == "$" and start - 1 >= position:
            literal.append(text[position : start - 1] + "${")
            position = start + 2
            continue
        literal.append(text[position:start])
        end = _closing(text, start + 2)
        if before := "".join(literal):
            yield before
        literal, empty = [], False
        yield _reference(text[start + 2 : end], text)
        position = end + 1
    literal.append(text[position:])
    last = "".join(literal)
    if last or empty:
        yield last


def _closing(text: str, position: int) -> int:
    depth, quote = 1, ""
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"`":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise ReferenceError_(
        f"{_quoted(text)}: '${{' without its '}}'; write '$${{' for a literal '${{'"
    )


def _reference(inside: str, text: str) -> Reference:
    inside = inside.strip()
    head = _HEAD.match(inside)
    rest = inside[head.end() :] if head else ""
    if head is None or (rest and rest[0] not in ".["):
        raise ReferenceError_(
            f"{_quoted(text)}: expected '${{STEP.PATH}}' with a step id or index, "
            f"got '${{{shortened(inside, 100)}}}'"
        )
    path = rest[1:] if rest.startswith(".") else rest
    if path or rest:
        from agentlab.plans.paths import compile_path

        try:
            compile_path(path)
        except ReferenceError_ as e:
            raise ReferenceError_(f"{_quoted(text)}: {e}") from e
    return Reference(head.group(), path)


def _quoted(text: str) -> str:
    return shortened(repr(text), 400)


def references(value: Json) -> Iterator[Reference]:
    """Yield every reference in a parameter value, in order of appearance."""
    if isinstance(value, str):
        if "${" in value:
            yield from (part for part in parse(value) if isinstance(part, Reference))
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from references(item)


def rename(value: Json, new_name: Callable[[str], str]) -> Json:
    """Return ``value`` with the step of every reference renamed.

    Examples
    --------
    >>> rename({"id": "${0.a} $${0}"}, lambda step: "find" if step == "0" else step)
    {'id': '${find.a} $${0}'}
    """

    def renamed(text: str) -> str:
        return "".join(
            str(Reference(new_name(p.step), p.path))
            if isinstance(p, Reference)
            else p.replace("${", "$${")
            for p in parse(text)
        )

    return _mapped(value, renamed)


def _mapped(value: Json, change: Callable[[str], Json]) -> Json:
    """Return ``value`` with every text in it changed that may hold a reference."""
    if isinstance(value, str):
        return change(value) if "${" in value else value
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return value


def resolve(value: Json, results: Mapping[str, Json]) -> Json:
    """Return ``value`` with every reference replaced by what it points to.

    Parameters
    ----------
    value : JSON
        Parameters of a step, or an answer template.
    results : mapping
        Step id to completed result.

    Raises
    ------
    ReferenceError_
        A step has no result, or its path gives null: the message lists the keys that exist. Or
        what is referred to takes too much work or space.
    """
    from agentlab.plans.paths import Bound

    bound, used, size, waiting = Bound(), dict[str, Json](), 0, list[Json]()

    def found(reference: Reference) -> Json:
        nonlocal size
        value = lookup(reference, results, bound)
        used[reference.step] = results[reference.step]
        waiting.append(value)
        if size or len(waiting) > REPEATS:  # fewer are never too much
            size += sum(map(bound.size, waiting))
            waiting.clear()
            try:
                bound.check(size, list(used.values()), REPEATS)
            except ReferenceError_ as e:
                raise ReferenceError_(f"{_told(reference)}, with those before it, {e}") from e
        return value

    def resolved(text: str) -> Json:
        parts = parse(text)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return found(parts[0])
        return "".join(_text(found(p)) if isinstance(p, Reference) else p for p in parts)

    return _mapped(value, resolved)


def lookup(reference: Reference, results: Mapping[str, Json], bound: Bound | None = None) -> Json:
    """Return the value a reference points to (see ``resolve``)."""
    if reference.step not in results:
        have = shortened(", ".join(sorted(results)) or "none", 400)
        raise ReferenceError_(
            f"{_told(reference)} does not resolve: step {shortened(reference.step, 100)!r} has no "
            f"result; steps with a result: {have}"
        )
    result = results[reference.step]
    if not reference.path:
        value = result
    elif reference.path.isidentifier():  # by far the most
        value = result.get(reference.path) if isinstance(result, dict) else None
    else:
        from agentlab.plans.paths import evaluate

        try:
            value = evaluate(reference.path, result, bound)
        except ReferenceError_ as e:
            raise ReferenceError_(f"{_told(reference)} does not resolve: {e}") from e
    if value is None:
        raise ReferenceError_(f"{_told(reference)} does not resolve: {_shape(result)}")
    return value


def _told(reference: Reference) -> str:
    return shortened(str(reference), 200)


def _shape(result: Json) -> str:
    if isinstance(result, dict):
        return f"the result has the keys {shortened(', '.join(sorted(result)) or 'none', 400)}"
    if isinstance(result, list):
        return f"the result is a list of {len(result)}"
    return f"the result is {shortened(str(result), 60)!r}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical(value)
