"""Names with arguments: looked up, never evaluated."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.base.built_in import BUILT_IN, METHOD
from agentlab.base.names import parse_name
from agentlab.base.registry import (
    KINDS,
    Registry,
    registry as al_registry,
    signature_text,
)
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.minds.planners.named import get_planner

literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip
identifiers = st.from_regex(r"[a-z_][a-z0-9_]{0,8}_", fullmatch=True)  # never a keyword


@given(identifiers, st.lists(literals, max_size=3), st.dictionaries(identifiers, literals))
@settings(deadline=None, max_examples=80)
def test_what_is_written_is_read(name, positional, named):
    arguments = [*map(repr, positional), *(f"{k}={v!r}" for k, v in named.items())]
    assert parse_name(f" {name}({', '.join(arguments)}) ") == (name, positional, named)


def test_a_bare_name():
    assert parse_name("never") == ("never", [], {})


@pytest.mark.parametrize(
    "text",
    [
        "", "retry(", "retry(2))", "2", "'retry'", "retry 2", "retry; never", "retry\nnever",
        "retry(n)", "retry(1 + 1)", "retry(len('abc'))", "retry(__import__('os'))", "a.b(2)",
        "retry(2)(3)", "retry(lambda: 1)", "retry([x for x in (1, 2)])", "retry(f'{1}')",
        "retry(*[1])", "retry(**{'k': 2})", "retry(k=1, k=2)", "retry(k=v)", "retry[2]",
        "(retry := 2)", "retry\0", "not retry",
    ],
)  # fmt: skip
def test_what_is_no_name_with_literals_is_refused(text):
    with pytest.raises(ConfigError, match="expected a name with literal arguments") as e:
        parse_name(text)
    assert repr(text) in str(e.value)


def test_nothing_is_evaluated(monkeypatch):
    def forbidden(*arguments, **named):
        raise AssertionError("evaluated")

    for name in ("eval", "exec", "print"):
        monkeypatch.setattr(builtins, name, forbidden)
    for text in ("print(1)", "retry(print(1))", "retry(exec('1'))"):
        try:
            assert parse_name(text) == ("print", [1], {})
        except ConfigError:
            assert text.startswith("retry")


@pytest.fixture
def registry():
    made = Registry("strategy")

    def retry(k: int = 1, wait: float = 0.0) -> tuple:
        if k < 0:
            raise ValueError(f"expected k >= 0, got {k}")
        return "retry", k, wait

    made.register("retry", retry)
    made.register("never", lambda: ("never",))
    return made


def test_build(registry):
    assert registry.build("retry(2, wait=1.5)") == ("retry", 2, 1.5)
    assert registry.build("retry") == registry.build("retry()") == ("retry", 1, 0.0)
    assert list(registry) == ["retry", "never"]
    assert len(registry) == 2
    assert "retry" in registry


@pytest.mark.parametrize(
    ("text", "error", "parts"),
    [
        ("rety(2)", UnknownNameError, ["unknown strategy 'rety'", "'retry'", "known: never"]),
        ("retry(1, 2, 3)", ConfigError, ["strategy retry(k=1, wait=0.0)", "'retry(1, 2, 3)'"]),
        ("retry(wiat=2)", ConfigError, ["'wiat'", "did you mean 'wait'?"]),
        ("retry(2, k=3)", ConfigError, ["retry(k=1, wait=0.0)", "multiple values"]),
        ("never(1)", ConfigError, ["strategy never()", "'never(1)'"]),
        ("retry(-1)", ConfigError, ["strategy 'retry(-1)'", "expected k >= 0, got -1"]),
        ("retry('two')", ConfigError, ["strategy \"retry('two')\""]),
    ],
)
def test_build_says_what_does_not_fit(registry, text, error, parts):
    with pytest.raises(error) as e:
        registry.build(text)
    assert [p for p in parts if p not in str(e.value)] == []


def test_signature_text():
    def factory(goal, *, noise: float = 0.2, names: tuple = ("a",)) -> None: ...

    assert signature_text(factory) == "(goal, noise=0.2, names=('a',))"


# ---- one form for every kind -----------------------------------------------------------------


class Plain:
    """A planner that needs nothing of agentlab's."""

    def __init__(self, k=1):
        self.k = k

    def plan(self, request, bench): ...


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's on the path."""
    text = (
        "import agentlab as al\n"
        "class Greedy:\n"
        "    def __init__(self, k=1):\n        self.k = k\n"
        "    def plan(self, request, bench): ...\n"
        "class Bag:\n    best = Greedy(7)\n"
        "def dogged(k=1):\n    return al.Strategy(f'dogged({k})', None, None)\n"
    )
    name = "mymodule_of_registry"
    (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "nothing_of_ours.py").write_text("def make():\n    raise AssertionError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for loaded in (name, "nothing_of_ours"):
        sys.modules.pop(loaded, None)


def test_every_kind_has_its_registry_and_an_unknown_kind_says_which_there_are():
    expected = "planner strategy action workflow environment retriever reflector responder"
    assert set(KINDS) == set(expected.split())
    with pytest.raises(UnknownNameError, match="unknown kind 'planer'; did you mean 'planner'"):
        al.register("planer", "mine", Plain)


def test_all_that_ships_is_found_and_is_of_its_kind():
    for kind in KINDS:
        for name in BUILT_IN[kind]:
            if not name.startswith("agentdojo/"):
                assert hasattr(al_registry(kind).build(name), METHOD[kind])


@pytest.mark.parametrize("thing", [Plain, lambda k=1: Plain(k)])
def test_a_class_or_a_function_takes_the_arguments_and_an_object_stands_for_itself(
    thing, fresh_names
):
    al.register("planner", "mine", thing)
    assert get_planner("mine").k == 1
    assert get_planner("mine(k=3)").k == 3
    one = Plain()
    al.register("planner", "one", one)
    assert get_planner("one") is one
    with pytest.raises(ConfigError, match="one is an object; give no arguments"):
        get_planner("one(2)")


def test_as_a_decorator_it_returns_what_it_decorates(fresh_names):
    assert al.register("planner", "mine")(Plain) is Plain
    assert isinstance(al.Lab(planner="mine(2)", tools=[]).planner, Plain)


def test_module_attribute_stands_wherever_a_name_does(module, fresh_names):
    assert get_planner(f"{module}:Greedy(k=2)").k == 2
    assert get_planner(f"{module}:Bag.best").k == 7
    assert al.Lab(planner="search", strategy=f"{module}:dogged(4)").strategy.name == "dogged(4)"
    al.register("planner", "later", f"{module}:Greedy")
    assert get_planner("later(5)").k == 5
    arms = al.grid(planner=[f"{module}:Greedy", f"{module}:Greedy(k=2)"])
    assert [a.planner for a in arms] == [f"{module}:Greedy", f"{module}:Greedy(k=2)"]
    assert all(a.named for a in arms)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such_module_here:Greedy", "there is no module 'no_such_module_here'"),
        ("{}:Gredy", r"unknown planner 'Gredy'; did you mean 'Greedy'"),
        ("{}:Greedy(kk=2)", r"Greedy\(k=1\): got .* did you mean 'k'"),
        ("{}:dogged", r"expected something with a method plan\(...\)"),
        ("{}:Greedy(k=1)(2)", "literal arguments"),
        ("{}:Greedy(k=open)", "literal arguments"),
        ("os:_exit(3)", "a function is only called where its module uses agentlab"),
        ("subprocess:run(['true'])", "a function is only called where its module uses agentlab"),
        ("nothing_of_ours:make", "a function is only called where its module uses agentlab"),
        ("agentlab.environments.generators:freeze('/tmp')", "a function is only called where"),
        ("subprocess:Popen(['true'])", r"expected something with a method plan\(...\)"),
    ],
)
def test_what_a_module_cannot_stand_for_is_one_clear_error(module, text, message, monkeypatch):
    def called(*_, **__):
        raise AssertionError("called")

    monkeypatch.setattr("subprocess.Popen.__init__", called)
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        get_planner(text.format(module))


