"""The recorder: spans as they happen, nested by a context-local stack.

A recorder belongs to one run (or to a lab whose nodes are called by hand). The stack is a context
variable, so spans nest rightly under threads that were given their context.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from agentlab.trace.requests import Requests
from agentlab.trace.span import Span

_current: ContextVar[Span | None] = ContextVar("agentlab_span", default=None)

Sink = Callable[[Span], None]
"""Called with each span when it ends."""


class Recorder:
    """Collects spans in the order in which they started.

    Parameters
    ----------
    sinks : tuple of callables
        Each is called with a span when it ends.
    """

    def __init__(self, sinks: tuple[Sink, ...] = ()) -> None:
        self.spans: list[Span] = []
        self.sinks = sinks
        self.requests = Requests()
        self._talks: dict[tuple[Any, ...], int] = {}
        self._epoch = time.time() - time.perf_counter()

    def span(
        self, kind: str, name: str, *, visit: int = 0, step_id: str = "", attempt: int = 0,
        input: Any = None, now: float = 0.0,
    ) -> OpenSpan:  # fmt: skip
        """Open a span; use it in a ``with`` statement and set its output there."""
        spans, current, parent = self.spans, _current.get(), 0
        if current is not None:
            at = current.span_id
            if at <= len(spans) and spans[at - 1] is current:  # else it is another recorder's
                parent = at
        if kind == "node" and (not parent or spans[parent - 1].kind == "run"):
            self._talks.clear()  # a visit begins, perhaps once more after an exception
        return self._opened(kind, name, parent, visit, step_id, attempt, input, now)

    def _opened(
        self, kind: str, name: str, parent: int, visit: int, step_id: str, attempt: int,
        input: Any, now: float,
    ) -> OpenSpan:  # fmt: skip
        spans = self.spans
        started = self._epoch + time.perf_counter()
        number = len(spans) + 1
        span = Span(number, parent, kind, name, visit, step_id, attempt, input, now, started)
        spans.append(span)
        return OpenSpan(self, span)

    def talk(self, visit: int, step_id: str, attempt: int, name: str) -> str:
        """Return what tells a talk opened now from others of that name in this place and visit."""
        place = (visit, step_id, attempt, name)
        number = self._talks[place] = self._talks.get(place, 0) + 1
        return name if number == 1 else f"{name}#{number}"

    def mark(
        self, kind: str, name: str, *, visit: int = 0, step_id: str = "", attempt: int = 0,
        input: Any = None, output: Any = None, now: float = 0.0,
    ) -> Span:  # fmt: skip
        """Record something that takes no time."""
        with self.span(
            kind, name, visit=visit, step_id=step_id, attempt=attempt, input=input, now=now
        ) as span:
            span.output = output
        return span

    def under(self, span: Span) -> Under:
        """Make ``span`` the parent of what is recorded meanwhile."""
        return Under(span)

    def of_kind(self, kind: str) -> list[Span]:
        """Return the spans of a kind, in the order in which they started."""
        return [s for s in self.spans if s.kind == kind]


class NestedRecorder(Recorder):
    """Records a run inside a step of another: one trace, addresses put under the outer step's.

    Parameters
    ----------
    outer : Recorder
    visit : int
        The outer run's; every span inside has it.
    step_id : str
        The outer step; a span inside has ``step/inner``.
    """

    def __init__(self, outer: Recorder, visit: int, step_id: str) -> None:
        super().__init__(outer.sinks)
        self.spans, self.requests = outer.spans, outer.requests
        self._outer, self._visit, self._step_id = outer, visit, step_id

    def _opened(
        self, kind: str, name: str, parent: int, visit: int, step_id: str, attempt: int,
        input: Any, now: float,
    ) -> OpenSpan:  # fmt: skip
        inner = f"{self._step_id}/{step_id}" if step_id else self._step_id
        return self._outer._opened(kind, name, parent, self._visit, inner, attempt, input, now)


class Under:
    """The context manager in which a span is the parent of what is recorded."""

    __slots__ = ("_token", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self._token: Token[Span | None] | None = None

    def __enter__(self) -> Span:
        self._token = _current.set(self.span)
        return self.span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._token is not None:
            _current.reset(self._token)


class OpenSpan(Under):
    """The context manager of a span under way."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder, span: Span) -> None:
        self.span, self._recorder, self._token = span, recorder, None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        recorder, span = self._recorder, self.span
        span.seconds = recorder._epoch + time.perf_counter() - span.started
        if error is not None and span.error is None:
            span.error = f"{type(error).__name__}: {error}"
        if self._token is not None:
            _current.reset(self._token)
        for sink in recorder.sinks:
            sink(span)
