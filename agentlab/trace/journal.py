"""The journal: calls to the outside, each with an address, written down before and after.

An address says where in a run a call is made: (visit, step id, attempt, nth), and of a call of a
language model in which talk. On resume a finished call is served from the journal, an unfinished
one that may be repeated is made again, and an unfinished write is reported as interrupted: its
outcome is unknown. On replay nothing is called: the recording is matched by address, then the
request's hash is compared.

Calls into a simulated world are not journalled: they are functions of the state, which the
checkpoints hold, and nothing outside can tell that they were computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agentlab.base.documents import Json
from agentlab.errors import ReplayError

EXECUTOR = "executor"
"""Names the entries in which an executor in threads notes what happened when."""


class Address(NamedTuple):
    """Where in a run a call is made."""

    visit: int
    step_id: str = ""
    attempt: int = 0
    nth: int = 0
    talk: str = ""
    """Which talk with a language model: its name, with a number where it is not the first of it."""

    @property
    def shown(self) -> tuple[object, ...]:
        """The address in a message: without a talk where there is none."""
        return tuple(self) if self.talk else tuple(self)[:-1]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written down about one call."""

    address: Address
    name: str
    request: str
    """Hash of the request."""
    finished: bool = False
    result: Json = None
    error: Json = None


class Journal(Protocol):
    """Where calls are written down."""

    def find(self, address: Address, name: str, request: str) -> Entry | None:
        """Return what is known of the call at this address."""

    def recorded(self, address: Address) -> Entry | None:
        """Return what is known of this address, where it is no mistake to know nothing."""

    def start(self, address: Address, name: str, request: str) -> None:
        """Write down that a call is about to be made."""

    def finish(self, address: Address, name: str, request: str, result: Json, error: Json) -> None:
        """Write down how it ended."""


class NoJournal:
    """Writes nothing down and knows nothing: for nodes that are called by hand."""

    def find(self, address: Address, name: str, request: str) -> Entry | None:
        """Know nothing."""
        return None

    def recorded(self, address: Address) -> Entry | None:
        """Know nothing."""
        return None

    def start(self, address: Address, name: str, request: str) -> None:
        """Write nothing down."""

    def finish(self, address: Address, name: str, request: str, result: Json, error: Json) -> None:
        """Write nothing down."""


class MemoryJournal:
    """A journal that lives with the process."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = {e.address: e for e in entries}

    def find(self, address: Address, name: str, request: str) -> Entry | None:
        """Return what is known of the call at this address."""
        return self.entries.get(address)

    def recorded(self, address: Address) -> Entry | None:
        """Return what is known of this address."""
        return self.entries.get(address)

    def start(self, address: Address, name: str, request: str) -> None:
        """Write down that a call is about to be made."""
        self.entries[address] = Entry(address, name, request)

    def finish(self, address: Address, name: str, request: str, result: Json, error: Json) -> None:
        """Write down how it ended."""
        self.entries[address] = Entry(address, name, request, True, result, error)


class NestedJournal:
    """The journal of a run inside a step of another: addresses become addresses of the outer run.

    Parameters
    ----------
    outer : Journal
    visit : int
        The outer run's.
    prefix : str
        Says which step, and which attempt of it.
    """

    def __init__(self, outer: Journal, visit: int, prefix: str) -> None:
        self._outer, self._visit, self._prefix = outer, visit, prefix

    def _address(self, inner: Address) -> Address:
        step = f"{self._prefix}/{inner.visit}:{inner.step_id}"
        return Address(self._visit, step, inner.attempt, inner.nth, inner.talk)

    def find(self, address: Address, name: str, request: str) -> Entry | None:
        """Return what is known of the call at this address."""
        return self._outer.find(self._address(address), name, request)

    def recorded(self, address: Address) -> Entry | None:
        """Return what is known of this address."""
        return self._outer.recorded(self._address(address))

    def start(self, address: Address, name: str, request: str) -> None:
        """Write down that a call is about to be made."""
        self._outer.start(self._address(address), name, request)

    def finish(self, address: Address, name: str, request: str, result: Json, error: Json) -> None:
        """Write down how it ended."""
        self._outer.finish(self._address(address), name, request, result, error)


class ReplayJournal(MemoryJournal):
    """A journal that only serves: a call that was not recorded, or differs, stops the replay."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__(entries)
        self.served = 0

    def find(self, address: Address, name: str, request: str) -> Entry | None:
        """Return the recorded call.

        Raises
        ------
        ReplayError
            Nothing was recorded at this address, or another request.
        """
        entry = self.entries.get(address)
        if entry is None or not entry.finished:
            raise ReplayError(f"no recorded call at {address.shown}: {name} was not made there")
        if (entry.name, entry.request) != (name, request):
            raise ReplayError(
                f"the call at {address.shown} differs: recorded {entry.name} {entry.request}, "
                f"now {name} {request}"
            )
        self.served += _is_call(entry)
        return entry

    def recorded(self, address: Address) -> Entry | None:
        """Return what was recorded at this address."""
        entry = super().recorded(address)
        self.served += entry is not None and _is_call(entry)
        return entry


def _is_call(entry: Entry) -> bool:
    """Say whether somebody outside was asked: not where an executor noted a start or an end."""
    return (entry.name, entry.request) != (EXECUTOR, "")  # a tool may have that name
