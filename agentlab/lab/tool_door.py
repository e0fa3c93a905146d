"""The one door to tools: argument check, permission, fault draw, journal, span.

Plan steps, agentic tool calls and retrieval alike go through ``call``, or through its halves: a
call is checked and its fault drawn when it starts, and it takes effect when it finishes, on the
world of that moment. A lab is such a door; what is known of a call is in the state it returns.
"""

from __future__ import annotations

from typing import Any

from agentlab.base.documents import Json, digest, merge_patch
from agentlab.base.trail import At, More
from agentlab.base.values import validated
from agentlab.environments.base import Begun, Call, Environment, Outcome, breach
from agentlab.errors import ReplayError, suggest
from agentlab.lab.approval import lets_through
from agentlab.lab.faults import advance, duration, fault_for, stand, strike
from agentlab.state.records import DeliveredFault, Failure, Fault, UnderWay
from agentlab.state.state import State
from agentlab.tools.calls import CallRecord, ToolError, call_text
from agentlab.tools.invocation import carried_out
from agentlab.tools.tool import REPEATABLE, Permissions, Tool, ToolRegistry
from agentlab.trace.journal import Address, Journal
from agentlab.trace.recorder import Recorder


class ToolDoor:
    """What calls go through; ``Lab`` is one.

    Attributes
    ----------
    environment : Environment or None
        Carries out the tools of a simulated world.
    permissions : Permissions
    within : str
        Of a sub-agent: the ids of the steps that it works for, each with a slash behind it; faults
        that aim at a step name it so.
    recorder, journal
        The run's.
    """

    environment: Environment | None
    permissions: Permissions
    within: str
    recorder: Recorder
    journal: Journal

    @property
    def tools(self) -> ToolRegistry:
        """Every tool by name."""
        raise NotImplementedError

    def begin_call(
        self, state: State, address: Address, tool: str, arguments: dict[str, Any]
    ) -> tuple[State, UnderWay]:
        """Start a call: argument check, permission, fault draw, the world's own refusal.

        Parameters
        ----------
        state : State
        address : Address
            Where in the run the call is made.
        tool : str
        arguments : dict
            Resolved.

        Returns
        -------
        tuple of State and UnderWay
            The state counts the call; a refused call finishes at once with an error.
        """
        error = self._refusal(state, address, tool, arguments)
        key = ""
        changes: dict[str, Any] = {"tool_calls": state.tool_calls + 1}
        fault: Fault | None = None
        holds: tuple[str, ...] = ()
        occurrence, seconds = 0, 0.0
        if error is None:
            key = digest(arguments)
            pair = f"{tool}:{key}"
            occurrence = state.occurrences.get(pair, 0)
            fault = fault_for(state, tool, arguments, key, self.within + address.step_id)
            changes["occurrences"] = At(pair, occurrence + 1)
            made = self.tools[tool]
            begun: Begun | ToolError
            if self.environment is not None and made.service == "environment":
                with breach(self.environment, f"begin of {tool}"):
                    begun = self.environment.begin(state.world, Call(tool, arguments))
            else:
                begun = Begun(made.seconds, made.holds)
            if isinstance(begun, ToolError):
                error = begun
            else:
                seconds, holds = duration(fault, made, begun.seconds), begun.holds
        holds = validated(UnderWay, "holds", holds) if holds else ()  # a world may be anybody's
        under_way = UnderWay.made(
            step_id=address.step_id, action_type="call_tool", attempt=address.attempt,
            submission=state.submissions, tool=tool, arguments=arguments, started=state.now,
            finishes=state.now + seconds, holds=holds, fault=None if error else fault,
            occurrence=occurrence, refused=None if error is None else error.to_json(),
        )  # fmt: skip
        return state.put(**changes), under_way

    def _refusal(
        self, state: State, address: Address, name: str, arguments: Json
    ) -> ToolError | None:
        if name not in self.tools:
            text = f"unknown tool {name!r}; {suggest(name, self.tools)}"
            return ToolError(code="unknown_tool", message=text, permanent=True)
        tool = self.tools[name]
        denied = self.permissions.refusal(tool)
        if denied:
            return ToolError(code="denied", message=denied, permanent=True)
        problem = tool.check(arguments)
        if problem:
            return ToolError(code="bad_arguments", message=problem)
        if tool.needs_approval and not lets_through(state, address, arguments):
            text = f"{name} needs approval, and nobody approved this call of it"
            return ToolError(code="unapproved", message=text, permanent=True)
        return None

    def finish_call(
        self, state: State, under_way: UnderWay, address: Address
    ) -> tuple[State, Json, ToolError | None]:
        """Finish a call on the world of this moment, under its fault.

        Returns
        -------
        tuple of State, result, error
            What the agent is told; the state has the new world, belief, counters and records.
        """
        name, arguments = under_way.tool, under_way.arguments
        with self.recorder.span(
            "tool", name, visit=address.visit, step_id=address.step_id, attempt=address.attempt,
            input=arguments, now=under_way.started,
        ) as span:  # fmt: skip
            if under_way.refused is not None:
                error: ToolError | None = ToolError.model_validate(under_way.refused)
                outcome, committed, delivered = Outcome(state.world, error=error), False, None
            else:
                outcome, committed, delivered = self._carried_out(state, under_way, address)
            state = self._written(state, under_way, outcome, committed, delivered)
            span.output, span.sim_end = outcome.result, state.now
            if outcome.error is not None:
                span.error = str(outcome.error)
            span.attributes = {"occurrence": under_way.occurrence, "committed": committed}
            if delivered is not None:
                self.recorder.mark(
                    "fault", delivered.fault.kind.value, visit=address.visit,
                    step_id=address.step_id, attempt=address.attempt, input=arguments,
                    output=fault_row(delivered), now=state.now,
                )  # fmt: skip
        return state, outcome.result, outcome.error

    def _carried_out(
        self, state: State, under_way: UnderWay, address: Address
    ) -> tuple[Outcome, bool, DeliveredFault | None]:
        tool, call = self.tools[under_way.tool], Call(under_way.tool, under_way.arguments)

        def execute(world: dict[str, Any]) -> Outcome:
            if tool.service == "environment":
                assert self.environment is not None
                with breach(self.environment, f"apply of {tool.name}"):
                    return self.environment.apply(world, call)
            return self._function(tool, call, world, address)

        fault = under_way.fault
        if fault is None:
            outcome = execute(state.world)
            return outcome, outcome.committed, None
        struck = strike(fault, self.environment, tool, call, state.world, execute)
        if not struck.delivered:
            return struck.outcome, struck.committed, None
        delivered = DeliveredFault.made(
            fault=fault, tool=call.tool, arguments=digest(call.arguments),
            occurrence=under_way.occurrence, step_id=under_way.step_id, at=state.now,
            committed=struck.committed, truth=struck.truth or {},
        )  # fmt: skip
        return struck.outcome, struck.committed, delivered

    def _function(self, tool: Tool, call: Call, world: dict[str, Any], address: Address) -> Outcome:
        """Call a Python function, with the journal written before and after."""
        known = recalled(self.journal, tool, call, address)
        if known is None:
            request = digest([call.tool, call.arguments])
            self.journal.start(address, call.tool, request)
            known = invoked(tool, call)
            told = None if known[1] is None else known[1].to_json()
            self.journal.finish(address, call.tool, request, known[0], told)
        return Outcome(world, result=known[0], error=known[1])

    def _written(
        self,
        state: State,
        under_way: UnderWay,
        outcome: Outcome,
        committed: bool,
        delivered: DeliveredFault | None,
    ) -> State:
        error = outcome.error
        record = CallRecord.made(
            tool=under_way.tool, arguments=under_way.arguments, result=outcome.result,
            error=error if error is None else validated(CallRecord, "error", error),
            committed=committed, faulted=delivered is not None,
            step_id=under_way.step_id, started=under_way.started, finished=state.now,
        )  # fmt: skip
        changes: dict[str, Any] = {"calls": More((record,))}
        if outcome.world is not state.world:
            changes["world"] = validated(State, "world", outcome.world)
        if outcome.learned:
            known = merge_patch(state.belief, outcome.learned)
            changes["belief"] = validated(State, "belief", known)
        if outcome.error is not None:
            key = digest(under_way.arguments)
            changes["failures"] = counted(
                state, under_way.tool, key, outcome.error, explained=bool(outcome.learned)
            )
        if delivered is not None:
            changes["delivered"] = More((delivered,))
            standing: Fault | None = stand(state, under_way.tool, delivered.fault)
            if standing is not None:
                changes["standing"] = At(under_way.tool, standing)
        return state.put(**changes)

    def call(
        self, state: State, address: Address, tool: str, arguments: dict[str, Any]
    ) -> tuple[State, Json, ToolError | None]:
        """Make a whole call: start it, let its time pass, finish it."""
        state, under_way = self.begin_call(state, address, tool, arguments)
        return self.finish_call(advance(state, under_way.finishes), under_way, address)


