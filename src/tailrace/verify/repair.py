"""Repair: what differs is sent again the way everything is sent, through the log.

Messages about the differing keys are appended as a commit group, so that every writer gets them in its order and the
log tells what happened; then the writers that were verified deliver until they have everything.

1. Keys that only the destination has are deleted. So are keys that it has more than once, for no update makes one row
   of two.
2. The source's rows of the other keys are sent as they are now.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailrace.deliver.delivery import Delivery
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP, Batch
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.staging import Staged, Staging
from tailrace.message import Mode, Op
from tailrace.spark.tasks import run_tasks
from tailrace.transform.chain import Chain
from tailrace.verify.contract import ReadBack, Stored
from tailrace.verify.deletion import deletions
from tailrace.verify.differences import Kind
from tailrace.verify.digest import Digest
from tailrace.verify.match import Match
from tailrace.verify.pace import Pace
from tailrace.verify.report import Report
from tailrace.verify.sides import SourcePieces, stored_rows, without_rows
from tailrace.verify.verify import Say, Scope, read_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.tasks import Receipt
    from tailrace.verify.report import NamespaceReport

BATCH_PREFIX: Final = "repair-"


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages the source's rows of some keys, as inserts where the destination lacks them, else as updates."""

    source: SourcePieces
    back: ReadBack
    digest: Digest
    inserts: frozenset[int]
    updates: frozenset[int]
    log: str
    batch_id: str

    def __call__(self, number: int) -> Receipt:
        inserts, updates = (np.array(sorted(keys), np.int64) for keys in (self.inserts, self.updates))
        with Staging(self.log).writer(self.batch_id, f"piece-{number}") as staged:
            for batch, messages in self.source.pairs(number):
                keys = self.digest.of(stored_rows(messages.data, self.back)).keys.view(np.int64)
                places = messages.offsets().to_numpy()
                for op, wanted in ((Op.INSERT, inserts), (Op.UPDATE, updates)):
                    chosen = places[np.isin(keys, wanted)]
                    if len(chosen):
                        staged.add(_again(batch, chosen, op))
            kept = staged.close()
        return {"name": kept.name, "frames": kept.frames, "messages": kept.messages, "size": kept.size}


@dataclass(slots=True)
class Repaired:
    """What was sent."""

    sent: int = 0
    deleted: int = 0
    beyond: int = 0
    """Keys for which no message could be made: nothing in the source's terms leads to them."""


def repair(scope: Scope, report: Report, session: Callable[[], SparkSession], say: Say) -> Repaired:
    """Send again what a report says. The pipeline must not run."""
    repaired = Repaired()
    spec = scope.spec
    config = LogConfig(segment_bytes=spec.segment_bytes, sync_every_s=spec.sync_every_s)
    differing = {writer.name: writer for writer in report.writers if writer.differing}
    with CommitLog.open(spec.log, config) as log:
        for write in scope.chosen():
            back = read_back(write)
            if write.name not in differing or isinstance(back, str):
                continue
            matches = {match.table.namespace: match for match in scope.matches(write, back)}
            found = [(matches[each.namespace], each) for each in differing[write.name].namespaces]
            works = [_Work(match, each, log, session) for match, each in found if each.differences.total]
            for step in (_Work.delete, _Work.send):
                for work in works:
                    step(work, repaired)
                delivery = Delivery(write, log, session, stop=threading.Event(), report=say)
                _deliver(delivery, log)
    return repaired


def check_repairable(scope: Scope) -> None:
    """Refuse to repair what runs, what is not caught up, and what cannot be traced back to the source's rows."""
    spec = scope.spec
    for write in scope.chosen():
        pace = Pace(spec.log, spec.read.options, write.name)
        if holder := pace.runs():
            what = f"pipeline {spec.name} is run by {holder}; a repair appends to its log and needs it alone"
            raise TailraceError("log.locked", what, hint="stop the pipeline, repair, and run it again")
        if isinstance(read_back(write), str):
            continue
        if behind := pace.behind():
            what = f"writer {write.name} is {behind} messages behind the log, which may be all that differs"
            raise TailraceError("pipeline.stopped", what, hint="tailrace run PIPELINE.yml --once, then repair")
        if Chain(write.through).needs_frames:
            what = f"writer {write.name} has a function on DataFrames, so its rows cannot be traced back to the source"
            hint = f"tailrace offset rewind {write.name} oldest, then tailrace run: everything is delivered again"
            raise TailraceError("input.invalid", what, hint=hint)


class _Work:
    """One namespace of one writer."""

    def __init__(
        self, match: Match, report: NamespaceReport, log: CommitLog, session: Callable[[], SparkSession]
    ) -> None:
        self._match = match
        self._report = report
        self._log = log
        self._session = session
        self._chain = Chain(match.write.through)
        self._empty = self._chain.apply(without_rows(match.table))
        namespace, key = self._empty.namespace, self._empty.key
        stored = match.back.find(namespace, key) or Stored({}, key)
        known = stored_rows(self._empty.data, match.back).schema
        self._digest = match.digest(namespace, known, stored, self._chain)
        if not self._digest.key:
            what = f"{match.table.namespace} has no key, so single rows of it cannot be sent again"
            raise TailraceError("input.invalid", what, hint="give the reader a key, or leave it out with --namespace")

    def delete(self, repaired: Repaired) -> None:
        keys = [key for key in self._report.differences.keys if key.kind in (Kind.EXTRA, Kind.REPEATED)]
        made = deletions(self._match.table, self._chain, self._digest, self._match.back, keys)
        repaired.beyond += len(keys) - sum(map(len, made))
        repaired.deleted += sum(map(len, made))
        if made:
            self._log.append(made)

    def send(self, repaired: Repaired) -> None:
        kinds: dict[Kind, set[int]] = {kind: set() for kind in Kind}
        for key in self._report.differences.keys:
            kinds[key.kind].add(key.hash)
        source = self._match.source_pieces(self._chain)
        batch_id = f"{BATCH_PREFIX}{secrets.token_hex(6)}"
        work = StageRows(
            source,
            self._match.back,
            self._digest,
            frozenset(kinds[Kind.MISSING] | kinds[Kind.REPEATED]),
            frozenset(kinds[Kind.DIFFERENT]),
            self._log.directory,
            batch_id,
        )
        if not (work.inserts or work.updates):
            return
        label = f"repair {self._match.table.namespace}"
        receipts = run_tasks(self._session(), label, work, range(len(source.pieces))).all()
        staged = [Staged(**receipt) for receipt in receipts if receipt["messages"]]
        if staged:
            self._log.publish(batch_id, staged)
        self._log.staging.discard(batch_id)
        repaired.sent += sum(each.messages for each in staged)


def _again(batch: Batch, places: Any, op: Op) -> Batch:
    """Some rows of a copy as changes that happen now."""
    rows = batch.rows.take(places)
    names, count = rows.schema.names, len(places)
    rows = rows.set_column(names.index("op"), "op", pa.repeat(pa.scalar(int(op), pa.int8()), count))
    now = pa.scalar(time.time_ns() // 1000, TIMESTAMP)
    rows = rows.set_column(names.index("timestamp"), "timestamp", pa.repeat(now, count))
    return Batch(batch.namespace, rows.replace_schema_metadata(batch.rows.schema.metadata), Mode.SYNC, batch.origin)


def _deliver(delivery: Delivery, log: CommitLog) -> None:
    """Until the writer has everything that the log has."""
    delivery.open()
    try:
        delivery.until = log.next_offset
        while delivery.turn():
            pass
    finally:
        delivery.close()
