"""The part of a run that holds it to one owner: what is durable is gone on with by nobody else."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING
from weakref import finalize

from agentlab.errors import RunError
from agentlab.lab.lab import Lab

if TYPE_CHECKING:
    from agentlab.trace.owner import Owner
    from agentlab.trace.store import Store


class Owned:
    """A run that may be in a store, where one process goes on with it (``agentlab.trace.owner``).

    Parameters
    ----------
    store : Store or None
        None: it is in memory alone.
    owner : Owner or None
        None beside a store: it was opened to be looked at.
    """

    lab: Lab

    def __init__(self, store: Store | None, owner: Owner | None) -> None:
        self._store, self._owner = store, owner
        if owner is not None:
            owner.borne_by(self)
            finalize(self, owner.release)

    @property
    def finished(self) -> bool:
        """True when no node is left."""
        raise NotImplementedError

    def _owned(self) -> AbstractContextManager[None]:
        """Work as the owner, or be refused."""
        if self._store is None:
            return nullcontext()
        if self._owner is None:
            raise RunError(
                "this run was opened to be looked at and replayed; Run.resume(store, lab) with a "
                "store that is open for writing, or agentlab resume, goes on with it"
            )
        return self._owner.working()

    def engaged(self) -> AbstractContextManager[None]:
        """Mark that this thread goes on with the run, so that no other object takes it over."""
        return nullcontext() if self._owner is None else self._owner.engaged()

    def _let_go(self) -> None:
        """Leave a run that has ended to others, until it is gone on with here."""
        if self._owner is not None:
            try:
                ended = self.finished
            except Exception:  # a router's own; the visit was made all the same
                ended = False
            if ended:
                self._owner.let_go()

    def retire(self) -> None:
        """Tell calls under way in threads to stop: another object has taken the run over."""
        if self.lab.executor.wall:
            self.lab.executor.close()
