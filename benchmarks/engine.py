"""A node step with full trace in memory, against LangGraph's without checkpointer and trace.

Both run the same loop: two nodes that each add one to a counter, and a router that ends it. Ours
keeps every state and every span. Both are timed from outside, over the whole loop.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TypedDict

from measure import Row, clock, interleaved, medians, report
from peer import langgraph_loop

import agentlab as al

STEPS = 10_000
REPETITIONS = 7


@al.node
def left(state, lab):
    return state.replace(loop_count=state.loop_count + 1)


@al.node
def right(state, lab):
    return state.replace(loop_count=state.loop_count + 1)


def back_or_end(state) -> str:
    return "left" if state.loop_count < STEPS else "END"


LOOP = al.Workflow("loop", [left, right], {"left": "right", "right": back_or_end}, entry="left")


def ours() -> float:
    """Return the mean seconds of a step."""
    run = LOOP.start(al.Lab())
    started = clock()
    run.finish(max_visits=STEPS)
    seconds = clock() - started
    assert len(run.states) == STEPS + 1
    assert len(run.spans) == STEPS + 1  # a span a node, and the run's own
    return seconds / STEPS


def first_and_last() -> tuple[float, float]:
    """Return the median seconds of the first and of the last 1,000 steps of a run."""
    run = LOOP.start(al.Lab())
    seconds = []
    while not run.finished:
        started = time.perf_counter()
        run.step()
        seconds.append(time.perf_counter() - started)
    return median(seconds[:1000]), median(seconds[-1000:])


class Count(TypedDict):
    n: int


def theirs(graph) -> float:
    """Return the mean seconds of a step."""
    started = clock()
    done = graph.invoke({"n": 0}, {"recursion_limit": STEPS + 10})
    seconds = clock() - started
    assert done["n"] == STEPS
    return seconds / STEPS


def rows() -> list[Row]:
    graph = langgraph_loop(Count, lambda state: {"n": state["n"] + 1}, STEPS)
    found = medians(interleaved({"ours": ours, "theirs": lambda: theirs(graph)}, REPETITIONS))
    pairs = [first_and_last() for _ in range(REPETITIONS)]
    first, last = (median(column) * 1e6 for column in zip(*pairs, strict=True))
    us, them = found["ours"] * 1e6, found["theirs"] * 1e6
    return [
        Row("node step, full trace in memory", us, "µs", them, "LangGraph, no checkpointer",
            "≤ 50 µs and ≥ 5×", us <= 50 and them / us >= 5),
        Row(f"the last 1,000 of {STEPS:,} steps", last, "µs", first, "the first 1,000",
            "flat: ≥ 0.8×", first / last >= 0.8),
    ]  # fmt: skip


if __name__ == "__main__":
    report(rows())
