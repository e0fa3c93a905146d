"""Progress of a study: a bar with the running success rate, a callable, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentlab.base.documents import percent

Tell = Callable[[int, int, float], None]
"""Is told how many runs are finished, of how many, and their success rate so far."""
TellAll = Callable[[int, int, float, int], None]
"""Is told that, and how many runs measure nothing since their endpoint failed."""


@contextmanager
def showing(progress: bool | Tell | None, total: int) -> Iterator[TellAll]:
    """Give what shows the progress of ``total`` runs meanwhile (see ``Study.run``)."""
    if callable(progress):
        yield lambda finished, total, rate, failed: progress(finished, total, rate)
    elif total and (progress or (progress is None and sys.stderr.isatty())):
        from tqdm.auto import tqdm

        with tqdm(total=total, unit="run", dynamic_ncols=True) as bar:

            def tell(finished: int, total: int, rate: float, failed: int) -> None:
                lost = f", endpoint failed {failed}" if failed else ""
                bar.set_postfix_str(f"success {percent(rate, 1)}{lost}", refresh=False)
                bar.update(finished - bar.n)

            yield tell
    else:
        yield lambda finished, total, rate, failed: None
