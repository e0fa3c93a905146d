"""A language model that can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentlab.base.documents import Json
from agentlab.errors import ConfigError
from agentlab.lm.cursor import Cursor
from agentlab.lm.door import Door, LMCall
from agentlab.lm.endpoint import Endpoint
from agentlab.lm.engine import Engine, Wrapper
from agentlab.lm.probe import Probe
from agentlab.lm.recorded import Recorded
from agentlab.lm.recording import Recording
from agentlab.lm.serde import load_dspy
from agentlab.lm.text_tools import TextTools, by_text
from agentlab.lm.thinking import Habit, Thoughts

NAMES_A_MODEL = (
    "a name such as 'openai/gpt-4o-mini' or 'openai/NAME@http://127.0.0.1:8765/v1', an "
    "agentlab.lm.Model or a dspy.LM"
)
"""What stands for a language model, in errors."""


@dataclass(frozen=True)
class Model:
    """A language model that can be asked: its name, its engine, and how it is asked.

    Immutable and shared by all runs; ``lm`` makes what one run uses.
    """

    name: str
    """As requests and recordings call it: ``openai/gpt-4o-mini``."""
    engine: Engine | None = field(repr=False)
    """Who is asked; None: nobody, a recording alone."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """What every request carries: max_tokens, temperature, top_p, where they were given."""
    supports: tuple[str, ...] = ()
    """Some of ``SUPPORTS``."""
    base_url: str | None = None
    """Where it is asked, when that is not the vendor's own address."""
    streams: bool = True
    recording: Recording | None = field(default=None, repr=False)
    recorded_as: str = field(default="", repr=False)
    """Which endpoint a recording calls it, where that holds several of this name; empty: none."""
    probe: Probe | None = field(default=None, repr=False)
    """Finds out whether tools may be sent, where that is not known; None: they may not."""
    _habit: Habit = field(default_factory=Habit, repr=False, compare=False)

    def describe(self) -> dict[str, Json]:
        """Return name, settings and abilities as JSON, without secrets."""
        return {
            "model": self.name,
            "base_url": self.base_url,
            "settings": dict(self.settings),
            "supports": list(self.supports),
        }

    def recorded(self, recording: Recording, endpoint: str = "") -> Model:
        """Return this model with its calls recorded, or served, as the recording's mode says.

        Where the recording is shared by several models of this name, ``endpoint`` says which.
        """
        return replace(self, recording=recording, recorded_as=endpoint)

    @property
    def endpoint(self) -> Endpoint | None:
        """The real endpoint that is asked; None: a script, a recording, an engine of one's own."""
        engine = self.engine
        while isinstance(engine, Wrapper) and not isinstance(engine, Endpoint):
            engine = engine.inner
        return engine if isinstance(engine, Endpoint) else None

    def bind(self, cursor: Cursor | None = None, patient: bool = False) -> Engine:
        """Return the engine of one run.

        Parameters
        ----------
        cursor : Cursor, optional
            The run's count of repeated requests, with its seed; None: a new one, of seed 0.
        patient : bool
            See ``Thoughts``.
        """
        if self.recording is not None:
            settings = {**self.settings, "supports": list(self.supports)}
            engine: Engine = Recorded(
                self.recording, self.name, cursor, self.engine, settings, self.recorded_as
            )
        elif self.engine is not None:
            engine = self.engine
        else:
            raise ConfigError(f"{self.name}: neither an engine nor a recording to ask")
        apart = Thoughts(engine, self._habit, patient)
        if "function_calling" in self.supports:
            return apart
        return TextTools(engine, self._takes, apart)

    def _takes(self) -> bool:
        """Say whether tools are sent, though that is not known of the model: as was recorded."""
        recording = self.recording
        if recording is not None and recording.mode != "record":
            asked = (li["request"] for li in recording.lines() if li["model"] == self.name)
            told = next((t for t in map(by_text, asked) if t is not None), None)
            if told is not None or recording.mode == "replay":
                return told is False
        return self.probe is not None and self.probe()

    def door(
        self, cursor: Cursor | None = None, wrap: Callable[[Engine], Engine] | None = None,
        patient: bool = False, **hooks: Any,
    ) -> Door:  # fmt: skip
        """Return the engine that a run asks.

        Parameters
        ----------
        cursor : Cursor, optional
            The run's count of repeated requests.
        wrap : callable, optional
            Puts another engine around the run's, such as ``Faulty``.
        patient : bool
            See ``Thoughts``.
        **hooks
            ``on_call``, ``before``, ``on_token``, ``strict``: see ``Door``.
        """
        engine = self.bind(cursor, patient)
        if wrap is not None:
            engine = wrap(engine)
        return Door(engine, self.name, self.supports, streams=self.streams, **hooks)

    def lm(
        self, *, door: Door | None = None, cursor: Cursor | None = None,
        wrap: Callable[[Engine], Engine] | None = None,
        on_call: Callable[[LMCall], None] | None = None,
        before: Callable[[str, dict[str, Json]], dict[str, Json] | None] | None = None,
        on_token: Callable[[str], None] | None = None, strict: bool = True,
        **settings: Json,
    ) -> Any:  # fmt: skip
        """Return the ``dspy.LM`` of one run: put it into ``dspy.context(lm=...)``.

        Parameters
        ----------
        door : Door, optional
            Made by ``door``; default: one of what follows.
        cursor, wrap, on_call, before, on_token, strict
            See ``door``.
        **settings
            Generation settings that take the place of the model's own.

        Raises
        ------
        ConfigError
            dspy does not accept the settings.
        """
        if door is None:
            door = self.door(
                cursor, wrap, on_call=on_call, before=before, on_token=on_token, strict=strict
            )
        chosen = {k: v for k, v in {**self.settings, **settings}.items() if v is not None}
        dspy = load_dspy()
        try:
            return dspy.LM(self.name, engine=door, cache=False, num_retries=0, **chosen)
        except (ValueError, TypeError, dspy.LMError) as e:
            raise ConfigError(f"{self.name} with {chosen}: {e}") from e

    def close(self) -> None:
        """Close the engine, and put the recording in order."""
        if self.engine is not None:
            self.engine.close()
        if self.recording is not None:
            self.recording.close()
