"""``structured``: a language model writes the whole plan as one JSON document.

The output schema is built from the lab's own tools, one variant of a step for each tool with that
tool's parameter schema, where every value may also be a ``${step.path}`` reference, and lists are
bounded: a small model fills a free-form parameter object with nothing, and never ends a list. An
endpoint that takes a JSON schema is sent it; elsewhere the same schema stands in the prompt.

The reply is parsed like any plan. What does not parse is asked for once more with the parse error,
by the ``planning`` node, for this planner as for every other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.bench import Bench
from agentlab.errors import ConfigError, PlanParseError
from agentlab.lm import lm_errors
from agentlab.lm.adapters import DocumentAdapter, ParseError, parse_problem, signature
from agentlab.lm.serde import load_dspy
from agentlab.planners.base import FULL, INITIAL, PlanRequest, checked_plan
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.tools.tool import Tool, object_schema
from agentlab.values import Json, canonical

dspy: Any = load_dspy()

MAX_STEPS = 32
MAX_DEPENDENCIES = 6
CALL_TOOL = "call_tool"
MAX_ITEMS = 16
TEXT = {"type": "string", "maxLength": 200}


_PLACED = frozenset({"$ref", "$dynamicRef", "$id", "$schema", "$anchor", "$dynamicAnchor"})
"""Keywords that mean something only where the schema stood."""

Offer = tuple[str, Tool]
"""An action type with a target of it, as a tool."""


def offers_of(bench: Bench) -> list[Offer]:
    """Return everything that a step may be in this lab."""
    return [(a.type, tool) for a in bench.actions.values() for tool in a.offers(bench)]


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
    variants = [_step_schema(tool) for tool in tools.values()]
    variants += [_step_schema(tool, kind) for kind, tool in others]
    return object_schema(
        summary=TEXT,
        steps={
            "type": "array",
            "maxItems": max_steps if variants else 0,
            "items": {"anyOf": variants} if variants else {},
        },
        answer={"anyOf": [TEXT, {"type": "null"}]},
    )


def _step_schema(tool: Tool, kind: str = CALL_TOOL) -> dict[str, Any]:
    return object_schema(
        stepId={"type": "string", "maxLength": 40},
        actionType={"const": kind},
        targetResource={"const": tool.name},
        parameters=arguments_schema(tool.parameters),
        dependencies={
            "type": "array", "maxItems": MAX_DEPENDENCIES,
            "items": {"type": "string", "maxLength": 40},
        },
    )  # fmt: skip


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a step's parameters: the tool's own, where values may be references."""
    definitions = {
        f"#/{at}/{name}": definition
        for at in ("definitions", "$defs")
        for name, definition in parameters.get(at, {}).items()
    }
    return _or_references(_inlined(parameters, definitions))


