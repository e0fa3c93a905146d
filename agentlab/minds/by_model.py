"""The LM-backed reflector, responder and decider, each a dspy module behind the call of its rule.

Every one falls back to its rule when the model's reply does not parse twice or does not come: a run
never ends without a decision or an answer. The fallback is in what it returns (``analysis``,
``reasoning``), never hidden.
"""

from __future__ import annotations

from agentlab.base.documents import Json
from agentlab.base.schemas import object_schema
from agentlab.errors import LMError, PlanEditError
from agentlab.lm.adapters import ParseError
from agentlab.lm.door import lm_errors
from agentlab.minds.base import Kit
from agentlab.minds.programs import (
    REPORT,
    SITUATION,
    DocumentProgram,
    TextProgram,
    asked_twice,
    situation,
    situation_report,
)
from agentlab.minds.rules import RuleReflector, TemplateResponder
from agentlab.state.decisions import (
    ReflectionResult,
    ReplanAction,
    ReplanDecision,
    Trigger,
    TriggerPoint,
)
from agentlab.state.state import State

TEXT = {"type": "string", "maxLength": 400}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
LIST = {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 200}}


class LMReflector:
    """Judges an execution by asking the model; by the rule where no usable reply comes."""

    needs_model = True

    def __init__(self) -> None:
        schema = object_schema(
            analysis=TEXT, goalAchieved={"type": "boolean"}, needReplan={"type": "boolean"},
            replanReason=TEXT, suggestions=LIST,
        )  # fmt: skip
        self.program = DocumentProgram("reflection", schema, REFLECT, SITUATION)

    def reflect(self, state: State, kit: Kit) -> ReflectionResult:
        """Return how it went, and whether another plan is worth making."""
        found = asked_twice(
            self.program, "reflection", ReflectionResult.model_validate, state.persona,
            **situation(state),
        )  # fmt: skip
        if isinstance(found, ReflectionResult):
            return found
        ruled = RuleReflector().reflect(state, kit)
        return ruled.replace(analysis=f"{ruled.analysis} (by rule, since {found})")


class LMResponder:
    """Writes the final response by asking the model; by the template where no reply comes."""

    needs_model = True

    def __init__(self) -> None:
        self.program = TextProgram(RESPOND, SITUATION)

    def respond(self, state: State, kit: Kit) -> str:
        """Return what the user is told."""
        if state.error is not None:
            return TemplateResponder().respond(state, kit)
        text, why = "", "the model replied nothing"
        try:
            with lm_errors():
                text = str(self.program(persona=state.persona, **situation(state)).text)
        except ParseError:  # an empty reply
            pass
        except LMError as e:
            why = str(e)
        if text.strip():
            return text
        why = why.rstrip(".")
        return f"{TemplateResponder().respond(state, kit)}\n(Written by template: {why}.)"


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

    def decide(self, trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | str:
        """Return the model's decision, or why there is none."""
        if trigger.point in (TriggerPoint.EVENT, TriggerPoint.PHASE_END, TriggerPoint.STALL):
            return self._supervised(trigger, state)
        asked = situation(state)
        asked["mind"] = f"What happened: {trigger.reason}\n{asked['mind']}"

        def read(document: Json) -> ReplanDecision:
            made = _decision(document).replace(step_id=trigger.step_id)
            again = made.action is ReplanAction.RETRY
            return made if again else made.checked(state.task_plan)

        found = asked_twice(self.program, "decision", read, state.persona, **asked)
        return found if isinstance(found, ReplanDecision) else str(found)

    def _supervised(self, trigger: Trigger, state: State) -> ReplanDecision | str:
        def read(document: Json) -> ReplanDecision:
            made = _decision(document)
            if made.action is ReplanAction.RETRY:
                raise PlanEditError("field action: RETRY is none of those to choose from")
            return made.checked(state.task_plan)

        asked = situation_report(trigger, state)
        found = asked_twice(self.supervise, "decision", read, state.persona, **asked)
        return found if isinstance(found, ReplanDecision) else str(found)


def _decision(document: Json) -> ReplanDecision:
    """Read a decision; only what was asked for is a model's to say."""
    made = ReplanDecision.model_validate(document)
    if more := sorted(made.model_fields_set - ASKED):
        raise PlanEditError(f"fields {', '.join(more)}: nobody asked for them")
    return made


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
