"""How a run goes on: where it stands, the visits it makes, and what is said to it meanwhile."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from agentlab.base.arrived import seen
from agentlab.base.documents import is_json
from agentlab.environments.base import Verdict
from agentlab.errors import RunError, UnknownNameError
from agentlab.lab.approval import answer_of_lab, with_review
from agentlab.lab.hearing import PLACE
from agentlab.lab.lab import Lab
from agentlab.plans.task_plan import TaskPlan
from agentlab.runs.graph import END, WAIT, Graph
from agentlab.runs.people import GO_ON, PAUSE, REVIEW, SAY, following, let_go, stopped, waits_for
from agentlab.runs.visits import Lineage, Visit
from agentlab.state.events import ContextChangeEvent
from agentlab.state.state import WAIT_FOR_REVIEW, State
from agentlab.state.tool_loop import LoopSignal, PendingApproval
from agentlab.trace.inbox import Inbox
from agentlab.trace.journal import Address, Entry, Journal, MemoryJournal
from agentlab.trace.recorder import Recorder
from agentlab.trace.span import Span

if TYPE_CHECKING:
    from agentlab.trace.store import Store


class Stepper:
    """A fold of nodes over states: the part of a run that goes on. Users hold a ``Run``."""

    def __init__(
        self,
        workflow: Graph,
        lab: Lab,
        states: list[State],
        visited: list[str],
        *,
        journal: Journal | None = None,
        lineage: Lineage | None = None,
        run_id: str | None = None,
        store: Store | None = None,
    ) -> None:
        self.run_id = run_id or uuid.uuid4().hex[:12]
        self.workflow = workflow
        self.recorder = Recorder()
        self.journal: Journal = journal if journal is not None else MemoryJournal()
        self.inbox = Inbox()
        self.lab = lab.bind(
            recorder=self.recorder, journal=self.journal, inbox=self.inbox,
            executor=lab.executor.for_run(),
        )  # fmt: skip
        self.states = states
        self.visited = visited
        self.lineage = lineage
        self.origin = len(visited)
        """Number of visits that were made before this object existed."""
        self._edits: dict[int, State] = {}
        self._abandoned: list[Any] = []  # before it was rewound
        self._marks: list[int] = []  # spans recorded before each visit of ours
        self.news = threading.Event()
        """Set when something was said, published, edited or a pause asked for: who sleeps while the
        run waits looks again."""
        self._lock = threading.RLock()
        self._store = store
        self._root = self.recorder.span(
            "run", workflow.name, visit=self.origin, now=states[-1].now
        ).span

    # ---- where it stands -------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the run stands."""
        return self.states[-1]

    @property
    def plan(self) -> TaskPlan:
        """The plan as it stands.

        Raises
        ------
        RunError
            There is none yet.
        """
        plan = self.state.task_plan
        if plan is None:
            raise RunError("the run has no plan yet; step past 'planning' first")
        return plan

    @property
    def next_node(self) -> str:
        """Name of the node that the next step runs, or END, or WAIT."""
        return WAIT if self.states[-1].paused else self._onward

    @property
    def _onward(self) -> str:
        """What follows, a pause aside."""
        return following(self.workflow, self.visited, self.states[-1], self._heard)

    @property
    def finished(self) -> bool:
        """True when no node is left."""
        return self.next_node == END

    @property
    def waiting(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person's answer (see ``review``)."""
        return () if self.finished else self.state.held

    @property
    def paused(self) -> bool:
        """True when the run stands for a pause; ``finish`` goes on, as does all that steps."""
        return self.state.paused

    @property
    def stands(self) -> bool:
        """True when nothing happens by itself: at the end, in a pause, or waiting for people."""
        return self._stands_at(self.next_node)

    def _stands_at(self, name: str) -> bool:
        return name == END or (name == WAIT and (self.paused or not self._lab_answers))

    @property
    def _lab_answers(self) -> bool:
        """True when a call waits that was asked about before there was this lab, which answers."""
        return bool(self.state.held) and self.lab.reviewer is not None

    def _heard(self) -> bool:
        """Say whether the next visit would hear of something that was published."""
        address = Address(len(self.visited), PLACE)
        return bool(self.inbox.waiting()) or self.journal.recorded(address) is not None

    @property
    def spans(self) -> list[Span]:
        """What this run recorded (a fork: since it was forked)."""
        return self.recorder.spans

    def _visit_number(self, at: int) -> int:
        if not isinstance(at, int):
            raise RunError(f"expected the number of a visit, got {seen(at)}")
        number = at + len(self.visited) if at < 0 else at
        if not 0 <= number < len(self.states):
            raise RunError(f"expected a visit between 0 and {len(self.visited)}, got {at}")
        return number

    def recorded(self, k: int) -> list[Span]:
        """Return the spans of the k-th visit that this run made itself."""
        end = self._marks[k + 1] if k + 1 < len(self._marks) else len(self.spans)
        return self.spans[self._marks[k] : end]

    @property
    def abandoned(self) -> Sequence[Any]:
        """Calls of tools that were told to stop and did not (see ``agentlab.lab.threads``)."""
        return (*self._abandoned, *self.lab.executor.abandoned)

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is reached as things stand."""
        return self.lab.verdict(self.state)

    # ---- going on --------------------------------------------------------------------------

    def step(self) -> Visit:
        """Make the next visit: run the next node.

        A visit of its own comes first where the run is paused, ``(go on)``, where a pause was asked
        for, ``(pause)``, and where the lab answers for a call that waits, ``(review)``.

        Returns
        -------
        Visit
            What happened.

        Raises
        ------
        RunError
            The run is finished, or waits for people.
        Exception
            Whatever the node raised; the run is as it was before.
        """
        with self._lock:
            if self.paused:
                return self.go_on()
            return self._step(self._onward)

    def _step(self, name: str) -> Visit:
        """Make the next visit of a run that is not paused, where ``name`` follows."""
        if name == END:
            raise RunError("the run is finished; say something, rewind or fork it to go on")
        state, by = self.states[-1], self.inbox.pause
        if by is not None or state.held:
            answers = self._lab_answers
            if (by is not None or answers) and (name == WAIT or not self._begun()):
                return self._stopped(by) if by is not None else self._answered()
        if name == WAIT:
            raise RunError(waits_for(self.waiting))
        if state.next_action == WAIT_FOR_REVIEW:  # an event ends the wait, which took none
            self.lab.executor.stood(state)
        return self._visit(name, self.workflow.nodes[name])

    def _begun(self) -> bool:
        """Say whether calls of the next visit are known: a process ended in it, and it goes on."""
        entries: Mapping[Address, Entry] = getattr(self.journal, "entries", {})
        return any(address.visit == len(self.visited) for address in entries)

    def _visit(self, name: str, node: Callable[[State, Lab], State]) -> Visit:
        before, mark = self.states[-1], len(self.recorder.spans)
        try:
            with self.recorder.under(self._root):
                after = node(before, self.lab)
            return self._append(name, before, after, mark)
        except BaseException:
            del self.recorder.spans[mark:]
            self.inbox.reopen()
            raise

    def _append(self, name: str, before: State, after: State, mark: int) -> Visit:
        index, spans = len(self.visited), self.recorder.spans[mark:]
        if self._store is not None:
            self._store.checkpoint(self.run_id, index, name, before, after, spans)
        self.states.append(after)
        self.visited.append(name)
        self._marks.append(mark)
        root, last = self._root, spans[-1]
        root.seconds = last.started + last.seconds - root.started
        root.sim_end = after.now
        root.output = {"final_response": after.final_response, "answer": after.answer}
        if self.lab.executor.wall and self.finished:
            self.lab.executor.close()
        return Visit(index, name, before, after, tuple(spans))

    def iterate(self) -> Iterator[tuple[str, State]]:
        """Step to the end, a pause, or a wait for people, yielding (visited, state after it).

        A run that is paused goes on first.
        """
        goes_on = self.paused
        while True:
            with self._lock:
                if goes_on:
                    visit, goes_on = self.go_on(), False
                else:
                    name = self.next_node
                    if self._stands_at(name):
                        return
                    visit = self._step(name)
            yield visit.node, visit.after

    def finish(self, max_visits: int = 10_000) -> State:
        """Step to the end, a pause, or a wait for people, and return the state.

        Raises
        ------
        RunError
            The end was not reached in ``max_visits`` visits.
        """
        for _ in islice(self.iterate(), max_visits):
            pass
        if self.stands:
            return self.state
        raise RunError(f"not finished after {max_visits} visits")

    def run_until(self, target: str | Callable[[State], bool], max_visits: int = 10_000) -> State:
        """Step to just before a node, until a condition holds, to a pause or a wait for people.

        Parameters
        ----------
        target : str or callable
            A node's name, or a predicate of the state. At least one visit is made when the run
            already stands before that node.

        Raises
        ------
        UnknownNameError
            The workflow has no such node.
        RunError
            The run ended, or ``max_visits`` were made, without getting there.
        """
        if isinstance(target, str) and target not in self.workflow.nodes:
            raise UnknownNameError("node", target, self.workflow.nodes)
        for _ in islice(self.iterate(), max_visits):
            there = self.next_node == target if isinstance(target, str) else target(self.state)
            if there:
                return self.state
        if self.finished:
            raise RunError(f"the run ended without reaching {target!r}")
        if self.stands:
            return self.state
        raise RunError(f"did not reach {target!r} in {max_visits} visits")

    def pause(self, *, by: str = "a person") -> None:
        """Make the run stand after the visit under way; any thread may call it.

        The run hears of it where it would go on, as a visit of its own, ``(pause)``, stored and
        replayed like others; calls under way in threads go on meanwhile. ``finish``, ``iterate``,
        ``run_until``, ``step`` and ``go_on`` end it. Where the run has ended nothing comes of it.

        Parameters
        ----------
        by : str
            Recorded with the pause.
        """
        if self.inbox.pause is None:
            self.inbox.pause = by
        self.lab.executor.notify()
        self.news.set()

    def go_on(self, *, by: str = "a person") -> Visit:
        """End a pause; a visit of its own, ``(go on)``. Nothing else happens in it.

        What waits for people still does, and who steps the run, a session's thread, goes on.

        Raises
        ------
        RunError
            The run is not paused.
        """
        with self._lock:
            if not self.paused:
                raise RunError(f"the run is not paused; it stands before {self.next_node!r}")
            paused_at = [s for n, s in zip(self.visited, self.states, strict=False) if n == PAUSE]
            before = paused_at[-1].loop.loop_signal if paused_at else LoopSignal.RUNNING
            return self._by_hand(GO_ON, lambda s, lab: let_go(s, lab, by, before))

    def _stopped(self, by: str) -> Visit:
        return self._by_hand(PAUSE, lambda s, lab: stopped(s, lab, by))

    def publish(self, event: ContextChangeEvent) -> None:
        """Let the run know that something happened; any thread may call it.

        The node that watches execution hears of it at its next visit, or at once where it waits.

        Parameters
        ----------
        event : ContextChangeEvent
            Without a session it becomes this run's, without a time it happened now. A payload
            ``{"learned": patch}`` is a merge patch on the belief: planners go by it until a
            tool shows otherwise.

        Raises
        ------
        RunError
            The run has ended, the event belongs to another session, or it is no event of JSON.
        """
        state = self.state
        if not isinstance(event, ContextChangeEvent) or not is_json(event.payload):
            raise RunError(
                f"expected a ContextChangeEvent with a payload of JSON, got {seen(event)}"
            )
        if event.session_id not in ("", state.session_id):
            raise RunError(
                f"the event is of session {event.session_id!r}, this is {state.session_id!r}"
            )
        if self.finished:
            raise RunError(f"the run has ended; nobody hears of {event.type} any more")
        at = event.occurred_at or state.now
        self.inbox.put(event.replace(session_id=state.session_id, occurred_at=at))
        self.lab.executor.notify()
        self.news.set()

    def _answered(self) -> Visit:
        """Let the lab answer for the first call that waits."""
        one = self.state.held[0]
        return self._by_hand(
            REVIEW, lambda s, lab: with_review(s, lab, one, answer_of_lab(s, lab, one))
        )

    def _by_hand(self, name: str, change: Callable[[State, Lab], State]) -> Visit:
        """Make a visit of what a person says; waiting took no time."""
        if name == SAY:
            self.inbox.reopen()
        self.lab.executor.stood(self.state)
        visit = self._visit(name, lambda s, lab: change(s, lab).replace(visit=s.visit + 1))
        if name in (PAUSE, GO_ON):
            self.inbox.pause = None
        self.news.set()
        return visit

    def __repr__(self) -> str:
        calls = ", ".join(call.call_id for call in self.waiting)
        where = "paused" if self.paused else f"before {self.next_node!r}"
        where += f", waiting for people: {calls}" if calls else ""
        where = "finished" if self.finished else where
        return f"<run {self.run_id} of {self.workflow.name!r}, {len(self.visited)} visits, {where}>"
