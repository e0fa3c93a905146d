"""The wire format: exact round trips, a corpus of malformed documents, fuzz.

The oracle of what fits is another implementation of JSON Schema, on the codec's own schema.
"""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import example, given, settings, strategies as st

from agentlab.base.documents import canonical
from agentlab.errors import PlanValidationError
from agentlab.plans.contract.codec import NESTING, PlanCodec
from agentlab.plans.contract.spec import PlanSpec, PlanStep, PlanStepStatus

CODEC = PlanCodec()
GOOD = {
    "schemaVersion": 1,
    "revision": 3,
    "objective": "Research two sources and summarise them",
    "steps": [
        {
            "stepId": "a", "objective": "Read the first.", "dependencies": [],
            "executionTarget": "tool:search", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "string"}, "completionCriteria": "It is read.",
            "status": "COMPLETED", "result": {"rows": [1, {"n": None}]}, "error": None,
        },
        {
            "stepId": "总结", "objective": "Summarise.", "dependencies": ["a"],
            "executionTarget": "agent:writer", "inputSchema": {}, "outputSchema": {},
            "completionCriteria": "摘要完成", "status": "PENDING", "result": None, "error": None,
        },
    ],
}  # fmt: skip
TEXT = json.dumps(GOOD)


def refused(wire):
    """(step, field) of everything that is told of a wire that must be refused."""
    with pytest.raises(PlanValidationError) as e:
        CODEC.decode(wire)
    assert e.value.violations
    assert str(e.value).count(": ") >= len(e.value.violations)
    return {(v.step, v.field) for v in e.value.violations}


def changed(path, value):
    """The good document with the value at a path replaced; no value: taken out."""
    document = copy.deepcopy(GOOD)
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    if value is OUT:
        inner.pop(path[-1], None) if isinstance(inner, dict) else inner.pop(path[-1])
    else:
        inner[path[-1]] = value
    return document


OUT = object()
STEP = ("steps", 0)


def test_the_good_one():
    spec = CODEC.decode(TEXT)
    assert spec.steps[1].dependencies == ("a",)
    assert spec.steps[0].status is PlanStepStatus.COMPLETED
    assert spec.steps[0].result == {"rows": [1, {"n": None}]}
    assert json.loads(CODEC.encode(spec)) == GOOD
    assert CODEC.decode(TEXT.encode()) == spec


# ---- the corpus ------------------------------------------------------------------------------

FIELDS = [*[(k,) for k in GOOD], *[(*STEP, k) for k in GOOD["steps"][0]]]


def place(path):
    return (None, path[0]) if len(path) == 1 else ("a", path[-1])


@pytest.mark.parametrize("path", FIELDS, ids=lambda p: p[-1])
def test_a_field_that_is_missing(path):
    where = ("steps[0]", "stepId") if path[-1] == "stepId" else place(path)
    assert refused(json.dumps(changed(path, OUT))) == {where}


@pytest.mark.parametrize("path", [("extra",), (*STEP, "extra"), (*STEP, "step_id")], ids=str)
def test_a_field_too_many(path):
    assert refused(json.dumps(changed(path, 1))) == {place(path)}


@pytest.mark.parametrize("path", [p for p in FIELDS if p[-1] != "result"], ids=lambda p: p[-1])
def test_a_field_that_is_given_twice(path):
    key = f'"{path[-1]}": '
    wire = TEXT.replace(key, f"{key}1, {key}", 1)
    step = "Research" if path[-1] == "objective" else "a"
    assert refused(wire) == {(None, "objective") if step == "Research" else place(path)}


WRONG = [
    (("schemaVersion",), [2, 0, "1", True, None, 1.5, [1]]),
    (("revision",), [0, -1, "1", True, None, 1.5, [1]]),
    (("objective",), ["", "  \n", 1, None, ["x"]]),
    (("steps",), [{}, None, "a", 1]),
    ((*STEP, "stepId"), ["", " ", 1, None, {}]),
    ((*STEP, "objective"), ["", 1, None]),
    ((*STEP, "dependencies"), ["a", {}, None]),
    ((*STEP, "dependencies", 0), [1, None, "", ["a"]]),
    ((*STEP, "executionTarget"), ["", "search", "http://x", 1, None]),
    ((*STEP, "inputSchema"), [True, None, "{}", [], 1]),
    ((*STEP, "outputSchema"), [False, None, "{}", []]),
    ((*STEP, "completionCriteria"), ["", 1, None]),
    ((*STEP, "status"), ["pending", "DONE", "", None, 0]),
    ((*STEP, "error"), [1, {}, False, ["x"]]),
]


