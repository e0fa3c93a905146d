"""One attempt at a real endpoint: its errors become ours, no key gets out, failures are retried.

What an endpoint's client raises is replaced, never chained: an endpoint may echo the key that it
refuses. What it said is kept as text, with every known secret blotted out.

A transient failure (too many requests, 5xx, no connection) is tried again after the time that the
endpoint asked for, or else 0.5 s, 1 s, 2 s, ... A call that timed out is not repeated: it may have
been done, and charged. A stream is repeated only before its first event. All attempts and the waits
between them have one moment until which they may take (``agentlab.lm.deadline``).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from agentlab.base.documents import shortened
from agentlab.base.randomness import uniform
from agentlab.base.secrets import Secrets
from agentlab.errors import (
    ConfigError,
    LMDenied,
    LMError,
    LMMalformed,
    LMRateLimited,
    LMRejected,
    LMTimeout,
    LMTooLong,
    LMUnavailable,
    LMUnknownModel,
)
from agentlab.lm.deadline import Elsewhere, Late, TooMuch, each_until, now, until
from agentlab.lm.engine import Engine, Wrapper, identify, notes
from agentlab.lm.serde import Event, Request, Response, lm15, response_of

ENDPOINT_KEY = "AGENTLAB_LM_API_KEY"
"""Environment variable with the key for an address that the user named."""

LONGEST_WAIT = 60.0
"""Seconds; an endpoint that asks for more is not waited for."""
LONGEST_MESSAGE = 2000
"""Characters of what an endpoint says of its error."""
MOST_TOKENS = 1 << 53
"""Of a reply; a number that no table holds as it is, is none."""


class Endpoint(Wrapper):
    """One attempt at a real endpoint: its errors become ours, its price is noted.

    Parameters
    ----------
    client : engine of dspy
    model : str
        As requests and recordings call it.
    route : str
        What the client calls it.
    wire : str
        What the endpoint calls it.
    vendor : str or None
        Whose price list counts; None: nobody's.
    address : str or None
        For messages.
    key : SecretStr or None
        Blotted out of messages.
    key_name : str
        The environment variable that may hold the key.
    timeout : float
        Seconds of a call, for messages.
    transport : object, optional
        What the client asks through; closed with it.
    """

    def __init__(
        self, client: Engine, model: str, route: str, wire: str, *, vendor: str | None = None,
        address: str | None = None, key: SecretStr | None = None, key_name: str = "",
        timeout: float = float("inf"), transport: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(client)
        self._timeout, self._transport = timeout, transport
        self.model, self.route, self.wire, self.key_name = model, route, wire, key_name
        self.vendor, self.address, self._key = vendor, address, key

    def __repr__(self) -> str:
        return f"Endpoint({self.model!r}, {self.address or 'the vendor'!r})"

    @property
    def place(self) -> str:
        """Who is asked, whatever model: the address, or else the vendor."""
        return self.address or self.vendor or self.model

    def close(self) -> None:
        """Close the client and its connections."""
        self.inner.close()
        if self._transport is not None:
            self._transport.close()

    def __reduce__(self) -> Any:
        raise ConfigError(
            f"{self!r} holds a connection and perhaps a key, and does not cross processes; send "
            "its name and connect there"
        )

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""
        try:
            response = self.inner.complete(replace(request, model=self.route))
        except Warning:
            raise
        except Exception as e:
            error = self.translate(e)
        else:
            problem = _problem(response)
            if problem is None:
                self._price(response, request)
                return response
            error = self._malformed(problem)
        raise error  # outside the handler: the endpoint's own exception may quote the key

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events."""
        events: list[Event] = []
        try:
            for event in self.inner.stream(replace(request, model=self.route)):
                events.append(event)
                yield event
            response = response_of(request, events)  # what cannot be put together is no reply
            if _odd(response.usage):
                raise self._malformed("its usage")
            self._price(response, request)
            return
        except Warning:
            raise
        except Exception as e:
            error = self.translate(e)
        raise error

    def _malformed(self, problem: str) -> LMMalformed:
        text = f"{self.model}{self._where} sent what is no reply: {problem}"
        return LMMalformed(text, model=self.model)

    def _price(self, response: Response, request: Request) -> None:
        from dspy.clients.costs import estimate_cost

        if self.vendor is not None:
            notes().cost, _ = estimate_cost(
                response, provider=self.vendor, requested_model=self.wire, request=request
            )

    def translate(self, error: Exception) -> LMError:
        """Return an endpoint's exception as ours, every known secret blotted out."""
        if isinstance(error, LMError):
            return error
        if isinstance(error, ImportError):
            return LMRejected(f"{self.model}: {error}", model=self.model)
        if isinstance(error, Late):
            text = f"gave no reply in time: the {self._timeout:g} s of a call are over"
            return LMTimeout(f"{self.model}{self._where} {text}", model=self.model)
        if isinstance(error, Elsewhere):
            text = f"redirects the request ({error}); that is not followed, name the right address"
            return LMRejected(f"{self.model}{self._where} {text}", model=self.model)
        kind, hint = _kind(error)
        status = getattr(error, "status", None)
        if kind is LMDenied:
            hint = (
                f"wants another key (set {self.key_name}, or apiKey in the agent's configuration)"
            )
        elif status == 404 and self.address and not self.address.endswith("/v1"):
            hint = "does not know this path or model (does its address end in /v1?)"
        said = str(getattr(error, "message", "") or error).partition("\n\n  ")[0].strip()
        if kind is LMTimeout:
            said = said.partition(";")[0]  # what follows is advice about the client
        said = shortened(said, LONGEST_MESSAGE)
        detail = f"HTTP {status}: {said}" if status else said or type(error).__name__
        text = f"{self.model}{self._where} {hint}: {detail}"
        return kind(
            blot(text, self._key),
            model=self.model,
            status=status,
            retry_after=getattr(error, "retry_after", None),
        )

    @property
    def _where(self) -> str:
        return f" at {self.address}" if self.address else ""


