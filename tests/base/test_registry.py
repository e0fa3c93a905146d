"""Names with arguments: looked up, never evaluated."""

from __future__ import annotations

import builtins

import pytest
from hypothesis import given, settings, strategies as st

from agentlab.base.registry import Registry, parse_name, signature_text
from agentlab.errors import ConfigError, UnknownNameError

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

    @made.register("retry")
    def retry(k: int = 1, wait: float = 0.0) -> tuple:
        if k < 0:
            raise ValueError(f"expected k >= 0, got {k}")
        return "retry", k, wait

    made.register("never")(lambda: ("never",))
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
