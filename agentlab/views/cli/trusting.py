"""Whether to use what a folder names: it is shown whole, and asked on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentlab.runs.trust import Answer, Use
from agentlab.views.cli.asking import at_terminal
from agentlab.views.text import visible


def trusting(agreed: bool) -> Answer:
    """Return who says whether the user agrees: ``--trust``, the terminal, or nobody."""
    return True if agreed else _asked if at_terminal() else False


def _asked(where: str, uses: Sequence[Use]) -> bool:
    lines = [f"{where} was made elsewhere, or changed since you made it. To go on, agentlab"]
    lines += [f"  {use.told()}" for use in uses]
    sys.stderr.write("".join(f"{visible(line)}\n" for line in lines) + "agree? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