_STUMBLED = (
    TooMuch, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError,
)  # fmt: skip
"""What a client raises of a reply that it did not expect."""


def _kind(error: Exception) -> tuple[type[LMError], str]:
    """Return our class for an exception of a client, and what it means."""
    types = lm15()
    if isinstance(error, types.TransportError):
        cause = type(error.__cause__).__name__
        broken = cause == "ProtocolError" and not str(error).startswith("connection closed")
        if broken or error.__cause__ is None:  # no HTTP, or an event without end
            return LMMalformed, "sent what is no reply"
        if cause in ("ReadTimeout", "WriteTimeout"):
            return LMTimeout, "gave no reply in time"
        return LMUnavailable, "cannot be reached"
    if isinstance(error, types.TimeoutError):
        late = error.status not in (408, 504) or type(error.__cause__).__name__ == "Timeout"
        return (LMTimeout if late else LMUnavailable), "gave no reply in time"
    if isinstance(error, types.ProviderError) and (error.status or 999) < 300:
        return LMMalformed, "sent what is no reply"
    table: list[tuple[Any, type[LMError], str]] = [
        (types.ContextLengthError, LMTooLong, "finds the prompt too long"),
        ((types.AuthError, types.BillingError, types.NotConfiguredError), LMDenied, "denied it"),
        (types.RateLimitError, LMRateLimited, "had too many requests"),
        (types.ServerError, LMUnavailable, "failed"),
        (types.StreamAssemblyError, LMMalformed, "broke off its stream"),
        (types.UnsupportedModelError, LMUnknownModel, "does not know the model"),
        ((types.InvalidRequestError, types.CapabilityError), LMRejected, "rejects the request"),
    ]
    for theirs, ours, meaning in table:
        if isinstance(error, theirs):
            if ours is LMRejected and getattr(error, "status", None) == 404:
                return LMUnknownModel, "does not know the model"
            return ours, meaning
    if isinstance(error, types.LM15Error):
        return LMRejected, "rejects the request"
    if isinstance(error, _STUMBLED):
        return LMMalformed, "sent what is no reply"  # the client stumbled over it
    return LMError, "failed in its client"


def _problem(response: Response) -> str | None:
    """Return why a response is no reply, though the client took it for one; None: it is."""
    if _odd(response.usage):
        return "its usage"
    choices = response.provider_data.get("choices") if response.provider_data else None
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else 0
        parts = content if isinstance(content, list) else []
        if not isinstance(content, (str, list, type(None))) or any(
            not isinstance(part, Mapping) for part in parts
        ):
            return "its message has no text"  # the client would take it for an empty one
    says = any(part.type != "text" or part.text for part in response.message.parts)
    if response.usage.output_tokens is None and not says:
        return "nothing is in it"
    return None