@pytest.mark.parametrize(
    ("path", "value"), [(p, v) for p, values in WRONG for v in values],
    ids=lambda x: str(x).replace("\n", ""),
)  # fmt: skip
def test_a_value_of_the_wrong_kind(path, value):
    document = changed((*STEP, "dependencies"), ["b"]) if path[-1] == 0 else GOOD
    document = copy.deepcopy(document)
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    where = place(path)
    if path[-1] == "stepId" and (not isinstance(value, str) or not value.strip()):
        where = ("steps[0]", "stepId")
    if path[-1] == 0:
        where = ("a", "dependencies[0]")
    assert refused(json.dumps(document)) == {where}


def result(text):
    return TEXT.replace('{"rows": [1, {"n": null}]}', text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("NaN", "result"),
        ("[1, Infinity]", "result[1]"),
        ('{"a": {"b": -Infinity}}', "result.a.b"),
        ("1e999", "result"),
        ("-1e400", "result"),
        ("9" * 309, "result"),
        ("9" * 5000, "result"),
        ("[" + "1" * 100_000 + "]", "result[0]"),
        ('{"a": 1, "a": 1}', "result.a"),
        ('[[{"x": {"a b": 1, "c": 2, "a b": 3}}]]', "result[0][0].x['a b']"),
        ('"\\ud800"', "result"),
        ('["x", "\\udc00\\ud800"]', "result[1]"),
        ('{"a": {"\\ud800": 1}}', "result.a"),
        ("[" * 127 + "]" * 127, "result" + "[0]" * 125),
        ("[" * 500 + "]" * 500, "result" + "[0]" * 125),
    ],
    ids=lambda x: x[:30],
)
def test_a_result_that_is_no_json(text, field):
    assert refused(result(text)) == {("a", field)}


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"objective": "Research', '"objective": "\\ud83d Research', (None, "objective")),
        ('"stepId": "a"', '"stepId": "\\ud83d"', ("steps[0]", "stepId")),
        ('"revision": 3', '"revision": 1e400', (None, "revision")),
        ('"revision": 3', '"revision": NaN', (None, "revision")),
        ('"inputSchema": {"type"', '"inputSchema": {"type": 1, "type"', ("a", "inputSchema.type")),
        ('{"type": "object"}', '{"minimum": Infinity}', ("a", "inputSchema.minimum")),
    ],
)  # fmt: skip
def test_other_places_that_are_no_json(old, new, where):
    assert old in TEXT
    assert refused(TEXT.replace(old, new, 1)) == {where}


@pytest.mark.parametrize(
    "wire",
    [
        "", " ", "{", "}", TEXT[:-1], TEXT + "}", TEXT + TEXT, TEXT + " x", TEXT + "\x00",
        "\ufeff" + TEXT, "// plan\n" + TEXT, TEXT.replace('"', "'"), TEXT[:-1] + ",}",
        TEXT.replace('"a",', '"a",,', 1), "```json\n" + TEXT + "\n```", "null", "1", '"x"', "[]",
        "[" + TEXT + "]", "NaN", "[" * 100_000, '{"a":' * 100_000, b"", b"\xff",
        TEXT.encode("utf-16"), b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode().replace(b"Read", b"\xed\xa0\x80"), TEXT.replace("Read", "\n"),
        None, 1, GOOD, [TEXT],
    ],
    ids=lambda w: str(w)[:12] or "empty",
)  # fmt: skip
def test_what_is_no_document(wire):
    assert refused(wire) == {(None, "(document)")}


def test_everything_that_is_wrong_is_told_at_once():
    document = changed((*STEP, "status"), "DONE")
    del document["steps"][1]["error"]
    document["steps"].append(7)
    document |= {"revision": 0, "note": ""}
    assert refused(json.dumps(document)) == {
        ("a", "status"), ("总结", "error"), ("steps[2]", "(step)"), (None, "revision"),
        (None, "note"),
    }  # fmt: skip


