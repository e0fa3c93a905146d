"""A long run: a chain of trivial steps, each needing the one before, ten times as long.

A plan given beforehand, function tools that return at once, ``autonomous``, one worker; every state
and span is kept. What is linear takes ten times as long for ten times the steps. In memory, and
durable: each call and each step is on disk before the next.
"""

from __future__ import annotations

import tempfile
from typing import Any

from measure import Row, clock, interleaved, medians, report

import agentlab as al

SHORT, LONG = 250, 2_500
REPETITIONS = 3
TARGET = 15


@al.tool
def work(n: int) -> dict:
    """Return at once."""
    return {"n": n}


class Chain:
    """Plans so many steps, each of which needs the one before."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def plan(self, request: Any, bench: Any) -> al.TaskPlan:
        return al.TaskPlan(
            steps=tuple(
                al.TaskStep(
                    step_index=i, step_id=f"s{i}", name=f"s{i}", target_resource="work",
                    parameters={"n": i}, dependencies=(f"s{i - 1}",) if i else (),
                )
                for i in range(self.steps)
            )
        )  # fmt: skip


def lab(steps: int) -> al.Lab:
    return al.Lab(tools=[work], planner=Chain(steps), strategy="never")


def seconds(steps: int, durable: bool) -> float:
    """Return how long a run takes."""
    with tempfile.TemporaryDirectory() as folder:
        run = al.autonomous.start(
            lab(steps), "go", store=folder if durable else None, max_task_iterations=steps
        )
        started = clock()
        run.finish()
        taken = clock() - started
        assert all(s.status == "completed" for s in run.plan.steps)
        assert len(run.state.task_results) == steps
    return taken


def rows() -> list[Row]:
    programs = {
        (n, durable): lambda n=n, durable=durable: seconds(n, durable)
        for n in (SHORT, LONG) for durable in (False, True)
    }  # fmt: skip
    found = medians(interleaved(programs, REPETITIONS))
    rows = []
    for durable, where in ((False, "in memory"), (True, "durable")):
        short, long = found[SHORT, durable], found[LONG, durable]
        rows.append(
            Row(f"chain of {LONG:,} steps, {where}", long, "s", TARGET * short,
                f"{TARGET} times {SHORT} steps", f"≤ {TARGET} ×", long <= TARGET * short)
        )  # fmt: skip
        rows.append(Row(f"... of {SHORT} steps, {where}", short, "s"))
        rows.append(Row(f"... times as long, {where}", long / short, "×", TARGET, "limit"))
    return rows


if __name__ == "__main__":
    report(rows())
