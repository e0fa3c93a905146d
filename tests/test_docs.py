"""Docs are tests: what README, docs and docstrings show is run; what they name exists."""

from __future__ import annotations

import ast
import doctest
import importlib
import itertools
import pkgutil
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import pytest

import agentlab

PACKAGE = Path(agentlab.__file__).parent
ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"^(?P<skip><!-- not run: .+ -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    kind: str
    text: str
    line: int
    run: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks; one after ``<!-- not run: reason -->`` is shown only."""
    return [
        Block(m["kind"], m["text"], text.count("\n", 0, m.start("text")), not m["skip"])
        for m in FENCE.finditer(text)
    ]


def test_blocks():
    text = "a\n```python\nx = 1\n```\n<!-- not run: costs -->\n```bash\nls\n\n```\n```\ny\n```\n"
    assert blocks(text) == [
        Block("python", "x = 1\n", 2, True),
        Block("bash", "ls\n\n", 6, False),
        Block("", "y\n", 10, True),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_runs(page, tmp_path, monkeypatch, capsys, fresh_names):
    """All blocks of a page in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    before = set(plt.get_fignums())
    space: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind in ("python", "py") and block.run:
            where = "\n" * block.line + block.text  # so that a traceback names the page's line
            exec(compile(where, str(page), "exec", dont_inherit=True), space)
    for number in set(plt.get_fignums()) - before:
        plt.close(number)
    assert "Traceback" not in capsys.readouterr().err


def test_the_readme_shows_code():
    assert len([b for b in blocks(README.read_text(encoding="utf-8")) if b.run]) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [t.split("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [t for t in targets if t and "://" not in t and not t.startswith("mailto:")]
    assert [t for t in local if not (page.parent / t).exists()] == []


# ---- the command line ------------------------------------------------------------------------


def commands() -> dict[str, set[str]]:
    """Each command and its options, as typer built them."""
    typer = pytest.importorskip("typer")
    cli = pytest.importorskip("agentlab.views.cli.cli")
    group = typer.main.get_command(cli.app)
    return {
        name: {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        for name, command in group.commands.items()
    }


def shown_commands(text: str) -> Iterator[list[str]]:
    """The words after ``agentlab`` on every line of shell and in every span of code."""
    shell = [b.text for b in blocks(text) if b.kind in ("bash", "sh", "console", "shell")]
    spans = re.findall(r"`(agentlab [^`]+)`", FENCE.sub("", text))
    for line in "\n".join([*shell, *spans]).replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for joint, words in itertools.groupby(lexer, lambda w: set(w) <= set("&|;")):
            said = list(words)
            if not joint and said[0] == "agentlab":
                yield said[1:]


def test_shown_commands():
    text = """`agentlab suites`
```bash
pip install x && agentlab eval a --n '1 2;3'  # a run's key; agentlab no
$ agentlab show x | less
```
agentlab y
"""
    expected = [["eval", "a", "--n", "1 2;3"], ["show", "x"], ["suites"]]
    assert list(shown_commands(text)) == expected


def test_every_command_that_is_shown_exists_and_every_one_that_exists_is_shown():
    known, seen = commands(), set()
    for page in PAGES:
        for words in shown_commands(page.read_text(encoding="utf-8")):
            name = next((w for w in words if not w.startswith("-")), "")
            if not name:
                continue
            assert name in known, f"{page.name} shows 'agentlab {name}'"
            options = {w.split("=")[0] for w in words if w.startswith("--")} - {"--help"}
            assert options <= known[name], f"{page.name}: {' '.join(words)}"
            seen |= {name} if page == README else set()
    assert seen == set(known)


def test_the_two_commands():
    """Issue 2, part 1: one line installs and runs the main job, one installs and tests."""
    lines = [
        line.strip()
        for b in blocks(README.read_text(encoding="utf-8"))
        for line in b.text.splitlines()
    ]
    assert "pip install '.[notebook]' && agentlab eval quickstart" in lines
    assert "pip install '.[test]' && pytest" in lines
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"notebook", "test"} <= set(project["optional-dependencies"])
    assert project["scripts"] == {"agentlab": "agentlab.views.cli.cli:main"}
    assert project["version"] == agentlab.__version__


# ---- names -----------------------------------------------------------------------------------


def row(head: str) -> str:
    """A row of the README's table of what there is."""
    found = re.search(rf"^\| {head} \| (.+) \|$", README.read_text(encoding="utf-8"), re.M)
    assert found is not None, f"no row {head!r}"
    return found[1]


def test_the_names_in_the_readme():
    from agentlab.base.built_in import BUILT_IN
    from agentlab.environments.fault_plan import FaultKind, Persistence, Visibility
    from agentlab.environments.named import get_environment

    def names(text: str) -> set[str]:
        return {n.partition("(")[0] for n in re.findall(r"`([a-z][a-z_]*(?:\(.*?\))?)`", text)}

    assert names(row("strategies")) == set(BUILT_IN["strategy"])
    planners = set(BUILT_IN["planner"])
    assert planners <= names(row("planners")) <= {*planners, "plan"}
    for world in names(row("worlds")):
        assert get_environment(world).name == world
    faults = row("faults")
    shown = [k for k in FaultKind if not k.startswith("lm_")]
    missing = [k for k in (*shown, *Persistence, *Visibility) if k.split("_")[0] not in faults]
    assert missing == []


# ---- docstrings ------------------------------------------------------------------------------

MODULES = sorted(m.name for m in pkgutil.walk_packages(agentlab.__path__, "agentlab."))


@pytest.mark.parametrize("name", ["agentlab", *MODULES])
def test_doctests(name, tmp_path, monkeypatch):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as e:
        if (e.name or "agentlab").split(".")[0] == "agentlab":
            raise
        pytest.skip(f"needs {e.name}")
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_there_are_doctests():
    examples = [
        example
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
        for example in doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
    ]
    assert len(examples) > 20


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public functions, classes and methods without a docstring."""
    if ast.get_docstring(tree) is None:
        yield "the module"
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        inside, parent = waiting.pop()
        for node in getattr(parent, "body", []):
            if isinstance(node, ast.If | ast.Try):
                waiting.append((inside, node))
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            marks = [ast.unparse(d) for d in node.decorator_list]
            again = any(m == "overload" or m.endswith((".setter", ".deleter")) for m in marks)
            if node.name.startswith("_") or again:
                continue
            name = f"{inside}{node.name}"
            if ast.get_docstring(node) is None:
                yield name
            if isinstance(node, ast.ClassDef):
                waiting.append((f"{name}.", node))


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_what_is_public_is_documented(path):
    assert list(undocumented(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_undocumented():
    source = """
def bare(): ...
def _private(): ...
def told():
    "Tell."
    def inner(): ...
class Bare:
    def method(self): ...
    def _method(self): ...
    @overload
    def told(self): ...
    @property
    def value(self): "Be."
    @value.setter
    def value(self, new): ...
if True:
    def late(): ...
"""
    assert sorted(undocumented(ast.parse(source))) == [
        "Bare", "Bare.method", "bare", "late", "the module",
    ]  # fmt: skip
