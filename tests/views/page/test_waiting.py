"""What waits for people, as HTML: everything is shown, and nothing of it is markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from agentlab.runs.graph import END, WAIT
from agentlab.state.tool_loop import PendingApproval
from agentlab.views.page.html import run_html, standing
from agentlab.views.page.waiting import waiting_html
from agentlab.views.people import arguments_text


@pytest.fixture
def waiting(notes, step):
    refund = notes.tool("refund", effect="irreversible", needs_approval=True)
    return notes.run([step("pay", "refund", parameters={"order": 17})], tools=[refund])


def test_the_static_form_says_what_waits(waiting, check):
    text = check(run_html(waiting)).text
    assert "waits for people" in text
    assert "pay: refund (irreversible)" in text
    assert '{\n  "order": 17\n}' in text
    assert "<button" not in run_html(waiting)


def test_a_run_that_does_not_wait_says_nothing_of_it(notes, step):
    assert waiting_html(notes.run([step("a")])) is None


class Boxes(HTMLParser):
    """The text in each textarea, as a browser has it."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.texts, self.inside = [], False
        self.feed(source)

    def handle_starttag(self, name, attributes):
        self.inside = name == "textarea"
        if self.inside:
            self.texts.append("")

    def handle_endtag(self, name):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


@pytest.mark.parametrize("live", [True, False])
def test_foreign_text_stays_text(hostile, hostile_run, check, live):
    run = hostile_run(hostile, WAIT)
    assert standing(run)[0] == "waits for people"
    made = waiting_html(run, live=live)
    check(made)
    check(run_html(run))
    if live:  # what the box holds is what the call has, to the character
        assert json.loads(Boxes(made).texts[0]) == {hostile: hostile}
    assert waiting_html(hostile_run(hostile, END), live=live) is None


def test_arguments_are_shown_whole():
    call = PendingApproval(call_id="a", tool="t", arguments={"text": "x" * 9000 + "\ud800\x9b"})
    text = arguments_text(call)
    assert "x" * 9000 in text
    assert text.isprintable()
    assert json.loads(text) == call.arguments


def test_a_router_that_raises_hides_nothing(waiting, monkeypatch):
    def broken(self):
        raise ZeroDivisionError

    monkeypatch.setattr(type(waiting), "next_node", property(broken))
    assert "refund" in waiting_html(waiting)
