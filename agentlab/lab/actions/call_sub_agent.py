"""``call_sub_agent``: let another configured agent do it, in a run of its own.

That run is the same fold of nodes over states, inside this step: its spans stand under the step's
span, its calls are journalled under the step's address, and it is replayed and resumed with the run
around it. What it costs is charged here: calls, tokens, simulated time.
"""

from __future__ import annotations

from typing import Any

from agentlab.base.documents import canonical
from agentlab.base.registry import registry
from agentlab.base.schemas import object_schema
from agentlab.errors import seen, suggest
from agentlab.lab.bench import Action, Bench, StepOutcome, outcome_of, unknown_parameters
from agentlab.lab.faults import advance
from agentlab.minds.strategies.repeats import may_stand
from agentlab.plans.task_plan import ActionType, TaskStep
from agentlab.state.records import UnderWay
from agentlab.state.state import Outcome, State
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Tool
from agentlab.trace.journal import Address

WORKFLOW = "autonomous"
SHOWN = 500
"""Characters of a response that failed, in the error of the step."""


class CallSubAgent(Action):
    """Run the agent named by ``targetResource`` on an input of its own."""

    type = ActionType.CALL_SUB_AGENT.value
    input_fields = {"input": "what the sub-agent is asked; default: the user's input"}
    tools = "the sub-agent's own"
    side_effects = "those of the sub-agent's tools"
    failure_policy = "fails the step when the sub-agent had an error, or its plan did not complete"
    result_form = "{'response': text, 'answer': value of its plan's answer, or null}"

    def check(self, step: TaskStep, bench: Bench) -> list[str]:
        """Refuse agents that are no sub-agents, a cycle, and what is nested too deep."""
        known = [a.id for a in bench.agent().sub_agents]
        name = step.target_resource
        problems = unknown_parameters(step, self.input_fields)
        if name not in known:
            return [
                f"targetResource: unknown sub-agent {seen(name)}; {suggest(name, known)}",
                *problems,
            ]
        barred = _barred(name, bench)
        return [barred, *problems] if barred else problems

    def offers(self, bench: Bench) -> list[Tool]:
        """Return the sub-agents that may be called from here."""
        parameters = object_schema(input={"type": "string", "maxLength": 2000})
        returns = object_schema(response={"type": "string"}, answer={})
        return [
            Tool(a.id, a.description or a.name, parameters, returns)
            for a in bench.agent().sub_agents
            if _barred(a.id, bench) is None
        ]

    def begin(
        self, state: State, bench: Bench, step: TaskStep, parameters: dict[str, Any], attempt: int
    ) -> tuple[State, UnderWay]:
        """Start, or refuse; how long it takes is known when it was done."""
        problems = self.check(step, bench)  # an edit may have put it in
        refused = ToolError(code="refused", message="; ".join(problems), permanent=True)
        return state, UnderWay(
            step_id=step.step_id, action_type=self.type, attempt=attempt,
            submission=state.submissions, started=state.now, finishes=state.now,
            tool=step.target_resource, arguments=parameters,
            refused=refused.to_json() if problems else None,
        )  # fmt: skip

    def finish(self, state: State, bench: Bench, under_way: UnderWay) -> tuple[State, StepOutcome]:
        """Run the sub-agent to its end, and charge what it took."""
        if under_way.refused is not None:
            return state, outcome_of(None, ToolError.model_validate(under_way.refused))
        name, asked = under_way.tool, under_way.arguments.get("input", state.user_input)
        text = asked if isinstance(asked, str) else canonical(asked)  # a whole reference
        address = Address(state.visit, under_way.step_id, under_way.attempt)
        lab = bench.sub_lab(name, state, address)
        bench.emit("on_thinking_content", "task_execution", f"asking sub-agent {name}")
        with bench.recorder.span(
            "run", name, visit=state.visit, step_id=under_way.step_id, attempt=under_way.attempt,
            input=text, now=state.now,
        ) as span:  # fmt: skip
            try:
                workflow = registry("workflow").build(WORKFLOW)
                last = workflow(lab.initial_state(text, **_carried(state)), lab)
            finally:
                lab.executor.rest()
            span.output = {"final_response": last.final_response, "answer": last.answer}
            span.sim_end, span.error = last.now, last.error
        return _charged(state, last, under_way.step_id), _outcome(name, last, lab)


def _barred(name: str, bench: Bench) -> str | None:
    """Return why an agent may not be called from here: a cycle, or the depth."""
    chain = (*bench.ancestors, bench.agent().id, name)
    told = " → ".join(chain)
    if name in chain[:-1]:
        return f"agent {seen(name)} would be its own ancestor: {told}"
    if bench.strategy.budget.depth < 1:
        return f"sub-agents are nested too deep (at most {len(chain) - 2}): {told}"
    return None


def _carried(state: State) -> dict[str, Any]:
    """Return what the sub-agent's run takes on: time, faults, and what draws are keyed by."""
    return {
        "user_id": state.user_id, "session_id": state.session_id, "seed": state.seed,
        "scenario_id": state.scenario_id, "now": state.now,
        "fault_plan": state.fault_plan.replace(events=()),  # they are about the outer world
        "occurrences": state.occurrences, "standing": state.standing,
        "lm_requests": state.lm_requests, "lm_prompts": state.lm_prompts,
    }  # fmt: skip


def _charged(state: State, last: State, step_id: str) -> State:
    struck = [d.replace(step_id=f"{step_id}/{d.step_id or ''}".rstrip("/")) for d in last.delivered]
    state = state.replace(
        occurrences=last.occurrences, standing=last.standing, lm_requests=last.lm_requests,
        lm_prompts=last.lm_prompts, delivered=state.delivered.extend(struck),
        tool_calls=state.tool_calls + last.tool_calls, lm_calls=state.lm_calls + last.lm_calls,
        lm_tokens=state.lm_tokens + last.lm_tokens,
        parse_failures=state.parse_failures + last.parse_failures,
    )  # fmt: skip
    return advance(state, last.now)


def _outcome(name: str, last: State, lab: Bench) -> StepOutcome:
    """Return what it came to: unknown, where that is so of a call that it may not repeat."""
    unknown = any(may_stand(last, lab, r.step_id) for r in last.task_results)
    response = last.final_response or ""
    if last.error is not None:
        return StepOutcome(error=f"sub-agent {seen(name)}: {last.error}", interrupted=unknown)
    if last.ended is not Outcome.COMPLETED:
        reasons = [r.error for r in last.task_results if r.error is not None]
        why = reasons[-1] if reasons else "nothing was carried out"
        said = f"; it said: {response[:SHOWN]}"
        text = f"sub-agent {seen(name)}: its plan {last.ended}: {why}{said}"
        return StepOutcome(error=text, interrupted=unknown)
    return StepOutcome(result={"response": response, "answer": last.answer})
