"""The one reader of JSON and YAML that come from outside: files, models, servers, people.

It takes what is JSON and nothing else: UTF-8, one document, no key twice, no NaN, no number that a
double cannot hold, no endless digits, a bounded depth and size. The C parser of the standard
library reads; only where it finds something wrong is the text gone through again for the place. A
YAML file must say what JSON could: mappings with text as keys, lists, text, numbers, true, false
and null. What aliases repeat is counted, so that nine lines are no gigabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from sys import float_info
from typing import Any, NoReturn

from agentlab.base.documents import DEPTH
from agentlab.errors import JsonError

DIGITS = 400
"""Characters of a number."""

SIZE = 1 << 28
"""Characters of a text."""

NODES = 200_000
"""Values in a YAML file, with those that its aliases repeat."""

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?|[][{},]|-?(?:\d[\d.eE+-]*|Infinity)|NaN', re.DOTALL
)
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
_NESTED = re.compile(rf"(?:[\[{{]\s*){{{DEPTH + 1}}}")
_ONLY_YAML = {
    "timestamp": "put this in quotes: YAML takes it for a date",
    "value": "put this in quotes",
    "merge": "'<<' is not read here",
    "seq": "expected text as a key, got a list",
    "map": "expected text as a key, got a mapping",
}
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
    except _Wrong:
        raise next(all_problems(text, depth)) from None
    if text.count("[") + text.count("{") > depth and _is_deeper(value, depth):
        raise next(all_problems(text, depth))
    return value


def read_file(path: str | Path, problem: type[Exception]) -> str:
    """Return a file's text; what cannot be read is ``problem``, which names the file."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            text = file.read(SIZE + 1)
    except (OSError, ValueError) as e:
        raise problem(f"{path}: cannot be read: {e}") from e
    if len(text) > SIZE:
        raise problem(f"{path}: cannot be read: more than {SIZE:,} characters")
    return text


def read_json_file(path: str | Path, problem: type[Exception]) -> Any:
    """Return the value of a JSON file; what is wrong is ``problem``, which names the file."""
    try:
        return read_json(read_file(path, problem))
    except JsonError as e:
        raise problem(f"{path}: not JSON: {e}") from e


class _Wrong(Exception):
    """The parser met what JSON does not allow; ``all_problems`` says what and where."""


def _refuse(word: str) -> NoReturn:
    raise _Wrong


def _float(word: str) -> float:
    return float(word) if not _number_problem(word) else _refuse(word)


def _int(word: str) -> int:
    return int(word) if len(word) < 300 or not _number_problem(word) else _refuse(word)


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(items)
    return known if len(known) == len(items) else _refuse("")


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
            problem = f"the key {key[:60]!r} is given twice" if key in keys[-1] else None
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

    if _NESTED.search(text):  # the scanner would need seconds for it
        raise JsonError(_TOO_DEEP.format(DEPTH))
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _Yaml(yaml.SafeLoader("")).value(node, DEPTH)
    except yaml.MarkedYAMLError as e:
        own = isinstance(e, (yaml.scanner.ScannerError, yaml.parser.ParserError))
        problem = e.problem if own else "an unknown alias, or an anchor twice"
        raise JsonError(f"{problem}{_line(e.problem_mark)}") from None
    except yaml.YAMLError as e:
        raise JsonError(" ".join(str(e).split())) from None
    except RecursionError:
        raise JsonError(_TOO_DEEP.format(DEPTH)) from None


class _Yaml:
    """Turns the nodes of one document into values, and counts them."""

    def __init__(self, loader: Any) -> None:
        self._loader, self._left = loader, NODES

    def value(self, node: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth < 0:
            too_deep = _TOO_DEEP.format(DEPTH)
            raise JsonError(too_deep if depth < 0 else f"more than {NODES:,} values")
        kind = node.tag.rpartition(":")[2]
        if kind == "seq" and isinstance(node.value, list):
            return [self.value(inner, depth - 1) for inner in node.value]
        if kind == "map" and isinstance(node.value, list):
            return self._mapping(node, depth - 1)
        return self._scalar(node, kind)

    def _mapping(self, node: Any, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, inner in node.value:
            key = self._scalar(key_node, key_node.tag.rpartition(":")[2])
            if key in found:
                raise JsonError(f"the key {key!r} is given twice{_line(key_node.start_mark)}")
            found[key] = self.value(inner, depth)
        return found

    def _scalar(self, node: Any, kind: str) -> Any:
        """Return text, number, true, false or null; what only YAML knows is text or refused."""
        if not node.tag.startswith("tag:yaml.org,2002:"):
            kind = ""
        if kind == "str":
            return node.value
        if kind not in ("int", "float", "bool", "null"):
            raise JsonError(
                f"{_ONLY_YAML.get(kind, 'a tag that is not read here')}{_line(node.start_mark)}"
            )
        try:
            made = getattr(self._loader, f"construct_yaml_{kind}")(node)
            if made is None or (len(node.value) <= DIGITS and abs(made) <= float_info.max):
                return made
        except (ValueError, LookupError, OverflowError):
            pass
        raise JsonError(f"this is no {kind} that is read here{_line(node.start_mark)}")


def _line(mark: Any) -> str:
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
