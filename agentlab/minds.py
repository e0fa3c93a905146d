"""The LM-backed reflector, responder and decider, each a dspy module behind the call of its rule.

Every one falls back to its rule when the model's reply does not parse twice or does not come: a run
never ends without a decision or an answer. The fallback is in what it returns (``analysis``,
``reasoning``), never hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from agentlab.bench import Bench
from agentlab.decisions import (
    ReflectionResult,
    ReplanAction,
    ReplanDecision,
    Trigger,
    TriggerPoint,
)
from agentlab.errors import LMError, PlanEditError
from agentlab.events import REACT, ContextChangeEvent
from agentlab.lm import lm_errors
from agentlab.lm.adapters import (
    DocumentAdapter,
    ParseError,
    TextAdapter,
    parse_problem,
    signature,
)
from agentlab.lm.serde import load_dspy
from agentlab.plans.task_plan import StepStatus
from agentlab.reflectors import RuleReflector
from agentlab.responders import REASONS, TemplateResponder
from agentlab.schemas import object_schema
from agentlab.state import State
from agentlab.strategies.triggers import told
from agentlab.values import Json, canonical, explain

dspy: Any = load_dspy()

TEXT = {"type": "string", "maxLength": 400}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
LIST = {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 200}}


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

    def forward(self, **inputs: str) -> Any:
        """Return a prediction with the document under its name."""
        with dspy.context(adapter=DocumentAdapter(self.schema, self.name)):
            return self.write(**inputs)


class TextProgram(dspy.Module):  # type: ignore[misc]
    """A dspy module whose reply is plain text, so that its tokens can be shown as they come."""

    def __init__(self, instructions: str, inputs: dict[str, str]) -> None:
        super().__init__()
        self.write = dspy.Predict(signature("WriteText", instructions, inputs, "text"))

    def forward(self, **inputs: str) -> Any:
        """Return a prediction with ``text``."""
        with dspy.context(adapter=TextAdapter()):
            return self.write(**inputs)


def asked_twice(
    program: Callable[..., Any], name: str, read: Callable[[Json], Any], **inputs: str
) -> Any:
    """Ask, and once more with what was wrong when the reply cannot be read.

    Returns
    -------
    object or str
        What ``read`` made of the document; a str says why there is nothing.
    """
    problem, mind = "", inputs.get("mind", "")
    for _ in range(2):
        try:
            with lm_errors():
                reply = program(**inputs)
            return read(getattr(reply, name))
        except (ValidationError, ParseError, PlanEditError) as e:
            problem = explain(e) if isinstance(e, ValidationError) else parse_problem(e)
            inputs["mind"] = f"{mind}\nYour reply before could not be used: {problem}".strip()
        except LMError as e:
            return str(e)
    return f"the reply could not be used: {problem}"


class LMReflector:
    """Judges an execution by asking the model; by the rule where no usable reply comes."""

    def __init__(self) -> None:
        schema = object_schema(
            analysis=TEXT, goalAchieved={"type": "boolean"}, needReplan={"type": "boolean"},
            replanReason=TEXT, suggestions=LIST,
        )  # fmt: skip
        self.program = DocumentProgram("reflection", schema, REFLECT, SITUATION)

    def reflect(self, state: State, bench: Bench) -> ReflectionResult:
        """Return how it went, and whether another plan is worth making."""
        found = asked_twice(
            self.program, "reflection", ReflectionResult.model_validate, **situation(state)
        )
        if isinstance(found, ReflectionResult):
            return found
        ruled = RuleReflector().reflect(state, bench)
        return ruled.replace(analysis=f"{ruled.analysis} (by rule, since {found})")


class LMResponder:
    """Writes the final response by asking the model; by the template where no reply comes."""

    def __init__(self) -> None:
        self.program = TextProgram(RESPOND, SITUATION)

    def respond(self, state: State, bench: Bench) -> str:
        """Return what the user is told."""
        if state.error is not None:
            return TemplateResponder().respond(state, bench)
        text, why = "", "the model replied nothing"
        try:
            with lm_errors():
                text = str(self.program(**situation(state)).text)
        except ParseError:  # an empty reply
            pass
        except LMError as e:
            why = str(e)
        if text.strip():
            return text
        why = why.rstrip(".")
        return f"{TemplateResponder().respond(state, bench)}\n(Written by template: {why}.)"


ASKED = frozenset(
    {"action", "reasoning", "steps_to_cancel", "new_context_hints", "confidence", "step_id"}
)


class LMDecider:
    """Decides what to do with a plan that met trouble; gives no decision where no reply comes.

    About events it is asked with the situation report, and may name the steps to cancel.
    """

    def __init__(self) -> None:
        schema = object_schema(
            action={"enum": [a.value for a in ReplanAction]}, reasoning=TEXT,
            newContextHints=LIST, confidence=SHARE,
        )  # fmt: skip
        self.program = DocumentProgram("decision", schema, DECIDE, SITUATION)
        loop = object_schema(
            action={"enum": [a.value for a in ReplanAction if a is not ReplanAction.RETRY]},
            reasoning=TEXT,
            stepsToCancel={"type": "array", "items": {"type": "integer", "minimum": 0}},
            newContextHints=LIST, confidence=SHARE,
        )  # fmt: skip
        self.supervise = DocumentProgram("decision", loop, SUPERVISE, REPORT)

    def decide(self, trigger: Trigger, state: State, bench: Bench) -> ReplanDecision | str:
        """Return the model's decision, or why there is none."""
        if trigger.point in (TriggerPoint.EVENT, TriggerPoint.PHASE_END, TriggerPoint.STALL):
            return self._supervised(trigger, state)
        asked = situation(state)
        asked["mind"] = f"What happened: {trigger.reason}\n{asked['mind']}"

        def read(document: Json) -> ReplanDecision:
            made = _decision(document).replace(step_id=trigger.step_id)
            again = made.action is ReplanAction.RETRY
            return made if again else made.checked(state.task_plan)

        found = asked_twice(self.program, "decision", read, **asked)
        return found if isinstance(found, ReplanDecision) else str(found)

    def _supervised(self, trigger: Trigger, state: State) -> ReplanDecision | str:
        def read(document: Json) -> ReplanDecision:
            made = _decision(document)
            if made.action is ReplanAction.RETRY:
                raise PlanEditError("field action: RETRY is none of those to choose from")
            return made.checked(state.task_plan)

        found = asked_twice(self.supervise, "decision", read, **situation_report(trigger, state))
        return found if isinstance(found, ReplanDecision) else str(found)


