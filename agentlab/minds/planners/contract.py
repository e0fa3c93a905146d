"""``contract``: the planner of a lab that lets a model write a plan contract over the lab's tools.

A contract (see ``contract_graph``) has no parameters, so a second question, with a schema made of
the steps that were accepted, asks for the bindings; the two together are the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentlab.base.schemas import check_schema, object_schema
from agentlab.errors import (
    ConfigError,
    PlanError,
    PlanParseError,
    PlanValidationError,
    PlanViolation,
)
from agentlab.minds.base import Kit, Offer, PlanRequest, checked_plan
from agentlab.minds.planners.contract_graph import (
    ContractPlanner,
    ContractProgram,
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
from agentlab.plans.contract.codec import parsed
from agentlab.plans.contract.spec import PlanCapability, PlanSpec, PlanStep
from agentlab.plans.contract.validator import PlanValidator
from agentlab.plans.task_plan import ActionType, TaskPlan

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
    """

    name = "contract"
    program_type = ContractProgram

    def __init__(
        self, program: str | Path | ContractProgram | None = None, max_steps: int = 64,
        max_depth: int = 64,
    ) -> None:  # fmt: skip
        super().__init__(program, max_steps=max_steps, max_depth=max_depth)
        PlanValidator((), max_steps, max_depth, min_steps=0)  # so that bad limits are told early

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Ask the model for a contract and for its bindings; on a replan, for new steps only.

        Raises
        ------
        PlanParseError
            A reply breaks the contract, or is no plan that this lab can carry out.
        PlanError
            The task is blank, or a tool's schema is not self-contained.
        LMError
            No reply came.
        """
        if not request.user_input.strip():
            raise PlanError("the task is blank: a contract needs an objective")
        offers = kit.offers()
        actions = {_target(offer): (offer[0], offer[1].name) for offer in offers}
        asked = SpecRequest(objective=request.user_input, revision=request.number + 1)
        situation = f"{situation_text(request)}\nKnown of the world: {known_text(request)}"
        try:
            validator = PlanValidator(map(_capability, offers), min_steps=0, **self.options)
        except ConfigError as e:
            raise PlanError(str(e)) from e
        try:
            spec = ContractPlanner(validator, program=self.program).plan(asked, situation)
            reply, text = self._bound(spec, situation, actions)
        except PlanValidationError as e:
            raise PlanParseError(list(map(str, e.violations)), reply=e.reply) from e
        try:
            return checked_plan(reply, request, kit)
        except PlanParseError as e:
            raise PlanParseError(e.violations, reply=text) from e

    def _bound(
        self, spec: PlanSpec, situation: str, actions: Actions
    ) -> tuple[dict[str, Any], str | None]:
        """Ask for the parameters of the steps and the answer; a plan without steps needs none."""
        if not spec.steps:
            return plan_reply(spec, {}), None
        with asking(None):
            text = self.program.bindings(
                schema=bindings_schema(spec.steps),
                task=spec.objective,
                steps="\n".join(map(_step_line, spec.steps)),
                situation=situation,
            ).bindings
        with read_from(text):
            document = parsed(text)
            if problem := check_schema(BOUND, document, "the reply"):
                raise PlanValidationError([PlanViolation(None, "bindings", problem)])
            return plan_reply(spec, document["parameters"], document["answer"], actions), text


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
