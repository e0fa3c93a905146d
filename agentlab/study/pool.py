"""Computing cells, here or in other processes. Workers only compute; who asked writes.

With its results a worker sends back the calls of language models that are to be recorded.

What computes is cut into batches of about ``TASK_SECONDS``. What waits for a language model runs in
threads (see ``agentlab.study.threads``), and where one interpreter would be what they wait for, in
the threads of several processes. Cells that may share a recorded reply (arms on one scenario with
one seed) go to one process: in two of them both would ask, and each get a draw of its own.

A worker is told what was registered by name in the process that asked, finds the modules that it
finds, and ends when it is killed.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any

from agentlab.errors import ConfigError, StudyError, seen
from agentlab.lm.recording import Line
from agentlab.lm.serde import load_dspy
from agentlab.study.carry import ImportPath, Keys, Names, learn, only_here_by_value, registered
from agentlab.study.cells import Runner
from agentlab.study.threads import POLL, Batches, Keyed, default_threads, threaded, waits
from agentlab.trace.stored import CellResult

TASK_SECONDS = 0.3
"""How long the batch of cells should take that a worker is handed at once."""

THREADS_A_PROCESS = 16
"""More threads than this are shared out among processes."""


def computed(
    todo: list[Keyed], runner: Runner, processes: int, threads: int | None, backend: str
) -> Batches:
    """Yield finished batches of cells as they come.

    Parameters
    ----------
    todo : list of (key, Cell)
    runner : Runner
    processes : int
        Workers; 1 computes in this process.
    threads : int or None
        Cells of arms that ask a language model under way at once, in all processes together; 1:
        they are computed like the others. None: see ``default_threads``.
    backend : str
        A joblib backend.

    Raises
    ------
    ConfigError
        joblib knows no such backend, or there is not one thread.
    StudyError
        A worker process died.
    """
    waiting = [item for item in todo if waits(item[1])]
    if threads is None:
        threads = default_threads(c.arm.called("lm") for _, c in waiting if c.arm is not None)
    if threads < 1:
        raise ConfigError(f"expected at least one thread, got {threads}")
    if threads == 1 or len(waiting) < 2:
        waiting = []
    known = {key for key, _ in waiting}
    yield from _batched([i for i in todo if i[0] not in known], runner, processes, backend)
    if not waiting:
        return
    threads = min(threads, len(waiting))
    processes = min(processes, -(-threads // THREADS_A_PROCESS))
    if processes == 1 or backend != "loky":
        yield from threaded(runner, iter(waiting), threads)
    else:
        yield from _spread(waiting, runner, processes, threads)


# ---- batches in processes --------------------------------------------------------------------


def _batched(todo: list[Keyed], runner: Runner, processes: int, backend: str) -> Batches:
    """Yield finished batches; their size follows the pace of those before."""
    pace, groups = _Pace(processes), _together(todo, runner)
    if processes == 1 or len(todo) < 2:
        for batch in pace.batches(groups):
            results = runner.run_all(batch)
            pace.learn(results)
            yield results
        return
    from joblib import Parallel, delayed

    if backend == "multiprocessing":
        raise ConfigError(
            "backend 'multiprocessing' waits for ever for a worker that was killed; take 'loky'"
        )
    here = (os.getpid(), Keys()) if backend == "loky" else None
    try:
        pool = Parallel(
            n_jobs=processes, backend=backend, return_as="generator_unordered",
            batch_size=1, pre_dispatch="2*n_jobs",
        )  # fmt: skip
    except ValueError as e:
        raise ConfigError(f"backend {seen(backend)}: {e}") from e
    with only_here_by_value():
        names = registered()
        tasks = (
            delayed(_worker)(ImportPath(sys.path), batch, runner, names, here)
            for batch in pace.batches(groups)
        )
        outputs = pool(tasks)
        try:
            for results, lines in outputs:
                _record(runner, lines)
                pace.learn(results)
                yield results
        except BrokenExecutor as e:  # loky's; it leaves no worker behind
            raise _died() from e
        finally:  # after an error or Ctrl-C joblib warns of the tasks that it cancels
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs.close()


def _died(how: str = "") -> StudyError:
    return StudyError(
        f"a worker process died{how} with the cells that it had under way, as one does that is "
        "killed or runs out of memory; what was finished is kept, and the same study goes on from "
        "there"
    )


def _together(todo: Sequence[Keyed], runner: Runner) -> list[list[Keyed]]:
    """Return the cells in groups that one process must compute, in their order."""
    groups: dict[Any, list[Keyed]] = {}
    for key, cell in todo:
        shares = runner.record is not None and waits(cell)
        name = (cell.scenario.digest, cell.seed) if shares else key
        groups.setdefault(name, []).append((key, cell))
    return list(groups.values())


def _worker(
    path: ImportPath, batch: Sequence[Keyed], runner: Runner, names: Names,
    here: tuple[int, Keys] | None,
) -> tuple[list[CellResult], list[Line]]:  # fmt: skip
    """Run a batch in another process, which knows what was registered by name in this one.

    On this machine it ends with its parent, and has the same keys: it may be older than they are.
    """
    if here is not None:
        parent, keys = here
        keys.take()
        _end_with(parent)
    learn(names)
    return runner.run_all(batch), _taken(runner)


def _taken(runner: Runner) -> list[Line]:
    return [] if runner.record is None else runner.record.taken()


def _record(runner: Runner, lines: list[Line]) -> None:
    if runner.record is not None:
        runner.record.extend(lines)


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

    def batches(self, groups: list[list[Keyed]]) -> Iterator[list[Keyed]]:
        left, coming = sum(map(len, groups)), iter(groups)
        while left:
            fair = max(1, left // (2 * self.processes))  # keep every worker busy to the end
            size = min(max(1, int(TASK_SECONDS / max(self.seconds, 1e-5))), fair)
            batch: list[Keyed] = []
            while len(batch) < min(size, left):
                batch += next(coming)
            yield batch
            left -= len(batch)


# ---- threads in processes --------------------------------------------------------------------


@dataclass
class _Crew:
    """A worker process with its threads, as its parent sees it."""

    process: Any
    pipe: Connection
    runner: Runner
    numbers: Iterator[int]
    """Of the cells that are for it."""
    free: int
    """Threads that have nothing to do."""
    under_way: int = 0
    told: bool = False
    """That no more cells will come."""

    def hand(self) -> None:
        """Give every free thread a cell, by its number."""
        given = list(islice(self.numbers, self.free))
        if given:
            self.pipe.send(given)
        if len(given) < self.free and not self.told:
            self.told = True
            self.pipe.send([])
        self.free -= len(given)
        self.under_way += len(given)

    def results(self) -> list[CellResult]:
        """Take what is finished, and give new cells for it."""
        results: list[CellResult]
        results, lines = self.pipe.recv()
        _record(self.runner, lines)
        self.free += len(results)
        self.under_way -= len(results)
        self.hand()
        return results


def _spread(todo: list[Keyed], runner: Runner, processes: int, threads: int) -> Batches:
    """Run cells in threads of several processes; each is handed the next when one is finished."""
    import cloudpickle

    groups = _together(todo, runner)
    with only_here_by_value():
        cells = list(chain.from_iterable(groups))
        work = cloudpickle.dumps((ImportPath(sys.path), cells, registered(), runner))
    numbers = iter(range(len(todo)))
    # A crew that has none left takes the next group, whole.
    groups_left = ([next(numbers) for _ in group] for group in groups)
    shares = [threads // processes + (i < threads % processes) for i in range(processes)]
    crews: list[_Crew] = []
    try:
        crews += (_crew(runner, chain.from_iterable(groups_left), share) for share in shares)
        for crew in crews:
            crew.pipe.send_bytes(work)
            crew.hand()
        while busy := [crew.pipe for crew in crews if crew.under_way]:
            ready = wait(busy, POLL)
            for crew in (c for c in crews if c.pipe in ready):
                yield crew.results()
    except (EOFError, ConnectionError) as e:
        crew.process.join(POLL)
        raise _died(f" (exit code {crew.process.exitcode})") from e
    finally:
        for crew in crews:
            crew.process.terminate()
            crew.process.join()


def _crew(runner: Runner, numbers: Iterator[int], threads: int) -> _Crew:
    from joblib.externals.loky.backend import get_context

    context = get_context("loky")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, os.getpid(), threads), daemon=True)
    process.start()
    theirs.close()
    return _Crew(process, ours, runner, numbers, threads)


def _serve(pipe: Connection, parent: int, threads: int) -> None:
    """Run the cells whose numbers come through a pipe, and send back what they came to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    _end_with(parent)
    _, todo, names, runner = pipe.recv()
    learn(names)
    load_dspy()
    gc.freeze()  # what is loaded by now stays: looking through it again takes a tenth of the time
    gc.set_threshold(20_000, 20, 20)
    numbers = chain.from_iterable(iter(pipe.recv, []))
    for results in threaded(runner, (todo[n] for n in numbers), threads):
        pipe.send((results, _taken(runner)))
