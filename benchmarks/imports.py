"""``import agentlab`` in a fresh process, bytecode compiled; beside it what peers take.

``import agentlab`` imports nothing until a name is used, so a second line shows what a script
pays that uses ``Lab``, ``autonomous``, ``grid`` and ``Study``. Bytecode is compiled by a run that
is not counted, which needs PYTHONDONTWRITEBYTECODE unset. The start of Python itself is not
counted. Peers that are not installed are left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from inspect import getsource

from measure import Row, clock, interleaved, medians, report

REPETITIONS = 7
FIRST_USE = "import agentlab; agentlab.Lab, agentlab.autonomous, agentlab.grid, agentlab.Study"
PROGRAM = f"import time\n{getsource(clock)}\nstart = clock()\n{{}}\nprint(clock() - start)"
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(statement: str) -> float:
    """Return how long a statement takes in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement)], env=ENVIRONMENT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def rows() -> list[Row]:
    programs = {"agentlab": "import agentlab", "first use": FIRST_USE}
    for peer, module in (("langgraph", "langgraph.graph"), ("dspy", "dspy")):
        if find_spec(peer) is not None:
            programs[peer] = f"import {module}"
    for statement in programs.values():
        seconds(statement)  # compiles the bytecode
    found = medians(
        interleaved({k: lambda s=s: seconds(s) for k, s in programs.items()}, REPETITIONS)
    )
    bare, used = found.pop("agentlab"), found.pop("first use")
    rows = [
        Row("import agentlab", bare, "s", 0.3, "limit", "≤ 0.3 s", bare <= 0.3),
        Row("... and use Lab, autonomous, grid, Study", used, "s", 0.3, "limit", "≤ 0.3 s",
            used <= 0.3),
    ]  # fmt: skip
    return rows + [
        Row("... and use Lab, autonomous, grid, Study", used, "s", s, f"import {peer}")
        for peer, s in found.items()
    ]


if __name__ == "__main__":
    report(rows())
