"""The rows of a listing that an option asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentlab.errors import UnknownNameError
from agentlab.study.lists import parts_of

if TYPE_CHECKING:
    import pandas as pd


def among(column: pd.Series[str], what: str, texts: Sequence[str] | None) -> pd.Series[bool]:
    """Say which values are, or contain, one of the texts; without any, all.

    Raises
    ------
    UnknownNameError
        No value contains one of them.
    """
    known = list(dict.fromkeys(column))
    found = column.notna() & (not texts)
    for text in texts or ():
        for part in [text] if any(text in k for k in known) else parts_of(text):
            hit = column.str.contains(part, regex=False)
            if not hit.any():
                raise UnknownNameError(what, part, known)
            found |= hit
    return found