def _odd(usage: Any) -> bool:
    told = (getattr(usage, name, None) for name in getattr(usage, "__dataclass_fields__", ()))
    return any(isinstance(n, int) and n > MOST_TOKENS for n in told)


_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


_ADDRESS_NAME = re.compile(r"_(BASE|HOST|URL|ENDPOINT|VERSION)\Z", re.IGNORECASE)


def endpoint_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that may say where endpoints are, and with which key they are asked.

    Examples
    --------
    >>> endpoint_variables({"OPENAI_API_KEY": "k", "OPENAI_API_BASE": "http://h/v1", "HOME": "/"})
    {'OPENAI_API_KEY': 'k', 'OPENAI_API_BASE': 'http://h/v1'}
    """
    told = environment.items()
    return {n: v for n, v in told if _SECRET_NAME.search(n) or _ADDRESS_NAME.search(n)}


def blot(
    text: str, key: SecretStr | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """Return ``text`` without ``key`` and without any secret of the environment, in any spelling.

    Secrets of the environment are the values of at least 8 characters of variables named like
    keys, tokens and passwords.

    Examples
    --------
    >>> blot("bad key: sk-123456789", SecretStr("sk-123456789"), {})
    'bad key: [key]'
    """
    named = {v for n, v in environment.items() if _SECRET_NAME.search(n) and len(v.strip()) >= 8}
    if key is not None and key.get_secret_value():
        named.add(key.get_secret_value())
    return Secrets(named).hide(text, "[key]")  # "x", for servers without keys, is none


class Retrying(Wrapper):
    """Try a transient failure again, after a wait; whom a rate limit stops, all threads wait for.

    Parameters
    ----------
    inner : Engine
    retries : int
        How often; 0: never.
    sleep : callable
        Waits, in seconds.
    timeout : float
        Seconds that a call may take, with all attempts and waits.
    """

    def __init__(
        self, inner: Engine, retries: int = 2, sleep: Callable[[float], None] = time.sleep,
        timeout: float = float("inf"),
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self.retries, self.sleep, self.timeout = retries, sleep, timeout
        self._opens = 0.0  # when the endpoint takes requests again

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""
        return next(self._tried(request, lambda: iter([self.inner.complete(request)])))

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events; it is tried again only before the first one."""
        return self._tried(request, lambda: self.inner.stream(request))

    def _tried(self, request: Request, ask: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        attempt, moment = 0, now() + self.timeout
        self._hold(request, moment)
        while True:
            begun = False
            try:
                with until(moment):
                    parts = ask()
                for part in each_until(moment, parts):
                    begun = True
                    yield part
                return
            except LMUnavailable as e:
                error = e
            if begun:
                raise error
            attempt += 1
            self._wait(error, attempt, request, moment)

    def _wait(self, error: LMUnavailable, attempt: int, request: Request, moment: float) -> None:
        """Wait before the next attempt, or raise when there is none."""
        if isinstance(error, LMTimeout):
            raise error
        wait = error.retry_after
        if wait is None:  # jitter, so that 64 runs do not come back at the same moment
            wait = 0.5 * 2 ** (attempt - 1) * (0.75 + 0.5 * uniform(identify(request)[1], attempt))
        if attempt > self.retries or not wait <= LONGEST_WAIT:
            if attempt > 1:
                error.add_note(f"asked {attempt} times")
            raise error
        self._fits(wait, moment, request, str(error))
        notes().attempts += 1
        if isinstance(error, LMRateLimited):
            self._opens = max(self._opens, now() + wait)
        self.sleep(max(0.0, wait))

    def _hold(self, request: Request, moment: float) -> None:
        """Wait while another thread was told to: asking now would use up an attempt."""
        wait = self._opens - now()
        if wait > 0:
            self._fits(wait, moment, request, "it had too many requests")
            self.sleep(wait)

    def _fits(self, wait: float, moment: float, request: Request, why: str) -> None:
        """Raise where a call would be over before a wait is."""
        if now() + wait >= moment:
            raise LMTimeout(
                f"{request.model} gave no reply in time: to ask again in {wait:.3g} s is too late "
                f"for the {self.timeout:g} s of a call; {why}",
                model=request.model,
            )
