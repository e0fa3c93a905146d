"""The adapters: what is sent, where the schema goes, and how strictly a reply is read."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given, settings, strategies as st

from agentlab.base.surrogates import spelled
from agentlab.errors import JsonError
from agentlab.lm.adapters import (
    DocumentAdapter,
    ParseError,
    TextAdapter,
    document,
    parse_problem,
    signature,
)
from agentlab.lm.door import lm_errors
from agentlab.lm.scripted import scripted
from agentlab.lm.serde import load_dspy

dspy = load_dspy()

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ASKED = signature("Ask", "Count.\n\n- Only once.", {"what": "a word", "more": ""}, "count")


def ask(model, adapter, demos=(), **inputs):
    predict = dspy.Predict(ASKED)
    predict.demos = list(demos)
    with dspy.context(lm=model.lm(), adapter=adapter, disable_history=True), lm_errors():
        return predict(**{"what": "bees", "more": "none"} | inputs).count


# ---- what is sent ----------------------------------------------------------------------------


def test_instructions_inputs_and_form_are_the_system_message():
    model = scripted(["three"])
    assert ask(model, TextAdapter(), what="be{e}s\n## count") == "three"
    [request] = model.engine.requests
    assert request.system == (
        "Count.\n\n- Only once.\n\nYou are given:\n- what: a word\n- more: an input\n\n"
        "Reply with the text alone."
    )
    [message] = request.messages
    assert message.text == "## what\nbe{e}s\n## count\n\n## more\nnone"


@pytest.mark.parametrize("sends", [True, False])
def test_the_schema_goes_beside_the_prompt_or_into_it(sends):
    model = scripted(['{"n": 3}'], response_schema=sends)
    assert ask(model, DocumentAdapter(SCHEMA, "count")) == {"n": 3}
    [request] = model.engine.requests
    beside = request.config.response_format
    assert ("It must fit this JSON Schema" in request.system) is not sends
    assert (json.dumps(SCHEMA) in request.system) is not sends
    if sends:
        assert (beside["type"], beside["name"]) == ("json_schema", "count")
        assert (beside["schema"], beside["strict"]) == (SCHEMA, True)
    else:
        assert beside is None


def test_an_endpoint_that_knows_json_but_no_schema_is_asked_for_json():
    from dataclasses import replace

    model = replace(scripted(['{"n": 3}']), supports=("response_format",))
    assert ask(model, DocumentAdapter(SCHEMA, "count")) == {"n": 3}
    [request] = model.engine.requests
    assert request.config.response_format["type"] == "json_object"
    assert json.dumps(SCHEMA) in request.system


def test_demonstrations_come_before_the_task():
    model = scripted(['{"n": 3}', "three"])
    demo = dspy.Example(what="ants", more="some", count={"n": 9})
    ask(model, DocumentAdapter(SCHEMA, "count"), [demo])
    ask(model, TextAdapter(), [dspy.Example(what="ants", more="some", count="nine ä")])
    first, second = model.engine.requests
    assert [m.role for m in first.messages] == ["user", "assistant", "user"]
    assert first.messages[0].text == "## what\nants\n\n## more\nsome"
    assert json.loads(first.messages[1].text) == {"n": 9}
    assert second.messages[1].text == "nine ä"


# ---- how a reply is read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 3}',
        '  {"n": 3}\n',
        '```json\n{"n": 3}\n```',
        '```\n{"n": 3}\n```\n',
        '\n```json\n{\n "n": 3\n}\n  ```',
    ],
)
def test_a_document(text):
    assert ask(scripted([text]), DocumentAdapter(SCHEMA, "count")) == {"n": 3}


WRITTEN = '{"n": 3, "m": "``` <think> \\\\ ~~~"}'


@pytest.mark.parametrize("word", ["json", "JSON", "", "jsonc", "Json5"])
@pytest.mark.parametrize("marks", ["```", "````", "~~~", "~~~~~"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", " ", "\n\n  ", ""])
@pytest.mark.parametrize("front", ["", "\ufeff", "\u200b\n", "  "])
def test_a_fence_around_the_whole_is_taken_off_however_it_is_spelt(word, marks, ends, front):
    for gap in ("", " "):
        text = f"{front}{marks}{gap}{word}{ends}{WRITTEN}{ends}{marks}{ends}"
        assert document(text) == json.loads(WRITTEN)
    assert document(f"{front}{WRITTEN}{ends}") == json.loads(WRITTEN)


@pytest.mark.parametrize(
    "text",
    [
        "Here:\n```json\n{}\n```",
        "```json\n{}\n```\nDone.",
        "```json\n{}",
        "{}\n```",
        "```python\n{}\n```",
        "```json\n{}\n~~~",
        "```json\n{}\n```\n```json\n{}\n```",
        "```",
        "``````",
        "`{}`",
        "````\n{}\n```",
    ],
)
def test_what_is_no_fence_around_the_whole_is_no_document(text):
    with pytest.raises(JsonError):
        document(text)


@pytest.mark.parametrize(
    "endless", ["\n", " ", "`", "~", "\n```", "```json\n", "\ufeff", "json", "\\", "{", "a\n"]
)
@pytest.mark.parametrize("front", ["", '```json\n{"steps": []}', '{"steps": []}', "~~~"])
def test_reading_is_linear_in_the_reply(front, endless):
    def seconds(times):
        began = process_time()
        for text in (front + endless * times, front + endless * times + "x"):
            with suppress(JsonError):
                document(text)
        return process_time() - began

    assert seconds(100_000) < 40 * max(seconds(10_000), 0.005)  # 100 times where it is quadratic


# ---- half surrogate pairs --------------------------------------------------------------------

halves = st.lists(
    st.sampled_from(["\\", "\udce9", "\ud83d", "u", "d", "dce9", "8", "a", '"', "\ude00"])
)


def unspelled(text):
    """Read back what was spelled: by the number of backslashes."""

    def original(found):
        marks = len(found[1]) // 2 * "\\"
        return marks + (chr(int(found[2], 16)) if len(found[1]) % 2 else f"u{found[2]}")

    return re.sub(r"(\\+)u([dD][89a-fA-F][0-9a-fA-F]{2})", original, text)


@given(halves.map("".join), halves.map("".join))
@settings(deadline=None, max_examples=300)
def test_halves_of_pairs_are_spelled_so_that_they_can_be_read_back(text, other):
    sent = spelled(text)
    sent.encode()
    assert unspelled(sent) == text
    assert (sent == spelled(other)) == (text == other)


def test_a_prompt_with_half_a_pair_is_sent_and_a_copy_of_it_is_the_original():
    name = os.fsdecode(b"caf\xe9")
    model = scripted(['{"n": "caf\\udce9"}'] * 2)
    assert ask(model, DocumentAdapter(SCHEMA, "count"), what=name) == {"n": name}
    ask(model, DocumentAdapter(SCHEMA, "count"), what="caf\\udce9")
    first, second = [r.messages[-1].text for r in model.engine.requests]
    assert first != second
    assert "caf\\udce9" in first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The LM returned an empty or null response"),
        (" \n", "JSON"),
        ('{"n": 1e999}', "1e999 is no number"),
        ('{"n": 3, "m": {"n": 1, "n": 2}}', "'n' is given twice"),
        ("[" * 100_000, "nested more than"),
        ('{"n": NaN}', "NaN is no JSON"),
        ('{"n": -Infinity}', "-Infinity is no JSON"),
        ('{"n": 3} and more', "there is more after the document"),
        ('{"n": 3}{"n": 4}', "there is more after the document"),
        ('Here you are:\n```json\n{"n": 3}\n```', "expected a value"),
        ('{"n": 3,}', "JSON"),
        ("{'n': 3}", "expected a key in double quotes"),
        ('{"n": 3', "expected a comma or the end"),
    ],
)
def test_nothing_is_repaired(text, said):
    model = scripted([text])
    with pytest.raises(ParseError) as caught:
        ask(model, DocumentAdapter(SCHEMA, "count"))
    problem = parse_problem(caught.value)
    assert said in problem
    assert "LM Response" not in problem  # the reply is kept in its span, not repeated to the model
    assert len(model.engine.requests) == 1  # dspy asks nobody behind our back


def test_text_is_as_it_came():
    assert ask(scripted(["  three\n"]), TextAdapter()) == "  three\n"
    assert ask(scripted(['```json\n{"n": 3}\n```']), TextAdapter()) == '```json\n{"n": 3}\n```'


def test_adapters_of_two_documents_do_not_meet():
    """What one endpoint supports is not remembered for another."""
    adapter = DocumentAdapter(SCHEMA, "count")
    for sends in (True, False, True):
        model = scripted(['{"n": 3}'], response_schema=sends)
        ask(model, adapter)
        assert (json.dumps(SCHEMA) in model.engine.prompts[0]) is not sends
