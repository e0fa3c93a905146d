"""The house of docs/house.md against the code: who may import whom, and what nobody may do.

Twelve rooms, one direction. A module imports from its own room or a lower one, and the imports have
no circle, inside a room neither. Imports for types count, and so do those inside functions. There
is one rule beside it, and no exception: a name that is looked up in the registry is a lazy
``"module:attribute"`` string, and may name what is higher. The public face,
``agentlab/__init__.py``, is lazy too and stands above all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

import agentlab

ROOT = Path(agentlab.__file__).parent

FLOORS = (
    ("errors", "version"), ("base",), ("tools",), ("plans",), ("environments",), ("lm",),
    ("state",), ("trace", "retrieval"), ("minds",), ("lab",), ("runs",), ("workflows",),
    ("study",), ("views",),
)  # fmt: skip
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
LOADERS = {"base.face", "base.registry"}
"""Who may import a module that a variable names."""


class Import(NamedTuple):
    importer: str
    imported: str
    line: int


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in PATHS.items()}
MODULES = sorted(m for m in TREES if m)


def ours(dotted: str) -> str | None:
    """The module of ours that a dotted name stands for, without "agentlab."."""
    if dotted == "agentlab":
        return ""
    inside = dotted.removeprefix("agentlab.")
    return inside if inside not in ("", dotted) and inside in TREES else None


def imports_of(module: str, tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        for name in _named(node):
            yield Import(module, name, getattr(node, "lineno", 0))


def _named(node: ast.AST) -> list[str]:
    """The modules of ours that one node imports, or names in a string that is no lazy name."""
    found: list[str | None] = []
    if isinstance(node, ast.Import):
        found = [ours(a.name) for a in node.names if a.name.split(".")[0] == "agentlab"]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: relative import; name the module in full"
        if (node.module or "").split(".")[0] == "agentlab":
            whole = [ours(f"{node.module}.{a.name}") for a in node.names]
            found = [ours(node.module or "") if name is None else name for name in whole]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = [ours(node.value)] if node.value.startswith("agentlab.") else []
    return [name for name in found if name is not None]


IMPORTS = [i for module in MODULES for i in imports_of(module, TREES[module])]


def room(module: str) -> str:
    return module.split(".")[0]


def problem(made: Import) -> str | None:
    """Why an import breaks the rule of the house, or None."""
    high, low = FLOOR[room(made.importer)], FLOOR[room(made.imported)]
    if low > high or (low == high and room(made.importer) != room(made.imported)):
        return f"{made.importer}, line {made.line}: {made.imported} is not on a lower floor"
    return None


def circles(imports: list[Import]) -> list[list[str]]:
    graph = nx.DiGraph((i.importer, i.imported) for i in imports)
    return [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1] + [
        [i.importer] for i in imports if i.importer == i.imported
    ]


def test_the_root_holds_rooms_and_little_else():
    names = {p.name for p in ROOT.iterdir()} - {"__pycache__", "_datasets"}
    assert names <= {"__init__.py", "errors.py", "version.py", "py.typed"} | set(FLOOR)
    assert {room(m) for m in MODULES} <= set(FLOOR)


def test_imports_go_down():
    assert [text for made in IMPORTS if made.imported and (text := problem(made))] == []


def test_no_module_imports_the_public_face():
    """``from agentlab import …`` inside the package would load whatever the name needs."""
    assert {f"{i.importer}, line {i.line}" for i in IMPORTS if i.imported == ""} == set()


def test_there_is_no_circle():
    assert circles(IMPORTS) == []


def test_a_module_named_by_a_variable_is_loaded_in_one_place():
    """Otherwise an import could go anywhere, unseen."""
    strays = [
        f"{module}, line {node.lineno}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        if module not in LOADERS and not isinstance(node.args[0], ast.Constant)
    ]
    assert strays == []


def test_the_statistics_know_nothing_of_ours():
    """design.md: arrays to numbers."""
    assert [i for i in IMPORTS if i.importer == "study.stats"] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from agentlab.lab.lab import Lab", ["lab.lab"]),
        ("import agentlab.lab.lab", ["lab.lab"]),
        ("from agentlab.plans import graph", ["plans.graph"]),
        ("from agentlab import lab, Lab", ["lab", ""]),
        ("def f():\n    from agentlab.lab.lab import Lab", ["lab.lab"]),
        ("class A:\n    import agentlab.lab.lab", ["lab.lab"]),
        ("if TYPE_CHECKING:\n    from agentlab.lab.lab import Lab", ["lab.lab"]),
        ("try:\n    import agentlab.lab.lab\nexcept ImportError:\n    pass", ["lab.lab"]),
        ("m = import_module('agentlab.plans.graph')", ["plans.graph"]),
        ("LAZY = 'agentlab.views.plots:curve'", []),
        ("import agentlabs, os\nfrom agentlab_other import x\ns = 'agentlab runs'", []),
    ],
)
def test_the_test_sees_imports(source, expected):
    assert [i.imported for i in imports_of("x", ast.parse(source))] == expected


def test_the_test_sees_what_goes_up_and_what_goes_round():
    assert "lower floor" in problem(Import("state.state", "lab.lab", 1))
    assert "lower floor" in problem(Import("trace.span", "retrieval.base", 1))
    assert problem(Import("lab.lab", "state.state", 1)) is None
    assert problem(Import("lab.lab", "lab.bench", 1)) is None
    round_trip = [Import("lab.a", "lab.b", 1), Import("lab.b", "lab.c", 1)]
    assert circles(round_trip) == []
    assert circles([*round_trip, Import("lab.c", "lab.a", 1)]) == [["lab.a", "lab.b", "lab.c"]]


# ---- how large a thing may be ----------------------------------------------------------------

MAX_LINES, MAX_FUNCTION = 400, 60
REASON = "over 400 lines"


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    documented = ast.get_docstring(node, clean=False)
    first = node.body[0]
    text = (first.end_lineno or 0) - first.lineno + 1 if documented is not None else 0
    return (node.end_lineno or 0) - node.lineno + 1 - text


@pytest.mark.parametrize("module", TREES)
def test_a_large_file_says_why(module):
    lines = PATHS[module].read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_LINES or REASON in (ast.get_docstring(TREES[module]) or "")


@pytest.mark.parametrize("module", TREES)
def test_no_function_is_too_long(module):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = [n for n in ast.walk(TREES[module]) if isinstance(n, kinds)]
    assert [f.name for f in functions if body_lines(f) > MAX_FUNCTION] == []


# ---- what nobody may do ----------------------------------------------------------------------

FORBIDDEN_CALLS = {
    "print": "tell the handler, or return it",
    "eval": "names are looked up, never evaluated",
    "exec": "nothing is evaluated",
    "compile": "nothing is evaluated",
    "breakpoint": "left over",
    "asyncio.run": "what is async lives behind one portal thread",
    "dspy.configure": "always dspy.context(...)",
}
FORBIDDEN_METHODS = {
    "model_copy": "it accepts a wrong type: use replace",
    "to_pickle": "no pickle is ever stored",
    "read_pickle": "no pickle is ever stored",
}
FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "nest_asyncio"}


def breaches(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        where = f"line {getattr(node, 'lineno', 0)}: "
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in FORBIDDEN_CALLS:
                yield f"{where}{called}: {FORBIDDEN_CALLS[called]}"
            method = called.rpartition(".")[2]
            if isinstance(node.func, ast.Attribute) and method in FORBIDDEN_METHODS:
                yield f"{where}{method}: {FORBIDDEN_METHODS[method]}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names]
            names = names if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                if name.split(".")[0] in FORBIDDEN_IMPORTS:
                    yield f"{where}{name}: nothing is pickled or patched"
        elif isinstance(node, ast.Global):
            yield f"{where}global {', '.join(node.names)}: state is passed, not kept"
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{where}a bare except swallows Ctrl-C"
        elif isinstance(node, ast.FunctionDef) and turns_its_end(node):
            yield f"{where}{node.name}: an interrupt leaves a generator, whose end it would turn"


def turns_its_end(function: ast.FunctionDef) -> bool:
    """Say whether a context manager made of a generator raises something else at GeneratorExit."""
    if "contextmanager" not in map(ast.unparse, function.decorator_list):
        return False
    handlers = [h for h in ast.walk(function) if isinstance(h, ast.ExceptHandler) and h.type]
    caught = [h for h in handlers if "BaseException" in ast.unparse(h.type or h)]
    return any(isinstance(n, ast.Raise) and n.exc for h in caught for n in ast.walk(h))


@pytest.mark.parametrize("module", TREES)
def test_nothing_forbidden(module):
    assert list(breaches(TREES[module])) == []


@pytest.mark.parametrize(
    "source",
    [
        "print(1)", "eval('1')", "exec('1')", "import pickle", "from pickle import loads",
        "import pickle as p", "frame.to_pickle('x')", "state.model_copy(update={})",
        "def f():\n    global x\n    x = 1", "asyncio.run(f())", "dspy.configure(lm=1)",
        "try:\n    f()\nexcept:\n    pass", "breakpoint()",
        "@contextmanager\ndef f():\n try:\n  yield\n except BaseException:\n  raise E from None",
    ],
)  # fmt: skip
def test_the_test_sees_what_is_forbidden(source):
    assert len(list(breaches(ast.parse(source)))) == 1


def test_what_is_allowed():
    source = (
        "re.compile('x')\nconsole.print(1)\nframe.eval('a')\ndspy.context(lm=1)\nimport pickles"
    )
    assert list(breaches(ast.parse(source))) == []


def test_no_drawer_for_everything():
    assert [m for m in MODULES if m.split(".")[-1] in ("utils", "util", "helpers", "misc")] == []
