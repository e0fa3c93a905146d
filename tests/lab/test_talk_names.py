"""Talks of one visit: each has addresses and a stream of its own."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.errors import ConfigError, LMError, LMRefused
from agentlab.lm.door import lm_errors
from agentlab.lm.recording import Recording
from agentlab.lm.scripted import scripted
from agentlab.lm.serde import load_dspy
from agentlab.runs.graph import END, Node, node
from agentlab.runs.run import Run
from agentlab.trace.journal import Address
from agentlab.trace.served import served_calls
from agentlab.workflows.workflow import Workflow

dspy = load_dspy()

TALKS = (("", "a"), ("", "b"), ("think", "c"), ("", "d"), ("think", "e"))
PLACES = ["", "#2", "think", "#3", "think#2"]


def asked(text):
    return dspy.settings.lm(text)[0]


@node
def several(state, lab):
    """Ask in several talks, twice in each; later ones begin while earlier ones are open."""
    said = []
    for name, text in TALKS:
        with lab.asking(state, name=name) as talk:
            said += [asked(text), asked(text)]
        state = talk.charged(state)
    return state.replace(final_response=" ".join(said), next_action=END)


@node
def shaky(state, lab):
    """Ask once, and fail the first time."""
    with lab.asking(state) as talk:
        text = asked("shaky")
    if BREAKS:
        raise RuntimeError(BREAKS.pop())
    with lab.asking(state) as other:
        text += asked("shaky")
    return other.charged(talk.charged(state)).replace(final_response=text)


BREAKS = []
ask = Workflow("ask", [several, shaky], {"several": "shaky", "shaky": END}, "several")


def echo(request, n):
    return f"{request.messages[-1].text}{n}"


def places(run, visit=0):
    return [a for a in run.journal.entries if a.visit == visit]


def test_talks_of_a_visit_have_addresses_of_their_own():
    model = scripted(echo)
    run = ask.start(al.Lab(tools=[], lm=model), "hi")
    run.finish()
    assert places(run) == [Address(0, "", 0, n, talk) for talk in PLACES for n in (1, 2)]
    report = run.replay()
    assert report.identical, report
    assert report.served == 12
    assert len(model.engine.requests) == 12
    assert run.states[1].lm_calls == 10


def test_a_replay_from_spans_alone_finds_the_talks():
    run = ask.start(al.Lab(tools=[], lm=scripted(echo)), "hi")
    run.finish()
    lab = al.Lab(tools=[], lm=scripted([])).bind(journal=served_calls(run.recorder.of_kind("lm")))
    assert several(run.states[0], lab).final_response == run.states[1].final_response


def test_a_visit_that_is_made_again_has_the_same_addresses(tmp_path):
    run = ask.start(al.Lab(tools=[], lm=scripted(echo)), "hi", store=tmp_path)
    run.step()
    BREAKS.append("once")
    with pytest.raises(RuntimeError, match="once"):
        run.step()
    run.step()
    assert places(run, 1) == [Address(1, "", 0, 1), Address(1, "", 0, 1, "#2")]
    assert run.replay().identical
    again = Run.resume(tmp_path, al.Lab(tools=[], lm=scripted([])), workflow=ask)
    assert places(again) == places(run)
    assert again.replay().identical
    fork = run.fork(at=0)
    fork.step()
    assert places(fork) == places(run)


def test_a_resumed_visit_makes_no_call_twice(tmp_path):
    first = scripted(echo)
    run = ask.start(al.Lab(tools=[], lm=first), "hi", store=tmp_path)
    run.step()
    BREAKS.append("killed")
    with pytest.raises(RuntimeError):
        run.step()
    second = scripted(echo)
    Run.resume(tmp_path, al.Lab(tools=[], lm=second), workflow=ask).finish()
    assert (len(first.engine.requests), len(second.engine.requests)) == (11, 1)


def test_a_fork_changes_the_reply_of_any_talk():
    run = ask.start(al.Lab(tools=[], lm=scripted(echo)), "hi")
    run.step()
    fork = run.fork(at=0, replies={9: "other"})
    fork.step()
    assert fork.state.final_response == "a0 a1 b2 b3 c4 c5 d6 d7 e8 other"


def test_open_talks_charge_what_each_of_them_counted(tmp_path):
    def both(state, lab):
        with lab.asking(state, name="a") as one, lab.asking(state, name="b") as other:
            asked("x")
        with lab.asking(state, name="c") as third:
            asked("y")
        for talk in (third, other, one):
            state = talk.charged(state)
        return state

    model = scripted(echo).recorded(Recording(tmp_path / "r.jsonl", "record"))
    run = Workflow("both", [Node("both", both)], {"both": END}, "both").start(
        al.Lab(tools=[], lm=model), "hi"
    )
    run.finish()
    assert (run.state.lm_calls, sorted(run.state.lm_requests.values())) == (2, [1, 1])


def test_a_name_that_would_be_mistaken_for_a_number():
    lab = al.Lab(tools=[], lm=scripted(echo))
    with (
        pytest.raises(ConfigError, match="'think#2'"),
        lab.asking(lab.initial_state("x"), name="think#2"),
    ):
        pass


class Heard:
    def __init__(self):
        self.answer, self.thinking = [], []

    def on_token(self, text):
        self.answer.append(text)

    def on_thinking_content(self, stage, text):
        self.thinking.append((stage, text))


def test_only_the_tokens_of_an_answer_are_tokens():
    def speak(state, lab):
        with lab.asking(state):
            asked("quiet")
        with lab.asking(state, name="reasoning"):
            asked("aloud and")
        with lab.asking(state, name="answer", on_token=lambda t: lab.emit("on_token", t)):
            asked("the answer")
        return state

    handler = Heard()
    lab = al.Lab(tools=[], lm=scripted(echo), handler=handler)
    Node("speak", speak)(lab.initial_state("x"), lab)
    assert "".join(handler.answer) == "the answer2"
    assert {stage for stage, _ in handler.thinking} == {"reasoning"}
    assert "".join(text for _, text in handler.thinking) == "aloud and1"
    assert len(handler.thinking) > 1  # as they came


def test_a_call_that_failed_has_an_address_too():
    def fails(state, lab):
        for _ in range(2):
            with lab.asking(state) as talk, pytest.raises(LMError), lm_errors():
                asked("x")
            state = talk.charged(state)
        return state

    run = Workflow("w", [Node("fails", fails)], {"fails": END}, "fails").start(
        al.Lab(tools=[], lm=scripted([LMRefused("no", model="m")] * 2)), "x"
    )
    run.finish()
    assert run.replay().identical
    assert [a.talk for a in places(run)] == ["", "#2"]
