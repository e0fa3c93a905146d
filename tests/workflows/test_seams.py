"""The seams in one run: a loop of tool calls as a plan that grows, a person, a kill, a fork."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentlab.runs.run import Run
from agentlab.views.inspector.inspector import Inspector

FLOW = '''
"""Three nodes: the model asks for calls, they become steps of the plan, an answer ends it."""
import json

import agentlab as al
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.runs.graph import END, WAIT

LOG = "log"


def note(what):
    with open(LOG, "a") as file:
        file.write(what + "\\n")


@al.tool(effect="write", seconds=2.0)
def look(order: int) -> str:
    """Look an order up."""
    note(f"look {order}")
    return f"saw {order}"


@al.tool(effect="irreversible", needs_approval=True)
def refund(order: int) -> str:
    """Pay an order back."""
    note(f"refund {order}")
    return f"refunded {order}"


def text(said):
    return {"type": "text", "text": said}


@al.node
def reasoning(state, lab):
    """Ask the model with all that was said, and put its calls at the end of the plan."""
    first = {"role": "user", "parts": [text(state.user_input)]}
    request = {"system": "Use the tools.", "messages": [first, *state.notes.get("talk", [])],
               "tools": list(lab.tools.values())}
    with lab.asking(state, name="reasoning") as talk:
        said = talk.ask(request)
    state = talk.charged(state)
    plan = state.task_plan or TaskPlan()
    new = [
        TaskStep(step_id=f"r{state.visit}_{i}", name=c.name, target_resource=c.name,
                 parameters=c.arguments)
        for i, c in enumerate(said.tool_calls)
    ]
    round_ = {"ids": [s.step_id for s in new], "calls": [c.id for c in said.tool_calls]}
    return state.replace(
        notes=state.notes.set("talk", [*state.notes.get("talk", []), dict(said.message)])
        .set("round", round_),
        task_plan=plan.with_steps((*plan.steps, *new)),
        final_response=said.text if not new else None,
        next_action="act" if new else "answer",
    )


@al.node
def acting(state, lab):
    """Carry out what is new in the plan, as far as people allow, and tell the model."""
    from agentlab.lab.scheduling import to_start

    while True:
        for step in to_start(state, lab):
            state = lab.executor.submit(state, lab, step)
        if not state.under_way:
            break
        state = lab.executor.wait(state, lab)
    if state.held:
        return state.replace(next_action="wait_for_review")
    told = state.notes["round"]
    steps = [state.task_plan.step(i) for i in told["ids"]]
    parts = [
        {"type": "tool_result", "id": c, "name": s.name, "is_error": s.error is not None,
         "content": [text(s.error or json.dumps(s.result))]}
        for c, s in zip(told["calls"], steps, strict=True)
    ]
    talk = [*state.notes["talk"], {"role": "tool", "parts": parts}]
    return state.replace(notes=state.notes.set("talk", talk), next_action="reason")


@al.node
def answering(state, lab):
    """Say how the run ended."""
    from agentlab.state.state import Outcome

    return state.replace(outcome=Outcome.COMPLETED)


def after_acting(state):
    if state.next_action == "reason":
        return "reasoning"
    return "acting" if state.next_action == "execute_next_task" else WAIT


flow = al.Workflow(
    "three", [reasoning, acting, answering],
    {"reasoning": lambda s: "acting" if s.next_action == "act" else "answering",
     "acting": after_acting, "answering": END},
    "reasoning",
)


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


SCRIPT = [
    {"text": "I look.", "tool_calls": [call("look", order=17), call("look", order=18)]},
    {"text": "Now I pay.", "tool_calls": [call("refund", order=17), call("look", order=19)]},
    "Order 17 is paid back.",
]


def lab(said=0, executor=None):
    """A lab whose model has said so many things already."""
    model = al.lm.scripted_model(SCRIPT[said:], function_calling=True)
    return al.Lab(tools=[look, refund], lm=model, workers=2, executor=executor)
'''
KILLED = """
import os, signal, sys
import flow

run = flow.flow.start(flow.lab(executor=sys.argv[1]), "Pay order 17 back.", store="store")
run.finish()
assert run.next_node == "WAIT", run
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def flow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("flow.py").write_text(FLOW)
    Path("killed.py").write_text(KILLED)
    monkeypatch.delitem(sys.modules, "flow", raising=False)
    import flow

    yield flow
    sys.modules.pop("flow", None)


def log():
    return Path("log").read_text().splitlines()


@pytest.mark.parametrize("executor", ["simulated", "threads"])
def test_one_run_through_all_seams(flow, executor, tmp_path):
    killed = subprocess.run(
        [sys.executable, "killed.py", executor], capture_output=True, text=True, check=False,
        timeout=100,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert sorted(log()) == ["look 17", "look 18", "look 19"]  # the others went on

    run = Run.resume("store", flow.lab(said=2, executor=executor), workflow=flow.flow)
    assert run.next_node == "WAIT"
    [held] = run.waiting
    assert (held.tool, held.arguments, held.effect) == ("refund", {"order": 17}, "irreversible")
    [before] = [i for i, n in enumerate(run.visited) if n == "acting"][1:]
    run.review(held.call_id, "approve", by="Ada")
    at = run.visited.index("(review)")
    run.finish()
    assert run.state.final_response == flow.SCRIPT[-1]
    assert (run.state.ended, run.state.loop_status) == ("completed", "COMPLETED")
    assert sorted(log()) == ["look 17", "look 18", "look 19", "refund 17"]
    assert run.state.lm_calls == 3
    if executor == "simulated":  # two workers: both looks at once
        first = run.states[2]
        assert [c.started for c in first.calls] == [first.calls[0].started] * 2

    assert run.replay().identical
    assert Run.resume("store", flow.lab(3, executor), workflow=flow.flow).replay().identical
    assert len(log()) == 4

    reply = {"text": "Another one.", "tool_calls": [flow.call("look", order=20)]}
    fork = run.fork(
        at=before - 1, replies={0: reply}, lab=flow.lab(said=2, executor=executor)
    )  # fmt: skip
    fork.finish()
    assert (fork.finished, fork.waiting) == (True, ())
    assert log()[4:] == ["look 20"]
    assert fork.replay().identical
    no = run.fork(at=at, review={held.call_id: "reject"}, lab=flow.lab(2, executor))
    no.finish()
    assert no.plan.step(held.call_id).error.startswith("rejected: ")
    assert no.finished
    assert no.state.ended == "completed"  # in a growing plan a failed call alone fails nothing
    assert len(log()) == 5
    assert no.replay().identical
    for one in (fork, no):
        again = Run.resume("store", flow.lab(3, executor), one.run_id, flow.flow)
        assert again.state == one.state
        assert again.replay().identical


def test_the_inspector_shows_it(flow):
    run = flow.flow.start(flow.lab(executor="simulated"), "Pay order 17 back.")
    run.finish()
    assert "refund" in run._repr_html_()
    run.review(run.waiting[0].call_id, "approve")
    run.finish()
    page = run._repr_html_()
    for word in ("reasoning", "acting", "review", "approve", "refund"):
        assert word in page
    shown = Inspector(run)
    shown.goto(run.visited.index("(review)")) if hasattr(shown, "goto") else None
    shown.close()
