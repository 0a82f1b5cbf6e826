"""Locks between processes. The kernel releases them when their holder dies, so a stale one never blocks anybody; what
is written inside only says who holds it, or who died holding it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from tailrace.log.disk import FILE_MODE

WRITER_LOCK_NAME: Final = "writer.lock"
"""Held by the one process that appends to a log."""
_RECORD_BYTES_MAX: Final = 4096
_TRIES: Final = 25
_TRY_S: Final = 0.02
"""Whoever only looks who holds a lock takes it for a moment, and that can be long on a busy machine."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class LockHeld(Exception):
    """Somebody else holds the lock."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__(holder)
        self.holder = holder

    def __str__(self) -> str:
        return str(self.holder or "another process")


class Lock:
    """An exclusive lock on a file, held from `acquire` to `release`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def acquire(self) -> Holder | None:
        """Take the lock or raise LockHeld. Returns the holder that died without releasing it, if one did."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
        if not _try_exclusive(fd):
            holder = _read_holder(fd)
            os.close(fd)
            raise LockHeld(holder)
        stale = _read_holder(fd)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record = json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), now))).encode()
        with contextlib.suppress(OSError):  # who holds it is worth knowing, but a full disk must not lock us out
            os.ftruncate(fd, 0)
            os.pwrite(fd, record, 0)
        self._fd = fd
        return stale

    def release(self) -> None:
        """Give the lock up after finishing properly."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            self.abandon()

    def abandon(self) -> None:
        """Give the lock up but leave word that its holder did not finish."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextlib.contextmanager
def short_lock(path: str) -> Iterator[None]:
    """Wait for a lock that everybody holds only for a moment."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def holder_of(path: str) -> Holder | None:
    """Who holds the lock right now, None when nobody does. Changes nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(fd)
    finally:
        os.close(fd)
    return None


def _try_exclusive(fd: int) -> bool:
    """A few tries, since `holder_of` touches the lock for a moment."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_S)
        else:
            return True
    return False


def _read_holder(fd: int) -> Holder | None:
    try:
        found = json.loads(os.pread(fd, _RECORD_BYTES_MAX, 0))
        return Holder(int(found["pid"]), str(found["host"]), str(found["since"]))
    except (ValueError, KeyError, TypeError):
        return None