def test_a_module_that_raises_is_named_with_what_it_raised(tmp_path, monkeypatch):
    (tmp_path / "broken_on_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="importing broken_on_import raised ZeroDivisionError"):
        get_planner("broken_on_import:Greedy")


def test_what_ships_is_not_replaced_and_a_users_name_is(fresh_names):
    with pytest.raises(ConfigError, match="planner 'search' ships with agentlab"):
        al.register("planner", "search", Plain)
    al.register("planner", "mine", Plain(1))
    al.register("planner", "mine", Plain(2))
    assert get_planner("mine").k == 2
    with pytest.raises(ConfigError, match="expected 'module:attribute', got 'Greedy'"):
        al.register("planner", "other", "Greedy")


def test_a_step_of_a_plan_never_imports_a_module(module):
    """An action type is a model's word."""
    actions = al_registry("action")
    assert f"{module}:Bag" not in actions
    assert actions.get("os:system('exit 3')") is None
    assert module not in sys.modules


def test_a_reflector_and_a_responder_by_name(fresh_names):
    class Judge:
        def reflect(self, state, bench): ...

    class Writer:
        def respond(self, state, bench):
            return "mine"

    al.register("reflector", "judge", Judge)
    al.register("responder", "writer", Writer)
    lab = al.Lab(planner="search", reflector="judge", responder="writer")
    assert (type(lab.reflector), type(lab.responder)) == (Judge, Writer)
    with pytest.raises(UnknownNameError, match="did you mean 'rules'"):
        al.Lab(planner="search", reflector="rule")


def test_a_package_adds_names_by_entry_points(tmp_path):
    """A distribution that is only a folder on the path, as pip would leave it."""
    meta = tmp_path / "greedy_planners-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: greedy-planners\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(
        "[agentlab]\nplanner.greedy = greedy_planners:Greedy\nstrategy.eager = greedy_planners:E\n"
    )
    (tmp_path / "greedy_planners.py").write_text(
        "class Greedy:\n    def __init__(self, k=1):\n        self.k = k\n"
        "    def plan(self, request, bench): ...\n"
    )
    program = (
        "import sys, agentlab as al\n"
        "from agentlab.minds.planners.named import PLANNERS, get_planner\n"
        "assert 'greedy' in PLANNERS and 'greedy_planners' not in sys.modules\n"
        "assert get_planner('greedy(k=3)').k == 3\n"
        "from agentlab.minds.strategies.named import STRATEGIES\n"
        "assert 'eager' in STRATEGIES and 'eager' not in PLANNERS\n"
        "try:\n    get_planner('gredy')\n"
        "except al.AgentLabError as e:\n    assert \"did you mean 'greedy'\" in str(e), e\n"
        "else:\n    raise AssertionError\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_run_does_not_look_through_installed_packages():
    """It takes a tenth of a second and more, in each worker."""
    program = (
        "import agentlab as al\n"
        "from agentlab.base import registry\n"
        "lab = al.Lab(al.load_suite('chain')[0], planner='search', strategy='retry(1)')\n"
        "al.autonomous.start(lab).finish()\n"
        "assert registry._all_entry_points.cache_info().misses == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
