"""Graphs in graphs, laid flat: every inner visit is a visit of the run."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.errors import ConfigError, UnknownNameError
from agentlab.runs.graph import END, WAIT, Graph, node
from agentlab.runs.run import Run
from agentlab.workflows.workflow import Workflow


def noting(name):
    """A node that adds its name to the notes."""

    def work(state, lab):
        return state.replace(notes=state.notes.set("path", [*state.notes.get("path", []), name]))

    work.__name__ = name
    return node(work)


def path(state):
    return list(state.notes.get("path", []))


def by_length(n, then, otherwise):
    return lambda state: then if len(path(state)) >= n else otherwise


def inner():
    """``b`` goes round until five were noted; its END is reached by a function."""
    return Graph("in", [noting("a"), noting("b")],
                 {"a": "b", "b": by_length(5, END, "a")}, "a")  # fmt: skip


def outer(after="last"):
    middle = Graph("mid", [noting("x"), inner()],
                   {"x": lambda s: "in", "in": by_length(4, END, "x")}, "x")  # fmt: skip
    return Workflow("out", [noting("first"), middle, noting("last")],
                    {"first": "mid", "mid": after, "last": END}, "first")  # fmt: skip


VISITS = ["first", "mid.x", "mid.in.a", "mid.in.b", "mid.in.a", "mid.in.b", "last"]


def test_two_levels_are_laid_flat_and_every_inner_visit_is_one_of_the_run(tmp_path):
    flow = outer()
    assert list(flow.nodes) == ["first", "mid.x", "mid.in.a", "mid.in.b", "last"]
    run = flow.start(al.Lab(), "x", store=tmp_path)
    run.finish()
    assert run.visited == VISITS
    assert path(run.state) == ["first", "x", "a", "b", "a", "b", "last"]
    assert [s.name for s in run.recorder.of_kind("node")] == VISITS
    assert len(run.states) == len(VISITS) + 1
    assert run.replay().identical
    again = Run.resume(tmp_path, al.Lab(), workflow=outer())
    assert (again.visited, again.state) == (run.visited, run.state)


def test_a_run_stops_and_forks_inside():
    run = outer().start(al.Lab(), "x")
    run.run_until("mid.in.b")
    assert run.visited == VISITS[:3]
    run.finish()
    fork = run.fork(at=3, state={"notes": {"path": ["one"]}})
    fork.finish()
    assert fork.visited[:4] == VISITS[:4]
    assert path(fork.state)[:2] == ["one", "b"]
    assert fork.replay().identical


def test_the_end_of_an_inner_graph_leads_where_the_outer_says():
    assert outer(lambda s: END).start(al.Lab(), "x").finish().notes["path"][-1] == "b"
    back = outer(by_length(8, "last", "first")).start(al.Lab(), "x")
    back.finish()
    assert back.visited.count("first") == 2
    assert back.visited[-1] == "last"


def test_wait_passes_through():
    waits = Graph("in", [noting("a")], {"a": lambda s: WAIT}, "a")
    run = Workflow("out", [waits], {"in": END}, "in").start(al.Lab(), "x")
    run.finish()
    assert (run.next_node, run.visited, run.finished) == (WAIT, ["in.a"], False)


def test_by_hand_a_graph_folds_to_its_end():
    lab = al.Lab()
    state = lab.initial_state("x")
    after = inner()(state, lab)
    assert path(after) == ["a", "b"] * 3
    assert path(state) == []
    assert path(outer()(state, lab))[-1] == "last"
    waits = Graph("in", [noting("a")], {"a": WAIT}, "a")
    assert path(waits(state, lab)) == ["a"]


def test_approval_inside_an_inner_graph(notes, step):
    refund = notes.tool("refund", effect="irreversible", needs_approval=True)
    flow = Workflow("out", [noting("first"), al.autonomous], 
                    {"first": "autonomous", "autonomous": END}, "first")  # fmt: skip
    run = flow.start(notes.lab([step("r", "refund")], tools=[refund]), "x")
    run.finish()
    assert [p.call_id for p in run.waiting] == ["r"]
    run.review("r", "approve")
    assert run.next_node == "autonomous.plan_execution"
    run.finish()
    assert [n for n, _ in notes.made] == ["refund"]
    assert run.replay().identical


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="no router for in"):
        Graph("out", [inner()], {}, "in")
    with pytest.raises(UnknownNameError, match="did you mean 'last'"):
        outer("lst")
    wrong = outer(lambda s: "lst").start(al.Lab(), "x")
    with pytest.raises(UnknownNameError, match="did you mean 'last'"):
        wrong.finish()
