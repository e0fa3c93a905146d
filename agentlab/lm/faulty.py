"""Faults of a language model, put around any engine.

A fault is drawn for each call as tool faults are (``lab/faults.py``): the draw depends on (seed,
scenario, "lm", digest of the prompt, occurrence of that prompt in the run) and is compared with
the rate, so two arms that ask the same meet the same fault, and the faults at a low rate are a
subset of those at a higher one. Neither rate nor arm nor model nor its settings enter the key:
the prompt is the request without model and configuration.

A reply that is spoiled (malformed, cut off, refused) was asked for and is paid for; so an arm
with faults advances a recording as one without does. A call that fails (rate limit, timeout) is
not made. How a reply is spoiled is a function of it and of the draw. Where it calls tools, a
malformed one has one call whose arguments are no JSON or do not fit, one that is cut off ends
within a call, and a refused one calls nothing. A plan's persistence and
visibility do not count here: a fault is of one call, and the reply shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agentlab.base.documents import Json, canonical, digest
from agentlab.base.randomness import choose, uniform
from agentlab.environments.fault_plan import LM_KINDS, FaultKind, FaultPlan, TargetedFault
from agentlab.errors import ConfigError, LMRateLimited, LMTimeout, suggest
from agentlab.lm.cursor import Cursor
from agentlab.lm.engine import Engine, Wrapper, identify, notes
from agentlab.lm.outcome import PARTIAL
from agentlab.lm.serde import Event, Request, Response, calls_of, events_of, text_of, with_text

SPOILS = LM_KINDS
"""Kinds that spoil a reply."""
FAILS = frozenset({FaultKind.RATE_LIMIT, FaultKind.TIMEOUT})
"""Kinds that fail a call; by ``Faulty`` alone, since in a FaultPlan they are about tools."""

REFUSAL = "I'm sorry, but I can't help with that."


def prompt_digest(document: Mapping[str, Json]) -> str:
    """Return the digest of a request document without its model and configuration."""
    return digest({k: v for k, v in document.items() if k not in ("model", "config")})


def lm_fault(
    rate: float, kinds: Mapping[FaultKind, float], seed: int, scenario: str, key: str,
    occurrence: int,
) -> FaultKind | None:  # fmt: skip
    """Return the rate-based fault of one call, or None.

    Parameters
    ----------
    rate : float
        Between 0 and 1.
    kinds : mapping of FaultKind to float
        Weights; where the draw falls on a kind that is none of an LM's, nothing happens.
    seed, scenario, key, occurrence
        What the draw depends on; ``key`` is ``prompt_digest``.
    """
    names = (seed, scenario, "lm", key, occurrence)
    if uniform(*names) >= rate:
        return None
    kind = choose(kinds, uniform(*names, "kind"))
    return kind if kind in SPOILS | FAILS else None


class Faulty(Wrapper):
    """An engine whose calls meet faults.

    Parameters
    ----------
    inner : Engine
    rate : float
        Probability that a call meets a fault.
    kinds : mapping of FaultKind to float
        Weights of lm_malformed, lm_cut_off, lm_refused, rate_limit, timeout.
    seed : int
    scenario : str
        Id.
    cursor : Cursor, optional
        Counts the prompts of the run; None: a new one. Not the recording's, which counts others.
    targets : tuple of TargetedFault
        Faults that strike whatever the rate: of an LM's kind, with ``tool`` "lm" or the model's
        name; ``arguments`` do not count.
    where : callable, optional
        Returns (step id, simulated time) of the caller, for the targets.
    retry_after : float
        Seconds that a rate limit asks for.
    """

    def __init__(
        self, inner: Engine, rate: float, kinds: Mapping[FaultKind, float] | None = None, *,
        seed: int = 0, scenario: str = "", cursor: Cursor | None = None,
        targets: tuple[TargetedFault, ...] = (),
        where: Callable[[], tuple[str, float]] = lambda: ("", 0.0), retry_after: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        if not 0 <= rate <= 1:
            raise ConfigError(f"expected a rate from 0 to 1, got {rate!r}")
        self.rate, self.seed, self.scenario = rate, seed, scenario
        chosen = dict.fromkeys(sorted(SPOILS), 1.0) if kinds is None else kinds
        try:
            self.kinds = {FaultKind(kind): weight for kind, weight in chosen.items()}
        except ValueError as e:
            raise ConfigError(f"{e}; {suggest('', sorted(SPOILS | FAILS))}") from e
        self.cursor = Cursor() if cursor is None else cursor
        self.targets, self.where, self.retry_after = targets, where, retry_after

    @classmethod
    def of_plan(
        cls, inner: Engine, plan: FaultPlan, seed: int, scenario: str, *,
        cursor: Cursor | None = None,
        where: Callable[[], tuple[str, float]] = lambda: ("", 0.0),
    ) -> Faulty:  # fmt: skip
        """Return an engine that meets the LM faults of a plan; its other kinds strike tools."""
        kinds = {k: w if k in SPOILS else 0.0 for k, w in plan.kinds.items()}
        rest = sum(w for k, w in plan.kinds.items() if k not in SPOILS)
        kinds[FaultKind.ERROR] = rest  # no LM kind: the share of the draws that strike tools
        targets = tuple(t for t in plan.targets if t.kind in SPOILS)
        return cls(
            inner, plan.rate, kinds, seed=seed, scenario=scenario, cursor=cursor, targets=targets,
            where=where,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Faulty({self.inner!r}, rate={self.rate})"

    def complete(self, request: Request) -> Response:
        """Return the reply, spoiled where a fault strikes."""
        kind, draw = self._drawn(request)
        self._fail(kind, request)
        response = self.inner.complete(request)
        return response if kind is None else spoil(response, kind, draw)

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events; a spoiled reply is streamed when it is whole."""
        kind, draw = self._drawn(request)
        self._fail(kind, request)
        if kind is None:
            yield from self.inner.stream(request)
        else:
            yield from events_of(spoil(self.inner.complete(request), kind, draw))

    def _drawn(self, request: Request) -> tuple[FaultKind | None, float]:
        """Draw the fault of a call, and how it spoils the reply: in [0, 1)."""
        key = prompt_digest(identify(request)[0])
        occurrence = self.cursor.next(key)
        kind = next((t.kind for t in self.targets if self._hits(t, request, occurrence)), None)
        if kind is None:
            kind = lm_fault(self.rate, self.kinds, self.seed, self.scenario, key, occurrence)
        if kind is not None:
            notes().faults.append(str(kind))
        return kind, uniform(self.seed, self.scenario, "lm", key, occurrence, "detail")

    def _hits(self, target: TargetedFault, request: Request, occurrence: int) -> bool:
        step, now = self.where()
        return (
            target.tool in ("lm", request.model)
            and (target.step is None or target.step == step)
            and (target.occurrence is None or target.occurrence == occurrence)
            and (target.after is None or now >= target.after)
            and (target.before is None or now < target.before)
        )

    def _fail(self, kind: FaultKind | None, request: Request) -> None:
        if kind is FaultKind.RATE_LIMIT:
            raise LMRateLimited(
                f"{request.model} had too many requests; it asks to wait {self.retry_after:g} s",
                model=request.model,
                status=429,
                retry_after=self.retry_after,
            )
        if kind is FaultKind.TIMEOUT:
            raise LMTimeout(f"{request.model} gave no reply in time", model=request.model)


