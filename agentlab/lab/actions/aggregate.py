"""``aggregate``: a summary of all results so far."""

from __future__ import annotations

from typing import Any

from agentlab.lab.bench import Action, Bench, StepOutcome
from agentlab.plans.task_plan import ActionType, TaskStep
from agentlab.state.records import UnderWay
from agentlab.state.state import State


class Aggregate(Action):
    """Summarise every attempt so far: name, status, result or error."""

    type = ActionType.AGGREGATE.value
    result_form = "{'summary': text, 'results': [{name, status, result | error}, ...]}"

    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start; takes no simulated time."""
        return state, UnderWay(
            step_id=step.step_id, action_type=self.type, attempt=attempt,
            submission=state.submissions, started=state.now, finishes=state.now,
        )  # fmt: skip

    def finish(self, state: State, bench: Bench, under_way: UnderWay) -> tuple[State, StepOutcome]:
        """Summarise the results of this moment."""
        rows: list[dict[str, Any]] = []
        for r in state.task_results:
            told = {"result": r.result} if r.error is None else {"error": r.error}
            rows.append({"name": r.name or r.step_id, "status": r.status.value, **told})
        lines = [f"{row['name']}: {row['status']}" for row in rows]
        return state, StepOutcome(result={"summary": "; ".join(lines), "results": rows})
