"""Tables for a terminal of any width: all is there, and what may be copied is in one piece."""

from __future__ import annotations

import io

from hypothesis import given, strategies as st
from rich.console import Console

from agentlab.views.cli.terminal import LEAST, emit, fitted, table

WORD = st.text("abcdefgh(=,)-", min_size=1, max_size=30)
HEADINGS = ("run", "arm", ">rate", "why")


def printed(made, width):
    to = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    emit(to, made)
    return to.file.getvalue()


def made_of(rows):
    made = table(*HEADINGS)
    for row in rows:
        made.add_row(*row)
    return made


@given(st.lists(st.tuples(*[WORD] * 4), min_size=1, max_size=4), st.integers(36, 160))
def test_every_cell_is_there_at_any_width_and_keys_are_in_one_piece(rows, width):
    text = printed(made_of(rows), width)
    assert max(map(len, text.splitlines())) <= width
    listed = any(row.startswith("arm") for row in text.splitlines()[1:])
    for run, arm, rate, why in rows:
        assert run in text
        assert rate in text
        if listed:  # in a table, words of two cells stand on one line
            assert arm in "".join(text.split())
            assert why in "".join(text.split())
    assert all(heading.strip(">") in text for heading in HEADINGS)


def test_a_table_stays_one_where_its_cells_can_be_read():
    made = made_of([["k" * 8, "a" * 40, "0.3", "end of plan"]])
    least = 8 + 1 + LEAST + 1 + 4 + 1 + 11
    assert fitted(made, least) is made
    assert fitted(made, least - 1) is not made
    assert printed(made, least - 1).startswith("run  kkkkkkkk\narm  aaaa")


def test_a_list_leaves_out_cells_that_are_empty():
    made = made_of([["k" * 30, "", "0.3", "w"], ["l", "a", "0", ""]])
    assert printed(made, 36) == (f"run  {'k' * 30}\nrate 0.3\nwhy  w\n\nrun  l\narm  a\nrate 0\n\n")
