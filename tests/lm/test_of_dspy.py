"""A dspy.LM is asked as the name that stands for it would be."""

import dspy
import pytest

from agentlab.lm.connect import connect
from agentlab.lm.of_dspy import model_of_dspy


def patience(model):
    return model.engine.timeout, model.engine.retries


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({}, ""),
        ({"timeout": 7}, "?timeout=7"),
        ({"num_retries": 5}, "?retries=5"),
        ({"timeout": 0.5, "num_retries": 0}, "?timeout=0.5&retries=0"),
    ],
)
def test_what_it_does_not_say_is_as_for_a_name(said, name, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    named = connect(f"openai/gpt-4o-mini{name}")
    given = model_of_dspy(dspy.LM("openai/gpt-4o-mini", **said))
    assert patience(given) == patience(named)
