"""Compaction: sealed segments are written anew without the messages that no consumer needs any more.

By namespace the last message of every namespace stays, by key the last message of every primary key. What is removed
leaves a hole frame, so that frames go on tiling the offsets.
I6: nothing is removed that a holding consumer needs, and a segment is the old one or the new one at any moment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.log import contents, index, recovery
from tailrace.log.consumers import Consumer, Consumers
from tailrace.log.contents import Extent
from tailrace.log.disk import Disk, disk_errors, draft_path
from tailrace.log.maintenance import maintaining
from tailrace.log.rewriting import SegmentDraft
from tailrace.log.segment import Located, Segment
from tailrace.log.selection import whole_frame
from tailrace.log.survivors import LastOfKey, LastOfNamespace, Survivors
from tailrace.log.view import LogView
from tailrace.message import Offset

Progress = Callable[[int, int], None]
"""Told how many bytes of how many have been looked at."""


class By(StrEnum):
    """Of what the last message stays."""

    NAMESPACE = "namespace"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """What compaction did to one segment."""

    base: Offset
    bytes_before: int
    bytes_after: int
    messages_before: int
    messages_after: int


@dataclass(slots=True)
class Compaction:
    """What compaction did to a log."""

    segments: list[CompactedSegment] = field(default_factory=list)
    """Those that became shorter."""
    looked_at: int = 0
    has_consumers: bool = False
    held_by: list[str] = field(default_factory=list)
    """Consumers without whom more could have been removed."""


class Limits:
    """Up to which offset messages of each namespace may be removed: every holding consumer has had them."""

    def __init__(self, consumers: list[Consumer], upto: int | None) -> None:
        self._holding = [consumer for consumer in consumers if consumer.holds]
        self._upto = upto
        self._nobody_asked = not consumers and upto is None

    def of(self, namespace: str) -> int:
        if self._nobody_asked:
            return -1
        positions = [consumer.positions.of(namespace) for consumer in self._holding]
        if self._upto is not None:
            positions.append(self._upto)
        return min(positions, default=sys.maxsize)

    def allow(self, used: Limits, namespaces: list[str]) -> bool:
        """Whether what was removed under `used` may still be removed."""
        return all(used.of(namespace) <= self.of(namespace) for namespace in namespaces)

    def holders(self, namespaces: dict[str, int]) -> list[str]:
        return [
            consumer.name
            for consumer in self._holding
            if any(consumer.positions.of(namespace) < last for namespace, last in namespaces.items())
        ]


def compact(
    directory: str | os.PathLike[str],
    *,
    by: By = By.NAMESPACE,
    upto: int | None = None,
    disk: Disk | None = None,
    progress: Progress | None = None,
) -> Compaction:
    """Compact all sealed segments of a log, beside its writer and readers, and the offset logs that are not in use.

    Only messages that every holding consumer has acknowledged are removed, and none above `upto`. A log that never had
    a consumer is compacted only when `upto` is given, for nobody can have had its messages.
    """
    consumers = Consumers(directory, disk=disk)
    view = LogView(consumers.directory)
    view.bases()
    result = Compaction()
    with maintaining(consumers.directory), disk_errors("compacting", consumers.directory):
        active = view.head().base
        sealed = [base for base in view.bases() if base < active]
        registered = consumers.all()
        result.has_consumers = bool(registered)
        limits = Limits(registered, upto)
        survivors, namespaces = _survivors(view, sealed, by)
        result.held_by = limits.holders(namespaces)
        total = sum(_size(view, base) for base in sealed)
        done = 0
        for base in sealed:
            with Segment(view.directory, base) as segment:
                before = segment.size()
                compacted = _compact_segment(segment, view, consumers, limits, upto, survivors, disk or Disk())
            result.looked_at += 1
            if compacted is not None:
                result.segments.append(compacted)
            done += before
            if progress is not None:
                progress(done, total)
        consumers.compact_offsets()
    return result


def _survivors(view: LogView, sealed: list[Offset], by: By) -> tuple[Survivors, dict[str, int]]:
    """Who stays, judged over all sealed segments together."""
    by_key = LastOfKey()
    last_offsets: dict[str, int] = {}
    for base in sealed:
        with Segment(view.directory, base) as segment:
            for namespace, presence in view.contents(segment).namespaces.items():
                last_offsets[namespace] = presence.last
            if by is By.KEY:
                for located in segment.frames():
                    if not located.head.is_hole:
                        by_key.learn(whole_frame(segment, located))
    return (by_key if by is By.KEY else LastOfNamespace(last_offsets)), last_offsets


def _compact_segment(
    segment: Segment,
    view: LogView,
    consumers: Consumers,
    limits: Limits,
    upto: int | None,
    survivors: Survivors,
    disk: Disk,
) -> CompactedSegment | None:
    """1. Write and sync the draft. 2. Ask again whether all consumers agree. 3. Swap. 4. Make the side files anew."""
    found = view.contents(segment)
    if all(presence.first > limits.of(namespace) for namespace, presence in found.namespaces.items()):
        return None
    path = segment.path
    draft = SegmentDraft(disk, draft_path(path), segment.base)
    try:
        reached = Extent(0, segment.base, ends_plain=True)
        for located in segment.heads():
            recovery.check_follows(segment, located, reached)
            reached = Extent(located.end, located.head.end, not located.head.is_batch)
            _rewrite_frame(draft, segment, located, limits, survivors)
        following = view.base_after(segment.base)
        draft.finish(following if following is not None and reached.ends_plain else reached.end)
        if draft.size >= segment.size():
            return None
        with consumers.changing():
            now = Limits(consumers.all(), upto)
            if not now.allow(limits, list(found.namespaces)):
                return None
            consumers.sync_offsets()
            for side_file in (contents.contents_path(path), index.index_path(path)):
                if os.path.lexists(side_file):
                    disk.remove(side_file)
            disk.rename(draft.path, path)
            disk.sync_directory(view.directory)
    finally:
        draft.discard()
    contents.store(disk, path, draft.contents, draft.index)
    return CompactedSegment(segment.base, segment.size(), draft.size, found.messages, draft.contents.messages)


def _rewrite_frame(
    draft: SegmentDraft, segment: Segment, located: Located, limits: Limits, survivors: Survivors
) -> None:
    head = located.head
    if head.is_hole:
        draft.leave_out(head, head.end)
        return
    limit = limits.of(head.namespace)
    staying = None if head.offset > limit else survivors.of(head, lambda: whole_frame(segment, located))
    if staying is None:
        draft.keep(located, segment.bytes_at(located.position, head.head_bytes), segment.body_of(located))
    elif not staying and head.end - 1 <= limit:
        draft.leave_out(head, head.end)
    else:
        frame = whole_frame(segment, located)
        offsets = [offset for offset in frame.offsets().to_pylist() if offset is not None]
        kept = [offset > limit or offset in staying for offset in offsets]
        if all(kept):
            draft.keep(located, segment.bytes_at(located.position, head.head_bytes), segment.body_of(located))
        else:
            mask = pa.array(kept, pa.bool_())
            draft.keep_rows(head, frame.rows().filter(mask), frame.offsets().filter(mask))


def _size(view: LogView, base: Offset) -> int:
    try:
        with Segment(view.directory, base) as segment:
            return segment.size()
    except FileNotFoundError as error:
        raise TailraceError("log.busy", "segments changed while they were compacted", hint="try again") from error
