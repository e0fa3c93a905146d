"""The exception tree. Constructors do nothing but hold what they are given.

It is over 400 lines since a tree is read whole.

AgentLabError
├── UnknownNameError          a name that no registry or suite knows; carries the nearest known ones
├── JsonError                 a text or value that is not JSON, or YAML, as it is read here
├── ConfigError               a configuration, an arm or an argument that cannot be used
├── ScenarioError             a scenario or suite file that does not say what it must
├── PlanError
│   ├── PlanParseError        a reply or document that is no plan (every violation listed)
│   ├── PlanValidationError   a contract that breaks its rules (each with step and field)
│   ├── PlanEditError         an edit that would leave a broken plan or touch a settled step
│   └── ReferenceError_       a ``${...}`` that is malformed or does not resolve
├── ToolFailure               raised by a tool written by a user to fail with a code
├── EnvironmentContractError  an environment that breaks its contract
├── RunError                  something asked of a run that its state does not allow
├── ReplayError               a recording that cannot be replayed
├── LMError                   a language model gave no usable reply
│   ├── LMUnavailable         no connection, or the endpoint itself failed; trying again may help
│   │   ├── LMRateLimited     too many requests; says how long to wait
│   │   └── LMTimeout         no reply in time
│   ├── LMDenied              the key is missing or not accepted, or the account is empty
│   ├── LMRejected            the endpoint does not accept this request
│   │   ├── LMTooLong         the prompt does not fit the model's context
│   │   └── LMUnknownModel    the endpoint has no such model, or is at another address
│   ├── LMMalformed           what came back is no reply
│   ├── LMRefused             the model or a filter declined; holds what was said
│   ├── LMCutOff              the reply ended at the token limit; holds what there is
│   ├── RecordingMiss         nothing is recorded for this request
│   └── ScriptExhausted       a scripted LM has no reply left, or none that fits
├── StoreError                the results file cannot be used
│   ├── StoreVersionError     written by a newer version
│   ├── StoreWriteError       full disk, read-only folder, locked file
│   └── OwnedError            another process, thread or object goes on with that run or study
├── TrustError                a folder names what would be started or imported, and nobody agreed
└── StudyError                a grid that cannot be built or run
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from enum import Enum
from numbers import Number
from pathlib import PurePath
from typing import Any, NamedTuple

NAME = 120
"""Characters of a name, and of a value, that an error shows."""

MOST = 2_000
"""Known names among which the nearest is looked for: each comparison takes a while."""


class AgentLabError(Exception):
    """Root of every error that agentlab raises on purpose."""


class UnknownNameError(AgentLabError, LookupError):
    """A name that is not registered.

    Parameters
    ----------
    kind : str
        What was looked up ("planner", "strategy", "suite", "tool", ...).
    name : str
        What arrived.
    known : iterable of str
        The names that exist.
    where : str, optional
        Where the name was found, put in front of the message.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        self.kind, self.name, self.known, self.where = kind, name, tuple(sorted(known)), where
        super().__init__(kind, name, self.known, where)

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        return f"{prefix}unknown {self.kind} {seen(self.name)}; {suggest(self.name, self.known)}"


class JsonError(AgentLabError, ValueError):
    """A text, or a value, that is not JSON, or YAML, as it is read here: reason and place.

    Parameters
    ----------
    problem : str
    path : tuple, optional
        Keys and indices that lead to the place in the document, where they are known.
    """

    def __init__(self, problem: str, path: tuple[str | int, ...] = ()) -> None:
        self.path = path
        super().__init__(problem)


class ConfigError(AgentLabError, ValueError):
    """A configuration, arm or argument that cannot be used."""


class ScenarioError(AgentLabError, ValueError):
    """A scenario or suite file that does not say what it must (file and line in the message)."""


class PlanError(AgentLabError, ValueError):
    """Anything wrong with a plan."""


class PlanParseError(PlanError):
    """A reply or document that is no valid plan.

    Parameters
    ----------
    violations : sequence of str
        Every violation found, each naming the step and the field.
    reply : str, optional
        The reply that was read.
    """

    def __init__(self, violations: Sequence[str], reply: str | None = None) -> None:
        self.violations, self.reply = tuple(violations), reply
        super().__init__(self.violations)

    def __str__(self) -> str:
        return "not a valid plan: " + "; ".join(self.violations)


