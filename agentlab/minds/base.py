"""The planner contract: a request in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from agentlab.base.registry import Registry
from agentlab.base.values import Document, Json
from agentlab.environments.scenario import Goal
from agentlab.errors import suggest
from agentlab.lab.bench import Bench
from agentlab.plans.parsing import parse_plan
from agentlab.plans.task_plan import TaskPlan as TaskPlan
from agentlab.plans.task_plan import TaskStep
from agentlab.state.decisions import ReflectionResult
from agentlab.state.events import ContextChangeEvent
from agentlab.state.state import Failure, State

INITIAL, REMAINING, FULL = "initial", "remaining", "full"


@dataclass(frozen=True)
class PlanRequest:
    """What a planner is asked.

    Parameters
    ----------
    user_input : str
        The task in the user's words.
    goal : Goal
        What must hold in the end.
    belief : dict
        What the agent knows of the world.
    done : tuple of TaskStep
        Completed steps whose results the new plan may use.
    under_way : tuple of TaskStep
        Steps that are being carried out and stay in the plan, parameters resolved: the new plan
        must not repeat them, and may depend on them and use their results.
    results : mapping
        Step id to completed result, over all plans.
    failures : tuple of Failure
        Which calls failed how often.
    hints : tuple of str
        What the decider wants to be considered.
    scope : {"initial", "remaining", "full"}
        A first plan, a plan for what remains, or a new plan from where the world stands.
    number : int
        How many plans the run has had before.
    seed : int
    taken : frozenset of str
        Step ids that the run has used.
    replans_left : int
    earlier : TaskPlan or None
        The plan before, on a replan.
    side_effects : tuple of str
        What stands in the world by the agent's doing, as it knows.
    reflection : ReflectionResult or None
        How the execution of the earlier plan was judged.
    world : dict or None
        The truth; only for planners that are ``privileged``.
    changes : tuple of ContextChangeEvent
        What happened before the decision to replan, since the decision before it.
    """

    user_input: str
    goal: Goal
    belief: Document
    done: tuple[TaskStep, ...] = ()
    under_way: tuple[TaskStep, ...] = ()
    results: Mapping[str, Json] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    hints: tuple[str, ...] = ()
    scope: str = INITIAL
    number: int = 0
    seed: int = 0
    taken: frozenset[str] = frozenset()
    replans_left: int = 0
    earlier: TaskPlan | None = None
    side_effects: tuple[str, ...] = ()
    reflection: ReflectionResult | None = None
    world: Document | None = None
    changes: tuple[ContextChangeEvent, ...] = ()


@runtime_checkable
class Planner(Protocol):
    """Makes plans. Instances hold no state of a run."""

    def plan(self, request: PlanRequest, bench: Bench) -> TaskPlan:
        """Return a plan for the request; on a replan, the new steps only.

        Raises
        ------
        PlanError
            No plan can be made.
        """


PLANNERS: Registry[Planner] = Registry("planner")


def checked_plan(reply: Json, request: PlanRequest, bench: Bench) -> TaskPlan:
    """Parse a reply into a plan and hold it against what the lab can carry out.

    Raises
    ------
    PlanParseError
        Lists every violation.
    """

    def check(step: TaskStep) -> list[str]:
        action = bench.actions.get(step.action_type)
        if action is None:
            near = suggest(step.action_type, list(bench.actions))
            return [f"unknown action type {step.action_type!r}; {near}"]
        return action.check(step, bench)

    return parse_plan(
        reply,
        plan_id=f"plan-{request.number}",
        taken=request.taken,
        known=frozenset(request.results),
        under_way=frozenset(s.step_id for s in request.under_way),
        check=check,
    )


def tool_step(
    step_id: str, tool: str, arguments: dict[str, Any], dependencies: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the reply form of a step that calls a tool."""
    return {
        "stepId": step_id,
        "name": step_id,
        "actionType": "call_tool",
        "targetResource": tool,
        "parameters": arguments,
        "dependencies": list(dependencies),
    }


class Reflector(Protocol):
    """Judges an execution."""

    def reflect(self, state: State, bench: Bench) -> ReflectionResult:
        """Return how it went, and whether another plan is worth making."""


class Responder(Protocol):
    """Writes the final response."""

    def respond(self, state: State, bench: Bench) -> str:
        """Return what the user is told."""
