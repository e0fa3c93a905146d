"""A durable step (on disk before the next begins), against LangGraph's SqliteSaver.

The same two-node loop, 1,000 steps. Once with a tiny state, once with each step appending a
message of 200 characters that do not compress to nothing. LangGraph runs with
``durability="sync"``, which is what ours does; its connection is set to WAL and
``synchronous=NORMAL`` like ours, so that both pay for the same promises.

Bytes are those of the database and its write-ahead log together, before the file is closed.
"""

from __future__ import annotations

import operator
import random
import sqlite3
import string
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, TypedDict

from measure import Row, clock, found_in, interleaved, medians, report
from peer import langgraph_loop

import agentlab as al

Node = found_in("Node", "runs.graph", "nodes.base")
Store = found_in("Store", "trace.store")

STEPS = 1_000
REPETITIONS = 7
_RNG = random.Random(0)
MESSAGES = ["".join(_RNG.choices(string.ascii_lowercase + " ", k=200)) for _ in range(STEPS)]


def on_disk(database: Path) -> int:
    """Return the bytes of a database with its write-ahead log."""
    log = database.with_name(f"{database.name}-wal")
    return database.stat().st_size + log.stat().st_size


def our_loop(with_messages: bool) -> al.Workflow:
    def step(state, lab):
        n = state.loop_count
        if not with_messages:
            return state.replace(loop_count=n + 1)
        message = {"role": "user", "content": MESSAGES[n]}
        return state.replace(loop_count=n + 1, messages=state.messages.append(message))

    def back_or_end(state) -> str:
        return "left" if state.loop_count < STEPS else "END"

    nodes = [Node(name, step) for name in ("left", "right")]
    return al.Workflow("loop", nodes, {"left": "right", "right": back_or_end}, entry="left")


def ours(with_messages: bool, sizes: list[int]) -> float:
    """Return the mean seconds of a step; add the bytes on disk to ``sizes``."""
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        run = our_loop(with_messages).start(al.Lab(), store=store)
        started = clock()
        run.finish(max_visits=STEPS)
        seconds = clock() - started
        sizes.append(on_disk(store.path))
    return seconds / STEPS


class Loop(TypedDict):
    n: int
    messages: Annotated[list, operator.add]


def theirs(with_messages: bool, sizes: list[int]) -> float:
    """Return the mean seconds of a step; add the bytes on disk to ``sizes``."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as e:
        raise SystemExit(
            "this compares with LangGraph: pip install langgraph langgraph-checkpoint-sqlite"
        ) from e

    def step(state):
        message = {"role": "user", "content": MESSAGES[state["n"]]}
        return {"n": state["n"] + 1, "messages": [message] if with_messages else []}

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "langgraph.db"
        connection = sqlite3.connect(database, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        graph = langgraph_loop(Loop, step, STEPS, SqliteSaver(connection))
        options = {"configurable": {"thread_id": "1"}, "recursion_limit": STEPS + 10}
        started = clock()
        done = graph.invoke({"n": 0, "messages": []}, options, durability="sync")
        seconds = clock() - started
        assert done["n"] == STEPS
        sizes.append(on_disk(database))
        connection.close()
    return seconds / STEPS


def compared(with_messages: bool, name: str) -> list[Row]:
    our_sizes: list[int] = []
    their_sizes: list[int] = []
    seconds = medians(
        interleaved(
            {
                "ours": lambda: ours(with_messages, our_sizes),
                "theirs": lambda: theirs(with_messages, their_sizes),
            },
            REPETITIONS,
        )
    )
    us, them = seconds["ours"] * 1e3, seconds["theirs"] * 1e3
    size, their_size = median(our_sizes) / 1e6, median(their_sizes) / 1e6
    return [
        Row(f"durable step, {name}", us, "ms", them, "LangGraph, SqliteSaver sync", "≤ 0.5 ms",
            us <= 0.5),
        Row(f"on disk after {STEPS:,} of them", size, "MB", their_size, "LangGraph, the same",
            "≤ 1 MB", size <= 1),
    ]  # fmt: skip


def rows() -> list[Row]:
    return [*compared(False, "tiny state"), *compared(True, "200 characters appended")]


if __name__ == "__main__":
    report(rows())
