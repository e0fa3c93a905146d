"""A graph: nodes, routers and an entry; a run folds it over states.

A node is ``node(state, lab) -> state``, traced wherever it is called. It never changes the state it
is given. Its own exception goes to the caller and leaves the run as it was; what can fail in the
world (a step, a planner, a configuration) is data in the state. A router is a pure function from
the state to the name of the next node, or END, or WAIT.

A graph that is put into another is laid flat when the outer is built: its node ``reasoning``
becomes the outer's node ``loop.reasoning``, so every inner visit is a visit of the run, with a
state, a checkpoint and a place to fork at. (A graph wrapped as one node would hide its visits, and
what was asked inside them, from replay.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, overload

from agentlab.base.arrived import instance, refused
from agentlab.base.documents import is_json
from agentlab.environments.fault_plan import LM_KINDS
from agentlab.errors import ConfigError, RunError, UnknownNameError, seen
from agentlab.lab.bench import Bench
from agentlab.lab.tool_door import fault_row
from agentlab.state.state import State

END = "END"
"""Name of what follows the last node."""
WAIT = "WAIT"
"""Name of what follows while people are asked: the run stands until they answer."""
MAX_VISITS = 10_000
"""Of a graph that is folded by hand or for a sub-agent."""

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
    listens: bool = False
    """Whether it looks at what was published, so that an event ends a wait before it."""

    def __call__(self, state: State, lab: Bench) -> State:
        """Run the node on a state; the result counts one visit more."""
        lab.emit("on_node_start", self.name)
        with lab.recorder.span("node", self.name, visit=state.visit, now=state.now) as span:
            after = self.function(state, lab)
            if not isinstance(after, State):
                raise TypeError(f"node {seen(self.name)} must return a State, got {seen(after)}")
            if after.notes is not state.notes:
                _check_notes(self.name, state, after)
            after = after.put(visit=state.visit + 1)
            if after.delivered:
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


def _check_notes(node: str, before: State, after: State) -> None:
    """Refuse notes that could not be stored."""
    for key, value in after.notes.items():
        if value is not before.notes.get(key) and not is_json(value):
            raise TypeError(
                f"node {seen(node)}: expected JSON (None, bool, number, str, list or dict) in "
                f"notes[{seen(key)}], got {seen(value)}"
            )


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


@overload
def node(function: NodeFunction) -> Node: ...


@overload
def node(*, listens: bool) -> Callable[[NodeFunction], Node]: ...


def node(
    function: NodeFunction | None = None, *, listens: bool = False
) -> Node | Callable[[NodeFunction], Node]:
    """Make a node of a function; the node's name is the function's.

    Parameters
    ----------
    listens : bool
        Whether it looks at what was published (see ``Node``).
    """
    if function is None:
        return lambda f: _made(f, listens)
    return _made(function, listens)


_AS_NODE = "@agentlab.node above a function of (state, lab) makes one"


def _made(function: Any, listens: bool) -> Node:
    name = getattr(function, "__name__", None)
    if not callable(function) or isinstance(function, type) or not isinstance(name, str):
        raise refused("node", "a function of (state, lab)", function)
    return Node(name, function, listens)


Router = Callable[[State], str]
"""A pure function from the state to the name of the next node, or END, or WAIT."""


@dataclass(frozen=True)
class Graph:
    """Nodes, routers and an entry. It knows nothing of LMs or tools.

    Parameters
    ----------
    name : str
    nodes : iterable of Node or Graph
        With unique names. A graph is laid flat, its nodes under ``name.node``; its END is where
        the router of its name leads.
    routers : mapping
        Node name to a router, or to the name of the one node (or END) that follows.
    entry : str
        Name of the first node.
    strategy : callable, optional
        Lab to the strategy of its runs, where the lab names none.

    Raises
    ------
    ConfigError
        A node has no router, or two have one name.
    UnknownNameError
        A fixed successor does not exist.
    """

    name: str
    nodes: Mapping[str, Node]
    routers: Mapping[str, Router | str]
    entry: str
    strategy: Callable[[Any], str] | None

    def __init__(
        self,
        name: str,
        nodes: Iterable[Node | Graph],
        routers: Mapping[str, Router | str],
        entry: str,
        strategy: Callable[[Any], str] | None = None,
    ) -> None:
        instance("workflow: name", name, str, "a text")
        given = list(instance(f"workflow {name!r}: nodes", nodes, Iterable, "a list of nodes"))
        for place, one in enumerate(given):
            instance(f"workflow {name!r}: nodes[{place}]", one, (Node, Graph), "a node", _AS_NODE)
        instance(f"workflow {name!r}: routers", routers, Mapping, "a dict of name to router")
        instance(f"workflow {name!r}: entry", entry, str, "the name of a node")
        missing = [n.name for n in given if n.name not in routers]
        if missing:
            raise ConfigError(f"workflow {seen(name)}: no router for {', '.join(missing)}")
        inner = {g.name: g for g in given if isinstance(g, Graph)}
        laid = [n for g in given for n in (_laid(g) if isinstance(g, Graph) else [g])]
        table = {n.name: n for n in laid}
        if len(table) < len(laid):
            raise ConfigError(f"workflow {seen(name)}: two nodes have one name")
        doors = {n: f"{n}.{g.entry}" for n, g in inner.items()}
        led = {n: _led(r, doors) for n, r in routers.items()}
        paths = {n: r for n, r in led.items() if n not in inner}
        for n, g in inner.items():
            paths |= {f"{n}.{k}": _inside(g, r, led[n]) for k, r in g.routers.items()}
        for key, value in (
            ("name", name), ("nodes", table), ("routers", paths),
            ("entry", doors.get(entry, entry)), ("strategy", strategy),
        ):  # fmt: skip
            object.__setattr__(self, key, value)
        for target in (self.entry, *(r for r in led.values() if isinstance(r, str))):
            if target not in (END, WAIT) and target not in table:
                raise UnknownNameError("node", target, table, where=f"workflow {seen(name)}")

    def route(self, node: str, state: State) -> str:
        """Return the name of the node after ``node``, or END, or WAIT.

        Raises
        ------
        UnknownNameError
            The router named a node that does not exist.
        """
        router = self.routers[node]
        target = router if isinstance(router, str) else router(state)
        if target not in (END, WAIT) and target not in self.nodes:
            raise UnknownNameError("node", target, self.nodes, where=f"router of {seen(node)}")
        return target

    def __call__(self, state: State, lab: Bench) -> State:
        """Fold the graph over a state, to END or WAIT.

        Raises
        ------
        RunError
            Neither was reached in ``MAX_VISITS`` visits.
        """
        name = self.entry
        for _ in range(MAX_VISITS):
            state = self.nodes[name](state, lab)
            name = self.route(name, state)
            if name in (END, WAIT):
                return state
        raise RunError(f"{seen(self.name)} did not finish in {MAX_VISITS} visits")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {' · '.join(self.nodes)})"


def _laid(graph: Graph) -> list[Node]:
    return [replace(n, name=f"{graph.name}.{n.name}") for n in graph.nodes.values()]


def _led(router: Router | str, doors: Mapping[str, str]) -> Router | str:
    """Return a router that leads into a graph where it named the graph."""
    if isinstance(router, str):
        return doors.get(router, router)
    if not doors:
        return router

    def led(state: State) -> str:
        target = router(state)
        return doors.get(target, target)

    return led


def _inside(graph: Graph, router: Router | str, after: Router | str) -> Router | str:
    """Return the router of a node that was laid flat; ``after``: what follows the graph's end."""

    def inside(state: State) -> str:
        target = router if isinstance(router, str) else router(state)
        if target == END:
            return after if isinstance(after, str) else after(state)
        return target if target == WAIT else f"{graph.name}.{target}"

    return inside