class PlanViolation(NamedTuple):
    """One rule that a plan contract breaks."""

    step: str | None
    """Step id, or where it stands (``steps[0]``) when it has none; None: the plan as a whole."""
    field: str
    """In the spelling of the wire, with the place inside it: ``result.rows[0]``."""
    problem: str

    def __str__(self) -> str:
        where = "" if self.step is None else f"step {seen(self.step)}, "
        return f"{where}{self.field}: {self.problem}"


class PlanValidationError(PlanError):
    """A plan contract, or the text of one, that breaks its rules.

    Parameters
    ----------
    violations : sequence of PlanViolation
        Every violation found.
    reply : str, optional
        The model's reply that was read.
    """

    def __init__(self, violations: Sequence[PlanViolation], reply: str | None = None) -> None:
        self.violations, self.reply = tuple(violations), reply
        super().__init__(self.violations)

    def __str__(self) -> str:
        return "not a valid plan contract: " + "; ".join(map(str, self.violations))


class PlanEditError(PlanError):
    """An edit that would leave a broken plan, or that touches a settled step."""


class ReferenceError_(PlanError):  # noqa: N801 - the builtin name is taken
    """A ``${...}`` that is malformed or that does not resolve."""


class ToolFailure(AgentLabError):
    """Raised inside a tool to fail with a code instead of an anonymous exception.

    Parameters
    ----------
    message : str
        What went wrong, for the agent to read.
    code : str
        A short machine-readable code, e.g. ``"sold_out"``.
    permanent : bool
        True when the same call can never succeed.
    """

    def __init__(self, message: str, code: str = "error", permanent: bool = False) -> None:
        self.message, self.code, self.permanent = message, code, permanent
        super().__init__(message, code, permanent)

    def __str__(self) -> str:
        return self.message


class EnvironmentContractError(AgentLabError):
    """An environment that breaks its contract (changed its input, returned no JSON, ...)."""


class RunError(AgentLabError):
    """Something asked of a run that its state does not allow."""


class ReplayError(AgentLabError):
    """A recording that cannot be replayed."""


class LMError(AgentLabError):
    """A language model gave no usable reply; never holds or names a key.

    Parameters
    ----------
    message : str
        What happened and what to do.
    model : str
        Whom was asked.
    status : int, optional
        HTTP status, where there was one.
    retry_after : float, optional
        Seconds after which the endpoint wants to be asked again.
    partial : str
        What the model had said.
    """

    def __init__(
        self, message: str, *, model: str = "", status: int | None = None,
        retry_after: float | None = None, partial: str = "",
    ) -> None:  # fmt: skip
        self.model, self.status, self.retry_after = model, status, retry_after
        self.partial = partial
        super().__init__(message)


class LMUnavailable(LMError):
    """No connection, or the endpoint itself failed (5xx): trying again may help."""


class LMRateLimited(LMUnavailable):
    """Too many requests; ``retry_after`` holds the seconds to wait, where they were told."""


class LMTimeout(LMUnavailable):
    """No reply in time. The endpoint may have done, and charged for, the work."""


class LMDenied(LMError):
    """The key is missing or not accepted, or the account is empty."""


class LMRejected(LMError):
    """The endpoint does not accept this request: unknown model, bad parameter, bad schema."""


class LMTooLong(LMRejected):
    """The prompt does not fit the model's context."""


class LMUnknownModel(LMRejected):
    """The endpoint has no such model, or what is at its address is no endpoint (404)."""


class LMMalformed(LMError):
    """What came back is no reply: not JSON, no choice in it, a stream that breaks off."""


class LMRefused(LMError):
    """The model or a filter declined to answer; ``partial`` holds what was said."""


class LMCutOff(LMError):
    """The reply ended at the token limit; ``partial`` holds what there is."""


class RecordingMiss(LMError):
    """Nothing is recorded for this request (the nearest recording is named)."""


class ScriptExhausted(LMError):
    """A scripted LM has no reply left, or no rule that fits the request."""


class StoreError(AgentLabError):
    """A results file that cannot be used."""


class StoreVersionError(StoreError):
    """A results file written by a newer version of agentlab."""


class StoreWriteError(StoreError):
    """A results file that cannot be written: full disk, read-only folder, locked file."""


class OwnedError(StoreError):
    """A run or study that another process, thread or object goes on with; says who."""


