"""What tells a user's object from another: its class, the source of that, and its settings.

A cell is found again by the key of its arm, so the key of an object must be the same in every
process. Pickled bytes are not. What is taken instead:

- of a class of the user's its qualified name, its text, and its bases; of one of ours or of an
  installed package its name (our code has a fingerprint of its own);
- of a function its text, its defaults and what it closes over;
- of both, the user's functions, classes and constants that the code refers to by name;
- of an object its class and its attributes, or what its method ``arm_key()`` returns.

Where no text is at hand (``python -c``) the compiled code stands for it. Text is read line by line
from ``linecache``, where notebooks put that of their cells: so a cell that is run again unchanged
makes the same class again. What cannot be written so (a lock, an open file) is told by its type
alone, and ``unclear`` says where it was met; such an object needs a name.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import re
import site
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path, PurePath
from sys import modules
from textwrap import dedent
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from agentlab.base.documents import Json, canonical

CHANGES = frozenset({"append", "add", "extend", "insert", "pop", "update", "setdefault", "clear"})
"""Methods by which a list, map or set is changed."""


class Described:
    """An object as JSON that is the same in every process.

    Attributes
    ----------
    json : Json
    unclear : list of str
        Where something was met that cannot be written.
    """

    def __init__(self, value: Any) -> None:
        self.unclear: list[str] = []
        self._met: dict[int, tuple[int, Any]] = {}
        self.json = self._of(value, "")

    def _of(self, value: Any, where: str) -> Json:
        if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
            return value
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, (bytes, PurePath, complex)):
            return [type(value).__name__, str(value)]
        if id(value) in self._met:
            return {"again": self._met[id(value)][0]}
        self._met[id(value)] = (len(self._met), value)  # held, so that no id is given twice
        return self._composed(value, where)

    def _composed(self, value: Any, where: str) -> Json:
        if isinstance(value, Enum):
            return [_qualified(type(value)), value.name]
        if isinstance(value, (set, frozenset)):
            return ["set", *sorted((self._of(v, where) for v in value), key=canonical)]
        if isinstance(value, Mapping):
            return ["map", *([self._of(k, where), self._of(v, f"{where}[{k!r}]")]
                             for k, v in value.items())]  # fmt: skip
        if isinstance(value, Sequence):
            return [type(value).__name__, *self._each(value, where)]
        if isinstance(value, type):
            return self._class(value, where)
        if isinstance(value, FunctionType):
            return self._function(value, where)
        if isinstance(value, MethodType):
            return [self._of(value.__self__, where), self._of(value.__func__, where)]
        if isinstance(value, partial):
            parts = (value.func, value.args, value.keywords)
            return ["partial", *self._each(parts, where)]
        if isinstance(value, re.Pattern):
            return ["pattern", value.pattern, value.flags]
        if isinstance(value, CodeType):
            return self._code(value, where)
        if isinstance(value, ModuleType) or inspect.isbuiltin(value):
            return [type(value).__name__, _qualified(value)]
        return self._object(value, where)

    def _each(self, values: Iterable[Any], where: str) -> list[Json]:
        return [self._of(v, f"{where}[{n}]") for n, v in enumerate(values)]

    def _object(self, value: Any, where: str) -> Json:
        kind = self._of(type(value), where)
        own = getattr(value, "arm_key", None)
        if callable(own):
            return {"of": kind, "key": self._of(own(), f"{where}.arm_key()")}
        held = settings(value)
        if held is None or not (is_users(type(value)) or _is_ours(type(value))):
            self.unclear.append(f"{where.lstrip('.') or 'it'} ({_qualified(type(value))})")
            return {"of": kind}
        return {"of": kind, "settings": {k: self._of(v, f"{where}.{k}") for k, v in held.items()}}

    def _class(self, value: type, where: str) -> Json:
        if not is_users(value):
            return {"class": _qualified(value)}
        parts = [f for v in vars(value).values() for f in _functions(v)]
        text = class_text(value)
        written: Json = text
        if text is None:
            fields = {
                k: v for k, v in vars(value).items()
                if not k.startswith("_") and not any(True for _ in _functions(v))
            }  # fmt: skip
            written = [[k, self._of(v, f"{where}.{k}")] for k, v in fields.items()]
            written += [self._of(f, where) for f in parts]
        return {
            "class": value.__qualname__,
            "source": written,
            "bases": [self._of(b, where) for b in value.__bases__],
            "uses": [self._uses(f, where) for f in parts],
        }

    def _function(self, value: FunctionType, where: str) -> Json:
        if not is_users(value):
            called: dict[str, Json] = {"function": _qualified(value)}
        else:
            called = {"function": value.__qualname__, "source": self._text(value, where)}
        return {**called, **self._uses(value, where)}

    def _text(self, value: FunctionType, where: str) -> Json:
        text = function_text(value.__code__)
        if text is None:
            return self._code(value.__code__, where)
        if value.__name__ != "<lambda>":
            return text
        # Two lambdas may stand in one line, and then only the compiled code tells them apart.
        return [text, self._code(value.__code__, where)]

    def _code(self, code: CodeType, where: str) -> Json:
        return [code.co_code.hex(), list(code.co_names), self._each(code.co_consts, where)]

    def _uses(self, value: FunctionType, where: str) -> dict[str, Json]:
        """Return defaults, what is closed over, and the user's own that is referred to by name."""
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        held: dict[str, Any] = {}
        for name, cell in cells.items():
            try:
                held[name] = cell.cell_contents
            except ValueError:  # not assigned yet: a function that is defined further down
                continue
        held.pop("__class__", None)
        used = {**_globals(value), **held} if is_users(value) else held
        defaults = (value.__defaults__, value.__kwdefaults__)
        return {
            "defaults": self._each(defaults, f"{where}: defaults of {value.__name__}"),
            "uses": [[k, self._of(used[k], f"{where}: {k}")] for k in sorted(used)],
        }


