"""Repair: the way out when a log is damaged and there is no copy to restore. It loses data, so it says exactly what.

Everything from the damage on is moved aside, never deleted; the log then ends at the last complete group before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log import audit, contents, index, recovery
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.head import LogHead, head_path, read_head
from tailrace.log.lock import WRITER_LOCK_NAME, Lock, LockHeld
from tailrace.log.maintenance import maintaining
from tailrace.log.segment import Segment, segment_name
from tailrace.log.view import LogView
from tailrace.message import Offset

_COPY_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class Damage:
    """The first damaged place of a log, and what would be lost by cutting there."""

    base: Offset
    position: int
    next_offset: Offset
    """The log would go on here."""
    lost_bytes: int
    problem: TailraceError


def find_damage(directory: str | os.PathLike[str]) -> Damage | None:
    """The first place at which the log cannot be read; None when it is sound. Changes nothing."""
    path = os.path.abspath(directory)
    bases, head = LogView(path).bases(), read_head(path)
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else None
        with Segment(path, base) as segment:
            tail = recovery.scan(segment, None)
            problem = _problem(segment, tail, following, bases, head)
            if problem is not None:
                later = sum(_size(path, other) for other in bases[at + 1 :])
                return Damage(base, tail.size, tail.next_offset, segment.size() - tail.size + later, problem)
    return None


def _problem(
    segment: Segment, tail: recovery.Tail, following: Offset | None, bases: list[Offset], head: LogHead | None
) -> TailraceError | None:
    if tail.problem is None and following is None:
        tail = recovery.scan(segment, head)
    if tail.problem is not None:
        is_tail = following is None and recovery.can_cut(segment, tail, head)
        return None if is_tail else tail.problem
    try:
        if following is not None:
            recovery.check_joint(segment, tail.contents.extent, following)
        else:
            recovery.check_last(os.path.dirname(segment.path), bases, head)
    except TailraceError as problem:
        return problem
    return None


def cut(directory: str | os.PathLike[str], damage: Damage, *, reason: str, disk: Disk | None = None) -> str:
    """Move everything from the damage on into a directory beside the segments, and return its path.

    1. Copy the damaged rest. 2. Move later segments. 3. Cut the damaged one. A crash in between leaves a log that is
    still damaged, and repair can be run again.
    """
    disk = disk or Disk()
    path = os.path.abspath(directory)
    aside = os.path.join(path, f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    writer = Lock(os.path.join(path, WRITER_LOCK_NAME))
    try:
        writer.acquire()
    except LockHeld as held:
        raise TailraceError(
            "log.locked", f"the log is being written by {held}", hint="stop that writer first"
        ) from None
    try:
        with maintaining(path), disk_errors("mending the log", path):
            disk.make_directory(aside)
            with Segment(path, damage.base) as segment:
                _copy(
                    disk, segment, damage.position, os.path.join(aside, f"{segment.name}.from-byte-{damage.position}")
                )
                for base in LogView(path).bases():
                    if base > damage.base:
                        disk.rename(os.path.join(path, segment_name(base)), os.path.join(aside, segment_name(base)))
                disk.sync_directory(aside)
                fd = disk.open(segment.path)
                try:
                    disk.truncate(fd, damage.position)
                    disk.sync(fd)
                finally:
                    disk.close(fd)
                stale = (contents.contents_path(segment.path), index.index_path(segment.path), head_path(path))
            for file in stale:
                if os.path.lexists(file):
                    disk.remove(file)
            disk.sync_directory(path)
            audit.record(
                disk, path, "repair", "", offset=damage.next_offset, lost_bytes=damage.lost_bytes, reason=reason
            )
    finally:
        writer.release()
    return aside


def _copy(disk: Disk, segment: Segment, start: int, path: str) -> None:
    fd = disk.create(path)
    try:
        for at in range(start, segment.size(), _COPY_BYTES):
            disk.write(fd, [segment.bytes_at(at, _COPY_BYTES)], at - start)
        disk.sync(fd)
    finally:
        disk.close(fd)


def _size(directory: str, base: Offset) -> int:
    with Segment(directory, base) as segment:
        return segment.size()
