"""The outermost engine: it tells of every call, judges the reply, and speaks dspy's errors.

dspy's modules act on some of dspy's own errors, so the Door raises those, chained from ours;
``lm_errors`` around the call of a dspy module gives ours back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from agentlab.base.documents import Json
from agentlab.errors import (
    AgentLabError,
    LMCutOff,
    LMDenied,
    LMError,
    LMRateLimited,
    LMRefused,
    LMRejected,
    LMTimeout,
    LMTooLong,
    LMUnavailable,
)
from agentlab.lm.engine import Engine, Notes, Wrapper, noting
from agentlab.lm.serde import (
    Event,
    Request,
    Response,
    events_of,
    lm15,
    load_dspy,
    refusal_of,
    response_document,
    response_from,
    response_of,
    text_of,
)
from agentlab.lm.thinking import apart

_PARAMETERS = ("temperature", "max_tokens", "top_p", "stop", "seed", "stream")


@dataclass(frozen=True, slots=True)
class LMCall:
    """What the hook is told of a call when it is over."""

    model: str
    key: str
    """Digest of the request document."""
    request: dict[str, Json]
    response: dict[str, Json] | None
    """None: no reply came."""
    error: str | None
    """Type and text; a refused or cut-off reply has both a response and an error."""
    seconds: float
    """Wall time."""
    served: bool
    """From a recording or a journal: nothing was asked, nothing billed."""
    cost: float | None
    """US dollars that the call costs when it is made; None: unknown."""
    attempts: int
    occurrence: int | None
    """Which repetition of the request in the run, from 0, where it was counted."""
    faults: tuple[str, ...] = ()
    """Kinds of the faults delivered."""
    counted: str = ""
    """Key that the occurrence is of, where another request was sent than the one that was made."""

    @property
    def usage(self) -> dict[str, int]:
        """Tokens as reported: ``input_tokens``, ``output_tokens``, ...; {}: not reported."""
        return dict((self.response or {}).get("usage", {}))

    @property
    def billed(self) -> float | None:
        """US dollars billed for this call now: nothing when it was served."""
        return 0.0 if self.served else self.cost


class Door(Wrapper):
    """The outermost engine, which dspy is given: it tells of every call and judges the reply.

    Parameters
    ----------
    inner : Engine
    model : str
        As it is called in requests.
    supports : sequence of str
        Some of ``SUPPORTS``; dspy's adapters read it.
    on_call : callable, optional
        Told of each call when it is over, with a ``LMCall``; what it raises is raised.
    before : callable, optional
        Asked before each call, with (key, request document); a response document that it returns
        is served instead of calling (a journal resumes this way).
    on_token : callable, optional
        Given each piece of text as it comes; the reply is then streamed also where dspy asks for
        the whole.
    strict : bool
        True: a refused or cut-off reply raises LMRefused or LMCutOff, after the hook was told;
        False: it is returned as it is.
    streams : bool
        False: the endpoint cannot stream; the whole reply is one piece.
    """

    def __init__(
        self, inner: Engine, model: str, supports: Sequence[str] = (), *,
        on_call: Callable[[LMCall], None] | None = None,
        before: Callable[[str, dict[str, Json]], dict[str, Json] | None] | None = None,
        on_token: Callable[[str], None] | None = None,
        strict: bool = True, streams: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self.model, self.on_call, self.before = model, on_call, before
        self.on_token, self.strict, self.streams = on_token, strict, streams
        self.supports_response_schema = "response_schema" in supports
        self.supports_function_calling = "function_calling" in supports
        self.supports_reasoning = "reasoning" in supports
        self.supported_params = _parameters(supports)

    def complete(self, request: Request) -> Response:
        """Return the reply, or raise what dspy understands."""
        try:
            return self._completed(request, strict=self.strict)
        except BaseException as e:
            raise _for_dspy(e)  # noqa: B904 - it says itself from what

    def ask(self, request: Request) -> Response:
        """Return the reply, also a refused or cut-off one; raise our own errors."""
        return self._completed(request, strict=False)

    def _completed(self, request: Request, *, strict: bool) -> Response:
        started, current = perf_counter(), Notes(request)
        response: Response = None
        error: BaseException | None = None
        try:
            response = self._served(current)
            if response is None:
                response = self._asked(request, current)
            error = self._judge(response) if strict else None
        except BaseException as e:
            error = e
        self._tell(current, response, error, perf_counter() - started)
        if error is not None:
            raise error
        return response

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events; tell of the call when they end, or nobody reads on."""
        started, current = perf_counter(), Notes(request)
        events: list[Event] = []
        response: Response = None
        error: BaseException | None = None
        try:
            response = self._served(current)
            for event in (
                self._events(request, current) if response is None else events_of(response)
            ):
                events.append(event)
                self._speak(event)
                yield event
            if response is None:
                response = apart(response_of(request, events))
            error = self._judge(response) if self.strict else None
        except BaseException as e:  # GeneratorExit: nobody reads on
            error = e
        self._tell(current, response, error, perf_counter() - started)
        if error is not None:
            raise _for_dspy(error)

    def _served(self, current: Notes) -> Response | None:
        document = self.before(current.key, current.document) if self.before else None
        if document is None:
            return None
        current.served = True
        return response_from(document)

    def _asked(self, request: Request, current: Notes) -> Response:
        if self.on_token is None or not self.streams:
            with noting(current):
                response = self.inner.complete(request)
            if self.on_token is not None:
                self.on_token(text_of(response))
            return response
        events = []
        for event in self._events(request, current):
            events.append(event)
            self._speak(event)
        return apart(response_of(request, events))  # a closing tag may come late, and alone

    def _events(self, request: Request, current: Notes) -> Iterator[Event]:
        # The notes are set while the engines run and not while the reader does: a generator
        # shares its reader's context.
        with noting(current):
            source = iter(self.inner.stream(request))
        try:
            while True:
                with noting(current):
                    event = next(source, None)
                if event is None:
                    return
                yield event
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    def _speak(self, event: Event) -> None:
        if self.on_token is not None and event.type == "delta" and event.delta.type == "text":
            self.on_token(event.delta.text)

    def _judge(self, response: Response) -> LMError | None:
        declined = refusal_of(response)
        if declined is not None:
            said = f": {declined[:200]!r}" if declined else ""
            return LMRefused(
                f"{self.model} declined to answer{said}", model=self.model, partial=declined
            )
        if response.finish_reason == "length":
            text = text_of(response)
            return LMCutOff(
                f"the reply of {self.model} was cut off at the token limit after "
                f"{len(text)} characters; raise max_tokens or ask for less",
                model=self.model,
                partial=text,
            )
        return None

    def _tell(
        self, current: Notes, response: Response | None, error: BaseException | None, seconds: float
    ) -> None:
        if self.on_call is None:
            return
        call = LMCall(
            model=self.model,
            key=current.key,
            request=current.document,
            response=None if response is None else response_document(response),
            error=None if error is None else f"{_named(error)}: {error}",
            seconds=seconds - current.apart,
            served=current.served,
            cost=current.cost,
            attempts=current.attempts,
            occurrence=current.occurrence,
            faults=tuple(current.faults),
            counted=current.counted,
        )
        self.on_call(call)


