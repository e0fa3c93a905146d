"""Lists in the words of a command: whatever the text is, it is read or told in one short line."""

import pytest
from hypothesis import example, given, strategies as st

from agentlab.errors import ConfigError
from agentlab.study.lists import parse_budgets, parse_rates, parse_seeds, parse_workers

READERS = [parse_rates, parse_workers, parse_seeds, lambda text: parse_budgets([text])]


@pytest.mark.parametrize("read", READERS, ids=("rates", "workers", "seeds", "budgets"))
@given(text=st.text(st.sampled_from("0129,.²x- ='(") | st.characters(), max_size=12))
@example(text="9" * 5000)
@example(text="x" * 5000)
@example(text="1," * 3000)
@example(text="replans=" + "9" * 5000)
def test_any_text_is_read_or_refused_in_one_short_line(read, text):
    told = ""
    try:
        read(text)
    except ConfigError as e:
        told = str(e)
    assert len(told) < 600
    assert "\n" not in told
