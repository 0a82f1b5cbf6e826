"""One process at a time compacts a log, removes segments from it or mends it. Appends and reads go on meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import Place, TailraceError
from tailrace.log.disk import disk_errors
from tailrace.log.lock import Lock, LockHeld
from tailrace.log.recovery import MAINTENANCE_LOCK_NAME


@contextmanager
def maintaining(directory: str) -> Iterator[None]:
    """Hold the log's maintenance lock."""
    lock = Lock(os.path.join(directory, MAINTENANCE_LOCK_NAME))
    try:
        with disk_errors("beginning to maintain the log", directory):
            lock.acquire()
    except LockHeld as held:
        what = f"the log is being maintained by {held}"
        raise TailraceError("log.busy", what, place=Place(directory), hint="wait until it has finished") from None
    try:
        yield
    finally:
        lock.release()
