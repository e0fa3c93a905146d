"""Docstrings: one description and the parameters', in every usual form."""

from __future__ import annotations

import pytest

from agentlab.tools.docstring import described

NUMPY = """Find a hotel.

Near the station.

Parameters
----------
city : str
    Where it is,
    as on maps.
low, high : int
    The price.

Returns
-------
list
"""
GOOGLE = """Find a hotel.

Near the station.

Args:
    city (str): Where it is,
        as on maps.
    low: The price.
    high: The price.

Returns:
    Hotels.
"""
SPHINX = """Find a hotel.

Near the station.

:param str city: Where it is,
    as on maps.
:param low: The price.
:param high: The price.
:returns: Hotels.
"""
NAMES = ["city", "low", "high"]


EPYDOC = SPHINX.replace(":param str", "@param").replace(":param", "@param")
EPYDOC = EPYDOC.replace(":returns:", "@return:")


@pytest.mark.parametrize("text", [NUMPY, GOOGLE, SPHINX, EPYDOC])
def test_every_form_says_the_same(text):
    description, found = described(text, NAMES)
    assert description == "Find a hotel.\n\nNear the station."
    assert {k: " ".join(v.split()) for k, v in found.items()} == {
        "city": "Where it is, as on maps.", "low": "The price.", "high": "The price.",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "Find.", "Note: a tool.\n\nArgs: none", "Args:\n    other: Not ours.", "a :param"],
)
def test_a_text_that_describes_no_parameter_is_kept_as_it_is(text):
    assert described(text, NAMES) == (text, {})
    assert described(NUMPY, []) == (NUMPY, {})
