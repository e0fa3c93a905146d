"""Which client asks a model, and where.

Every route goes through dspy's own client (no LiteLLM is imported), over one transport of ours
(``agentlab.lm.transport``): no redirect is followed, since the whole prompt would go to a host that
nobody named; a call ends in time; a reply has a bound. LiteLLM has a client for each vendor, most
of which follow redirects. So its other vendors are not asked by name: nearly all have an address
that speaks OpenAI's chat completions, which can be named, and ``al.lm.Model(NAME, engine)`` takes
an engine of one's own.

An address without a path is completed by the vendor's own (``/v1``). Azure is asked by its v1
interface, with a key: without one the client would look for the machine's identity by other means.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from agentlab.errors import ConfigError, UnknownNameError
from agentlab.lm.endpoint import ENDPOINT_KEY, Endpoint
from agentlab.lm.engine import SUPPORTS
from agentlab.lm.serde import lm15, load_dspy
from agentlab.lm.settings import ModelSettings

PREFIXES = {
    "openai": "openai-chat", "anthropic": "anthropic", "gemini": "gemini", "groq": "groq",
    "openrouter": "openrouter", "deepseek": "deepseek", "xai": "xai", "moonshot": "moonshotai",
    "azure": "azure-chat", "ollama": "ollama", "ollama_chat": "ollama", "hosted_vllm": "vllm",
}  # fmt: skip
"""Vendors whose models are asked by name, each with what dspy's client calls it."""

LOCAL = frozenset({"ollama", "vllm", "sglang"})
"""Servers for models of one's own: all of them take a JSON schema, no table lists their models."""

COMPATIBLE = frozenset({
    "cerebras", "deepinfra", "fireworks_ai", "github", "lm_studio", "mistral", "nvidia_nim",
    "openai", "perplexity", "sambanova", "together_ai",
})  # fmt: skip
"""Vendors that speak OpenAI's chat completions: asked so where an address is named."""

