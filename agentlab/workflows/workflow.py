"""A workflow: a graph with ways to start it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentlab.lab.lab import Lab
from agentlab.runs.graph import Graph
from agentlab.runs.run import Run


@dataclass(frozen=True, init=False, repr=False)
class Workflow(Graph):
    """A graph that can be started (see ``Graph`` for its parameters)."""

    def start(self, lab: Lab, user_input: str | None = None, **options: Any) -> Run:
        """Return a run of this workflow in which nothing has happened yet (see ``Run.start``)."""
        return Run.start(self, lab, user_input, **options)

    def ask(self, lab: Lab, user_input: str | None = None, **options: Any) -> str:
        """Run to the end and return the final response."""
        run = self.start(lab, user_input, **options)
        run.finish()
        return run.state.final_response or ""
