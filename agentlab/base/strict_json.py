"""The one reader of JSON and YAML that come from outside: files, models, servers, people.

It takes what is JSON and nothing else: UTF-8, one document, no key twice, no NaN, no number that a
double cannot hold, no endless digits, a bounded depth and size. The C parser of the standard
library reads; only where it finds something wrong is the text gone through again for the place. A
YAML file must say what JSON could: mappings with text as keys, lists, text, numbers, true, false
and null. What aliases repeat is counted, so that nine lines are no gigabytes, and a number that
other readers of YAML take for another one (010, 1:30) is refused.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from sys import float_info
from typing import Any, NoReturn

from agentlab.base.documents import DEPTH
from agentlab.base.files import DOCUMENT, SIZE, read_file, shown
from agentlab.errors import JsonError, seen

DIGITS = 400
"""Characters of a number."""

PLACED = 1 << 20
"""Characters of a text that is gone through again for the place of what is wrong in it."""

NODES = 200_000
"""Values in a YAML file, with those that its aliases repeat."""

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?|[][{},]|'
    r"-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|Infinity)|NaN",
    re.DOTALL,
)
"""A number ends where the parser's does: it may have met one in what goes on as no number."""
_WORDS = {
    "Expecting value": "expected a value",
    "Expecting property name": "expected a key in double quotes",
    "Expecting ',' delimiter": "expected a comma or the end",
    "Expecting ':' delimiter": "expected a colon after the key",
    "Extra data": "there is more after the document",
    "Unterminated string": "a text without an end",
    "Invalid control character": "a control character in a text",
    "Invalid \\": "an escape that JSON does not know",
    "Illegal trailing comma": "a comma before the end",
}
_TAG = "tag:yaml.org,2002:"
_ONLY_YAML = {
    "timestamp": "put this in quotes: YAML takes it for a date",
    "value": "put this in quotes",
    "merge": "'<<' is not read here",
}
_READ_OTHERWISE = re.compile(r"[-+]?(0[0-7_]+$|[0-9_]+:)")
_ODD_NUMBER = "put this in quotes: YAML takes it for a number of base 8 or 60"
_TOO_DEEP = "nested more than {} levels deep"


