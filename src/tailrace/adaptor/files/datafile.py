"""A file that is written effectively once: beside it stands how much of it is committed, and up to which offsets.

The steps of a commit keep their order: 1. the data is on disk, 2. the side file takes its place. What the data file has
past the recorded size was never committed, and is cut off.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.message import Offset

_MODE: Final = 0o644

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """What a side file says."""

    size: int = 0
    offsets: dict[str, Offset] = field(default_factory=dict)
    """For each namespace in the file, up to where it has its messages."""


def ends_with_line(fd: int, size: int) -> bool:
    """Whether the last line of a file is complete."""
    return os.pread(fd, 1, size - 1) == b"\n"


class DataFile:
    """Appends to one file. It is opened when something is written. `is_whole` tells of a file that somebody else has
    begun, and its size, whether it can be added to."""

    def __init__(self, path: str, is_whole: Callable[[int, int], bool] = ends_with_line) -> None:
        self.path = path
        self._is_whole = is_whole
        directory, name = os.path.split(path)
        self._side = os.path.join(directory, f".{name}.tailrace")
        self._fd: int | None = None
        self._size = 0
        self._committed: Committed | None = None

    def applied(self, namespace: str) -> Offset | None:
        """Up to which offset the file has a namespace, None when nothing says so."""
        if self._fd is None:
            self._committed = self._read_side()
        return self._committed.offsets.get(namespace) if self._committed else None

    def append(self, *parts: Any) -> None:
        """Write at the end; not committed."""
        fd = self.open()
        with refusals("writing", self.path):
            for part in parts:
                self._size += _write_all(fd, part, self._size)

    def head(self, size: int) -> bytes:
        """How the file begins."""
        with refusals("reading", self.path):
            return os.pread(self.open(), size, 0)

    def is_empty(self) -> bool:
        self.open()
        return self._size == 0

    def commit(self, namespaces: set[str], upto: Offset) -> None:
        """All that was appended is on disk, with the fact that these namespaces are complete up to an offset."""
        fd = self.open()
        offsets = {} if self._committed is None else self._committed.offsets
        with refusals("committing", self.path):
            os.fdatasync(fd)
            self._write_side(Committed(self._size, {**offsets, **dict.fromkeys(namespaces, upto)}))

    def close(self) -> None:
        """Let go; what was not committed is cut off."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            if self._committed is not None and self._size > self._committed.size:
                os.ftruncate(fd, self._committed.size)
        finally:
            os.close(fd)

    def open(self) -> int:
        """The file, as it was after the last commit."""
        if self._fd is not None:
            return self._fd
        with refusals("opening", self.path):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            committed = self._read_side()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._recover(fd, committed)
            except BaseException:
                os.close(fd)
                raise
        self._fd = fd
        return fd

    def _recover(self, fd: int, committed: Committed | None) -> None:
        """Cut off what was not committed. A file that somebody else has begun is added to."""
        size = os.fstat(fd).st_size
        if committed is None:
            if size and not self._is_whole(fd, size):
                raise self._refusal("the last line of the file has no end", "end the line, or choose another file")
            self._write_side(Committed(size))
        elif size < committed.size:
            what = f"the file has {size} bytes, but {committed.size} were committed"
            raise self._refusal(what, "restore the file, or remove it to begin a new one")
        else:
            if size > committed.size:
                _log.warning("%r: %d bytes that were not committed are cut off", self.path, size - committed.size)
                os.ftruncate(fd, committed.size)
            self._committed = committed
        self._size = self._committed.size if self._committed else 0

    def _read_side(self) -> Committed | None:
        """What the side file says; nothing when the file it speaks of is gone."""
        if not os.path.exists(self.path):
            return None
        try:
            with open(self._side, "rb") as side:
                stored = json.loads(side.read())
            return Committed(stored["size"], stored["offsets"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            what = "the file that tells how much was committed cannot be read"
            hint = "remove it if the data file is complete, or remove both"
            raise TailraceError("destination.refused", what, place=Place(self._side), hint=hint) from error

    def _write_side(self, committed: Committed) -> None:
        draft = f"{self._side}.tmp"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
        try:
            _write_all(fd, json.dumps({"size": committed.size, "offsets": committed.offsets}).encode(), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(draft, self._side)
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._committed = committed

    def _refusal(self, what: str, hint: str) -> TailraceError:
        return TailraceError("destination.refused", what, place=Place(self.path), hint=hint)


@contextmanager
def refusals(doing: str, path: str) -> Iterator[None]:
    """Within it the operating system's refusals become ours."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            what, hint = "another writer has the file open", "stop the other one, or give each its own file"
        elif isinstance(error, FileExistsError | NotADirectoryError):
            what, hint = "a file stands where a directory should be", "choose another path, or move that file away"
        else:
            what, hint = f"{error.strerror} while {doing}", "check the disk and who may write there"
        raise TailraceError("destination.unreachable", what, place=Place(path), hint=hint) from error


def _write_all(fd: int, content: Any, at: int) -> int:
    rest = memoryview(content).cast("B")
    size = len(rest)
    while rest:
        done = os.pwrite(fd, rest, at)
        at += done
        rest = rest[done:]
    return size
