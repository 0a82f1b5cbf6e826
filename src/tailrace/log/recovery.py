"""Opening a log after whatever happened: cut an unacknowledged torn tail, refuse damage, make side files again.

I5: recovery cuts only an unacknowledged torn tail; damage before it stops the log and names file, byte and offset.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log import contents, index
from tailrace.log.contents import Contents, Extent
from tailrace.log.disk import Disk, is_draft
from tailrace.log.frame import ShortFrame, crc32, find_batch_frame, parse_head
from tailrace.log.head import LogHead
from tailrace.log.index import Index
from tailrace.log.lock import Holder, Lock, LockHeld
from tailrace.log.segment import Located, Segment, list_segments, segment_name
from tailrace.message import Offset

MAINTENANCE_LOCK_NAME: Final = "maintenance.lock"
"""Held by whoever compacts, removes or mends segments."""
_OFFSET: Final = Struct(">Q")
_REWRITE_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class Cut:
    """An unacknowledged tail that was removed."""

    segment: str
    position: int
    cut_bytes: int
    next_offset: Offset
    why: str


@dataclass(slots=True)
class Report:
    """What opening a log found and did."""

    previous_writer: Holder | None = None
    """The writer that ended without closing the log."""
    cut: Cut | None = None
    rebuilt: list[str] = field(default_factory=list)
    """Segments whose side files were made again."""
    removed: list[str] = field(default_factory=list)
    """Leftovers of work that a crash interrupted."""
    taken_back: list[str] = field(default_factory=list)
    """Consumers that were ahead of the log."""

    @property
    def is_clean(self) -> bool:
        found = (self.previous_writer, self.cut, self.rebuilt, self.removed, self.taken_back)
        return not any(found)


@dataclass(slots=True)
class Tail:
    """The active segment up to its last complete group."""

    base: Offset
    size: int
    next_offset: Offset
    index: Index
    contents: Contents
    problem: TailraceError | None = None
    """Why the walk ended before the file did."""
    is_misplaced: bool = False
    """The frame at which it ended is whole, but does not follow the one before it."""


def remove_drafts(disk: Disk, directory: str, report: Report) -> None:
    """A draft was never put in its place, so what it would have replaced is whole (I6). The side files of a segment
    that was removed are of no use.

    While somebody else maintains the log, its drafts are not leftovers.
    """
    lock = Lock(os.path.join(directory, MAINTENANCE_LOCK_NAME))
    try:
        lock.acquire()
    except LockHeld:
        return
    try:
        segments = {os.path.splitext(segment_name(base))[0] for base in list_segments(directory)}
        for name in sorted(os.listdir(directory)):
            stem, suffix = os.path.splitext(name)
            is_orphan = suffix in (contents.SUFFIX, index.SUFFIX) and stem not in segments
            if (is_draft(name) or is_orphan) and os.path.isfile(os.path.join(directory, name)):
                disk.remove(os.path.join(directory, name))
                report.removed.append(name)
    finally:
        lock.release()


def check_last(directory: str, bases: list[Offset], head: LogHead | None) -> None:
    """The head file names a segment only once that is durable: one that is not there was lost, with all in it (I5)."""
    if head is None or (bases and head.base <= bases[-1]):
        return
    raise TailraceError(
        "log.corrupt",
        f"segment {segment_name(head.base)} is missing; the log reached up to offset {head.next_offset - 1}",
        place=Place(os.path.join(directory, segment_name(head.base)), offset=head.base),
        hint="restore it from a replica or a backup; to go on without it: tailrace log repair",
    )


def check_sealed(disk: Disk, directory: str, bases: list[Offset], report: Report) -> None:
    """Every sealed segment ends where the next one begins, and has its side files."""
    for base, following in pairwise(bases):
        with Segment(directory, base) as segment:
            extent = sealed_extent(disk, segment, report)
            check_joint(segment, extent, following)


def sealed_extent(disk: Disk, segment: Segment, report: Report) -> Extent:
    """How far a sealed segment reaches; missing or wrong side files are made again."""
    extent = contents.load_extent(segment.path, segment.size())
    if extent is not None and _index_crc(segment.path) == extent.index_crc:
        return extent
    tail = scan(segment, None)
    if tail.problem is not None:
        raise tail.problem
    contents.store(disk, segment.path, tail.contents, tail.index)
    report.rebuilt.append(segment.name)
    return tail.contents.extent


def check_joint(segment: Segment, extent: Extent, following: Offset) -> None:
    """Frames tile the offsets across segments too. Transporter's compaction leaves gaps between its plain frames."""
    if extent.end == following or (extent.ends_plain and extent.end < following):
        return
    what = "is missing" if extent.end < following else "overlaps"
    raise TailraceError(
        "log.corrupt",
        f"{segment.name} ends at offset {extent.end} but the next segment is {segment_name(following)}:"
        f" what should be between them {what}",
        place=segment.place(extent.segment_bytes, extent.end),
        hint="restore the missing segment from a replica or a backup, then: tailrace log verify",
    )


def check_follows(segment: Segment, located: Located, reached: Extent) -> None:
    """Frames tile the offsets; only beside one of Transporter's frames may some be missing."""
    head = located.head
    if head.offset == reached.end or (head.offset > reached.end and (reached.ends_plain or not head.is_batch)):
        return
    raise TailraceError(
        "log.corrupt",
        f"a frame has offset {head.offset} where {reached.end} should follow",
        place=segment.place(located.position, reached.end),
        hint="tailrace log verify",
    )


