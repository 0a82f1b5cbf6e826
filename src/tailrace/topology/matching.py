"""Matching: up to where a copy has the same bytes as a source. Logs that have the same beginning differ from one place
on, so the last frame that is equal tells; it is looked for from the end of the copy backwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.log.segment import Located, Segment, list_segments
from tailrace.message import Offset
from tailrace.topology.copied import CopiedLog, Spot
from tailrace.topology.request import MATCHES_MAX, Extent, Match, Matched, Place

_FIRST_LOOK: Final = 1
_GROWTH: Final = 10


class Meeting(NamedTuple):
    """Where a copy goes on."""

    spot: Spot
    next_offset: Offset
    rollback_bytes: int
    """So much of the copy is not the source's."""


class Rollback(NamedTuple):
    """How much of a copy may be thrown away because a source has others; 0 is no limit."""

    bytes_max: int = 0
    segments_max: int = 0
    """So many segments it may go back."""

    def check(self, lost_bytes: int, segments: int) -> None:
        """Raise when it is too much."""
        if self.bytes_max and lost_bytes > self.bytes_max:
            much = f"{self.bytes_max} bytes"
        elif self.segments_max and segments > self.segments_max:
            much = f"{self.segments_max} segments"
        else:
            return
        what = f"more than {much} of this copy are not what the source has there"
        hint = "follow another source, raise physrep_max_rollback, or copy everything anew"
        raise TailraceError("topology.rollback", what, hint=hint)


ANY: Final = Rollback()


def meet(log: CopiedLog, source: Extent, ask: Callable[[Match], Matched], allowed: Rollback) -> Meeting | None:
    """Where the copy and the source are the same for the last time; None when the source does not have that any more.
    Raises when more of the copy would be lost than is allowed."""
    lost = 0
    bases = list_segments(log.directory)
    look = _FIRST_LOOK
    frames = _group_ends(log)
    while some := list(islice(frames, look)):
        digests = ask(Match(places=[_place(base, frame) for base, frame, _ in some])).digests
        for (base, frame, digest), theirs in zip(some, digests, strict=False):
            allowed.check(lost, segments=len(bases) - 1 - bases.index(base))
            if digest == theirs:
                return Meeting(Spot(base, frame.end), frame.head.end, lost)
            lost = _bytes_behind(log, Spot(base, frame.position))
            if base < source.first:
                return None
        look = min(look * _GROWTH, MATCHES_MAX)
    first = bases[0]
    allowed.check(lost, segments=len(bases) - 1)
    return Meeting(Spot(first, 0), first, lost) if first == source.first else None


def _group_ends(log: CopiedLog) -> Iterator[tuple[Offset, Located, str]]:
    """The last frames of the copy's groups, from its end backwards, with the segments they are in and digests."""
    spot = log.spot
    for base in reversed(list_segments(log.directory)):
        with Segment(log.directory, base) as segment:
            end = spot.position if base == spot.base else segment.size()
            found = [located for located in segment.heads(0, end) if located.head.closes_group]
            for located in reversed(found):
                raw = segment.bytes_at(located.position, located.head.frame_bytes)
                yield base, located, hashlib.sha256(raw).hexdigest()


def _place(base: Offset, frame: Located) -> Place:
    return Place(base=base, position=frame.position, size=frame.head.frame_bytes)


def _bytes_behind(log: CopiedLog, spot: Spot) -> int:
    """How much of the copy is behind a place."""
    total = -spot.position
    for base in list_segments(log.directory):
        if base >= spot.base:
            with Segment(log.directory, base) as segment:
                total += log.spot.position if base == log.spot.base else segment.size()
    return total
