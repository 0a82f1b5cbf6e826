"""Retention: whole sealed segments are removed from the log's beginning once nobody who holds the log needs them.

I6: nothing is removed that a holding consumer needs. A consumer that goes past its cap is invalidated, loudly, so that
a dead one can never fill the disk in silence.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from tailrace.log import contents, index, removed
from tailrace.log.agreement import Policy
from tailrace.log.consumers import Clock, Consumer, Consumers
from tailrace.log.contents import Contents
from tailrace.log.disk import Disk, disk_errors, is_full
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.maintenance import maintaining
from tailrace.log.segment import Segment, segment_name
from tailrace.log.view import LogView
from tailrace.message import Offset

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of the log stays even when nobody holds it."""

    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SegmentFate:
    """Whether a segment can go, and why not."""

    base: Offset
    end: Offset
    bytes: int
    held_by: tuple[str, ...]
    """The consumers that hold it."""
    reason: str
    """Why it stays, empty when it can go."""

    @property
    def is_removable(self) -> bool:
        return not self.reason


@dataclass(slots=True)
class Retention:
    """What retention did."""

    removed: list[SegmentFate] = field(default_factory=list)
    kept: list[SegmentFate] = field(default_factory=list)
    invalidated: dict[str, str] = field(default_factory=dict)
    """The consumers that went past their cap, and how."""

    @property
    def freed_bytes(self) -> int:
        return sum(fate.bytes for fate in self.removed)


def plan(
    consumers: Consumers,
    keep: Keep | None = None,
    *,
    segments: list[tuple[Offset, Contents]] | None = None,
    registered: list[Consumer] | None = None,
    released: Collection[str] = (),
) -> list[SegmentFate]:
    """What would happen to each segment, the oldest first, if the released consumers held nothing. Changes nothing.
    Who knows what there is, and who, says so."""
    keep = keep or Keep()
    registered = consumers.all() if registered is None else registered
    segments = list(consumers.view.all_contents()) if segments is None else segments
    total_bytes = sum(found.segment_bytes for _, found in segments)
    fates: list[SegmentFate] = []
    is_prefix = True
    for at, (base, found) in enumerate(segments):
        holding = (consumer for consumer in registered if consumer.name not in released)
        holders = tuple(consumer.name for consumer in holding if _holds(consumer, found))
        reason = _reason(found, holders, bool(registered), at == len(segments) - 1)
        if not reason and total_bytes - found.segment_bytes < keep.bytes:
            reason = f"the last {keep.bytes} bytes are kept"
        if not reason and keep.seconds > 0 and _age_s(consumers, base, found) < keep.seconds:
            reason = f"the last {keep.seconds:g} seconds are kept"
        if not reason and not is_prefix:
            reason = "an older segment stays"
        is_prefix = is_prefix and not reason
        total_bytes -= found.segment_bytes if not reason else 0
        fates.append(SegmentFate(base, Offset(found.end), found.segment_bytes, holders, reason))
    return fates


def retain(
    directory: str | os.PathLike[str],
    *,
    keep: Keep | None = None,
    disk: Disk | None = None,
    clock: Clock = time.time,
) -> Retention:
    """Invalidate consumers past their cap, then remove what nobody holds, the oldest segment first.

    A log that never had a consumer keeps everything: nobody can have had its messages.
    """
    disk = disk or Disk()
    consumers = Consumers(directory, disk=disk, clock=clock)
    consumers.view.bases()
    result = Retention()
    with (
        maintaining(consumers.directory),
        disk_errors("removing old segments", consumers.directory),
        consumers.changing(),
    ):
        result.invalidated = past_caps(consumers)
        for name, why in result.invalidated.items():
            consumers.invalidate(name, why)
            _LOGGER.warning("consumer %s is invalidated: %s", name, why)
        fates = plan(consumers, keep)
        consumers.sync_offsets()
        for fate in fates:
            if not fate.is_removable:
                result.kept.append(fate)
                continue
            _remove(disk, consumers.view, fate.base)
            result.removed.append(fate)
    return result


def past_caps(consumers: Consumers) -> dict[str, str]:
    """The consumers that hold back more than they may, and how."""
    reasons = {consumer.name: past_cap(consumers, consumer) for consumer in consumers.all()}
    return {name: why for name, why in reasons.items() if why}


def past_cap(consumers: Consumers, consumer: Consumer) -> str:
    """How a consumer exceeds what it may hold back; empty when it does not."""
    hold = consumer.agreement.hold
    if not consumer.holds or hold.policy is not Policy.CAP:
        return ""
    lag: Lag = lag_behind(consumers.view, consumers.position(consumer), consumers.clock())
    if hold.cap_bytes is not None and lag.bytes > hold.cap_bytes:
        return f"it held back {lag.bytes} bytes, its cap is {hold.cap_bytes}"
    if hold.cap_age_s is not None and lag.seconds > hold.cap_age_s:
        return f"it held back messages {lag.seconds:.0f} seconds old, its cap is {hold.cap_age_s:g}"
    return ""


def _holds(consumer: Consumer, found: Contents) -> bool:
    return any(consumer.needs(namespace, presence.last) for namespace, presence in found.namespaces.items())


def _age_s(consumers: Consumers, base: Offset, found: Contents) -> float:
    """Of the last message. Where its writer's clock is ahead of ours, it is as old as its file."""
    now_s, latest_s = consumers.clock(), found.latest / 1e6
    if latest_s > now_s:
        latest_s = os.stat(os.path.join(consumers.directory, segment_name(base))).st_mtime
    return now_s - latest_s


def _reason(found: Contents, holders: tuple[str, ...], has_consumers: bool, is_active: bool) -> str:
    if is_active:
        return "it is the active segment"
    if holders:
        return f"held by {', '.join(holders)}"
    return "" if has_consumers else "no consumer has been registered yet"


def _remove(disk: Disk, view: LogView, base: Offset) -> None:
    """1. Note what goes. 2. Remove the segment, on disk before the next one goes: a log begins later, never with a gap
    (I6). 3. Remove its side files: without a segment they are no harm, a segment without them costs a walk."""
    with Segment(view.directory, base) as segment:
        path, going = segment.path, view.contents(segment)
    try:
        removed.record(disk, view.directory, going)
    except OSError as error:
        if not is_full(error):
            raise
        _remove_side_files(disk, path)  # on a full disk the note needs what little space these take
        removed.record(disk, view.directory, going)
    disk.remove(path)
    disk.sync_directory(view.directory)
    _remove_side_files(disk, path)


def _remove_side_files(disk: Disk, segment_path: str) -> None:
    for side_file in (contents.contents_path(segment_path), index.index_path(segment_path)):
        if os.path.lexists(side_file):
            disk.remove(side_file)
