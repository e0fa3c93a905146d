"""Data flow between steps: the scanner, renaming, and resolving."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from time import process_time

import jmespath
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from agentlab.base.documents import is_json
from agentlab.errors import ReferenceError_
from agentlab.plans.references import STEP_ID, Reference, lookup, parse, references, rename, resolve

fast = settings(deadline=None, max_examples=120)
tricky = st.text("${}'\"`\\a.0[] ", max_size=24)
PATHS = [
    "",
    "id",
    "flights[0].id",
    "[0]",
    "[?price > `100`].id | [0]",
    "min_by(@, &price).id",
    "{a: id, b: {c: id}}",
    "[id, \"a}b\"]",
    "[?id == '}'] | [0]",
    "\"a\\\"}\"",
    "contains('{', '}')",
    "`\"}\"`",
    "`{\"a\": {\"b\": 1}}`.a",
    "not_null(missing, '\\'}')",
    "*.id",
    "@",
]  # fmt: skip
step_ids = st.from_regex(STEP_ID, fullmatch=True) | st.integers(0, 20).map(str)


@st.composite
def written_references(draw):
    step, path = draw(step_ids), draw(st.sampled_from(PATHS))
    dot = "" if path in ("", *(p for p in PATHS if p.startswith("["))) else "."
    return f"${{{step}{dot}{path}}}", Reference(step, path)


# Text that stands for itself: no "${", and no "$" just before a reference.
plain = st.text("{}'\"`\\$ab. ", max_size=8).filter(
    lambda t: "${" not in t and not t.endswith("$") and not t.startswith("{")
)


@given(st.lists(st.tuples(plain, st.just("$${") | written_references()), max_size=4), plain)
@fast
def test_the_scanner_finds_what_was_put_in(pieces, tail):
    """Oracle: the text is built from parts that are known."""
    text, expected = "", []
    for literal, piece in pieces:
        escaped = isinstance(piece, str)
        text += literal + (piece if escaped else piece[0])
        expected += [literal + "${"] if escaped else [literal, piece[1]]
    text += tail
    merged: list[str | Reference] = []
    for part in [*expected, tail]:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    assert list(parse(text)) == (merged or [""])


def scanned(text: str) -> list[str | tuple[str]] | None:
    """An independent scanner: literals and the insides of references; None: a brace is missing."""
    quoted = r"'(?:\\.|[^\\'])*'|\"(?:\\.|[^\\\"])*\"|`(?:\\.|[^\\`])*`|[^'\"`]"
    parts: list[str | tuple[str]] = [""]
    while text:
        if text.startswith("$${"):
            parts[-1] += "${"
            text = text[3:]
        elif text.startswith("${"):
            end, depth = 2, 1
            while depth:
                token = re.compile(quoted, re.DOTALL).match(text, end)
                if token is None:
                    return None
                depth += {"{": 1, "}": -1}.get(token[0], 0)
                end = token.end()
            parts += [(text[2 : end - 1],), ""]
            text = text[end:]
        else:
            parts[-1] += text[0]
            text = text[1:]
    return [p for p in parts if p != ""] or [""]


def well_formed(inside: str) -> bool:
    """Whether the inside of a reference is a step and a JMESPath, by the grammar."""
    found = re.fullmatch(
        r"(?:\d+|[A-Za-z_][\w-]*)(?:\.(?P<path>.+)|(?P<index>\[.+))?", inside.strip(), re.S
    )
    if found is None:
        return False
    try:
        jmespath.compile(found["path"] or found["index"] or "@")
    except jmespath.exceptions.JMESPathError:
        return False
    return True


tokens = st.lists(
    st.sampled_from(["${", "${a.b", "$${", "}", "{", "'", '"', "`", "\\", "$", "[0]", " ", "\n"]),
    max_size=12,
).map("".join)


@given(tokens | tricky)
@example("$${${a}")
@example("${a}$${b}")
@example("$$${a}")
@example("${a.b'}")
@example("${a.b == '}'}")
@example("${a.b == `}`}")
@pytest.mark.filterwarnings("ignore:deprecated string literal:PendingDeprecationWarning")
@fast
def test_the_scanner_agrees_with_another_one(text):
    expected = scanned(text)
    parts, problem = None, ""
    try:
        parts = parse(text)
    except ReferenceError_ as e:
        problem = str(e)
    if parts is None:
        assert repr(text) in problem
        insides = [p[0] for p in expected or () if isinstance(p, tuple)]
        assert expected is None or not all(map(well_formed, insides))
        return
    assert expected is not None
    for part, other in zip(parts, expected, strict=True):
        if isinstance(part, Reference):
            assert other[0].strip() in (f"{part.step}{part.path}", f"{part.step}.{part.path}")
        else:
            assert part == other
    assert parse(rename(text, str)) == parts


@given(tricky)
@fast
def test_text_without_a_reference_is_untouched(text):
    assume("${" not in text)
    assert parse(text) == (text,)
    assert resolve(text, {}) == text
    assert rename(text, lambda step: "other") == text
    assert list(references(text)) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_read_as_jmespath_reads_it(path):
    result = {"id": "x", "price": 5, "flights": [{"id": 7}], "a}b": 1, 'a"}': 2}
    if path.startswith(("[0]", "[?", "min_by")):
        result = [{"id": "}", "price": 200}, {"id": "y", "price": 9}]
    dot = "" if not path or path.startswith("[") else "."
    expected = jmespath.search(path, result) if path else result
    assert expected is not None
    assert resolve(f"${{s{dot}{path}}}", {"s": result}) == expected
    text = expected if isinstance(expected, str) else None
    if text is None:
        text = json.dumps(expected, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert resolve(f"<${{s{dot}{path}}}>", {"s": result}) == f"<{text}>"


json_values = st.recursive(
    st.none() | st.integers() | tricky,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky, inner, max_size=3),
    max_leaves=6,
)


def escaped(value):
    """The parameters that stand for ``value`` itself."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {k: escaped(v) for k, v in value.items()}
    return [escaped(v) for v in value] if isinstance(value, list) else value