def test_of_another_version_only_the_version_is_told():
    assert refused('{"schemaVersion": 2, "tasks": [1]}') == {(None, "schemaVersion")}


def test_what_arrived_is_told():
    with pytest.raises(PlanValidationError, match="schemaVersion: expected 1, got 2"):
        CODEC.decode('{"schemaVersion": 2}')
    with pytest.raises(PlanValidationError) as e:
        CODEC.decode(json.dumps(changed((*STEP, "dependencies"), {"k": "x" * 10_000})))
    assert len(str(e.value)) < 600


# ---- round trips -----------------------------------------------------------------------------

CHARACTERS = st.characters(exclude_categories=["Cs"])
WORDS = st.text(CHARACTERS, min_size=1, max_size=12).filter(lambda t: any(c.isalnum() for c in t))
SHORT = st.text(CHARACTERS, max_size=5)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.integers() | st.integers(-(10**300), 10**300) | FINITE
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | SHORT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(SHORT, JSON, max_size=3)
STEPS = st.fixed_dictionaries(
    {
        "step_id": WORDS, "objective": WORDS,
        "dependencies": st.lists(WORDS, max_size=3).map(tuple),
        "execution_target": st.builds("{}:{}".format, st.sampled_from(["tool", "agent"]), WORDS),
        "input_schema": OBJECTS, "output_schema": OBJECTS, "completion_criteria": WORDS,
        "status": st.sampled_from(PlanStepStatus), "result": JSON,
        "error": st.none() | SHORT,
    }
).map(lambda fields: PlanStep(**fields))  # fmt: skip
SPECS = st.fixed_dictionaries(
    {
        "revision": st.integers(1) | st.integers(10**200, 10**300), "objective": WORDS,
        "steps": st.lists(STEPS, max_size=4).map(tuple),
    }
).map(lambda fields: PlanSpec(**fields))  # fmt: skip


@given(SPECS)
@settings(deadline=None, max_examples=300)
def test_the_round_trip_is_exact(spec):
    text = CODEC.encode(spec)
    back = CODEC.decode(text)
    assert back == spec
    assert repr(back) == repr(spec)  # 1, 1.0 and True are equal, and written otherwise
    assert CODEC.encode(back) == text
    assert CODEC.decode(text.encode()) == spec


def test_numbers_come_back_as_they_are():
    rows = [1, 1.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 2**64 + 1, 10**308, True]
    spec = CODEC.decode(TEXT)
    spec = spec.replace(steps=(spec.steps[0].replace(result=rows),))
    assert repr(CODEC.decode(CODEC.encode(spec)).steps[0].result) == repr(rows)


def test_an_integer_may_be_written_as_a_float():
    """JSON Schema has one kind of number; in a record it is an int."""
    text = TEXT.replace(": 1,", ": 1.0,", 1)
    spec = CODEC.decode(text.replace('"revision": 3', '"revision": 3.0'))
    assert (repr(spec.revision), repr(spec.schema_version)) == ("3", "1")
    spec = CODEC.decode(text.replace('"revision": 3', '"revision": 1e300'))
    assert spec.revision == int(1e300)
    assert type(spec.revision) is int


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"step_id": " "}, "stepId"), ({"objective": ""}, "objective"),
        ({"execution_target": "search"}, "executionTarget"),
        ({"result": float("nan")}, "result"), ({"result": (1, 2)}, "result"),
        ({"result": {"a": {1}}}, "result.a"), ({"result": {1: "a"}}, "result"),
        ({"result": ["\ud800"]}, "result[0]"), ({"result": 10**400}, "result"),
        ({"result": b"x"}, "result"), ({"input_schema": {"a": object}}, "inputSchema.a"),
        ({"dependencies": ("",)}, "dependencies[0]"),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_not_come_back_is_not_written(fields, field):
    spec = CODEC.decode(TEXT)
    step = spec.steps[0].replace(**fields)
    with pytest.raises(PlanValidationError) as e:
        CODEC.encode(spec.replace(steps=(step,)))
    assert [v.field for v in e.value.violations] == [field]


