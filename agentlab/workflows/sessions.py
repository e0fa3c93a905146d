"""Sessions of the planning loop: a goal that is looked after, on a thread of its own.

A session is a handle over a run of the workflow ``resident``: what it knows is read from the run's
state, and it owns the thread that steps it. Whoever holds it may ask for a decision or put one in.
That reaches the run between two visits and is part of its record, so a session replays and forks
like any other run.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from agentlab.base.arrived import seen
from agentlab.base.values import Value
from agentlab.errors import RunError, UnknownNameError
from agentlab.lab.lab import Lab
from agentlab.minds.rules import TemplateResponder
from agentlab.plans.task_plan import TaskPlan, TaskStep
from agentlab.runs.graph import WAIT
from agentlab.runs.run import Run
from agentlab.runs.visits import Visit
from agentlab.state.decisions import ReplanAction, ReplanDecision, ReplanRecord
from agentlab.state.events import REACT, ChangeType, ContextChangeEvent, Severity
from agentlab.state.state import REFLECT, LoopStatus, State
from agentlab.state.tool_loop import PendingApproval

STOP_SECONDS = 0.8
"""How long ``stop`` waits for the visit under way."""

HEARS = ("execute", "monitor", "react", WAIT)
"""Where the run stands when a decision that somebody made is put in."""


class LoopConfig(Value):
    """When a session decides, and how often it may replan."""

    max_replans: int = Field(default=3, ge=0)
    react_threshold: Severity = Severity.WARNING
    """What counts for a batch."""
    batch_react_size: int = Field(default=3, ge=1)
    milestones: bool = True
    """Decide at the end of each phase of the plan."""
    decider: Literal["rules", "lm"] | None = None
    """None: the model where there is one."""
    when_no_plan: Literal["stop", "keep"] = "stop"
    """A replan that gives no plan ends the session, or ("keep") it goes on with the old plan."""
    executor: Literal["threads", "simulated"] | None = None
    """None: threads where there is no simulated world, so that no tool keeps the loop waiting."""


class PlanningLoopSession:
    """A goal that is looked after until it is reached or given up. ``PlanningLoop.start`` makes it.

    Parameters
    ----------
    run : Run
        Of the workflow ``resident``, not yet started.
    config : LoopConfig
    on_end : callable
        Told when the session has ended.
    """

    def __init__(
        self, run: Run, config: LoopConfig, on_end: Callable[[PlanningLoopSession], None]
    ) -> None:
        self.run, self.config = run, config
        self.session_id = run.state.session_id
        self.start_time = datetime.now(UTC)
        self.error: Exception | None = None
        """What a node raised; it ended the session."""
        self._on_end = on_end
        self._lock = threading.Lock()
        self._asked: dict[str, Future[ReplanDecision]] = {}
        self._orders: list[tuple[ReplanDecision, Future[ReplanDecision]]] = []
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._cut_off = False
        name = f"agentlab-session-{self.session_id}"
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    # ---- where it stands -------------------------------------------------------------------

    @property
    def status(self) -> LoopStatus:
        """What it is about to do, or how it ended."""
        if self.error is not None or self._cut_off:
            return LoopStatus.ABORTED
        return self.run.state.loop_status

    @property
    def original_goal(self) -> str:
        """What the user wants."""
        return self.run.state.goal

    @property
    def current_plan(self) -> TaskPlan | None:
        """The plan as it stands; None before there is one."""
        return self.run.state.current_plan

    @property
    def completed_tasks(self) -> tuple[TaskStep, ...]:
        """Steps of the plan that are completed."""
        return self.run.state.completed_tasks

    @property
    def pending_events(self) -> tuple[ContextChangeEvent, ...]:
        """What happened since the last decision, and what the run has not heard of yet."""
        return (*self.run.state.fresh_events, *self.run.inbox.waiting())

    @property
    def replan_history(self) -> tuple[ReplanRecord, ...]:
        """One record a replan: when, decision, events, plan before and after."""
        return tuple(self.run.state.replan_history)

    @property
    def replan_count(self) -> int:
        """Replans that were accepted."""
        return self.run.state.replan_count

    @property
    def handler(self) -> object | None:
        """Who hears stream events."""
        return self.run.lab.handler

    @property
    def run_context(self) -> Lab:
        """What its nodes work with."""
        return self.run.lab

    @property
    def max_replans(self) -> int:
        """Replans that it may make."""
        return self.config.max_replans

    @property
    def react_threshold(self) -> Severity:
        """What counts for a batch."""
        return self.config.react_threshold

    @property
    def batch_react_size(self) -> int:
        """Events that make a batch."""
        return self.config.batch_react_size

    @property
    def waiting(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person's answer (see ``review``)."""
        return self.run.waiting

    @property
    def abandoned(self) -> tuple[str, ...]:
        """What was told to stop and has not: tools, and the session's own thread inside a mind."""
        tools = (f"{a.tool} of step {a.step_id}" for a in self.run.abandoned if a.ended is None)
        own = self._thread.is_alive() and self._cut_off
        return (*tools, *((self._thread.name,) if own else ()))

    def wait(self, timeout: float | None = None) -> State:
        """Wait until it has ended, and return the state it ended with.

        Raises
        ------
        RunError
            It has not ended within ``timeout`` seconds.
        Exception
            Whatever ended it.
        """
        if not self._ended.wait(timeout):
            raise RunError(f"session {self.session_id} has not ended within {timeout} s")
        if self.error is not None:
            raise self.error
        return self.run.state

    def __repr__(self) -> str:
        return f"<session {self.session_id} {self.status}, {self.replan_count} replans>"

    # ---- from other threads ----------------------------------------------------------------

    def start(self) -> None:
        """Begin; called once."""
        self._thread.start()

    def react(self) -> Future[ReplanDecision]:
        """Ask for a decision as things stand, and return it as a future.

        Raises
        ------
        RunError
            The session has ended.
        """
        token, future = uuid.uuid4().hex, _future()
        with self._lock:
            self._asked[token] = future
        self.run.publish(
            ContextChangeEvent(
                type=ChangeType.EXTERNAL_SIGNAL, severity=Severity.INFO,
                description="somebody asks for a decision", payload={REACT: token},
            )
        )  # fmt: skip
        return future

    def decide(self, decision: ReplanDecision) -> Future[ReplanDecision]:
        """Put a decision in; it is taken as it is, at the next visit that could decide.

        Raises
        ------
        PlanEditError
            It cancels a step that is completed or does not exist.
        RunError
            The session has ended, or it is no decision.
        """
        if not isinstance(decision, ReplanDecision):
            raise RunError(f"expected a ReplanDecision, got {seen(decision)}")
        decision.checked(self.run.state.task_plan)
        future = _future()
        with self._lock:
            if self._ended.is_set():
                raise RunError(f"session {self.session_id} has ended")
            self._orders.append((decision, future))
        self._wake()
        return future

    def review(
        self, call_id: str, answer: str, arguments: Mapping[str, Any] | None = None, *,
        reason: str = "", by: str = "a person",
    ) -> Visit:  # fmt: skip
        """Answer for a call that waits for approval; its thread sleeps where nothing else goes on.

        Parameters and errors are those of ``Run.review``.
        """
        return self.run.review(call_id, answer, arguments, reason=reason, by=by)

    def pause(self, *, by: str = "a person") -> None:
        """Make it stand after the visit under way (see ``Run.pause``).

        Events, decisions and requests for one are kept until it goes on; a stop ends it anyway.
        """
        self.run.pause(by=by)

    def go_on(self, *, by: str = "a person") -> Visit:
        """End a pause; a RunError where it is not paused."""
        return self.run.go_on(by=by)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it: what is under way is cancelled, and the user is told why.

        Returns when it has ended, or after so many seconds. A planner, decider or responder that
        is being asked cannot be cut short: its thread is in ``abandoned`` until it returns, and
        nothing follows from what it says.
        """
        self.ask_to_stop()
        if threading.current_thread() is not self._thread:
            self._cut_off |= not self._ended.wait(seconds)

    def ask_to_stop(self) -> None:
        """Tell it to end, and wait for nothing."""
        self._stopping.set()
        self._wake()

    def _wake(self) -> None:
        self.run.lab.executor.notify()
        self.run.news.set()

    # ---- its own thread --------------------------------------------------------------------

    def _live(self) -> None:
        order: Future[ReplanDecision] | None = None
        try:
            while not self.run.finished:
                order = self._ordered(order)
                if self.run.stands:
                    self._sleep()
                    continue
                visit = self.run.step()
                made = visit.after.last_decision
                if visit.node == "react" and made is not None:
                    self._answer(made, order)
                    order = None
        except Exception as e:
            self.error = e
        except BaseException as e:  # SystemExit, for one: it ends the session and nothing else
            self.error = RunError(f"a node raised {type(e).__name__}: {e}")
        finally:
            self._end(order)

    def _sleep(self) -> None:
        """Wait until somebody answers, publishes, decides, edits, stops or lets it go on."""
        self.run.news.clear()
        with self._lock:
            told = self._stopping.is_set() or (bool(self._orders) and not self.run.paused)
        if not told and self.run.stands and not self.run.finished:
            self.run.news.wait()

    def _ordered(self, order: Future[ReplanDecision] | None) -> Future[ReplanDecision] | None:
        """Put in what somebody decided, unless ``order`` still waits; return who waits for it."""
        if self._stopping.is_set() and self.run.paused:
            self.run.go_on(by="a stop")
        node, state = self.run.next_node, self.run.state
        if self._stopping.is_set():
            self._abort(node, state)
        elif order is None and node in HEARS and not self.run.paused:
            with self._lock:
                told = self._orders.pop(0) if self._orders else None
            if told is not None:
                decision, future = told
                try:
                    decision.checked(state.task_plan)
                except Exception as e:  # the step was completed meanwhile
                    future.set_exception(e)
                    return None
                self._put(decision)
                return future
        return order

    def _abort(self, node: str, state: State) -> None:
        self.run.lab = self.run.lab.bind(responder=TemplateResponder())
        if state.task_plan is None:
            if state.error is None:
                self.run.edit(error="it was stopped before there was a plan")
        elif node != "final_response":
            text = "somebody stopped the session"
            self._put(ReplanDecision(action=ReplanAction.ABORT, reasoning=text))

    def _put(self, decision: ReplanDecision) -> None:
        self.run.edit(forced_decision=decision, next_action=REFLECT, trigger=None)

    def _answer(self, made: ReplanDecision, order: Future[ReplanDecision] | None) -> None:
        tokens = [str(e.payload.get(REACT)) for e in made.events]
        with self._lock:
            told = [f for t in tokens if (f := self._asked.pop(t, None)) is not None]
        for future in (*told, *((order,) if order is not None else ())):
            future.set_result(made)

    def _end(self, order: Future[ReplanDecision] | None) -> None:
        self.run.inbox.waiting(close=True)
        self.run.lab.executor.close()
        with self._lock:
            self._ended.set()
            left = [*self._asked.values(), *(future for _, future in self._orders)]
        for future in (*left, *((order,) if order is not None else ())):
            future.set_exception(RunError(f"session {self.session_id} ended without deciding"))
        self._on_end(self)


def _future() -> Future[ReplanDecision]:
    future = Future[ReplanDecision]()
    future.set_running_or_notify_cancel()  # nobody takes back what the run has heard
    return future


class PlanningLoopRegistry:
    """The sessions that have not ended, by id; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, PlanningLoopSession] = {}

    def register(self, session: PlanningLoopSession) -> None:
        """Add a session.

        Raises
        ------
        RunError
            There is one of that id.
        """
        with self._lock:
            if session.session_id in self._sessions:
                raise RunError(f"there is a session {session.session_id!r} already")
            self._sessions[session.session_id] = session

    def get(self, session_id: str) -> PlanningLoopSession:
        """Return a session.

        Raises
        ------
        UnknownNameError
            There is none of that id, or it has ended.
        """
        with self._lock:
            if session_id not in self._sessions:
                raise UnknownNameError(
                    "session", session_id, self._sessions, "one that has ended is not known here"
                )
            return self._sessions[session_id]

    def remove(self, session_id: str) -> None:
        """Take a session out, where it is in."""
        with self._lock:
            self._sessions.pop(session_id, None)

    @property
    def active_sessions(self) -> tuple[PlanningLoopSession, ...]:
        """Those that have not ended, the oldest first."""
        with self._lock:
            return tuple(self._sessions.values())