@given(json_values)
@fast
def test_escaped_data_stands_for_itself(value):
    assert resolve(escaped(value), {}) == value
    assert list(references(escaped(value))) == []
    assert rename(escaped(value), lambda step: "other") == escaped(value)


parameters = st.recursive(
    st.integers() | plain | written_references().map(lambda r: r[0])
    | st.tuples(plain, written_references(), plain).map(lambda p: f"{p[0]}{p[1][0]}$${{{p[2]}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
RESULT = {
    "id": "x", "price": 1, "flights": [{"id": [1, "${s}"]}], "a}b": 1, 'a"}': {"deep": "$${"},
}  # fmt: skip


@given(parameters)
@fast
def test_renaming_steps_and_results_alike_changes_nothing(value):
    """resolve(rename(value), renamed results) == resolve(value, results)."""

    def new_name(step):
        return f"r_{step}"

    steps = {r.step for r in references(value)}
    results = {step: {**RESULT, "id": f"${{{step}}}"} for step in steps}
    renamed = {new_name(step): result for step, result in results.items()}
    try:
        expected = resolve(value, results)
    except ReferenceError_:
        with pytest.raises(ReferenceError_):
            resolve(rename(value, new_name), renamed)
        return
    assert resolve(rename(value, new_name), renamed) == expected
    assert rename(rename(value, new_name), lambda step: step[2:]) == rename(value, str)
    assert [r.step for r in references(rename(value, new_name))] == [
        new_name(r.step) for r in references(value)
    ]


def test_examples():
    results = {"find": {"flights": [{"id": 7, "price": 80.0}]}, "0": 5}
    value = {
        "whole": "${find.flights[0]}",
        "number": "${ find.flights[0].price }",
        "text": "flight ${find.flights[0].id} for ${find.flights[0].price} $${tax}",
        "list": ["${0}", 1, None, True],
        "${0}": "a key is no reference",
    }
    assert resolve(value, results) == {
        "whole": {"id": 7, "price": 80.0},
        "number": 80.0,
        "text": "flight 7 for 80.0 ${tax}",
        "list": [5, 1, None, True],
        "${0}": "a key is no reference",
    }
    assert [str(r) for r in references(value)] == [
        "${find.flights[0]}",
        "${find.flights[0].price}",
        "${find.flights[0].id}",
        "${find.flights[0].price}",
        "${0}",
    ]


def test_what_was_substituted_is_not_scanned_again():
    results = {"a": "${b}", "b": "secret", "c": "$${b}"}
    assert resolve("${a}", results) == "${b}"
    assert resolve("<${a} ${c}>", results) == "<${b} $${b}>"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("${find.id", ["without its '}'", "'$${'"]),
        ("${find.'}", ["without its '}'"]),
        ("${}", ["expected '${STEP.PATH}'"]),
        ("${.id}", ["expected '${STEP.PATH}'"]),
        ("${-a}", ["expected '${STEP.PATH}'"]),
        ("${查找.id}", ["expected '${STEP.PATH}'"]),
        ("${find flights}", ["expected '${STEP.PATH}'"]),
        ("${1st.id}", ["expected '${STEP.PATH}'"]),
        ("${find.}", ["no JMESPath"]),
        ("${find.a[}", ["no JMESPath"]),
        ("${find.a..b}", ["no JMESPath"]),
        ("${find.nope(@)}", ["nope"]),
        ("${find.flights[?price < 100]}", ["no JMESPath"]),
    ],
)
def test_what_is_malformed(text, parts):
    with pytest.raises(ReferenceError_) as e:
        resolve(f"see {text}", {"find": {"a": 1}})
    assert [p for p in parts if p not in str(e.value)] == []
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("text", "results", "parts"),
    [
        ("${book.id}", {"b": 1, "a": 2}, ["${book.id}", "'book' has no result", "a, b"]),
        ("${book.id}", {}, ["'book' has no result", "none"]),
        ("${a.ids}", {"a": {"id": 1, "cost": 2}}, ["${a.ids}", "keys cost, id"]),
        ("${a.id}", {"a": {}}, ["keys none"]),
        ("${a[5]}", {"a": [1, 2]}, ["${a[5]}", "a list of 2"]),
        ("${a.x}", {"a": "text"}, ["the result is 'text'"]),
        ("${a}", {"a": None}, ["${a} does not resolve"]),
        ("${a.id}", {"a": {"id": None}}, ["${a.id} does not resolve"]),
        ("${a.abs(@)}", {"a": "text"}, ["${a.abs(@)} does not resolve"]),
        ("${a.min_by(@, &p)}", {"a": [{"p": []}]}, ["does not resolve"]),
    ],
)
def test_what_does_not_resolve_says_what_there_is(text, results, parts):
    for value in (text, f"in {text} text", {"deep": [text]}):
        with pytest.raises(ReferenceError_) as e:
            resolve(value, results)
        assert [p for p in parts if p not in str(e.value)] == []


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_what_is_empty_resolves(value):
    assert lookup(Reference("a", "v"), {"a": {"v": value}}) == value


