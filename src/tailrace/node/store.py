"""A node's store: a database whose own changes go into the node's journal, and into which those of other nodes go.

For what happens here the database is the truth, and the journal follows; for what comes from elsewhere it is the other
way round. A crash leaves one behind the other, never ahead: what is in the journal is applied again, and the database
knows up to which offset it has it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tailrace.adaptor.versions import newest
from tailrace.deliver.messages import Messages, messages_of
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.log.consumers import Consumers
from tailrace.log.cursor import Cursor
from tailrace.log.reader import LogReader
from tailrace.log.selection import EVERYTHING
from tailrace.log.session import ConsumerSession
from tailrace.message import Offset, now
from tailrace.node.conflict import Policies
from tailrace.node.contract import NodeView, NodeWriter, StoreOptions, VersionRow
from tailrace.node.filling import as_messages, fill, version_batch
from tailrace.node.merging import Merger, put
from tailrace.node.noticing import Noticing
from tailrace.pipeline.spec import EVERYTHING as ALL_NAMESPACES
from tailrace.relay.limbo import Limbo
from tailrace.relay.names import SYNCHRO
from tailrace.relay.oldest import check_contained
from tailrace.relay.vclock import Vclock
from tailrace.source.bookmark import bookmark, load_progress
from tailrace.source.contract import Piece, Position, Reader, Table, check_position

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions, WriterOptions
    from tailrace.relay.journal import Journal

CONSUMER: Final = "_store"
_TRIES: Final = 20
_NOTE_S: Final = 10.0
"""A database in which nothing happens that is wanted moves on all the same, and must not keep what it need not."""


@dataclass(frozen=True, slots=True)
class View:
    """The tables of a store as they were at one moment, and the node's clock then."""

    taken: NodeView
    vclock: Vclock
    late: list[VersionRow]
    """Of the changes in it that its own versions do not have yet."""

    def reader(self) -> Reader:
        return self.taken.reader()

    def versions(self) -> Iterator[Batch]:
        """Which messages wrote the rows last; a row may come twice, with a newer one."""
        yield from map(version_batch, self.taken.versions())
        if self.late:
            yield version_batch(self.late)

    def close(self) -> None:
        self.taken.close()


