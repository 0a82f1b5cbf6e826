"""Compressed files: where their last whole member ends. What follows is still being written, or damaged.

A gzip file consists of members, a zstd file of frames; most have one. Where there are several a line may go on from one
to the next, so only those count after which a line ends. A single one counts as it is.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final, Protocol

import pyarrow as pa
from isal import isal_zlib

from tailrace.limits import MIB
from tailrace.log.disk import read_exactly

_PACKED_BYTES: Final = 64 * 1024
"""So much is unpacked at a time; it can become a thousand times as much."""
_GZIP_WINDOW: Final = 31
_DAMAGED: Final[Any] = isal_zlib.error
"""Its types say that it is no class."""
_ZSTD: Final = 0xFD2FB528
_SKIPPED: Final = range(0x184D2A50, 0x184D2A60)
"""The magic numbers of zstd frames that hold no data."""


class Members(Protocol):
    """One compressed file, looked at again and again while it grows."""

    def whole_bytes(self, fd: int, size: int) -> int:
        """Where the last whole member ends within the first `size` bytes; 0 when none does."""


def members_of(compression: str, unpacked_bytes_max: int) -> Members:
    """What follows a file that is compressed like this."""
    return GzipMembers(unpacked_bytes_max) if compression == "gzip" else ZstdFrames()


class GzipMembers:
    """Where a member ends is known only by unpacking it, so what was unpacked once is not looked at again."""

    def __init__(self, unpacked_bytes_max: int) -> None:
        self._unpacked_bytes_max = unpacked_bytes_max
        self._begin()

    def whole_bytes(self, fd: int, size: int) -> int:
        if size < self._at:
            self._begin()
        try:
            self._follow(fd, size)
        except _DAMAGED:
            self._begin()  # damaged, or written anew
            return 0
        if self._unpacked > self._unpacked_bytes_max:
            return size  # whoever reads it will refuse it
        is_single = self._members == 1 and self._unpacker is None
        return self._at if is_single else self._line_ended_at

    def _begin(self) -> None:
        self._at = self._unpacked = self._members = self._line_ended_at = 0
        self._unpacker: Any = None
        self._last = b""

    def _follow(self, fd: int, size: int) -> None:
        while self._at < size and self._unpacked <= self._unpacked_bytes_max:
            packed = read_exactly(fd, min(_PACKED_BYTES, size - self._at), self._at)
            if not packed:
                return
            self._at += len(packed)
            while packed:
                packed = self._unpack(packed)

    def _unpack(self, packed: bytes) -> bytes:
        """Unpack until a member ends; what follows it is handed back."""
        if self._unpacker is None:
            self._unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        text = self._unpacker.decompress(packed)
        self._unpacked += len(text)
        self._last = text[-1:] or self._last
        if not self._unpacker.eof:
            return b""
        rest: bytes = self._unpacker.unused_data
        self._unpacker = None
        self._members += 1
        if self._last == b"\n":
            self._line_ended_at = self._at - len(rest)
        return rest


class ZstdFrames:
    """Frames tell how long their blocks are, so nothing need be unpacked to find where they end."""

    def whole_bytes(self, fd: int, size: int) -> int:
        frames = list(_frames(fd, size))
        if len(frames) == 1:
            return frames[0][1]
        return next((end for start, end in reversed(frames) if _last_byte(fd, start, end) == b"\n"), 0)


def _frames(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The whole frames that hold data, from byte to byte, each with those behind it that hold none."""
    at = 0
    found: tuple[int, int] | None = None
    while (end := _frame_end(fd, at)) is not None and end <= size:
        if _number(fd, at, 4) not in _SKIPPED:
            if found:
                yield found
            found = at, end
        elif found:
            found = found[0], end
        at = end
    if found:
        yield found


def _frame_end(fd: int, at: int) -> int | None:
    """Where the frame ends that begins here, None when there is no frame or not all of it."""
    magic = _number(fd, at, 4)
    if magic in _SKIPPED:
        length = _number(fd, at + 4, 4)
        return None if length is None else at + 8 + length
    descriptor = _number(fd, at + 4, 1)
    if magic != _ZSTD or descriptor is None:
        return None
    is_single = bool(descriptor & 0x20)
    size_bytes = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    at += 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
    is_last = False
    while not is_last:
        block = _number(fd, at, 3)
        if block is None:
            return None
        is_last, repeats = bool(block & 1), (block >> 1) & 3 == 1
        at += 3 + (1 if repeats else block >> 3)
    return at + (4 if descriptor & 4 else 0)


def _number(fd: int, at: int, length: int) -> int | None:
    found = read_exactly(fd, length, at)
    return int.from_bytes(found, "little") if len(found) == length else None


def _last_byte(fd: int, start: int, end: int) -> bytes:
    last = b""
    try:
        with unpacked(FileRange(fd, start, end), "zstd") as stream:
            while text := stream.read(MIB):
                last = text[-1:]
    except OSError:
        return b""
    return last


def unpacked(packed: FileRange, compression: Any) -> pa.CompressedInputStream:
    """What is inside a part of a compressed file."""
    source: Any = packed
    return pa.CompressedInputStream(source, compression)


class FileRange(io.RawIOBase):
    """A part of an open file, as a file of its own."""

    def __init__(self, fd: int, start: int, end: int) -> None:
        super().__init__()
        self._fd = fd
        self._at = start
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = read_exactly(self._fd, min(len(buffer), self._end - self._at), self._at)
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)
