"""A node's store: a database whose own changes go into the node's journal, and into which those of other nodes go.

For what happens here the database is the truth, and the journal follows; for what comes from elsewhere it is the other
way round. A crash leaves one behind the other, never ahead: what is in the journal is applied again, and the database
knows up to which offset it has it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, key_of
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.message import Offset, now
from tailrace.node.conflict import Policies
from tailrace.node.merging import LIMBO, Merger, NodeStorage, NodeWriter, VersionRow
from tailrace.pipeline.spec import EVERYTHING
from tailrace.relay.limbo import Limbo, encode_limbo
from tailrace.relay.names import VERSIONS
from tailrace.relay.oldest import check_contained
from tailrace.relay.vclock import Vclock
from tailrace.source.bookmark import bookmark, load_progress
from tailrace.source.contract import Position, Reader, Table, check_position
from tailrace.source.rows import inserted

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions, WriterOptions
    from tailrace.relay.journal import Journal

CONSUMER: Final = "_store"
_VERSION_FIELDS: Final = ("namespace", "key", "at", "origin", "lsn")
_TRIES: Final = 20


@runtime_checkable
class ViewableSource(Protocol):
    """Options of a reader of a database that can be seen as it was at one moment, for as long as one likes."""

    def view_into(self, directory: str) -> ReaderOptions:
        """Put a view of this moment into an empty directory: options of a reader that sees only it."""


@dataclass(frozen=True, slots=True)
class View:
    """The tables of a store as they were at one moment, and the node's clock then."""

    options: ReaderOptions
    vclock: Vclock
    versions: Callable[[], Iterator[Batch]]


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
        if not isinstance(writing, NodeStorage) or not isinstance(reading, ViewableSource):
            what = f"{writing.where()} cannot be the store of a node"
            raise TailraceError("config.invalid", what, hint="use sqlite")
        self._storage = writing
        self._source = reading
        self._turn = threading.Lock()
        self._journal = journal
        self._namespace = namespace
        self._replaces = replaces
        self._policies = policies or Policies()
        self._is_read_only = is_read_only
        self._reader = reading.open()
        self._progress = load_progress(LogReader(journal.log.directory))
        consumers = Consumers(journal.log.directory)
        consumers.register(CONSUMER, exist_ok=True)
        self._session = ConsumerSession(consumers, CONSUMER)
        self._merger = Merger(writing, journal, namespace, self._session.resume_offset, self._policies)
        self._begin()

    def close(self) -> None:
        self._session.close()
        self._reader.close()

    def capture(self) -> int:
        """Append what happened in the database since the last time to the journal; says how many messages."""
        with self._turn:
            return self._capture(self._reader.position())

    def view(self, directory: str) -> View:
        """The tables as they are at this moment, put into an empty directory, and which messages they have in them."""
        with self._turn:  # nothing is captured meanwhile that the view does not have
            options = self._source.view_into(directory)
            with closing(options.open()) as viewed:
                position = viewed.position()
            self._capture(position)
            merged = self._merger.next_offset
            end, vclock = self._journal.snapshot()
        storage = self._storage.of_view(directory)
        merger = Merger(storage, self._journal, self._namespace, merged, self._policies)
        while merger.next_offset < end:  # the view itself is brought up to the journal, and then is what the clock says
            merger.merge(end, position)
        return View(options, vclock, lambda: map(_version_batch, storage.versions()))

    def _capture(self, upto: Position) -> int:
        old = self._progress
        end = {**(old.position or {}), **upto}
        pieces = self._reader.plan_changes(old.position or {}, end)
        batches = [batch for piece in pieces for batch in self._reader.read_changes(piece)]
        if not batches:
            return 0
        if self._is_read_only:
            raise _refused(self._storage, sum(len(batch) for batch in batches))
        self._progress = replace(old, position=end)
        self._journal.append_local(batches, [*bookmark(old, self._progress, now())])
        self._reader.forget(end)  # I2: it is in the journal
        return sum(len(batch) for batch in batches)

    def apply(self) -> int:
        """Bring the database up to the journal: what is newer than its rows is written; says how many messages were."""
        for _ in range(_TRIES):
            with self._turn:
                written = self._merger.merge(self._journal.end, self._progress.position or {})
            if written is not None:
                self._session.commit(max(0, self._merger.needed_from - 1))
                return written
            self.capture()
        return 0  # others write all the time; the next turn tries again

    def namespaces(self) -> list[str]:
        """Of the tables that are replicated."""
        return sorted(table.namespace for table in self.wanted_tables(self._reader))

    def keys(self) -> dict[str, tuple[str, ...]]:
        """By namespace: the columns that identify a row."""
        return {table.namespace: table.key for table in self.wanted_tables(self._reader)}

    def try_out(self, batches: Iterable[Batch]) -> None:
        """See whether the database takes rows, without leaving any there."""
        merger = Merger(self._storage, self._journal, self._namespace, self._journal.end, self._policies)
        writer = self._storage.open_unnoted()
        try:
            for batch in batches:
                merger.put(writer, _messages(batch, 0))
        finally:
            writer.close()

    def close_to_users(self) -> None:
        """From now on only the node writes the tables that are replicated."""
        self._storage.close_to_users(self.namespaces())

    def open_to_users(self) -> None:
        self._storage.open_to_users()

    def notice_tables(self) -> None:
        """Changes of tables that are new, or have new columns, are noted from now on."""
        with self._turn:
            self._reader.install(self.wanted_tables(self._reader))

    def tables(self) -> list[Table]:
        """The tables that are replicated, as they are now."""
        with self._turn:
            return self.wanted_tables(self._reader)

    def wanted_tables(self, reader: Reader) -> list[Table]:
        """The tables that are replicated."""
        return [table for table in reader.tables() if self._namespace.search(table.namespace)]

    def load(self, batches: Iterable[Batch], limbo: Limbo | None = None, only: re.Pattern[str] = EVERYTHING) -> int:
        """Fill the tables, or only some, all at once. Rows that are there already are only replaced if they came in
        this way before, or if that was asked for."""
        writer = self._storage.open_unnoted()
        try:
            is_ours = self._replaces or writer.applied_last() is not None
            for table in self._tables_of(only):
                if not is_ours and writer.has_rows(table.namespace):
                    what = f"{table.namespace} has rows, and a newcomer begins with those of its source"
                    raise TailraceError("relay.not_empty", what, hint="empty it, or say `replace: true` at `store`")
            count = self._fill(writer, batches, limbo, only)
            writer.commit(Offset(max(0, self._journal.end - 1)))
        finally:
            with suppress(TailraceError):
                writer.close()
        self._begin()
        self._note_position(self._reader.position())
        return count

    def reload(self, batches: Iterable[Batch], vclock: Vclock, limbo: Limbo, only: re.Pattern[str] = EVERYTHING) -> int:
        """Replace all rows, or those of some tables, by those of a snapshot with that clock. Refuses when something
        is here that the snapshot lacks."""
        for _ in range(_TRIES):
            self.capture()
            with self._turn, closing(self._storage.open_unnoted()) as writer:
                if not writer.is_captured(self._progress.position or {}):
                    continue
                end, here = self._journal.reached()
                check_contained(here, vclock)
                count = self._fill(writer, batches, limbo, only)
                writer.commit(Offset(max(0, end - 1)))
                self._merger = Merger(self._storage, self._journal, self._namespace, end, self._policies)
                self._session.commit(max(0, end - 1))
            self._reader.install(self.wanted_tables(self._reader))
            return count
        raise TailraceError("relay.loading", "the store is written all the time", hint="it is tried again")

    def _tables_of(self, only: re.Pattern[str]) -> list[Table]:
        return [table for table in self.wanted_tables(self._reader) if only.search(table.namespace)]

    def _fill(self, writer: NodeWriter, batches: Iterable[Batch], limbo: Limbo | None, only: re.Pattern[str]) -> int:
        count = 0
        for table in self._tables_of(only):
            writer.clear(table.namespace)
        for batch in batches:
            if batch.namespace == VERSIONS:
                writer.put_versions(_version_rows(batch))
            elif only.search(batch.namespace):
                count += self._merger.put(writer, _messages(batch, count))
        writer.remember(LIMBO, encode_limbo(limbo or Limbo()))
        return count

    def _begin(self) -> None:
        """Changes are noted from now on."""
        if self._progress.position is not None:
            check_position(self._reader, self._progress.position)
        self._reader.install(self.wanted_tables(self._reader))
        if self._progress.position is None:
            self._note_position(self._reader.position())

    def _note_position(self, position: Position) -> None:
        """Changes are captured from here on."""
        old, self._progress = self._progress, replace(self._progress, position=position)
        self._journal.log.append(list(bookmark(old, self._progress, now())))


def _refused(storage: Any, changes: int) -> TailraceError:
    what = f"{changes} changes were made in {storage.where()}, which only follows others, so nobody would get them"
    hint = "take away `anonymous: true`, and they go to all; or begin anew with empty tables and a new `data`"
    return TailraceError("relay.read_only", what, hint=hint)


def _messages(batch: Batch, first: int) -> Messages:
    offsets = pa.array(range(first, first + len(batch)), pa.int64())
    return Messages(batch.namespace, batch.rows.append_column("offset", offsets), key_of(batch.rows.schema), batch.mode)


def _version_batch(rows: list[VersionRow]) -> Batch:
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return inserted(VERSIONS, pa.StructArray.from_arrays(columns, list(_VERSION_FIELDS)), ())


def _version_rows(batch: Batch) -> Iterator[VersionRow]:
    data: Any = batch.rows.column("data")
    columns = [data.field(name).to_pylist() for name in _VERSION_FIELDS]
    return zip(*columns, strict=True)
