"""A name becomes a model: ``connect("openai/gpt-4o-mini")``.

::

    openai/gpt-4o-mini                        a vendor's model (``agentlab.lm.routes.PREFIXES``)
    ollama_chat/qwen2.5
    openai/NAME@http://127.0.0.1:8765/v1      an endpoint that speaks OpenAI's chat completions
    openai/gpt-4o-mini?temperature=0&max_tokens=800     how it is asked; before an address
    openai/gpt-4o-mini?timeout=30&retries=5   seconds of a call, and how often it is tried again
    recorded:PATH                             a recording alone; nothing is asked, no key needed
    scripted:PATH                             replies from a file (see ``agentlab.lm.scripted``)

A model is asked through dspy's own client and over one transport, which follows no redirect, ends
in time and bounds a reply (``agentlab.lm.routes`` says which vendors). An endpoint named by its
address is declared to that client here and only for this model, so two addresses never meet, and it
is sent the JSON schema of structured output, which dspy does not send to a model it does not know.

**Keys** come from the environment or from a ``SecretStr`` in the settings, and go nowhere else:
the vendor's variable (``OPENAI_API_KEY``) to the vendor, ``AGENTLAB_LM_API_KEY`` to an address that
the user named, the key of the agent's configuration to the model and address it stands beside. No
error, span, recording or ``repr`` holds one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pydantic import InstanceOf, SecretStr, ValidationError

from agentlab.base.arguments import Flag, Number, takes
from agentlab.base.refusals import explain
from agentlab.errors import ConfigError, ReplayError, UnknownNameError
from agentlab.lm.endpoint import ENDPOINT_KEY, Retrying
from agentlab.lm.engine import SUPPORTS
from agentlab.lm.model import Model
from agentlab.lm.probe import Probe
from agentlab.lm.recording import Recording
from agentlab.lm.routes import LOCAL, Name, checked, route
from agentlab.lm.settings import ModelSettings

SETTINGS = ("max_tokens", "temperature", "top_p")
"""What a request carries beside the prompt."""


def parse(text: str) -> Name:
    """Take ``prefix/model``, ``prefix/model?SETTING=VALUE&...`` or either with ``@URL`` apart.

    Raises
    ------
    ConfigError
        It is none of these.

    Examples
    --------
    >>> name = parse("openai/local?temperature=0@http://127.0.0.1:8765/v1")
    >>> name.text, name.wire, name.url, name.settings.temperature
    ('openai/local', 'local', 'http://127.0.0.1:8765/v1', 0.0)
    """
    name, _, url = re.sub(r"@(?=https?://)", "\n", text.strip(), count=1).partition("\n")
    name, asked, query = name.partition("?")
    prefix, slash, wire = name.partition("/")
    if not name or "\n" in url or (slash and not (prefix and wire)):
        raise ConfigError(
            "expected a model such as 'openai/gpt-4o-mini', 'ollama_chat/qwen2.5' or "
            f"'openai/NAME@http://127.0.0.1:8765/v1', got {text.partition('@')[0]!r}"
        )
    if not slash:
        prefix, wire = "", name
    told = _settings(name, query) if asked else (None, None, None)
    return Name(name, prefix, wire, checked(url) if url else None, *told)


def _settings(model: str, query: str) -> tuple[ModelSettings, float | None, float | None]:
    """Read ``temperature=0&max_tokens=800``."""
    known = (*SETTINGS, "timeout", "retries")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
        given = {key: float(value) for key, value in pairs}
        if not given:
            raise ValueError("no setting")
    except ValueError as e:
        raise ConfigError(
            f"{model}: expected settings such as 'temperature=0&max_tokens=800', got {query!r}"
        ) from e
    for key in given:
        if key not in known:
            raise UnknownNameError("setting", key, known, where=model)
    timeout, retries = given.pop("timeout", None), given.pop("retries", None)
    try:
        return ModelSettings.model_validate({"model_id": model, **given}), timeout, retries
    except ValidationError as e:
        raise ConfigError(f"{model}: {explain(e, ModelSettings)}") from e


@takes(
    text=str | None,
    settings=InstanceOf[ModelSettings] | None,
    timeout=Number,
    retries=Number,
    response_schema=Flag | None,
    recordings=Callable[..., Any] | None,
    sleep=Callable[..., Any],
)
def connect(
    text: str | None = None, settings: ModelSettings | None = None, *, timeout: float = 300.0,
    retries: int = 2, response_schema: bool | None = None,
    recordings: Callable[[str], str | Path] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Model:  # fmt: skip
    """Make a model of its name; no request is sent.

    Parameters
    ----------
    text : str, optional
        See the module's head; None: the model of ``settings``.
    settings : ModelSettings, optional
        How to ask (max_tokens, temperature, top_p, streaming, tools); its address and key count
        only when ``text`` names the same model.
    timeout : float
        Seconds that a call may take, whatever the endpoint does: all attempts, the waits between
        them, the last byte of the reply. The name may say this and the next.
    retries : int
        How often a transient failure is tried again.
    response_schema : bool, optional
        Whether the endpoint takes a JSON schema for its reply; None: as known, and yes for an
        endpoint named by its address.
    recordings : callable, optional
        Finds the file of a recording by name ("" for ``recorded`` alone); default: the name is
        the path.
    sleep : callable
        Waits, in seconds, between attempts.

    Returns
    -------
    Model

    Raises
    ------
    ConfigError
        The name or a setting cannot be used.
    UnknownNameError
        Models of the name's prefix are not asked.
    ReplayError
        The recording cannot be read.
    """
    if text is None:
        if settings is None:
            raise ConfigError("name a model, or give the settings of one")
        text = model_text(settings)
    kind, _, rest = text.partition(":")
    if kind == "recorded":
        return _replayed(rest, settings, recordings)
    if kind == "scripted":
        from agentlab.lm.scripted import read_script

        return _asked_as(read_script(rest), settings)
    name = parse(text)
    timeout = timeout if name.timeout is None else name.timeout
    tries: float = retries if name.retries is None else name.retries
    if timeout <= 0 or tries not in range(1000):
        raise ConfigError(f"expected timeout > 0 and retries from 0, got {timeout:g} and {tries:g}")
    url, key = _address_and_key(name, settings)
    client, supports = route(name, url, key, timeout)
    if response_schema is not None:
        wanted = {"response_schema", "response_format"} if response_schema else set()
        supports = (supports - {"response_schema"}) | wanted
    if settings is not None and settings.supports_function_call is not None:
        supports -= {"function_calling"}
        supports |= {"function_calling"} if settings.supports_function_call else set()
    engine = Retrying(client, int(tries), sleep, timeout)
    own = client.address is not None or client.vendor in LOCAL  # no table knows its model
    unknown = own and (settings is None or settings.supports_function_call is None)
    model = Model(
        name.text, engine, supports=tuple(s for s in SUPPORTS if s in supports), base_url=url,
        probe=Probe(engine, name.text) if unknown else None,
    )  # fmt: skip
    return _asked_as(_asked_as(model, settings), name.settings)


def model_text(settings: ModelSettings) -> str:
    """Return the name under which ``connect`` finds the model of an agent's configuration."""
    model = settings.model_id
    return f"{settings.provider}/{model}" if settings.provider and "/" not in model else model


