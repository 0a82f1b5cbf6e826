"""The journal: a node's log together with its clock.

Messages of one origin come without a hole and once (I8). Their commit groups are the units that nodes pass on: a group
that was made by its origin is the same group everywhere.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailrace.log.batch import TIMESTAMP, Batch
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.frame import Head
from tailrace.log.view import LogView
from tailrace.message import Lsn, NodeId, Offset
from tailrace.relay.refusal import check_next, malformed
from tailrace.relay.vclock import LOCAL, Vclock, decode_vclock

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from tailrace.log.commitlog import CommitLog

CLOCK_NAME: Final = "vclock.json"


class Journal:
    """A log that one node writes: what happens here, and what comes from elsewhere."""

    def __init__(self, log: CommitLog, node: NodeId) -> None:
        self.log = log
        self.node = node
        self._turn = threading.Lock()
        self.view = LogView(log.directory)
        self._vclock = stored_clock(log.directory).joined(clock_of(self.view))
        self._latest_us = max((found.latest for _, found in self.view.all_contents()), default=0)

    @property
    def vclock(self) -> Vclock:
        """What is in this node, durably."""
        return self._vclock

    @property
    def end(self) -> Offset:
        """Where the log ends for those who read it."""
        return self.view.head().next_offset

    def snapshot(self) -> tuple[Offset, Vclock]:
        """Where the log ends, and the clock of all that is before."""
        with self._turn:
            return self.end, self._vclock

    def append_local(self, batches: Iterable[Batch], beside: Sequence[Batch] = ()) -> Vclock:
        """Append what happened here as one group. The batches' own lsn give its order; they get the node's numbers.
        What comes `beside` them is of no origin, and stays here."""
        with self._turn:
            numbered = self._numbered(list(batches))
            if numbered:
                self.log.append([*numbered, *beside])
                count = sum(len(batch) for batch in numbered)
                self._vclock = self._vclock.advanced(self.node, Lsn(self._vclock[self.node] + count))
            return self._vclock

    def append_group(self, frames: Sequence[tuple[Head, ReadableBuffer]]) -> bool:
        """Append a group of another node's messages. False when it is here already."""
        origin, first, last = span_of([head for head, _ in frames])
        with self._turn:
            here = self._vclock[origin]
            if last <= here:
                return False
            check_next(origin, first, here)
            with self.log.group() as group:
                for head, body in frames:
                    group.add_frame(head, body)
            self._vclock = self._vclock.advanced(origin, last)
            self._latest_us = max(self._latest_us, *(head.timestamp for head, _ in frames))
        return True

    def begin_at(self, vclock: Vclock) -> None:
        """All up to here is in the node though not in its log, as after a JOIN."""
        with self._turn:
            self._vclock = self._vclock.joined(vclock)
            self._store()

    def remember(self) -> None:
        """Keep the clock by itself, so that messages can be removed from the log."""
        with self._turn:
            self._store()

    def _store(self) -> None:
        path = os.path.join(self.log.directory, CLOCK_NAME)
        with disk_errors("keeping the clock", path):
            Disk().replace_file(path, json.dumps(self._vclock.encode()).encode())

    def _numbered(self, batches: list[Batch]) -> list[Batch]:
        batches = [batch for batch in batches if len(batch)]
        if not batches:
            return []
        given = np.concatenate([batch.rows.column("lsn").to_numpy(zero_copy_only=False) for batch in batches])
        ranks = np.empty(len(given), np.int64)
        ranks[np.argsort(given, kind="stable")] = np.arange(1, len(given) + 1)
        ranks += self._vclock[self.node]
        ends = np.cumsum([len(batch) for batch in batches])
        made = [
            replace(batch, rows=self._timed(_with_lsn(batch.rows, part)), origin=self.node)
            for batch, part in zip(batches, np.split(ranks, ends[:-1]), strict=True)
        ]
        self._latest_us = max(self._latest_us, *(_latest(batch.rows) for batch in made))
        return made

    def _timed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What happens here is later than all that is known here, whatever the clocks of others say."""
        at: Any = rows.schema.get_field_index("timestamp")
        given = rows.column(at).view(pa.int64()).to_numpy(zero_copy_only=False)
        times = np.maximum(given, self._latest_us + 1)
        return rows.set_column(at, "timestamp", pa.array(times, pa.int64()).cast(TIMESTAMP))


def clock_of(view: LogView) -> Vclock:
    """How far each origin's messages in a log go."""
    vclock = Vclock()
    for _, found in view.all_contents():
        vclock = vclock.joined(Vclock({NodeId(origin): Lsn(high) for origin, (_, high) in found.origins.items()}))
    return vclock


def stored_clock(directory: str) -> Vclock:
    """What `remember` has kept; nothing when there was nothing to keep."""
    path = os.path.join(directory, CLOCK_NAME)
    with disk_errors("reading the clock", path):
        try:
            with open(path, encoding="ascii") as stream:
                return decode_vclock(json.load(stream))
        except FileNotFoundError:
            return Vclock()


def span_of(heads: Sequence[Head]) -> tuple[NodeId, Lsn, Lsn]:
    """Whose messages a group has, and from which to which; together its frames have all between."""
    origins = {head.origin for head in heads}
    if len(origins) != 1 or LOCAL in origins:
        raise malformed(f"a group has messages of {len(origins)} origins, or of none that is known")
    first, last = min(head.first_lsn for head in heads), max(head.last_lsn for head in heads)
    messages = sum(head.span for head in heads)
    if last - first + 1 != messages:
        raise malformed(f"a group from lsn {first} to {last} has {messages} messages")
    return origins.pop(), first, last


def _latest(rows: pa.RecordBatch) -> int:
    times: Any = rows.column("timestamp").view(pa.int64())
    return int(times.to_numpy(zero_copy_only=False).max())


def _with_lsn(rows: pa.RecordBatch, lsn: Any) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index("lsn"), "lsn", pa.array(lsn, pa.int64()))
