"""A call whose outcome is unknown is repeated by nobody, unless that is what was asked for."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.fault_plan import FaultPlan, TargetedFault
from agentlab.errors import ToolFailure
from agentlab.minds.strategies.base import Strategy
from agentlab.minds.strategies.named import get_strategy
from agentlab.minds.strategies.repeats import may_stand
from agentlab.minds.strategies.scopes import ask
from agentlab.state.config import AgentRegistry, AgentSettings, ToolSettings
from agentlab.state.decisions import ReplanAction, ReplanDecision, Trigger, TriggerPoint
from agentlab.tools.calls import UNKNOWN_OUTCOME

CODES = [*sorted(UNKNOWN_OUTCOME), "unavailable", "rate_limit", "exception"]
EFFECTS = ["read", "idempotent", "write", "irreversible"]


def failing(notes, code, effect="write", times=1):
    """Return a tool that fails this often with a code, and then works."""

    def work(**arguments):
        if [name for name, _ in notes.made].count("pay") <= times:
            raise ToolFailure("it did not say", code)
        return {}

    return notes.tool("pay", work, effect=effect)


def paid(notes):
    return [name for name, _ in notes.made].count("pay")


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("unknown", ["refuse", "repeat"])
def test_real_writes_are_repeated_where_it_is_known_that_they_failed(
    notes, step, code, effect, unknown
):
    tool = failing(notes, code, effect)
    run = notes.run([step("pay", "pay")], tools=[tool], strategy=f"retry(2, unknown={unknown!r})")
    repeatable = code not in UNKNOWN_OUTCOME or effect in ("read", "idempotent")
    assert paid(notes) == (2 if repeatable or unknown == "repeat" else 1)
    assert run.state.attempts["pay"] == paid(notes)
    assert run.replay().identical


class Again:
    """A decider that tries the step again whatever happened."""

    def __init__(self):
        self.asked = 0

    def decide(self, trigger, state, kit):
        self.asked += 1
        assert self.asked < 20
        return ReplanDecision(action=ReplanAction.RETRY, step_id="pay", reasoning="once more")


class Blunt(Strategy):
    """A user's strategy that decides by itself, past budget and scope."""

    def triggered(self, point, state, step_id=None):
        return get_strategy("on_error").triggered(point, state, step_id)

    def decide(self, trigger, state, kit):
        return Again().decide(trigger, state, kit)


def own_scope():
    return Strategy(
        "mine", get_strategy("on_error").trigger, lambda trigger, state, kit: Again().decide(
            trigger, state, kit
        ),
    )  # fmt: skip


@pytest.mark.parametrize("code", sorted(UNKNOWN_OUTCOME))
@pytest.mark.parametrize(
    ("strategy", "workflow", "replans"),
    [
        (lambda: "retry(3)", "autonomous", 0),
        (lambda: "retry(3, wait=2.0)", "autonomous", 0),
        (lambda: "retry(3, wait=2.0)", "resident", 0),
        (lambda: "retry_then_replan(3)", "autonomous", 1),
        (lambda: "retry_then_replan(3)", "resident", 1),
        (lambda: "ask_on_error", "autonomous", 1),
        (lambda: "event_driven(decider='lm')", "resident", 1),
        (lambda: "oracle", "autonomous", 1),
        (own_scope, "autonomous", 0),
        (lambda: Blunt("blunt", None, None), "autonomous", 0),
    ],
)
def test_no_decision_of_anybody_repeats_a_write_that_may_stand(
    notes, step, code, strategy, workflow, replans
):
    lab = notes.lab(
        [step("pay", "pay")], [step("other")], tools=[failing(notes, code)],
        strategy=strategy(), lm=al.lm.scripted_model(["{}"]), reflector="rules",
        responder="template",
    )  # fmt: skip
    run = getattr(al, workflow).start(lab.bind(decider=Again()), "do it")
    run.finish(max_visits=60)
    assert paid(notes) == 1
    assert "RETRY" not in [s.name for s in run.recorder.of_kind("decision")]
    assert run.state.replan_count == replans
    assert run.state.ended == ("completed" if replans else "aborted")


