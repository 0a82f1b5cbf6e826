"""The sparse index: which offset starts at which byte of a segment. It can always be made again from the segment.

One entry for the first frame and one for each quarter mebibyte after it, appended as the segment grows:
`offset u64 · position u64 · latest timestamp before it u64 · CRC-32 u32`.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from tailrace.limits import INDEX_INTERVAL_BYTES
from tailrace.log.disk import Disk
from tailrace.log.frame import crc32
from tailrace.log.segment import Located

SUFFIX: Final = ".index"
_KEYS: Final = Struct(">QQQ")
_CRC: Final = Struct(">I")
ENTRY_BYTES: Final = _KEYS.size + _CRC.size


@dataclass(slots=True)
class Index:
    """The entries of one segment, in memory."""

    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    """The latest timestamp of all frames before the entry; 0 for the first."""
    latest: int = 0
    """The latest timestamp of all frames noted so far."""

    def note(self, located: Located) -> bool:
        """Take up a frame; True when it became an entry."""
        is_due = not self.positions or located.position >= self.positions[-1] + INDEX_INTERVAL_BYTES
        if is_due:
            self.offsets.append(located.head.offset)
            self.positions.append(located.position)
            self.timestamps.append(self.latest)
        self.latest = max(self.latest, located.head.timestamp)
        return is_due

    def forget_from(self, position: int, latest: int) -> None:
        """Drop the entries of frames that were taken back; `latest` is what it was before them."""
        kept = bisect_left(self.positions, position)
        del self.offsets[kept:], self.positions[kept:], self.timestamps[kept:]
        self.latest = latest

    def position_of(self, offset: int) -> int:
        """Where to start walking for an offset: at most one interval before it."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def position_after(self, timestamp: int) -> int:
        """Where to start walking for the first frame with a timestamp that late or later."""
        at = bisect_left(self.timestamps, timestamp) - 1
        return self.positions[at] if at >= 0 else 0

    def last_entry(self) -> bytes:
        return _pack(self.offsets[-1], self.positions[-1], self.timestamps[-1])

    def encode(self) -> bytes:
        return b"".join(map(_pack, self.offsets, self.positions, self.timestamps))

    def __len__(self) -> int:
        return len(self.positions)


def build(frames: Iterable[Located]) -> Index:
    index = Index()
    for located in frames:
        index.note(located)
    return index


def index_path(segment_path: str) -> str:
    return os.path.splitext(segment_path)[0] + SUFFIX


def load(segment_path: str, base: int) -> Index | None:
    """The index of a segment, None when it is missing or wrong. A last entry still being written is left out."""
    try:
        with open(index_path(segment_path), "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    index = Index()
    for offset, position, timestamp in _entries(raw):
        if index.positions and (offset <= index.offsets[-1] or position <= index.positions[-1]):
            return None
        index.offsets.append(offset)
        index.positions.append(position)
        index.timestamps.append(timestamp)
    if index.positions and (index.positions[0] != 0 or index.offsets[0] < base):
        return None
    whole = len(raw) // ENTRY_BYTES
    return index if len(index) == whole else None


def store(disk: Disk, segment_path: str, index: Index) -> None:
    disk.write_file(index_path(segment_path), index.encode())


def _entries(raw: bytes) -> Iterator[tuple[int, int, int]]:
    for at in range(0, len(raw) - ENTRY_BYTES + 1, ENTRY_BYTES):
        keys = raw[at : at + _KEYS.size]
        if _CRC.unpack_from(raw, at + _KEYS.size)[0] != crc32(keys):
            return
        yield _KEYS.unpack(keys)


def _pack(offset: int, position: int, timestamp: int) -> bytes:
    keys = _KEYS.pack(offset, position, timestamp)
    return keys + _CRC.pack(crc32(keys))
