"""A model made by ``dspy.LM(...)``, taken for the model of the same name and settings.

It is asked at our own seam like any other (see ``agentlab.lm``), so its calls are recorded, charged
and replayed; what it knows of how it is asked is kept, and its key goes where keys go: into a
``SecretStr``, to whom it was given for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from agentlab.base.arrived import refused
from agentlab.base.documents import is_json
from agentlab.errors import ConfigError
from agentlab.lm.connect import SETTINGS, connect
from agentlab.lm.model import NAMES_A_MODEL, Model
from agentlab.lm.settings import ModelSettings

_KEYS = ("api_key", "api_base", "base_url", "timeout")
_CLIENT = frozenset(
    {"custom_llm_provider", "extra_headers", "headers", "api_version", "project", "extra_query",
     "azure_ad_token_provider", "organization"}
)  # fmt: skip
_RETRIES = 3
"""What dspy takes where nothing is said."""


def is_dspy_lm(value: Any) -> bool:
    """Say whether a value is a language model of dspy's, without importing dspy."""
    return any(
        c.__name__ == "BaseLM" and c.__module__.startswith("dspy.") for c in type(value).__mro__
    )


def model_of_dspy(lm: Any) -> Model:
    """Return the model that a ``dspy.LM`` asks.

    Raises
    ------
    ConfigError
        It is of another class, or asked in a way that is not known here.
    """
    kwargs = getattr(lm, "kwargs", None)
    if type(lm).__name__ != "LM" or not isinstance(kwargs, dict):
        raise refused("lm", NAMES_A_MODEL, lm, "al.lm.scripted_model([...]) makes one of a script")
    given = {k: v for k, v in kwargs.items() if v is not None and k != "rollout_id"}
    own = {k: v for k, v in given.items() if k not in _KEYS}
    unknown = [k for k in own if k in _CLIENT or not is_json(own[k])]
    if unknown or getattr(lm, "model_type", "chat") != "chat":
        told = ", ".join(unknown) or f"model_type {lm.model_type!r}"
        raise ConfigError(
            f"lm: the dspy.LM of {lm.model!r} is asked with {told}, which is not kept here; name "
            "it instead, as in lm='openai/NAME@http://127.0.0.1:8765/v1'"
        )
    engine = getattr(lm, "_engine_spec", "auto")
    if not isinstance(engine, str):
        return Model(lm.model, engine, own)
    key, url = given.get("api_key"), given.get("api_base") or given.get("base_url")
    if "?" in lm.model or "@" in lm.model:
        raise ConfigError(f"lm: {lm.model!r} is no model's name; give it as lm={lm.model!r}")
    settings = ModelSettings(
        model_id=lm.model,
        base_url=str(url) if url else None,
        api_key=SecretStr(str(key)) if key else None,
    )
    said: dict[str, Any] = {} if lm.num_retries == _RETRIES else {"retries": lm.num_retries}
    if "timeout" in given:
        try:
            said["timeout"] = float(given["timeout"])
        except (TypeError, ValueError):
            raise refused("lm: timeout of the dspy.LM", "seconds", given["timeout"]) from None
    model = connect(lm.model, settings, **said)
    return replace(model, settings={**model.settings, **own})


def text_of_dspy(lm: Any) -> str | Model:
    """Return the name that stands for a ``dspy.LM``, where a name can say it all; else its model.

    A name crosses to other processes, and a study tells by it which arms are the same.
    """
    model = model_of_dspy(lm)
    engine = getattr(lm, "_engine_spec", "auto")
    told = set(model.settings) <= {*SETTINGS}
    plain = isinstance(engine, str) and not lm.kwargs.get("api_key") and told
    if not plain or lm.kwargs.get("timeout") is not None or lm.num_retries != _RETRIES:
        return model
    query = "&".join(f"{k}={v!r}" for k, v in model.settings.items())
    address = f"@{model.base_url}" if model.base_url else ""
    return f"{model.name}{'?' if query else ''}{query}{address}"