def _asked_as(model: Model, settings: ModelSettings | None) -> Model:
    if settings is None:
        return model
    chosen = {n: getattr(settings, n) for n in SETTINGS}
    given = {n: v for n, v in chosen.items() if v is not None}
    streams = settings.supports_streaming is not False
    return replace(model, settings={**model.settings, **given}, streams=streams)


def _replayed(
    name: str, settings: ModelSettings | None, recordings: Callable[[str], str | Path] | None
) -> Model:
    path, _, model = name.partition("#")
    if recordings is None and not path:
        raise ConfigError("'recorded' alone names no file; give 'recorded:PATH'")
    found = Path(recordings(path) if recordings is not None else path)
    return _asked_as(recorded_model(found, model or None), settings)


def _address_and_key(
    name: Name, settings: ModelSettings | None
) -> tuple[str | None, SecretStr | None]:
    """Return where to ask and with which key; None: the vendor's own, as its client finds them.

    A key goes only to whom it was given for: the configuration's key to its own model and
    address, the vendor's variable never to another address.
    """
    url, key = name.url, None
    if settings is not None and _is_model_of(name, settings):
        own = checked(settings.base_url) if settings.base_url else None
        if url is None or own is None or own == url:
            url, key = url or own, settings.api_key
    if url is not None and key is None and os.environ.get(ENDPOINT_KEY):
        key = SecretStr(os.environ[ENDPOINT_KEY].strip())
    return url, key


def _is_model_of(name: Name, settings: ModelSettings) -> bool:
    whole = name.text in (settings.model_id, model_text(settings))
    return whole or (name.wire == settings.model_id and settings.provider in ("", name.prefix))


def recorded_model(path: str | Path, model: str | None = None) -> Model:
    """Return the model of a recording, asked as it was recorded; nobody else is asked.

    Parameters
    ----------
    path : str or Path
    model : str, optional
        Which, where the file holds several.

    Raises
    ------
    ReplayError
        The file holds nothing of it, or several models and none was named.
    """
    recording = Recording(path, "replay")
    lines = {line["model"]: line for line in recording.lines()}
    if model is None and len(lines) == 1:
        model = next(iter(lines))
    if model is None or model not in lines:
        wanted = "which one is not said" if model is None else f"not {model!r}"
        raise ReplayError(
            f"{path} holds recordings of {', '.join(map(repr, sorted(lines))) or 'nothing'}, "
            f"{wanted}; name it as in 'recorded:PATH#MODEL'"
        )
    settings = dict(lines[model]["settings"])
    supports = tuple(settings.pop("supports", ()))
    return Model(model, None, settings, supports, recording=recording)
