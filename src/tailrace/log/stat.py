"""The state of a log in one object: what it holds, who holds it, and how far everybody is."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tailrace.errors import TailraceError
from tailrace.log import retention
from tailrace.log.consumers import Consumer, Consumers
from tailrace.log.contents import Contents, Presence
from tailrace.log.lag import Lag, lag_behind, lag_from
from tailrace.log.lock import WRITER_LOCK_NAME, Holder, holder_of
from tailrace.log.offsets import Positions
from tailrace.log.retention import SegmentFate
from tailrace.log.segment import Located
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


def stat_of(consumers: Consumers, whereabouts: Whereabouts | None = None) -> LogStat:
    """Like `stat`. Who looks again and again with the same registry does not read everything again, and with what it
    knows of the consumers does not find out again where each stands."""
    view = consumers.view
    contents_by_base = list(view.all_contents())
    registered = consumers.all()
    found = dict(contents_by_base)
    segments = [
        SegmentStat(
            fate,
            found[fate.base].frames,
            found[fate.base].messages,
            found[fate.base].earliest,
            found[fate.base].latest if found[fate.base].messages else None,
        )
        for fate in retention.plan(consumers, segments=contents_by_base, registered=registered)
    ]
    namespaces: dict[str, Presence] = {}
    for contents in found.values():
        for name, presence in contents.namespaces.items():
            known = namespaces.setdefault(name, Presence(presence.first, presence.last))
            known.last = presence.last
            known.messages += presence.messages
            known.bytes += presence.bytes
    stats = (whereabouts or Whereabouts()).stats(consumers, registered, contents_by_base)
    return LogStat(
        directory=consumers.directory,
        oldest=view.bases()[0],
        next_offset=view.head().next_offset,
        bytes=sum(segment.fate.bytes for segment in segments),
        messages=sum(segment.messages for segment in segments),
        writer=holder_of(os.path.join(consumers.directory, WRITER_LOCK_NAME)),
        segments=segments,
        namespaces=namespaces,
        consumers=stats,
        staged=Staging(consumers.directory).waiting(),
    )


def consumer_stats(consumers: Consumers) -> list[ConsumerStat]:
    """How far every consumer is."""
    return Whereabouts().stats(consumers, consumers.all(), list(consumers.view.all_contents()))


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where a consumer stands, with more behind it in the log."""

    positions: Positions
    position: int
    first: Offset
    oldest: Located


class Whereabouts:
    """Where consumers stand, remembered from one look to the next.

    One that has not moved, with a message behind it that it needs, stands where it stood, whatever is appended; unless
    segments before the active one have changed, or that one was cut.
    """

    def __init__(self) -> None:
        self._sealed: list[tuple[Offset, int]] = []
        self._end = 0
        self._known: dict[str, _Stand] = {}

    def stats(
        self, consumers: Consumers, registered: Sequence[Consumer], contents: Sequence[tuple[Offset, Contents]]
    ) -> list[ConsumerStat]:
        sealed = [(base, found.segment_bytes) for base, found in contents[:-1]]
        end = contents[-1][1].end
        known, self._known = (self._known if sealed == self._sealed and end >= self._end else {}), {}
        self._sealed, self._end = sealed, end
        return [self._stat(consumers, consumer, known.get(consumer.name), contents) for consumer in registered]

    def _stat(
        self,
        consumers: Consumers,
        consumer: Consumer,
        known: _Stand | None,
        contents: Sequence[tuple[Offset, Contents]],
    ) -> ConsumerStat:
        now_s = time.time()
        if known is not None and known.positions == consumer.positions:
            self._known[consumer.name] = known
            position, lag = known.position, lag_from(known.oldest, known.first, contents, now_s)
        else:
            position = consumers.position(consumer)
            lag = lag_behind(consumers.view, position, now_s)
            self._remember(consumers, consumer, position, contents)
        return ConsumerStat(
            name=consumer.name,
            state=consumer.state,
            hold=consumer.agreement.hold.policy,
            position=position,
            lag=lag,
            seen_s=consumer.seen_s,
            in_use=consumers.is_in_use(consumer.name),
        )

    def _remember(
        self, consumers: Consumers, consumer: Consumer, position: int, contents: Sequence[tuple[Offset, Contents]]
    ) -> None:
        first = Offset(max(position + 1, contents[0][0]))
        if first >= contents[-1][1].end:
            return  # the next message may be one that it has had
        with suppress(TailraceError):  # removed meanwhile
            oldest = consumers.view.find(first)
            if not oldest.head.is_hole and not consumer.positions.covers(oldest.head.namespace, first):
                self._known[consumer.name] = _Stand(consumer.positions, position, first, oldest)
