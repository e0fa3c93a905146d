"""Language models at one seam: an engine takes a request and gives a response.

What an engine is says ``engine``; what follows is one or wraps one, so they compose, from the
inside out::

    endpoint (or a script) < retries < recording < faults < Door < dspy.LM

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
