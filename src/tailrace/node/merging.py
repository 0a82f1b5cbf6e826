"""Merging: what a journal has goes into a database, as far as it is newer than the rows that are there.

In whichever order messages come, of two that write one row the newer one stays. So all nodes end with the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import pyarrow as pa

from tailrace.deliver.contract import Clearing, Writer
from tailrace.deliver.evolution import Evolution
from tailrace.deliver.messages import Messages, messages_of
from tailrace.deliver.task import write
from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log.cursor import Cursor
from tailrace.log.selection import EVERYTHING, SelectedFrame
from tailrace.message import Offset, Op
from tailrace.namespace import RESERVED
from tailrace.pipeline.spec import SchemaPolicy
from tailrace.relay.vclock import LOCAL

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions
    from tailrace.relay.journal import Journal
    from tailrace.source.contract import Position, Reader

VersionRow = tuple[str, str, int, str, int]
"""Namespace, key, timestamp, origin and lsn of the message that wrote a row last."""
_MERGE_BYTES: Final = 64 * MIB


class NodeWriter(Writer, Clearing, Protocol):
    """A writer of a node's own store."""

    def applied_last(self) -> Offset | None:
        """Up to where anything was applied, None when nothing ever was."""

    def has_rows(self, namespace: str) -> bool:
        """Whether the table of a namespace has any, as of the transaction that is open."""

    def is_captured(self, position: Position) -> bool:
        """Whether all that happened to what was written is before a position of the database's reader. Asked before
        anything is written and before `commit`: until that it stays so."""

    def judge(self, messages: Messages) -> Judgement:
        """What each message is against the rows that are there."""

    def note_versions(self, messages: Messages, is_put: Sequence[bool]) -> None:
        """Remember which messages wrote their rows last, as far as they are newer than what is known, and which of them
        the node itself put there."""

    def put_versions(self, rows: Iterable[VersionRow]) -> None:
        """Remember what a source knows."""


class NodeView(Protocol):
    """A store as it was at one moment, until it is closed. It may be read by several threads."""

    @property
    def position(self) -> Position:
        """The changes before this position of the database's reader are in it, and no others."""

    def reader(self) -> Reader:
        """A reader that sees only this. Each chunk of rows gets one of its own."""

    def versions(self) -> Iterator[list[VersionRow]]:
        """Which messages wrote the rows last, many at a time."""

    def close(self) -> None:
        """It is not needed any more."""


class NodeStorage(Protocol):
    """A database that is written beside a reader of the same database, which does not take it for news."""

    def open_unnoted(self) -> NodeWriter:
        """A writer whose rows are not noted as changes of the database's own."""

    def key_of(self, namespace: str, key: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that identify a row of a namespace whose messages say `key`."""

    def guard(self, namespaces: Collection[str]) -> None:
        """Make the database refuse what cannot be told to other nodes."""

    def view(self, directory: str) -> NodeView:
        """The database at this moment; an empty directory is there for it."""

    def close(self) -> None:
        """Let go of everything."""


@runtime_checkable
class StoreOptions(Protocol):
    """Options of a writer of a database that can be the store of a node."""

    def open_storage(self, reading: ReaderOptions) -> NodeStorage:
        """The database that the options of a reader name, too."""


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

    @property
    def is_foreign(self) -> list[bool]:
        """Whether a row that it writes or moves away from was last written by a message of another origin."""


class Merger:
    """One database that is brought up to a journal."""

    def __init__(self, storage: NodeStorage, journal: Journal, namespace: re.Pattern[str], start: Offset) -> None:
        self.next_offset = start
        """Everything before is in the database."""
        self._storage = storage
        self._journal = journal
        self._namespace = namespace
        self._evolution = Evolution(SchemaPolicy.EVOLVE)

    def merge(self, end: Offset, captured: Position) -> int | None:
        """Some groups up to an offset in one transaction, each whole; says how many messages were written. None when
        the database has news of its own behind what was captured: only with them is it known what is newer."""
        if self.next_offset >= end:
            return 0
        writer = self._storage.open_unnoted()
        cursor = Cursor(self._journal.view, self.next_offset, EVERYTHING)
        count = 0
        try:
            if not writer.is_captured(captured):
                return None
            for frame in _some_groups(cursor.advance(end)):
                if self.is_data(frame):
                    count += self._write(writer, self._unapplied(writer, frame))
            if not writer.is_captured(captured):
                return None
            writer.commit(Offset(cursor.next_offset - 1))
            self.next_offset = cursor.next_offset
        finally:
            cursor.close()
            with suppress(TailraceError):
                writer.close()
        return count

    def put(self, writer: NodeWriter, messages: Messages) -> int:
        """Write messages, whatever is there."""
        if len(messages):
            admitted = self._evolution.admit(messages)
            write(writer, self._evolution.known[messages.namespace], admitted)
        return len(messages)

    def _write(self, writer: NodeWriter, messages: Messages) -> int:
        """Write what is newer than what is there. What the database's own users wrote is there already, unless the node
        has ever written that row: then something older may have taken its place on the way here."""
        if not len(messages) or not messages.key:
            return self.put(writer, messages) if messages.origin != self._journal.node else 0
        judged = writer.judge(messages)
        is_left = [move and may for move, may in zip(judged.is_move, judged.may_move, strict=True)]
        is_wanted = [newer or left for newer, left in zip(judged.is_newer, is_left, strict=True)]
        if messages.origin == self._journal.node:
            is_wanted = [wanted and put for wanted, put in zip(is_wanted, judged.is_put, strict=True)]
        wanted = _settled(messages, judged).filter(pa.array(is_wanted, pa.bool_()))
        writer.note_versions(messages, is_wanted)
        return self.put(writer, wanted)

    def _unapplied(self, writer: NodeWriter, frame: SelectedFrame) -> Messages:
        messages = messages_of(frame)
        applied = writer.applied(messages.namespace)
        return messages if applied is None else messages.after(applied)

    def is_data(self, frame: SelectedFrame) -> bool:
        """Whether a frame has rows of tables that are replicated."""
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
