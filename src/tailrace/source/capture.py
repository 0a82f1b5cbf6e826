"""Capture: a reader's copy and changes into the log, one commit group per turn.

Every turn, in this order, which makes the handoff from copy to changes one without a gap:

1. Take the position at which the source's changes end now.
2. Read the changes up to it, and, only after 1, some pieces of tables that are not copied yet.
3. Append all of it as one group, the changes first, together with the bookmark that says so.
4. When the group is durable, let the source forget the changes (I2).

A piece that is read after the position of its turn is at least as new as the changes before it in the log, and every
later change comes in a later group. So whoever applies the log in order ends with the source's state.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batch_of, batches_of
from tailrace.log.reader import LogReader
from tailrace.log.staging import Staged
from tailrace.message import Message, Micros, Mode, Op, now
from tailrace.namespace import RESERVED
from tailrace.source.bookmark import BookmarkHold, bookmark, load_progress
from tailrace.source.contract import Reader, Table, check_position, left_out, made_anew, tell_copying
from tailrace.source.held import HeldWatch
from tailrace.source.phase import Phase, Progress, TableProgress
from tailrace.source.rows import emptied
from tailrace.source.task import CaptureItem, StagePieces

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions
    from tailrace.log.commitlog import CommitLog
    from tailrace.spark.tasks import Outcome

BATCH_PREFIX: Final = "capture-"
DISCOVER_EVERY_S: Final = 5.0
FORGET_EVERY_S: Final = 1.0
HEARTBEAT_S: Final = 10.0
"""A source in which nothing happens that is wanted moves on all the same, and must not keep what it need not."""
TURN_S: Final = 10.0
"""A turn without work ends after this time: a stream that has turns all the time costs more."""

Run = Callable[[Callable[[CaptureItem], Mapping[str, Any]], list[CaptureItem]], "Outcome"]
"""Does the work of a turn in tasks."""


@dataclass(slots=True)
class CaptureStats:
    """What was captured since the start."""

    messages: Counter[str] = field(default_factory=Counter)
    """By namespace."""
    groups: int = 0
    last_s: float = 0.0


class Capture:
    """One source, read into one log. `open`, then `turn` until it returns False, then `close`."""

    def __init__(
        self,
        options: ReaderOptions,
        namespace: re.Pattern[str],
        log: CommitLog,
        run: Run,
        *,
        stop: threading.Event,
        report: Callable[[str], None],
        poll_s: float = 0.1,
        parallel: int | None = None,
        once: bool = False,
        note_left_out: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """`note_left_out` is told what cannot be read, each with the reason, whenever that is something else."""
        self.stats = CaptureStats()
        self.idle_s: float | None = None
        """When the last look at the source began, if it found nothing to do."""
        self.progress = Progress()
        self._options = options
        self._namespace = namespace
        self._log = log
        self._run = run
        self._stop = stop
        self._report = report
        self._poll_s = poll_s
        self._pieces_per_turn = 2 * (parallel or os.cpu_count() or 2)
        self._once = once
        self._reader: Reader | None = None
        self._hold: BookmarkHold | None = None
        self._tables: dict[str, Table] = {}
        """As they were found last."""
        self._held = HeldWatch(report)
        self._left_out: Mapping[str, str] | None = None
        """What people were told of, each with the reason; None before the source was looked at."""
        self._note_left_out = note_left_out
        self._discovered_s = 0.0
        self._forgot_s = 0.0
        self._noted_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the last look found nothing to do."""
        return self.idle_s is not None

    @property
    def has_answered(self) -> bool:
        """Whether the source could be reached in this run."""
        return self._reader is not None

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            raise TailraceError("source.unreachable", "the source was not opened", hint="open it first")
        return self._reader

    def open(self) -> None:
        """Find out where the last run ended, and what there is to copy."""
        for batch_id in self._log.staging.waiting():
            if batch_id.startswith(BATCH_PREFIX):
                self._log.staging.discard(batch_id)  # of a turn that never ended
        self._hold = BookmarkHold(self._log.directory)
        self.progress = load_progress(LogReader(self._log.directory))
        self._reader = self._options.open()
        check_position(self._reader, self.progress.position)
        self._discover()

    def reopen(self) -> None:
        """Begin anew with the source, from what the log says, after it did not answer."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._options.open()
        check_position(self._reader, self.progress.position)
        self._discover()

    def turn(self) -> bool:
        """One turn; False when everything that was asked for is in the log."""
        try:
            return self._take_turn()
        except TailraceError:
            self.idle_s = None
            raise

    def _take_turn(self) -> bool:
        if not self.progress.plans:
            self.reader.copied()
        position, items = self._await_work()
        if items:
            self._capture(items, position)
        elif position != self.progress.position and time.monotonic() - self._noted_s >= HEARTBEAT_S:
            self._note_position(position)
        is_read = not items or self.progress.position == position
        is_last = self._once and is_read and not any(item.namespace for item in items)
        if is_last or time.monotonic() - self._forgot_s >= FORGET_EVERY_S:
            self._forget()
        self._held.look(self.reader)
        return not is_last and not self._stop.is_set()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def _await_work(self) -> tuple[Mapping[str, Any], list[CaptureItem]]:
        """What is to be read, and up to where; nothing when nothing came for a while."""
        give_up_s = time.monotonic() + TURN_S
        while True:
            looked_s = time.monotonic()
            if looked_s - self._discovered_s >= DISCOVER_EVERY_S:
                self._discover()
            position = {**(self.progress.position or {}), **self.reader.position()}  # 1.
            tell_copying(self.reader, self.progress.copying())
            pieces = self.reader.plan_changes(self.progress.position or {}, position)
            items = [CaptureItem(number, piece) for number, piece in enumerate(pieces)]
            items += self._copies(len(items))
            self.idle_s = None if items else looked_s
            if items or self._once or self._stop.wait(self._poll_s) or time.monotonic() > give_up_s:
                return position, items

    def _copies(self, first: int) -> list[CaptureItem]:
        """The pieces that are to be copied next."""
        waiting = [
            (namespace, number)
            for namespace in self.progress.copying()
            for number in self.progress.tables[namespace].missing()
        ]
        return [
            CaptureItem(first + at, self.progress.plans[namespace][number], namespace, number)
            for at, (namespace, number) in enumerate(waiting[: self._pieces_per_turn])
        ]

    def _capture(self, items: list[CaptureItem], position: Mapping[str, Any]) -> None:
        batch_id = f"{BATCH_PREFIX}{secrets.token_hex(6)}"
        work = StagePieces(self._options, self._log.directory, batch_id, self._log.config.codec)
        try:
            receipts = self._run(work, items).all()  # 2.
        except TailraceError:
            self._log.staging.discard(batch_id)
            raise
        after = self._after(items, receipts, position)
        with self._log.group() as group:  # 3.
            for receipt in receipts:
                for head, body in self._log.staging.frames(batch_id, Staged(**receipt["staged"])):
                    group.add_frame(head, body)
            for batch in self._epilogue(after):
                group.add(batch)
        self._log.staging.discard(batch_id)
        self.progress = after
        self._note(receipts)

    def _after(
        self, items: list[CaptureItem], receipts: list[Mapping[str, Any]], position: Mapping[str, Any]
    ) -> Progress:
        tables = dict(self.progress.tables)
        for item, receipt in zip(items, receipts, strict=True):
            rows: Mapping[str, int] = receipt["rows"]
            if item.namespace is not None:
                known = tables[item.namespace]
                done = known.with_pieces([item.piece_number], sum(rows.values()))
                tables[item.namespace] = replace(done, phase=Phase.COMPLETE) if done.is_copied else done
                continue
            for namespace in rows:
                if namespace in tables and tables[namespace].phase is Phase.COMPLETE:
                    tables[namespace] = replace(tables[namespace], phase=Phase.SYNC)
        plans = {name: plan for name, plan in self.progress.plans.items() if tables[name].phase is Phase.COPY}
        for receipt in receipts:
            position = {**position, **(receipt["reached"] or {})}
        return Progress(position, tables, plans)

    def _epilogue(self, after: Progress) -> list[Batch]:
        """What follows the data in a group: a mark for each namespace whose copy is complete, and the bookmark."""
        at = now()
        completed = [
            self._completed(name, table, at)
            for name, table in after.tables.items()
            if table.phase is not Phase.COPY and self.progress.tables[name].phase is Phase.COPY
        ]
        return [*completed, *bookmark(self.progress, after, at)]

    def _completed(self, name: str, progress: TableProgress, at: Micros) -> Batch:
        """The mark of a complete copy. Where there were no rows it says what they would look like."""
        table = self._tables.get(name) if progress.copied == 0 else None
        fields = [] if table is None else list(table.schema)
        nothing: Any = pa.nulls(1, pa.struct(fields))
        key = () if table is None else table.key
        return batch_of(name, nothing, op=Op.NOOP, timestamp=at, mode=Mode.COMPLETE, key=key)

    def _note_position(self, position: Mapping[str, Any]) -> None:
        """Nothing came up to here."""
        after = replace(self.progress, position=position)
        self._log.append(list(bookmark(self.progress, after, now())))
        self.progress = after
        self._noted_s = time.monotonic()

    def _discover(self) -> None:
        """Notice tables that are new or have new columns: they are copied, unless all their rows come as changes. From
        now on their changes are noted."""
        self._discovered_s = time.monotonic()
        found = {table.namespace: table for table in self.reader.tables() if self._is_wanted(table.namespace)}
        self._tables = found
        self._tell_left_out()
        changed = {name: table for name, table in found.items() if self._is_changed(table)}
        gone = self.progress.tables.keys() - found.keys()
        is_first = self.progress.position is None
        self.reader.install(list(found.values()))
        anew = {name for name in made_anew(self.reader) if name in self.progress.tables}
        changed |= {name: found[name] for name in anew if name in found}
        if not changed and not gone and not is_first:
            return
        position = self.progress.position if not is_first else self.reader.position()
        tables = {name: table for name, table in self.progress.tables.items() if name not in gone}
        plans = {name: plan for name, plan in self.progress.plans.items() if name not in gone}
        renewed = set(anew)
        for name in sorted(gone):
            self._report(f"{name}: no longer in the source; what the log has of it stays")
        for name, table in changed.items():
            known, added = None if name in anew else tables.get(name), self._added(table)
            plan = self.reader.plan_copy(table) if known is None or set(added) - set(table.empty) else []
            if known is not None and not plan:  # a copy that has begun goes on
                tables[name] = replace(known, columns=tuple(table.schema.names))
                news = f"new column {', '.join(added)}" if added else f"columns are now {', '.join(table.schema.names)}"
                self._report(f"{name}: {news}")
                continue
            if name in anew:
                self._report(f"{name}: another table than before; what was known of it is gone, and it is copied")
            elif known is not None:
                self._report(f"{name}: new column {', '.join(added)}; it is copied again")
                renewed |= set() if table.key else {name}  # rows that nothing identifies would be there twice
            elif not is_first:
                self._report(f"{name}: new, {'it is copied' if plan else 'its rows come as changes'}")
            phase = Phase.COPY if plan else Phase.COMPLETE
            tables[name] = TableProgress(phase, tuple(table.schema.names), len(plan), rows=table.rows)
            if plan:
                plans[name] = plan
        planned = Progress(position, tables, plans)
        at = now()
        begun = [Message(Op.NOOP, at, name, None) for name in plans if name in changed]
        gone_rows = [batch for name in sorted(renewed) for batch in emptied(name, at)]
        self._log.append([*gone_rows, *batches_of(begun, Mode.COPY), *bookmark(self.progress, planned, at)])
        self.progress = planned

    def _tell_left_out(self) -> None:
        """A line for each that is new; all of them for whoever asks later."""
        found = {name: why for name, why in left_out(self.reader).items() if self._is_wanted(name)}
        for name, why in found.items():
            if name not in (self._left_out or {}):
                self._report(f"{name}: left out: {why}")
        if found != self._left_out:
            self._left_out = found
            self._note_left_out(found)

    def _is_wanted(self, namespace: str) -> bool:
        return not namespace.startswith(RESERVED) and self._namespace.search(namespace) is not None

    def _is_changed(self, table: Table) -> bool:
        known = self.progress.tables.get(table.namespace)
        return known is None or known.columns != tuple(table.schema.names)

    def _added(self, table: Table) -> list[str]:
        known = self.progress.tables.get(table.namespace)
        return [] if known is None else [name for name in table.schema.names if name not in known.columns]

    def _note(self, receipts: list[Mapping[str, Any]]) -> None:
        for receipt in receipts:
            self.stats.messages.update(receipt["rows"])
        self.stats.groups += 1
        self.stats.last_s = time.monotonic()

    def _forget(self) -> None:
        self._forgot_s = time.monotonic()
        if self.progress.position is not None:
            self.reader.forget(self.progress.position)  # 4.
        if self._hold is not None:
            self._hold.renew()
