"""A run: one workflow under way, a fold of nodes over immutable states.

``states[i]`` precedes visit i, so ``states[-1]`` is where the run stands. Because a state is a
value with the world inside, going back is dropping states, and a fork shares them: what came
before the fork is never executed again.

The file is over 400 lines: it is the one face of all that can be done with a run, much of it
documentation; what that takes stands in ``editing``, ``people``, ``visits`` and ``trace``.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from agentlab.base.documents import is_json
from agentlab.base.face import load
from agentlab.base.registry import registry
from agentlab.environments.base import Verdict
from agentlab.errors import ReplayError, RunError, UnknownNameError, suggest
from agentlab.lab.approval import (
    answer_of_lab,
    read_answer,
    reviewed,
    still_held,
    with_review,
)
from agentlab.lab.hearing import PLACE
from agentlab.lab.lab import Lab
from agentlab.lab.talk import ask_again
from agentlab.plans.task_plan import TaskPlan
from agentlab.runs.graph import END, WAIT, Graph
from agentlab.runs.people import (
    BY_HAND,
    GO_ON,
    PAUSE,
    REVIEW,
    SAY,
    following,
    let_go,
    next_turn,
    said_again,
    stopped,
    waits_for,
)
from agentlab.runs.visits import Lineage, Visit
from agentlab.state.decisions import ReplanDecision
from agentlab.state.events import ContextChangeEvent
from agentlab.state.state import WAIT_FOR_REVIEW, State
from agentlab.state.tool_loop import LoopSignal, PendingApproval
from agentlab.trace.compare import ReplayReport, first_difference, rows
from agentlab.trace.inbox import Inbox
from agentlab.trace.journal import Address, Entry, Journal, MemoryJournal, ReplayJournal
from agentlab.trace.recorder import Recorder
from agentlab.trace.served import answered
from agentlab.trace.span import Span

if TYPE_CHECKING:
    from agentlab.trace.store import Store
from agentlab.runs.editing import _edited, _interrupted


class Run:
    """One workflow under way. Make one with ``workflow.start(lab)``."""

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

    @classmethod
    def start(
        cls,
        workflow: Graph,
        lab: Lab,
        user_input: str | None = None,
        *,
        user_id: str = "",
        session_id: str = "",
        handler: object | None = None,
        store: Store | str | None = None,
        **fields: Any,
    ) -> Run:
        """Return a run in which nothing has happened yet.

        Parameters
        ----------
        workflow : Workflow
        lab : Lab
        user_input : str, optional
            Default: the scenario's task.
        user_id, session_id : str
        handler : object, optional
            Hears stream events; default: the lab's.
        store : Store or path, optional
            Makes the run durable: every visit is written to disk, and so is every call to the
            outside, before and after.
        **fields
            Other fields of the first state.
        """
        if handler is not None:
            lab = lab.bind(handler=handler)
        if workflow.strategy is not None and not lab.strategy_named:
            lab = lab.bind(strategy=workflow.strategy(lab))
        if user_id or session_id:
            fields |= {"user_id": user_id, "session_id": session_id}
        first = lab.initial_state(user_input, **fields)
        if store is None:
            return cls(workflow, lab, [first], [])
        from agentlab.trace.store import Store

        kept = store if isinstance(store, Store) else Store(store)
        run_id = uuid.uuid4().hex[:12]
        journal = kept.start_run(run_id, workflow.name, first)
        return cls(workflow, lab, [first], [], journal=journal, run_id=run_id, store=kept)

    @classmethod
    def resume(
        cls, store: Store | str, lab: Lab, run_id: str | None = None,
        workflow: Graph | None = None, handler: object | None = None,
    ) -> Run:  # fmt: skip
        """Go on with a durable run after its process ended, from its last checkpoint.

        Parameters
        ----------
        store : Store or path
        lab : Lab
            Built as for the run that was killed.
        run_id : str, optional
            Default: the store's latest run.
        workflow : Workflow, optional
            Default: the one of that name.
        handler : object, optional

        Raises
        ------
        StoreError, RunError
            There is no such file, or it has no such run.
        """
        from agentlab.trace.store import Store

        if not isinstance(store, Store):
            Store(store, read_only=True).close()  # no results file is made where there is none
        kept = store if isinstance(store, Store) else Store(store)
        found = kept.load_run(run_id)
        if workflow is None:
            workflow = registry("workflow").build(found.workflow)
        if handler is not None:
            lab = lab.bind(handler=handler)
        if workflow.strategy is not None and not lab.strategy_named:
            lab = lab.bind(strategy=workflow.strategy(lab))
        run = cls(
            workflow, lab, found.states, found.visited, journal=found.journal,
            run_id=found.run, store=kept,
            lineage=None if found.parent is None else Lineage(found.parent, found.origin),
        )  # fmt: skip
        run.origin, run._edits = found.origin, found.edits
        for spans in found.spans:
            run._marks.append(len(run.spans))
            run.spans.extend(spans)
        return run

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
        return WAIT if self.paused else self._onward

    @property
    def _onward(self) -> str:
        """What follows, a pause aside."""
        return following(self.workflow, self.visited, self.state, self._heard)

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
        at = self.next_node
        return at == END or (at == WAIT and (self.paused or not self._lab_answers))

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
            name = self.next_node
            if name == END:
                raise RunError("the run is finished; say something, rewind or fork it to go on")
            by, answers = self.inbox.pause, self._lab_answers
            if (by is not None or answers) and (name == WAIT or not self._begun()):
                return self._stopped(by) if by is not None else self._answered()
            if name == WAIT:
                raise RunError(waits_for(self.waiting))
            if self.state.next_action == WAIT_FOR_REVIEW:  # an event ends the wait, which took none
                self.lab.executor.stood(self.state)
            return self._visit(name, self.workflow.nodes[name])

    def _begun(self) -> bool:
        """Say whether calls of the next visit are known: a process ended in it, and it goes on."""
        entries: Mapping[Address, Entry] = getattr(self.journal, "entries", {})
        return any(address.visit == len(self.visited) for address in entries)

    def _visit(self, name: str, node: Callable[[State, Lab], State]) -> Visit:
        before, mark = self.state, len(self.spans)
        try:
            with self.recorder.under(self._root):
                after = node(before, self.lab)
            return self._append(name, before, after, mark)
        except BaseException:
            del self.recorder.spans[mark:]
            self.inbox.reopen()
            raise

    def _append(self, name: str, before: State, after: State, mark: int) -> Visit:
        index = len(self.visited)
        if self._store is not None:
            self._store.checkpoint(self.run_id, index, name, before, after, self.spans[mark:])
        self.states.append(after)
        self.visited.append(name)
        self._marks.append(mark)
        root = self._root
        root.seconds = self.spans[-1].started + self.spans[-1].seconds - root.started
        root.sim_end = after.now
        root.output = {"final_response": after.final_response, "answer": after.answer}
        if self.lab.executor.wall and self.finished:
            self.lab.executor.close()
        return Visit(index, name, before, after, tuple(self.spans[mark:]))

    def iterate(self) -> Iterator[tuple[str, State]]:
        """Step to the end, a pause, or a wait for people, yielding (visited, state after it).

        A run that is paused goes on first.
        """
        goes_on = self.paused
        while goes_on or not self.stands:
            visit = self.step()
            yield visit.node, visit.after
            goes_on = False

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
            raise RunError(f"expected a ContextChangeEvent with a payload of JSON, got {event!r}")
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

    # ---- people in the loop ----------------------------------------------------------------

    def review(
        self, call_id: str, answer: str, arguments: Mapping[str, Any] | None = None, *,
        reason: str = "", by: str = "a person",
    ) -> Visit:  # fmt: skip
        """Answer for a call that waits for approval; a visit of its own, ``(review)``.

        Parameters
        ----------
        call_id : str
            As ``waiting`` lists it: the id of the step.
        answer : {"approve", "edit", "reject"}
            A rejected step fails with code "rejected" and is not tried again.
        arguments : mapping, optional
            With "edit": what to call with; held against the tool's schema.
        reason, by : str
            Recorded with the decision.

        Raises
        ------
        RunError
            No such call waits (any more), or the arguments do not fit; the run still waits.
        """
        with self._lock:
            pending = {p.call_id: p for p in self.waiting}
            if call_id not in pending:
                near = suggest(call_id, pending) if pending else "none does"
                raise RunError(f"no call {call_id!r} waits for a review; {near}")
            one = pending[call_id]
            said = reviewed(one, self.lab.tools, answer, arguments, reason, by)
            return self._by_hand(REVIEW, lambda s, lab: with_review(s, lab, one, said))

    def _answered(self) -> Visit:
        """Let the lab answer for the first call that waits."""
        one = self.state.held[0]
        return self._by_hand(
            REVIEW, lambda s, lab: with_review(s, lab, one, answer_of_lab(s, lab, one))
        )

    def say(self, text: str, *, by: str = "user") -> Visit:
        """Begin the next turn of a run that has ended; a visit of its own, ``(say)``.

        What belongs to a turn is fresh, and the history is kept (see ``State.next_turn``). Calls
        that wait are rejected first, with the text for a reason. The graph's entry follows.

        Raises
        ------
        RunError
            The run has not ended and does not wait for people, or there is nothing to say.
        """
        if not isinstance(text, str) or not text.strip():
            raise RunError(f"expected what the user says, a text, got {text!r}")
        with self._lock:
            if self._onward not in (END, WAIT):  # paused in the middle of a turn is under way
                raise RunError(f"the run is under way, before {self._onward!r}; finish it first")
            for one in self.waiting:
                self.review(one.call_id, "reject", reason=text, by=by)
            return self._said(text, by)

    def _said(self, text: str, by: str) -> Visit:
        return self._by_hand(SAY, lambda s, lab: next_turn(s, lab, text, by))

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

    # ---- changing what is ------------------------------------------------------------------

    def edit(self, plan: TaskPlan | None = None, **fields: Any) -> State:
        """Change the state that the run stands at.

        Parameters
        ----------
        plan : TaskPlan, optional
            A new plan; settled steps must stay as they are.
        **fields
            State fields, e.g. ``fault_plan=...``, ``forced_decision=...``.

        Raises
        ------
        RunError
            A field does not exist or has the wrong type, or the plan changes what is settled.
        """
        with self._lock:
            edited = still_held(_edited(self.state, plan, fields), self.state.task_plan)
            if self._store is not None:
                self._store.checkpoint(
                    self.run_id, len(self.visited) - 1, "(edit)", self.state, edited
                )
            self.states[-1] = edited
            self._forget(len(self.visited))
            self._edits[len(self.visited)] = edited
            self.news.set()
            return edited

    def _forget(self, at: int) -> None:
        """Forget calls made at visit ``at`` or later: what is done there now is another thing."""
        if self._store is None and isinstance(self.journal, MemoryJournal):
            kept = {a: e for a, e in self.journal.entries.items() if a.visit < at}
            self.journal.entries = kept

    def rewind(self, to: int) -> State:
        """Go back to before visit ``to``; what came after is dropped.

        Raises
        ------
        RunError
            ``to`` is no visit of this run, or the run is durable (fork it instead).
        """
        with self._lock:
            at = self._visit_number(to)
            if self._store is not None:
                raise RunError("a durable run only grows; fork it instead of rewinding it")
            if at < self.origin:
                raise RunError(
                    f"visit {at} was made before this run was forked; fork there instead"
                )
            if at < len(self.visited):
                del self.recorder.spans[self._marks[at - self.origin] :]
                del self._marks[at - self.origin :]
            self._forget(at)
            del self.states[at + 1 :]
            del self.visited[at:]
            self._edits = {k: v for k, v in self._edits.items() if k <= at}
            self.inbox.reopen()
            if self.lab.executor.wall:
                self.lab.executor.close()
                self._abandoned += self.lab.executor.abandoned
                self.lab = self.lab.bind(executor=self.lab.executor.for_run())
                if self.state.under_way:
                    self._edits[at] = self.states[-1] = _interrupted(self.state, self.lab)
            return self.state

    def fork(
        self,
        at: int | None = None,
        *,
        plan: TaskPlan | None = None,
        state: dict[str, Any] | None = None,
        decision: ReplanDecision | None = None,
        replies: Mapping[int, str | Mapping[str, Any]] | None = None,
        seed: int | None = None,
        lab: Lab | None = None,
        review: Mapping[str, Any] | None = None,
        handler: object | None = None,
    ) -> Run:
        """Start a new run from before visit ``at`` of this one; nothing before is executed again.

        The fork of a durable run is durable, in the same file.

        In simulated time what is under way goes on as it would here; calls in threads cannot be
        shared, so there it is interrupted in the fork.

        Parameters
        ----------
        at : int, optional
            Default: where this run stands. Negative numbers count from there.
        plan : TaskPlan, optional
            Edited plan; settled steps must stay as they are.
        state : dict, optional
            State fields to change.
        decision : ReplanDecision, optional
            What the next reflection decides.
        replies : mapping of int to str or mapping, optional
            Number of an LM call of visit ``at``, from 0, to the text it is answered by, or to
            ``{"text": ..., "tool_calls": [{"name": ..., "arguments": {...}}]}``; calls before it
            keep their replies.
        seed : int, optional
            Redraws the faults and noise of the future only.
        lab : Lab, optional
            Go on with another planner, strategy (and its budget) or handler.
        review : mapping of str to str or dict, optional
            Call that waits there to the answer: "approve", "reject", or a dict with ``answer``
            ("edit" too), ``arguments``, ``reason``, ``by``.
        handler : object, optional

        Raises
        ------
        RunError
            ``at`` is no visit of this run, or an edit is refused.
        """
        where = self._visit_number(len(self.visited) if at is None else at)
        fields = dict(state or {})
        if decision is not None:
            fields["forced_decision"] = decision
        if seed is not None:
            fields["seed"] = seed
        if lab is not None and lab.strategy.budget != self.lab.strategy.budget:
            fields.setdefault("max_loops", lab.strategy.budget.replans)
            fields.setdefault("max_replans", lab.strategy.budget.replans)
            fields.setdefault("max_task_iterations", lab.strategy.budget.executions)
        base = self.states[where]
        used = self.lab if lab is None else lab
        if used.executor.wall and base.under_way:
            base = _interrupted(base, used)
        edited = _edited(base, plan, fields) if plan is not None or fields else base
        given = {
            "plan": plan, "state": state, "decision": decision, "replies": replies, "seed": seed,
            "lab": lab, "review": review,
        }  # fmt: skip
        edits = tuple(k for k, v in given.items() if v is not None)
        if handler is not None:
            used = used.bind(handler=handler)
        calls = [s for s in self.recorder.of_kind("lm") if s.visit == where]
        entries: Mapping[Address, Entry] = getattr(self.journal, "entries", {})
        known = [e for a, e in entries.items() if a.visit == where]
        first = still_held(edited, base.task_plan)
        journal, run_id = MemoryJournal(), uuid.uuid4().hex[:12]
        if self._store is not None:
            name = self.workflow.name
            journal = self._store.start_run(run_id, name, first, self.run_id, where)
        for e in answered(calls, replies, known) if replies else ():
            journal.finish(e.address, e.name, e.request, e.result, e.error)
        fork = Run(
            self.workflow, used, [*self.states[:where], first], self.visited[:where],
            journal=journal, run_id=run_id, store=self._store,
            lineage=Lineage(self.run_id, where, edits),
        )  # fmt: skip
        for call_id, said in (review or {}).items():
            fork.review(call_id, **read_answer(said))
        return fork

    def ask_again(self, call: Span, prompt: str | None = None) -> str:
        """Ask the lab's model once more what it was asked in a call; the run stays as it is.

        Parameters
        ----------
        call : Span
            Of kind "lm", as in ``run.recorder.of_kind("lm")``.
        prompt : str, optional
            Takes the place of the last message.

        Returns
        -------
        str
            The reply; ``fork(at=call.visit, replies={0: reply})`` goes on with it.

        Raises
        ------
        RunError
            There is no model, or the span is no LM call.
        LMError, RecordingMiss
            No reply came.
        """
        return ask_again(self.lab.model, call, prompt)

    def _visit_number(self, at: int) -> int:
        if not isinstance(at, int):
            raise RunError(f"expected the number of a visit, got {at!r}")
        number = at + len(self.visited) if at < 0 else at
        if not 0 <= number < len(self.states):
            raise RunError(f"expected a visit between 0 and {len(self.visited)}, got {at}")
        return number

    # ---- again -----------------------------------------------------------------------------

    def replay(self) -> ReplayReport:
        """Run the recorded visits again with every outside call served from the recording.

        Nothing outside is called. The simulated world, which is a value, is computed again and
        compared. The replay stops at the first difference in kind, name, address, input, output,
        error or simulated times, and never goes on past what was recorded.
        """
        if not isinstance(self.journal, MemoryJournal):
            raise RunError("this run's journal cannot be replayed")
        served = ReplayJournal(self.journal.entries.values())
        again = Run(
            self.workflow,
            self.lab.bind(handler=None),
            [self.states[self.origin]],
            self.visited[: self.origin],
            journal=served,
        )
        if self.origin:
            again.states[:0] = self.states[: self.origin]
        total = len(self.visited) - self.origin
        for k in range(total):
            edited = self._edits.get(self.origin + k)
            if edited is not None:
                again.states[-1] = edited
            problem = self._replayed(again, k)
            if problem is not None:
                return ReplayReport(False, total, k, served.served, problem)
        return ReplayReport(True, total, total, served.served)

    def _replayed(self, again: Run, k: int) -> str | None:
        """Make visit ``origin + k`` again; return the first difference, or None.

        The lab answers for calls where it did: it may have been given when the run was resumed.
        """
        name = self.visited[self.origin + k]
        if name in BY_HAND:
            return self._said_again(again, k)
        if again.next_node != name:
            return f"visit {self.origin + k}: recorded node {name!r}, now {again.next_node!r}"
        answered = any((s.kind, s.name) == ("decision", "review") for s in self._recorded(k))
        reviewer = self.lab.reviewer if answered else None
        if again.lab.reviewer is not reviewer:
            again.lab = again.lab.bind(review=reviewer)
        try:
            visit = again.step()
        except ReplayError as e:
            return f"visit {self.origin + k}: {e}"
        except Exception as e:  # the recorded visit raised nothing
            return f"visit {self.origin + k}: now raises {type(e).__name__}: {e}"
        return first_difference(rows(self._recorded(k)), rows(visit.spans))

    def _recorded(self, k: int) -> list[Span]:
        """Return the spans of our k-th visit."""
        end = self._marks[k + 1] if k + 1 < len(self._marks) else len(self.spans)
        return self.spans[self._marks[k] : end]

    def _said_again(self, again: Run, k: int) -> str | None:
        """Put what a person said at visit ``origin + k`` into a replay."""
        spans = self._recorded(k)
        try:
            visit = said_again(again, next(s for s in spans if s.kind == "decision"))
        except RunError as e:
            return f"visit {self.origin + k}: {e}"
        return first_difference(rows(spans), rows(visit.spans))

    def __repr__(self) -> str:
        calls = ", ".join(call.call_id for call in self.waiting)
        where = "paused" if self.paused else f"before {self.next_node!r}"
        where += f", waiting for people: {calls}" if calls else ""
        where = "finished" if self.finished else where
        return f"<run {self.run_id} of {self.workflow.name!r}, {len(self.visited)} visits, {where}>"

    def _repr_html_(self) -> str:
        """Show the run where widgets cannot: plan graph, steps, what happened, trace."""
        return str(load("agentlab.views.page.html:run_html")(self))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Show the Inspector in a notebook; nothing more than the static form elsewhere."""
        return load("agentlab.views.inspector.bundle:mimebundle")(self)
