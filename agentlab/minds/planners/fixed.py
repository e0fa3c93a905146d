"""``Fixed``: plans given beforehand, for demonstrations, tests and plans made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from agentlab.base.documents import Json
from agentlab.errors import PlanError
from agentlab.minds.base import Kit, PlanRequest, checked_plan
from agentlab.plans.task_plan import TaskPlan


class Fixed:
    """Return the given replies in order: the first plan, then one for each replan.

    Parameters
    ----------
    *replies : JSON object or list of steps
        In the reply form of a plan; a list is taken as its steps.
    """

    def __init__(self, *replies: Json) -> None:
        self.replies: Sequence[Json] = [
            {"steps": r} if isinstance(r, (list, tuple)) else r for r in replies
        ]

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Return the plan whose turn it is.

        Raises
        ------
        PlanError
            There is none left, or it cannot be carried out in this lab.
        """
        if request.number >= len(self.replies):
            raise PlanError(f"{len(self.replies)} plans were given and all have been used")
        return checked_plan(self.replies[request.number], request, kit)
