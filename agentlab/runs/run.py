"""A run: one workflow under way, a fold of nodes over immutable states.

``states[i]`` precedes visit i, so ``states[-1]`` is where the run stands. Because a state is a
value with the world inside, going back is dropping states, and a fork shares them: what came
before the fork is never executed again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentlab.base.arrived import instance
from agentlab.base.face import load
from agentlab.errors import RunError, seen, suggest
from agentlab.lab.approval import read_answer, reviewed, still_held, with_review
from agentlab.lab.lab import Lab
from agentlab.lab.talk import ask_again
from agentlab.plans.task_plan import TaskPlan
from agentlab.runs.editing import _edited, _interrupted
from agentlab.runs.given import lab_of, mapping_of, path_of, ready
from agentlab.runs.graph import END, WAIT, Graph
from agentlab.runs.people import REVIEW, SAY, next_turn
from agentlab.runs.replay import replayed
from agentlab.runs.resuming import begun, resumed
from agentlab.runs.stepping import Stepper
from agentlab.runs.trust import approve, name_uses
from agentlab.runs.visits import Lineage, Visit
from agentlab.state.decisions import ReplanDecision
from agentlab.state.state import State
from agentlab.trace.compare import ReplayReport
from agentlab.trace.journal import Address, Entry, MemoryJournal, ReplayJournal
from agentlab.trace.served import answered
from agentlab.trace.span import Span

if TYPE_CHECKING:
    from agentlab.trace.store import Store


class Run(Stepper):
    """One workflow under way. Make one with ``workflow.start(lab)``."""

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
        lab = ready(workflow, lab, handler)
        for name, given in (("user_id", user_id), ("session_id", session_id)):
            instance(name, given, str, "a text")
        if user_id or session_id:
            fields |= {"user_id": user_id, "session_id": session_id}
        first = lab.initial_state(user_input, **fields)
        if store is None:
            return cls(workflow, lab, [first], [])
        from agentlab.trace.store import Store

        kept = store if isinstance(store, Store) else Store(path_of("store", store))
        run_id = uuid.uuid4().hex[:12]
        journal, owner = begun(kept, run_id, workflow.name, first)
        approve(name_uses("workflow", workflow.name))
        return cls(
            workflow, lab, [first], [], journal=journal, run_id=run_id, store=kept, owner=owner
        )

    @classmethod
    def resume(
        cls, store: Store | str, lab: Lab, run_id: str | None = None,
        workflow: Graph | None = None, handler: object | None = None, *, lock: bool = True,
        trust: bool = False,
    ) -> Run:  # fmt: skip
        """Go on with a durable run after its process ended, from its last checkpoint.

        One process goes on with a run, and in it one object: a ``Run`` of this process that does
        nothing at the moment is taken over from, and is only to be looked at from then on.

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
        lock : bool
            Of a path: see ``Store``.
        trust : bool
            Import the workflow that the store names, where another user may have named it.

        Raises
        ------
        StoreError, RunError
            There is no such file, or it has no such run; an ``OwnedError`` where another process,
            or a thread of this one, goes on with it.
        """
        from agentlab.trace.store import Store

        if not isinstance(store, Store):
            Store(store, read_only=True).close()  # no results file is made where there is none
        kept = store if isinstance(store, Store) else Store(path_of("store", store), lock=lock)
        lab = lab_of(lab) if handler is None else lab_of(lab).bind(handler=handler)
        return resumed(cls, kept, lab, run_id, workflow, trust)

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
            if not isinstance(call_id, str) or call_id not in pending:
                near = suggest(call_id, pending) if pending else "none does"
                raise RunError(f"no call {seen(call_id)} waits for a review; {near}")
            one = pending[call_id]
            said = reviewed(one, self.lab.tools, answer, arguments, reason, by)
            return self._by_hand(REVIEW, lambda s, lab: with_review(s, lab, one, said))

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
            raise RunError(f"expected what the user says, a text, got {seen(text)}")
        with self._lock:
            if self._onward not in (END, WAIT):  # paused in the middle of a turn is under way
                raise RunError(
                    f"the run is under way, before {seen(self._onward)}; finish it first"
                )
            for one in self.waiting:
                self.review(one.call_id, "reject", reason=text, by=by)
            return self._said(text, by)

    def _said(self, text: str, by: str) -> Visit:
        return self._by_hand(SAY, lambda s, lab: next_turn(s, lab, text, by))

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
            with self._owned():
                if self._store is not None:
                    at = len(self.visited) - 1
                    self._store.checkpoint(self.run_id, at, "(edit)", self.state, edited)
            self._let_go()
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
        fields, lab = dict(mapping_of("state", state)), lab_of(lab) if lab is not None else None
        replies = None if replies is None else mapping_of("replies", replies)
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
        journal, run_id, owner = MemoryJournal(), uuid.uuid4().hex[:12], None
        if self._store is not None:
            journal, owner = begun(
                self._store, run_id, self.workflow.name, first, self.run_id, where
            )
        for e in answered(calls, replies, known) if replies else ():
            journal.finish(e.address, e.name, e.request, e.result, e.error)
        fork = Run(
            self.workflow, used, [*self.states[:where], first], self.visited[:where],
            journal=journal, run_id=run_id, store=self._store, owner=owner,
            lineage=Lineage(self.run_id, where, edits),
        )  # fmt: skip
        for call_id, said in mapping_of("review", review).items():
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
        return ask_again(self.lab.model, call, prompt, self.state.seed)

    # ---- again -----------------------------------------------------------------------------

    def replay(self) -> ReplayReport:
        """Run the recorded visits again with every outside call served from the recording.

        Nothing outside is called. The simulated world, which is a value, is computed again and
        compared. The replay stops at the first difference in kind, name, address, input, output,
        error or simulated times, and never goes on past what was recorded.

        Raises
        ------
        RunError
            The run was made with a journal that cannot be replayed.
        """
        if not isinstance(self.journal, MemoryJournal):
            raise RunError("this run's journal cannot be replayed")
        served = ReplayJournal(self.journal.entries.values())
        states, visited = self.states[: self.origin + 1], self.visited[: self.origin]
        again = Run(self.workflow, self.lab.bind(handler=None), states, visited, journal=served)
        return replayed(self, again, served)

    def _repr_html_(self) -> str:
        """Show the run where widgets cannot: plan graph, steps, what happened, trace."""
        return str(load("agentlab.views.page.html:run_html")(self))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Show the Inspector in a notebook; nothing more than the static form elsewhere."""
        return load("agentlab.views.inspector.bundle:mimebundle")(self)
