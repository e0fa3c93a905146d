"""A talk: the LM calls of one node or action, recorded, journalled and charged.

``Lab.asking(state)`` opens one around whatever decides. Inside, ``dspy.context`` holds an LM whose
every call leaves a span, is written into the journal before and after (a resumed or replayed run is
served from there), meets the faults of the state's plan, and is counted. Nothing of that is in the
state yet: ``charged`` puts it there, so a node stays a function of its state.

An LM call costs simulated time by a declared formula, ``SECONDS_A_CALL`` and ``SECONDS_A_TOKEN`` of
output, whoever answers: a recording costs the same as the model it was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from agentlab import errors
from agentlab.base.documents import Json
from agentlab.base.surrogates import spelled
from agentlab.base.trail import At, More
from agentlab.environments.fault_plan import FaultKind, Visibility
from agentlab.errors import ConfigError, LMError, LMTooLong, RunError, seen
from agentlab.lab.faults import advance
from agentlab.lm.cursor import Cursor
from agentlab.lm.door import Door, LMCall, lm_errors
from agentlab.lm.engine import Engine
from agentlab.lm.faulty import SPOILS, Faulty, prompt_digest
from agentlab.lm.model import Model
from agentlab.lm.outcome import LMOutcome
from agentlab.lm.serde import load_dspy, request_from, response_document, text_of, typed_request
from agentlab.state.records import DeliveredFault, Fault
from agentlab.state.state import State
from agentlab.trace.journal import Address, Journal
from agentlab.trace.recorder import Recorder
from agentlab.trace.span import Span

SECONDS_A_CALL = 0.5
SECONDS_A_TOKEN = 0.02


class Talk:
    """The LM calls of one node or action.

    Parameters
    ----------
    model : Model or None
        None: nobody to ask; ``charged`` then changes nothing.
    state : State
        Where the calls are made from.
    recorder, journal
        The run's.
    step_id, attempt
        The address, beside the state's visit.
    timed : bool
        Whether calls take simulated time; in wall time they take what they take.
    name : str
        Part of the address: what the talk is for. Talks of one name in one place and visit are told
        apart by the order in which they were opened; a talk is for one thread.
    within : str
        Stands before the step's id where a fault plan names it (see ``ToolDoor``).
    """

    def __init__(
        self, model: Model | None, state: State, recorder: Recorder, journal: Journal,
        step_id: str = "", attempt: int = 0, timed: bool = True, name: str = "",
        within: str = "",
    ) -> None:  # fmt: skip
        if "#" in name:
            raise ConfigError(
                f"the name of a talk has no '#', which numbers talks: got {seen(name)}"
            )
        self._timed = timed
        self._name = recorder.talk(state.visit, step_id, attempt, name)
        self.model, self.calls = model, list[LMCall]()
        self._state, self._recorder, self._journal = state, recorder, journal
        self._step_id, self._attempt = step_id, attempt
        self._place = (within + step_id).rstrip("/")  # as fault plans name it
        self._requests = Cursor(state.lm_requests, state.seed)
        self._prompts = Cursor(state.lm_prompts, state.seed)
        self._nth = 0
        self._door: Door | None = None  # while it is open
        self._recalled: dict[str, Json] | None = None  # what the journal knows of the call

    @classmethod
    def of_nobody(cls) -> Talk:
        """Return the talk of a lab that has no model: it asks nothing, and so it has no address."""
        talk = cls.__new__(cls)
        talk.model, talk.calls, talk._door = None, [], None
        return talk

    @contextmanager
    def open(self, on_token: Callable[[str], None] | None = None) -> Iterator[Talk]:
        """Make the model what dspy asks meanwhile."""
        assert self.model is not None
        door = self._door = self.model.door(
            self._requests, self._wrap, patient=True,
            on_call=self._told, before=self._served, on_token=on_token,
        )  # fmt: skip
        lm = self.model.lm(door=door)
        # dspy keeps prompts in a history and in a trace, each global and of 10,000 entries.
        try:
            with load_dspy().context(lm=lm, disable_history=True, callbacks=[], trace=None):
                yield self
        finally:
            self._door = None

    def ask(self, request: Mapping[str, Json]) -> LMOutcome:
        """Ask with a typed request, with tools where it has some.

        A model that takes no tools is told of them, and asked to call them, in the prompt; what
        comes is the same (see ``agentlab.lm.text_tools``).

        Parameters
        ----------
        request : mapping or dspy.lm15.Request
            ``messages``: each ``{"role": ..., "parts": [...]}``, where a part is ``{"type": "text",
            "text": ...}``, a "tool_call" as it came in the ``message`` of an outcome, or, in a
            message of role "tool", ``{"type": "tool_result", "id": ..., "content": [part],
            "is_error": ...}``; and where wanted ``system``, ``tools`` (objects of ``agentlab.tool``
            or ``{"type": "function", "name", "description", "parameters"}``) and ``config``, which
            goes before the model's own settings.

        Returns
        -------
        LMOutcome
            Cut off, declined and too long are outcomes, not errors.

        Raises
        ------
        RunError
            There is no model, the talk is not open, or this is no request.
        LMError
            No reply came.
        """
        if self.model is None or self._door is None:
            raise RunError("a talk asks inside 'with lab.asking(...)', and of a lab with a model")
        try:
            response = self._door.ask(typed_request(request, self.model.name, self.model.settings))
        except LMTooLong as e:
            return LMOutcome("too_long", None, str(e))
        return LMOutcome(response.finish_reason, response_document(response))

    @property
    def _faulty(self) -> bool:
        plan = self._state.fault_plan
        by_rate = plan.rate and any(k in SPOILS for k in plan.kinds)
        return bool(by_rate) or any(t.kind in SPOILS for t in plan.targets)

    def _wrap(self, engine: Engine) -> Engine:
        plan = self._state.fault_plan
        if not self._faulty:
            return engine
        return Faulty.of_plan(
            engine, plan, self._state.seed, self._state.scenario_id, cursor=self._prompts,
            where=lambda: (self._place, self._state.now),
        )  # fmt: skip

    def _address(self) -> Address:
        # A step's tool call has place 0 of its attempt; LM calls are numbered from 1.
        return Address(
            self._state.visit, self._step_id, self._attempt, self._nth, self._name
        )  # fmt: skip

    def _served(self, key: str, document: dict[str, Json]) -> dict[str, Json] | None:
        """Look the call up in the journal, and write down that it is about to be made.

        A call that is known is not made, but it counts as one: the occurrences that faults and
        recordings go by are those of a run that was never interrupted.
        """
        self._nth += 1
        self._recalled = None
        name = f"lm:{document.get('model', '')}"
        known = self._journal.find(self._address(), name, key)
        if known is None or not known.finished or (known.name, known.request) != (name, key):
            self._journal.start(self._address(), name, key)
            return None
        self._recalled = dict(known.result)
        if self._recalled["occurrence"] is not None:
            self._requests.next(self._recalled.get("counted", key))
        if self._faulty:
            self._prompts.next(prompt_digest(document))
        response = self._recalled["response"]
        if response is None:
            raise _error_of(str(known.error), str(document.get("model", "")))
        return dict(response)

    def _told(self, call: LMCall) -> None:
        name, recalled = f"lm:{call.model}", self._recalled
        if recalled is None and call.response is None and _kind(call.error) is None:
            return  # interrupted, or a bug: no outcome to remember, the call is made again
        if recalled is None:
            self._journal.finish(self._address(), name, call.key, _kept(call), call.error)
        else:
            call = replace(
                call, served=True, cost=recalled["cost"], occurrence=recalled["occurrence"],
                faults=tuple(recalled["faults"]), counted=recalled.get("counted", call.key),
            )  # fmt: skip
        self.calls.append(call)
        state, address = self._state, self._address()
        self._recorder.requests.share(call.request)
        with self._recorder.span(
            "lm", call.model, visit=address.visit, step_id=address.step_id,
            attempt=address.attempt, input=call.request, now=state.now,
        ) as span:  # fmt: skip
            span.output, span.error = call.response, call.error
            span.sim_end = state.now + (seconds_of(call) if self._timed else 0.0)
            span.attributes = {
                "usage": call.usage, "occurrence": call.occurrence, "faults": list(call.faults),
                "served": call.served, "cost": call.cost, "attempts": call.attempts,
            }  # fmt: skip
            if self._name:
                span.attributes["talk"] = self._name
            if call.counted != call.key:
                span.attributes["counted"] = call.counted
        span.seconds = call.seconds

    def charged(self, state: State) -> State:
        """Return ``state`` with the calls counted and their simulated time passed."""
        if not self.calls:
            return state
        struck = [
            DeliveredFault(
                fault=Fault(kind=FaultKind(kind), visibility=Visibility.SILENT),
                tool="lm", arguments=call.key, step_id=self._step_id or None, at=state.now,
            )
            for call in self.calls
            for kind in call.faults
        ]  # fmt: skip
        state = state.put(
            lm_calls=state.lm_calls + len(self.calls),
            lm_tokens=state.lm_tokens + sum(tokens_of(c) for c in self.calls),
            delivered=More(tuple(struck)),
        )
        for key, number in self._requests.added_to(state.lm_requests).items():
            state = state.put(lm_requests=At(key, number))
        for key, number in self._prompts.added_to(state.lm_prompts).items():
            state = state.put(lm_prompts=At(key, number))
        seconds = sum(seconds_of(c) for c in self.calls) if self._timed else 0.0
        return advance(state, state.now + seconds)


def _kept(call: LMCall) -> dict[str, Json]:
    """Return what the journal keeps of a call."""
    kept: dict[str, Json] = {
        "response": call.response, "occurrence": call.occurrence, "faults": list(call.faults),
        "cost": call.cost,
    }  # fmt: skip
    return kept if call.counted == call.key else {**kept, "counted": call.counted}


def ask_again(model: Model | None, call: Span, prompt: str | None = None, seed: int = 0) -> str:
    """Ask a model what it was asked in a call, or that with another last message.

    A recording has the run's reply to it by the run's ``seed``.

    Raises
    ------
    RunError
        There is no model, or the span is no LM call.
    LMError, RecordingMiss
        No reply came.
    """
    if model is None or not isinstance(call, Span) or call.kind != "lm":
        raise RunError("only an LM call of a run with a language model can be asked again")
    request = dict(call.input)
    if prompt is not None:
        last = {"role": "user", "parts": [{"type": "text", "text": spelled(prompt)}]}
        request["messages"] = [*request["messages"][:-1], last]
    with lm_errors():
        return text_of(model.bind(Cursor(seed=seed)).complete(request_from(request)))


def _error_of(text: str, model: str) -> LMError:
    """Return the error that a journal or a span tells of as "Type: message"."""
    kind = _kind(text)
    if kind is None:
        return LMError(text, model=model)
    return kind(text.partition(": ")[2], model=model)


def _kind(text: str | None) -> type[LMError] | None:
    """Return the type of LM error in "Type: message"; None: it is another's."""
    found = getattr(errors, (text or "").partition(":")[0], None)
    return found if isinstance(found, type) and issubclass(found, LMError) else None


def tokens_of(call: LMCall) -> int:
    """Return the tokens of a call, in and out, as far as they were reported."""
    usage = call.usage
    return int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)


def seconds_of(call: LMCall) -> float:
    """Return the simulated seconds that a call takes."""
    return SECONDS_A_CALL + SECONDS_A_TOKEN * int(call.usage.get("output_tokens") or 0)