def read_json(text: str | bytes, *, depth: int = DEPTH, size: int = SIZE) -> Any:
    """Return the value of a JSON document.

    Parameters
    ----------
    text : str or bytes
        Bytes are UTF-8.
    depth, size : int
        Levels of lists and objects, and characters, that are read at most.

    Raises
    ------
    JsonError
        Says what is wrong, where in the text, and where in the document.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as e:
            raise JsonError(f"byte {e.start} is no UTF-8") from e
    if not isinstance(text, str):
        raise JsonError(f"expected JSON text, got {type(text).__name__}")
    if len(text) > size:
        raise JsonError(f"{len(text):,} characters, more than the {size:,} that are read")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as e:
        reason = next((w for m, w in _WORDS.items() if e.msg.startswith(m)), e.msg)
        raise _error(text, e.pos, reason) from None
    except RecursionError:
        raise JsonError(_TOO_DEEP.format(depth)) from None
    except _Wrong as e:
        raise _placed(text, depth, str(e)) from None
    if text.count("[") + text.count("{") > depth and _is_deeper(value, depth):
        raise _placed(text, depth, _TOO_DEEP.format(depth))
    return value


def read_json_file(path: str | Path, problem: type[Exception], *, stdin: bool = False) -> Any:
    """Return the value of a JSON file; what is wrong is ``problem``, which names the file."""
    text = read_file(path, problem, DOCUMENT, stdin=stdin)
    try:
        return read_json(text)
    except JsonError as e:
        raise problem(f"{shown(path)}: not JSON: {e}") from e


class _Wrong(Exception):
    """The parser met what JSON does not allow; ``all_problems`` says what and where."""


def _placed(text: str, depth: int, problem: str) -> JsonError:
    """Return the first problem with its place, which is looked for where that takes no time."""
    unplaced = JsonError(problem)
    return next(all_problems(text, depth), unplaced) if len(text) <= PLACED else unplaced


def _refuse(word: str) -> NoReturn:
    raise _Wrong(_number_problem(word))


def _float(word: str) -> float:
    return float(word) if not _number_problem(word) else _refuse(word)


def _int(word: str) -> int:
    return int(word) if len(word) < 300 or not _number_problem(word) else _refuse(word)


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(items)
    if len(known) == len(items):
        return known
    twice = next(key for key, n in Counter(key for key, _ in items).items() if n > 1)
    raise _Wrong(_given_twice(twice))


def _given_twice(key: Any) -> str:
    return f"the key {seen(key)} is given twice"


_DECODER = json.JSONDecoder(
    parse_constant=_refuse, parse_float=_float, parse_int=_int, object_pairs_hook=_object
)


def _number_problem(word: str) -> str | None:
    if not word[-1].isdigit():
        return f"{word} is no JSON"
    if len(word) > DIGITS:
        return f"a number of {len(word):,} characters; at most {DIGITS} are read"
    if abs(float(word)) > float_info.max:
        return f"{word[:20]}{'…' * (len(word) > 20)} is no number that a double can hold"
    return None


def all_problems(text: str, depth: int = DEPTH) -> Iterator[JsonError]:
    """Yield what JSON allows, or would read, and we do not, in a text that is JSON up to there."""
    path: list[str | int] = []
    keys: list[set[str]] = []
    for token in _TOKEN.finditer(text):
        word, problem = token[0], None
        if word in ("[", "{"):
            if len(path) == depth:
                yield _error(text, token.start(), _TOO_DEEP.format(depth), path)
            path.append(0 if word == "[" else "")
            keys.append(set())
        elif word in ("]", "}"):
            del path[-1:], keys[-1:]
        elif word == ",":
            path[-1:] = [p + 1 if isinstance(p, int) else p for p in path[-1:]]
        elif token["colon"]:
            path[-1] = key = str(json.loads(word[: word.rindex('"') + 1], strict=False))
            problem = _given_twice(key) if key in keys[-1] else None
            keys[-1].add(key)
        elif word[0] != '"':
            problem = _number_problem(word)
        if problem:
            yield _error(text, token.start(), problem, path)


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [v for v in level if isinstance(v, (dict, list))]
        level = [x for v in level for x in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return False
    return any(isinstance(v, (dict, list)) for v in level)


def _error(text: str, at: int, reason: str, path: Iterable[str | int] = ()) -> JsonError:
    line, column = 1 + text.count("\n", 0, at), at - text.rfind("\n", 0, at)
    place = f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"
    return JsonError(f"{reason} ({place})", tuple(path))


# ---- YAML ------------------------------------------------------------------------------------


def read_yaml(text: str) -> Any:
    """Return the value of a YAML document that says what JSON could.

    Raises
    ------
    JsonError
        Says what is wrong and in which line; the line itself, which may hold a secret, is not
        quoted.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C: ten times as quick
    try:
        return _Yaml(yaml).document(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as e:
        if "nesting depth" in str(e.problem):
            raise JsonError(_TOO_DEEP.format(DEPTH)) from None
        mark = e.problem_mark  # at the end it stands in a line that is not there
        if mark is not None and mark.index >= len(text):
            raise _error(text, len(text), str(e.problem)) from None
        raise JsonError(f"{e.problem}{_line(mark)}") from None
    except yaml.YAMLError as e:
        raise JsonError(" ".join(str(e).split())) from None
    except UnicodeError:
        raise JsonError("half a surrogate pair, which no text holds") from None


class _Open:
    """A list or mapping whose end has not come yet."""

    def __init__(self, event: Any, before: int, *, mapping: bool) -> None:
        self.event, self.before = event, before
        self.value: Any = {} if mapping else []
        self.levels = 1
        self._key: Any = self
        """Of the value that comes next; the object itself: a key comes next."""

    def put(self, value: Any, levels: int, mark: Any) -> None:
        self.levels = max(self.levels, levels + 1)
        if isinstance(self.value, list):
            self.value.append(value)
        elif self._key is not self:
            self.value[self._key] = value
            self._key = self
        elif isinstance(value, (dict, list)):
            kind = "mapping" if isinstance(value, dict) else "list"
            raise JsonError(f"expected text as a key, got a {kind}{_line(mark)}")
        elif value in self.value:
            raise JsonError(f"{_given_twice(value)}{_line(mark)}")
        else:
            self._key = value


class _Yaml:
    """Turns the events of one document into its value, and counts what it holds.

    It goes by events and not by nodes, so that what is too deep or too much is refused before the
    parser has gone through the rest.
    """

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._loader = yaml.SafeLoader("")  # knows what a scalar stands for
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int] | None] = {}
        """Value, levels and number of values; None: its end has not come yet."""
        self._count = self._documents = 0
        self._value: Any = None

    def document(self, events: Iterable[Any]) -> Any:
        """Return the value; None: there is no document, or an empty one."""
        for event in events:
            match type(event).__name__:
                case "SequenceStartEvent" | "MappingStartEvent":
                    self._begin(event)
                case "SequenceEndEvent" | "MappingEndEvent":
                    done = self._open.pop()
                    self._put(done.event, done.value, done.levels, done.before)
                case "ScalarEvent":
                    self._put(event, self._scalar(event), 0, self._count)
                case "AliasEvent":
                    self._alias(event)
                case "DocumentStartEvent":
                    self._documents += 1
                    if self._documents > 1:
                        raise JsonError(f"there is a second document{_line(event.start_mark)}")
        return self._value

    def _begin(self, event: Any) -> None:
        mapping = isinstance(event, self._yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'map' if mapping else 'seq'}"):
            raise _refused(event.tag, event.start_mark)
        self._name(event, None)
        self._open.append(_Open(event, self._count, mapping=mapping))
        if len(self._open) > DEPTH:
            raise JsonError(_TOO_DEEP.format(DEPTH))

    def _put(self, event: Any, value: Any, levels: int, before: int) -> None:
        self._count += 1
        if levels == 0:
            self._name(event, (value, 0, 1))
        elif event.anchor is not None:
            self._anchors[event.anchor] = (value, levels, self._count - before)
        self._add(value, levels, event.start_mark)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise JsonError(f"an alias of nothing{_line(event.start_mark)}")
        named = self._anchors[event.anchor]
        if named is None:  # inside of what it stands for
            raise JsonError(_TOO_DEEP.format(DEPTH))
        value, levels, size = named
        self._count += size
        self._add(value, levels, event.start_mark)

    def _add(self, value: Any, levels: int, mark: Any) -> None:
        if self._count > NODES:
            raise JsonError(f"more than {NODES:,} values")
        if levels + len(self._open) > DEPTH:
            raise JsonError(_TOO_DEEP.format(DEPTH))
        if self._open:
            self._open[-1].put(value, levels, mark)
        else:
            self._value = value

    def _name(self, event: Any, named: tuple[Any, int, int] | None) -> None:
        if event.anchor is None:
            return
        if event.anchor in self._anchors:
            raise JsonError(f"an anchor twice{_line(event.start_mark)}")
        self._anchors[event.anchor] = named

    def _scalar(self, event: Any) -> Any:
        """Return text, number, true, false or null; what only YAML knows is text or refused."""
        tag = event.tag
        if tag in (None, "!"):
            tag = self._loader.resolve(self._yaml.ScalarNode, event.value, event.implicit)
        kind = tag.removeprefix(_TAG)
        if kind == "str":
            return event.value
        if kind not in ("int", "float", "bool", "null"):
            raise _refused(tag, event.start_mark)
        if kind in ("int", "float") and _READ_OTHERWISE.match(event.value):
            raise JsonError(f"{_ODD_NUMBER}{_line(event.start_mark)}")
        node = self._yaml.ScalarNode(tag, event.value)
        try:
            if len(event.value) <= DIGITS:
                made = getattr(self._loader, f"construct_yaml_{kind}")(node)
                if made is None or abs(made) <= float_info.max:
                    return made
        except (ValueError, LookupError, OverflowError):
            pass
        raise JsonError(f"this is no {kind} that is read here{_line(event.start_mark)}")


def _refused(tag: str, mark: Any) -> JsonError:
    told = _ONLY_YAML.get(tag.removeprefix(_TAG), "a tag that is not read here")
    return JsonError(f"{told}{_line(mark)}")


def _line(mark: Any) -> str:
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
