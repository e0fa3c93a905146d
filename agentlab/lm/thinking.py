"""What a model thought, kept apart from what it said.

Reasoning models that are served without a parser of their own write their thinking into the reply:
``<think>…</think>`` in front of it, several in a row, the closing tag alone where the template had
opened it, or the channels of gpt-oss. It is no part of the answer: ``Thoughts`` makes it a thinking
part of the response, as endpoints do that know how, so it is in the trace and nowhere else. What is
never closed is all thinking, and nothing was said. Tags anywhere else, in a JSON text above all,
are what they are: text.

A closing tag that comes alone is only known when it comes. So the stream of a model that closes
alone is held back until then; a lab, which shows what it hears, holds back the first of a model of
which nothing is known, too. What begins as JSON, a fence or a call of a tool is passed on at once.

This goes outside the recording, which holds what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from agentlab.lm.engine import Engine, Wrapper
from agentlab.lm.serde import Event, Request, Response, lm15, text_of

UNSEEN = " \t\r\n\v\f\ufeff\u200b\u200c\u200d\u2060"
"""What stands around what is said and is not seen: blanks, a byte order mark, no width."""
_NAMES = "think|thinking|thoughts?|reasoning|seed:think"
_OPEN = re.compile(
    rf"<(?:{_NAMES})(?:\s[^<>]{{0,80}})?>|\[THINK\]|◁think▷|<\|begin_of_thought\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?P<channel>analysis|final)[^<]{0,80}<\|message\|>",
    re.IGNORECASE,
)
_CLOSE = re.compile(
    rf"</(?:{_NAMES})\s{{0,8}}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|end\|>"
    r"|(?=<\|start\|>assistant)|(?=<\|channel\|>final)",
    re.IGNORECASE,
)
_WITHIN = re.compile(rf"<(?:{_NAMES})>|(?P<close>{_CLOSE.pattern})", re.IGNORECASE)
_TURN = re.compile(
    rf"(?<![`'\"\\])</(?:{_NAMES})\s{{0,8}}>|(?P<other><(?:{_NAMES})>|<tool_call>)",
    re.IGNORECASE,
)
"""A closing tag that is alone; or what shows that none is to come."""
_OVER = re.compile(r"\s*<\|(?:return|end)\|>\s*\Z")
_BEGINS = ("<", "[", "◁")
_LONGEST = 200
"""Characters of an opening."""
_CHUNK = 1024
_TAIL = 40
"""Characters that may be the beginning of what closes."""
_SAID = ("{", '"', "```", "~~~", "<tool_call>")
"""How a reply begins in which nothing but text is to come."""

Piece = tuple[str, str]
"""Kind ("thinking" or "text") and characters."""


@dataclass
class Habit:
    """Whether a model closes thinking that it did not open, as far as it is known."""

    closes_alone: bool | None = None


class Parting:
    """Parts the pieces of one reply, as they come.

    Parameters
    ----------
    certain : bool
        Whether no closing tag can come alone.
    """

    def __init__(self, certain: bool = False) -> None:
        self._certain, self._nested = certain, False
        self._state: Callable[[], Iterator[Piece]] = self._lead
        self._held = ""
        self._kept: list[str] = []  # pieces that may turn out to be thinking
        self.alone = False
        """Whether a closing tag came alone."""
        self.thought = False
        """Whether anything was thinking."""

    def feed(self, piece: str) -> Iterator[Piece]:
        """Yield what is certain after one more piece."""
        for start in range(0, len(piece), _CHUNK):  # so that a reply full of tags is no burden
            self._held += piece[start : start + _CHUNK]
            before: Any = None
            while before != (self._state, len(self._held)):
                before = self._state, len(self._held)
                yield from self._state()

    def end(self) -> Iterator[Piece]:
        """Yield what was held back, now that nothing more comes."""
        last = _OVER.sub("", self._held) if self._state == self._final else self._held
        if self.thought and self._state == self._lead:
            last = last.lstrip(UNSEEN)
        kind = "thinking" if self._state == self._thinking else "text"
        yield from ((kind, piece) for piece in (*self._kept, last) if piece)
        self._kept, self._held = [], ""

    def _lead(self) -> Iterator[Piece]:
        """In front of everything: is this an opening?"""
        seen = self._held.lstrip(UNSEEN)
        if found := _OPEN.match(seen):
            self.thought, self._held, self._kept = True, seen[found.end() :], []
            said = (found["channel"] or "").lower() == "final"
            self._state = self._final if said else self._thinking
            return
        if not seen:
            self._kept += [] if self.thought else [self._held]
            self._held = ""
            return
        if seen.startswith(_BEGINS) and len(seen) < _LONGEST and _unfinished(seen):
            return
        if any(begin.startswith(seen) and begin != seen for begin in _SAID):
            return
        if self.thought:
            self._held = seen
        sure = self._certain or seen.startswith(_SAID) or _is_list(seen)
        self._state = self._text if sure else self._unsure
        yield from ()

    def _thinking(self) -> Iterator[Piece]:
        found = _WITHIN.search(self._held)
        end = found.start() if found else max(0, len(self._held) - _TAIL)
        if found is not None and found["close"] is None:  # a tag in what is thought
            end, self._nested = found.end(), True
        if end:
            yield "thinking", self._held[:end]
        self._held = self._held[end:]
        if found is not None and found["close"] is not None:
            self._held = self._held[len(found[0]) :]
            self._state, self._certain = self._lead, not self._nested

    def _unsure(self) -> Iterator[Piece]:
        """In text that turns out to have been thinking where a closing tag comes."""
        found = _TURN.search(self._held)
        if found is not None and not found["other"]:
            yield from (("thinking", p) for p in (*self._kept, self._held[: found.start()]) if p)
            self._kept, self._held = [], self._held[found.end() :]
            self.alone = self.thought = self._certain = True
            self._state = self._lead
        elif found is not None:
            self._state = self._text
        elif (safe := len(self._held) - _TAIL) > 0:
            safe -= self._held[safe] == "<"  # what stands before a tag says whether it is one
            self._kept.append(self._held[:safe])
            self._held = self._held[safe:]

    def _text(self) -> Iterator[Piece]:
        yield from (("text", piece) for piece in (*self._kept, self._held) if piece)
        self._kept, self._held = [], ""

    def _final(self) -> Iterator[Piece]:
        safe = max(0, len(self._held) - _TAIL)
        if safe:
            yield "text", self._held[:safe]
        self._held = self._held[safe:]


def _unfinished(seen: str) -> bool:
    """Say whether an opening may still come of it."""
    if seen[0] == "[":
        return "[think]".startswith(seen.lower())
    if seen.startswith("<|"):
        return "<|message|>" not in seen and not seen.startswith("<|begin_of_thought|>")
    return "▷" not in seen if seen[0] == "◁" else ">" not in seen


def _is_list(seen: str) -> bool:
    return seen[0] == "[" and seen[1:].lstrip()[:1] in ("{", "[", '"', "]", "")


def parted(text: str) -> tuple[str, str]:
    """Return what of a reply's text is thinking, and what is said.

    Examples
    --------
    >>> parted("<think>Is it?</think>\\n\\nIt is.")
    ('Is it?', 'It is.')
    >>> parted("Is it?</think>It is.")
    ('Is it?', 'It is.')
    >>> parted('{"a": "<think>"}')
    ('', '{"a": "<think>"}')
    """
    parting = Parting()
    pieces = [*parting.feed(text), *parting.end()]
    thought = "".join(p for kind, p in pieces if kind == "thinking").strip()
    return thought, "".join(p for kind, p in pieces if kind == "text")


def apart(response: Response) -> Response:
    """Return a response in which thinking that stood in its text is a part of its own."""
    texts = [p for p in response.message.parts if p.type == "text"]
    text = "".join(p.text for p in texts)
    thought, said = parted(text)
    if not thought and said == text:
        return response
    types = lm15()
    front = [types.ThinkingPart(thought)] if thought else []
    others = [p for p in response.message.parts if p.type != "text"]
    at = next(i for i, p in enumerate(response.message.parts) if p.type == "text")
    words = [types.TextPart(said)] if said or not others else []
    message = types.Message.assistant([*others[:at], *front, *words, *others[at:]])
    return replace(response, message=message, logprobs=None, logprobs_complete=True)


class Thoughts(Wrapper):
    """An engine whose replies have their thinking in parts of its own.

    Parameters
    ----------
    inner : Engine
    habit : Habit, optional
        What is known of the model; shared by all who ask it.
    patient : bool
        Whether a stream is held back as long as nothing is known of the model.
    """

    def __init__(self, inner: Engine, habit: Habit | None = None, patient: bool = False) -> None:
        super().__init__(inner)
        self._habit, self._patient = habit or Habit(), patient

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""
        response = self.inner.complete(request)
        self._learn(text_of(response))
        return apart(response)

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events: thinking as such, text as soon as it is certain to be text."""
        closes = self._habit.closes_alone
        parting = Parting(certain=not (self._patient if closes is None else closes))
        waiting: list[Event] = []  # as they came, while nothing is thinking
        texts: list[str] = []
        for event in self.inner.stream(request):
            if event.type == "delta" and event.delta.type == "text":
                texts.append(event.delta.text)
                waiting.append(event)
                yield from _events(waiting, list(parting.feed(event.delta.text)), parting)
                continue
            if event.type == "end" and waiting:
                yield from _events(waiting, list(parting.end()), parting)
            yield _moved(event, parting)
        self._learn("".join(texts))

    def _learn(self, text: str) -> None:
        parting = Parting()
        if text:
            list(parting.feed(text))
            self._habit.closes_alone = parting.alone or bool(self._habit.closes_alone)


def _events(waiting: list[Event], pieces: list[Piece], parting: Parting) -> Iterator[Event]:
    """Yield what is certain of the events that wait: as they came, where nothing was thinking."""
    types = lm15()
    if pieces and not parting.thought:
        yield from waiting
        waiting.clear()
        return
    for kind, piece in pieces:
        index = waiting[-1].delta.part_index
        if kind == "thinking":
            delta = types.ThinkingDelta(text=piece, part_index=index)
        else:
            delta = types.TextDelta(text=piece, part_index=index + 1)
        yield types.StreamDeltaEvent(delta=delta)
    if parting.thought:
        del waiting[:-1]


def _moved(event: Event, parting: Parting) -> Event:
    """Make room for the part that thinking has become."""
    index = getattr(getattr(event, "delta", None), "part_index", None)
    if event.type != "delta" or not parting.thought or index is None:
        return event
    return replace(event, delta=replace(event.delta, part_index=index + 1))