def _decision(document: Json) -> ReplanDecision:
    """Read a decision; only what was asked for is a model's to say."""
    made = ReplanDecision.model_validate(document)
    if more := sorted(made.model_fields_set - ASKED):
        raise PlanEditError(f"fields {', '.join(more)}: nobody asked for them")
    return made


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
    changes = [f"- {e.severity} {told([e])}{_payload(e)}" for e in state.fresh_events]
    mind = f"Replans left: {max(0, state.max_loops - state.loop_count)}."
    if trigger.point is TriggerPoint.STALL:
        mind += " Nothing runs and nothing can start: to CONTINUE would end in ABORT."
    none = "(none)"
    return {
        "goal": state.goal, "finished": "\n".join(finished) or none,
        "changes": "\n".join(changes) or none, "remaining": "\n".join(remaining) or none,
        "mind": mind,
    }  # fmt: skip


def _payload(event: ContextChangeEvent) -> str:
    shown = {k: v for k, v in event.payload.items() if k != REACT}
    return f" {canonical(shown)[:400]}" if shown else ""


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
    left = max(0, state.max_loops - state.loop_count)
    mind.append(f"Replans left: {left}.")
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

REFLECT = """\
A plan was carried out. Judge how it went, from the results alone.

- `goalAchieved` is true only where the results show that the user has what was asked for.
- `needReplan` is true where the goal was not achieved and another plan could achieve it, by another
  tool for example, or in another order. It is false where nothing else can be tried.
- `replanReason` says why, and `suggestions` what a new plan should do differently; both are empty
  where no new plan is needed.
"""

RESPOND = """\
Write the final response to the user: short, friendly, in the language of the question.

- Use the results; where there is an answer, begin with it. Do not repeat the question: say what
  came of it.
- Say plainly what failed or was not done. Never claim what the results do not show.
- Plain text, no headings.
"""

DECIDE = """\
A plan under way met trouble. Decide how to go on.

- CONTINUE: go on with the plan as it is.
- RETRY: carry the failed step out once more; good for a passing failure such as a timeout.
- REPLAN_REMAINING: plan anew what remains; good where a tool is broken or the world is not as it
  was believed.
- REPLAN_FULL: plan anew from where the world stands.
- ABORT: stop; only where the goal is out of reach.

`reasoning` says why in a sentence; `newContextHints` is what a new plan should mind.
"""

REPORT = {
    "goal": "what the user wants",
    "finished": "the steps that are completed, by index, and what each gave",
    "changes": "what happened since the last decision",
    "remaining": "the other steps of the plan, by index, and where each stands",
    "mind": "what else to mind",
}

SUPERVISE = """\
You watch over a plan while it is carried out. Something happened; decide how to go on.

- CONTINUE: go on with the plan as it is. Steps that failed are taken as they are.
- REPLAN_REMAINING: keep what is completed and plan the rest anew.
- REPLAN_FULL: cancel everything and plan anew; only where what is completed is of no use any more.
- ABORT: stop; only where the goal is out of reach.

`reasoning` says why in a sentence. `stepsToCancel` are the indices of the remaining steps that
REPLAN_REMAINING takes out, never of completed ones; empty means all of them. `newContextHints` is
what a new plan should mind. `confidence` is how sure you are, 0 to 1.
"""
