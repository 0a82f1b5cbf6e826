"""The table of contents of a sealed segment: what is in it by namespace, destination, origin and batch id.

It answers "is there anything for me here?" and "where?" without walking the segment, and it is the tag index. It is
written when a segment is sealed and can always be made again from the segment. A short prelude of fixed size says how
long the segment is and where it ends, so that a log opens without reading the rest.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

import msgpack

from tailrace.limits import CONTENTS_BYTES_MAX
from tailrace.log import index
from tailrace.log.disk import Disk
from tailrace.log.frame import crc32
from tailrace.log.index import Index
from tailrace.log.segment import Located
from tailrace.message import Offset

SUFFIX: Final = ".toc"
_MAGIC: Final = b"trc1"
_PRELUDE: Final = Struct(">4sQQBIII")
"""magic · segment bytes · end offset · whether the last frame is plain · index CRC · details length · details CRC."""
_CRC: Final = Struct(">I")
_PRELUDE_BYTES: Final = _PRELUDE.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a segment reaches."""

    segment_bytes: int
    end: Offset
    ends_plain: bool
    """Its last frame is Transporter's: only there may the next segment start later than this one ends."""
    index_crc: int = 0
    """The CRC-32 of the segment's whole sparse index."""


@dataclass(slots=True)
class Presence:
    """What a segment holds of one namespace."""

    first: int
    last: int
    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Contents:
    """What a segment holds."""

    segment_bytes: int = 0
    end: int = 0
    ends_plain: bool = False
    frames: int = 0
    messages: int = 0
    earliest: int | None = None
    """The earliest frame timestamp: a frame's is that of its latest message."""
    latest: int = 0
    namespaces: dict[str, Presence] = field(default_factory=dict)
    origins: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each origin the lowest and highest lsn."""
    destinations: dict[str, array[int]] = field(default_factory=dict)
    """For each destination the positions of the frames that are for it."""
    batches: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each published batch id the offsets of its group: first, and the one after the last."""
    group_start: int | None = None
    """Where the group that is not closed yet began."""

    def note(self, located: Located) -> None:
        """Take up the next frame of the segment."""
        head = located.head
        self.segment_bytes = located.end
        self.end = head.end
        self.ends_plain = not head.is_batch
        self.frames += 1
        if self.group_start is None:
            self.group_start = head.offset
        for batch_id in head.batch_ids:
            self.batches[batch_id] = (self.group_start, head.end)
        if head.closes_group:
            self.group_start = None
        if head.is_hole:
            return
        self.messages += head.messages
        self.earliest = head.timestamp if self.earliest is None else min(self.earliest, head.timestamp)
        self.latest = max(self.latest, head.timestamp)
        presence = self.namespaces.get(head.namespace)
        if presence is None:
            presence = self.namespaces[head.namespace] = Presence(head.offset, head.offset)
        presence.last = head.end - 1
        presence.messages += head.messages
        presence.bytes += head.frame_bytes
        low, high = self.origins.get(head.origin, (head.first_lsn, head.last_lsn))
        self.origins[head.origin] = (min(low, head.first_lsn), max(high, head.last_lsn))
        for destination in head.destinations:
            self.destinations.setdefault(destination, array("Q")).append(located.position)

    @property
    def extent(self) -> Extent:
        return Extent(self.segment_bytes, Offset(self.end), self.ends_plain)

    def encode(self, segment_name: str, index_crc: int) -> bytes:
        details = msgpack.packb(
            {
                "frames": self.frames,
                "messages": self.messages,
                "earliest": self.earliest,
                "latest": self.latest,
                "namespaces": {name: (p.first, p.last, p.messages, p.bytes) for name, p in self.namespaces.items()},
                "origins": {str(origin): lsns for origin, lsns in self.origins.items()},
                "destinations": {name: _big_endian(at).tobytes() for name, at in self.destinations.items()},
                "batches": self.batches,
            }
        )
        prelude = _PRELUDE.pack(
            _MAGIC, self.segment_bytes, self.end, self.ends_plain, index_crc, len(details), crc32(details)
        )
        return b"".join((prelude, _CRC.pack(_prelude_crc(segment_name, prelude)), details))