class Store:
    """One database. `capture` and `apply` are for one thread."""

    def __init__(
        self,
        reading: ReaderOptions,
        writing: WriterOptions,
        journal: Journal,
        namespace: re.Pattern[str],
        *,
        replaces: bool = False,
        policies: Policies | None = None,
        is_read_only: bool = False,
    ) -> None:
        if not isinstance(writing, StoreOptions):
            what = f"{writing.where()} cannot be the store of a node"
            raise TailraceError("config.invalid", what, hint="use sqlite or postgres")
        self._turn = threading.Lock()
        self._journal = journal
        self._namespace = namespace
        self._replaces = replaces
        self._policies = policies or Policies()
        self._is_read_only = is_read_only
        self._where = writing.where()
        self._noted_s = time.monotonic()
        self._looked: Position | None = None
        """Up to here there is nothing that is not in the journal."""
        self._progress = load_progress(LogReader(journal.log.directory))
        with ExitStack() as opening:
            self._reader = reading.open()
            opening.callback(self._reader.close)
            self.storage = writing.open_storage(reading)
            opening.callback(self.storage.close)
            consumers = Consumers(journal.log.directory)
            consumers.register(CONSUMER, exist_ok=True)
            self._session = ConsumerSession(consumers, CONSUMER)
            opening.callback(self._session.close)
            self._merger = self._merger_from(self._session.resume_offset)
            self._noticing = Noticing(self._reader, self.storage, self._tell_rows)
            self._begin()
            self._merger.recall()
            self._closing = opening.pop_all()

    def close(self) -> None:
        self._closing.close()

    def capture(self) -> int:
        """Append what happened in the database since the last time to the journal; says how many messages."""
        with self._turn:
            return self._capture(self._reader.position())

    def view(self, directory: str) -> View:
        """The tables as they are at this moment, and which messages they have in them. An empty directory is there for
        it; whoever asked for it closes it.

        1. The database is brought up to the journal.
        2. A view of it, with what its users have done since.
        3. That is captured, and nothing else; so the clock is known.
        """
        with self._turn:
            end, vclock = self._bring_up()  # 1.
            self._notice(at_once=True)
            taken = self.storage.view(directory)  # 2.
            try:
                if self._noticing.is_new(at_once=True):
                    what = "a table was made while a view was taken"
                    raise TailraceError("relay.loading", what, hint="it is tried again")
                self._capture(taken.position)  # 3.
                later_end, later = self._journal.snapshot()
                late = list(self._late(end, later_end))
            except BaseException:
                taken.close()
                raise
            return View(taken, vclock.advanced(self._journal.node, later[self._journal.node]), late)

    def _bring_up(self) -> tuple[Offset, Vclock]:
        """Merge all there is, and what comes of it; says where that ends, and the clock of all that is before."""
        node = self._journal.node
        for _ in range(_TRIES):
            self._capture(self._reader.position())
            end, vclock = self._journal.snapshot()
            while self._merger.next_offset < end and self._merge(end) is not None:
                pass
            if self._merger.next_offset >= end and self._journal.snapshot()[1][node] == vclock[node]:
                return end, vclock
        what = "the store cannot be brought up to the log: others write the same rows all the time"
        raise TailraceError("relay.loading", what, hint="it is tried again")

    def _late(self, start: Offset, end: Offset) -> Iterator[VersionRow]:
        """The versions of what was captured here in a range. Nothing else of this node may be in it: the view does not
        have it, and its clock would say so."""
        with closing(Cursor(self._journal.view, start, EVERYTHING)) as cursor:
            for frame in cursor.advance(end):
                if frame.head.namespace == SYNCHRO and frame.head.origin == self._journal.node:
                    what = "a synchronous transaction came while a view was taken"
                    raise TailraceError("relay.loading", what, hint="it is tried again")
                if frame.head.origin != self._journal.node or not self._merger.is_data(frame):
                    continue
                messages = messages_of(frame)
                key = self.storage.key_of(messages.namespace, messages.key)
                if key and len(messages):
                    yield from ((messages.namespace, each, *mark) for each, mark in newest(messages, key).items())

    def _capture(self, upto: Position) -> int:
        """Everything up to a position, as far as it is not in the journal."""
        count = 0
        while pieces := self._pieces(upto):
            batches = [batch for piece in pieces for batch in self._reader.read_changes(piece)]
            end = {**self._over(upto), **(self._reader.reached() or {})}
            changes = sum(len(batch) for batch in batches)
            if changes and self._is_read_only:
                raise _refused(self._where, changes)
            if changes:
                old, self._progress = self._progress, replace(self._progress, position=end)
                noted = [*bookmark(old, self._progress, now())]
                self._journal.append_local(batches, noted, knew_us=self._merger.latest_us)
                self._noted_s = time.monotonic()
                count += changes
            else:
                self._note_position(end)  # what was there was not its own
            self._reader.forget(end)  # I2: it is in the journal
        self._looked = upto
        if self._over(upto) != self._progress.position and time.monotonic() - self._noted_s >= _NOTE_S:
            self._note_position(self._over(upto))
            self._reader.forget(upto)
        return count

    def _pieces(self, upto: Position) -> list[Piece]:
        if upto == self._looked:
            return []
        return self._reader.plan_changes(self._progress.position or {}, self._over(upto))

    def _over(self, position: Position) -> Position:
        return {**(self._progress.position or {}), **position}

    def _merge(self, end: Offset) -> int | None:
        written = self._merger.merge(end, self._progress.position or {})
        if written is not None:
            self._session.commit(max(0, self._merger.needed_from - 1))
        return written

    def apply(self) -> int:
        """Bring the database up to the journal: what is newer than its rows is written; says how many messages were."""
        for _ in range(_TRIES):
            with self._turn:
                end = self._journal.end
                written = self._merge(end)
                if written is not None and self._merger.next_offset >= end:
                    self._notice()
            if written is not None:
                return written
            self.capture()
        return 0  # others write all the time; the next turn tries again

    def namespaces(self) -> list[str]:
        """Of the tables that are replicated."""
        return sorted(table.namespace for table in self.wanted_tables(self._reader))

    def by_namespace(self) -> dict[str, Table]:
        """The tables that are replicated, as they are now."""
        return {table.namespace: table for table in self.tables()}

    def try_out(self, batches: Iterable[Batch]) -> None:
        """See whether the database takes rows, without leaving any there."""
        writer = self.storage.open_unnoted()
        try:
            for batch in batches:
                put(writer, as_messages(batch, 0))
        finally:
            writer.close()

    def close_to_users(self) -> None:
        """From now on only the node writes the tables that are replicated."""
        self.storage.close_to_users(self.namespaces())

    def open_to_users(self) -> None:
        self.storage.open_to_users()

    def settle(self) -> Offset:
        """Carry changes both ways, as far as that goes now. Up to the offset that is given the store has what there is
        in the journal."""
        with suppress(TailraceError):  # the node itself tells what is wrong with its store
            self.capture()
            self.apply()
        return self._merger.next_offset

    def beaten(self, messages: Messages, is_known: Callable[[int, int], bool]) -> list[bool]:
        """Of each message: whether it lost against one of another node that had come before it."""
        with self._turn:
            writer = self.storage.open_unnoted()
            try:
                return writer.beaten(messages, is_known)
            finally:
                with suppress(TailraceError):
                    writer.close()

    def left_out(self) -> list[TailraceError]:
        """Why tables that came lately are not replicated."""
        return list(self._noticing.left_out.values())

    def tables(self) -> list[Table]:
        """The tables that are replicated, as they are now."""
        with self._turn:
            return self.wanted_tables(self._reader)

    def wanted_tables(self, reader: Reader) -> list[Table]:
        """The tables that are replicated."""
        left_out = self._noticing.left_out
        return [table for table in self._all_wanted(reader) if table.namespace not in left_out]

    def _all_wanted(self, reader: Reader) -> list[Table]:
        return [table for table in reader.tables() if self._wants(table.namespace)]

    def idle_policies(self) -> list[str]:
        """The names of tables that have a policy of their own and are not there, or not replicated."""
        named = set(self._policies.by_namespace)
        return sorted(named - {table.namespace for table in self.wanted_tables(self._reader)}) if named else []

    def load(self, batches: Iterable[Batch], limbo: Limbo | None = None, only: re.Pattern[str] = ALL_NAMESPACES) -> int:
        """Fill the tables, or only some, all at once. Rows that are there already are only replaced if they came in
        this way before, or if that was asked for."""
        writer = self.storage.open_unnoted()
        try:
            is_ours = self._replaces or writer.applied_last() is not None
            for table in self._tables_of(only):
                if not is_ours and writer.has_rows(table.namespace):
                    what = f"{table.namespace} has rows, and a newcomer begins with those of its source"
                    raise TailraceError("relay.not_empty", what, hint="empty it, or say `replace: true` at `store`")
            self._clear(writer, only)
            position = self._reader.position()  # whoever writes these tables now waits for the end
            count = self._fill(writer, batches, limbo, only)
            writer.commit(Offset(max(0, self._journal.end - 1)))
        finally:
            with suppress(TailraceError):
                writer.close()
        self._noticing.install(self._all_wanted(self._reader))
        self._note_position(self._over(position))
        return count

    def reload(
        self, batches: Iterable[Batch], vclock: Vclock, limbo: Limbo, only: re.Pattern[str] = ALL_NAMESPACES
    ) -> int:
        """Replace all rows, or those of some tables, by those of a snapshot with that clock. Refuses when something
        is here that the snapshot lacks."""
        for _ in range(_TRIES):
            self.capture()
            with self._turn, closing(self.storage.open_unnoted()) as writer:
                self._clear(writer, only)
                if self._has_news(self._reader.position()):  # whoever writes these tables now waits for the end
                    continue
                end, here = self._journal.reached()
                check_contained(here, vclock)
                count = self._fill(writer, batches, limbo, only)
                writer.commit(Offset(max(0, end - 1)))
                self._merge_from(end)
                self._session.commit(max(0, end - 1))
                self._noticing.install(self._all_wanted(self._reader))
            return count
        raise TailraceError("relay.loading", "the store is written all the time", hint="it is tried again")

    def _merger_from(self, start: Offset) -> Merger:
        tells = not self._is_read_only
        return Merger(self.storage, self._journal, self._wants, start, self._policies, tells=tells)

    def _wants(self, namespace: str) -> bool:
        return self._namespace.search(namespace) is not None

    def _merge_from(self, start: Offset) -> None:
        latest_us = self._merger.latest_us
        self._merger = self._merger_from(start)
        self._merger.latest_us = latest_us

    def _has_news(self, upto: Position) -> bool:
        pieces = self._reader.plan_changes(self._progress.position or {}, self._over(upto))
        return any(len(batch) for piece in pieces for batch in self._reader.read_changes(piece))

    def _tables_of(self, only: re.Pattern[str]) -> list[Table]:
        return [table for table in self.wanted_tables(self._reader) if only.search(table.namespace)]

    def _clear(self, writer: NodeWriter, only: re.Pattern[str]) -> None:
        for table in self._tables_of(only):
            writer.clear(table.namespace)

    def _fill(self, writer: NodeWriter, batches: Iterable[Batch], limbo: Limbo | None, only: re.Pattern[str]) -> int:
        filled = fill(writer, batches, lambda name: bool(only.search(name)), limbo, self._merger.latest_us or 0)
        self._journal.know_time(filled.latest_us)
        self._merger.latest_us = filled.latest_us
        return filled.count

    def _begin(self) -> None:
        """Changes are noted from now on."""
        tables = self._all_wanted(self._reader)
        if self._progress.position is None:
            self._noticing.install(tables)
            self._note_position(self._reader.position())
        else:
            check_position(self._reader, self._progress.position)
            self._noticing.go_on(tables)
        self._reader.copied()

    def _notice(self, *, at_once: bool = False) -> None:
        """Capture what is new. All that was captured before is noted in the database: what it knows of is told.

        Looked at twice when there is something: what makes it be captured changes the shape."""
        while self._noticing.is_new(at_once=at_once):
            self._noticing.notice(lambda: self._all_wanted(self._reader), tells=not self._is_read_only)
            self._capture(self._reader.position())

    def _tell_rows(self, batches: list[Batch]) -> None:
        """Rows that are there and were not noted, as a group of this node's own."""
        noted = bookmark(replace(self._progress, position=None), self._progress, now())
        self._journal.append_local(batches, [*noted], knew_us=self._merger.latest_us)

    def _note_position(self, position: Position) -> None:
        """Changes are captured from here on."""
        old, self._progress = self._progress, replace(self._progress, position=position)
        self._journal.log.append(list(bookmark(old, self._progress, now())))
        self._noted_s = time.monotonic()


def _refused(where: str, changes: int) -> TailraceError:
    what = f"{changes} changes were made in {where}, which only follows others, so nobody would get them"
    hint = "take away `anonymous: true`, and they go to all; or begin anew with empty tables and a new `data`"
    return TailraceError("relay.read_only", what, hint=hint)
