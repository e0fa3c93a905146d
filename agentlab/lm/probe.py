"""Whether an endpoint takes tools: asked once, when it matters, and never claimed unasked.

No table knows the model behind an address of one's own. So the first request with tools is preceded
by a small one, which offers a tool and asks for a call of it; a model that makes the call is sent
tools from then on, and another is told of them by text (``text_tools``). The probe is no part of a
run: it is not recorded, counted or charged, and nothing is probed where a reply is served.
"""

from __future__ import annotations

import threading
from time import perf_counter

from agentlab.errors import LMMalformed, LMRejected
from agentlab.lm.engine import Engine, Notes, notes, noting
from agentlab.lm.serde import calls_of, request_from

MAX_TOKENS = 100
"""Of the reply to a probe."""


class Probe:
    """Asks an endpoint whether it takes tools; shared by all runs of a model.

    Parameters
    ----------
    engine : Engine
    model : str

    Attributes
    ----------
    found : bool or None
        None: not asked yet.
    """

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine, self._model = engine, model
        self.found: bool | None = None
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        """Return what was found, after asking where that was not done yet.

        Raises
        ------
        LMError
            The endpoint gives no reply at all; nothing was found.
        """
        with self._lock:
            if self.found is None:
                started, current = perf_counter(), notes()
                try:
                    with noting(Notes()):
                        self.found = self._calls()
                finally:
                    current.apart += perf_counter() - started
            return self.found

    def _calls(self) -> bool:
        tool = {
            "type": "function", "name": "ready", "description": "Say that you are ready.",
            "parameters": {
                "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"],
            },
        }  # fmt: skip
        asked = {"type": "text", "text": 'Call the tool "ready" with the word "yes".'}
        request = request_from({
            "model": self._model, "messages": [{"role": "user", "parts": [asked]}],
            "tools": [tool], "config": {"max_tokens": MAX_TOKENS},
        })  # fmt: skip
        try:
            response = self._engine.complete(request)
        except (LMRejected, LMMalformed):
            return False
        calls = calls_of(response)
        return [c.name for c in calls] == ["ready"] and isinstance(calls[0].input.get("word"), str)