def settings(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, without what it computed and kept; None: it hides them.

    ``functools.cached_property`` keeps its value among the attributes.
    """
    slots = [s for c in type(value).__mro__ for s in _listed(vars(c).get("__slots__", ()))]
    held = {s: getattr(value, s) for s in slots if not s.startswith("__") and hasattr(value, s)}
    if hasattr(value, "__dict__"):
        held |= vars(value)
    elif not slots and type(value).__module__ != "__main__" and not is_users(type(value)):
        return None
    kept = {n for c in type(value).__mro__ for n, v in vars(c).items()
            if isinstance(v, cached_property)}  # fmt: skip
    return {k: held[k] for k in sorted(held) if k not in kept}


def _listed(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


# ---- the user's own --------------------------------------------------------------------------


def is_users(thing: Any) -> bool:
    """Return whether a class or function was written by the user and is not installed."""
    name = str(getattr(thing, "__module__", None) or "__main__")
    if name.partition(".")[0] in ("agentlab", "builtins"):
        return False
    file = getattr(modules.get(name), "__file__", None)
    if file is None:  # of a notebook, or of no module at all
        return name not in modules or name == "__main__" or not _is_built_in(name)
    return not any(Path(file).is_relative_to(folder) for folder in _installed())


def _is_built_in(name: str) -> bool:
    spec = getattr(modules.get(name), "__spec__", None)
    return spec is not None and spec.origin in ("built-in", "frozen")


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "agentlab"


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(sorted({*folders, *site.getsitepackages(), site.getusersitepackages()}))


def _qualified(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", repr(type(thing)))
    return f"{getattr(thing, '__module__', None) or ''}.{name}".lstrip(".")


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield the functions that an entry of a class stands for."""
    if isinstance(value, property):
        found = (value.fget, value.fset, value.fdel)
    else:
        found = (getattr(value, "__func__", getattr(value, "func", value)), None, None)
    yield from (f for f in found if isinstance(f, FunctionType))


def _globals(function: FunctionType) -> dict[str, Any]:
    """Return what of the user's own a function refers to by name: functions, classes, constants.

    What the function itself assigns or adds to counts what happens, and is no setting.
    """
    found: dict[str, Any] = {}
    changed = set()
    for code in _codes(function.__code__):
        steps = list(dis.get_instructions(code))
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in function.__globals__:
                found[step.argval] = function.__globals__[step.argval]
                if after is not None and after.argval in CHANGES:
                    changed.add(step.argval)
            elif step.opname == "STORE_GLOBAL":
                changed.add(step.argval)
        if any(step.opname == "STORE_SUBSCR" for step in steps):
            changed |= {k for k, v in found.items() if isinstance(v, (list, dict))}
    return {k: v for k, v in found.items() if k not in changed and _counts(v)}


def _counts(value: Any) -> bool:
    if isinstance(value, (type, FunctionType)):
        return is_users(value)
    constant = (bool, int, float, str, bytes, tuple, frozenset, Enum, list, dict, set)
    return isinstance(value, constant)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


# ---- text ------------------------------------------------------------------------------------


def function_text(code: CodeType) -> str | None:
    """Return the source of a function, or None where there is none."""
    lines = linecache.getlines(code.co_filename)
    if not 0 < code.co_firstlineno <= len(lines):
        return None
    return dedent("".join(inspect.getblock(lines[code.co_firstlineno - 1 :])))


def class_text(value: type) -> str | None:
    """Return the source of a class, or None where there is none.

    ``inspect.getsource`` looks for a file of the module, and that of a notebook has none; here a
    method says where its lines are.
    """
    methods = [f for v in vars(value).values() for f in _functions(v)]
    for code in (
        m.__code__ for m in methods if m.__qualname__ == f"{value.__qualname__}.{m.__name__}"
    ):
        lines = linecache.getlines(code.co_filename)
        found = _class_node("".join(lines), value.__name__, code.co_firstlineno)
        if found is not None:
            first = min([found.lineno, *(d.lineno for d in found.decorator_list)])
            return dedent("".join(lines[first - 1 : found.end_lineno]))
    return None


@cache
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:  # a cell with a line of the notebook's own, such as %time
        return None


def _class_node(text: str, name: str, line: int) -> ast.ClassDef | None:
    """Return the innermost class of that name around a line."""
    tree = _tree(text)
    around = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.ClassDef)
        and node.name == name
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


# ---- what it is called -----------------------------------------------------------------------


def name_of(value: Any) -> str | None:
    """Return the name that an object bears, or None."""
    name = getattr(value, "name", None)
    return name if isinstance(name, str) and name else None


def label_of(value: Any) -> str:
    """Return what an object is called in results: its name or class, and how it was made.

    Arguments of its class that it keeps as attributes of the same name are shown where they are not
    the defaults.
    """
    name = name_of(value)
    if _is_ours(type(value)) and name is not None:
        return name
    shown = ", ".join(f"{k}={v!r}" for k, v in _arguments(value))
    return f"{name or type(value).__name__}{f'({shown})' if shown else ''}"


def _arguments(value: Any) -> Iterator[tuple[str, Json]]:
    """Yield the arguments that an object was made with as far as it shows them."""
    held = settings(value) or {}
    try:
        parameters = inspect.signature(type(value)).parameters.values()
    except (TypeError, ValueError):
        return
    for p in parameters:
        found = held.get(p.name, held.get(f"_{p.name}"))
        if isinstance(found, (bool, int, float, str)) and found != p.default:
            yield p.name, found
