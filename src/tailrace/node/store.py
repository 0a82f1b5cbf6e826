"""A node's store: a database whose own changes go into the node's journal, and into which those of other nodes go.

For what happens here the database is the truth, and the journal follows; for what comes from elsewhere it is the other
way round. A crash leaves one behind the other, never ahead: what is in the journal is applied again, and the database
knows up to which offset it has it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tailrace.deliver.contract import Clearing, Writer
from tailrace.deliver.evolution import Evolution
from tailrace.deliver.messages import Messages, messages_of
from tailrace.deliver.task import write
from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log.batch import Batch, key_of
from tailrace.log.consumers import Consumers
from tailrace.log.cursor import Cursor
from tailrace.log.reader import LogReader
from tailrace.log.selection import EVERYTHING, SelectedFrame
from tailrace.log.session import ConsumerSession
from tailrace.message import Lsn, NodeId, Offset, Op, now
from tailrace.namespace import RESERVED
from tailrace.pipeline.spec import SchemaPolicy
from tailrace.relay.names import VERSIONS
from tailrace.relay.vclock import LOCAL, Vclock
from tailrace.source.bookmark import bookmark, load_progress
from tailrace.source.contract import Position, Reader, Table, check_position
from tailrace.source.rows import inserted

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions, WriterOptions
    from tailrace.relay.journal import Journal

CONSUMER: Final = "_store"
VersionRow = tuple[str, str, int, str, int]
"""Namespace, key, timestamp, origin and lsn of the message that wrote a row last."""
_VERSION_FIELDS: Final = ("namespace", "key", "at", "origin", "lsn")
_MERGE_BYTES: Final = 64 * MIB
_TRIES: Final = 20


@runtime_checkable
class ViewableSource(Protocol):
    """Options of a reader of a database that can be seen as it was at one moment, for as long as one likes."""

    def view_into(self, directory: str) -> ReaderOptions:
        """Put a view of this moment into an empty directory: options of a reader that sees only it."""


class NodeWriter(Writer, Clearing, Protocol):
    """A writer of a node's own store."""

    def applied_last(self) -> Offset | None:
        """Up to where anything was applied, None when nothing ever was."""

    def has_rows(self, namespace: str) -> bool:
        """Whether the table of a namespace has any, as of the transaction that is open."""

    def is_captured(self, position: Position) -> bool:
        """Whether all that happened in the database is before a position of its reader. Until `commit` it stays so."""

    def judge(self, messages: Messages) -> Judgement:
        """What each message is against the rows that are there."""

    def note_versions(self, messages: Messages, is_put: Sequence[bool]) -> None:
        """Remember which messages wrote their rows last, as far as they are newer than what is known, and which of them
        the node itself put there."""

    def put_versions(self, rows: Iterable[VersionRow]) -> None:
        """Remember what a source knows."""


@runtime_checkable
class NodeStorage(Protocol):
    """Options of a writer that can write beside a reader of the same database, which does not take it for news."""

    def open_unnoted(self) -> NodeWriter:
        """A writer whose rows are not noted as changes of the database's own."""

    def applied_in_view(self, directory: str) -> Offset | None:
        """Up to which offset a view has what was applied."""

    def versions_in_view(self, directory: str) -> Iterator[list[VersionRow]]:
        """Which messages wrote the rows of a view last, many at a time."""