def _named(error: BaseException) -> str:
    """Return the name of an error's class; of a user's own kind of ours, the name that is known."""
    kinds = type(error).__mro__ if isinstance(error, LMError) else ()
    return next(
        (k.__name__ for k in kinds if k.__module__ == LMError.__module__), type(error).__name__
    )


def _parameters(supports: Sequence[str]) -> frozenset[str]:
    more: list[str] = []
    if "response_format" in supports or "response_schema" in supports:
        more.append("response_format")
    if "function_calling" in supports:
        more += ["tools", "tool_choice", "parallel_tool_calls"]
    if "reasoning" in supports:
        more.append("reasoning_effort")
    return frozenset((*_PARAMETERS, *more))


def _for_dspy(error: BaseException) -> BaseException:
    """Return the error that dspy understands, chained from ours."""
    types = lm15()
    table: list[tuple[type[LMError], Any]] = [
        (LMTooLong, types.ContextLengthError),
        (LMRateLimited, types.RateLimitError),
        (LMTimeout, types.TimeoutError),
        (LMUnavailable, types.ServerError),
        (LMDenied, types.AuthError),
        (LMRejected, types.InvalidRequestError),
    ]
    for ours, theirs in table:
        if isinstance(error, ours):
            outward: BaseException = theirs(
                str(error), status=error.status, retry_after=error.retry_after
            )
            outward.__cause__ = error
            return outward
    return error


@contextmanager
def lm_errors() -> Iterator[None]:
    """Give back the error that an engine raised, out of the one that dspy made of it.

    Put it around every call of a dspy module. An adapter's parse error passes unchanged: it is
    about a reply that came.

    Raises
    ------
    LMError
        Of the branch in ``agentlab.errors``.
    """
    load_dspy()
    from dspy.utils.exceptions import LMError as DspyError, LMUnexpectedError

    try:
        yield
        return
    except DspyError as e:
        ours, first = None, e.__cause__
        link: BaseException | None = e
        while link is not None and ours is None:
            ours = link if isinstance(link, AgentLabError) else None
            link = link.__cause__
        if ours is None and isinstance(e, LMUnexpectedError) and first is not None:
            ours = first  # a bug in an engine or in a hook: shown as what it is
        if ours is None:
            ours = LMRejected(str(e), model=e.model or "", status=e.status)
    ours.__suppress_context__ = True  # dspy's error says the same once more
    raise ours