def counted(
    state: State, tool: str, key: str, error: ToolError, explained: bool = False
) -> At | More:  # fmt: skip
    """Return the failures of a state with one more: of a tool, with arguments of this digest."""
    for i, f in enumerate(state.failures):
        if (f.tool, f.arguments, f.code) == (tool, key, error.code):
            permanent = f.permanent or error.permanent
            more = f.put(count=f.count + 1, permanent=permanent, explained=explained)
            return At(i, more)
    failure = Failure.made(
        tool=tool, arguments=key, code=error.code, permanent=error.permanent,
        explained=explained,
    )  # fmt: skip
    return More((failure,))


def fault_row(delivered: DeliveredFault) -> dict[str, Json]:
    """Return what the span of a delivered fault says."""
    fault = delivered.fault
    return {
        "kind": fault.kind.value, "persistence": fault.persistence.value,
        "visibility": fault.visibility.value, "source": fault.source, "tool": delivered.tool,
        "arguments": delivered.arguments, "occurrence": delivered.occurrence,
        "committed": delivered.committed,
    }  # fmt: skip


def recalled(
    journal: Journal, tool: Tool, call: Call, address: Address
) -> tuple[Json, ToolError | None] | None:
    """Return how a call of a function ended, as far as the journal knows; None: it is to be made.

    One that was started, and may not be repeated, was interrupted.

    Raises
    ------
    ReplayError
        The journal knows another call at this address, or knows none and only serves.
    """
    request = digest([call.tool, call.arguments])
    known = journal.find(address, call.tool, request)
    if known is not None and known.finished:
        if known.request != request:
            raise ReplayError(f"the call at {address.shown} was {known.name} with other arguments")
        return known.result, (
            None if known.error is None else ToolError.model_validate(known.error)
        )
    if known is not None and tool.effect not in REPEATABLE:
        text = f"{call_text(call.tool, call.arguments)} was under way when the run was killed"
        error = ToolError(code="interrupted", message=f"{text}; its outcome is unknown")
        journal.finish(address, call.tool, request, None, error.to_json())
        return None, error
    return None


def invoked(tool: Tool, call: Call) -> tuple[Json, ToolError | None]:
    """Run a function tool; whatever it raises becomes an error the agent can read."""
    return carried_out(tool, call.arguments)
