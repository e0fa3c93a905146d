"""The dspy modules of the minds, with their prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from agentlab.base.documents import Json, canonical
from agentlab.base.refusals import explain
from agentlab.errors import LMError, PlanEditError
from agentlab.lm.adapters import DocumentAdapter, ParseError, TextAdapter, parse_problem, signature
from agentlab.lm.door import lm_errors
from agentlab.lm.serde import load_dspy
from agentlab.lm.settings import NOBODY, Persona
from agentlab.minds.rules import REASONS
from agentlab.minds.strategies.triggers import told
from agentlab.plans.task_plan import StepStatus
from agentlab.state.decisions import Trigger, TriggerPoint
from agentlab.state.events import payload_text
from agentlab.state.state import State

dspy: Any = load_dspy()


class DocumentProgram(dspy.Module):  # type: ignore[misc]
    """A dspy module whose reply is one JSON document.

    Parameters
    ----------
    name : str
        What the document is called.
    schema : dict
        JSON Schema of it.
    instructions : str
    inputs : dict
        Name to what it is.
    """

    def __init__(
        self, name: str, schema: dict[str, Any], instructions: str, inputs: dict[str, str]
    ) -> None:
        super().__init__()
        self.name, self.schema = name, schema
        self.write = dspy.Predict(signature(f"Write_{name}", instructions, inputs, name))

    def forward(self, persona: Persona = NOBODY, **inputs: str) -> Any:
        """Return a prediction with the document under its name."""
        with dspy.context(adapter=DocumentAdapter(self.schema, self.name, persona)):
            return self.write(**inputs)


class TextProgram(dspy.Module):  # type: ignore[misc]
    """A dspy module whose reply is plain text, so that its tokens can be shown as they come."""

    def __init__(self, instructions: str, inputs: dict[str, str]) -> None:
        super().__init__()
        self.write = dspy.Predict(signature("WriteText", instructions, inputs, "text"))

    def forward(self, persona: Persona = NOBODY, **inputs: str) -> Any:
        """Return a prediction with ``text``."""
        with dspy.context(adapter=TextAdapter(persona)):
            return self.write(**inputs)


def asked_twice(
    program: Callable[..., Any], name: str, read: Callable[[Json], Any], persona: Persona,
    **inputs: str,
) -> Any:  # fmt: skip
    """Ask, and once more with what was wrong when the reply cannot be read.

    Parameters
    ----------
    program : callable
        Asked with ``inputs``.
    name : str
        What the document is called.
    read : callable
        Makes something of the document, or raises.
    persona : Persona
        Whom it is asked for.

    Returns
    -------
    object or str
        What ``read`` made of the document; a str says why there is nothing.
    """
    problem, mind = "", inputs.get("mind", "")
    for _ in range(2):
        try:
            with lm_errors():
                reply = program(persona=persona, **inputs)
            return read(getattr(reply, name))
        except (ValidationError, ParseError, PlanEditError) as e:
            problem = explain(e) if isinstance(e, ValidationError) else parse_problem(e)
            inputs["mind"] = f"{mind}\nYour reply before could not be used: {problem}".strip()
        except LMError as e:
            return str(e)
    return f"the reply could not be used: {problem}"


def situation_report(trigger: Trigger, state: State) -> dict[str, str]:
    """Return what a decision about events is made from, as the inputs of a prompt."""
    plan = state.task_plan
    steps = plan.steps if plan is not None else ()
    finished, remaining = [], []
    for s in steps:
        line = f"- {s.step_index}: {s.step_id} ({s.label}) {s.status}"
        if s.status is StepStatus.COMPLETED:
            finished.append(f"{line}, gave {canonical(s.result)[:400]}")
        else:
            remaining.append(f"{line}: {s.error}" if s.error else line)
    changes = [f"- {e.severity} {told([e])}{payload_text(e)}" for e in state.fresh_events]
    mind = f"Replans left: {state.replans_left}."
    if trigger.point is TriggerPoint.STALL:
        mind += " Nothing runs and nothing can start: to CONTINUE would end in ABORT."
    none = "(none)"
    return {
        "goal": state.goal, "finished": "\n".join(finished) or none,
        "changes": "\n".join(changes) or none, "remaining": "\n".join(remaining) or none,
        "mind": mind,
    }  # fmt: skip


def situation(state: State) -> dict[str, str]:
    """Return where a run stands, as the inputs of a prompt."""
    plan = state.task_plan
    steps = plan.steps if plan is not None else ()
    lines = []
    for s in steps:
        told = ""
        if s.status is StepStatus.COMPLETED:
            told = f" gave {canonical(s.result)[:400]}"
        elif s.error:
            told = f": {s.error}"
        lines.append(f"- {s.step_id} ({s.label}) {s.status}{told}")
    mind = []
    if state.answer is not None:
        mind.append(f"The answer is {canonical(state.answer)}.")
    if state.stopped_by is not None:
        mind.append(f"It stopped because {REASONS.get(state.stopped_by, state.stopped_by)}.")
    if state.reflection is not None:
        mind.append(f"Assessment: {state.reflection.analysis}")
    mind.append(f"Replans left: {state.replans_left}.")
    return {
        "question": state.user_input,
        "intent": (plan.user_intent or plan.summary) if plan is not None else "",
        "steps": "\n".join(lines) or "(no steps)",
        "mind": "\n".join(mind),
    }


SITUATION = {
    "question": "what the user wants",
    "intent": "how it was understood",
    "steps": "the steps of the plan, how each ended, and what it gave",
    "mind": "what else to mind",
}

REPORT = {
    "goal": "what the user wants",
    "finished": "the steps that are completed, by index, and what each gave",
    "changes": "what happened since the last decision",
    "remaining": "the other steps of the plan, by index, and where each stands",
    "mind": "what else to mind",
}
