"""The journal: a node's log together with its clock.

Messages of one origin come without a hole and once (I8). Their commit groups are the units that nodes pass on: a group
that was made by its origin is the same group everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.limits import FRAME_UNPACKED_BYTES_MAX
from tailrace.log.batch import TIMESTAMP, Batch
from tailrace.log.frame import Head
from tailrace.log.view import LogView
from tailrace.message import Lsn, NodeId, Offset, now
from tailrace.relay.checking import check_rows
from tailrace.relay.keepsake import Keepsake, keep, kept
from tailrace.relay.limbo import Control, Limbo, control_in, control_of
from tailrace.relay.names import SYNCHRO
from tailrace.relay.oldest import Oldest
from tailrace.relay.refusal import bad_group, check_next, interleaved, malformed
from tailrace.relay.term import Terms, check_leap
from tailrace.relay.vclock import LOCAL, Vclock

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from tailrace.log.commitlog import CommitLog

AHEAD_MAX_US: Final = 366 * 86_400 * 1_000_000
"""So far the clock of another node may be ahead. What happens here is later than all that is known, and years end."""
Frames = Sequence[tuple[Head, "ReadableBuffer"]]


@dataclass(frozen=True, slots=True)
class _Written:
    """A group that is in the log and not on disk yet."""

    origin: NodeId
    last: Lsn
    offset: Offset
    latest_us: int
    control: Control | None


class Journal:
    """A log that one node writes: what happens here, and what comes from elsewhere."""

    def __init__(self, log: CommitLog, node: NodeId) -> None:
        self.log = log
        self.node = node
        self._turn = threading.Lock()
        self.view = LogView(log.directory)
        keepsake = kept(log.directory)
        self._begin = keepsake.begin
        self._vclock = keepsake.vclock.joined(clock_of(self.view))
        self._latest_us = max((keepsake.latest_us, *(found.latest for _, found in self.view.all_contents())))
        self._own_us = max(keepsake.own_us, _latest_of(self.view, node))
        self._oldest = Oldest(log.directory)
        self._terms = Terms(log.directory)
        self.limbo = self._terms.limbo(self.view).behind(self._begin)
        """What is undecided at the end of the log."""

    @property
    def vclock(self) -> Vclock:
        """What is in this node, durably."""
        return self._vclock

    @property
    def end(self) -> Offset:
        """Where the log ends for those who read it."""
        return self.view.head().next_offset

    @property
    def term(self) -> int:
        """The highest that is known here: in the log, or promised to a node that wants to lead."""
        return max(self.limbo.term, self._terms.promised)

    def promise(self, term: int, node: NodeId) -> bool:
        """From now on nobody leads here since an earlier term, and since this one nobody else; False when somebody does
        or has such a promise already."""
        check_leap(self.term, term)
        with self._turn:
            is_free = term > self.term or (term == self._terms.promised > self.limbo.term)
            if not is_free or (term == self._terms.promised and self._terms.promised_to not in (0, node)):
                return False
            self._terms.promise(term, node, self.limbo)
            return True

    def hear_of(self, term: int) -> None:
        """Somebody leads since a term, or wants to, of whom this node may not have heard."""
        check_leap(self.term, term)
        if term <= self.term:
            return  # as nearly always, and nobody waits then while something large is appended
        with self._turn:
            if term > self.term:
                self._terms.promise(term, NodeId(0), self.limbo)

    def snapshot(self) -> tuple[Offset, Vclock]:
        """Where the log ends, and the clock of all that is before. Not while something is undecided: what would be
        decided later belongs to neither side."""
        with self._turn:
            if self.limbo.pending:
                what = f"{len(self.limbo.pending)} synchronous transactions wait for a decision that enough nodes know"
                raise TailraceError("relay.loading", what, hint="try again in a moment")
            return self.end, self._vclock

    def reached(self) -> tuple[Offset, Vclock]:
        """Like `snapshot`, whatever is undecided."""
        with self._turn:
            return self.end, self._vclock

    def decided(self, upto: Offset) -> tuple[Offset, Vclock]:
        """The last place up to an offset, at which a group ends, before which everything is decided; and the clock
        there."""
        with self._turn:
            end = min([upto, self.end, *(each.offset for each in self.limbo.pending)])
            vclock = dict(self._vclock)
            for head in self.view.heads(end):
                vclock[head.origin] = Lsn(min(head.first_lsn - 1, vclock.get(head.origin, head.last_lsn)))
            return end, Vclock(vclock)

    def oldest(self) -> Vclock:
        """What the log does not have any more, or never had: who has this can get the rest from it."""
        with self._turn:
            vclock, begin = self._vclock, self._begin
        return self._oldest.clock(vclock, begin)

    def append_local(
        self,
        batches: Iterable[Batch],
        beside: Sequence[Batch] = (),
        knew_us: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Vclock:
        """Append what happened here as one group. The batches' own lsn give its order; they get the node's numbers.
        What comes `beside` them is of no origin, and stays here.

        What happens here is later than what whoever did it knew: all up to the time `knew_us`, or all there is.
        Nothing else is appended between the `check`, which may refuse, and this."""
        with self._turn:
            check()
            numbered = self._numbered(list(batches), self._latest_us if knew_us is None else knew_us)
            if numbered:
                offsets = self.log.append([*numbered, *beside])
                count = sum(len(batch) for batch in numbered)
                self._vclock = self._vclock.advanced(self.node, Lsn(self._vclock[self.node] + count))
                if numbered[0].namespace == SYNCHRO:
                    self._observe(control_in(numbered[0].rows), self.node, offsets.first)
            return self._vclock

    def append_group(self, frames: Frames) -> bool:
        """Append a group of another node's messages. False when it is here already."""
        return self.append_groups([frames]) == 1

    def append_groups(self, groups: Iterable[Frames]) -> int:
        """Append groups of other nodes' messages, with one sync for all; says how many were news. Of those before one
        that is refused all are appended."""
        written: list[_Written] = []
        with self._turn:
            try:
                reached = self._vclock
                for frames in groups:
                    news = self._write(frames, reached)
                    if news is not None:
                        written.append(news)
                        reached = reached.advanced(news.origin, news.last)
            finally:
                if written:
                    self.log.sync()  # I1: only now anybody hears of them
                for news in written:
                    self._vclock = self._vclock.advanced(news.origin, news.last)
                    self._latest_us = max(self._latest_us, news.latest_us)
                    if news.origin == self.node:
                        self._own_us = max(self._own_us, news.latest_us)
                    if news.control is not None:
                        self._observe(news.control, news.origin, news.offset)
        return len(written)

    def _write(self, frames: Frames, reached: Vclock) -> _Written | None:
        """Put a group behind what is there; None when it is known."""
        origin, first, last = span_of([head for head, _ in frames])
        if last <= reached[origin]:
            return None
        check_next(origin, first, reached[origin])
        check_rows(frames)
        latest_us = max(head.timestamp for head, _ in frames)
        if latest_us > now() + AHEAD_MAX_US:
            raise malformed(f"a message of node {origin} has a time that is more than a year ahead")
        control = control_of(frames)  # what cannot be read does not come into the log
        if control is not None:
            check_leap(self.term, control.term)
        with self.log.group(waits=False) as group:
            for head, body in frames:
                group.add_frame(head, body)
        return _Written(origin, last, group.range.first, latest_us, control)

    def begin_at(self, vclock: Vclock, limbo: Limbo | None = None) -> None:
        """All up to here is in the node though not in its log, as after a JOIN."""
        with self._turn:
            self._vclock = self._vclock.joined(vclock)
            self._begin = self._begin.joined(vclock)
            if limbo is not None and limbo.term > self.limbo.term:
                self.limbo = limbo
            self.limbo = self.limbo.behind(self._begin)
            self._keep()

    def know_time(self, at_us: int) -> None:
        """Something that is here was written at this time: what happens here next is later."""
        with self._turn:
            self._latest_us = max(self._latest_us, at_us)

    def remember(self) -> Offset:
        """Keep by itself what the log says about the node, durably: messages before this offset can be removed."""
        with self._turn:
            self._keep()
            return Offset(min([self.end, *(each.offset for each in self.limbo.pending)]))

    def _observe(self, control: Control, origin: NodeId, offset: Offset) -> None:
        self.limbo, _ = self.limbo.after(control, origin, self._vclock[origin], offset)

    def _keep(self) -> None:
        self._terms.keep(self.limbo)
        keep(self.log.directory, Keepsake(self._vclock, self._begin, self._latest_us, self._own_us))

    def _numbered(self, batches: list[Batch], knew_us: int) -> list[Batch]:
        batches = [batch for batch in batches if len(batch)]
        if not batches:
            return []
        for batch in batches:
            _check_room(batch)
        given = np.concatenate([batch.rows.column("lsn").to_numpy(zero_copy_only=False) for batch in batches])
        ranks = np.empty(len(given), np.int64)
        ranks[np.argsort(given, kind="stable")] = np.arange(1, len(given) + 1)
        ranks += self._vclock[self.node]
        ends = np.cumsum([len(batch) for batch in batches])
        made = [
            replace(batch, rows=_timed(_with_lsn(batch.rows, part), max(knew_us, self._own_us)), origin=self.node)
            for batch, part in zip(batches, np.split(ranks, ends[:-1]), strict=True)
        ]
        self._own_us = max(_latest(batch.rows) for batch in made)
        self._latest_us = max(self._latest_us, self._own_us)
        return made


