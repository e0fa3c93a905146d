"""The action contract: one class for each kind of step.

A class states what a step of its kind takes and does, and carries it out in two halves: ``begin``
when the step starts and ``finish`` when its time has passed. Both are functions of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agentlab.bench import Bench
from agentlab.calls import ToolError
from agentlab.errors import suggest
from agentlab.plans.task_plan import TaskStep
from agentlab.state import State, UnderWay
from agentlab.tools.tool import Tool
from agentlab.values import Json


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step ended."""

    result: Json = None
    error: str | None = None
    interrupted: bool = False
    """True when it is not known whether the action took effect."""


class Action(ABC):
    """How one kind of step is carried out.

    Attributes
    ----------
    type : str
        The ``actionType`` that plans use.
    input_fields : dict
        Name of each parameter with what it means; empty: whatever the target's schema says.
    tools : str
        Which tools it may use.
    failure_policy : str
        What a failure does.
    side_effects : str
        What it may do outside the agent.
    result_form : str
        How its result is written.
    resumable : bool
        Whether a run killed in the middle of it can go on without repeating it.
    """

    type: str
    input_fields: dict[str, str] = {}
    tools: str = "none"
    failure_policy: str = "fails the step; the strategy decides about another attempt"
    side_effects: str = "none"
    result_form: str
    resumable: bool = True

    def check(self, step: TaskStep, bench: Bench) -> list[str]:
        """Return what is wrong with a step of this kind at planning time."""
        return []

    def offers(self, bench: Bench) -> list[Tool]:
        """Return what a planner may name with this type in this lab: targets with parameters."""
        return []

    def needs_approval(self, step: TaskStep, bench: Bench) -> bool:
        """Say whether a person must approve the step before it runs."""
        return False

    def display(self, step: TaskStep) -> str:
        """Return the step as one line for people."""
        return step.name or step.label

    @abstractmethod
    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start the step with its parameters resolved; return what is under way."""

    @abstractmethod
    def finish(self, state: State, bench: Bench, under_way: UnderWay) -> tuple[State, StepOutcome]:
        """Finish the step in the state of this moment."""


def unknown_parameters(step: TaskStep, known: Collection[str]) -> list[str]:
    """Say which parameters of a step are none of the known ones."""
    return [
        f"parameter {key!r} is none of {step.action_type}'s; {suggest(key, known)}"
        for key in step.parameters
        if key not in known
    ]


def outcome_of(result: Json, error: ToolError | None) -> StepOutcome:
    """Return the step outcome of a call."""
    if error is None:
        return StepOutcome(result=result)
    return StepOutcome(error=str(error), interrupted=error.code == "interrupted")
