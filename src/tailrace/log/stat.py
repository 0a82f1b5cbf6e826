"""The state of a log in one object: what it holds, who holds it, and how far everybody is."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from tailrace.log import retention
from tailrace.log.consumers import Consumers
from tailrace.log.contents import Presence
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.lock import WRITER_LOCK_NAME, Holder, holder_of
from tailrace.log.retention import SegmentFate
from tailrace.log.staging import Staging
from tailrace.message import Offset


@dataclass(frozen=True, slots=True)
class SegmentStat:
    """One segment."""

    fate: SegmentFate
    frames: int
    messages: int
    earliest: int | None
    """Microseconds since 1970, None when it holds no message."""
    latest: int | None


@dataclass(frozen=True, slots=True)
class ConsumerStat:
    """One consumer."""

    name: str
    state: str
    hold: str
    position: int
    lag: Lag
    seen_s: float
    in_use: bool


@dataclass(frozen=True, slots=True)
class LogStat:
    """A log."""

    directory: str
    oldest: Offset
    next_offset: Offset
    bytes: int
    messages: int
    writer: Holder | None
    segments: list[SegmentStat]
    namespaces: dict[str, Presence]
    consumers: list[ConsumerStat]
    staged: dict[str, int]
    """Bytes staged for batches that were not published."""


def stat(directory: str | os.PathLike[str]) -> LogStat:
    """Look at a log without changing it."""
    return stat_of(Consumers(directory))


def stat_of(consumers: Consumers) -> LogStat:
    """Like `stat`. Who looks again and again with the same registry does not read everything again."""
    view = consumers.view
    contents_by_base = list(view.all_contents())
    found = dict(contents_by_base)
    segments = [
        SegmentStat(
            fate,
            found[fate.base].frames,
            found[fate.base].messages,
            found[fate.base].earliest,
            found[fate.base].latest if found[fate.base].messages else None,
        )
        for fate in retention.plan(consumers, segments=contents_by_base)
    ]
    namespaces: dict[str, Presence] = {}
    for contents in found.values():
        for name, presence in contents.namespaces.items():
            known = namespaces.setdefault(name, Presence(presence.first, presence.last))
            known.last = presence.last
            known.messages += presence.messages
            known.bytes += presence.bytes
    return LogStat(
        directory=consumers.directory,
        oldest=view.bases()[0],
        next_offset=view.head().next_offset,
        bytes=sum(segment.fate.bytes for segment in segments),
        messages=sum(segment.messages for segment in segments),
        writer=holder_of(os.path.join(consumers.directory, WRITER_LOCK_NAME)),
        segments=segments,
        namespaces=namespaces,
        consumers=consumer_stats(consumers),
        staged=Staging(consumers.directory).waiting(),
    )


def consumer_stats(consumers: Consumers) -> list[ConsumerStat]:
    """How far every consumer is."""
    stats = []
    for consumer in consumers.all():
        position = consumers.position(consumer)
        stats.append(
            ConsumerStat(
                name=consumer.name,
                state=consumer.state,
                hold=consumer.agreement.hold.policy,
                position=position,
                lag=lag_behind(consumers.view, position, time.time()),
                seen_s=consumer.seen_s,
                in_use=consumers.is_in_use(consumer.name),
            )
        )
    return stats
