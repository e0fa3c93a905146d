"""``PlanCodec``: a contract as JSON text and back, exactly.

The wire schema is the authority: ``decode`` takes what fits ``json_schema`` and is strict JSON (no
key twice, nothing after the document, no NaN, no number beyond the range of a double, no half of a
surrogate pair), and ``encode`` writes nothing that ``decode`` would not take. Everything that is
wrong is listed, with the step and the field.
"""

from __future__ import annotations

import copy
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from sys import float_info
from typing import Any

from agentlab.base.documents import Json, shortened
from agentlab.base.schemas import DIALECT, object_schema, schema_validator
from agentlab.base.strict_json import all_problems, read_json
from agentlab.errors import JsonError, PlanValidationError, PlanViolation, seen
from agentlab.plans.contract.spec import SCHEMA_VERSION, PlanSpec, PlanStep, PlanStepStatus

NESTING = 128
"""Levels of lists and objects in a document."""

Path = tuple[str | int, ...]

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"\w+", re.ASCII)


_TEXT = {"type": "string", "pattern": "\\S"}
_STEP = object_schema(
    stepId=_TEXT, objective=_TEXT, dependencies={"type": "array", "items": _TEXT},
    executionTarget={"type": "string", "pattern": "^(tool|agent):"},
    inputSchema={"type": "object"}, outputSchema={"type": "object"}, completionCriteria=_TEXT,
    status={"enum": [s.value for s in PlanStepStatus]}, result={},
    error={"type": ["string", "null"]},
)  # fmt: skip
_WIRE = {
    "$schema": DIALECT,
    "title": "PlanSpec",
    **object_schema(
        schemaVersion={"const": SCHEMA_VERSION}, revision={"type": "integer", "minimum": 1},
        objective=_TEXT, steps={"type": "array", "items": _STEP},
    ),
}  # fmt: skip


class PlanCodec:
    """Writes and reads contracts. A COMPLETED that is read is no proof that anything was done."""

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the wire format."""
        return copy.deepcopy(_WIRE)

    def encode(self, spec: PlanSpec) -> str:
        """Return a contract as JSON text.

        Raises
        ------
        PlanValidationError
            It would not be read back as it is: a blank text, a result that is no JSON, ...
        """
        if not isinstance(spec, PlanSpec):
            problem = f"expected a PlanSpec, got {type(spec).__name__}"
            raise PlanValidationError([PlanViolation(None, "(document)", problem)])
        document = _written(spec)
        _refuse(_wrong(document), document)
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def decode(self, text: str | bytes) -> PlanSpec:
        """Return the contract that JSON text holds; bytes are UTF-8.

        Raises
        ------
        PlanValidationError
            Lists everything that is wrong with it.
        """
        return self.read(parsed(text))

    def read(self, document: Json) -> PlanSpec:
        """Return the contract of a document that is parsed already.

        Raises
        ------
        PlanValidationError
            Lists everything that is wrong with it.
        """
        _refuse(_wrong(document), document)
        revision = int(document["revision"])  # JSON has one kind of number: 1.0 is an integer
        whole = {**document, "schemaVersion": SCHEMA_VERSION, "revision": revision}
        return PlanSpec.model_validate(whole)


def _written(spec: PlanSpec) -> dict[str, Any]:
    """Return the document as it is: pydantic's own would turn what is no JSON into something."""

    def plain(value: Any, record: type[PlanSpec | PlanStep]) -> dict[str, Any]:
        return {str(f.alias): getattr(value, name) for name, f in record.model_fields.items()}

    steps = [
        {**plain(s, PlanStep), "dependencies": list(s.dependencies), "status": s.status.value}
        for s in spec.steps
    ]
    return {**plain(spec, PlanSpec), "steps": steps}


def parsed(text: Any) -> Json:
    """Parse JSON text strictly.

    Raises
    ------
    PlanValidationError
        Names where it is not strict JSON: every place, or the first where it is none at all.
    """
    try:
        value = read_json(text, depth=NESTING)
    except JsonError as e:
        raise PlanValidationError(_refused(text, e)) from e
    _refuse(json_problems(value), value)
    return value


