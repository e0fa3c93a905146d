"""``ContractPlanner``: a language model makes the graph of a contract; nothing of it is executed.

The application says which mode: DIRECT makes one step for a capability that it names and asks
nobody; DECOMPOSE asks the model, once. The model is asked for what only it can say, the graph;
version, revision, objective and the capabilities' schemas are the application's and are put in. A
model that writes the whole document instead is read as strictly as a file: what it claims is
checked, never overwritten.

The program has a second question, for the parameters of the steps, which ``contract`` asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from agentlab.base.arrived import instance
from agentlab.base.schemas import object_schema
from agentlab.base.values import Value
from agentlab.errors import ConfigError, PlanValidationError, PlanViolation, seen, suggest
from agentlab.lm.adapters import DocumentAdapter, signature, unfenced
from agentlab.lm.door import lm_errors
from agentlab.lm.model import Model
from agentlab.lm.serde import load_dspy
from agentlab.lm.settings import NOBODY, Persona
from agentlab.minds.planners.prompted import TEXT, tool_line
from agentlab.plans.contract.codec import PlanCodec, parsed
from agentlab.plans.contract.spec import SCHEMA_VERSION, PlanCapability, PlanSpec, PlanStepStatus
from agentlab.plans.contract.validator import PlanValidator

dspy: Any = load_dspy()

MAX_STEPS = 32
"""Bound on the steps that a model is asked for, where the validator would take more."""
MAX_DEPENDENCIES = 8
ID = {"type": "string", "maxLength": 40}


class PlanMode(StrEnum):
    """Who makes the graph: nobody needs to, or the model. The application chooses."""

    DIRECT = "DIRECT"
    DECOMPOSE = "DECOMPOSE"


class SpecRequest(Value):
    """What a contract is asked for."""

    objective: str
    revision: int = 1
    """Positive; the application counts it up."""
    mode: PlanMode = PlanMode.DECOMPOSE
    direct_target: str | None = None
    """The capability of DIRECT (``tool:<name>`` or ``agent:<name>``); None in DECOMPOSE."""


class _ReplyAdapter(DocumentAdapter):
    """Asks for one JSON document and hands its text over; refuses what is not one reply of text."""

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        [name] = signature.output_fields
        return {name: unfenced(completion)}

    def _call_postprocess(
        self, processed_signature: Any, original_signature: Any, outputs: Any, *rest: Any
    ) -> Any:
        if problem := _no_reply(outputs):
            raise PlanValidationError([PlanViolation(None, "(reply)", problem)])
        return super()._call_postprocess(processed_signature, original_signature, outputs, *rest)


def _no_reply(outputs: list[Any]) -> str | None:
    if len(outputs) != 1:
        return f"expected one generation, got {len(outputs)}"
    [output] = outputs
    said = output if isinstance(output, dict) else {"text": output}
    if said.get("tool_calls"):
        return "expected a plan, got a tool call: a planner executes nothing"
    return None if (said.get("text") or "").strip() else "is empty"


class ContractProgram(dspy.Module):  # type: ignore[misc]
    """The dspy program: one predictor writes graphs, one binds steps to parameters.

    Parameters
    ----------
    instructions, binding : str, optional
        What the model is told for each.
    """

    def __init__(self, instructions: str | None = None, binding: str | None = None) -> None:
        super().__init__()
        graph = signature("WriteContract", instructions or INSTRUCTIONS, INPUTS, "plan")
        bound = signature("BindSteps", binding or BINDING, BINDING_INPUTS, "bindings")
        self.write, self.bind = dspy.Predict(graph), dspy.Predict(bound)

    def forward(self, schema: dict[str, Any], persona: Persona = NOBODY, **inputs: str) -> Any:
        """Return a prediction with ``plan``, the text of a JSON document."""
        with dspy.context(adapter=_ReplyAdapter(schema, "plan", persona)):
            return self.write(**inputs)

    def bindings(self, schema: dict[str, Any], persona: Persona = NOBODY, **inputs: str) -> Any:
        """Return a prediction with ``bindings``, the text of a JSON document."""
        with dspy.context(adapter=_ReplyAdapter(schema, "bindings", persona)):
            return self.bind(**inputs)


class ContractPlanner:
    """Returns checked plan data and executes nothing.

    Parameters
    ----------
    validator : PlanValidator
        Holds the capabilities that plans may use, and the limits.
    model : Model, optional
        Who is asked in DECOMPOSE; None: the LM of ``dspy.context``.
    program : ContractProgram, optional
        Default: as it ships.
    """

    def __init__(
        self, validator: PlanValidator, model: Model | None = None,
        program: ContractProgram | None = None,
    ) -> None:  # fmt: skip
        self.validator, self.model = validator, model
        given = ContractProgram() if program is None else program
        self.program = instance("program", given, ContractProgram, "a ContractProgram").deepcopy()
        self.program.set_lm(None)  # one of its own would be asked in its place

    def plan(
        self, request: SpecRequest, situation: str = "Nothing has been done yet.",
        persona: Persona = NOBODY,
    ) -> PlanSpec:  # fmt: skip
        """Return a validated spec whose steps are all pending.

        A model is asked once at most. What its provider raises passes through.

        Parameters
        ----------
        request : SpecRequest
        situation : str
            What else the model is told in DECOMPOSE.
        persona : Persona
            Whom it is asked for.

        Raises
        ------
        ConfigError
            The request contradicts itself or names no capability, there is no model to ask, or the
            model has tools attached.
        PlanValidationError
            Lists every violation; nothing of the reply is used.
        LMError
            No reply came.
        """
        if problem := self._problem(request):
            raise ConfigError(f"{request.mode} request: {problem}")
        if request.mode is PlanMode.DIRECT:
            spec = self._spec(request, [{"stepId": "step-1", "objective": request.objective,
                "dependencies": [], "executionTarget": request.direct_target,
                "completionCriteria": DIRECT_CRITERIA}])  # fmt: skip
            return self.validator.validate_generated(PlanCodec().read(spec))
        with asking(self.model):
            text = self.program(
                schema=graph_schema(self.validator),
                persona=persona,
                objective=request.objective,
                capabilities="\n".join(map(_told, self.validator.capabilities.values())),
                situation=situation,
            ).plan
        with read_from(text):
            return self.validator.validate_generated(self._read(text, request))

    def _problem(self, request: SpecRequest) -> str | None:
        target, known = request.direct_target, self.validator.capabilities
        if request.revision < 1:
            return f"expected a revision of at least 1, got {request.revision}"
        if not request.objective.strip():
            return "the objective is blank"
        if request.mode is PlanMode.DECOMPOSE:
            return f"expected no direct target, got {seen(target)}" if target is not None else None
        if target in known:
            return None
        near = suggest(target or "", known)
        return f"expected a registered direct target, got {seen(target)}; {near}"

    def _read(self, text: str, request: SpecRequest) -> PlanSpec:
        document = parsed(text)
        if isinstance(document, dict) and not {"schemaVersion", "revision"} & document.keys():
            steps = document.get("steps")
            if isinstance(steps, list):
                whole = self._spec(request, steps)
                document = {**whole, **document, "steps": whole["steps"]}
        spec = PlanCodec().read(document)
        wrong = [
            PlanViolation(
                None, name, f"is the application's: expected {seen(mine)}, got {seen(its)}"
            )
            for name, mine, its in (
                ("revision", request.revision, spec.revision),
                ("objective", request.objective, spec.objective),
            )
            if mine != its
        ]
        if wrong:
            raise PlanValidationError(wrong)
        return spec

    def _spec(self, request: SpecRequest, graph: list[Any]) -> dict[str, Any]:
        """Return a wire document of a graph, with what is not the model's to say put in."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "revision": request.revision,
            "objective": request.objective,
            "steps": [self._filled(step) if isinstance(step, dict) else step for step in graph],
        }

    def _filled(self, step: dict[str, Any]) -> dict[str, Any]:
        target = step.get("executionTarget")
        known = self.validator.capabilities.get(target) if isinstance(target, str) else None
        schemas = (known.input_schema, known.output_schema) if known else ({}, {})
        blank = {"status": PlanStepStatus.PENDING.value, "result": None, "error": None}
        return {"inputSchema": schemas[0], "outputSchema": schemas[1], **blank, **step}