def spoil(response: Response, kind: FaultKind, draw: float) -> Response:
    """Return a reply as a fault leaves it.

    Parameters
    ----------
    response : Response
    kind : {LM_MALFORMED, LM_CUT_OFF, LM_REFUSED}
    draw : float
        In [0, 1): how.
    """
    text, calls = text_of(response), calls_of(response)
    if kind is FaultKind.LM_REFUSED:
        return with_text(response, REFUSAL, finish="content_filter")
    if kind is FaultKind.LM_MALFORMED and calls:
        number, form = divmod(draw * len(calls), 1)
        calls[int(number)] = _malformed_call(calls[int(number)], form)
        return with_text(response, text, calls)
    if kind is FaultKind.LM_MALFORMED:
        return with_text(response, malformed(text, draw), finish="stop")
    whole = len(text) + sum(len(canonical(c.input)) for c in calls)
    kept = int(whole * (0.2 + 0.6 * draw))
    usage, tokens = response.usage, response.usage.output_tokens
    if tokens is not None:
        tokens = round(tokens * kept / max(1, whole))
        usage = replace(usage, output_tokens=tokens, total_tokens=None)
    left = _calls_within(calls, kept - len(text))
    return replace(with_text(response, text[:kept], left, finish="length"), usage=usage)


def _malformed_call(call: Any, form: float) -> Any:
    """Return a call whose arguments are no JSON, or are wrapped once too often for its schema."""
    wrong = {PARTIAL: canonical(call.input)[:-1]} if form < 0.5 else {"arguments": call.input}
    return replace(call, input=wrong)


def _calls_within(calls: list[Any], room: int) -> list[Any]:
    """Return the calls whose arguments begin within so many characters, the last one cut off."""
    kept = []
    for call in calls:
        told = canonical(call.input)
        if room <= 0:
            break
        kept.append(call if room >= len(told) else replace(call, input={PARTIAL: told[:room]}))
        room -= len(told)
    return kept


def malformed(text: str, draw: float = 0.0) -> str:
    """Return what ``text`` would be from a model that forgets its form and tells it in prose.

    Every mark of form is gone (brackets, quotes, field headers, colons), so that neither a parser
    nor one that repairs finds a field again.

    Examples
    --------
    >>> malformed('{"goal": "tea", "steps": []}')
    'Sure, here is what I think. goal tea, steps'
    """
    openings = ("Sure, here is what I think.", "Let me explain.", "Of course!", "Well,")
    words = re.sub(r"[\[\]{}\"'`:#<>_=\\]+", " ", text)
    words = re.sub(r"\s+", " ", words).replace(" ,", ",").strip(" ,")
    return f"{openings[int(draw * len(openings))]} {words}".strip()
