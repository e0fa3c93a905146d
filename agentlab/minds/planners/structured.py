"""``structured``: a language model writes the whole plan as one JSON document.

The output schema is built from the lab's own tools, one variant of a step for each tool with that
tool's parameter schema, where every value may also be a ``${step.path}`` reference, and lists are
bounded: a small model fills a free-form parameter object with nothing, and never ends a list. An
endpoint that takes a JSON schema is sent it; elsewhere the same schema stands in the prompt.

The reply is parsed like any plan. What does not parse is asked for once more with the parse error,
by the ``planning`` node, for this planner as for every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.base.documents import canonical
from agentlab.base.schemas import object_schema
from agentlab.errors import PlanParseError
from agentlab.lm.adapters import DocumentAdapter, ParseError, parse_problem, signature
from agentlab.lm.door import lm_errors
from agentlab.lm.serde import load_dspy
from agentlab.lm.settings import NOBODY, Persona
from agentlab.minds.base import Kit, Offer, PlanRequest, checked_plan
from agentlab.minds.planners.definitions import Definitions
from agentlab.minds.planners.prompted import (
    TEXT,
    Prompted,
    arguments_schema,
    complete,
    known_text,
    situation_text,
    tool_line,
)
from agentlab.plans.task_plan import TaskPlan
from agentlab.tools.tool import Tool

dspy: Any = load_dspy()

MAX_STEPS = 32
MAX_DEPENDENCIES = 6
CALL_TOOL = "call_tool"


def plan_schema(
    tools: Mapping[str, Tool], max_steps: int = MAX_STEPS, others: Sequence[Offer] = ()
) -> dict[str, Any]:
    """Return the JSON Schema of a plan over these tools.

    Parameters
    ----------
    tools : mapping of str to Tool
    max_steps : int
        Bound on the length of a plan.
    others : sequence of (action type, Tool)
        What else a step may be.
    """
    shared = Definitions()
    variants = [_step_schema(tool, shared) for tool in tools.values()]
    variants += [_step_schema(tool, shared, kind) for kind, tool in others]
    schema = object_schema(
        summary=TEXT,
        steps={
            "type": "array",
            "maxItems": max_steps if variants else 0,
            "items": {"anyOf": variants} if variants else {},
        },
        answer={"anyOf": [TEXT, {"type": "null"}]},
    )
    return complete(schema, shared)


def _step_schema(tool: Tool, shared: Definitions, kind: str = CALL_TOOL) -> dict[str, Any]:
    return object_schema(
        stepId={"type": "string", "maxLength": 40},
        actionType={"const": kind},
        targetResource={"const": tool.name},
        parameters=arguments_schema(tool.parameters, shared),
        dependencies={
            "type": "array", "maxItems": MAX_DEPENDENCIES,
            "items": {"type": "string", "maxLength": 40},
        },
    )  # fmt: skip


class PlanProgram(dspy.Module):  # type: ignore[misc]
    """The dspy program of the planner: optimise it, save it (JSON), load it, compare it.

    Parameters
    ----------
    instructions : str
        What the model is told.
    """

    def __init__(self, instructions: str | None = None) -> None:
        super().__init__()
        told = instructions or INSTRUCTIONS
        self.write = dspy.Predict(signature("WritePlan", told, INPUTS, "plan"))

    def forward(self, schema: dict[str, Any], persona: Persona = NOBODY, **inputs: str) -> Any:
        """Return a prediction with ``plan``, a JSON document."""
        with dspy.context(adapter=DocumentAdapter(schema, "plan", persona)):
            return self.write(**inputs)


class Structured(Prompted):
    """Plans written by a language model as one JSON document.

    Parameters
    ----------
    program : str, Path or PlanProgram, optional
        A program saved as JSON by dspy, or the program itself; default: as it ships.
    """

    name = "structured"
    program_type = PlanProgram

    def __init__(self, program: str | Path | PlanProgram | None = None) -> None:
        super().__init__(program)
        self._schema_of: tuple[Any, dict[str, Any]] = (None, {})

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Ask the model for a plan.

        Raises
        ------
        PlanParseError
            The reply is no plan that this lab can carry out.
        LMError
            No reply came.
        """
        offers = kit.offers()
        schema = self._schema(kit, offers)
        try:
            with lm_errors():
                reply = self.program(
                    schema=schema,
                    persona=request.persona,
                    task=request.user_input,
                    tools=_tools(offers),
                    known=known_text(request),
                    situation=situation_text(request),
                ).plan
        except ParseError as e:
            raise PlanParseError([parse_problem(e)]) from e
        try:
            return checked_plan(_completed(reply), request, kit)
        except PlanParseError as e:
            raise PlanParseError(e.violations, reply=canonical(reply)) from e

    def _schema(self, kit: Kit, offers: Sequence[Offer]) -> dict[str, Any]:
        tools, schema = self._schema_of
        if tools is not kit.tools:
            called = {tool.name: tool for kind, tool in offers if kind == CALL_TOOL}
            schema = plan_schema(called, others=[o for o in offers if o[0] != CALL_TOOL])
            self._schema_of = (kit.tools, schema)
        return schema


