"""The contracts of whatever decides, and what it may ask.

A mind gets its request and a ``Kit``: what there is to work with, and no way to do any of it. The
lab is such a kit. A planner makes plans, a decider decides what to do with one that met trouble, a
reflector judges an execution, a responder writes what the user is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agentlab.base.documents import Json
from agentlab.base.values import Document
from agentlab.environments.base import Environment
from agentlab.environments.scenario import Goal, Scenario, tool_step as tool_step
from agentlab.lm.settings import NOBODY, Persona
from agentlab.plans.parsing import parse_plan
from agentlab.plans.task_plan import TaskPlan as TaskPlan, TaskStep
from agentlab.state.decisions import ReflectionResult, ReplanDecision, Trigger
from agentlab.state.events import ContextChangeEvent
from agentlab.state.records import Failure
from agentlab.state.state import State
from agentlab.tools.tool import Tool, ToolRegistry

INITIAL, REMAINING, FULL = "initial", "remaining", "full"

Offer = tuple[str, Tool]
"""An action type with a target of it, as a tool."""


class Kit(Protocol):
    """What a mind may ask of a lab."""

    @property
    def scenario(self) -> Scenario | None:
        """The task, where there is one."""

    @property
    def environment(self) -> Environment | None:
        """The functions of the simulated world, where there is one."""

    @property
    def tools(self) -> ToolRegistry:
        """Every tool by name."""

    @property
    def workers(self) -> int:
        """How many steps may be under way at once."""

    @property
    def decider(self) -> Decider | None:
        """Who decides in place of a rule, where there is a language model to ask."""

    @property
    def reflector(self) -> Reflector:
        """Who judges an execution."""

    def offers(self) -> list[Offer]:
        """Return everything that a step may be."""

    def problems(self, step: TaskStep) -> list[str]:
        """Return why a step could not be carried out; empty: it could."""


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
    attempt : int
        How often this plan was asked for before: replies that did not parse.
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
        What happened before the decision to replan, since the decision before it; and before that
        the constraints that were told in the run, which still hold.
    staying : tuple of TaskStep
        Pending steps that stay in the plan, beside ``done`` and ``under_way``.
    persona : Persona
        What the agent's configuration says to each model that works for it.
    notes : mapping
        The state's notes; what a planner wants kept there it returns in a ``Noted``.
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
    attempt: int = 0
    seed: int = 0
    taken: frozenset[str] = frozenset()
    replans_left: int = 0
    earlier: TaskPlan | None = None
    side_effects: tuple[str, ...] = ()
    reflection: ReflectionResult | None = None
    world: Document | None = None
    changes: tuple[ContextChangeEvent, ...] = ()
    staying: tuple[TaskStep, ...] = ()
    persona: Persona = NOBODY
    notes: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Noted:
    """A plan, with what its planner wants kept in the state's ``notes``.

    Parameters
    ----------
    plan : TaskPlan
    notes : mapping of str to JSON
        A note of the same name is replaced.
    """

    plan: TaskPlan
    notes: Mapping[str, Json]


@runtime_checkable
class Planner(Protocol):
    """Makes plans. Instances hold no state of a run."""

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan | Noted:
        """Return a plan for the request; on a replan, the new steps only.

        Raises
        ------
        PlanError
            No plan can be made.
        """


def checked_plan(reply: Json, request: PlanRequest, kit: Kit) -> TaskPlan:
    """Parse a reply into a plan and hold it against what the lab can carry out.

    Raises
    ------
    PlanParseError
        Lists every violation.
    """
    return parse_plan(
        reply,
        plan_id=f"plan-{request.number}",
        taken=request.taken,
        known=frozenset(request.results),
        under_way=frozenset(s.step_id for s in request.under_way),
        check=kit.problems,
    )


class Decider(Protocol):
    """Decides what to do with a plan that met trouble."""

    def decide(self, trigger: Trigger, state: State, kit: Kit) -> ReplanDecision | str:
        """Return the decision, or why there is none."""


class Reflector(Protocol):
    """Judges an execution."""

    def reflect(self, state: State, kit: Kit) -> ReflectionResult:
        """Return how it went, and whether another plan is worth making."""


class Responder(Protocol):
    """Writes the final response."""

    def respond(self, state: State, kit: Kit) -> str:
        """Return what the user is told."""
