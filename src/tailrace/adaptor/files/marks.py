"""Marks: how far each file was read, and whether it is still the same file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.adaptor.files.avroblocks import header_of
from tailrace.adaptor.files.formats import Format
from tailrace.adaptor.files.lines import end_of_lines, end_of_records
from tailrace.adaptor.files.listing import Found
from tailrace.adaptor.files.members import Members
from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.adaptor.files.rowgroups import is_complete
from tailrace.log.disk import read_exactly
from tailrace.log.frame import crc32

SETTLED_S: Final = 600.0
"""A file that nobody has written to for so long will not be completed any more."""
_END_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """A file that was read up to `size`."""

    size: int
    id: int
    """The file's inode."""
    ends: int
    """A checksum of the first and the last bytes before `size`: whoever appends does not change it."""
    at: int = field(compare=False)
    """When the file was last written, in microseconds since 1970."""

    def to_json(self) -> dict[str, int]:
        return {"size": self.size, "id": self.id, "ends": self.ends, "at": self.at}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Mark:
        return cls(stored["size"], stored["id"], stored["ends"], stored["at"])


def mark_of(path: str, file: Found, options: FilesReaderOptions, members: Members | None = None) -> Mark | None:
    """How far a file can be read now; None when it is gone, or nothing of it is complete yet. `members` follows a
    compressed file."""
    try:
        with open(path, "rb") as opened:
            size = _readable_bytes(opened.fileno(), path, file, options, members)
            if size == 0 and not file.content.has_plain_lines:
                return None
            at = min(max(0, file.stat.st_mtime_ns), time.time_ns()) // 1000
            return Mark(size, file.stat.st_ino, checksum_of_ends(opened.fileno(), size), at)
    except FileNotFoundError:
        return None


def is_settled(file: Found) -> bool:
    """Whether a file has long been as it is, so that what is missing in it is damage."""
    return time.time() - file.stat.st_mtime > SETTLED_S


def _readable_bytes(fd: int, path: str, file: Found, options: FilesReaderOptions, members: Members | None) -> int:
    """Files of lines are read to the end of the last complete one, unless nothing more is waited for; others as far as
    they are whole."""
    size, content = file.stat.st_size, file.content
    if not content.has_plain_lines:
        if is_settled(file):
            return size
        if members is not None:
            return members.whole_bytes(fd, size)
        if content.format is Format.AVRO:
            header = header_of(fd)
            return 0 if header is None else end_of_lines(fd, size, path, header.marker)
        return size if is_complete(path) else 0
    if not options.tail:
        return size
    if content.format is Format.CSV and options.csv.quoted_newlines:
        return end_of_records(fd, size, path, options.csv.quote.encode())
    return end_of_lines(fd, size, path)


def checksum_of_ends(fd: int, size: int) -> int:
    """The checksum for `Mark.ends`."""
    head = read_exactly(fd, min(size, _END_BYTES), 0)
    tail_at = max(0, size - _END_BYTES)
    return crc32(head + read_exactly(fd, size - tail_at, tail_at))


def is_unchanged(path: str, mark: Mark) -> bool:
    """Whether what was there when the mark was made is there still, perhaps with more behind it."""
    try:
        with open(path, "rb") as opened:
            fd = opened.fileno()
            return os.fstat(fd).st_size >= mark.size and checksum_of_ends(fd, mark.size) == mark.ends
    except FileNotFoundError:
        return False
