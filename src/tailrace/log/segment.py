"""Segments: files of frames, named by the offset of their first frame. Frames tile the offsets without a gap."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from tailrace.errors import Place, TailraceError
from tailrace.limits import KIB
from tailrace.log.disk import read_exactly
from tailrace.log.frame import Head, ShortFrame, crc32, parse_head
from tailrace.message import Offset

SUFFIX: Final = ".log"
_NAME: Final = re.compile(r"([0-9]{20})\.log")
_CHUNK_BYTES: Final = 64 * KIB
_HEAD_BYTES: Final = 256
"""Most heads are shorter: so much is read for a single one."""


_NO_BODY: Final = memoryview(b"")


class Located(NamedTuple):
    """A frame's head, where it starts in its file and, when it was asked for, its body."""

    position: int
    head: Head
    body: memoryview = _NO_BODY

    @property
    def end(self) -> int:
        """The byte after the frame."""
        return self.position + self.head.frame_bytes


def segment_name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def list_segments(directory: str) -> list[Offset]:
    """The base offsets of all segments, ascending."""
    matches = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(Offset(int(match[1])) for match in matches if match)


class FrameFile:
    """A file of frames, open for reading. What was opened stays readable when the file is replaced or removed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def bytes_at(self, position: int, size: int) -> bytes:
        return read_exactly(self._fd, size, position)

    def place(self, position: int, offset: int | None = None) -> Place:
        return Place(self.name, position, offset)

    def heads(self, position: int = 0, end: int | None = None) -> Iterator[Located]:
        """The heads of the frames from a position on; bodies are passed over, not read."""
        return self._walk(position, end, bodies=False)

    def frames(self, position: int = 0, end: int | None = None) -> Iterator[Located]:
        """Like `heads`, with bodies whose checksums were right."""
        return self._walk(position, end, bodies=True)

    def head_at(self, position: int) -> Located:
        """The head at a position that an index gave, read by itself; raises `log.corrupt` when there is none."""
        for located in self._walk(position, None, bodies=False, chunk_bytes=_HEAD_BYTES):
            return located
        raise self._torn(position)

    def body_of(self, located: Located) -> memoryview:
        """The body of a frame, its checksum right."""
        body = memoryview(self.bytes_at(located.position + located.head.head_bytes, located.head.body_bytes))
        self._check_body(located.position, located.head, body)
        return body

    def _walk(
        self, position: int, end: int | None, *, bodies: bool, chunk_bytes: int = _CHUNK_BYTES
    ) -> Iterator[Located]:
        """Frames up to `end` (the file's end when None). Raises at a frame that is not wholly there: the caller decides
        whether that is a tail to cut or damage.

        Small frames are cut out of one chunk; the body of a large one is read by itself, while it fits the cache.
        """
        limit = self.size() if end is None else end
        chunk, chunk_at = _NO_BODY, position
        needed = 0
        while position < limit:
            at = position - chunk_at
            if at + max(needed, 1) > len(chunk):
                chunk = memoryview(self.bytes_at(position, min(max(needed, chunk_bytes), limit - position)))
                chunk_at, at = position, 0
                if len(chunk) < max(needed, 1):
                    raise self._torn(position)
            try:
                head = parse_head(chunk, at, file=self.name, position=position)
            except ShortFrame as short:
                if short.needed <= needed or position + short.needed > limit:
                    raise self._torn(position) from None
                needed = short.needed
                continue
            if position + head.frame_bytes > limit:
                raise self._torn(position, head.offset)
            body = _NO_BODY
            if bodies:
                body = chunk[at + head.head_bytes : at + head.frame_bytes]
                if len(body) < head.body_bytes:
                    body = memoryview(self.bytes_at(position + head.head_bytes, head.body_bytes))
                self._check_body(position, head, body)
            yield Located(position, head, body)
            position += head.frame_bytes
            needed = 0

    def _check_body(self, position: int, head: Head, body: memoryview) -> None:
        if len(body) < head.body_bytes:
            raise self._torn(position, head.offset)
        if head.is_batch and crc32(body) != head.body_crc:
            raise TailraceError(
                "log.corrupt",
                "the checksum of a frame's body differs",
                place=self.place(position, head.offset),
                hint="tailrace log verify",
            )

    def _torn(self, position: int, offset: int | None = None) -> TailraceError:
        return TailraceError(
            "log.corrupt",
            "the file ends in the middle of a frame",
            place=self.place(position, offset),
            hint="tailrace log verify",
        )


class Segment(FrameFile):
    """One segment of a log."""

    def __init__(self, directory: str, base: Offset) -> None:
        super().__init__(os.path.join(directory, segment_name(base)))
        self.base = base