@pytest.mark.parametrize(
    "path", ["(" * 3000 + "t" + ")" * 3000, "[" * 3000, "`" + "[" * 9000 + "`"]
)
def test_a_path_without_end_is_no_jmespath(path):
    with pytest.raises(ReferenceError_, match="is no JMESPath") as e:
        parse(f"${{a.{path}}}")
    assert len(str(e.value)) < 2000


# ---- bounds ----------------------------------------------------------------------------------

ROWS = [{"id": i, "name": str(i)} for i in range(2_000)]


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("[@,@]" + " | [@,@]" * 26, {"t": 1}),
        ("{a: @, b: @}" + " | {a: @, b: @}" * 26, 1),
        ("[@,@][]" + " | [@,@][]" * 40, [1]),
        ("map(&[@,@,@,@], @)" + " | map(&[@,@,@,@], @)" * 12, ROWS),
        ("to_string([@,@])" + " | to_string([@,@])" * 40, "\\"),
        ("join(to_string(@), @[*].name)", ROWS * 20),
        (f"[{','.join(['sort_by(@, &name)'] * 200)}]", ROWS * 5),
        ("[" + ",".join(["contains(@, 'y')"] * 200) + "]", "x" * 10_000_000),
        (f"[{','.join(['@ == @'] * 500)}]", ROWS * 50),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_takes_or_gives_too_much_does_not_resolve(path, result):
    for text in (f"${{a.{path}}}", f"in ${{a.{path}}} text"):
        with pytest.raises(ReferenceError_, match="pick less") as e:
            resolve(text, {"a": result})
        assert len(str(e.value)) < 1_000


