"""Who carries a run or a study on: one process, and in it one object, at a time.

Two that went on with one run would each make its calls. So whoever writes to a run, or runs the
cells of a study, first takes a lock on a small file beside the store, named by what is owned::

    study.db-run-0f3a9c11d2e4.lock     {"host": "lab3", "pid": 4711, "since": "2026-12-01 ..."}

The lock is the system's (``flock``, on Windows ``msvcrt.locking``), and the system takes it back
when the process ends, however it ends; the file alone locks nothing, so one that a killed process
left is no obstacle. Who only reads takes no lock.

Inside one process a table says who owns what. A newer object takes over from an older one that
does nothing at the moment: so a cell of a notebook can be executed again. The older is *lost* from
then on and refused.

A forked child has a copy of the descriptor, which would hold the lock for as long as the child
lives: so it is closed there at once, and closed wherever another program is executed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import ref

from agentlab.base.documents import digest
from agentlab.errors import OwnedError, StoreError, StoreWriteError

UNSUPPORTED = frozenset(
    getattr(errno, name)
    for name in ("ENOLCK", "ENOTSUP", "EOPNOTSUPP", "EINVAL", "ENOSYS")
    if hasattr(errno, name)
)
"""What a file system says that knows no locks."""

PATIENCE = 1.0
"""Seconds in which who has just taken a lock has written down who it is."""

_GUARD = threading.RLock()
_HELD: dict[tuple[str, str], Owner] = {}
"""What this process owns: (store, name) to owner."""


class Owner:
    """One that may own a run or a study; it does from ``claim`` to ``release``.

    Parameters
    ----------
    store : Path
        The results file.
    name : str
        What is owned, as the lock's file is called ("run-0f3a", "study").
    told : str
        The same in words, for messages.
    lock : bool
        False: no lock is taken, and only this process is looked after.
    written : callable, optional
        Returns what tells what is stored of it now from what was stored before. With it an owner
        can let go and own again, if nobody wrote anything meanwhile.
    """

    def __init__(
        self, store: Path, name: str, told: str, *, lock: bool = True,
        written: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        self.store, self.told = store.resolve(), told
        safe = name if re.fullmatch(r"[\w-]{1,80}", name, re.ASCII) else digest(name)[:32]
        self.file = self.store.with_name(f"{self.store.name}-{safe}.lock")
        self.bearer: Callable[[], Any] = lambda: None
        """Who works by it: a weak reference."""
        self._key, self._lock, self._written = (str(self.store), safe), lock, written
        self._descriptor: int | None = None
        self._since, self._pid = "", os.getpid()
        self._lost = False
        self._left: Any = None  # what was stored when it let go
        self._working = 0
        self._threads: Counter[threading.Thread] = Counter()

    def borne_by(self, thing: object) -> None:
        """Remember who works by it, for who takes over."""
        self.bearer = ref(thing)

    # ---- taking and giving -----------------------------------------------------------------

    def claim(self, *, take_over: bool = False) -> Owner | None:
        """Become the owner.

        Parameters
        ----------
        take_over : bool
            Also from an owner in this process that does nothing at the moment.

        Returns
        -------
        Owner or None
            From whom it was taken over.

        Raises
        ------
        OwnedError
            Another owns it; the message says who, where and since when.
        StoreError
            Locks are not to be had there.
        """
        with _GUARD:
            held = _HELD.get(self._key)
            if held is self:
                return None
            if held is not None and not (take_over and not held.busy):
                raise _owned(self, "another thread or object of this process", held._who())
            self._since, self._pid = _now(), os.getpid()
            if held is None:
                self._descriptor = _locked(self) if self._lock else None
            else:
                held._lost = True
                self._descriptor, held._descriptor = held._descriptor, None
            _HELD[self._key] = self
            return held

    def release(self) -> None:
        """Own it no longer, if it did."""
        with _GUARD:
            if _HELD.get(self._key) is self:
                del _HELD[self._key]
                if self._descriptor is not None:
                    _unlocked(self._descriptor, self.file)
                self._descriptor = None

    def let_go(self) -> None:
        """Own it no longer until there is work again: so others may go on with it meanwhile."""
        if self._written is not None and _HELD.get(self._key) is self:
            self._left = self._written()
            self.release()

    # ---- working ---------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while work is under way, or a thread other than this one goes on with it."""
        me = threading.current_thread()
        others = any(t.is_alive() for t, n in self._threads.items() if n and t is not me)
        return self._working > 0 or others

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work as the owner; nobody can take over meanwhile.

        Raises
        ------
        OwnedError
            It was taken over, was forked off its owner, or others went on with it.
        """
        while True:
            with _GUARD:
                if _HELD.get(self._key) is self:
                    self._working += 1
                    break
            self._own_again()
        try:
            yield
        finally:
            with _GUARD:
                self._working -= 1

    def _own_again(self) -> None:
        if self._lost:
            raise OwnedError(
                f"{self.told} was taken over by an object that was made of it later, in this "
                "process: go on with that one (this one can still be looked at, forked, replayed)"
            )
        again = "load it anew (Run.resume) to go on with it"
        if self._pid != os.getpid():
            raise OwnedError(
                f"{self.told} is owned by process {self._pid}, from which this one was forked; "
                f"{again}"
            )
        if self._left is None or self._written is None:
            raise OwnedError(f"the results file of {self.told} was closed; {again}")
        self.claim()
        if self._written() != self._left:
            self.release()
            raise OwnedError(f"{self.told} was gone on with elsewhere meanwhile; {again}")

    @contextmanager
    def engaged(self) -> Iterator[None]:
        """Mark that this thread goes on with it, between two pieces of work too."""
        me = threading.current_thread()
        with _GUARD:
            self._threads[me] += 1
        try:
            yield
        finally:
            with _GUARD:
                self._threads[me] -= 1
                if not self._threads[me]:
                    del self._threads[me]

    def _who(self) -> dict[str, Any]:
        return {"host": socket.gethostname(), "pid": self._pid, "since": self._since}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _owned(owner: Owner, by: str, who: dict[str, Any]) -> OwnedError:
    pid, host, since = (who.get(k, "unknown") for k in ("pid", "host", "since"))
    return OwnedError(
        f"{owner.told} in {owner.store} is under way in {by}: pid {pid} on {host}, since {since}; "
        "wait until it has ended, or end it, and start again (what only reads, such as agentlab "
        "show, works meanwhile)"
    )


# ---- the lock ----------------------------------------------------------------------------------


def _locked(owner: Owner) -> int:
    """Take the lock and return the descriptor that holds it."""
    end = time.monotonic() + PATIENCE
    while True:
        descriptor = _opened(owner.file)
        try:
            taken = _try_lock(descriptor, owner)
            if taken and _is_file(descriptor, owner.file):
                _write_who(descriptor, owner)
                return descriptor
            who = None if taken else _read_who(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if taken:  # whoever had it took the file away as it let go: there is another by now
            continue
        if (who is not None and _lives(who)) or time.monotonic() > end:
            raise _owned(owner, "another process", who or {})
        time.sleep(0.01)  # it is about to write who it is


def _opened(file: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(file, flags | getattr(os, "O_NONBLOCK", 0), 0o644)
    except OSError as e:
        raise StoreWriteError(
            f"{file}: cannot be written ({e.strerror or e}), and marks who works on the results; "
            "choose a folder you may write to"
        ) from e
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{file}: expected what marks who works on the results, no regular file")
    return descriptor


def _try_lock(descriptor: int, owner: Owner) -> bool:
    try:
        _lock(descriptor)
    except OSError as e:
        if e.errno in UNSUPPORTED:
            raise StoreError(
                f"{owner.file}: the file system there has no locks ({e.strerror or e}), so that "
                f"{owner.told} could be gone on with twice at once; if nobody else does, give "
                "--no-lock (lock=False), or choose a folder on a local disk"
            ) from e
        if e.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            return False
        raise StoreWriteError(f"{owner.file}: cannot be locked ({e.strerror or e})") from e
    return True


if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30  # a byte that nobody writes: what is locked there cannot be read

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

    def _unlocked(descriptor: int, file: Path) -> None:
        os.close(descriptor)
        _removed(file)  # refused while another has it open
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlocked(descriptor: int, file: Path) -> None:
        if _is_file(descriptor, file):
            _removed(file)  # while it is locked: who waits for it sees that it is gone
        os.close(descriptor)


def _removed(file: Path) -> None:
    with suppress(OSError):  # it locks nothing, so it may stay
        file.unlink()


def _is_file(descriptor: int, file: Path) -> bool:
    """Say whether a descriptor's file is the one of that name, and was not taken away."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except OSError:
        return False


def _write_who(descriptor: int, owner: Owner) -> None:
    with suppress(OSError):  # a full disk: it is locked all the same
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(owner._who()).encode())


def _read_who(descriptor: int) -> dict[str, Any] | None:
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        found = json.loads(os.read(descriptor, 4096))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _lives(who: dict[str, Any]) -> bool:
    """Say whether that process may be alive: one of another machine may."""
    pid = who.get("pid")
    if who.get("host") != socket.gethostname() or not isinstance(pid, int) or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _forget() -> None:
    """Own nothing in a forked child, whose parent does."""
    for owner in _HELD.values():
        if owner._descriptor is not None:
            os.close(owner._descriptor)
            owner._descriptor = None
    _HELD.clear()
    _GUARD.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_GUARD.acquire, after_in_parent=_GUARD.release, after_in_child=_forget
    )