def test_nesting_has_a_limit_and_it_is_the_same_both_ways():
    spec = CODEC.decode(result("[" * (NESTING - 3) + "]" * (NESTING - 3)))
    assert CODEC.decode(CODEC.encode(spec)) == spec
    deeper = spec.steps[0].replace(result=[spec.steps[0].result])
    with pytest.raises(PlanValidationError, match=f"nested more than {NESTING} levels"):
        CODEC.encode(spec.replace(steps=(deeper,)))


@pytest.mark.parametrize("fields", [{"schema_version": 2}, {"revision": 0}, {"objective": " "}])
def test_a_spec_that_is_none_is_not_written(fields):
    with pytest.raises(PlanValidationError):
        CODEC.encode(CODEC.decode(TEXT).replace(**fields))


# ---- the schema is the authority -------------------------------------------------------------


def edits():
    """Documents near the good one: a value put somewhere, or a key taken out."""
    more = [(*STEP, "dependencies"), ("steps", 1, "dependencies", 0), STEP, ("x",)]
    values = JSON | st.just(OUT) | st.sampled_from(["PENDING", "tool:x"])
    return st.builds(changed, st.sampled_from([*FIELDS, *more]), values)


@given(edits())
@settings(deadline=None, max_examples=400)
@example(changed(("revision",), 1.0))
@example(changed(("schemaVersion",), True))
@example(changed((*STEP, "status"), "RUNNING"))
def test_decode_takes_what_fits_the_schema_and_nothing_else(document):
    jsonschema = pytest.importorskip("jsonschema")
    fits = jsonschema.Draft202012Validator(CODEC.json_schema()).is_valid(document)
    try:
        spec = CODEC.decode(json.dumps(document))
    except PlanValidationError:
        assert not fits
    else:
        assert fits
        assert canonical(json.loads(CODEC.encode(spec))["steps"]) == canonical(document["steps"])


def test_the_schema_is_the_callers_own():
    schema = CODEC.json_schema()
    schema["properties"].clear()
    assert CODEC.json_schema()["properties"]
    assert CODEC.decode(TEXT)


# ---- fuzz ------------------------------------------------------------------------------------

NOISE = st.text('{}[]",:1eEaN+-.\\u', max_size=60)
SPOILS = ["", "1", "{", '"', "[", ",", "\\", "NaN", "\ud800", "e9", "\\ud800", '"a": 1, "a"']


@given(st.binary(max_size=200) | st.text(max_size=200) | JSON.map(json.dumps) | NOISE)
@settings(deadline=None, max_examples=500)
def test_whatever_comes_nothing_else_is_raised(wire):
    with pytest.raises(PlanValidationError):
        CODEC.decode(wire)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_a_spoilt_document_raises_nothing_else(data):
    wire = TEXT
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(wire)))
        end = data.draw(st.integers(start, min(len(wire), start + 20)))
        put = data.draw(st.sampled_from([*SPOILS, wire[start:end] * 2]))
        wire = wire[:start] + put + wire[end:]
    try:
        spec = CODEC.decode(wire)
    except PlanValidationError:
        return
    assert CODEC.decode(CODEC.encode(spec)) == spec


def test_all_that_is_no_strict_json_is_told():
    text = json.dumps(GOOD).replace('"objective": "Read the first."',
                                    '"objective": "Read.", "objective": "Again."')  # fmt: skip
    text = text.replace('"revision": ', '"revision": NaN, "revision": ')
    text = text[:-1] + ', "more": ["' + "1e999" + '", 1e999, {"deep": -Infinity}]}'
    for spelled in (text, text.encode()):
        with pytest.raises(PlanValidationError) as e:
            CODEC.decode(spelled)
        told = [(v.step, v.field, v.problem.partition(" (")[0]) for v in e.value.violations]
        assert told == [
            (None, "revision", "NaN is no JSON"),
            (None, "revision", "the key 'revision' is given twice"),
            ("a", "objective", "the key 'objective' is given twice"),
            (None, "more[1]", "1e999 is no number that a double can hold"),
            (None, "more[2].deep", "-Infinity is no JSON"),
        ]