def _refused(text: Any, first: JsonError) -> list[PlanViolation]:
    """Return all that is wrong with a text that is JSON by and large; else the first of it."""
    try:
        whole = text.decode() if isinstance(text, bytes) else text
        document = json.loads(whole, parse_int=float) if first.path else None
    except (ValueError, RecursionError):
        document = None
    if document is None:
        problem = str(first) if first.path else f"not JSON: {first}"
        return [placed(first.path, problem, None)]
    return [placed(p.path, str(p), document) for p in all_problems(whole, NESTING)]


def json_problems(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield where a value is not JSON that can be written and read back as it is, and why."""
    waiting: deque[tuple[Path, Any]] = deque([(path, value)])
    while waiting:
        path, value = waiting.popleft()
        if isinstance(value, (dict, list)):
            if len(path) >= NESTING:
                yield path, f"nested more than {NESTING} levels deep"
                continue
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                if isinstance(value, dict) and (problem := _key_problem(key)):
                    yield path, problem
                else:
                    waiting.append(((*path, key), inner))
        elif problem := _scalar_problem(value):
            yield path, problem


def _key_problem(key: Any) -> str | None:
    if not isinstance(key, str):
        return f"a key must be text, got {seen(key)}"
    return f"the key {key!a} holds half of a surrogate pair" if _SURROGATE.search(key) else None


def _scalar_problem(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return "holds half of a surrogate pair" if _SURROGATE.search(value) else None
    if isinstance(value, (int, float)):
        return None if abs(value) <= float_info.max else "is no number that a double can hold"
    return f"{type(value).__name__} is no JSON"


def _wrong(document: Json) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with a document: as JSON, else by the wire schema."""
    problems = list(json_problems(document))
    if problems:
        yield from problems
        return
    errors = list(schema_validator(_WIRE).iter_errors(document))
    version = [e for e in errors if e.instance_path == ["schemaVersion"]]
    for error in version or errors:  # of another version nothing else is known
        path = tuple(error.instance_path)
        if error.kind.name == "required":
            yield (*path, error.kind.property), "is missing"
        elif error.kind.name == "additionalProperties":
            for name in error.kind.unexpected:
                yield (*path, name), "is no field of it"
        elif error.kind.name == "pattern":
            kinds = f"expected 'tool:<name>' or 'agent:<name>', got {seen(error.instance)}"
            yield path, "is blank" if error.kind.pattern == "\\S" else shortened(kinds, 200)
        elif error.kind.name == "const":
            kinds = f"expected {seen(error.kind.expected_value)}, got {seen(error.instance)}"
            yield path, shortened(kinds, 200)
        else:
            yield path, shortened(error.message, 200)


def _refuse(problems: Iterator[tuple[Path, str]], document: Json) -> None:
    found = [placed(path, problem, document) for path, problem in problems]
    if found:
        raise PlanValidationError(found)


def placed(path: Path, problem: str, document: Json) -> PlanViolation:
    """Return the violation at a path of a wire document, with its step where it is in one."""
    if path[:1] != ("steps",) or len(path) < 2:
        return PlanViolation(None, field(path), problem)
    step = document
    for part in ("steps", path[1], "stepId"):
        try:
            step = step[part]
        except (TypeError, KeyError, IndexError):
            step = None
    named = isinstance(step, str) and step.strip() and not _SURROGATE.search(step)
    return PlanViolation(step if named else field(path[:2]), field(path[2:], "(step)"), problem)


def field(path: Sequence[str | int], whole: str = "(document)") -> str:
    """Spell a path into a document; ``whole`` is what an empty one stands for.

    Examples
    --------
    >>> field(("result", "rows", 0, "a b"))
    "result.rows[0]['a b']"
    """
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!a}]"
    return text or whole