class TrustError(AgentLabError):
    """A folder names what would be started, imported or opened, and the user has not agreed."""


class StudyError(AgentLabError):
    """A study that cannot be built or run."""


# ---- what errors say -------------------------------------------------------------------------


def shortened(text: str, length: int) -> str:
    """Return text of at most ``length`` characters, with an ellipsis where it was cut.

    Examples
    --------
    >>> shortened("book_the_hotel", 8)
    'book_th…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def seen(value: Any, length: int = NAME) -> str:
    """Return a value as an error shows it: one line of at most ``length`` characters.

    No more of it is looked at than is shown, so that a value that aliases or nesting made
    enormous costs nothing.

    Examples
    --------
    >>> seen({"seeds": [1, 2]}), seen("x" * 1000, 8), seen([[0] * 10**6] * 10**6, 9)
    ("{'seeds': [1, 2]}", "'xxxxxx…", '[[0, 0, …')
    """
    pieces, size = [], 0
    for piece in _pieces(value, length):
        pieces.append(piece)
        size += len(piece)
        if size > length:
            break
    return shortened("".join(pieces), length)


_SHOWN = (str, bytes, Number, Enum, date, time, timedelta, PurePath)
"""Of what else there is, its kind alone is told: its ``repr`` is anybody's, and may hold a key."""

_BRACKETS: dict[Any, str] = {list: "[]", tuple: "()", dict: "{}", set: "{}", frozenset: "{}"}


def _pieces(value: Any, length: int) -> Iterator[str]:
    kind = type(value)
    if kind in (str, bytes):
        yield repr(value[:length])
        yield "…" * (len(value) > length)
    elif kind in _BRACKETS and value:
        yield _BRACKETS[kind][0]
        for index, item in enumerate(value):
            yield ", " * (index > 0)
            yield from _pieces(item, length)
            if kind is dict:
                yield ": "
                yield from _pieces(value[item], length)
        yield "," * (kind is tuple and len(value) == 1) + _BRACKETS[kind][1]
    elif isinstance(value, type):
        yield f"the class {value.__name__}"
    elif value is None or isinstance(value, _SHOWN) or kind in _BRACKETS:
        try:
            yield " ".join(repr(value).split())
        except Exception:  # a number of too many digits
            yield kind.__name__
    else:
        yield a_kind(value)


def a_kind(value: object) -> str:
    """Return the name of a value's class with its article.

    Examples
    --------
    >>> a_kind(1), a_kind([])
    ('an int', 'a list')
    """
    name = told(type(value).__name__, 100)
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"


def suggest(name: str, known: Iterable[str]) -> str:
    """Say which known names come nearest to ``name``, or list them all when none does.

    Examples
    --------
    >>> suggest("serach", ["search", "reference"])
    "did you mean 'search'? known: reference, search"
    """
    names = sorted(known)
    listing = ", ".join(shortened(n, NAME) for n in names[:30]) if names else "none"
    listing += ", ..." if len(names) > 30 else ""
    name = name if isinstance(name, str) else ""
    near = [] if len(name) > NAME else difflib.get_close_matches(name, names[:MOST], 1, 0.6)
    return (f"did you mean {seen(near[0])}? " if near else "") + f"known: {listing}"


TOLD = 4_000
"""Characters that are kept of what an exception says."""


def told(text: str, length: int = TOLD) -> str:
    """Return a text that anybody may have made as one that can be kept: bounded, and Unicode.

    Examples
    --------
    >>> told("half \\ud800"), told("x" * 10, 5)
    ('half \\\\ud800', 'xxxx…')
    """
    whole = text[: length + 1].encode("utf-8", "backslashreplace").decode("utf-8")
    return shortened(whole, length)


def raised(error: BaseException) -> str:
    """Return an exception in a line: its class and what it says, where it can say anything."""
    return f"{told(type(error).__name__, 200)}: {_said(error)}"


def _said(thing: object) -> str:
    """Return the text of anything, whatever happens on the way."""
    try:
        return told(str(thing))
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        return f"(its text raised {type(e).__name__})"


def failure(error: ToolFailure) -> tuple[str, str, bool]:
    """Return code, message and permanence of a failure, whatever it was given for them."""
    permanent = isinstance(error.permanent, int) and bool(error.permanent)
    return told(_said(error.code), 100), _said(error.message), permanent
