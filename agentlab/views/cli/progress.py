"""What ``agentlab run`` tells as it goes on: the response on one stream, all else on another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from agentlab.base.documents import shortened
from agentlab.plans.task_plan import TaskPlan
from agentlab.views.text import line, plain, visible

if TYPE_CHECKING:
    from agentlab.state.state import State

LENGTH = 200
"""Characters after which a step's result is cut."""


class Progress:
    """A handler that tells stages and steps on one stream, and the response on another.

    Parameters
    ----------
    out : file
        For the response.
    aside : file
        For everything else.
    """

    def __init__(self, out: TextIO, aside: TextIO) -> None:
        self._out, self._aside = out, aside
        self._told = 0
        self._failed = False
        self._written = ""

    def on_thinking_content(self, stage: str, text: str) -> None:
        """Tell what is being done."""
        self._say(f"{stage.replace('_', ' ')}: {text}")

    def on_node_complete(self, node: str, state: State) -> None:
        """Tell the plan that was made, and how steps ended."""
        if node in ("planning", "plan") and state.task_plan is not None:
            self._plan(state.task_plan)
        for result in state.task_results[self._told :]:
            ended = _text(result.result) if result.error is None else result.error
            self._say(f"{result.step_id} {result.status}: {ended}", 2)
        self._told = len(state.task_results)

    def on_replan_required(self, reason: str, count: int) -> None:
        """Tell why a new plan is made."""
        self._say(f"new plan {count}: {reason}")

    def on_error(self, error: str) -> None:
        """Keep the template's words back: the error is told as one message."""
        self._failed = True

    def on_token(self, text: str) -> None:
        """Write a piece of the response."""
        if self._failed:
            return
        self._written += text
        self._out.write(visible(text))
        self._out.flush()

    def close(self, state: State) -> None:
        """Write what of the response has not been written."""
        response = state.final_response or ""
        if self._failed and state.task_plan is None:
            return
        self._failed = False
        if self._written != response:  # a model broke off, and the template took over
            if self._written:
                self.on_token("\n")
            self.on_token(response)
        self.on_token("\n")

    def _plan(self, plan: TaskPlan) -> None:
        self._say(f"plan: {len(plan)} steps" if len(plan) != 1 else "plan: 1 step")
        for step in plan.steps:
            self._say(f"{step.step_id}: {step.label}({_text(step.parameters)})", 2)

    def tell(self, text: str) -> None:
        """Tell something of the command's own."""
        self._say(text)

    def show(self, text: str, end: str = "\n") -> None:
        """Show text as it is, blanks and lines too."""
        self._aside.write(visible(text) + end)
        self._aside.flush()

    def _say(self, text: str, indent: int = 0) -> None:
        self._aside.write(" " * indent + line(text) + "\n")
        self._aside.flush()


def _text(value: Any) -> str:
    return shortened(plain(value), LENGTH)
