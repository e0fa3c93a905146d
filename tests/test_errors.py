"""The exception tree, its messages, and errors that cross processes."""

from __future__ import annotations

import ast
import builtins
import inspect
import pickle
import re
from pathlib import Path

import pytest

import agentlab
from agentlab import errors
from agentlab.errors import (
    AgentLabError,
    LMError,
    PlanParseError,
    ToolFailure,
    UnknownNameError,
    seen,
    suggest,
)

CLASSES = {
    name: cls
    for name, cls in vars(errors).items()
    if inspect.isclass(cls) and issubclass(cls, Exception)
}


def drawn_tree() -> dict[str, str]:
    """Child to parent as the module's docstring draws it."""
    parents, stack = {}, []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^([│├└─ ]*)([A-Za-z]+_?)(?:  .*)?$", line)
        if not found or found[2] not in CLASSES:
            continue
        depth = len(found[1]) // 4
        stack[depth:] = [found[2]]
        if depth:
            parents[found[2]] = stack[depth - 1]
    return parents


def test_the_tree_is_as_drawn():
    actual = {
        name: next(b.__name__ for b in cls.__bases__ if issubclass(b, AgentLabError))
        for name, cls in CLASSES.items()
        if cls is not AgentLabError
    }
    assert drawn_tree() == actual


def test_every_error_of_the_package_has_one_root():
    """Classes made from a builtin exception alone, but for private ones that nobody sees."""
    strays = []
    for path in Path(agentlab.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
                builtin = [
                    b
                    for b in bases
                    if inspect.isclass(found := getattr(builtins, b, None))
                    and issubclass(found, BaseException)
                ]
                if builtin and builtin == bases:
                    strays.append(f"{path.name}: {node.name}")
    assert strays == ["errors.py: AgentLabError"]


@pytest.mark.parametrize("cls", CLASSES.values(), ids=list(CLASSES))
def test_errors_cross_processes(cls):
    """A worker's error is pickled on its way to the parent: nothing may be lost."""
    arguments = {
        UnknownNameError: ("planner", "serach", ["search", "reference"], "arms.yaml"),
        PlanParseError: (["step 'a': cyclic", "step 'b': dangling"],),
        ToolFailure: ("sold out", "sold_out", True),
    }.get(cls, ("what went wrong",))
    named = {}
    if issubclass(cls, LMError):
        named = {"model": "m", "status": 429, "retry_after": 1.5, "partial": "so far"}
    error = cls(*arguments, **named)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_messages():
    unknown = UnknownNameError("planner", "serach", ["search", "reference"], where="arms.yaml")
    assert str(unknown) == (
        "arms.yaml: unknown planner 'serach'; did you mean 'search'? known: reference, search"
    )
    assert unknown.known == ("reference", "search")
    assert isinstance(unknown, LookupError)
    assert str(PlanParseError(["one", "two"])) == "not a valid plan: one; two"
    assert str(ToolFailure("sold out")) == "sold out"


def test_suggest():
    assert suggest("zzz", ["search"]) == "known: search"
    assert suggest("search", []) == "known: none"
    many = [f"name{i:02d}" for i in range(40)]
    assert suggest("name07", reversed(many)).startswith("did you mean 'name07'? known: name00, ")
    assert suggest("zzz", many).endswith("name29, ...")


@pytest.mark.parametrize("name", [3, None, ("a", "b"), 2.5, [object]])
def test_a_name_that_is_no_text_is_told_too(name):
    told = "[the class object]" if name == [object] else repr(name)
    assert told in str(UnknownNameError("session", name, ["a", "b"]))


def test_of_an_object_its_kind_alone_is_told():
    class Endpoint:
        def __repr__(self):
            return "Endpoint(key='hunter2')"

    assert "an Endpoint" in str(UnknownNameError("session", Endpoint(), ["a", "b"]))
    assert seen({"one": [Endpoint()]}) == "{'one': [an Endpoint]}"
