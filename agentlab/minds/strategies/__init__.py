"""Replan strategies: trigger × scope × budget × what happens when it is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.base.face import face

if TYPE_CHECKING:
    from agentlab.minds.base import Decider as Decider
    from agentlab.minds.strategies.base import (
        Budget as Budget,
        Scope as Scope,
        Strategy as Strategy,
        TriggerRule as TriggerRule,
    )
    from agentlab.minds.strategies.presets import (
        ask_on_error as ask_on_error,
        event_driven as event_driven,
        every as every,
        every_step as every_step,
        never as never,
        on_error as on_error,
        oracle as oracle,
        reflect_on_total_failure as reflect_on_total_failure,
        retry as retry,
        retry_then_replan as retry_then_replan,
    )
    from agentlab.state.decisions import (
        ReplanAction as ReplanAction,
        ReplanDecision as ReplanDecision,
        Trigger as Trigger,
        TriggerPoint as TriggerPoint,
    )
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "minds.base": "Decider",
            "minds.strategies.base": "Budget Scope Strategy TriggerRule",
            "minds.strategies.presets": "ask_on_error event_driven every every_step never "
            "on_error oracle reflect_on_total_failure retry retry_then_replan",
            "state.decisions": "ReplanAction ReplanDecision Trigger TriggerPoint",
        },
    )