def _inlined(schema: Any, definitions: Mapping[str, Any], within: tuple[str, ...] = ()) -> Any:
    """Return a schema with its definitions put where they are used: it is to stand in another.

    A definition that holds itself, or that is found another way, says nothing there; the tool's own
    check sees to it.
    """
    if isinstance(schema, list):
        return [_inlined(item, definitions, within) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    name = schema.get("$ref")
    if name in within:
        return {}
    plain = {
        k: _inlined(v, definitions, within)
        for k, v in schema.items()
        if k != "$defs" and not (k in _PLACED and isinstance(v, str))
    }
    if not isinstance(name, str):
        return plain
    found = _inlined(definitions.get(name, {}), definitions, (*within, name))
    return {**found, **plain} if isinstance(found, Mapping) else plain


def _or_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Let every value of a tool's parameters also be text, for a reference; bound the lists."""
    properties = {
        name: inner if inner == {"type": "string"} | _told(inner) else {"anyOf": [inner, TEXT]}
        for name, inner in _bounded(schema.get("properties", {})).items()
    }
    return {**_bounded(schema), "properties": properties}


def _told(schema: Any) -> dict[str, Any]:
    """Return the part of a schema that is for people."""
    if not isinstance(schema, Mapping):  # a schema may be true or false
        return {}
    return {k: schema[k] for k in ("title", "description", "default") if k in schema}


def _bounded(schema: Any) -> Any:
    """Return a schema in which every list has a greatest length."""
    if isinstance(schema, list):
        return [_bounded(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {k: v if k in ("enum", "const", "default") else _bounded(v) for k, v in schema.items()}
    if "array" in (kind if isinstance(kind := schema.get("type"), list) else [kind]):
        inner.setdefault("maxItems", MAX_ITEMS)
    return inner


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


class Prompted:
    """What planners share that ask a language model by a dspy program.

    Parameters
    ----------
    program : str, Path or dspy.Module, optional
        A program saved as JSON by dspy, or the program itself; default: as it ships.
    **options
        Further arguments, kept so that the planner is the same in every process.
    """

    needs_model = True
    name: str
    program_type: Any

    def __init__(self, program: str | Path | Any | None = None, **options: Json) -> None:
        self.options = options
        if isinstance(program, self.program_type):
            self.program = program.deepcopy()
        else:
            self.program = self.program_type()
            if program is not None:
                _load(self.program, Path(program))
        self.program.set_lm(None)  # one of its own would be asked behind the lab's back

    def __reduce__(self) -> tuple[Any, ...]:
        # dspy's classes are pickled otherwise in every process; a study goes by what is pickled.
        return _restored, (type(self), canonical(self.program.dump_state()), self.options)


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

    def plan(self, request: PlanRequest, bench: Bench) -> TaskPlan:
        """Ask the model for a plan.

        Raises
        ------
        PlanParseError
            The reply is no plan that this lab can carry out.
        LMError
            No reply came.
        """
        offers = offers_of(bench)
        schema = self._schema(bench, offers)
        try:
            with lm_errors():
                reply = self.program(
                    schema=schema,
                    task=request.user_input,
                    tools=_tools(offers),
                    known=known_text(request),
                    situation=situation_text(request),
                ).plan
        except ParseError as e:
            raise PlanParseError([parse_problem(e)]) from e
        try:
            return checked_plan(_completed(reply), request, bench)
        except PlanParseError as e:
            raise PlanParseError(e.violations, reply=canonical(reply)) from e

    def _schema(self, bench: Bench, offers: Sequence[Offer]) -> dict[str, Any]:
        tools, schema = self._schema_of
        if tools is not bench.tools:
            called = {tool.name: tool for kind, tool in offers if kind == CALL_TOOL}
            schema = plan_schema(called, others=[o for o in offers if o[0] != CALL_TOOL])
            self._schema_of = (bench.tools, schema)
        return schema


def _restored(kind: type[Prompted], state: str, options: dict[str, Json]) -> Prompted:
    program = kind.program_type()
    program.load_state(json.loads(state))
    return kind(program, **options)


def _load(program: Any, path: Path) -> None:
    if path.suffix != ".json":
        raise ConfigError(f"expected a program saved as .json, got {str(path)!r}")
    try:
        program.load(str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"program {str(path)!r} cannot be read: {type(e).__name__}: {e}") from e


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


def _tools(offers: Sequence[Offer]) -> str:
    return "\n".join(
        tool_line(t.name if kind == CALL_TOOL else f"{kind} {t.name}".strip(), t.parameters,
                  t.returns, t.description)
        for kind, t in offers
    )  # fmt: skip


def tool_line(
    name: str, parameters: Mapping[str, Any], returns: Mapping[str, Any], told: str
) -> str:
    """Return what can be called as a line of a prompt."""
    properties = parameters.get("properties", {})
    required = set(parameters.get("required", ()))
    listed = ", ".join(
        f"{n}{'' if n in required else '?'}: {_kind(s)}" for n, s in properties.items()
    )
    lines = [f"- {name}({listed}) -> {_shape(returns)}: {told}"]
    told_of = {n: _told(s).get("description") for n, s in properties.items()}
    lines += [f"  - {n}: {text}" for n, text in told_of.items() if text]
    return "\n".join(lines)


def _kind(schema: Any) -> Any:
    return (schema.get("type") if isinstance(schema, Mapping) else None) or "any"


def _shape(schema: Any, depth: int = 0) -> str:
    """Return what a result looks like, in a few words."""
    kind = _kind(schema)
    if kind == "object" and "properties" in schema and depth < 3:
        inner = ", ".join(f"{k}: {_shape(v, depth + 1)}" for k, v in schema["properties"].items())
        return "{" + inner + "}"
    if kind == "array":
        return f"[{_shape(schema.get('items', {}), depth + 1)}]"
    return str(kind)


def known_text(request: PlanRequest) -> str:
    """Return what is known of the world."""
    return canonical({k: v for k, v in request.belief.items() if k != "seen"})


def situation_text(request: PlanRequest) -> str:
    """Say what was done with what result, what failed and why, and how many replans are left."""
    lines = [f"- {hint}" for hint in request.hints]
    if request.scope == INITIAL or request.earlier is None:
        return "\n".join(["Nothing has been done yet.", *lines])
    label = {s.step_id: s.label for s in request.earlier.steps}
    done = [
        f"- {step}: {label.get(step, 'of a plan before')} gave {canonical(result)[:300]}"
        for step, result in request.results.items()
    ]
    running = [f"- {s.step_id}: {_call(s)}" for s in request.under_way]
    failed, dropped = [], []
    for s in request.earlier.steps:
        if s.status in (StepStatus.FAILED, StepStatus.INTERRUPTED):
            failed.append(f"- {s.step_id}: {_call(s)} {s.status}: {s.error}")
        elif s.status not in (StepStatus.COMPLETED, StepStatus.RUNNING):
            dropped.append(f"- {s.step_id}: {_call(s)} {s.status}")
    text = ["An earlier plan met trouble; plan only what remains to be done."]
    if request.scope == FULL:
        text = ["An earlier plan met trouble; make a new one from where things stand."]
    for title, listed in (
        ("Done (refer to these results by their step ids):", done),
        ("Under way, not to be planned again (depend on them and refer to them as well):", running),
        ("Side effects that stand:", [f"- {effect}" for effect in request.side_effects]),
        ("Failed:", failed),
        ("Planned before and not done:", dropped),
    ):
        text += [title, *listed] if listed else []
    if request.reflection is not None:
        text.append(f"Assessment: {request.reflection.analysis}")
    return "\n".join([*text, *lines, f"Replans left: {request.replans_left}"])


def _call(step: TaskStep) -> str:
    return f"{step.label}({canonical(step.parameters)})"


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
