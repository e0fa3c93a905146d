"""What pydantic found wrong with a record, in our words: field, what was expected, what arrived.

One line, whatever the record; an unknown field or name comes with the nearest known one, and what
may be a secret is told by its type alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from agentlab.base.arrived import seen
from agentlab.errors import suggest

MOST = 5
"""Problems that are told; of more, only how many they are."""

_TOLD = {
    "missing": "is missing",
    "enum": "expected one of the known names",
    "literal_error": "expected one of the known names",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "frozen_set_type": "expected a set or a list",
    "dict_type": "expected a dict",
    "callable_type": "expected a function",
    "unexpected_positional_argument": "is one value too many",
}
_CLASSES = {"PersistentVector": "a list", "PersistentMap": "a dict", "str": "text"}
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_WORDS = (
    (re.compile(r"^(Value|Assertion) error, "), ""),
    (re.compile(r"^Input should be (greater|less) "), r"expected a number \1 "),
    (re.compile(r"^Input should (be|have) "), "expected "),
    (re.compile(r"^String should (be|have) "), "expected text of "),
    (re.compile(r"^String should match pattern "), "expected text that matches "),
    (re.compile(r"^\w+ should have "), "expected "),
    (re.compile(r" after validation, not \d+$"), ""),
    (re.compile(r"a valid dictionary or instance of (\w+)"), r"a \1 or a dict"),
    (re.compile(r", (unable to parse|got a number with) .*"), ""),
    (re.compile(r"a valid integer"), "a whole number"),
    (re.compile(r"a valid number"), "a number"),
    (re.compile(r"a valid string"), "text"),
    (re.compile(r"a valid boolean"), "true or false"),
    (re.compile(r"\ba (?=[AEIOU])"), "an "),
)


def explain(
    error: ValidationError, record: Any = None, *, show: bool = True, wire: bool = True,
    within: str = "",
) -> str:  # fmt: skip
    """Put a validation error into one line.

    Parameters
    ----------
    error : ValidationError
    record : type, optional
        What was to be made, so that the nearest field can be named.
    within : str
        The field that it was to be made for.
    show : bool
        False: say only of which type a value was, since it may be a secret.
    wire : bool
        False: spell fields as Python does.
    """
    told = problems(error, record, show=show, wire=wire, within=within)
    found = [f"field {text}" for text in told]
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return "; ".join([*found[:MOST], *more])


def problems(
    error: ValidationError, record: Any = None, *, show: bool = True, wire: bool = True,
    within: str = "",
) -> list[str]:  # fmt: skip
    """Return what is wrong, each with its place; the branches of a choice are one problem."""
    expected: dict[str, list[str]] = {}
    got: dict[str, str] = {}
    for item in sorted(error.errors(include_url=False), key=_rank):
        place, owner = _place(record, item["loc"], wire)
        place = ".".join(filter(None, (within, place))) or "(document)"
        expected.setdefault(place, []).append(_expected(item))
        got[place] = _got(item, owner, show and not _has_secrets(owner), wire)
    return [
        f"{place}: {' or '.join(dict.fromkeys(told)).replace(' or expected ', ' or ')}{got[place]}"
        for place, told in expected.items()
        if not any(inner.startswith(f"{place}.") for inner in expected)  # the choice that was meant
    ]


def _rank(item: Any) -> int:
    """Put unknown fields first and missing ones last: what is misspelt is missing, too."""
    return 0 if item["type"] in _UNKNOWN else 1 + (item["type"] == "missing")


def _expected(item: Any) -> str:
    text: str = _TOLD.get(item["type"], item["msg"])
    if item["type"] in _UNKNOWN:
        text = "is no field of it"
    elif item["type"] == "is_instance_of":
        name = item["ctx"]["class"]
        text = f"expected {_CLASSES.get(name, f'a {name}')}"
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _got(item: Any, owner: Any, show: bool, wire: bool) -> str:
    value = item["input"]
    said = item["type"] == "missing" or ", got " in item["msg"]
    told = "" if said else f", got {seen(value) if show else _type(value)}"
    if item["type"] in ("enum", "literal_error"):
        known = re.findall("'([^']*)'", item["ctx"]["expected"])
        return f"{told}; {suggest(value if show and isinstance(value, str) else '', known)}"
    fields = _fields(owner)
    if item["type"] in _UNKNOWN and fields:
        name = str(item["loc"][-1])
        spelled = wire and "_" not in name
        known = [f.alias or n if spelled else n for n, f in fields.items()]
        return f"{told}; {suggest(name, known)}"
    return told


def _type(value: Any) -> str:
    return type(value).__name__


def _fields(record: Any) -> dict[str, Any]:
    if isinstance(record, type) and issubclass(record, BaseModel):
        return record.model_fields
    return getattr(record, "__pydantic_fields__", {})


def _has_secrets(record: Any) -> bool:
    return any(f.exclude for f in _fields(record).values())


def _place(record: Any, path: tuple[str | int, ...], wire: bool) -> tuple[str, Any]:
    """Return a place in a record as text, and the record that it is a field of."""
    parts: list[str] = []
    kind, owner = record, record
    for part in path:
        choices = [c for c in _choices(kind) if c is not type(None)]
        if len(choices) > 1:  # the part says which choice was tried, and is no place
            kind = next((c for c in choices if getattr(c, "__name__", "") == part), None)
            continue
        kind = next(iter(choices), None)
        if fields := _fields(kind):
            owner = kind
            name, kind = _field(fields, part)
            parts.append(str(part) if wire and isinstance(part, str) else name)
        elif part != "[key]":
            parts.append(str(part))
            kind = next(iter([*get_args(kind)][-1 if isinstance(part, str) else 0 :]), None)
    return ".".join(parts), owner


def _choices(kind: Any) -> Iterator[Any]:
    """Yield what a type may be, without what is annotated about it."""
    if get_origin(kind) is Annotated:
        yield from _choices(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for choice in get_args(kind):
            yield from _choices(choice)
    else:
        yield kind


def _field(fields: dict[str, Any], part: str | int) -> tuple[str, Any]:
    """Return the name and type of a field by its name, alias or position."""
    for position, (name, field) in enumerate(fields.items()):
        if part in (name, field.alias, position):
            return name, field.annotation
    return str(part), None
