"""The Inspector's message traffic, through a fake comm: what the front end sends and gets."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

import agentlab as al
from agentlab.lm.scripted import scripted
from agentlab.runs.run import Run
from agentlab.views.inspector import inspector as module
from agentlab.views.inspector.inspector import ACTIONS, Inspector, inspector_of


def test_nothing_is_run_by_showing_a_run(run, notes, front_end):
    front = front_end(run)
    assert run.visited == []
    assert notes.made == []
    view = front.view
    assert (view["at"], view["last"], view["ended"], view["running"]) == (0, 0, False, False)
    assert view["nodes"] == list(run.workflow.nodes)
    assert view["tools"] == ["note", "broken"]
    assert "error" in view["kinds"]
    assert "lm_refused" not in view["kinds"]
    assert "There is no plan yet" in view["panels"]["graph"]
    assert "no LM call" in view["panels"]["lm"]
    assert view["editor"] == {"text": None, "errors": [], "accepted": 0}
    assert "agentlab-inspector" in front.widget._dom_classes


def test_step(run, front_end):
    front = front_end(run)
    seen = []
    while not front("step")["ended"]:
        seen.append(front.said)
        assert front.view["last"] == front.view["at"] == len(run.visited)
        assert front.widget.error is None
    assert seen == [
        "load_config: done", "planning: plan", "plan_execution: a completed",
        "plan_execution: b completed", "reflection: CONTINUE",
    ]  # fmt: skip
    assert run.finished
    assert (front.view["settled"], front.view["steps"]) == (2, 2)
    assert "agentlab-is-completed" in front.view["panels"]["graph"]
    front("step")
    assert front.failed
    assert front.said == "the run is finished; say something, rewind or fork it to go on"
    front("run")
    assert front.failed
    assert "the run is finished" in front.said


def test_run_to_the_end(run, front_end):
    view = front_end(run)("run")
    assert run.finished
    assert (view["running"], view["ended"]) == (False, True)


def test_run_to_a_node(run, front_end):
    front = front_end(run)
    assert front("run", node="reflection")["running"] is False
    assert run.next_node == "reflection"
    assert front("run", node="planning")["ended"] is True
    assert front.said == "The run ended without reaching planning."
    assert not front.failed


def test_a_long_run_goes_on_in_chunks_and_can_be_paused(run, monkeypatch, front_end):
    monkeypatch.setattr(module, "CHUNK", -1.0)  # a visit a chunk
    front = front_end(run)
    assert front("run")["running"] is True
    assert len(run.visited) == 1
    assert front("go_on")["running"] is True
    assert front.view["last"] == 2
    assert front("pause")["running"] is False
    assert front.said == "Paused after 2 visits."
    front("go_on")  # was under way when the pause was clicked
    assert run.visited[2:] == ["(pause)"]
    assert ">paused<" in front.view["panels"]["head"]
    assert (front.view["ended"], front.view["waits"]) == (False, False)
    front("run", node="reflection")
    while front.view["running"]:
        front("go_on")
    assert run.next_node == "reflection"
    front("run")
    while front.view["running"]:
        front("go_on")
    assert run.finished
    assert [n for n in run.visited if n[0] == "("] == ["(pause)", "(go on)"]
    assert run.replay().identical


def test_a_pause_of_another_thread_is_shown_and_a_step_goes_on(run, front_end):
    front = front_end(run)
    run.pause(by="Ada")
    assert front("run")["running"] is False
    assert front.said == "The run is paused; step or run to go on."
    assert "Ada paused the run" in front.view["panels"]["trace"]
    front("step")
    assert run.visited == ["(pause)", "(go on)", "load_config"]
    assert not front.failed


@pytest.mark.parametrize("action", ["step", "rewind", "fork"])
def test_any_other_action_ends_a_long_run(run, monkeypatch, action, front_end):
    monkeypatch.setattr(module, "CHUNK", -1.0)
    front = front_end(run)
    front("run")
    assert front(action)["running"] is False
    before = len(front.widget.run.visited)
    front("go_on")
    assert len(front.widget.run.visited) == before


def test_it_works_beside_a_running_event_loop(run, front_end):
    async def cell():
        front = front_end(run)
        assert asyncio.get_running_loop().is_running()
        front("step")
        front("run")
        return front.view["ended"]

    assert asyncio.run(cell()) is True
    assert "nest_asyncio" not in sys.modules


def test_look_shows_each_visit(run, front_end):
    front = front_end(run)
    front("run")
    for at in range(len(run.states)):
        view = front("look", at=at)
        assert view["at"] == at
        assert view["last"] == len(run.visited)
        done = sum(s.settled for s in run.states[at].task_plan.steps) if at > 1 else 0
        assert view["settled"] == done
        name = f"Changed by visit {at - 1}, {run.visited[at - 1]}" if at else "Nothing has run yet."
        assert name in view["panels"]["state"]
    assert front("look", at=1)["place"] == "before planning"
    assert front("look", at=99)["place"] == "where the run stands"
    assert front("look", at=-5)["at"] == 0
    assert "goal" in front.view["panels"]["head"] or "finished" in front.view["panels"]["head"]
    front("look", at=2)
    front("rewind")
    assert front("step")["at"] == 3  # it follows again


def test_select_shows_a_step(run, front_end):
    front = front_end(run)
    front("run")
    view = front("select", step="b")
    assert "agentlab-selected" in view["panels"]["graph"]
    assert "<h4>b " in view["panels"]["steps"]
    assert "<h4>" not in front("select", step=None)["panels"]["steps"]
    assert "has no step" in front("select", step="<zz>")["panels"]["steps"]
    assert "<zz>" not in json.dumps(front.view["panels"])


def test_rewind(run, notes, front_end):
    front = front_end(run)
    front("rewind")
    assert front.failed
    assert "nothing has run yet" in front.said
    front("run")
    last = len(run.visited)
    front("rewind")
    assert len(run.visited) == last - 1
    front("look", at=2)
    front("rewind")
    assert run.next_node == "plan_execution"
    assert front.said == "Back before visit 2."
    assert front.view["last"] == 2
    notes.made.clear()
    front("run")
    assert [name for name, _ in notes.made] == ["note", "note"]


def test_fork_executes_nothing_again_and_both_runs_can_be_shown(run, notes, front_end):
    front = front_end(run)
    front("run")
    notes.made.clear()
    front("look", at=3)
    view = front("fork")
    fork = front.widget.run
    assert notes.made == []
    assert fork is not run
    assert (fork.lineage.run_id, fork.lineage.at) == (run.run_id, 3)
    assert (view["run"], len(view["runs"]), view["last"]) == (1, 2, 3)
    assert view["runs"][1] == f"fork {fork.run_id[:6]} at 3"
    assert "a" in view["panels"]["trace"]  # what came before the fork is shown too
    assert "call_tool" in view["panels"]["trace"]
    front("run")
    assert [name for name, _ in notes.made] == ["note"]
    assert len(run.visited) == 6
    assert front("show_run", index=0)["run"] == 0
    assert front.widget.run is run
    front("show_run", index=1)
    front("look", at=2)
    front("rewind")
    assert front.failed
    assert "fork there instead" in front.said
    spans = front.widget._spans(6)
    assert [s.visit for s in spans if s.kind == "node"] == list(range(6))


def test_inject_a_fault_and_take_it_back(chain, front_end):
    run = al.autonomous.start(al.Lab(chain(), strategy="retry(1)"))
    front = front_end(run)
    front("run", node="plan_execution")
    front("inject", kind="error", tool="advance", persistence="permanent")
    (target,) = run.state.fault_plan.targets
    assert (target.kind, target.tool, target.persistence) == ("error", "advance", "permanent")
    assert front.view["targets"] == ["error on advance"]
    assert front.said == "Calls of advance meet error from here on."
    front("step")
    assert run.state.delivered[0].fault.source == "target"
    assert front("clear_faults")["targets"] == []
    assert run.replay().identical


def test_a_silent_fault(chain, front_end):
    run = al.autonomous.start(al.Lab(chain(), strategy="never"))
    front = front_end(run)
    front("run", node="plan_execution")
    front("inject", kind="wrong_result", tool="advance", silent=True)
    front("run")
    assert run.state.delivered[0].fault.visibility == "silent"


@pytest.mark.parametrize("given_", [
    {"kind": "error", "tool": "advanze"}, {"kind": "eror", "tool": "advance"},
    {"kind": "error", "tool": "advance", "persistence": "x"}, {"kind": "error"}, {},
])  # fmt: skip
def test_a_fault_that_does_not_exist_is_refused(chain, given_, front_end):
    run = al.autonomous.start(al.Lab(chain()))
    front = front_end(run)
    before = run.state
    front("inject", **given_)
    assert front.failed
    assert run.state is before


# ---- the same as without the Inspector --------------------------------------------------------

moves = st.lists(
    st.sampled_from(["step", "run", "rewind", "fork", "inject"])
    | st.tuples(st.just("look"), st.integers(0, 12))
    | st.tuples(st.just("run"), st.sampled_from(["plan_execution", "reflection", "planning"])),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(made=moves)
def test_the_inspector_does_what_the_run_does(made, front_end):
    def fresh() -> Run:
        lab = al.Lab(al.load_suite("chain")[1], strategy="retry_then_replan(1)", fault_rate=0.3)
        return al.autonomous.start(lab)

    front, plain, at = front_end(fresh()), fresh(), None
    for move in made:
        name, *given_ = (move,) if isinstance(move, str) else move
        keys = {"look": "at", "run": "node"}
        extra = {"kind": "error", "tool": "advance"} if name == "inject" else {}
        front(name, **dict(zip([keys.get(name)], given_, strict=False)), **extra)
        place = len(plain.visited) if at is None else at
        if name == "look":
            at = given_[0] if given_[0] < len(plain.visited) else None
            continue
        if name in ("step", "run") and plain.finished:
            continue  # refused
        if name == "step":
            plain.step()
        elif name == "run":
            goal = given_[0] if given_ else "END"
            plain.run_until(lambda s, goal=goal, run=plain: run.next_node in (goal, "END"))
        elif name == "rewind":
            to = place - (place == len(plain.visited))
            if to < plain.origin or to < 0:
                continue  # refused: what is looked at stays
            plain.rewind(to)
        elif name == "fork":
            plain = plain.fork(place)
        elif name == "inject":
            target = al.TargetedFault(tool="advance")
            old = plain.state.fault_plan
            plain.edit(fault_plan=old.replace(targets=(*old.targets, target)))
        at = None
    assert front.widget.run.state == plain.state
    assert front.widget.run.visited == plain.visited
    assert front.view["last"] == len(plain.visited)


# ---- life in a notebook -----------------------------------------------------------------------


class Shell:
    """As much of IPython as the Inspector uses."""

    kernel = object()

    def __init__(self) -> None:
        self.callbacks = []
        self.events = SimpleNamespace(
            register=lambda name, f: self.callbacks.append(f),
            unregister=lambda name, f: self.callbacks.remove(f),
        )

    def cell(self) -> None:
        for callback in list(self.callbacks):
            callback("result")


def test_it_follows_what_cells_do_until_it_is_closed(run, monkeypatch, front_end):
    import IPython

    shell = Shell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    front = front_end(run)
    run.step()
    assert front.view["last"] == 0
    shell.cell()
    assert front.view["last"] == 1
    front.widget.close()
    shell.cell()
    assert shell.callbacks == []


def test_a_run_has_one_inspector_however_often_it_is_shown(run, front_end):
    first = inspector_of(run)
    assert inspector_of(run) is first
    assert inspector_of(run.fork()) is not first
    run.step()
    inspector_of(run)
    assert front_end(first).view["last"] == 1
    first.close()
    assert inspector_of(run) is not first


def test_what_a_notebook_keeps_is_the_static_form(run, check):
    shown = Inspector(run)
    data, _ = shown._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html"}
    assert run._repr_html_() in data["text/html"]
    assert shown.place in check(data["text/html"]).values
    assert data["text/plain"] == f"<inspector of run {run.run_id}>"
    assert Inspector(run).place != shown.place


def test_a_host_that_needs_a_reference_to_the_widget_gets_both_forms(run, monkeypatch):
    monkeypatch.setenv("VSCODE_PID", "1")
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    data, _ = Inspector(run)._repr_mimebundle_()
    assert data["text/html"] == run._repr_html_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == "fake"
    monkeypatch.setenv("JPY_SESSION_NAME", "book.ipynb")  # JupyterLab in a terminal of VS Code
    data, _ = Inspector(run)._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html"}


def test_only_a_kernel_answers_a_front_end(run, front_end):
    front = front_end(run)
    front.comm.deliver(
        {"content": {"data": {"method": "update", "state": {"asked": "a word"}}}, "buffers": []}
    )
    answers = [m["state"]["answered"] for m in front.comm.sent if "answered" in m.get("state", ())]
    assert answers[-1] == "a word"


def test_every_action_of_the_front_end_exists():
    script = (module.HERE / "inspector.js").read_text(encoding="utf-8")
    import re

    asked = set(re.findall(r'act\("(\w+)"', script))
    assert asked == set(ACTIONS)
    used = set(re.findall(r"\bview\.(\w+)", script)) - {"message"}
    assert used <= set(Inspector(al.autonomous.start(al.Lab(al.load_suite("chain")[0]))).view)


# ---- language models --------------------------------------------------------------------------


def model_run(chain, *more):
    plans = [json.dumps({"summary": n, "steps": [], "answer": n}) for n in ("first", "second")]
    model = scripted([plans[0], "Hello.", *more])
    lab = al.Lab(chain(2), planner="structured", lm=model)
    return al.autonomous.start(lab), model, plans


def test_an_lm_call_is_edited_asked_again_and_forked_from(chain, front_end):
    run, model, plans = model_run(chain, "another reply")
    front = front_end(run)
    view = front("run")
    assert view["asking"] is None
    assert 'data-call="1"' in view["panels"]["lm"]
    asking = front("edit_call", number=1)["asking"]
    assert asking["title"] == "1. scripted/model, visit 1"
    assert asking["reply"] == plans[0]
    assert asking["prompt"].startswith("## task")
    asking = front("ask", number=1, prompt="Say it otherwise.")["asking"]
    assert (asking["prompt"], asking["reply"]) == ("Say it otherwise.", "another reply")
    assert model.engine.requests[-1].messages[-1].text == "Say it otherwise."
    visits = len(run.visited)
    view = front("fork_reply", number=1, reply=plans[1])
    assert not front.failed, front.said
    assert view["asking"] is None
    assert len(view["runs"]) == 2
    assert "replies edited" in view["runs"][1]
    front("step")
    assert front.widget.run.plan.summary == "second"
    assert len(run.visited) == visits  # the run that was forked is as it was
    assert run.plan.summary == "first"


def test_a_call_from_before_the_fork_is_forked_from_where_it_was_made(chain, front_end):
    run, _, plans = model_run(chain)
    front = front_end(run)
    front("run")
    front("look", at=2)
    front("fork")
    front("fork_reply", number=1, reply=plans[1])
    assert not front.failed, front.said
    assert front.widget.run.lineage.run_id == run.run_id
    assert front.widget.run.lineage.at == 1


def test_a_model_that_does_not_answer_is_a_message(chain, front_end):
    run, _, _ = model_run(chain)
    front = front_end(run)
    front("run")
    asking = front("ask", number=1, prompt="More?")["asking"]
    assert front.failed  # the script has no more replies
    assert asking["prompt"] == "More?"
    front("close_call")
    assert front.view["asking"] is None
    for action, told in (("edit_call", {"number": 9}), ("fork_reply", {"number": 0, "reply": ""}),
                          ("ask", {"number": -5, "prompt": ""})):  # fmt: skip
        front(action, **told)
        assert front.failed
        assert "LM call" in front.said


# ---- events -----------------------------------------------------------------------------------


def test_an_event_is_published_and_decided_about(chain, front_end):
    run = al.resident.start(al.Lab(chain(3), planner="search"))
    front = front_end(run)
    assert front.view["events"] == ["NEW_CONSTRAINT", "EXTERNAL_SIGNAL"]
    front("run", node="monitor")
    front("publish", type="NEW_CONSTRAINT", description="by noon")
    assert front.said.startswith("NEW_CONSTRAINT is published")
    view = front("run", node="react")
    assert [e.description for e in run.state.fresh_events] == ["by noon"]
    assert "by noon" in view["panels"]["trace"]
    front("publish", type="NO_SUCH", description="")
    assert front.failed
    front("run")
    front("publish", type="EXTERNAL_SIGNAL")
    assert front.failed
    assert "the run has ended" in front.said


# ---- people in the loop --------------------------------------------------------------------------


@pytest.fixture
def waits(notes, step):
    """A run that waits for the approval of a refund, with a step that goes on beside it."""
    refund = notes.tool(
        "refund", effect="irreversible", needs_approval=True,
        parameters={"type": "object", "properties": {"order": {"type": "integer"}}},
    )  # fmt: skip
    plan = [step("pay", "refund", parameters={"order": 17}), step("other")]
    return notes.start(plan, tools=[refund], strategy="never")


def test_a_run_that_waits_shows_what_for_and_cannot_be_stepped(waits, notes, front_end):
    front = front_end(waits)
    assert front.view["panels"]["waiting"] == ""
    view = front("run")
    assert (view["running"], view["ended"], view["waits"]) == (False, False, True)
    assert front.said == "The run waits for pay."
    assert "waits for people" in view["panels"]["head"]
    assert "pay: refund (irreversible)" in view["panels"]["waiting"]
    assert "&quot;order&quot;: 17" in view["panels"]["waiting"]
    assert [name for name, _ in notes.made] == ["note"]
    front("step")
    assert front.failed
    assert "waits for a review of pay" in front.said
    assert front("go_on")["running"] is False
    front("run", node="reflection")
    assert (front.view["running"], front.said) == (False, "The run waits for pay.")


def test_approve(waits, notes, front_end):
    front = front_end(waits)
    front("run")
    view = front("review", call_id="pay", answer="approve", arguments='{"order": 17}', reason="")
    told = 'a person approved refund({"order":17})'
    assert front.said == f"{told}. Step or run to go on."
    assert not front.failed
    assert (view["waits"], view["panels"]["waiting"]) == (False, "")
    assert waits.visited[-1] == "(review)"
    assert "a person approved refund" in view["panels"]["trace"]
    assert front("run")["ended"]
    assert ("refund", {"order": 17}) in notes.made
    assert waits.replay().identical


def test_edit_is_read_strictly_and_held_against_the_schema(waits, notes, front_end):
    front = front_end(waits)
    front("run")
    for text, problem in [
        ("{", "the arguments are not JSON"),
        ('{"order": 1, "order": 2}', "the arguments are not JSON"),
        ("17", "expected the arguments as an object of JSON"),
        ('{"order": "x"}', "is not of type"),
    ]:
        view = front("review", call_id="pay", answer="edit", arguments=text, reason="")
        assert front.failed
        assert problem in front.said
        assert view["waits"]
    front("review", call_id="pay", answer="edit", arguments='{"order": 18}', reason="a typo")
    assert "which is now refund" in front.said
    front("run")
    assert ("refund", {"order": 18}) in notes.made


def test_reject_with_a_reason(waits, notes, front_end):
    front = front_end(waits)
    front("run")
    front("review", call_id="pay", answer="reject", arguments='{"order": 17}', reason="not today")
    front("run")
    assert waits.plan.step("pay").error == "rejected: a person did not approve: not today"
    assert [name for name, _ in notes.made] == ["note"]
    front("review", call_id="pay", answer="approve")
    assert front.failed
    assert "no call 'pay' waits" in front.said


def test_a_fork_takes_another_answer(waits, notes, front_end):
    front = front_end(waits)
    front("run")
    at = len(waits.visited)
    front("review", call_id="pay", answer="reject")
    front("run")
    front("look", at=at)
    assert front("fork")["waits"]
    front("review", call_id="pay", answer="approve")
    assert front("run")["ended"]
    assert ("refund", {"order": 17}) in notes.made
    assert waits.plan.step("pay").error is not None


def test_say_begins_the_next_turn(run, front_end):
    front = front_end(run)
    front("say", text="And now?")
    assert front.failed
    assert "under way" in front.said
    assert front("run")["ended"]
    front("say", text="  ")
    assert front.failed
    view = front("say", text="And <b>now</b>?")
    assert not front.failed
    assert not view["ended"]
    assert run.visited[-1] == "(say)"
    assert run.state.user_input == "And <b>now</b>?"
    assert "And &lt;b&gt;now&lt;/b&gt;?" in view["panels"]["head"]
    assert "user: And &lt;b&gt;now" in view["panels"]["trace"]
    assert front("run")["ended"]
