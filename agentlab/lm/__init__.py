"""Language models at one seam: an engine takes a request and gives a response.

What an engine is says ``engine``; what follows is one or wraps one, so they compose, from the
inside out::

    endpoint (or a script) < retries < recording < tools by text < faults < Door < dspy.LM

Retries stay inside the recording, so what is recorded is what finally came. Faults stay outside
it, so the same recorded reply is whole in one arm and spoiled in another. The ``Door`` is the
outermost: it tells a hook of every call and is what dspy is given.

``connect.connect`` makes a ``Model`` of a name, ``scripted.scripted`` of a script;
``Model.recorded`` adds a recording, and ``Model.lm`` makes the ``dspy.LM`` of one run::

    model = connect("openai/gpt-4o-mini").recorded(Recording("calls.jsonl", "replay_or_call"))
    lm = model.lm(cursor=Cursor(), on_call=spans.append)
    with lm_errors(), dspy.context(lm=lm):
        dspy.Predict("question -> answer")(question="...")

dspy is imported when the first model is used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab.base.face import face

if TYPE_CHECKING:
    from agentlab.lm.connect import connect as connect
    from agentlab.lm.door import lm_errors as lm_errors
    from agentlab.lm.engine import Engine as Engine
    from agentlab.lm.model import Model as Model
    from agentlab.lm.recording import Recording as Recording
    from agentlab.lm.scripted import (
        Reply as Reply,
        Scripted as Scripted,
        cut_off as cut_off,
        refused as refused,
        say as say,
        scripted,
    )

    scripted_model = scripted
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "lm.connect": "connect",
            "lm.door": "lm_errors",
            "lm.engine": "Engine",
            "lm.model": "Model",
            "lm.recording": "Recording",
            "lm.scripted": "Reply Scripted cut_off refused say",
        },
        scripted_model="lm.scripted:scripted",
    )