def test_what_is_unknown_of_an_earlier_attempt_stays_unknown(notes, step):
    failures = iter(["timeout", "unavailable"])

    def work():
        code = next(failures, None)
        if code is not None:
            raise ToolFailure("no", code)
        return {}

    tool = notes.tool("pay", work)
    run = notes.start([step("pay", "pay")], tools=[tool], strategy="retry(5)")
    run.run_until("reflection")
    run.edit(forced_decision=Again().decide(None, run.state, run.lab))  # a person may
    run.finish()
    assert paid(notes) == 2
    assert run.state.task_results[-1].status == "failed"
    assert may_stand(run.state, run.lab, "pay")


@pytest.mark.parametrize("kind", ["timeout", "timeout_after_commit"])
def test_the_oracle_knows_what_an_agent_does_not(notes, step, kind):
    faults = FaultPlan(targets=(TargetedFault(tool="pay", kind=kind, occurrence=0),))
    tool = notes.tool("pay", effect="irreversible")
    run = notes.run(
        [step("pay", "pay")], [step("other")], tools=[tool], strategy="oracle", faults=faults
    )
    assert paid(notes) == 1
    tried = [s.name for s in run.recorder.of_kind("decision")]
    assert ("RETRY" if kind == "timeout" else "REPLAN_REMAINING") in tried


def test_in_a_simulated_world_a_write_may_be_repeated():
    scenario = generate("medium", 0, length=2)
    faults = FaultPlan(targets=(TargetedFault(tool="advance", kind="timeout", occurrence=0),))
    run = al.autonomous.start(al.Lab(scenario, strategy="retry(2)", faults=faults))
    run.finish()
    assert run.verdict.success
    assert run.state.task_results[0].status in ("interrupted", "failed")


@pytest.mark.parametrize(("code", "times"), [("timeout", 1), ("unavailable", 2)])
def test_a_sub_agent_is_not_asked_again_where_it_may_have_done_it(
    notes, step, fresh_names, code, times
):
    from agentlab.minds.planners.fixed import Fixed

    al.register("planner", "payer", lambda: Fixed([step("pay", "pay")]))
    agents = AgentRegistry(
        [
            AgentSettings(id="boss", sub_agents=["worker"]),
            AgentSettings(id="worker", planner="payer", tools=["pay"], strategy="never"),
        ],
        tools=[ToolSettings(id="pay", name="pay")],
    )
    ask = {
        "stepId": "ask", "name": "ask", "actionType": "call_sub_agent", "targetResource": "worker",
    }  # fmt: skip
    lab = notes.lab(
        [ask], tools=[failing(notes, code)], strategy="retry(1)", agent="boss", agents=agents
    )
    run = al.autonomous.start(lab, "do it")
    run.finish()
    assert paid(notes) == times
    assert run.state.ended == ("completed" if times > 1 else "aborted")


class Insists:
    """A decider that tries step a again, whatever else ended since."""

    def decide(self, trigger, state, kit):
        return ReplanDecision(action=ReplanAction.RETRY, step_id="a", reasoning="once more")


@pytest.mark.parametrize("executor", ["simulated", "threads"])
@pytest.mark.parametrize("permanent", [True, False])
def test_what_is_permanently_refused_is_so_when_another_step_called_since(
    notes, step, permanent, executor
):
    def fail():
        raise ToolFailure("gone", permanent=permanent)

    gone = notes.tool("gone", fail, effect="read")
    plan = [step("a", "gone"), step("b"), step("c")]
    run = notes.run(plan, tools=[gone], strategy="never", workers=3, executor=executor)
    state = run.state
    calls = sorted(state.calls, key=lambda call: call.step_id == "a")
    for order in (calls, calls[::-1]):  # what ended last is not in our hands
        trigger = Trigger(point=TriggerPoint.PLAN_END, reason="the end", step_id="a")
        kit = run.lab.bind(decider=Insists())
        found = ask(trigger, state.replace(calls=order), kit)
        assert found.action == ("REPLAN_REMAINING" if permanent else "RETRY")
        assert ("permanently refused" in found.reasoning) is permanent
