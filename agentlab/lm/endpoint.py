"""One attempt at a real endpoint: its errors become ours, no key gets out, failures are retried.

What an endpoint's client raises is replaced, never chained: an endpoint may echo the key that it
refuses. What it said is kept as text, with every known secret blotted out.

A transient failure (too many requests, 5xx, no connection) is tried again after the time that the
endpoint asked for, or else 0.5 s, 1 s, 2 s, ... A call that timed out is not repeated: it may have
been done, and charged. A stream is repeated only before its first event.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from agentlab.base.randomness import uniform
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
from agentlab.lm.engine import Engine, Wrapper, identify, notes
from agentlab.lm.serde import Event, Request, Response, lm15, response_of

ENDPOINT_KEY = "AGENTLAB_LM_API_KEY"
"""Environment variable with the key for an address that the user named."""

LONGEST_WAIT = 60.0
"""Seconds; an endpoint that asks for more is not waited for."""


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
    """

    def __init__(
        self, client: Engine, model: str, route: str, wire: str, *, vendor: str | None = None,
        address: str | None = None, key: SecretStr | None = None, key_name: str = "",
    ) -> None:  # fmt: skip
        super().__init__(client)
        self.model, self.route, self.wire, self.key_name = model, route, wire, key_name
        self.vendor, self.address, self._key = vendor, address, key

    def __repr__(self) -> str:
        return f"Endpoint({self.model!r}, {self.address or 'the vendor'!r})"

    @property
    def place(self) -> str:
        """Who is asked, whatever model: the address, or else the vendor."""
        return self.address or self.vendor or self.model

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
            self._price(response, request)
            if response.usage.output_tokens is not None or _says_something(response):
                return response
            error = LMMalformed(
                f"{self.model}{self._where} sent what is no reply: nothing is in it",
                model=self.model,
            )
        raise error  # outside the handler: the endpoint's own exception may quote the key

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events."""
        events: list[Event] = []
        try:
            for event in self.inner.stream(replace(request, model=self.route)):
                events.append(event)
                yield event
            if self.vendor is not None:
                self._price(response_of(request, events), request)
            return
        except Warning:
            raise
        except Exception as e:
            error = self.translate(e)
        raise error

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


def _kind(error: Exception) -> tuple[type[LMError], str]:
    """Return our class for an exception of a client, and what it means."""
    types = lm15()
    if isinstance(error, types.TransportError):
        if type(error.__cause__).__name__ in ("ReadTimeout", "WriteTimeout"):
            return LMTimeout, "gave no reply in time"
        return LMUnavailable, "cannot be reached"
    if isinstance(error, types.TimeoutError):
        late = error.status not in (408, 504) or type(error.__cause__).__name__ == "Timeout"
        return (LMTimeout if late else LMUnavailable), "gave no reply in time"
    if isinstance(error, types.ProviderError) and error.status == 200:
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
    if isinstance(error, (TypeError, ValueError, LookupError, AttributeError)):
        return LMMalformed, "sent what is no reply"  # the client stumbled over it
    return LMError, "failed in its client"


def _says_something(response: Response) -> bool:
    return any(part.type != "text" or part.text for part in response.message.parts)


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
    named = {secret for secret in named if len(secret) > 3}  # "x", for servers without keys
    spellings: set[str] = set()
    for secret in named:
        raw = secret.strip().encode("utf-8", "surrogateescape")
        spellings |= {secret, secret.strip(), quote(secret.strip(), safe="")}
        spellings |= {repr(secret)[1:-1], secret.replace("/", "\\/")}
        spellings.add(base64.b64encode(raw).decode())
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, "[key]")
    return text


class Retrying(Wrapper):
    """Try a transient failure again, after a wait; whom a rate limit stops, all threads wait for.

    Parameters
    ----------
    inner : Engine
    retries : int
        How often; 0: never.
    sleep : callable
        Waits, in seconds.
    """

    def __init__(
        self, inner: Engine, retries: int = 2, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(inner)
        self.retries, self.sleep = retries, sleep
        self._opens = 0.0  # when the endpoint takes requests again

    def complete(self, request: Request) -> Response:
        """Return the whole reply."""
        return next(self._tried(request, lambda: iter([self.inner.complete(request)])))

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the reply's events; it is tried again only before the first one."""
        return self._tried(request, lambda: self.inner.stream(request))

    def _tried(self, request: Request, ask: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        attempt = 0
        self._hold()
        while True:
            begun = False
            try:
                for part in ask():
                    begun = True
                    yield part
                return
            except LMUnavailable as e:
                error = e
            if begun:
                raise error
            attempt += 1
            self._wait(error, attempt, request)

    def _wait(self, error: LMUnavailable, attempt: int, request: Request) -> None:
        """Wait before the next attempt, or raise when there is none."""
        if isinstance(error, LMTimeout):
            raise error
        wait = error.retry_after
        if wait is None:  # jitter, so that 64 runs do not come back at the same moment
            wait = 0.5 * 2 ** (attempt - 1) * (0.75 + 0.5 * uniform(identify(request)[1], attempt))
        if attempt > self.retries or wait > LONGEST_WAIT:
            if attempt > 1:
                error.add_note(f"asked {attempt} times")
            raise error
        notes().attempts += 1
        if isinstance(error, LMRateLimited):
            self._opens = max(self._opens, time.monotonic() + wait)
        self.sleep(wait)

    def _hold(self) -> None:
        """Wait while another thread was told to: asking now would use up an attempt."""
        left = self._opens - time.monotonic()
        if left > 0:
            self.sleep(left)
