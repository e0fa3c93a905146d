"""Action types: how each kind of step is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.base.face import face

if TYPE_CHECKING:
    from agentlab.lab.bench import (
        Action as Action,
        Bench as Bench,
        StepOutcome as StepOutcome,
        outcome_of as outcome_of,
    )
    from agentlab.state.records import UnderWay as UnderWay
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {"lab.bench": "Action Bench StepOutcome outcome_of", "state.records": "UnderWay"},
    )
