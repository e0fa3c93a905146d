"""Computing cells, here or in other processes. Workers only compute; who asked writes.

Work is cut into batches of about ``TASK_SECONDS``. A worker is told what was registered by name in
the process that asked, finds the modules that it finds, and ends when it is killed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentlab.environments import register_environment, registered
from agentlab.errors import ConfigError
from agentlab.planners.base import PLANNERS
from agentlab.scenario import FaultPlan
from agentlab.strategies.base import STRATEGIES
from agentlab.study.cells import Cell, run_cells
from agentlab.trace.store import CellResult

TASK_SECONDS = 0.3
"""How long the batch of cells should take that a worker is handed at once."""


def computed(
    todo: list[tuple[str, Cell]], processes: int, backend: str, *, faults: FaultPlan | None,
    traces: bool, record: Path | None,
) -> Generator[list[CellResult], None, None]:  # fmt: skip
    """Yield finished batches of cells as they come; their size follows the pace of those before.

    Parameters
    ----------
    todo : list of (key, Cell)
    processes : int
        Workers; 1 computes in this process.
    backend : str
        A joblib backend.
    faults, traces, record
        See ``run_cells``.

    Raises
    ------
    ConfigError
        joblib knows no such backend.
    """
    pace = _Pace(processes)
    if processes == 1 or len(todo) < 2:
        for batch in pace.batches(todo):
            results = run_cells(batch, faults, traces, record)
            pace.learn(results)
            yield results
        return
    from joblib import Parallel, delayed

    parent = os.getpid() if backend == "loky" else None
    named = (registered(), PLANNERS.added(), STRATEGIES.added())
    try:
        pool = Parallel(
            n_jobs=processes, backend=backend, return_as="generator_unordered",
            batch_size=1, pre_dispatch="2*n_jobs",
        )  # fmt: skip
    except ValueError as e:
        raise ConfigError(f"backend {backend!r}: {e}") from e
    tasks = (
        delayed(_worker)(_Path(sys.path), batch, faults, traces, record, named, parent)
        for batch in pace.batches(todo)
    )
    outputs = pool(tasks)
    try:
        for results in outputs:
            pace.learn(results)
            yield results
    finally:  # after an error or Ctrl-C joblib warns of the tasks that it cancels
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs.close()


class _Path(list[str]):
    """The parent's import path; a worker extends its own when this arrives.

    It is unpickled first, so what follows may be objects of modules that only this path leads to.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _extend_path, ([p for p in self if p],)


def _extend_path(path: list[str]) -> list[str]:
    sys.path.extend(p for p in path if p not in sys.path)
    return path


def _worker(
    path: list[str], batch: Sequence[tuple[str, Cell]], faults: FaultPlan | None, traces: bool,
    record: Path | None, named: tuple[list[Any], dict[str, Any], dict[str, Any]],
    parent: int | None,
) -> list[CellResult]:  # fmt: skip
    """Run a batch in another process, which knows what was registered by name in this one."""
    if parent is not None:
        _end_with(parent)
    worlds, planners, strategies = named
    for world in worlds:
        register_environment(world)
    for registry, factories in ((PLANNERS, planners), (STRATEGIES, strategies)):
        for name, factory in factories.items():
            registry.register(name)(factory)
    return run_cells(batch, faults, traces, record)


@lru_cache(maxsize=1)
def _end_with(parent: int) -> None:
    """End this worker when its parent was killed; loky's would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Pace:
    """Cuts the work into batches of about ``TASK_SECONDS``, from the time the last ones took."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.seconds = 0.02  # a cell, to begin with

    def learn(self, results: Sequence[CellResult]) -> None:
        if results:
            mean = sum(float(r.row["wall_seconds"]) for r in results) / len(results)
            self.seconds = 0.7 * self.seconds + 0.3 * mean

    def batches(self, todo: list[tuple[str, Cell]]) -> Iterator[list[tuple[str, Cell]]]:
        start = 0
        while start < len(todo):
            left = len(todo) - start
            fair = max(1, left // (2 * self.processes))  # keep every worker busy to the end
            size = min(max(1, int(TASK_SECONDS / max(self.seconds, 1e-5))), fair)
            yield todo[start : start + size]
            start += size
