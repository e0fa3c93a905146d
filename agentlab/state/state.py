"""The state of a run: one immutable object with all that a run knows.

Field names are the seeds' keys in snake_case; in JSON they have the seeds' own spelling. The world
rides in the state, so a checkpoint is a reference and a fork is free and exact. Sequences and maps
that grow are persistent vectors and maps: ``state.replace`` shares them.

There is one State for all workflows. What only some need stands in two records of their own,
``turn`` and ``loop``; for people their fields are flat: in JSON, in ``run.edit``, in prompts and
when read (``state.user_intent``). ``FLAT`` is the one mapping between the two. ``notes`` is for
whatever a node of a user's own wants to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from agentlab.base.documents import Json
from agentlab.base.fields import Map, map_of, vector_of
from agentlab.base.persistent import pmap, pvector
from agentlab.base.shown import amount, briefly, cut, shown_by
from agentlab.base.values import Document, Value
from agentlab.environments.fault_plan import FaultPlan
from agentlab.errors import seen, suggest
from agentlab.lm.settings import NOBODY, ModelSettings, Persona
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.state.config import AgentConfig
from agentlab.state.decisions import ReflectionResult, ReplanDecision, ReplanRecord, Trigger
from agentlab.state.events import ChangeType, ContextChangeEvent
from agentlab.state.messages import Message, said
from agentlab.state.records import DeliveredFault, Failure, Fault, TaskResult, UnderWay
from agentlab.state.tool_loop import Answer, LoopSignal, PendingApproval, ToolLoop
from agentlab.state.turn import Totals, Turn
from agentlab.tools.calls import CallRecord

# What ``next_action`` may say after planning, execution and reflection.
EXECUTE_NEXT_TASK = "execute_next_task"
REFLECT = "reflect"
REPLAN = "replan"
FINAL_RESPONSE = "final_response"
WAIT_FOR_REVIEW = "wait_for_review"
ASK = "ask"
"""The turn ended with a question to the user."""


class LoopStatus(StrEnum):
    """What a run is about to do, or how it ended."""

    PLANNING = "PLANNING"
    EXECUTING = "EXECUTING"
    MONITORING = "MONITORING"
    REACTING = "REACTING"
    REPLANNING = "REPLANNING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


class Outcome(StrEnum):
    """How a run ended; its last node writes it."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class State(Value):
    """All that a run knows."""

    # who and what
    agent_id: str = ""
    user_id: str = ""
    session_id: str = ""
    user_input: str = ""
    agent_config: AgentConfig | None = None
    llm_model_config: ModelSettings | None = None
    dataset_list: tuple[str, ...] = ()
    retrieval_config: Document = {}
    messages: vector_of(Message) = Field(default_factory=pvector)  # type: ignore[valid-type]
    turn: Turn = Turn()
    loop: ToolLoop = ToolLoop()
    notes: Map = Field(default_factory=pmap)
    """Whatever nodes want to keep: names to JSON."""

    # the loop (the seed's keys)
    planning_mode: bool = True
    task_plan: TaskPlan | None = None
    current_task_index: int = 0
    task_results: vector_of(TaskResult) = Field(default_factory=pvector)  # type: ignore[valid-type]
    reflection: ReflectionResult | None = None
    need_replan: bool = False
    max_task_iterations: int = Field(default=20, ge=0)
    loop_count: int = Field(default=0, ge=0)
    """Rounds of the workflow's own loop."""
    max_loops: int = Field(default=3, ge=0)
    replan_count: int = Field(default=0, ge=0)
    """Replans that were accepted, in this turn."""
    max_replans: int = Field(default=3, ge=0)
    next_action: str = ""
    final_response: str | None = None
    error: str | None = None
    outcome: Outcome | None = None

    # beyond the seed
    answer: Json = None
    results: Map = Field(default_factory=pmap)
    """Step id to completed result, over all plans of the run."""
    attempts: Map = Field(default_factory=pmap)
    """Step id to the number of its executions."""
    replan_history: vector_of(ReplanRecord) = Field(  # type: ignore[valid-type]
        default_factory=pvector
    )
    trigger: Trigger | None = None
    """Why reflection is asked; None: the plan is at its end."""
    last_decision: ReplanDecision | None = None
    forced_decision: ReplanDecision | None = None
    """A decision put in by a person or a fork; the next reflection takes it."""
    failures: vector_of(Failure) = Field(default_factory=pvector)  # type: ignore[valid-type]
    guard: Map = Field(default_factory=pmap)
    """Signature of (remaining plan, belief, failures) to how often a replan led there."""
    stopped_by: str | None = None
    """What ended the run before its plan did: a budget, "abort", "no_progress", "no_plan"."""
    events: vector_of(ContextChangeEvent) = Field(  # type: ignore[valid-type]
        default_factory=pvector
    )
    events_decided: int = 0
    """How many of the events the last decision knew."""
    accepted: tuple[str, ...] = ()
    """Steps that did not complete, which a CONTINUE took as they are."""

    # counters (charges against the budget)
    visit: int = 0
    executions: int = 0
    tool_calls: int = 0
    lm_calls: int = 0
    lm_tokens: int = 0
    """In and out."""
    parse_failures: int = 0
    """Replies of a planner that were no plan."""
    submissions: int = 0
    plans: int = 0

    # the simulated world and time
    seed: int = 0
    scenario_id: str = ""
    now: float = 0.0
    """Simulated seconds."""
    initial: Document = {}
    world: Document = {}
    belief: Document = {}
    calls: vector_of(CallRecord) = Field(default_factory=pvector)  # type: ignore[valid-type]
    under_way: vector_of(UnderWay) = Field(default_factory=pvector)  # type: ignore[valid-type]
    not_before: Map = Field(default_factory=pmap)
    """Step id to the simulated time before which its retry does not start."""

    # language models
    lm_requests: Map = Field(default_factory=pmap)
    """Key of a request to how often the run made it."""
    lm_prompts: Map = Field(default_factory=pmap)
    """Key of a prompt to how often the run sent it, for the draws of LM faults."""

    # faults
    fault_plan: FaultPlan = FaultPlan()
    occurrences: Map = Field(default_factory=pmap)
    """"tool:digest of arguments" to how often that call was submitted."""
    standing: map_of(Fault) = Field(default_factory=pmap)  # type: ignore[valid-type]
    """Tool to the fault that stands on it."""
    delivered: vector_of(DeliveredFault) = Field(  # type: ignore[valid-type]
        default_factory=pvector
    )
    world_events_done: tuple[str, ...] = ()

    # the resident loop's words, read from the fields above

    @property
    def goal(self) -> str:
        """What the user wants."""
        return self.user_input

    @property
    def current_plan(self) -> TaskPlan | None:
        """The plan as it stands."""
        return self.task_plan

    @property
    def pending_tasks(self) -> tuple[TaskStep, ...]:
        """Steps of the plan that are not settled."""
        return self.task_plan.remaining if self.task_plan is not None else ()

    @property
    def completed_tasks(self) -> tuple[TaskStep, ...]:
        """Steps of the plan that are completed."""
        steps = self.task_plan.steps if self.task_plan is not None else ()
        return tuple(s for s in steps if s.status is StepStatus.COMPLETED)

    @property
    def context_changes(self) -> tuple[ContextChangeEvent, ...]:
        """All that happened."""
        return tuple(self.events)

    @property
    def replans_left(self) -> int:
        """How often a new plan may still be made."""
        loops = self.max_loops - self.loop_count
        return max(0, min(self.max_replans - self.replan_count, loops))

    @property
    def held(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person."""
        return self.loop.pending_approvals

    @property
    def paused(self) -> bool:
        """True when the run stands until somebody lets it go on."""
        return self.loop.loop_signal is LoopSignal.PAUSED

    @property
    def asks(self) -> bool:
        """True when the turn ended with a question to the user (``[NEED MORE INFO]``)."""
        return self.final_response is not None and self.next_action == ASK

    @property
    def fresh_events(self) -> tuple[ContextChangeEvent, ...]:
        """What happened since the last decision (see ``is_news``)."""
        return tuple(filter(self.is_news, self.events[self.events_decided :]))

    def is_news(self, event: ContextChangeEvent) -> bool:
        """Say False of a step that a decision interrupted and that is in the plan no more."""
        if event.type is not ChangeType.TASK_INTERRUPTED or event.task_id not in self.attempts:
            return True
        return self.task_plan is not None and event.task_id in self.task_plan

    def settled_well(self, step: TaskStep) -> bool:
        """Say whether a step is completed or skipped, or ended badly and need not be minded."""
        if step.status in (StepStatus.COMPLETED, StepStatus.SKIPPED):
            return True
        return step.settled and (step.skippable or step.step_id in self.accepted)

    def outcome_unknown(self, step_id: str | None) -> bool:
        """Say whether an attempt of a step that has not completed since may have taken effect."""
        if step_id is None or step_id not in self.attempts:
            return False
        for result in reversed(self.task_results):
            if result.step_id == step_id:
                if result.status is StepStatus.INTERRUPTED:
                    return True
                if result.status is StepStatus.COMPLETED or result.attempt == 1:
                    return False
        return False

    @property
    def persona(self) -> Persona:
        """What the agent's configuration says to each model that works for it."""
        agent = self.agent_config
        return NOBODY if agent is None else Persona(agent.system_prompt, agent.user_prompt)

    def rejected(self, step_id: str | None) -> bool:
        """Say whether a person did not let a step through: no decision tries it again."""
        if step_id is None:
            return False
        said = self.loop.review_of(step_id, self.attempts.get(step_id, 0) + 1)
        return said is not None and said.answer is Answer.REJECT

    @property
    def done(self) -> bool:
        """True when every step of the plan is settled well (see ``settled_well``)."""
        plan = self.task_plan
        return plan is not None and plan.over and all(map(self.settled_well, plan.steps))

    @property
    def ended(self) -> Outcome:
        """How the run ended, as its last node said; else whether there was an error."""
        if self.outcome is not None:
            return self.outcome
        return Outcome.COMPLETED if self.error is None else Outcome.FAILED

    @property
    def loop_status(self) -> LoopStatus:
        """What the run is about to do, or how it ended."""
        if self.outcome is not None or self.final_response is not None:
            well = self.ended is Outcome.COMPLETED
            return LoopStatus.COMPLETED if well else LoopStatus.ABORTED
        if self.next_action == REFLECT:
            return LoopStatus.REACTING
        if self.next_action == REPLAN:
            return LoopStatus.REPLANNING
        if self.next_action in ("", FINAL_RESPONSE) and self.task_plan is None:
            return LoopStatus.PLANNING
        begins = self.next_action == EXECUTE_NEXT_TASK and not self.under_way
        return LoopStatus.EXECUTING if begins else LoopStatus.MONITORING

    # ---- turns -------------------------------------------------------------------------------

    def next_turn(self, text: str) -> State:
        """Return the state in which the next turn of the conversation begins.

        What belongs to a turn is fresh: what was understood, the tool loop, plan, answer, error,
        decisions, replans. What the run knows stays: messages, results, history, world, belief,
        time, totals, notes. Budgets count from here.
        """
        since = Totals(
            executions=self.executions, tool_calls=self.tool_calls, lm_tokens=self.lm_tokens,
            seconds=self.now,
        )  # fmt: skip
        return self.replace(
            user_input=text, messages=self.messages.append(said(text)), turn=Turn(since=since),
            loop=ToolLoop(), task_plan=None, current_task_index=0, loop_count=0, replan_count=0,
            next_action="", final_response=None, answer=None, error=None, outcome=None,
            stopped_by=None, reflection=None, trigger=None, need_replan=False, last_decision=None,
            forced_decision=None, accepted=(), guard=pmap(), not_before=pmap(),
            events_decided=len(self.events),
        )  # fmt: skip

    # ---- flat for people, nested inside ------------------------------------------------------

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, given: Any) -> Any:
        """Accept the fields of turn and loop flat, in either spelling."""
        if not isinstance(given, Mapping) or not (given.keys() & FLAT_WIRE.keys()):
            return given
        nested = dict(given)
        for key in given.keys() & FLAT_WIRE.keys():
            home, name = FLAT_WIRE[key]
            inner = nested.get(home, {})
            inner = inner.to_json() if isinstance(inner, (Turn, ToolLoop)) else inner
            nested[home] = {**inner, name: nested.pop(key)}
        return nested

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON data, flat, in the wire spelling."""
        data = super().to_json()
        for home in HOMES:
            data |= data.pop(home)
        return data

    __repr__ = briefly(
        lambda s: [
            f"visit {s.visit}", cut(s.user_input), s.next_action and f"next {s.next_action}",
            s.task_plan and f"plan of {amount(len(s.task_plan.steps), 'step')}",
            f"{s.now:g} s", amount(len(s.calls), "call"),
            s.stopped_by and f"stopped by {s.stopped_by}", s.error and f"error {cut(s.error)}",
        ]
    )  # fmt: skip
    _repr_html_ = shown_by("agentlab.views.page.records:state_page")

    def flat(self) -> dict[str, Any]:
        """Return every field by its flat name, as it is."""
        homes = [self, *(getattr(self, home) for home in HOMES)]
        return {n: getattr(h, n) for h in homes for n in type(h).model_fields if n not in HOMES}

    def edited(self, **fields: Any) -> Self:
        """Return the state with fields changed that a person names, flat or nested."""
        inner: dict[str, dict[str, Any]] = {}
        for name in [n for n in fields if n in FLAT]:
            inner.setdefault(FLAT[name], {})[name] = fields.pop(name)
        for home, changes in inner.items():
            fields[home] = getattr(self, home).replace(**changes)
        return self.replace(**fields)

    if not TYPE_CHECKING:  # a type checker that saw this would find no unknown name any more

        def __getattr__(self, name: str) -> Any:
            if name in FLAT:
                return getattr(self.__dict__[FLAT[name]], name)
            if name.startswith("_"):
                return super().__getattr__(name)
            known = [*type(self).model_fields, *FLAT]
            raise AttributeError(f"a state has no {seen(name)}; {suggest(name, known)}")


HOMES: Mapping[str, type[Value]] = {"turn": Turn, "loop": ToolLoop}
"""Fields of the state whose own fields people see flat."""
FLAT: Mapping[str, str] = {name: home for home, cls in HOMES.items() for name in cls.model_fields}
"""Flat name to the field of the state that holds it."""
FLAT_WIRE: Mapping[str, tuple[str, str]] = {
    spelled: (home, name) for name, home in FLAT.items() for spelled in (name, to_camel(name))
}
"""The same in both spellings."""
