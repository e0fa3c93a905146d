"""An engine that serves from a recording, asks what is not in it, or both."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from agentlab import errors
from agentlab.base.documents import Json
from agentlab.errors import ConfigError, LMError, LMRejected, LMUnknownModel, RecordingMiss
from agentlab.lm.cursor import Cursor
from agentlab.lm.engine import Engine, Wrapper, identify, notes
from agentlab.lm.misses import explain_miss
from agentlab.lm.recording import Line, Name, Recording
from agentlab.lm.serde import (
    Event,
    Request,
    Response,
    events_of,
    response_document,
    response_from,
    response_of,
    text_sizes,
)


class Recorded(Wrapper):
    """The engine of one run on a recording.

    Parameters
    ----------
    recording : Recording
    model : str
        Named in messages.
    cursor : Cursor, optional
        The run's, with its seed; None: a new one, of seed 0.
    inner : Engine, optional
        Who is asked; mode ``replay`` needs none.
    settings : mapping, optional
        Written beside each call, without secrets.
    endpoint : str
        Of several models of that name, whose replies are served and written.

    Raises
    ------
    ConfigError
        The recording's mode asks an engine, and there is none.
    """

    inner: Engine | None  # type: ignore[assignment]

    def __init__(
        self, recording: Recording, model: str, cursor: Cursor | None = None,
        inner: Engine | None = None, settings: Mapping[str, Json] | None = None,
        endpoint: str = "",
    ) -> None:  # fmt: skip
        if inner is None and recording.mode != "replay":
            raise ConfigError(f"mode {recording.mode!r} of {recording.path} needs an engine to ask")
        self.recording, self.model = recording, model
        self.cursor = Cursor() if cursor is None else cursor
        self.inner, self.settings, self.endpoint = inner, dict(settings or {}), endpoint

    def __repr__(self) -> str:
        return f"Recorded({self.recording!r}, {self.inner!r})"

    def complete(self, request: Request) -> Response:
        """Return the recorded reply, or ask and record."""
        name = self._name(request)
        with self._line(name, request) as line:
            return self._asked(name, request) if line is None else _response(line)

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the recorded events, or ask and record."""
        name = self._name(request)
        with self._line(name, request) as line:
            if line is None:
                yield from self._streamed(name, request)
                return
        yield from events_of(_response(line), line.get("chunks"))

    def close(self) -> None:
        """Do nothing: engine and recording are shared by other runs."""

    def _name(self, request: Request) -> Name:
        key = identify(request)[1]
        current = notes()
        occurrence = current.occurrence = self.cursor.next(key)
        current.counted = key
        return key, occurrence, self.cursor.seed, self.endpoint

    def _found(self, name: Name, request: Request) -> Line | None:
        if self.recording.mode == "record":
            return None
        line = self.recording.find(*name)
        if line is not None:
            current = notes()
            current.served, current.cost = True, line.get("cost")
        elif self.recording.mode == "replay":
            document = identify(request)[0]
            recorded = self.recording.lines()
            message = explain_miss(str(self.recording.path), *name, document, recorded)
            raise RecordingMiss(message, model=self.model)
        return line

    @contextmanager
    def _line(self, name: Name, request: Request) -> Iterator[Line | None]:
        """Give what is recorded; where nothing is, let one thread ask what several want to know."""
        line = self._found(name, request)
        if line is not None or self.recording.mode == "record":
            yield line
            return
        pending = self.recording._pending
        with pending.setdefault(name, threading.Lock()):
            yield self._found(name, request)  # another thread may have asked
            pending.pop(name, None)

    def _asked(self, name: Name, request: Request) -> Response:
        assert self.inner is not None
        try:
            response = self.inner.complete(request)
        except LMRejected as e:
            self._add_error(name, request, e)
            raise
        return self._add(name, request, {"response": response_document(response)}, response)

    def _streamed(self, name: Name, request: Request) -> Iterator[Event]:
        assert self.inner is not None
        events = []
        try:
            for event in self.inner.stream(request):
                events.append(event)
                yield event
        except LMRejected as e:
            self._add_error(name, request, e)
            raise
        document = response_document(response_of(request, events))
        self._add(name, request, {"response": document, "chunks": text_sizes(events)})

    def _add_error(self, name: Name, request: Request, error: LMRejected) -> None:
        """Record how a request was rejected: a reply to it, unless no model read it."""
        if not isinstance(error, LMUnknownModel):
            self._add(name, request, {"error": _error_document(error)})

    def _add(self, name: Name, request: Request, what: Line, response: Response = None) -> Response:
        line: Line = {
            "key": name[0],
            "occurrence": name[1],
            "seed": name[2],
            **({"endpoint": name[3]} if name[3] else {}),
            "model": self.model,
            "settings": self.settings,
            "request": identify(request)[0],
            **what,
            "usage": (what.get("response") or {}).get("usage", {}),
            "cost": notes().cost,
        }
        counts = self.recording.add(line)
        return response if counts is line else _response(counts)


def _response(line: Line) -> Response:
    """Return the recorded response, or raise the recorded error."""
    if "response" in line:
        return response_from(line["response"])
    recorded = line["error"]
    kind = getattr(errors, recorded["type"], LMRejected)
    kind = kind if isinstance(kind, type) and issubclass(kind, LMError) else LMRejected
    raise kind(recorded["message"], model=line["model"], status=recorded["status"])


def _error_document(error: LMError) -> Line:
    return {"type": type(error).__name__, "message": str(error), "status": error.status}
