"""The Inspector: a run in the notebook, one step at a time or all at once.

A thin view over a ``Run``, which works without it. The front end (``inspector.js``) sends what a
person did as ``{"do": action, ...}``; the action is carried out on the run and ``view`` is made
anew from records. Python makes every piece of HTML (``html.py``, escaped there) and the front end
puts it in place.

Every action is short and synchronous, so it works beside any event loop. A long run goes on in
chunks: after each the front end shows where the run is and asks for the next, unless a person
paused. Whatever an action raises is shown as a message, kept in ``error``, and the run stays as it
was before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, ref

from agentlab.base.arrived import instance
from agentlab.base.documents import shortened
from agentlab.environments.fault_plan import FaultKind, Persistence, TargetedFault
from agentlab.errors import AgentLabError, PlanError, PlanParseError, RunError, UnknownNameError
from agentlab.plans.task_plan import TaskPlan
from agentlab.runs.graph import END
from agentlab.runs.run import Run
from agentlab.state.events import ChangeType, ContextChangeEvent
from agentlab.state.state import State
from agentlab.state.tool_loop import Answer
from agentlab.trace.span import Span
from agentlab.views.inspector.place import Placed
from agentlab.views.inspector.plan_text import edited_plan, remaining_text
from agentlab.views.inspector.view import happened, named, offered, panels, stands
from agentlab.views.page import html
from agentlab.views.page.markup import clean
from agentlab.views.people import read_arguments

CHUNK = 0.15
"""Seconds of a long run between two looks at it."""

SAID = 500
"""Characters of a message; an error is whole in ``Inspector.error``."""

HERE = Path(__file__).parent


class Inspector(Placed):
    """Show and steer a run.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    run : Run
        The run that is shown: the one given, or a fork made here.
    runs : list of Run
        The one given and every fork made here.
    error : BaseException or None
        What the last action raised; ``raise inspector.error`` shows where.
    view : dict
        What the front end shows.
    """

    _esm = HERE / "inspector.js"
    _css = HERE.parent / "page" / "agentlab.css"

    def __init__(self, run: Run) -> None:
        self.runs: list[Run] = [run]
        expected = "a Run, such as al.autonomous.start(lab)"
        self.run: Run = instance("Inspector", run, Run, expected)
        self.error: BaseException | None = None
        self._at: int | None = None  # the visit that is looked at; None: where the run stands
        self._step: str | None = None
        self._goal: str | None = None  # the node a long run is under way to
        self._message: dict[str, str] | None = None
        self._editor: dict[str, Any] = {"errors": [], "accepted": 0}
        self._asking: dict[str, Any] | None = None  # the LM call that is edited
        self._turns = threading.RLock()  # actions may come in a thread beside the cell's
        super().__init__()
        self.add_class("agentlab-inspector")
        self.on_msg(self._act)
        self.refresh()
        _follow_cells(self)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the static form, in whose place the live one is put (see ``place``)."""
        data, metadata = self.forms(html.run_html(self.run))
        return {**data, "text/plain": repr(self)}, metadata

    def __repr__(self) -> str:
        return f"<inspector of run {self.run.run_id}>"

    # ---- what a person does ---------------------------------------------------------------

    def _act(self, _widget: object, content: Any, _buffers: object = None) -> None:
        """Carry out one action of the front end."""
        given = dict(content) if isinstance(content, dict) else {}
        name = given.pop("do", None)
        with self._turns:
            self._message = self.error = None
            try:
                action: Callable[..., None] | None = ACTIONS.get(name)
                if action is None:
                    raise RunError(f"the Inspector has no action {name!r}")
                action(self, **given)
            except (Exception, KeyboardInterrupt) as e:
                self._goal = None
                self.error = e
                self._say(_explained(e), "error")
            try:
                self.refresh()
            except Exception as e:  # the person still gets an answer
                self.error = e
                self._say(f"The run cannot be shown: {_explained(e)}", "error")
                self.view = {**self.view, "message": self._message, "running": False}

    def _say(self, text: str, kind: str = "note") -> None:
        self._message = {"kind": kind, "text": clean(shortened(text, SAID))}

    def _do_step(self) -> None:
        self._goal = None
        if self.run.paused:
            self.run.go_on()
        visit = self.run.step()
        self._at = None
        self._say(f"{visit.node}: {happened(visit) or 'done'}")

    def _do_run(self, node: str = END) -> None:
        if self.run.finished:
            raise RunError("the run is finished; say something, rewind or fork it to go on")
        known = (*self.run.workflow.nodes, END)
        if node not in known:
            raise UnknownNameError("node", str(node), known)
        self._at, self._goal = None, node
        self._do_go_on()

    def _do_go_on(self) -> None:
        """Run on for a moment, to the end or to just before the node that was asked for."""
        if self._goal is None:
            return
        run, goal, end = self.run, self._goal, time.perf_counter() + CHUNK
        run.run_until(lambda _: run.next_node == goal or run.stands or time.perf_counter() >= end)
        if run.next_node == goal or run.stands:
            self._goal = None
            missed = "" if run.next_node == goal else f"The run ended without reaching {goal}."
            self._say(stands(run) or missed)

    def _do_pause(self) -> None:
        self._goal = None
        self._say(f"Paused after {len(self.run.visited)} visits.")
        if not self.run.stands:
            self.run.pause()
            self.run.run_until(lambda _: self.run.stands)

    def _do_rewind(self) -> None:
        self._goal = None
        to = self._place()
        if to == len(self.run.visited):
            to -= 1
        if to < 0:
            raise RunError("nothing has run yet, so there is nothing to go back to")
        self.run.rewind(to)
        self._at = None
        self._say(f"Back before visit {to}.")

    def _do_fork(self) -> None:
        self._forked(self.run.fork(self._place()))

    def _forked(self, fork: Run) -> None:
        self._goal = self._at = None
        self.runs.append(fork)
        self.run = fork
        at = len(fork.visited)
        self._say(f"This is a fork from before visit {at}; nothing was executed again.")

    def _do_show_run(self, index: int) -> None:
        self.run = self.runs[index]
        self._goal = self._at = None

    def _do_inject(
        self, kind: str, tool: str, persistence: str = "transient", silent: bool = False
    ) -> None:
        known = self.run.lab.tools
        known[tool]  # an unknown one is an error that names the nearest
        target = TargetedFault(
            tool=tool, kind=FaultKind(kind), persistence=Persistence(persistence),
            visibility="silent" if silent else "announced",  # type: ignore[arg-type]
        )  # fmt: skip
        plan = self.run.state.fault_plan
        self.run.edit(fault_plan=plan.replace(targets=(*plan.targets, target)))
        self._at = None
        self._say(f"Calls of {tool} meet {kind} from here on.")

    def _do_clear_faults(self) -> None:
        self.run.edit(fault_plan=self.run.state.fault_plan.replace(targets=()))
        self._say("No fault is aimed at a tool any more; what stands already stays.")

    def _do_publish(self, type: str, description: str = "") -> None:
        self.run.publish(ContextChangeEvent(type=ChangeType(type), description=description))
        self._say(f"{type} is published; the run hears of it at its next visit.")

    def _do_review(self, call_id: str, answer: str, arguments: str = "", reason: str = "") -> None:
        given = read_arguments(arguments) if answer == Answer.EDIT else None
        visit = self.run.review(call_id, answer, given, reason=reason)
        self._at = None
        self._say(f"{happened(visit)}. {stands(self.run) or 'Step or run to go on.'}")

    def _do_say(self, text: str) -> None:
        self.run.say(text)
        self._at = None
        self._say("The next turn begins; step or run to go on.")

    def _do_look(self, at: int) -> None:
        last = len(self.run.visited)
        self._at = None if at >= last else max(0, at)

    def _do_select(self, step: str | None) -> None:
        self._step = step

    def _do_check_plan(self, text: str) -> None:
        self._edited(text)
        self._say("The plan can be carried out.")

    def _do_apply_plan(self, text: str) -> None:
        if self._at is not None:
            raise RunError("this is the past: fork with the plan, or rewind first")
        self.run.edit(plan=self._edited(text))
        self._accepted("The run goes on with the edited plan.")

    def _do_fork_plan(self, text: str) -> None:
        fork = self.run.fork(self._place(), plan=self._edited(text))
        self._forked(fork)
        self._accepted(f"This is a fork from before visit {len(fork.visited)} with another plan.")

    def _do_edit_call(self, number: int) -> None:
        call = self._call(number)
        said = call.messages()
        self._asking = {
            "number": number, "title": f"{number}. {call.name}, visit {call.visit}",
            "prompt": said[-1][1] if said else "", "reply": call.reply,
        }  # fmt: skip

    def _do_ask(self, number: int, prompt: str) -> None:
        self._do_edit_call(number)
        assert self._asking is not None
        self._asking["prompt"] = prompt
        self._asking["reply"] = self.run.ask_again(self._call(number), prompt)
        self._say("This is the model's reply; fork with it to go on from there.")

    def _do_fork_reply(self, number: int, reply: str) -> None:
        call = self._call(number)
        made_by = next(r for r in self.runs if any(s is call for s in r.spans))
        others = [s for s in made_by.recorder.of_kind("lm") if s.visit == call.visit]
        place = next(i for i, s in enumerate(others) if s is call)
        self._forked(made_by.fork(call.visit, replies={place: reply}))
        self._asking = None

    def _do_close_call(self) -> None:
        self._asking = None

    def _call(self, number: int) -> Span:
        """Return an LM call by the number that it is shown with."""
        calls = [s for s in self._spans(self._place()) if s.kind == "lm"]
        if not 1 <= number <= len(calls):
            raise RunError(f"expected the number of an LM call, 1 to {len(calls)}, got {number}")
        return calls[number - 1]

    def _edited(self, text: str) -> TaskPlan:
        self._editor["errors"] = []
        try:
            return edited_plan(self._looked_at(), self.run.lab, text)
        except PlanError as e:
            found = e.violations if isinstance(e, PlanParseError) else (str(e),)
            self._editor["errors"] = [clean(v) for v in found]
            raise PlanError("the plan is not valid; what is wrong is listed below it") from e

    def _accepted(self, text: str) -> None:
        self._editor["accepted"] += 1
        self._say(text)

    # ---- what is shown --------------------------------------------------------------------

    def _place(self) -> int:
        """Return the number of the visit before which the state that is looked at stands."""
        last = len(self.run.visited)
        return last if self._at is None else min(self._at, last)

    def _looked_at(self) -> State:
        return self.run.states[self._place()]

    def refresh(self) -> None:
        """Show the run as it is now; called after every action and every cell."""
        with self._turns:
            self.view = self._made()

    def _made(self) -> dict[str, Any]:
        run, at, last = self.run, self._place(), len(self.run.visited)
        state = self._looked_at()
        steps = state.task_plan.steps if state.task_plan is not None else ()
        asking = self._asking and {
            k: clean(v) if isinstance(v, str) else v for k, v in self._asking.items()
        }
        return {
            **offered(run),
            "running": self._goal is not None,
            "at": at,
            "last": last,
            "place": "where the run stands" if at == last else f"before {run.visited[at]}",
            "settled": sum(s.settled for s in steps),
            "steps": len(steps),
            "planned": state.task_plan is not None,
            "message": self._message,
            "runs": [clean(named(r)) for r in self.runs],
            "run": self.runs.index(run),
            "editor": {
                "text": clean(remaining_text(state.task_plan)) if state.task_plan else None,
                **self._editor,
            },
            "asking": asking,
            "panels": panels(run, at, self._step, self._spans(at)),
        }

    def _spans(self, at: int) -> list[Span]:
        """Return what was recorded before visit ``at``, of forks with what came before the fork."""
        run: Run | None = self.run
        before: list[list[Span]] = []
        while run is not None:
            before.append([s for s in run.spans if s.visit < at and s.kind != "run"])
            lineage = run.lineage
            if lineage is None:
                break
            at = min(at, lineage.at)
            run = next((r for r in self.runs if r.run_id == lineage.run_id), None)
        return [span for spans in reversed(before) for span in spans]

    def close(self) -> None:
        """Take the widget away; the run stays."""
        _live.pop(id(self.runs[0]), None)
        super().close()


