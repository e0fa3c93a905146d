"""``contract``: the planner of a lab that lets a model write a plan contract over the lab's tools.

A contract (see ``contract_graph``) has no parameters, so a second question, with a schema made of
the steps that were accepted, asks for the bindings; the two together are the plan.

The contract as it stands, in the wire form, and what each revision changed are kept in the state's
notes under ``contract``: a replan makes the next revision, in which the steps that stay keep their
ids and the new ones have those of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentlab.base.arguments import Positive, takes
from agentlab.base.documents import Json
from agentlab.base.schemas import check_schema, object_schema
from agentlab.base.strict_json import read_json
from agentlab.errors import (
    ConfigError,
    PlanError,
    PlanParseError,
    PlanValidationError,
    PlanViolation,
)
from agentlab.minds.base import Kit, Noted, Offer, PlanRequest, checked_plan
from agentlab.minds.planners.contract_graph import (
    ContractPlanner,
    ContractProgram,
    PlanMode,
    SpecRequest,
    asking,
    read_from,
)
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
from agentlab.plans.contract.bindings import Actions, plan_reply
from agentlab.plans.contract.codec import PlanCodec, parsed
from agentlab.plans.contract.spec import PlanCapability, PlanSpec, PlanStep, revision_diff
from agentlab.plans.contract.validator import PlanValidator
from agentlab.plans.task_plan import ActionType, TaskPlan

NOTE = "contract"
"""The name of the state's note."""

BOUND = object_schema(
    parameters={"type": "object", "additionalProperties": {"type": "object"}},
    answer={"type": ["string", "null"]},
)


