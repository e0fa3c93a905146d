"""Progress of a study: a bar with the running success rate, a callable, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from agentlab.base.documents import percent


class Progress:
    """Shows progress: a bar, a callable, or nothing."""

    def __init__(
        self, progress: bool | Callable[[int, int, float], None] | None, total: int
    ) -> None:
        self.told = progress if callable(progress) else None
        shown = progress is True or (progress is None and sys.stderr.isatty())
        self.bar: Any = None
        if shown and total:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="run", dynamic_ncols=True)

    def __enter__(self) -> Callable[[int, int, float], None]:
        return self.tell

    def tell(self, finished: int, total: int, rate: float) -> None:
        """Show that ``finished`` of ``total`` runs are done, with their success rate so far."""
        if self.told is not None:
            self.told(finished, total, rate)
        if self.bar is not None:
            self.bar.set_postfix_str(f"success {percent(rate, 1)}", refresh=False)
            self.bar.update(finished - self.bar.n)

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()