ACTIONS: dict[str, Callable[..., None]] = {
    name.removeprefix("_do_"): value
    for name, value in vars(Inspector).items()
    if name.startswith("_do_")
}
"""What the front end may ask for."""


def _explained(error: BaseException) -> str:
    if isinstance(error, AgentLabError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted; the run is as it was before this visit."
    return f"{type(error).__name__}: {error}"


# ---- one Inspector a run, following the cells -------------------------------------------------

_live: WeakValueDictionary[int, Inspector] = WeakValueDictionary()
"""The Inspectors that notebook cells have shown, by the run they were made for."""


def inspector_of(run: Run) -> Inspector:
    """Return the Inspector of a run, the same one however often the run is shown."""
    found = _live.get(id(run))
    if found is None or found.comm is None:
        found = _live[id(run)] = Inspector(run)
    found.refresh()
    return found


def _follow_cells(inspector: Inspector) -> None:
    """Refresh after every notebook cell, as long as the widget lives: a cell may move the run."""
    import IPython

    shell = IPython.get_ipython()
    if shell is None:
        return
    known = ref(inspector)

    def follow(*_: object) -> None:
        alive = known()
        if alive is None or alive.comm is None:
            shell.events.unregister("post_run_cell", follow)
        else:
            alive.refresh()

    shell.events.register("post_run_cell", follow)
