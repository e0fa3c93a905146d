"""Cells that wait for a language model, many at once: in threads.

A thread that waits costs nothing, so one interpreter carries dozens, some hundred calls a second
between them. A cell begins when another is finished: nobody waits for the slowest of a batch.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

from agentlab.study.cells import ARM, Cell, Runner
from agentlab.trace.stored import CellResult

THREADS = 8
"""How many cells at once ask models that are elsewhere."""

POLL = 0.2
"""Seconds after which a wait is begun anew: Ctrl-C may reach this process by another thread."""

_NEAR = re.compile(
    r"(scripted[:/]|(ollama|vllm|sglang)\w*/)"
    r"|.*@https?://(localhost|127\.[\d.]+|0\.0\.0\.0|\[::1?\])(:|/|$)"
)

Keyed = tuple[str, Cell]
"""A cell with its key."""
Batches = Generator[list[CellResult], None, None]


def default_threads(lms: Iterable[str | None]) -> int:
    """Return how many cells ask these models at once where nobody says.

    A script or a server on this machine answers one by one: who asks it more waits longer.
    """
    return 1 if all(_NEAR.match(lm or "") for lm in lms) else THREADS


def waits(cell: Cell) -> bool:
    """Return whether a cell spends its time waiting: its arm asks a model, not a recording."""
    lm = cell.arm.called("lm") if cell.role == ARM and cell.arm is not None else None
    return lm is not None and lm.partition(":")[0] != "recorded"


def threaded(runner: Runner, cells: Iterator[Keyed], threads: int) -> Batches:
    """Run cells in threads, each as soon as another is finished; yield what is finished.

    Threads are left behind when nobody reads on: they end after the node that they are in.
    """
    todo: SimpleQueue[Keyed | None] = SimpleQueue()
    done: SimpleQueue[CellResult | BaseException] = SimpleQueue()
    stopped = threading.Event()

    def work() -> None:
        while (item := todo.get()) is not None and not stopped.is_set():
            try:
                done.put(runner.run(*item))
            except BaseException as e:  # no result of this cell: SystemExit, for one
                done.put(e)

    for _ in range(threads):
        threading.Thread(target=work, daemon=True).start()
    under_way = 0
    try:
        while True:
            for item in islice(cells, threads - under_way):
                todo.put(item)
                under_way += 1
            if not under_way:
                return
            finished = _taken(done)
            under_way -= len(finished)
            yield [f for f in finished if isinstance(f, CellResult)]
            for error in finished:
                if isinstance(error, BaseException):
                    raise error
    finally:
        stopped.set()
        runner.pause()
        for _ in range(threads):
            todo.put(None)


def _taken(queue: SimpleQueue[Any]) -> list[Any]:
    """Wait for an item, and return it with all others that are there."""
    while True:
        try:
            taken = [queue.get(timeout=POLL)]
            break
        except Empty:
            pass
    while not queue.empty():
        taken.append(queue.get())
    return taken
