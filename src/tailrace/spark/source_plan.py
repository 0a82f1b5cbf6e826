"""Which part of the log a read covers, and how tasks share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log import removed
from tailrace.log.reader import LogReader
from tailrace.log.segment import Located, Segment
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.spark.source_options import Bound, Edge, ReadOptions
from tailrace.spark.source_wanted import OneOf, Wanted, Within

PART_BYTES: Final = 64 * MIB
"""What one task reads, about."""


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one task: wanted frames with offsets from `start` up to, not including, `end`."""

    start: Offset
    end: Offset
    frames: int
    bytes: int

    def with_next(self, later: Part) -> Part:
        """Both in one."""
        return Part(self.start, later.end, self.frames + later.frames, self.bytes + later.bytes)


def wanted_by(options: ReadOptions) -> Wanted:
    """Which messages the options ask for."""
    hidden = () if options.include_noop else (OneOf("op", frozenset(("noop",)), is_excluded=True),)
    return Wanted(
        namespace=options.namespaces,
        name=options.namespace,
        hides_internal=not options.include_internal,
        conditions=hidden,
    )


def range_of(reader: LogReader, options: ReadOptions, wanted: Wanted) -> tuple[Offset, Offset]:
    """The range of a batch read, as the log is now."""
    end = (options.end or Bound(Edge.LATEST)).offset_in(reader)
    start = options.start.offset_in(reader)
    reader.check_range(max(start, reader.oldest), max(end, reader.oldest))
    start = start_after_loss(reader, start, wanted, fails=options.fail_on_data_loss)
    return start, max(start, end)


def start_after_loss(reader: LogReader, start: Offset, wanted: Wanted, *, fails: bool) -> Offset:
    """Where to begin when retention may have removed what was to come; raises when it has and that is an error."""
    oldest, next_offset = reader.oldest, reader.next_offset
    if start > next_offset:
        what = f"offset {start} is past the end of the log, which is {next_offset}: this is another log"
        hint = "name the log that the checkpoint is of, or begin with another checkpoint"
        raise TailraceError("log.past_end", what, place=Place(reader.directory), hint=hint)
    if start < oldest and fails and _has_lost(reader, start, oldest, wanted):
        raise TailraceError(
            "log.below_oldest",
            f"messages from offset {start} on were to come, but the oldest in the log is {oldest}: they were removed",
            place=Place(reader.directory),
            hint="set the option failOnDataLoss to false to go on without them",
        )
    return max(start, oldest)


def end_of_batch(view: LogView, start: Offset, limit: Offset, wanted: Wanted, bytes_max: int) -> Offset:
    """Where a micro-batch ends: whole commit groups, as many as fit `bytes_max`, one at least, and none from `limit`
    on, which is the end of a group itself."""
    end = start
    held = group = 0
    for _, located in _walk(view, start, limit):
        head = located.head
        group += head.frame_bytes if wanted.wants(head) else 0
        if head.closes_group:
            if held and group and held + group > bytes_max:
                return end
            held, group, end = held + group, 0, head.end
    return limit


def divide(view: LogView, start: Offset, end: Offset, wanted: Wanted, part_bytes: int = PART_BYTES) -> list[Part]:
    """The wanted frames of a range in parts of about `part_bytes`."""
    parts: list[Part] = []
    is_open = False
    for first, last in _stretches(view, *_narrowed(start, end, wanted), wanted):
        for _, located in _walk(view, first, last):
            head = located.head
            if not wanted.wants(head):
                continue
            frame = Part(max(first, head.offset), min(last, head.end), 1, head.frame_bytes)
            if is_open:
                parts[-1] = parts[-1].with_next(frame)
            else:
                parts.append(frame)
            is_open = parts[-1].bytes < part_bytes
        is_open = False
    return parts


def wanted_frames(view: LogView, start: Offset, end: Offset, wanted: Wanted) -> Iterator[tuple[Segment, Located]]:
    """Where the wanted frames of a range are."""
    for first, last in _stretches(view, start, end, wanted):
        for segment, located in _walk(view, first, last):
            if wanted.wants(located.head):
                yield segment, located


def _walk(view: LogView, start: Offset, end: Offset) -> Iterator[tuple[Segment, Located]]:
    """The frames of a range. The one behind it is not looked at: it may be in a file that is none of ours."""
    for segment, located in view.walk(start):
        if located.head.offset >= end:
            return
        yield segment, located
        if located.head.end >= end:
            return


def _stretches(view: LogView, start: Offset, end: Offset, wanted: Wanted) -> Iterator[tuple[Offset, Offset]]:
    """The range without the sealed segments that hold nothing of what is wanted, by their tables of contents."""
    active = view.head().base
    begin: Offset | None = None
    for base, following in pairwise([*view.bases(), end]):
        if base >= end:
            break
        if base < active and following <= start:
            continue
        if base < active and not _may_hold(view, base, wanted):
            if begin is not None:
                yield begin, base
            begin = None
        elif begin is None:
            begin = max(start, base)
    if begin is not None and begin < end:
        yield begin, end


def _may_hold(view: LogView, base: Offset, wanted: Wanted) -> bool:
    try:
        with Segment(view.directory, base) as segment:
            return wanted.wants_of(view.contents(segment))
    except FileNotFoundError:
        return True  # removed just now: whoever reads it will be told


def _narrowed(start: Offset, end: Offset, wanted: Wanted) -> tuple[Offset, Offset]:
    """The range after the conditions on offsets."""
    for condition in wanted.conditions:
        if condition.column != "offset":
            continue
        if isinstance(condition, Within):
            low, high = condition.low, condition.high
        elif condition.is_excluded or not condition.values:
            continue
        else:
            low, high = min(condition.values), max(condition.values)
        start, end = Offset(max(start, low)), Offset(min(end, high + 1))
    return start, end


def _has_lost(reader: LogReader, start: Offset, oldest: Offset, wanted: Wanted) -> bool:
    """Whether a wanted message was removed; a namespace that went quiet before `start` is no loss."""
    gone = removed.read(reader.directory)
    if gone.end < oldest:
        return True
    return any(start <= last < oldest for name, last in gone.last_offsets.items() if wanted.wants_namespace(name))