def build(frames: Iterable[Located], base: int) -> Contents:
    contents = Contents(end=base)
    for located in frames:
        contents.note(located)
    return contents


def contents_path(segment_path: str) -> str:
    return os.path.splitext(segment_path)[0] + SUFFIX


def store(disk: Disk, segment_path: str, contents: Contents, sparse: Index) -> None:
    """Write a sealed segment's two side files."""
    index.store(disk, segment_path, sparse)
    encoded = contents.encode(os.path.basename(segment_path), crc32(sparse.encode()))
    disk.write_file(contents_path(segment_path), encoded)


def load_extent(segment_path: str, segment_bytes: int) -> Extent | None:
    """How far a segment of that many bytes reaches; None when the table of contents is missing, wrong or of another
    version of the segment (compaction only ever makes a segment shorter, so the length tells)."""
    raw, file_bytes = _read(segment_path, _PRELUDE_BYTES)
    prelude = _parse_prelude(raw, segment_path, segment_bytes)
    return prelude[0] if prelude and file_bytes == _PRELUDE_BYTES + prelude[1] else None


def load(segment_path: str, segment_bytes: int) -> Contents | None:
    """The whole table of contents, None as for `load_extent`."""
    raw, _ = _read(segment_path, _PRELUDE_BYTES + CONTENTS_BYTES_MAX)
    prelude = _parse_prelude(raw, segment_path, segment_bytes)
    if prelude is None:
        return None
    extent, details_bytes, details_crc = prelude
    details = raw[_PRELUDE_BYTES:]
    if len(details) != details_bytes or crc32(details) != details_crc:
        return None
    found: dict[str, Any] = msgpack.unpackb(details, strict_map_key=True)
    return Contents(
        segment_bytes=extent.segment_bytes,
        end=extent.end,
        ends_plain=extent.ends_plain,
        frames=found["frames"],
        messages=found["messages"],
        earliest=found["earliest"],
        latest=found["latest"],
        namespaces={name: Presence(*values) for name, values in found["namespaces"].items()},
        origins={int(origin): (low, high) for origin, (low, high) in found["origins"].items()},
        destinations={name: _big_endian(array("Q", raw)) for name, raw in found["destinations"].items()},
        batches={batch_id: (first, end) for batch_id, (first, end) in found["batches"].items()},
    )


def _read(segment_path: str, size: int) -> tuple[bytes, int]:
    """So much of the file, and how long all of it is."""
    try:
        with open(contents_path(segment_path), "rb") as file:
            return file.read(size), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return b"", 0


def _parse_prelude(raw: bytes, segment_path: str, segment_bytes: int) -> tuple[Extent, int, int] | None:
    if len(raw) < _PRELUDE_BYTES:
        return None
    expected = _prelude_crc(os.path.basename(segment_path), raw[: _PRELUDE.size])
    if _CRC.unpack_from(raw, _PRELUDE.size)[0] != expected:
        return None
    magic, size, end, ends_plain, index_crc, details_bytes, details_crc = _PRELUDE.unpack_from(raw)
    if magic != _MAGIC or size != segment_bytes:
        return None
    return Extent(size, Offset(end), bool(ends_plain), index_crc), details_bytes, details_crc


def _prelude_crc(segment_name: str, prelude: bytes) -> int:
    """With the segment's name in it, so that another segment's contents are not taken for this one's."""
    return crc32(prelude, crc32(segment_name.encode()))


def _big_endian(positions: array[int]) -> array[int]:
    """Swap between this machine's byte order and the file's; the same step both ways."""
    swapped = array("Q", positions)
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped
