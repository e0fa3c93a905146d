"""What the command line does with a run that waits for people: ask, answer as told, or leave it.

Questions go to stderr and answers come from stdin, so that stdout has the response alone. A run is
left waiting only where a folder keeps it. What a person is asked about is shown whole: who approves
must have seen it.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from agentlab.errors import AgentLabError, ConfigError
from agentlab.runs.graph import WAIT
from agentlab.state.tool_loop import Answer, PendingApproval
from agentlab.views.people import arguments_text, read_arguments, title

if TYPE_CHECKING:
    from agentlab.lab.lab import Lab
    from agentlab.runs.run import Run
    from agentlab.state.state import State
    from agentlab.views.cli.progress import Progress

LEFT_WAITING = 3
"""Exit code of a run that is left waiting for people."""

WORDS = [a.value for a in Answer]


class People:
    """Those who answer for the calls of a run.

    Parameters
    ----------
    progress : Progress
        Tells what is asked.
    answer : str or None
        Given beforehand, for each call that waits; None: whoever sits at the terminal.
    folder : str or None
        Where the run is kept; None: nowhere, so it cannot be left waiting.
    """

    def __init__(self, progress: Progress, answer: str | None, folder: str | None) -> None:
        self._progress, self._answer, self._folder = progress, answer, folder

    def check(self, lab: Lab) -> None:
        """Refuse, before anything has run, a lab whose tools will ask when nobody can answer.

        Raises
        ------
        ConfigError
            Nobody is at a terminal, no answer was given beforehand, and no folder keeps the run.
        """
        asks = [t.name for t in lab.tools.values() if t.needs_approval]
        if asks and not (self._folder or self._answer or at_terminal()):
            self._nobody(f"{', '.join(asks)} needs a person's approval")

    def finish(self, run: Run) -> State:
        """Carry a run to its end, with an answer for each call that waits on the way.

        Raises
        ------
        Exit
            It is left waiting.
        ConfigError
            It waits, there is nobody to ask, and no folder keeps it.
        """
        while True:
            state = run.finish()
            if run.next_node != WAIT:
                return state
            if not run.waiting or not (self._answer or at_terminal()):
                self._leave(run)
            try:
                for call in run.waiting:
                    self._review(run, call)
            except EOFError:
                self._leave(run)
            except KeyboardInterrupt:
                if self._folder is None:
                    raise
                self._leave(run)

    def _review(self, run: Run, call: PendingApproval) -> None:
        if self._answer is not None:
            run.review(call.call_id, self._answer, by="--review")
            return
        self._progress.show(described(call))
        while True:
            word = self._ask("approve, edit or reject?").lower()
            answer = next((a for a in WORDS if word and a.startswith(word)), word)
            given: dict[str, Any] = {}
            try:
                if answer == Answer.EDIT:
                    given["arguments"] = read_arguments(self._ask("arguments, as JSON:"))
                elif answer == Answer.REJECT:
                    given["reason"] = self._ask("reason, or nothing:")
                run.review(call.call_id, answer, **given)
                return
            except AgentLabError as e:
                self._progress.show(f"error: {e}")

    def _ask(self, question: str) -> str:
        self._progress.show(question, end=" ")
        said = sys.stdin.readline()
        if not said:
            raise EOFError
        return said.strip()

    def _leave(self, run: Run) -> NoReturn:
        if self._folder is None:
            calls = ", ".join(title(c) for c in run.waiting) or "the run"
            self._nobody(f"{calls} waits for a person")
        for call in run.waiting:
            self._progress.show(described(call))
        goes_on = f"agentlab resume {shlex.quote(self._folder)} {run.run_id}"
        self._progress.show(f"the run is left waiting; to answer: {goes_on}")
        raise typer.Exit(LEFT_WAITING)

    def _nobody(self, why: str) -> NoReturn:
        raise ConfigError(
            f"{why}, and there is nobody to ask: give --review approve or --review reject, or "
            "sit at a terminal, or let --out DIR keep the run, which can then be left waiting"
        )


def at_terminal() -> bool:
    """Say whether somebody sits there who sees a question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def described(call: PendingApproval) -> str:
    """Return all that is known of a call that waits."""
    reason = f"\n  {call.reason}" if call.reason else ""
    return f"{title(call)} waits for approval\n  arguments: {arguments_text(call)}{reason}"