class Contract(Prompted):
    """The planner of a lab: a contract over its tools, then bindings, each asked for once.

    Parameters
    ----------
    program : str, Path or ContractProgram, optional
        A program saved as JSON by dspy, or the program itself; default: as it ships.
    max_steps, max_depth : int
        Limits of the contract (see ``PlanValidator``).
    direct : str, optional
        The one capability that carries the task out, ``tool:<name>`` or ``agent:<name>``: the
        contract has one step for it, and no model is asked for the graph. Only where it has
        parameters that must be given, and they are not given here, is a model asked for these.
    parameters : dict, optional
        Of the one step of ``direct``; values may be ``${...}`` references on a replan.

    Raises
    ------
    ConfigError
        A limit is no positive number, or parameters are given without ``direct``.
    """

    name = "contract"
    program_type = ContractProgram

    @takes(max_steps=Positive, max_depth=Positive, direct=str | None)
    def __init__(
        self, program: str | Path | ContractProgram | None = None, max_steps: int = 64,
        max_depth: int = 64, direct: str | None = None, parameters: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        only = {"direct": direct, "parameters": parameters}
        super().__init__(
            program, max_steps=max_steps, max_depth=max_depth,
            **{name: value for name, value in only.items() if value is not None},
        )  # fmt: skip
        if parameters is not None and direct is None:
            raise ConfigError("parameters are those of the one step of direct='tool:<name>'")
        PlanValidator((), max_steps, max_depth, min_steps=0)  # so that bad limits are told early
        self._limits = {"max_steps": max_steps, "max_depth": max_depth}
        self.direct, self.parameters = direct, parameters

    @property
    def needs_model(self) -> bool:  # type: ignore[override]
        """Whether a model is asked in any case."""
        return self.direct is None

    def plan(self, request: PlanRequest, kit: Kit) -> Noted:
        """Ask the model for a contract and for its bindings; on a replan, for new steps only.

        Raises
        ------
        PlanParseError
            A reply breaks the contract, or is no plan that this lab can carry out.
        PlanError
            The task is blank, a tool's schema is not self-contained, or ``direct`` names no
            capability of this lab.
        LMError
            No reply came.
        """
        if not request.user_input.strip():
            raise PlanError("the task is blank: a contract needs an objective")
        offers = kit.offers()
        actions = {_target(offer): (offer[0], offer[1].name) for offer in offers}
        asked = SpecRequest(
            objective=request.user_input, revision=request.number + 1, direct_target=self.direct,
            mode=PlanMode.DECOMPOSE if self.direct is None else PlanMode.DIRECT,
        )  # fmt: skip
        situation = f"{situation_text(request)}\nKnown of the world: {known_text(request)}"
        try:
            validator = PlanValidator(map(_capability, offers), min_steps=0, **self._limits)
            planner = ContractPlanner(validator, program=self.program)
            spec = planner.plan(asked, situation, request.persona)
            reply, text = self._bound(spec, situation, actions, request)
        except PlanValidationError as e:
            raise PlanParseError(list(map(str, e.violations)), reply=e.reply) from e
        except ConfigError as e:
            raise PlanError(str(e)) from e
        try:
            made = checked_plan(reply, request, kit)
        except PlanParseError as e:
            raise PlanParseError(e.violations, reply=text) from e
        return Noted(made, {NOTE: _noted(spec, made, request)})

    def _bound(
        self, spec: PlanSpec, situation: str, actions: Actions, request: PlanRequest
    ) -> tuple[dict[str, Any], str | None]:
        """Return the plan's reply, and the text of the model where one was asked for bindings."""
        if not spec.steps:
            return plan_reply(spec, {}), None
        if self.direct is not None:
            [step] = spec.steps
            known = self._given(step, request)
            if known is not None:
                answer = f"${{{step.step_id}}}"
                return plan_reply(spec, {step.step_id: known}, answer, actions), None
        with asking(None):
            text = self.program.bindings(
                schema=bindings_schema(spec.steps),
                persona=request.persona,
                task=spec.objective,
                steps="\n".join(map(_step_line, spec.steps)),
                situation=situation,
            ).bindings
        with read_from(text):
            document = parsed(text)
            if problem := check_schema(BOUND, document, "the reply"):
                raise PlanValidationError([PlanViolation(None, "bindings", problem)])
            return plan_reply(spec, document["parameters"], document["answer"], actions), text

    def _given(self, step: PlanStep, request: PlanRequest) -> dict[str, Any] | None:
        """Return the parameters of the one step, as far as nobody need be asked for them."""
        if self.parameters is not None:
            return self.parameters
        if step.execution_target.startswith("agent:"):
            return {"input": request.user_input}
        return {} if not step.input_schema.get("required") else None


def _noted(spec: PlanSpec, made: TaskPlan, request: PlanRequest) -> dict[str, Json]:
    """Return the contract that stands once the plan is carried out, and what revisions changed."""
    before = request.notes.get(NOTE) or {}
    try:
        old = PlanCodec().read(before["spec"])
        revisions = list(before["revisions"])
    except (PlanValidationError, LookupError, TypeError):  # the first, or what somebody wrote there
        old, revisions = None, []
    stay = {s.step_id for s in (*request.done, *request.under_way, *request.staying)}
    kept = [s for s in old.steps if s.step_id in stay] if old is not None else []
    ids = {s.name: s.step_id for s in made.steps}  # a plan's ids are unique over the run
    new = [
        s.replace(step_id=ids[s.step_id], dependencies=tuple(ids[d] for d in s.dependencies))
        for s in spec.steps
    ]
    whole = spec.replace(steps=(*kept, *new))
    changed = revision_diff(old or spec.replace(steps=()), whole)
    diff = {name: list(steps) for name, steps in asdict(changed).items()}
    written = read_json(PlanCodec().encode(whole))
    return {"spec": written, "revisions": [*revisions, {"revision": whole.revision, **diff}]}


def bindings_schema(steps: Iterable[PlanStep]) -> dict[str, Any]:
    """Return the JSON Schema of the bindings of these steps, and of the answer."""
    shared = Definitions()
    parameters = {s.step_id: arguments_schema(s.input_schema, shared) for s in steps}
    schema = object_schema(
        parameters=object_schema(**parameters), answer={"anyOf": [TEXT, {"type": "null"}]}
    )
    return complete(schema, shared)


def _target(offer: Offer) -> str:
    kind, tool = offer
    return f"{'agent' if kind == ActionType.CALL_SUB_AGENT else 'tool'}:{tool.name or kind}"


def _capability(offer: Offer) -> PlanCapability:
    tool = offer[1]
    # Tools are called by the rules of Draft 2020-12, whatever dialect their server names.
    schema, returns = (
        {k: v for k, v in s.items() if k != "$schema"} for s in (tool.parameters, tool.returns)
    )
    return PlanCapability(
        execution_target=_target(offer), description=tool.description, input_schema=schema,
        output_schema=returns,
    )  # fmt: skip


def _step_line(step: PlanStep) -> str:
    after = f" (after {', '.join(step.dependencies)})" if step.dependencies else ""
    return tool_line(
        f"{step.step_id}: {step.execution_target}", step.input_schema, step.output_schema,
        step.objective + after,
    )  # fmt: skip
