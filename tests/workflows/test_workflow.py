"""Workflows: nodes, routers and an entry, checked when they are built."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.runs.graph import END, Node
from agentlab.workflows.named import WORKFLOWS, get_workflow
from agentlab.workflows.nodes import final_response, load_config, planning
from agentlab.workflows.workflow import Workflow


@al.node
def hello(state, lab):
    """Say hello."""
    return state.replace(final_response=f"hello, {state.user_input}")


@al.node
def again(state, lab):
    return state.replace(loop_count=state.loop_count + 1)


def loop(state):
    return "again" if state.loop_count < 3 else "hello"


GREETING = Workflow("greeting", (again, hello), {"again": loop, "hello": END}, entry="again")


def test_a_workflow_of_ones_own(notes):
    run = GREETING.start(notes.lab(), "you")
    assert run.next_node == "again"
    run.finish()
    assert run.visited == ["again", "again", "again", "hello"]
    assert run.state.final_response == "hello, you"
    assert GREETING.ask(notes.lab(), "me") == "hello, me"
    assert run.replay().identical


def test_a_node_is_its_function_named_and_documented():
    assert isinstance(hello, Node)
    assert (hello.name, hello.__doc__, repr(hello)) == ("hello", "Say hello.", "<node hello>")


def test_a_node_counts_its_visit_and_leaves_a_span(notes):
    lab = notes.lab()
    state = lab.initial_state("x")
    after = hello(state, lab)
    assert (state.visit, after.visit) == (0, 1)
    assert state.final_response is None
    (span,) = lab.recorder.spans
    assert (span.kind, span.name, span.visit, span.error) == ("node", "hello", 0, None)


def test_a_node_that_returns_no_state_is_told_so(notes):
    lab = notes.lab()
    with pytest.raises(TypeError, match="node 'nothing' must return a State, got None"):
        Node("nothing", lambda state, lab: None)(lab.initial_state(), lab)
    assert lab.recorder.spans[0].error.startswith("TypeError")


def test_every_node_needs_a_router():
    with pytest.raises(ConfigError, match="workflow 'w': no router for planning, final_response"):
        Workflow(
            "w", (load_config, planning, final_response), {"load_config": "planning"}, "planning"
        )


@pytest.mark.parametrize(
    ("routers", "entry", "text"),
    [
        ({"load_config": "plannin", "planning": END}, "planning", "did you mean 'planning'"),
        ({"load_config": END, "planning": END}, "load_confi", "did you mean 'load_config'"),
    ],
)
def test_names_of_nodes_are_checked(routers, entry, text):
    with pytest.raises(UnknownNameError, match=f"workflow 'w': unknown node.*{text}"):
        Workflow("w", (load_config, planning), routers, entry)


def test_a_router_that_names_no_node(notes):
    broken = Workflow("w", (hello,), {"hello": lambda state: "helo"}, "hello")
    run = broken.start(notes.lab())
    run.step()
    with pytest.raises(UnknownNameError, match="router of 'hello': unknown node 'helo'"):
        run.step()


def test_workflows_by_name():
    assert get_workflow("autonomous") is al.autonomous is WORKFLOWS["autonomous"]
    with pytest.raises(UnknownNameError, match="did you mean 'autonomous'"):
        get_workflow("autonomos")


def test_it_shows_its_nodes():
    assert repr(al.autonomous) == (
        "Workflow('autonomous': load_config · planning · plan_execution · reflection · "
        "final_response)"
    )