class Judgement(Protocol):
    """Of each message of a batch."""

    @property
    def is_newer(self) -> list[bool]:
        """Whether it is newer than the row that it writes."""

    @property
    def is_move(self) -> list[bool]:
        """Whether it moves a row to another key."""

    @property
    def may_move(self) -> list[bool]:
        """Whether it is newer than the row that it moves away from."""

    @property
    def is_put(self) -> list[bool]:
        """Whether the node has ever written a row that it writes or moves away from."""


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
        self._reader = reading.open()
        self._progress = load_progress(LogReader(journal.log.directory))
        self._evolution = Evolution(SchemaPolicy.EVOLVE)
        consumers = Consumers(journal.log.directory)
        consumers.register(CONSUMER, exist_ok=True)
        self._session = ConsumerSession(consumers, CONSUMER)
        self._next = self._session.resume_offset
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
                self._capture(viewed.position())
            own = self._journal.vclock[self._journal.node]
        applied = self._storage.applied_in_view(directory)
        vclock = clock_at(self._journal, applied).advanced(self._journal.node, own)
        return View(options, vclock, lambda: map(_version_batch, self._storage.versions_in_view(directory)))

    def _capture(self, upto: Position) -> int:
        old = self._progress
        end = {**(old.position or {}), **upto}
        pieces = self._reader.plan_changes(old.position or {}, end)
        batches = [batch for piece in pieces for batch in self._reader.read_changes(piece)]
        if not batches:
            return 0
        self._progress = replace(old, position=end)
        self._journal.append_local(batches, [*bookmark(old, self._progress, now())])
        self._reader.forget(end)  # I2: it is in the journal
        return sum(len(batch) for batch in batches)

    def apply(self) -> int:
        """Bring the database up to the journal: what is newer than its rows is written; says how many messages were."""
        for _ in range(_TRIES):
            with self._turn:
                written = self._merge()
            if written is not None:
                return written
            self.capture()
        return 0  # others write all the time; the next turn tries again

    def _merge(self) -> int | None:
        """Some groups in one transaction, each whole. None when the database has news of its own, to be captured first:
        only then is it known what is newer."""
        end = self._journal.end
        if self._next >= end:
            return 0
        writer = self._storage.open_unnoted()
        cursor = Cursor(self._journal.view, self._next, EVERYTHING)
        count = 0
        try:
            if not writer.is_captured(self._progress.position or {}):
                return None
            for frame in _some_groups(cursor.advance(end)):
                if self._is_data(frame):
                    count += self._write(writer, self._unapplied(writer, frame))
            writer.commit(Offset(cursor.next_offset - 1))
            self._next = cursor.next_offset
        finally:
            cursor.close()
            with suppress(TailraceError):
                writer.close()
        self._session.commit(self._next - 1)
        return count

    def _write(self, writer: NodeWriter, messages: Messages) -> int:
        """Write what is newer than what is there. What the database's own users wrote is there already, unless the node
        has ever written that row: then something older may have taken its place on the way here."""
        if not len(messages) or not messages.key:
            return self._put(writer, messages) if messages.origin != self._journal.node else 0
        judged = writer.judge(messages)
        is_left = [move and may for move, may in zip(judged.is_move, judged.may_move, strict=True)]
        is_wanted = [newer or left for newer, left in zip(judged.is_newer, is_left, strict=True)]
        if messages.origin == self._journal.node:
            is_wanted = [wanted and put for wanted, put in zip(is_wanted, judged.is_put, strict=True)]
        wanted = _settled(messages, judged).filter(pa.array(is_wanted, pa.bool_()))
        writer.note_versions(messages, is_wanted)
        return self._put(writer, wanted)

    def _put(self, writer: NodeWriter, messages: Messages) -> int:
        if len(messages):
            admitted = self._evolution.admit(messages)
            write(writer, self._evolution.known[messages.namespace], admitted)
        return len(messages)

    def _unapplied(self, writer: NodeWriter, frame: SelectedFrame) -> Messages:
        messages = messages_of(frame)
        applied = writer.applied(messages.namespace)
        return messages if applied is None else messages.after(applied)

    def wanted_tables(self, reader: Reader) -> list[Table]:
        """The tables that are replicated."""
        return [table for table in reader.tables() if self._namespace.search(table.namespace)]

    def load(self, batches: Iterable[Batch]) -> int:
        """Fill the tables, all at once. Rows that are there already are only replaced if they came in this way before,
        or if that was asked for."""
        writer = self._storage.open_unnoted()
        count = 0
        try:
            is_ours = self._replaces or writer.applied_last() is not None
            for table in self.wanted_tables(self._reader):
                if not is_ours and writer.has_rows(table.namespace):
                    what = f"{table.namespace} has rows, and a newcomer begins with those of its source"
                    raise TailraceError("relay.not_empty", what, hint="empty it, or say `replace: true` at `store`")
                writer.clear(table.namespace)
            for batch in batches:
                if batch.namespace == VERSIONS:
                    writer.put_versions(_version_rows(batch))
                    continue
                messages = _messages(batch, count)
                admitted = self._evolution.admit(messages)
                write(writer, self._evolution.known[messages.namespace], admitted)
                count += len(admitted)
            writer.commit(Offset(max(0, self._journal.end - 1)))
        finally:
            with suppress(TailraceError):
                writer.close()
        self._begin()
        self._note_position(self._reader.position())
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

    def _is_data(self, frame: SelectedFrame) -> bool:
        head = frame.head
        is_ours = head.origin == LOCAL or head.namespace.startswith(RESERVED)
        return not is_ours and self._namespace.search(head.namespace) is not None


def _some_groups(frames: Iterator[SelectedFrame]) -> Iterator[SelectedFrame]:
    """Frames, up to the end of the group with which they are enough for one transaction."""
    size = 0
    for frame in frames:
        yield frame
        size += frame.head.body_bytes
        if frame.head.closes_group and size >= _MERGE_BYTES:
            return


def _settled(messages: Messages, judged: Judgement) -> Messages:
    """Moves of which only one half may happen, as that half: the row leaves its key, or it comes to the other one."""
    before = messages.before
    if before is None or not any(judged.is_move):
        return messages
    stays = [at if may else None for at, may in enumerate(judged.may_move)]
    only_leaves = [move and not newer for move, newer in zip(judged.is_move, judged.is_newer, strict=True)]
    rows = pa.concat_arrays([messages.data, before.cast(messages.data.type)])
    places = [at + len(messages) if leaves else at for at, leaves in enumerate(only_leaves)]
    ops = [int(Op.DELETE) if leaves else op for op, leaves in zip(messages.ops().to_pylist(), only_leaves, strict=True)]
    settled = messages.with_column("data", rows.take(pa.array(places, pa.int64())))
    settled = settled.with_column("before", before.take(pa.array(stays, pa.int64())))
    return settled.with_column("op", pa.array(ops, pa.int8()))


def clock_at(journal: Journal, applied: Offset | None) -> Vclock:
    """The clock when messages up to an offset were here and those behind it not; of this node's own all are."""
    vclock = journal.vclock
    later: dict[NodeId, Lsn] = {}
    for head in LogReader(journal.log.directory).view.heads(Offset(0 if applied is None else applied + 1)):
        if head.origin not in (LOCAL, journal.node):
            later[head.origin] = min(head.first_lsn, later.get(head.origin, head.first_lsn))
    return Vclock({**vclock, **{origin: Lsn(lsn - 1) for origin, lsn in later.items()}})


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
