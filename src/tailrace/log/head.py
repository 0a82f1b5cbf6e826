"""The head file: how far the log is published and how far it is durable.

The one writer rewrites it in place after each group; readers in other processes look at it to see what they may read.
It is synced only when a segment begins, so that a lost last segment is noticed: after a power cut it may be behind in
its segment, and the segments decide.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from typing import Final

from tailrace.log.disk import Disk
from tailrace.log.frame import crc32
from tailrace.message import Offset

NAME: Final = "head"
_MAGIC: Final = b"trh1"
_FIELDS: Final = Struct(">4sQQQQ")
_CRC: Final = Struct(">I")
_BYTES: Final = _FIELDS.size + _CRC.size
_TORN_READS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class LogHead:
    """The end of the log as its writer last published it."""

    base: Offset
    """The active segment."""
    published: int
    """Readers may read the active segment up to this byte."""
    durable: int
    """The active segment is on disk up to this byte."""
    next_offset: Offset


class HeadWriter:
    """The writer's side."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        path = os.path.join(directory, NAME)
        is_new = not os.path.lexists(path)
        self._fd = disk.create(path) if is_new else disk.open(path)
        if is_new:
            disk.sync_directory(directory)

    def publish(self, head: LogHead, *, durably: bool = False) -> None:
        fields = _FIELDS.pack(_MAGIC, head.base, head.published, head.durable, head.next_offset)
        self._disk.write(self._fd, [fields + _CRC.pack(crc32(fields))], 0)
        if durably:
            self._disk.sync(self._fd)

    def close(self) -> None:
        self._disk.close(self._fd)


def head_path(directory: str) -> str:
    return os.path.join(directory, NAME)


def read_head(directory: str) -> LogHead | None:
    """What the writer last published; None when there is no head file or it is not whole."""
    try:
        fd = os.open(head_path(directory), os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return read_head_from(fd)
    finally:
        os.close(fd)


def read_head_from(fd: int) -> LogHead | None:
    """Like `read_head`, for a file that is already open. A read that met a write is repeated."""
    for _ in range(_TORN_READS_MAX):
        raw = os.pread(fd, _BYTES, 0)
        if len(raw) < _BYTES:
            return None
        if _CRC.unpack_from(raw, _FIELDS.size)[0] == crc32(raw[: _FIELDS.size]):
            magic, base, published, durable, next_offset = _FIELDS.unpack_from(raw)
            return LogHead(base, published, durable, next_offset) if magic == _MAGIC else None
    return None
