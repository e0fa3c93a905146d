"""What the runs of a study would start, ask, import and open (see ``agentlab.runs.trust``)."""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.environments.scenario import Scenario
from agentlab.runs.trust import ANSWERS, FOR_PEOPLE, Use, in_order, model_uses, name_uses
from agentlab.study.grid import Arm

NAMED = ("planner", "strategy", "workflow", "reflector", "responder")


def study_uses(arms: Iterable[Arm], scenarios: Iterable[Scenario]) -> tuple[Use, ...]:
    """Return what arms on scenarios would use; objects in an arm are the user's own."""
    uses: list[Use] = []
    for arm in arms:
        for axis in NAMED:
            uses += name_uses(axis, getattr(arm, axis))
        uses += model_uses(arm.lm)
        if arm.review == "approve":
            uses.append(FOR_PEOPLE)
    for world in dict.fromkeys(s.environment for s in scenarios):
        uses += name_uses("environment", world)
    external = [use for use in uses if use.kind != ANSWERS]
    return in_order(uses if external else external)
