"""The executor in threads: real tools, wall time, deadlines.

Checks, resources and counting are those of simulated time; what differs is the clock and who does
the work. ``state.now`` is wall seconds since the run began. A call of a function runs in a thread
of its own, of which the loop has ``workers`` at most; with one worker all calls of a run and of its
sub-agents share one (see ``worker.py``). Everything else (language models, worlds, sub-agents) is
carried out by ``wait``, in the run's own thread.

A call has its tool's ``timeout``. At the deadline, or when it is cancelled, its step is settled and
the call's token says so (``agentlab.cancel_token``). A tool that does not listen goes on in its
thread, which is a daemon; it is listed as ``abandoned``, and what it returns later is recorded, in
the trace and in that list, and never applied.

What a run cannot know by itself, when a step started and which one finished next, goes through the
journal, as the calls do: a replay matches it by address and is identical, times included, and a
resumed run makes only those calls again that may be repeated.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import asdict, dataclass, field
from typing import Any

from agentlab.base.documents import Json, digest
from agentlab.environments.base import Call
from agentlab.errors import ReplayError
from agentlab.lab.actions.call_tool import CallTool
from agentlab.lab.bench import Bench
from agentlab.lab.executor import SimulatedExecutor, finished, interrupted, next_try
from agentlab.lab.faults import NOT_EXECUTED, advance
from agentlab.lab.tool_door import invoked, recalled
from agentlab.lab.worker import Worker, hinted
from agentlab.plans.task_plan import TaskStep
from agentlab.state.records import UnderWay
from agentlab.state.state import State
from agentlab.tools.calls import ToolError
from agentlab.tools.cancel import CURRENT, CancelToken
from agentlab.tools.tool import Tool
from agentlab.trace.journal import EXECUTOR, Address, Entry, MemoryJournal

GRACE = 0.5
"""Seconds in which a tool that was told to stop should have stopped."""

Returned = tuple[Json, "ToolError | None"]


@dataclass(eq=False)
class Abandoned:
    """A call that nobody waits for any more, and that went on all the same."""

    step_id: str
    attempt: int
    tool: str
    since: float
    """Seconds of the run at which it was told to stop."""
    reason: str
    ended: float | None = None
    """Seconds of the run at which it ended after all; None: it still goes on."""
    result: Json = None
    """What it returned when nobody waited any more."""
    error: str | None = None


@dataclass(eq=False)
class _Call:
    """A call under way."""

    under_way: UnderWay
    token: CancelToken = field(default_factory=CancelToken)
    deadline: float = math.inf
    """By ``time.monotonic``."""
    returned: Returned | None = None
    thread: threading.Thread | None = None
    """None: it is served, or there is nothing to run."""
    left: Abandoned | None = None


class ThreadedExecutor:
    """Carries function tools out in threads, in wall time; each run has one of its own.

    Parameters
    ----------
    began : float, optional
        When the run began, by ``time.monotonic``; default: when the first step starts.
    worker : Worker, optional
        Whose thread makes the calls of a run with one worker; default: one of its own.
    """

    wall = True

    def __init__(self, began: float | None = None, worker: Worker | None = None) -> None:
        self._began = began
        self.worker = worker or Worker()
        self._own = worker is None
        self._changed = threading.Condition()
        self._calls: dict[tuple[str, int], _Call] = {}
        self._done: list[_Call] = []  # in the order in which they ended
        self._left: list[_Call] = []
        self._late: list[Abandoned] = []
        self._woken = False
        self._zero: float | None = None
        self._steps = SimulatedExecutor()

    def for_run(self) -> ThreadedExecutor:
        """Return an executor with a clock and threads of its own."""
        return ThreadedExecutor(time.monotonic())

    @property
    def abandoned(self) -> tuple[Abandoned, ...]:
        """The calls that were told to stop and did not, within half a second."""
        with self._changed:
            told = [c.left for c in self._left if c.left is not None]
        return tuple(a for a in told if a.ended is None or a.ended - a.since > GRACE)

    # ---- the interface ---------------------------------------------------------------------

    def submit(self, state: State, bench: Bench, step: TaskStep) -> State:
        """Start a ready step, or settle it at once when it cannot start."""
        attempt = state.attempts.get(step.step_id, 0) + 1
        place = f"(start {step.step_id}#{attempt})"
        now = self._noted(bench, state, place, lambda: self._clock(state))
        after = self._steps.submit(advance(state, now), bench, step)
        if len(after.task_results) > len(state.task_results):
            return after
        if len(after.under_way) == len(state.under_way):
            return state if after.loop is state.loop else after
        under_way = after.under_way[-1].put(visit=state.visit)
        self._launch(bench, under_way)
        return after.put(under_way=after.under_way.set(-1, under_way))

    def wait(self, state: State, bench: Bench) -> State:
        """Wait until a step finishes or runs into its deadline, and settle it."""
        for under_way in state.under_way:
            self._launch(bench, under_way)  # those of a run that was resumed
        # Time goes on with every wait, so it tells apart those of one visit.
        told = self._noted(bench, state, f"(wait {state.now!r})", lambda: self._next(state, bench))
        state = advance(state, told["now"])
        for late in told["late"]:
            bench.recorder.mark(
                "event", "late_result", visit=state.visit, step_id=late["step_id"],
                attempt=late["attempt"], now=state.now, output=late,
            )  # fmt: skip
        places = [i for i, u in enumerate(state.under_way) if u.step_id == told["step_id"]]
        return self._finished(state, bench, places[0]) if places else state

    def cancel(self, state: State, bench: Bench, step_ids: Iterable[str], reason: str) -> State:
        """Interrupt steps under way, and tell their calls to stop."""
        chosen = set(step_ids)
        for under_way in [u for u in state.under_way if u.step_id in chosen]:
            call = self._calls.pop((under_way.step_id, under_way.attempt), None)
            if call is not None and call.thread is not None:
                self._leave(bench, call, reason, ToolError(code="interrupted", message=reason))
            state = interrupted(state, bench, under_way.step_id, reason)
        return state

    def notify(self) -> None:
        """Make ``wait`` come back early; any thread may call it."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def stood(self, state: State) -> None:
        """Go on from the state's time, unless something is under way, for which it went on."""
        if not state.under_way:
            self._began, self._zero = None, time.monotonic() - state.now

    def rest(self) -> None:
        """Tell all calls to stop, and give them half a second; an idle thread is kept a while."""
        with self._changed:
            for call in self._calls.values():
                if call.thread is not None and call.returned is None:
                    self._tell(call, "the run ended")
            self._calls.clear()
            for left in [c.left for c in self._left if c.left is not None]:
                while left.ended is None and self._seconds() < left.since + GRACE:
                    self._changed.wait(max(0.0, left.since + GRACE - self._seconds()))
        self.worker.rest(kept=self._own)

    def close(self) -> None:
        """Rest, and let go of the thread."""
        self.rest()
        if self._own:
            self.worker.end()

    # ---- the clock ---------------------------------------------------------------------------

    def _seconds(self) -> float:
        return time.monotonic() - (self._zero or 0.0)

    def _clock(self, state: State) -> float:
        """Return the seconds since the run began; they go on from where the state stands."""
        if self._zero is None:
            self._zero = (self._began or time.monotonic()) - state.now
        return max(state.now, round(self._seconds(), 6))

    def _noted(self, bench: Bench, state: State, place: str, make: Callable[[], Any]) -> Any:
        """Return what the journal knows was found at this place, else find it and write it down."""
        address = Address(state.visit, place)
        known = bench.journal.find(address, EXECUTOR, "")
        if known is not None and known.finished:
            return known.result
        made = make()
        bench.journal.finish(address, EXECUTOR, "", made, None)
        return made

    # ---- calls -----------------------------------------------------------------------------

    def _launch(self, bench: Bench, under_way: UnderWay) -> None:
        """Start a call in a thread, once; one that is known is served."""
        key = (under_way.step_id, under_way.attempt)
        if key in self._calls:
            return
        call = self._calls[key] = _Call(under_way)
        tool = _to_run(bench, under_way)
        if tool is not None:
            made, address, request = _addressed(under_way)
            try:
                call.returned = recalled(bench.journal, tool, made, address)
            except ReplayError:
                if address not in getattr(bench.journal, "entries", {}):
                    raise
                return  # no end of it was recorded, so it has none
            if call.returned is None:
                bench.journal.start(address, tool.name, request)
                self._start(call, tool, made, alone=bench.workers == 1)
                return
        with self._changed:
            self._done.append(call)

    def _start(self, call: _Call, tool: Tool, made: Call, alone: bool) -> None:
        context = copy_context()
        context.run(CURRENT.set, call.token)

        def work() -> Returned:
            result, error = context.run(invoked, tool, made)
            return result, hinted(error)

        def then(returned: Returned) -> None:
            with self._changed:
                self._came(call, returned)

        call.deadline = time.monotonic() + tool.timeout
        if alone:
            call.thread = self.worker.carry(work, then)
            return
        call.thread = threading.Thread(
            target=lambda: then(work()), name=f"agentlab {tool.name}", daemon=True
        )
        call.thread.start()

    def _came(self, call: _Call, returned: Returned) -> None:
        """Take what a thread returned; when nobody waits for it, only note it."""
        if call.left is None:
            call.returned = returned
            self._done.append(call)
        else:
            result, error = returned
            call.left.result, call.left.error = result, None if error is None else str(error)
            call.left.ended = self._seconds()
            self._late.append(call.left)
        self._changed.notify_all()

    def _tell(self, call: _Call, reason: str) -> None:
        """Tell a call to stop; nobody waits for it from now on."""
        u = call.under_way
        call.left = Abandoned(u.step_id, u.attempt, u.tool, self._seconds(), reason)
        self._left.append(call)
        call.token.cancel()

    def _leave(self, bench: Bench, call: _Call, reason: str, error: ToolError) -> None:
        """Settle a call without its result; what has come all the same is written down."""
        with self._changed:
            if call.returned is None:
                self._tell(call, reason)
                call.returned = (None, error)
        self._write(bench, call)

    @staticmethod
    def _write(bench: Bench, call: _Call) -> None:
        """Write down how a call ended, in the run's own thread."""
        assert call.returned is not None
        result, error = call.returned
        _, address, request = _addressed(call.under_way)
        told = None if error is None else error.to_json()
        bench.journal.finish(address, call.under_way.tool, request, result, told)

    def _next(self, state: State, bench: Bench) -> dict[str, Json]:
        """Wait, and return which step ended, if any, at what time, and what came too late."""
        ended: _Call | None = None
        with self._changed:
            while not self._woken:
                ended = self._ended(bench)
                now, wakes = self._clock(state), next_try(state, bench)
                if ended is not None or (wakes is not None and wakes <= now):
                    break
                moments = [c.deadline - time.monotonic() for c in self._calls.values()]
                moments += [wakes - now] if wakes is not None else []
                if not moments:
                    break
                self._changed.wait(min(*moments, threading.TIMEOUT_MAX))
            self._woken = False
            late, self._late = self._late, []
        if ended is not None and ended.thread is not None:
            self._write(bench, ended)
        return {
            "now": max(self._clock(state), round(state.now + 1e-6, 6)),
            "step_id": None if ended is None else ended.under_way.step_id,
            "late": [asdict(a) for a in late],
        }

    def _ended(self, bench: Bench) -> _Call | None:
        """Return a call that ended or ran into its deadline, the first that did."""
        current = self._calls.values()
        self._done = [c for c in self._done if c in current]
        if self._done:
            return self._done[0]
        for call in current:
            if call.deadline <= time.monotonic():
                tool = bench.tools[call.under_way.tool]
                text = f"{tool.name} gave no answer in {tool.timeout:g} s"
                self._leave(bench, call, text, ToolError(code="timeout", message=text))
                return call
        return None

    def _finished(self, state: State, bench: Bench, index: int) -> State:
        """Settle a step; what its call returned is served to the door to tools."""
        u = state.under_way[index]
        state = state.put(under_way=state.under_way.delete(index))
        call = self._calls.pop((u.step_id, u.attempt))
        if _to_run(bench, u) is None:
            return finished(state, bench, u)
        if call.returned is None:
            raise ReplayError(f"of the call of step {u.step_id!r} no end was recorded")
        result, error = call.returned
        there = Address(state.visit, u.step_id, u.attempt)
        told = None if error is None else error.to_json()
        entry = Entry(there, u.tool, _addressed(u)[2], True, result, told)
        return finished(state, bench.bind(journal=MemoryJournal([entry])), u)


def _to_run(bench: Bench, under_way: UnderWay) -> Tool | None:
    """Return the tool whose function is to be called in a thread; None: there is none to call."""
    calls = isinstance(bench.actions.get(under_way.action_type), CallTool)
    fault = under_way.fault
    if not calls or under_way.refused or (fault is not None and fault.kind in NOT_EXECUTED):
        return None
    tool = bench.tools.get(under_way.tool)
    return None if tool is None or tool.function is None else tool


def _addressed(under_way: UnderWay) -> tuple[Call, Address, str]:
    """Return a call, its address (that of the visit in which it started) and its request's hash."""
    call = Call(under_way.tool, under_way.arguments)
    address = Address(under_way.visit, under_way.step_id, under_way.attempt)
    return call, address, digest([call.tool, call.arguments])
