"""``llm_generate``: ask the lab's language model for a text."""

from __future__ import annotations

from typing import Any

from agentlab.base.documents import canonical
from agentlab.base.schemas import object_schema
from agentlab.errors import LMError, seen
from agentlab.lab.bench import Action, Bench, StepOutcome, unknown_parameters
from agentlab.lm.door import lm_errors
from agentlab.lm.serde import load_dspy
from agentlab.plans.task_plan import ActionType, TaskStep
from agentlab.state.records import UnderWay
from agentlab.state.state import State
from agentlab.tools.tool import Tool

NO_MODEL = "llm_generate needs a language model, and this lab has none: Lab(lm=…)"


class LlmGenerate(Action):
    """Send a prompt, after the agent's system prompt, and take the reply as it is."""

    type = ActionType.LLM_GENERATE.value
    input_fields = {"prompt": "what the model is asked; default: the user's input"}
    result_form = "text"

    def check(self, step: TaskStep, bench: Bench) -> list[str]:
        """Refuse a lab without a model, a target, and parameters other than ``prompt``."""
        problems = unknown_parameters(step, self.input_fields)
        if bench.model is None:
            problems.append(NO_MODEL)
        if step.target_resource:
            problems.append(
                f"targetResource: llm_generate has none, got {seen(step.target_resource)}"
            )
        return problems

    def offers(self, bench: Bench) -> list[Tool]:
        """Return the one way to ask, outside simulated worlds: there, plans are made of tools."""
        if bench.model is None or bench.environment is not None:
            return []
        parameters = object_schema(prompt={"type": "string", "maxLength": 2000})
        return [Tool("", "write a text; the prompt says what it needs", parameters)]

    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start; how long it takes is known when it was done."""
        return state, UnderWay(
            step_id=step.step_id, action_type=self.type, attempt=attempt,
            submission=state.submissions, started=state.now, finishes=state.now,
            arguments=parameters,
        )  # fmt: skip

    def finish(self, state: State, bench: Bench, under_way: UnderWay) -> tuple[State, StepOutcome]:
        """Ask, and charge the call."""
        prompt = under_way.arguments.get("prompt", state.user_input)
        text = prompt if isinstance(prompt, str) else canonical(prompt)  # a whole reference
        if bench.model is None:  # put in by an edit: planners are checked
            return state, StepOutcome(error=NO_MODEL)
        with bench.asking(state, under_way.step_id, under_way.attempt) as talk:
            try:
                outcome = StepOutcome(result=_reply(text, bench.agent().system_prompt))
            except LMError as e:
                outcome = StepOutcome(error=f"{type(e).__name__}: {e}")
            except load_dspy().utils.exceptions.AdapterParseError as e:  # nothing was said
                outcome = StepOutcome(error=_problem(e))
        return talk.charged(state), outcome


def _problem(error: Exception) -> str:
    from agentlab.lm.adapters import parse_problem

    return parse_problem(error)


def _reply(prompt: str, system: str) -> str:
    from agentlab.lm.adapters import PlainAdapter, signature

    dspy = load_dspy()
    form = signature("Generate", "Reply.", {"prompt": "what is asked"}, "reply")
    with lm_errors(), dspy.context(adapter=PlainAdapter(system)):
        return str(dspy.Predict(form)(prompt=prompt).reply)
