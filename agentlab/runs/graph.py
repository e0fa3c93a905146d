"""The node contract: ``node(state, lab) -> state``, traced wherever it is called.

A node never changes the state it is given. Its own exception goes to the caller and leaves the run
as it was; what can fail in the world (a step, a planner, a configuration) is data in the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentlab.environments.fault_plan import LM_KINDS
from agentlab.lab.bench import Bench
from agentlab.lab.tool_door import fault_row
from agentlab.state.state import State

END = "END"
"""Name of what follows the last node."""

NodeFunction = Callable[[State, Any], State]


@dataclass(frozen=True)
class Node:
    """A named function of the state; calling it records a span.

    Parameters
    ----------
    name : str
    function : callable
        ``(state, lab) -> state``.
    """

    name: str
    function: NodeFunction

    def __call__(self, state: State, lab: Bench) -> State:
        """Run the node on a state; the result counts one visit more."""
        lab.emit("on_node_start", self.name)
        with lab.recorder.span("node", self.name, visit=state.visit, now=state.now) as span:
            after = self.function(state, lab)
            if not isinstance(after, State):
                raise TypeError(f"node {self.name!r} must return a State, got {after!r}")
            after = after.replace(visit=state.visit + 1)
            _mark_events(state, after, lab)
            span.output = {"next_action": after.next_action}
            span.sim_end = after.now
            if after.error is not None:
                span.error = after.error
        lab.emit("on_node_complete", self.name, after)
        return after

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        """The function's own documentation."""
        return self.function.__doc__

    def __repr__(self) -> str:
        return f"<node {self.name}>"


def _mark_events(state: State, after: State, lab: Bench) -> None:
    """Record what happened in the world by itself or to a language model's replies.

    Other faults are recorded by their calls.
    """
    known = len(state.delivered) if state.visit else 0  # some happen as the run begins
    for struck in after.delivered[known:] if len(after.delivered) > known else ():
        if struck.fault.source == "event" or struck.fault.kind in LM_KINDS:
            lab.recorder.mark(
                "fault", struck.fault.kind.value, visit=state.visit, step_id=struck.step_id or "",
                output=fault_row(struck), now=struck.at,
            )  # fmt: skip


def node(function: NodeFunction) -> Node:
    """Make a node of a function; the node's name is the function's."""
    return Node(function.__name__, function)
