"""``structured``: a language model writes the whole plan as one JSON document.

The output schema is built from the lab's own tools, one variant of a step for each tool with that
tool's parameter schema, where every value may also be a ``${step.path}`` reference, and lists are
bounded: a small model fills a free-form parameter object with nothing, and never ends a list. An
endpoint that takes a JSON schema is sent it; elsewhere the same schema stands in the prompt.

The reply is parsed like any plan. What does not parse is asked for once more with the parse error,
by the ``planning`` node, for this planner as for every other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlab.bench import Bench
from agentlab.errors import PlanParseError
from agentlab.lm import lm_errors
from agentlab.lm.adapters import DocumentAdapter, signature
from agentlab.lm.serde import load_dspy
from agentlab.planners.base import FULL, INITIAL, PlanRequest, checked_plan
from agentlab.plans.task_plan import StepStatus, TaskPlan
from agentlab.tools.tool import Tool
from agentlab.values import Json, canonical

dspy: Any = load_dspy()

MAX_STEPS = 16
MAX_DEPENDENCIES = 6
TEXT = {"type": "string", "maxLength": 200}


def plan_schema(tools: Mapping[str, Tool], max_steps: int = MAX_STEPS) -> dict[str, Any]:
    """Return the JSON Schema of a plan over these tools.

    Parameters
    ----------
    tools : mapping of str to Tool
    max_steps : int
        Bound on the length of a plan.
    """
    variants = [_step_schema(tool) for tool in tools.values()]
    return _closed(
        summary=TEXT,
        steps={"type": "array", "maxItems": max_steps, "items": {"anyOf": variants}},
        answer={"anyOf": [TEXT, {"type": "null"}]},
    )


def _step_schema(tool: Tool) -> dict[str, Any]:
    return _closed(
        stepId={"type": "string", "maxLength": 40},
        actionType={"const": "call_tool"},
        targetResource={"const": tool.name},
        parameters=_or_references(tool.parameters),
        dependencies={
            "type": "array", "maxItems": MAX_DEPENDENCIES,
            "items": {"type": "string", "maxLength": 40},
        },
    )  # fmt: skip


def _closed(**properties: Json) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False,
    }  # fmt: skip


def _or_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Let every value of a tool's parameters also be text, for a reference."""
    properties = {
        name: inner if inner.get("type") == "string" else {"anyOf": [inner, TEXT]}
        for name, inner in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


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

    def forward(self, schema: dict[str, Any], **inputs: str) -> Any:
        """Return a prediction with ``plan``, a JSON document."""
        with dspy.context(adapter=DocumentAdapter(schema, "plan")):
            return self.write(**inputs)


class Structured:
    """Plans written by a language model as one JSON document.

    Parameters
    ----------
    program : str, Path or PlanProgram, optional
        A program saved as JSON by dspy, or the program itself; default: as it ships.
    """

    needs_model = True

    def __init__(self, program: str | Path | PlanProgram | None = None) -> None:
        self.name = "structured"
        if isinstance(program, PlanProgram):
            self.program = program
        else:
            self.program = PlanProgram()
            if program is not None:
                self.program.load(str(program))
        self._schemas: dict[int, dict[str, Any]] = {}

    def plan(self, request: PlanRequest, bench: Bench) -> TaskPlan:
        """Ask the model for a plan.

        Raises
        ------
        PlanParseError
            The reply is no plan that this lab can carry out.
        LMError
            No reply came.
        """
        schema = self._schema(bench)
        try:
            with lm_errors():
                reply = self.program(
                    schema=schema,
                    task=request.user_input,
                    tools=_tools(bench.tools),
                    known=_known(request),
                    situation=_situation(request),
                ).plan
        except dspy.utils.exceptions.AdapterParseError as e:
            raise PlanParseError([_one_line(e)]) from e
        return checked_plan(_completed(reply), request, bench)

    def _schema(self, bench: Bench) -> dict[str, Any]:
        schema = self._schemas.get(id(bench.tools))
        if schema is None:
            schema = self._schemas[id(bench.tools)] = plan_schema(bench.tools)
        return schema


def _one_line(error: Exception) -> str:
    return " ".join(str(getattr(error, "message", error)).split())[:300]


def _completed(reply: Any) -> Any:
    """Give each step a name, which the schema does not ask for twice."""
    if not isinstance(reply, dict) or not isinstance(reply.get("steps"), list):
        return reply
    steps = [
        {"name": s.get("stepId") or s.get("targetResource") or "step", **s}
        if isinstance(s, dict)
        else s
        for s in reply["steps"]
    ]
    return {**reply, "steps": steps}


def _tools(tools: Mapping[str, Tool]) -> str:
    lines = []
    for tool in tools.values():
        properties = tool.parameters.get("properties", {})
        required = set(tool.parameters.get("required", properties))
        listed = ", ".join(
            f"{n}{'' if n in required else '?'}: {s.get('type', 'any')}"
            for n, s in properties.items()
        )
        returns = _shape(tool.returns)
        lines.append(f"- {tool.name}({listed}) -> {returns}: {tool.description}")
    return "\n".join(lines)


def _shape(schema: Mapping[str, Any], depth: int = 0) -> str:
    """Return what a result looks like, in a few words."""
    kind = schema.get("type")
    if kind == "object" and "properties" in schema and depth < 3:
        inner = ", ".join(f"{k}: {_shape(v, depth + 1)}" for k, v in schema["properties"].items())
        return "{" + inner + "}"
    if kind == "array":
        return f"[{_shape(schema.get('items', {}), depth + 1)}]"
    return str(kind or "any")


def _known(request: PlanRequest) -> str:
    return canonical({k: v for k, v in request.belief.items() if k != "seen"})


def _situation(request: PlanRequest) -> str:
    """Say what was done with what result, what failed and why, and how many replans are left."""
    lines = [f"- {hint}" for hint in request.hints]
    if request.scope == INITIAL or request.earlier is None:
        return "\n".join(["Nothing has been done yet.", *lines])
    done = [f"- {s.step_id}: {s.label} gave {canonical(s.result)[:300]}" for s in request.done]
    failed = [
        f"- {s.step_id}: {s.label}({canonical(s.parameters)}) failed: {s.error}"
        for s in request.earlier.steps
        if s.status is StepStatus.FAILED
    ]
    text = ["An earlier plan met trouble; plan only what remains to be done."]
    if request.scope == FULL:
        text = ["An earlier plan met trouble; make a new one from where things stand."]
        text += ["Side effects that stand:", *(f"- {e}" for e in request.side_effects)]
    if done:
        text += ["Done (refer to these results by their step ids):", *done]
    if failed:
        text += ["Failed:", *failed]
    return "\n".join([*text, *lines, f"Replans left: {request.replans_left}"])


INPUTS = {
    "task": "what the user wants",
    "tools": "name(parameters) -> result: what it does; a question mark marks what may be left out",
    "known": "what is known of the world, as JSON",
    "situation": "what has been done so far, what failed, and what to mind",
}

INSTRUCTIONS = """\
Make a plan that reaches the user's goal by calling tools. Nothing is executed while you plan.

- Use as few steps as are needed; break complex work into steps that each call one tool.
- A step that needs a value from an earlier step's result takes it by reference, as the text
  ${stepId.path}, where path is a JMESPath into that result, for example
  ${search.flights[0].id} or ${search.flights[?price<`100`] | [0].id}. Never invent ids or tokens:
  what a tool must have returned before comes from a reference.
- `dependencies` lists the stepIds that must be completed before a step.
- Every stepId is a new short name made of letters, digits and underscores.
- `answer` is null, or the text or reference that answers the user's question.
- Where nothing needs to be done, `steps` is empty.
"""
