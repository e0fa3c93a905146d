"""How a language model is asked, as an agent's configuration says it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field, SecretStr

from agentlab.base.values import Value
from agentlab.errors import ConfigError


class Persona(NamedTuple):
    """What an agent's configuration says to each model that works for it; empty: nothing."""

    system: str = ""
    """Before the instructions of whoever asks."""
    user: str = ""
    """Before what is asked."""


NOBODY = Persona()


class ModelSettings(Value):
    """An LM and how to call it."""

    model_id: str
    provider: str = ""
    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    max_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    supports_streaming: bool | None = None
    supports_function_call: bool | None = None

    def __getstate__(self) -> dict[Any, Any]:
        """Refuse to be pickled with a key: it would stand in what is sent, and in what is kept."""
        if self.api_key is not None:
            raise ConfigError(
                f"the settings of {self.model_id} hold a key and do not cross processes; set it in "
                "the environment (AGENTLAB_LM_API_KEY, or the vendor's variable) there"
            )
        return super().__getstate__()
