"""A span's row, and the text of an LM call whatever its documents look like."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

import agentlab as al
from agentlab.lm.scripted import scripted
from agentlab.trace.span import Span

anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def lm_span(asked, said=None):
    span = Span(1, 0, "lm", "m", 1, "", 0, asked, 0.0, 0.0)
    span.output = said
    return span


def test_prompt_and_reply_of_a_real_call(chain):
    plan = json.dumps({"summary": "", "steps": [], "answer": "so"})
    lab = al.Lab(chain(), planner="structured", lm=scripted(lambda request, n: plan))
    run = al.autonomous.start(lab)
    run.finish()
    call = run.recorder.of_kind("lm")[0]
    assert call.reply == plan
    assert call.prompt.startswith("[system]\nMake a plan")
    assert f"## task\n{lab.scenario.task}" in call.prompt
    assert [role for role, _ in call.messages()] == ["system", "user"]


def test_parts_that_are_no_text_are_shown_as_they_are():
    parts = [{"type": "text", "text": "see "}, {"type": "image", "url": "x"}]
    span = lm_span({"system": "be brief", "messages": [{"role": "user", "parts": parts}]})
    assert span.messages() == [
        ("system", "be brief"), ("user", 'see {"type": "image", "url": "x"}')
    ]  # fmt: skip
    said = {"message": {"parts": [{"type": "data", "value": {"action": "ABORT"}}]}}
    assert lm_span({}, said).reply == '{"action": "ABORT"}'
    assert (lm_span(None).prompt, lm_span(None).reply, lm_span({}, "hi").reply) == ("", "", "hi")


@given(asked=anything, said=anything)
def test_any_document_has_a_text(asked, said):
    for span in (lm_span(asked, said), lm_span({"messages": asked, "system": said},
                                               {"message": {"parts": said}})):  # fmt: skip
        assert isinstance(span.prompt, str)
        assert isinstance(span.reply, str)


@given(asked=anything, said=anything)
def test_a_row_comes_back(asked, said):
    span = lm_span(asked, said)
    assert repr(Span.from_row(span.row()).row()) == repr(span.row())
