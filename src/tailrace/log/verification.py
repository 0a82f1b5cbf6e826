"""Verification: read everything and name the damage in every segment, not only the first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tailrace.errors import TailraceError
from tailrace.log import contents, index, recovery
from tailrace.log.consumers import Consumers
from tailrace.log.head import read_head
from tailrace.log.segment import Segment
from tailrace.log.selection import SelectedFrame
from tailrace.log.view import LogView
from tailrace.message import Offset

Progress = Callable[[int, int], None]
"""Told how many bytes of how many have been read."""


@dataclass(slots=True)
class Verification:
    """What was read and what is wrong."""

    segments: int = 0
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    problems: list[TailraceError] = field(default_factory=list)
    """Damage: the log does not give back what was put in."""
    remarks: list[str] = field(default_factory=list)
    """What mends itself: a torn tail, a side file to be made again."""


def verify(directory: str | os.PathLike[str], progress: Progress | None = None) -> Verification:
    """Check every head, body, message, side file and offset log. Changes nothing and needs no lock."""
    view = LogView(os.path.abspath(directory))
    result = Verification()
    head = read_head(view.directory)  # before the segments: what a writer begins meanwhile is none of ours
    bases = view.bases()
    total = sum(_size(view.directory, base) for base in bases)
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else None
        with suppress(FileNotFoundError), Segment(view.directory, base) as segment:  # retention may have removed it
            _verify_segment(segment, following, view, result)
        if progress is not None:
            progress(result.bytes, total)
    result.problems.extend(_problems_of(lambda: recovery.check_last(view.directory, bases, head)))
    consumers = Consumers(view.directory)
    for name in consumers.names():
        result.problems.extend(_problems_of(partial(_verify_consumer, consumers, name, result)))
    return result


def _verify_consumer(consumers: Consumers, name: str, result: Verification) -> None:
    positions = consumers.get(name).positions
    if positions.furthest >= consumers.view.head().next_offset:
        result.remarks.append(f"consumer {name} is ahead of the log, at {positions.furthest}; the next writer mends it")


def _verify_segment(segment: Segment, following: Offset | None, view: LogView, result: Verification) -> None:
    result.segments += 1
    result.bytes += segment.size()
    head = read_head(view.directory) if following is None else None
    limit = head.published if head is not None and head.base == segment.base else segment.size()
    tail = recovery.scan(segment, head)
    if tail.problem is not None:
        if following is None and recovery.can_cut(segment, tail, head):
            result.remarks.append(f"{segment.name} has a torn tail at byte {tail.size}; the next writer will cut it")
        else:
            result.problems.append(tail.problem)
    result.problems.extend(_problems_of(lambda: _read_messages(segment, min(limit, tail.size), result)))
    if following is not None and tail.problem is None:
        result.problems.extend(_problems_of(lambda: recovery.check_joint(segment, tail.contents.extent, following)))
        _verify_side_files(segment, tail, result)


def _read_messages(segment: Segment, limit: int, result: Verification) -> None:
    for located in segment.frames(0, limit):
        head = located.head
        result.frames += 1
        result.messages += head.messages
        if not head.is_hole:
            place = segment.place(located.position, head.offset)
            frame = SelectedFrame(head, located.body, place, head.offset, head.end)
            if head.is_batch:
                frame.rows()
            else:
                frame.plain_data()  # a document is whole even when its values do not fit into columns


def _verify_side_files(segment: Segment, tail: recovery.Tail, result: Verification) -> None:
    stored_index = index.load(segment.path, segment.base)
    if stored_index is None or stored_index.encode() != tail.index.encode():
        result.remarks.append(f"the sparse index of {segment.name} is missing or wrong; the next writer makes it again")
    if contents.load(segment.path, segment.size()) != tail.contents:
        result.remarks.append(f"the contents of {segment.name} are missing or wrong; the next writer makes them again")


def _problems_of(check: Callable[[], object]) -> Iterator[TailraceError]:
    try:
        check()
    except TailraceError as problem:
        yield problem


def _size(directory: str, base: Offset) -> int:
    with suppress(FileNotFoundError), Segment(directory, base) as segment:
        return segment.size()
    return 0
