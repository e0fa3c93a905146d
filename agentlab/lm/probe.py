"""What is asked of an endpoint beside the runs: whether it takes tools, whether it lets one in.

**Tools**: asked once, when it matters, and never claimed unasked.

No table knows the model behind an address of one's own. So the first request with tools is preceded
by a small one, which offers a tool and asks for a call of it; a model that makes the call is sent
tools from then on, and another is told of them by text (``text_tools``). The probe is no part of a
run: it is not recorded, counted or charged, and nothing is probed where a reply is served.

**Access**: a key that is missing or refused, or a model that is not there, fails every call of a
study alike. One request a model, without retries, tells so before the first run (``refusals``).
What else may go wrong may be over in a minute, and is not looked at here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from time import monotonic, perf_counter

from agentlab.errors import LMDenied, LMError, LMMalformed, LMRejected, LMUnknownModel
from agentlab.lm.endpoint import Endpoint
from agentlab.lm.engine import Engine, Notes, notes, noting
from agentlab.lm.serde import Request, calls_of, request_from

MAX_TOKENS = 100
"""Of the reply to a probe."""

PATIENCE = 10.0
"""Seconds that endpoints have, all together, to say that they deny access."""


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
        except LMUnknownModel:
            raise
        except (LMRejected, LMMalformed):
            return False
        calls = calls_of(response)
        return [c.name for c in calls] == ["ready"] and isinstance(calls[0].input.get("word"), str)


def refusals(endpoints: Iterable[Endpoint], patience: float = PATIENCE) -> list[LMError]:
    """Ask each endpoint for a word, all at once, and return what denies access for good.

    Parameters
    ----------
    endpoints : iterable of Endpoint
        Asked directly: what fails for now is not tried again.
    patience : float
        Seconds to wait; who has not answered by then has denied nothing.

    Returns
    -------
    list of LMError
        An ``LMDenied`` or ``LMUnknownModel`` of each that refused, in the order given.
    """
    asked = list(endpoints)
    found: list[LMError | None] = [None] * len(asked)

    def ask(number: int) -> None:
        try:
            asked[number].complete(_greeting(asked[number].model))
        except (LMDenied, LMUnknownModel) as e:
            found[number] = e
        except Exception:  # it answered, or may yet: the runs will see
            pass

    threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(len(asked))]
    for thread in threads:
        thread.start()
    end = monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))
    return [e for e in found if e is not None]


def _greeting(model: str) -> Request:
    said = {"type": "text", "text": "Say ready."}
    return request_from({
        "model": model, "messages": [{"role": "user", "parts": [said]}],
        "config": {"max_tokens": MAX_TOKENS},
    })  # fmt: skip
