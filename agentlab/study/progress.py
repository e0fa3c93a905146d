"""Progress of a study: a bar with the running success rate, a callable, or nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from agentlab.base.documents import percent
from agentlab.study.cells import ARM, INFRASTRUCTURE
from agentlab.trace.stored import CellResult

Tell = Callable[[int, int, float], None]
"""Is told how many runs are finished, of how many, and their success rate so far."""
TellAll = Callable[[int, int, float, int], None]
"""Is told that, and how many runs measure nothing since their endpoint failed."""


@contextmanager
def showing(progress: bool | Tell | None, total: int) -> Iterator[TellAll]:
    """Give what shows the progress of ``total`` runs meanwhile (see ``Study.run``)."""
    if callable(progress):
        yield lambda finished, total, rate, failed: progress(finished, total, rate)
    elif total and (progress or (progress is None and _watched())):
        with _bar(total) as bar:

            def tell(finished: int, total: int, rate: float, failed: int) -> None:
                lost = f", endpoint failed {failed}" if failed else ""
                bar.set_postfix_str(f"success {percent(rate, 1)}{lost}", refresh=False)
                bar.update(finished - bar.n)

            yield tell
    else:
        yield lambda finished, total, rate, failed: None


class Tally:
    """Counts cells: finished, and of the runs among them successes and those that tell nothing."""

    def __init__(self) -> None:
        self.finished = self.failed = self._runs = self._successes = 0

    @property
    def rate(self) -> float:
        """Success rate of the runs that are a measurement; NaN: there is none."""
        return self._successes / self._runs if self._runs else float("nan")

    def add(self, batch: Iterable[CellResult]) -> None:
        """Count a batch of finished cells."""
        for r in batch:
            self.finished += 1
            if r.status == INFRASTRUCTURE:
                self.failed += 1
            elif r.row["role"] == ARM:
                self._runs += 1
                self._successes += bool(r.row["success"])


def _watched() -> bool:
    """Say whether someone looks: at a terminal, or at a notebook."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None or bool(sys.stderr and sys.stderr.isatty())


def _bar(total: int) -> Any:
    """Return a bar for ``total`` runs: of tqdm, or of lines where that is not to be had."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a notebook without widgets: the bar is text then
            from tqdm.auto import tqdm
        return tqdm(total=total, unit="run", dynamic_ncols=True)
    except ImportError:
        return _Lines(total)


class _Lines:
    """A bar of a line a tenth, for where there is no tqdm.

    Parameters
    ----------
    total : int
    """

    def __init__(self, total: int) -> None:
        self.n, self._total, self._postfix, self._told = 0, total, "", 0

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def set_postfix_str(self, text: str, refresh: bool = False) -> None:
        """Keep what is told beside the number."""
        self._postfix = text

    def update(self, n: int) -> None:
        """Count finished runs, and tell of each tenth."""
        self.n += n
        tenth = 10 * self.n // self._total
        if tenth > self._told:
            self._told = tenth
            sys.stderr.write(f"{self.n} of {self._total} runs, {self._postfix}\n")
