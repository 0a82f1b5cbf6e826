"""Disks that count, wait or fail, for the one seam through which the log touches the real one."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.log.disk import Disk, SyncFailed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def io_error() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def sync_failed() -> OSError:
    return SyncFailed(errno.EIO, os.strerror(errno.EIO))


def read_only() -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS))


class CountingDisk(Disk):
    """Remembers which files were synced, in order."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    @property
    def segment_syncs(self) -> int:
        return sum(name.endswith(".log") for name in self.synced)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.synced.append(os.path.basename(path_of(fd)))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.synced.append(os.path.basename(path) + "/")


class GatedDisk(CountingDisk):
    """Its syncs of segments wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.waiting = threading.Event()

    def sync(self, fd: int) -> None:
        if path_of(fd).endswith(".log"):
            self.waiting.set()
            assert self.gate.wait(120)
        super().sync(fd)


class FailingDisk(CountingDisk):
    """Raises what it was told to, as long as it was told so."""

    def __init__(self) -> None:
        super().__init__()
        self.sync_fails: Callable[[str], OSError | None] = lambda path: None
        self.write_fails: Callable[[str], OSError | None] = lambda path: None
        self.truncate_fails: Callable[[str], OSError | None] = lambda path: None
        self.torn_bytes = 0
        """How much of a failing write reaches the file all the same."""
        self.sync_calls = 0

    def sync(self, fd: int) -> None:
        self.sync_calls += 1
        _raise(self.sync_fails(path_of(fd)))
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self.sync_calls += 1
        _raise(self.sync_fails(path))
        super().sync_directory(path)

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], at: int) -> int:
        error = self.write_fails(path_of(fd))
        if error is not None and self.torn_bytes:
            super().write(fd, [b"".join(bytes(buffer) for buffer in buffers)[: self.torn_bytes]], at)
        _raise(error)
        return super().write(fd, buffers, at)

    def truncate(self, fd: int, size: int) -> None:
        _raise(self.truncate_fails(path_of(fd)))
        super().truncate(fd, size)


def never(path: str) -> OSError | None:
    return None


def on(suffix: str, error: Callable[[], OSError]) -> Callable[[str], OSError | None]:
    """Fails for files whose names end so."""
    return lambda path: error() if path.endswith(suffix) else None


def _raise(error: OSError | None) -> None:
    if error is not None:
        raise error
