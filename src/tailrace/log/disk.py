"""The few disk operations on which the log's promises rest. Tests put a disk in its place that fails or loses power."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.errors import Place, TailraceError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
DRAFT_SUFFIX: Final = ".tmp"
_DRAFT: Final = re.compile(rf".+\.\d+\{DRAFT_SUFFIX}")
_IOV_MAX: Final = 1024


class SyncFailed(OSError):
    """The disk did not confirm what was written, so nobody knows what it kept. Not to be tried again (I7)."""


class Disk:
    """Plain files. Every method returns when the kernel has done it, or raises OSError."""

    def make_directory(self, path: str) -> bool:
        """Create a directory durably; False when it was there already, though perhaps not durable yet."""
        try:
            os.mkdir(path, DIRECTORY_MODE)
            is_new = True
        except FileExistsError:
            is_new = False
        self.sync_directory(os.path.dirname(os.path.abspath(path)))
        return is_new

    def create(self, path: str) -> int:
        """A new, empty file open for writing; its directory entry is not durable before `sync_directory`."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)

    def open(self, path: str) -> int:
        """An existing file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], at: int) -> int:
        """Write all of the buffers at a position, however many calls that takes. Returns the bytes written."""
        queue = [memoryview(buffer).cast("B") for buffer in buffers]
        start = at
        while queue:
            done = os.pwritev(fd, queue[:_IOV_MAX], at)
            if done == 0 and any(queue):
                raise OSError(errno.EIO, "the disk accepts no more bytes")
            at += done
            while queue and done >= len(queue[0]):
                done -= len(queue.pop(0))
            if done:
                queue[0] = queue[0][done:]
        return at - start

    def sync(self, fd: int) -> None:
        """Data and size are on disk when this returns."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def sync_directory(self, path: str) -> None:
        """Created, renamed and removed entries of a directory are on disk when this returns."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncFailed(*error.args) from error
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write_file(self, path: str, content: bytes) -> None:
        """A whole new file, not durable: for what can be made again."""
        draft = self._draft(path, content, sync=False)
        self.rename(draft, path)

    def replace_file(self, path: str, content: bytes) -> None:
        """Put a file in place whole and durably: after a crash it is either the old one or the new one."""
        draft = self._draft(path, content, sync=True)
        self.rename(draft, path)
        self.sync_directory(os.path.dirname(path))

    def _draft(self, path: str, content: bytes, *, sync: bool) -> str:
        draft = draft_path(path)
        if os.path.lexists(draft):
            self.remove(draft)
        fd = self.create(draft)
        try:
            self.write(fd, [content], 0)
            if sync:
                self.sync(fd)
        finally:
            self.close(fd)
        return draft


def is_full(error: OSError) -> bool:
    """Whether the operating system refused for want of space."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(error, SyncFailed)


def disk_error(error: OSError, doing: str, path: str) -> TailraceError:
    """An operating system's refusal in our words."""
    place = Place(path)
    if isinstance(error, SyncFailed):
        return TailraceError(
            "log.fsync_failed",
            f"the disk did not confirm a write ({error.strerror}) while {doing}; nobody knows what was kept",
            place=place,
            hint="check the disk (dmesg), then try again: what is in doubt is written anew",
        )
    if is_full(error):
        return TailraceError(
            "log.disk_full", f"no space left while {doing}", place=place, hint="free some space and try again"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return TailraceError(
            "log.read_only", f"permission denied while {doing}", place=place, hint="check the mount and who owns it"
        )
    return TailraceError(
        "log.io", f"{error.strerror or error} while {doing}", place=place, hint="check the disk (dmesg), then try again"
    )


def draft_path(path: str) -> str:
    """Where this process writes what will take a file's place."""
    return f"{path}.{os.getpid()}{DRAFT_SUFFIX}"


def is_draft(name: str) -> bool:
    return _DRAFT.fullmatch(name) is not None


class disk_errors:  # noqa: N801  used as a statement
    """Within it the operating system's refusals become ours. A class, since it is entered for every group."""

    def __init__(self, doing: str, path: str) -> None:
        self._doing = doing
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise disk_error(error, self._doing, self._path) from error


def read_exactly(fd: int, size: int, at: int) -> bytes:
    """`size` bytes at a position, or fewer when the file ends before."""
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(fd, size, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