def _completed(reply: Any) -> Any:
    """Give each step a name, which the schema does not ask for twice."""
    if not isinstance(reply, dict) or not isinstance(reply.get("steps"), list):
        return reply
    steps = [{"name": _name(s), **s} if isinstance(s, dict) else s for s in reply["steps"]]
    return {**reply, "steps": steps}


def _name(step: dict[str, Any]) -> Any:
    step_id = step.get("stepId")
    if isinstance(step_id, int) and not isinstance(step_id, bool):
        return str(step_id)
    return step_id or step.get("targetResource") or "step"


def _tools(offers: Sequence[Offer]) -> str:
    return "\n".join(
        tool_line(t.name if kind == CALL_TOOL else f"{kind} {t.name}".strip(), t.parameters,
                  t.returns, t.description)
        for kind, t in offers
    )  # fmt: skip


INPUTS = {
    "task": "what the user wants",
    "tools": "name(parameters) -> result: what it does; a question mark marks what may be left out",
    "known": "what is known of the world, as JSON; it may be out of date or incomplete",
    "situation": "what has been done so far, what failed, and what to mind",
}

INSTRUCTIONS = """\
Make a plan that reaches the user's goal by calling tools. Nothing is executed while you plan.

- Use as few steps as are needed; break complex work into steps that each call one tool.
- A step that needs a value from an earlier step's result takes it by reference, as the text
  ${stepId.path}, where path is a JMESPath into that result, for example
  ${search.flights[0].id} or ${search.flights[?price<`100`] | [0].id}. Never invent ids or tokens:
  what a tool must have returned before comes from a reference.
- The word before the first dot of a reference is a stepId of this plan or of a step that is done,
  nothing else. What stands under `known` is copied as it is: "Rome", never ${known.city}. But an id
  or token that a tool hands out is taken from the result of a step, even where `known` shows it.
- Every stepId is new, made of letters, digits and underscores, and occurs once.
- `dependencies` lists the stepIds that must be completed before a step.
- `answer` is null, or the text or reference that answers the user's question.
- Where nothing needs to be done, `steps` is empty.

For example, for "Pay the newest invoice of Acme from the savings account, then file the receipt",
with the tools find_invoices(customer: string) -> {invoices: [{id: string, day: integer}]},
pay(invoice_id: string, account: string) -> {receipt: string} and
file(receipt: string) -> {place: string}, and known {"accounts": {"savings": "A7"}}:

{"summary": "find it, pay it, file the receipt", "steps": [
 {"stepId": "find", "actionType": "call_tool", "targetResource": "find_invoices",
  "parameters": {"customer": "Acme"}, "dependencies": []},
 {"stepId": "pay", "actionType": "call_tool", "targetResource": "pay",
  "parameters": {"invoice_id": "${find.invoices[-1].id}", "account": "A7"},
  "dependencies": ["find"]},
 {"stepId": "keep", "actionType": "call_tool", "targetResource": "file",
  "parameters": {"receipt": "${pay.receipt}"}, "dependencies": ["pay"]}],
 "answer": "${keep.place}"}
"""
