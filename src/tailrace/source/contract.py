"""What a source must offer to be read. `tests/adaptor/contract.py` holds every promise made here as a test.

A reader has no memory of its own: a new one, given the same position, goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tailrace.log.batch import Batch

Position = Mapping[str, Any]
"""How far changes were read, in the source's own terms; plain JSON. A later one is laid over the one before: what it
does not mention stays."""

Piece = Mapping[str, Any]
"""A part of the work that one task can do by itself, in the source's own terms; plain JSON."""


@dataclass(frozen=True, slots=True)
class Table:
    """A namespace of a source: what its rows look like."""

    namespace: str
    schema: pa.Schema
    key: tuple[str, ...]
    """The columns that identify a row, none when nothing does."""
    rows: int | None = None
    """About how many rows it has; for progress only."""
    empty: tuple[str, ...] = ()
    """Columns that are null in every row that was there before them, so that a new one needs no copy."""


class Reader(Protocol):
    """A source. Made on the driver and, from the same options, once more in every task; it must not share state.

    The driver calls `tables`, `install`, `position`, `plan_copy`, `copied`, `plan_changes` and `forget`; tasks call
    `read_copy`, `read_changes` and `reached`, on any machine, several at a time, and again when a task is repeated.
    """

    def tables(self) -> list[Table]:
        """The namespaces there are now. Called again while running, so that new ones are found."""

    def install(self, tables: Sequence[Table]) -> None:
        """Make the source note the changes of these tables. Idempotent; called before `position` and after the
        schema of a table has changed."""

    def uninstall(self) -> None:
        """Remove whatever `install` has left in the source. Idempotent."""

    def position(self) -> Position:
        """Where the changes end now, at the end of a transaction. What is read after this call is not older."""

    def plan_copy(self, table: Table) -> list[Piece]:
        """The rows of a table as pieces that do not overlap and together are all of it, also of what will be inserted
        before they are read. Rows that are written meanwhile may be in a piece or not."""

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        """The rows of one piece, in batches of mode COPY with the table's key (`with_key`): as they are now, or as they
        were at the position that `position` gives until `copied` is called."""

    def copied(self) -> None:
        """Nothing is left to copy: a view that was kept for it can go."""

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        """The changes after `start` up to `end` as pieces, in order. None when there are none."""

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        """The changes of one piece in batches of mode SYNC. Changes of one namespace come in the source's order, which
        `lsn` holds across namespaces. Deletes carry at least the key in `data`; an update that moved a row to
        another key carries `before`."""

    def reached(self) -> Position | None:
        """Asked in a task after its piece was read: what is to be laid over the position of its turn, None for nothing.
        Changes may have ended earlier than planned, at the end of a transaction."""

    def forget(self, upto: Position) -> None:
        """The log holds everything up to here (I2), so the source need not keep it. May do less, never more."""

    def close(self) -> None:
        """Let go of everything."""


@runtime_checkable
class SelectiveReader(Protocol):
    """A reader that may not be able to read all that its source has."""

    def left_out(self) -> Mapping[str, str]:
        """What `tables` cannot list although it is there: the names that these namespaces would have, each with the
        reason. A run and a plan tell it."""


@runtime_checkable
class ResumingReader(Protocol):
    """A reader whose source may no longer have what it is to go on with."""

    def check(self, position: Position) -> None:
        """Asked before `install`: refuse a position that changes cannot be read on from, and change nothing."""


def check_position(reader: Reader, position: Position | None) -> None:
    """Refuse to go on where changes were lost."""
    if position is not None and isinstance(reader, ResumingReader):
        reader.check(position)


@runtime_checkable
class RenewingReader(Protocol):
    """A reader that notices when a table is another one than before, under the same name."""

    def made_anew(self) -> Collection[str]:
        """Asked after `install`: namespaces whose changes were not noted before, although those of others were. What is
        known of one of them is gone, and it must be copied."""


@runtime_checkable
class ViewReader(Protocol):
    """A reader that reads some tables as of a place in their changes, which is known only then (`reached`)."""

    def copying(self, namespaces: Collection[str]) -> None:
        """Told before `plan_changes`: these are not copied yet. Of the tables that will be read as of a place, the
        changes before that place are left out."""


def tell_copying(reader: Reader, namespaces: Collection[str]) -> None:
    """Tell a reader that wants to know it which namespaces are not copied yet."""
    if isinstance(reader, ViewReader):
        reader.copying(namespaces)


def made_anew(reader: Reader) -> Collection[str]:
    """The namespaces that must be copied because their tables are others than before."""
    return reader.made_anew() if isinstance(reader, RenewingReader) else ()


def left_out(reader: Reader) -> Mapping[str, str]:
    """What a reader cannot read, each with the reason."""
    return reader.left_out() if isinstance(reader, SelectiveReader) else {}
