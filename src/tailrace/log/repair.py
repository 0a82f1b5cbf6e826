"""Repair: the way out when a log is damaged and there is no copy to restore. It loses data, so it says exactly what.

Everything from the damage on is moved aside, never deleted; the log then ends at the last complete group before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tailrace.errors import TailraceError
from tailrace.log import audit, recovery
from tailrace.log.cutting import set_aside
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.head import LogHead, read_head
from tailrace.log.lock import WRITER_LOCK_NAME, Lock, LockHeld
from tailrace.log.maintenance import maintaining
from tailrace.log.segment import Segment
from tailrace.log.view import LogView
from tailrace.message import Offset


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
    """Move everything from the damage on into a directory beside the segments, and return its path. A crash in between
    leaves a log that is still damaged, and repair can be run again."""
    disk = disk or Disk()
    path = os.path.abspath(directory)
    writer = Lock(os.path.join(path, WRITER_LOCK_NAME))
    try:
        writer.acquire()
    except LockHeld as held:
        raise TailraceError(
            "log.locked", f"the log is being written by {held}", hint="stop that writer first"
        ) from None
    try:
        with maintaining(path), disk_errors("mending the log", path):
            aside = set_aside(disk, path, damage.base, damage.position, "damaged")
            audit.record(
                disk, path, "repair", "", offset=damage.next_offset, lost_bytes=damage.lost_bytes, reason=reason
            )
    finally:
        writer.release()
    return aside


def _size(directory: str, base: Offset) -> int:
    with Segment(directory, base) as segment:
        return segment.size()