@contextmanager
def read_from(text: str) -> Iterator[None]:
    """Let violations tell in which reply they were found."""
    try:
        yield
    except PlanValidationError as e:
        raise PlanValidationError(e.violations, reply=text) from e


@contextmanager
def asking(model: Model | None) -> Iterator[None]:
    """Make the model what dspy asks meanwhile, unless it could do more than reply."""
    lm = dspy.settings.lm if model is None else model.lm()
    if lm is None:
        raise ConfigError(
            "DECOMPOSE asks a language model: ContractPlanner(validator, connect('openai/...')), "
            "or dspy.context(lm=...) around it"
        )
    given = getattr(lm, "kwargs", None) or {}
    attached = [k for k in ("tools", "functions", "tool_choice") if given.get(k)]
    if attached:
        raise ConfigError(f"expected a model without tools, got one with {', '.join(attached)}")
    own = {} if model is None else {"disable_history": True, "callbacks": [], "trace": None}
    with lm_errors(), dspy.context(lm=lm, **own):
        yield


def graph_schema(validator: PlanValidator) -> dict[str, Any]:
    """Return the JSON Schema of the graph that a model is asked for."""
    targets = list(validator.capabilities)
    step = object_schema(
        stepId=ID, objective=TEXT, executionTarget={"enum": targets},
        dependencies={"type": "array", "maxItems": MAX_DEPENDENCIES, "items": ID},
        completionCriteria=TEXT,
    )  # fmt: skip
    most = max(validator.min_steps, min(MAX_STEPS, validator.max_steps)) if targets else 0
    steps = {"type": "array", "maxItems": most, "items": step if targets else {}}
    if validator.min_steps:
        steps["minItems"] = validator.min_steps
    return object_schema(steps=steps)