_DECLARED = "agentlab-endpoint"
_PATHS = {
    "anthropic": "/v1", "gemini": "/v1beta", "groq": "/openai/v1", "openrouter": "/api/v1",
    "xai": "/v1", "moonshotai": "/v1", "ollama": "/v1", "vllm": "/v1", "sglang": "/v1",
}  # fmt: skip
_KEYED = {"azure-chat": ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"), "xai": ("XAI_API_KEY",)}
"""Whom the client would ask with a login of the machine's, where there is no key."""


@dataclass(frozen=True)
class Name:
    """A model's name, taken apart."""

    text: str
    """As requests and recordings call it, without the address."""
    prefix: str
    """``openai`` of ``openai/gpt-4o-mini``; empty: none."""
    wire: str
    """What the endpoint calls it."""
    url: str | None = None
    settings: ModelSettings | None = None
    """How it is asked, as far as the text says."""
    timeout: float | None = None
    """Seconds."""
    retries: float | None = None


def checked(url: str) -> str:
    """Refuse an address that holds a secret: it would be stored and shown."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"the address of {parts.hostname!r} holds a user, password or query; give the key "
            f"by {ENDPOINT_KEY} or the agent's configuration instead"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"expected an http or https address, got {url!r}")
    return url.rstrip("/")


def route(
    name: Name, url: str | None, key: SecretStr | None, timeout: float
) -> tuple[Endpoint, set[str]]:
    """Return who asks, and what the endpoint supports.

    Parameters
    ----------
    name : Name
    url : str or None
        Where; None: the vendor's own address, or the one that the environment gives it.
    key : SecretStr or None
        None: the vendor's, as its client finds it.
    timeout : float
        Seconds of a call.

    Raises
    ------
    ConfigError, UnknownNameError
        No client that is safe knows it.
    """
    load_dspy()
    from agentlab.lm.transport import Bounded

    known = name.prefix in ("", *PREFIXES)
    gateway = _gateway(name.prefix) if url is None and known else None
    transport = Bounded(timeout)
    if name.prefix in COMPATIBLE and (url or gateway):
        return _compatible(name, url or gateway or "", key, gateway is not None, transport)
    return _vendors(name, url, gateway, key, transport)


def _compatible(
    name: Name, address: str, key: SecretStr | None, is_gateway: bool, transport: Any
) -> tuple[Endpoint, set[str]]:
    """Return who asks an address that speaks OpenAI's chat completions."""
    from dspy.clients.engines import LM15Engine

    config = _declaration(address, key or (_variable("OPENAI_API_KEY") if is_gateway else None))
    endpoint = Endpoint(
        LM15Engine(replace(config, transport=transport)), name.text, f"{_DECLARED}/{name.wire}",
        name.wire, address=address, key=key, transport=transport, timeout=transport.timeout,
        key_name="OPENAI_API_KEY" if is_gateway else ENDPOINT_KEY,
    )  # fmt: skip
    return endpoint, {"response_format", "response_schema"}


def _vendors(
    name: Name, url: str | None, gateway: str | None, key: SecretStr | None, transport: Any
) -> tuple[Endpoint, set[str]]:
    """Return who asks a vendor in the vendor's own way."""
    from dspy.clients.engines import LM15Engine

    vendor, address = _vendor(name), url or gateway
    if address is not None and not urlsplit(address).path:
        address += _PATHS.get(vendor, "")
    names = _KEYED.get(vendor, ())
    if key is None and url is None:
        key = next((k for k in map(_variable, names) if k is not None), None)
    if key is None and names:
        wanted = ENDPOINT_KEY if url is not None else names[0]
        raise ConfigError(f"{name.text} is asked with a key: set {wanted}")
    config = lm15().RouterConfig(
        env={} if url is not None else None,  # the vendor's key stays with the vendor
        api_keys={vendor: key.get_secret_value} if key is not None else None,
        base_urls={vendor: address} if address else None,
        transport=transport,
    )
    supports = _known_support(name.text) | (
        {"response_format", "response_schema"} if vendor in LOCAL else set()
    )
    endpoint = Endpoint(
        LM15Engine(config), name.text, name.text, name.wire, vendor=vendor, address=address,
        key=key, transport=transport, timeout=transport.timeout,
        key_name=ENDPOINT_KEY if url else (names or (f"{_variable_stem(name)}_API_KEY",))[0],
    )  # fmt: skip
    return endpoint, supports


def _vendor(name: Name) -> str:
    """Return what dspy's client calls the vendor of a model."""
    from dspy.clients.engines import LM15Engine

    if name.prefix not in ("", *PREFIXES) and ":" not in name.prefix:  # "groq:openai/gpt-oss"
        known = {*PREFIXES, *COMPATIBLE} if name.url else PREFIXES
        raise UnknownNameError("LM provider", name.prefix, known, where=_way_out(name))
    try:
        provider = LM15Engine(lm15().RouterConfig(env={})).resolve(name.text).provider
    except lm15().LM15Error:
        provider = ""
    if provider not in {*PREFIXES.values(), *LOCAL}:
        raise ConfigError(
            f"no client knows the model {name.text!r}; put its provider before it, as in "
            f"'openai/gpt-4o-mini' or 'ollama_chat/qwen2.5' (known: {', '.join(PREFIXES)})"
        )
    return str(provider)


def _way_out(name: Name) -> str:
    return (
        f"{name.text} (a vendor that is not listed is asked at its OpenAI-compatible address, "
        f"'openai/{name.wire}@https://...', or by an engine of your own, "
        "Lab(lm=al.lm.Model(NAME, engine)))"
    )


def _variable_stem(name: Name) -> str:
    return (name.prefix or "openai").partition("_")[0].upper()


def _variable(name: str) -> SecretStr | None:
    key = os.environ.get(name, "").strip()
    return SecretStr(key) if key else None


def _gateway(prefix: str) -> str | None:
    """Return the address that the environment gives the vendor (``OPENAI_BASE_URL``)."""
    names = dict.fromkeys((prefix.upper(), prefix.partition("_")[0].upper()))  # ollama_chat
    for variable in (f"{n}_{end}" for n in names if n for end in ("BASE_URL", "API_BASE")):
        if os.environ.get(variable):
            return checked(os.environ[variable])
    return None


def _declaration(url: str, key: SecretStr | None) -> Any:
    types = lm15()
    provider = types.ProviderDefinition.chat(
        types.AccessPolicy(provider=_DECLARED, env_keys=(), base_url=url),
        compat=types.OpenAIChatCompat(json_schema="send", max_tokens_field="max_tokens"),
        placeholder_key="none",  # servers without keys ignore it
    )
    keys = {_DECLARED: key.get_secret_value} if key is not None else None  # called for each request
    return types.RouterConfig(env={}, providers=(provider,), api_keys=keys)


def _known_support(model: str) -> set[str]:
    """Return what dspy's tables say of a model."""
    lm = load_dspy().LM(model, engine="lm15", cache=False, num_retries=0)
    found = {"response_format"} if "response_format" in lm.supported_params else set()
    return found | {s for s in SUPPORTS[1:] if getattr(lm, f"supports_{s}")}
