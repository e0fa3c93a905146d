"""The house of design.md against the code: who may import whom, and what nobody may do.

A module imports from lower floors, or from an earlier line of its own floor. Imports inside
functions count, and so does a module that is named in a string to be imported later; imports for
type checkers do not. ``agentlab/__init__.py`` is the public face: lazy, and exempt.
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

HOUSE = {
    "0 words": """
        errors values schemas registry calls
        plans.references plans.task_plan plans.parsing plans.graph
        plans.spec plans.codec plans.validator plans.bindings plans
        scenario config events decisions state
    """,
    "1 memory": """
        trace.span trace.compare trace.recorder trace.journal trace.delta trace.store trace.export
        trace
        bench inbox
    """,
    "2 world": """
        clock randomness
        lm.serde lm.engine lm.door lm lm.scripted lm.misses lm.recording lm.faulty lm.endpoint
        lm.connect lm.adapters
        tools.tool tools.cancel tools.mcp tools
        retrieval
        environments.base environments.blocksworld environments.blocks
        environments.blocks_scenarios environments.chain environments.travel
        environments.travel_scenarios environments.workshop environments.workshop_scenarios
        environments
        faults datasets
    """,
    "3 minds": """
        planners.base planners.fixed planners.reference planners.ordering planners.search
        planners.structured planners.contract planners
        strategies.base strategies.triggers strategies.scopes strategies.presets strategies
        intents reflectors responders minds
    """,
    "4 bench": """
        actions.base actions.aggregate actions.call_tool actions.call_sub_agent
        actions.llm_generate actions.mcp_call actions
        scheduling executor talk tool_door threads agents lab
    """,
    "5 loop": """
        nodes.base nodes.load_config nodes.planning nodes.watching nodes.plan_execution
        nodes.reflection
        nodes.final_response nodes.resident nodes
        visits run workflow
        workflows.autonomous workflows.resident workflows
        kept
        sessions planning_loop
    """,
    "6 study": """
        study.stats study.metrics study.compare study.grid study.controls study.cells
        study.threads study.pool study.progress study.provenance
        study.frames study.leaderboard study.study study.definition study.counterfactual
        study.adapters.planbench study.adapters.agentdojo study.adapters study
    """,
    "7 views": """
        plots
        widgets.markup widgets.plan_text widgets.drawing widgets.html widgets.inspector widgets
        terminal report_page report doctor run_command cli
    """,
}
FLOORS = {floor: modules.split() for floor, modules in HOUSE.items()}
PLACE = {
    module: (number, floor, line)
    for number, (floor, modules) in enumerate(FLOORS.items())
    for line, module in enumerate(modules)
}

EXCEPTIONS = {
    ("environments", "study.adapters.agentdojo"): "a provider, found by name as an entry point is",
    ("actions.call_sub_agent", "workflows"): "a sub-agent's run finds its workflow by name",
    ("run", "workflows"): "a run that is resumed finds its workflow by name",
    ("run", "widgets"): "a notebook shows a run by its widget; imported when it is shown",
    ("run", "widgets.html"): "the same where there are no widgets",
}


class Import(NamedTuple):
    importer: str
    imported: str
    line: int
    inside: bool  # a function, or a string: not carried out when the module is imported


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    module_name(path): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}
MODULES = sorted(m for m in TREES if m)


def ours(dotted: str) -> str | None:
    """The module of ours that a dotted name stands for, without "agentlab."."""
    if dotted == "agentlab":
        return ""
    inside = dotted.removeprefix("agentlab.")
    return inside if inside != dotted and inside in TREES else None


def imports_of(module: str, tree: ast.AST) -> Iterator[Import]:
    yield from _walk(module, tree, False)


def _walk(module: str, node: ast.AST, inside: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for branch in child.orelse:
                yield from _walk(module, ast.Module([branch], []), inside)
            continue
        for name in _named(child):
            text = isinstance(child, ast.Constant | ast.JoinedStr)
            yield Import(module, name, getattr(child, "lineno", 0), inside or text)
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(module, child, inside or function)


def _named(node: ast.AST) -> list[str]:
    """The modules of ours that one node imports, or names in a string."""
    found: list[str | None] = []
    if isinstance(node, ast.Import):
        found = [ours(a.name) for a in node.names if a.name.split(".")[0] == "agentlab"]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: relative import; name the module in full"
        if (node.module or "").split(".")[0] == "agentlab":
            names = [a.name for a in node.names if a.name != "__version__"]
            whole = [ours(f"{node.module}.{name}") for name in names]
            found = [ours(node.module or "") if name is None else name for name in whole]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = [ours(node.value)] if node.value.startswith("agentlab.") else []
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        head = node.values[0].value  # f"agentlab.minds.planners.{name}": any of them
        if head.startswith("agentlab.") and head.endswith("."):
            found = [m for m in MODULES if f"agentlab.{m}".startswith(head)]
    return [name for name in found if name is not None]


IMPORTS = [i for module in MODULES for i in imports_of(module, TREES[module])]


def problem(made: Import) -> str | None:
    """Why an import breaks the rule of the house, or None."""
    (high, _, later), (low, floor, earlier) = PLACE[made.importer], PLACE[made.imported]
    if low > high:
        return f"{made.importer}.py, line {made.line}: {made.imported} is higher, on floor {floor}"
    if low == high and earlier >= later and made.importer != made.imported:
        return f"{made.importer}.py, line {made.line}: {made.imported} comes later on floor {floor}"
    return None


def test_every_module_has_its_place():
    assert [m for m in MODULES if m not in PLACE] == [], "put it on a floor in tests/test_floors.py"
    assert len(PLACE) == sum(map(len, FLOORS.values())), "a module stands on two floors"


def test_imports_go_down():
    problems = [
        text
        for made in IMPORTS
        if (made.importer, made.imported) not in EXCEPTIONS and made.imported
        if made.importer in PLACE and made.imported in PLACE
        if (text := problem(made))
    ]
    assert problems == []


def test_exceptions_are_still_needed():
    inside = [i for i in IMPORTS if (i.importer, i.imported) in EXCEPTIONS]
    assert {(i.importer, i.imported) for i in inside if problem(i)} == set(EXCEPTIONS)
    assert all(i.inside for i in inside), "an exception may not load what it names at once"


def test_no_module_imports_the_public_face():
    """``from agentlab import …`` inside the package would load whatever the name needs."""
    strays = {f"{i.importer}, line {i.line}" for i in IMPORTS if i.imported == ""}
    assert strays == set()


def test_there_is_no_cycle():
    graph = nx.DiGraph((i.importer, i.imported) for i in IMPORTS if not i.inside)
    assert list(nx.simple_cycles(graph)) == []


def test_the_statistics_know_nothing_of_ours():
    """design.md: arrays to numbers."""
    assert [i for i in IMPORTS if i.importer == "study.stats"] == []


def test_run_and_workflow_know_no_lm_no_tool_and_no_widget():
    """design.md, floor 5; what a notebook shows is an exception above."""
    forbidden = ("lm", "tools", "widgets", "planners", "strategies")
    loop = [i for i in IMPORTS if i.importer in ("run", "workflow") and not i.inside]
    assert [i for i in loop if i.imported.split(".")[0] in forbidden] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from agentlab.lab.lab import Lab", [("lab", False)]),
        ("import agentlab.lab.lab", [("lab", False)]),
        ("from agentlab.plans import graph", [("plans.graph", False)]),
        ("from agentlab import lab, Lab", [("lab", False), ("", False)]),
        ("from agentlab import __version__", []),
        ("def f():\n    from agentlab.lab.lab import Lab", [("lab", True)]),
        ("class A:\n    import agentlab.lab.lab", [("lab", False)]),
        ("if TYPE_CHECKING:\n    from agentlab.lab.lab import Lab", []),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import agentlab.lab.lab", [("lab", False)]),
        ("try:\n    import agentlab.lab.lab\nexcept ImportError:\n    pass", [("lab", False)]),
        ("m = import_module('agentlab.plans.graph')", [("plans.graph", True)]),
        ("m = import_module(f'agentlab.plans.{n}')",
         [(f"plans.{n}", True) for n in ("bindings", "codec", "graph", "parsing", "references",
                                         "spec", "task_plan", "validator")]),
        ("import agentlabs, os\nfrom agentlab_other import x\ns = 'agentlab runs'", []),
    ],
)  # fmt: skip
def test_the_test_sees_imports(source, expected):
    found = [(i.imported, i.inside) for i in imports_of("x", ast.parse(source))]
    assert found == expected


def test_the_test_sees_what_goes_up():
    assert "higher" in problem(Import("state", "lab", 1, False))
    assert "comes later" in problem(Import("scenario", "state", 1, True))
    assert problem(Import("lab", "state", 1, False)) is None
    assert problem(Import("state", "scenario", 1, False)) is None


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