def test_what_all_references_of_a_value_give_is_bounded_together():
    big = {"a": "x" * 1_000_000, "rows": ROWS}
    for value in (
        "${s.a} " * 1_000, {f"k{i}": "${s.a}" for i in range(1_000)}, ["${s.rows[]}"] * 5_000,
    ):  # fmt: skip
        with pytest.raises(ReferenceError_, match="pick less"):
            resolve(value, {"s": big})


def test_a_large_result_is_handed_on_a_few_times():
    """A bound is for what grows, not for what is there: of 20 MB, three times 20 MB."""
    big = {"a": "x" * 20_000_000}
    found = resolve({"1": "${s.a}", "2": "${s}", "3": "${s.[a]}"}, {"s": big})
    assert found == {"1": big["a"], "2": big, "3": [big["a"]]}
    assert len(resolve("${s[*].name | join(',', @)}", {"s": ROWS})) == 8_889


@pytest.mark.parametrize(
    "path",
    [
        "to_number('nan')", "`NaN`", "`1e999`", "ceil(to_number('1e999'))", "&b", "avg(`[1e308]`)",
        "[::0]",
        "sum(`[1e308, 1e308]`)", "merge(@, `[1]`)", "contains('x', `1`)", "@" + " | @" * 900,
        "[" * 300 + "@" + "]" * 300, f"`{'9' * 4000}`", "to_number(@)",
    ],
)  # fmt: skip
def test_what_is_no_json_does_not_resolve(path):
    """Whatever a function raises, and whatever it makes that JSON cannot hold."""
    dot = "" if path.startswith("[") else "."
    for result in ({"a": 1}, [1], "9" * 4_000, 10**307):
        try:
            found = resolve(f"${{s{dot}{path}}}", {"s": result})
        except ReferenceError_:
            continue
        assert is_json(found)


@pytest.mark.parametrize("path", ["[" + "9" * 5_000 + "]", ".`" + '"' + "x" * 5_000 + '"`'])
def test_an_endless_path_is_no_jmespath(path):
    with pytest.raises(ReferenceError_, match="is no JMESPath") as e:
        parse(f"${{a{path}}}")
    assert len(str(e.value)) < 2_000


@pytest.mark.parametrize(
    "piece", ["${a.b", "$${", "$", "${a.b} ", "${a.'}", "${", "{", "\\", "${a[", "$$$${", "'"]
)
def test_scanning_is_linear_in_the_text(piece):
    def seconds(times):
        began = process_time()
        with suppress(ReferenceError_):
            resolve(piece * times, {"a": {"b": 1}})
        return process_time() - began

    seconds(1_000)
    assert seconds(100_000) < 40 * max(seconds(10_000), 0.01)  # 100 times where it is quadratic