def _check_room(batch: Batch) -> None:
    """Refuse here what other nodes would refuse."""
    if batch.rows.nbytes <= FRAME_UNPACKED_BYTES_MAX:
        return
    size = max(piece.rows.nbytes for piece in batch.pieces())
    if size > FRAME_UNPACKED_BYTES_MAX:
        what = f"a message of {batch.namespace!r} has {size} bytes, {FRAME_UNPACKED_BYTES_MAX} are allowed"
        raise TailraceError("log.frame_too_long", what, hint="keep such values elsewhere, and their names here")


def clock_of(view: LogView) -> Vclock:
    """How far each origin's messages in a log go."""
    vclock = Vclock()
    for _, found in view.all_contents():
        vclock = vclock.joined(Vclock({NodeId(origin): Lsn(high) for origin, (_, high) in found.origins.items()}))
    return vclock


def span_of(heads: Sequence[Head]) -> tuple[NodeId, Lsn, Lsn]:
    """Whose messages a group has, and from which to which; together its frames have all between."""
    origins = {head.origin for head in heads}
    if len(origins) != 1:
        raise interleaved(len(origins))
    if LOCAL in origins:
        raise malformed("a group has messages that are of no node")
    first, last = min(head.first_lsn for head in heads), max(head.last_lsn for head in heads)
    messages = sum(head.span for head in heads)
    if last - first + 1 != messages:
        raise bad_group(f"it has {messages} messages from lsn {first} to {last}")
    return origins.pop(), first, last


def _timed(rows: pa.RecordBatch, after_us: int) -> pa.RecordBatch:
    """Messages that are later than a time, whatever the clocks of others say."""
    at: Any = rows.schema.get_field_index("timestamp")
    given = rows.column(at).view(pa.int64()).to_numpy(zero_copy_only=False)
    times = np.maximum(given, after_us + 1)
    return rows.set_column(at, "timestamp", pa.array(times, pa.int64()).cast(TIMESTAMP))


def _latest_of(view: LogView, node: NodeId) -> int:
    """The latest time of one origin's messages in a log: those in its last segment that has any."""
    bases = [base for base, found in view.all_contents() if node in found.origins]
    if not bases:
        return 0
    return max(head.timestamp for head in view.heads(bases[-1]) if head.origin == node)


def _latest(rows: pa.RecordBatch) -> int:
    times: Any = rows.column("timestamp").view(pa.int64())
    return int(times.to_numpy(zero_copy_only=False).max())


def _with_lsn(rows: pa.RecordBatch, lsn: Any) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index("lsn"), "lsn", pa.array(lsn, pa.int64()))
