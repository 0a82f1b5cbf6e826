"""The batch ids of all groups in a log: what was appended under one of them is not appended again."""

from __future__ import annotations

from tailrace.log import contents, recovery
from tailrace.log.active import ActiveSegment
from tailrace.log.group import OffsetRange
from tailrace.log.segment import Segment, list_segments
from tailrace.message import Offset


class Published:
    """Batch ids with the offsets of their groups, read from the segments when somebody asks for the first time."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._known: dict[str, OffsetRange] | None = None

    def ranges(self, active: ActiveSegment) -> dict[str, OffsetRange]:
        """All of them, those of the segment that grows included."""
        if self._known is None:
            known: dict[str, OffsetRange] = {}
            for base in list_segments(self._directory)[:-1]:
                with Segment(self._directory, base) as segment:
                    found = contents.load(segment.path, segment.size())
                    known.update(_ranges(found.batches if found else recovery.scan(segment, None).contents.batches))
            known.update(_ranges(active.contents.batches))
            self._known = known
        return self._known

    def add(self, batch_id: str, offsets: OffsetRange) -> None:
        """A group was written."""
        if self._known is not None:
            self._known[batch_id] = offsets


def _ranges(batches: dict[str, tuple[int, int]]) -> dict[str, OffsetRange]:
    return {batch_id: OffsetRange(Offset(first), Offset(end)) for batch_id, (first, end) in batches.items()}
