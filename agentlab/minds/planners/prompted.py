"""What planners that ask a language model share: offers, prompt parts, a saved program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlab.base.arrived import instance
from agentlab.base.documents import Json, canonical
from agentlab.base.strict_json import read_json_file
from agentlab.errors import ConfigError, seen
from agentlab.minds.base import FULL, INITIAL, PlanRequest
from agentlab.minds.planners.definitions import PLACED, Definitions, has_references
from agentlab.plans.task_plan import StepStatus, TaskStep
from agentlab.state.events import ChangeType, payload_text

MAX_ITEMS = 16
TEXT = {"type": "string", "maxLength": 200}


def arguments_schema(parameters: Mapping[str, Any], definitions: Definitions) -> dict[str, Any]:
    """Return the schema of a step's parameters: the tool's own, where values may be references.

    Parameters
    ----------
    parameters : mapping
        The tool's.
    definitions : Definitions
        Takes what the tool's schema refers to; they go into ``$defs`` of the whole (``complete``).
    """
    if has_references(parameters):
        return _or_references(definitions.take(parameters))
    return _or_references(_unplaced(parameters))


def complete(schema: dict[str, Any], definitions: Definitions) -> dict[str, Any]:
    """Return a schema with the definitions that it refers to."""
    return {**schema, "$defs": _bounded(definitions.named)} if definitions.named else schema


def _unplaced(schema: Any) -> Any:
    """Return a schema without what would mean something else in another."""
    if isinstance(schema, list):
        return [_unplaced(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {k: _unplaced(v) for k, v in schema.items() if not (k in PLACED and isinstance(v, str))}


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
                told = f"a path, or a {self.program_type.__name__}"
                _load(self.program, Path(instance("program", program, (str, Path), told)))
        self.program.set_lm(None)  # one of its own would be asked behind the lab's back

    def arm_key(self) -> Json:
        """Return what tells it from others as an arm: its program and its options."""
        return [canonical(self.program.dump_state()), self.options]

    def __reduce__(self) -> tuple[Any, ...]:
        # dspy's classes are pickled otherwise in every process; a study goes by what is pickled.
        return _restored, (type(self), canonical(self.program.dump_state()), self.options)


def _restored(kind: type[Prompted], state: str, options: dict[str, Json]) -> Prompted:
    program = kind.program_type()
    program.load_state(json.loads(state))
    return kind(program, **options)


def _load(program: Any, path: Path) -> None:
    if path.suffix != ".json":
        raise ConfigError(f"expected a program saved as .json, got {seen(str(path))}")
    read_json_file(path, ConfigError)  # dspy's own reader takes what is no JSON
    try:
        program.load(str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(
            f"program {seen(str(path))} cannot be read: {type(e).__name__}: {e}"
        ) from e


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
    lines = [*_news(request), *(f"- {hint}" for hint in request.hints)]
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


def _news(request: PlanRequest) -> list[str]:
    """Say what happened that the rest of the prompt does not: nothing of a step that failed."""
    known = set() if request.earlier is None else {s.step_id for s in request.earlier.steps}
    lines = []
    for event in request.changes:
        of_a_step = event.type in STEP_EVENTS and event.task_id in known
        if event.type is ChangeType.MILESTONE_REACHED or of_a_step:
            continue
        about = f" at {event.task_id}" if event.task_id else ""
        line = f"- {WORDS[event.type]}{about}: {event.description}{payload_text(event)}"
        lines += [] if line in lines else [line]
    return ["What happened meanwhile (mind it):", *lines] if lines else []


STEP_EVENTS = frozenset(
    {ChangeType.TASK_FAILED, ChangeType.TASK_INTERRUPTED, ChangeType.DEPENDENCY_BROKEN}
)
WORDS = {
    ChangeType.NEW_CONSTRAINT: "a new constraint",
    ChangeType.EXTERNAL_SIGNAL: "a signal from outside",
    ChangeType.TASK_UNEXPECTED_RESULT: "an unexpected result",
    ChangeType.TASK_FAILED: "a task failed",
    ChangeType.TASK_INTERRUPTED: "a task was interrupted",
    ChangeType.DEPENDENCY_BROKEN: "a dependency is gone",
}


def _call(step: TaskStep) -> str:
    return f"{step.label}({canonical(step.parameters)})"