def _told(capability: PlanCapability) -> str:
    return tool_line(
        capability.execution_target, capability.input_schema, capability.output_schema,
        capability.description,
    )  # fmt: skip


DIRECT_CRITERIA = "The objective is met and the output is valid against the output schema."

SITUATION = (
    "what has been done so far, what failed, what to mind, and what is known of the world, which "
    "may be out of date or incomplete"
)

INPUTS = {
    "objective": "what the user wants",
    "capabilities": "target(input) -> output: what it does",
    "situation": SITUATION,
}

INSTRUCTIONS = """\
Break the objective into steps that each use one capability. You only plan: nothing is executed.

- `stepId` is a new short name made of letters, digits and underscores.
- `executionTarget` is one of the capabilities, spelled exactly as it is listed.
- `dependencies` lists the stepIds that must be completed before the step, above all those whose
  output it needs. Steps without a path between them may run at the same time.
- `objective` says what the step is for, with the names and numbers that matter;
  `completionCriteria` says when it is done. A sentence each.
- Use as few steps as are needed, never a step twice. Where nothing needs to be done, `steps` is
  empty.

For example, for "Fetch the newest invoice and pay it", with tool:find_invoices and tool:pay:

{"steps": [
 {"stepId": "find", "objective": "List the invoices.", "executionTarget": "tool:find_invoices",
  "dependencies": [], "completionCriteria": "The newest invoice is known."},
 {"stepId": "pay", "objective": "Pay the newest invoice.", "executionTarget": "tool:pay",
  "dependencies": ["find"], "completionCriteria": "There is a receipt."}]}
"""

BINDING_INPUTS = {
    "task": "what the user wants",
    "steps": "stepId: target(parameters) -> output: what the step is for",
    "situation": SITUATION,
}

BINDING = """\
A plan was made of steps; give each step its parameters. Nothing is executed.

- `parameters` maps every stepId to the parameters of that step; a question mark marks what may be
  left out.
- A value that comes from an earlier step's output is the text ${stepId.path}, where path is a
  JMESPath into that output, for example ${find.invoices[-1].id} or
  ${search.flights[?price<`100`] | [0].id}. Ids and tokens that a step hands out are always taken
  this way, never invented, even where they are known already.
- The word before the first dot is a stepId of these steps or of a step that is done. Everything
  else is copied as it is: "Rome", never ${known.city}.
- `answer` is null, or the text or reference that answers the user's question.

For example, for "Pay the newest invoice of Acme" and the steps
find: tool:find_invoices(customer: string) -> {invoices: [{id: string}]} and
pay: tool:pay(invoice_id: string) -> {receipt: string}:

{"parameters": {"find": {"customer": "Acme"}, "pay": {"invoice_id": "${find.invoices[-1].id}"}},
 "answer": "${pay.receipt}"}
"""
