"""A workflow: nodes, routers and an entry. It knows nothing of LMs or tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentlab.errors import ConfigError, UnknownNameError
from agentlab.lab.lab import Lab
from agentlab.runs.graph import END as END
from agentlab.runs.graph import Node
from agentlab.runs.run import Run
from agentlab.state.state import State

Router = Callable[[State], str]
"""A pure function from the state to the name of the next node, or END."""


@dataclass(frozen=True)
class Workflow:
    """A graph of nodes.

    Parameters
    ----------
    name : str
    nodes : iterable of Node
        With unique names.
    routers : mapping
        Node name to a router, or to the name of the one node (or END) that follows.
    entry : str
        Name of the first node.
    strategy : callable, optional
        Lab to the strategy of its runs, where the lab names none.

    Raises
    ------
    ConfigError
        A node has no router, or a fixed successor does not exist.
    """

    name: str
    nodes: Mapping[str, Node]
    routers: Mapping[str, Router | str]
    entry: str
    strategy: Callable[[Lab], str] | None

    def __init__(
        self,
        name: str,
        nodes: Iterable[Node],
        routers: Mapping[str, Router | str],
        entry: str,
        strategy: Callable[[Lab], str] | None = None,
    ) -> None:
        table = {n.name: n for n in nodes}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "nodes", table)
        object.__setattr__(self, "routers", dict(routers))
        object.__setattr__(self, "entry", entry)
        object.__setattr__(self, "strategy", strategy)
        missing = [n for n in table if n not in self.routers]
        if missing:
            raise ConfigError(f"workflow {name!r}: no router for {', '.join(missing)}")
        for target in (entry, *(r for r in self.routers.values() if isinstance(r, str))):
            if target != END and target not in table:
                raise UnknownNameError("node", target, table, where=f"workflow {name!r}")

    def route(self, node: str, state: State) -> str:
        """Return the name of the node after ``node``, or END.

        Raises
        ------
        UnknownNameError
            The router named a node that does not exist.
        """
        router = self.routers[node]
        target = router if isinstance(router, str) else router(state)
        if target != END and target not in self.nodes:
            raise UnknownNameError("node", target, self.nodes, where=f"router of {node!r}")
        return target

    def start(self, lab: Lab, user_input: str | None = None, **options: Any) -> Run:
        """Return a run of this workflow in which nothing has happened yet (see ``Run.start``)."""
        return Run.start(self, lab, user_input, **options)

    def ask(self, lab: Lab, user_input: str | None = None, **options: Any) -> str:
        """Run to the end and return the final response."""
        run = self.start(lab, user_input, **options)
        run.finish()
        return run.state.final_response or ""

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}: {' · '.join(self.nodes)})"