def scan(segment: Segment, head: LogHead | None) -> Tail:
    """Walk a segment to its last complete group.

    Bodies are checked from the byte on that the head file does not vouch for; before it they were synced.
    """
    durable = head.durable if head is not None and head.base == segment.base else 0
    size = segment.size()
    tail = Tail(segment.base, 0, segment.base, Index(), Contents(end=segment.base))
    group: list[Located] = []
    reached = Extent(0, segment.base, ends_plain=True)
    try:
        for zone in (segment.heads(0, min(durable, size)), segment.frames(min(durable, size), size)):
            for located in zone:
                tail.is_misplaced = True
                check_follows(segment, located, reached)
                tail.is_misplaced = False
                reached = Extent(located.end, located.head.end, not located.head.is_batch)
                group.append(Located(located.position, located.head))
                if located.head.closes_group:
                    _take_up(tail, group)
                    group.clear()
    except TailraceError as problem:
        problem.place = segment.place(reached.segment_bytes, reached.end)  # a broken head may lie about its own offset
        tail.problem = problem
    if tail.problem is None and group:
        tail.problem = TailraceError(
            "log.corrupt",
            "the file ends in the middle of a commit group",
            place=segment.place(group[0].position, group[0].head.offset),
            hint="tailrace log verify",
        )
    if tail.size < durable and tail.problem is None:
        tail.problem = TailraceError(
            "log.corrupt",
            f"the segment ends at byte {size} but {durable} bytes of it were acknowledged",
            place=segment.place(size, reached.end),
            hint="tailrace log verify",
        )
    return tail


def recover_active(disk: Disk, directory: str, base: Offset, head: LogHead | None, report: Report) -> Tail:
    """Bring the active segment to its last complete group, durably.

    1. Walk it. 2. Refuse damage (I5). 3. Write the tail that nobody vouches for once more, so that a page the kernel
    gave up writing is dirty again, cut what is torn, and sync (I1, I7), even when there is nothing to cut: the last
    writer may have died between cutting and syncing. 4. Make the sparse index agree.
    """
    with Segment(directory, base) as segment:
        vouched = head if head is not None and head.base == base else None
        tail = scan(segment, vouched)
        durable = vouched.durable if vouched else 0
        if tail.problem is not None:
            if not can_cut(segment, tail, vouched):
                raise tail.problem
            report.cut = Cut(segment.name, tail.size, segment.size() - tail.size, tail.next_offset, tail.problem.what)
        _settle(disk, segment, min(durable, tail.size), tail.size)
        stored = index.load(segment.path, base)
        if stored is None or stored.encode() != tail.index.encode():
            if tail.index.positions:
                report.rebuilt.append(segment.name)
            index.store(disk, segment.path, tail.index)
    return tail


def _take_up(tail: Tail, group: list[Located]) -> None:
    for located in group:
        tail.index.note(located)
        tail.contents.note(located)
    tail.size = group[-1].end
    tail.next_offset = group[-1].head.end


def _settle(disk: Disk, segment: Segment, start: int, end: int) -> None:
    fd = disk.open(segment.path)
    try:
        disk.truncate(fd, end)
        for at in range(start, end, _REWRITE_BYTES):
            disk.write(fd, [segment.bytes_at(at, min(_REWRITE_BYTES, end - at))], at)
        disk.sync(fd)
    finally:
        disk.close(fd)


def can_cut(segment: Segment, tail: Tail, head: LogHead | None) -> bool:
    """Whether what follows the last complete group was never acknowledged: neither the head file vouches for it nor
    any frame behind it."""
    is_vouched = head is not None and head.base == segment.base
    if head is not None and is_vouched and tail.size < head.durable:
        return False
    if is_vouched and tail.problem is not None and tail.problem.code == "log.frame_too_long":
        return True
    return is_torn(segment, tail)


def is_torn(segment: Segment, tail: Tail) -> bool:
    """Whether nothing behind the broken place says that it was acknowledged.

    Every batch frame says how far the log was durable when it was written: one that was written after the broken place
    was durable proves damage. Plain frames have no such word; a whole one behind the broken place is proof enough.
    """
    if tail.is_misplaced or _is_unknown(segment, tail.problem):
        return False
    rest = segment.bytes_at(tail.size, segment.size() - tail.size)
    at = find_batch_frame(rest, 0)
    while at is not None:
        head = parse_head(memoryview(rest), at, file=segment.name, position=tail.size + at)
        if head.durable > tail.next_offset:
            return False
        at = find_batch_frame(rest, at + head.head_bytes)
    return not _has_plain_frame(rest, tail.next_offset)


def _is_unknown(segment: Segment, problem: TailraceError | None) -> bool:
    """Whether the walk ended at something that is not broken but beyond us: that is refused, never cut (I10)."""
    if problem is None or problem.code == "log.corrupt":
        return False
    if problem.code != "log.frame_too_long":
        return True
    place = problem.place  # a length gone mad is garbage, unless it is the frame that should come next
    return place is not None and segment.bytes_at(place.byte or 0, _OFFSET.size) == _OFFSET.pack(place.offset or 0)


def _has_plain_frame(rest: bytes, expected: int) -> bool:
    """Whether a plain frame follows the one at `expected`. Plain frames have no mark; their offsets give them away."""
    at = rest.find(_OFFSET.pack(expected + 1), 1)
    while at >= 0:
        try:
            if not parse_head(memoryview(rest), at, file="", position=at).is_batch:
                return True
        except (TailraceError, ShortFrame):
            pass
        at = rest.find(_OFFSET.pack(expected + 1), at + 1)
    return False


def _index_crc(segment_path: str) -> int | None:
    try:
        with open(index.index_path(segment_path), "rb") as file:
            return crc32(file.read())
    except FileNotFoundError:
        return None
