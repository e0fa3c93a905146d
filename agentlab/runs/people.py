"""What people say to a run: visits of their own, which are stored, replayed and forked like others.

``(review)`` answers for a call that waits, ``(say)`` begins the next turn, ``(pause)`` makes the
run stand and ``(go on)`` ends that. Each leaves a decision span with who said what; a replay reads
it there and puts it in again.

A pause may be asked for by any thread. It lies in the inbox until the run hears of it, which it
does between two visits, whatever its nodes are; what is under way (calls in threads) goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentlab.errors import RunError
from agentlab.lab.bench import Bench
from agentlab.runs.graph import END, WAIT, Graph
from agentlab.state.state import State
from agentlab.state.tool_loop import LoopSignal, PendingApproval
from agentlab.trace.span import Span

if TYPE_CHECKING:
    from agentlab.runs.visits import Visit

SAY, REVIEW, PAUSE, GO_ON = "(say)", "(review)", "(pause)", "(go on)"
BY_HAND = frozenset((SAY, REVIEW, PAUSE, GO_ON))


def following(graph: Graph, visited: Sequence[str], state: State, heard: Callable[[], bool]) -> str:
    """Return the name of the node that follows, or END, or WAIT.

    After what a person said to a call, and after a pause, that is what the last node's router says;
    after what was said to begin a turn, the graph's entry. A published event ends a wait after a
    node that listens: the node is visited again.
    """
    last = visited[-1] if visited else SAY
    if last in BY_HAND:
        last = next((n for n in reversed(visited) if n not in BY_HAND or n == SAY), SAY)
    if last == SAY:
        return graph.entry
    target = graph.route(last, state)
    return last if target == WAIT and graph.nodes[last].listens and heard() else target


def waits_for(waiting: Sequence[PendingApproval]) -> str:
    """Say what a run waits for, and how to answer."""
    calls = ", ".join(f"{p.call_id} ({p.tool})" for p in waiting)
    what = f"a review of {calls}: run.review(call_id, 'approve')" if calls else "people"
    return f"the run waits for {what}"


def next_turn(state: State, lab: Bench, text: str, by: str) -> State:
    """Return the state in which the next turn begins, and record who said what."""
    lab.recorder.mark(
        "decision", "say", visit=state.visit, now=state.now, output={"text": text, "by": by}
    )
    return state.next_turn(text)


def stopped(state: State, lab: Bench, by: str) -> State:
    """Return the state of a run that is paused, and record by whom."""
    return _signalled(state, lab, "pause", by, LoopSignal.PAUSED)


def let_go(state: State, lab: Bench, by: str, before: LoopSignal) -> State:
    """Return the state of a run that goes on after a pause; ``before``: the signal before it."""
    return _signalled(state, lab, "go on", by, before)


def _signalled(state: State, lab: Bench, name: str, by: str, signal: LoopSignal) -> State:
    lab.recorder.mark("decision", name, visit=state.visit, now=state.now, output={"by": by})
    return state.replace(loop=state.loop.replace(loop_signal=signal))


def said_again(run: Any, span: Span) -> Visit:
    """Say to a run what a decision span tells that a person said.

    Raises
    ------
    RunError
        The run does not wait for it.
    """
    told = span.output
    said: Visit
    if span.name == "pause":
        said = run._stopped(told["by"])
        return said
    if span.name == "go on":
        said = run.go_on(by=told["by"])
        return said
    if span.name == "say":
        if run.next_node not in (END, WAIT) and run.visited[-1:] != [REVIEW]:
            raise RunError(f"the turn that had ended there is under way, before {run.next_node!r}")
        said = run._said(told["text"], told["by"])  # what waited was rejected before it
        return said
    if span.step_id not in {p.call_id for p in run.waiting}:
        raise RunError(f"the call {span.step_id!r} that was reviewed does not wait now")
    edited = told["arguments"] if told["answer"] == "edit" else None
    said = run.review(span.step_id, told["answer"], edited, reason=told["reason"], by=told["by"])
    return said
