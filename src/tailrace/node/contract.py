"""What a database must offer to be the store of a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tailrace.deliver.contract import Clearing, Writer
from tailrace.message import Offset
from tailrace.node.conflict import Clash, Conflict, Keep

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions
    from tailrace.deliver.messages import Messages
    from tailrace.source.contract import Position, Reader, Table

VersionRow = tuple[str, str, int, str, int]
"""Namespace, key, timestamp, origin and lsn of the message that wrote a row last."""


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

    def beaten(self, messages: Messages, is_known: Callable[[int, int], bool]) -> list[bool]:
        """Of each message: whether newer ones of other nodes wrote its rows, of which `is_known` says by their origin
        and number that they were there before it."""

    def note_versions(self, messages: Messages, *, always: bool = False) -> None:
        """Remember which messages wrote their rows last, as far as they are newer than what is known, or always."""

    def put_versions(self, rows: Iterable[VersionRow]) -> None:
        """Remember what a source knows."""

    def clashes(self, messages: Messages, judged: Judgement) -> Iterator[Clash]:
        """The messages that are in conflict with the rows that are there, in their order."""

    def rivals(self, messages: Messages) -> Iterator[Clash]:
        """The messages whose rows cannot be there beside others with other keys, in their order."""

    def drop_rival(self, conflict: Conflict) -> None:
        """Delete the row that a message found; that is not noted as a change of the database's own."""

    def quarantine(self, found: Iterable[Conflict]) -> None:
        """Keep conflicts for people to see; those that are known stay as they are."""

    def remember(self, name: str, text: str) -> None:
        """Keep a word about the node itself, in the same transaction."""

    def recalled(self, name: str) -> str | None:
        """What was kept under a name."""

    def decision(self, conflict: Conflict) -> Keep | None:
        """What somebody has decided about a message in quarantine."""


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

    def forbid_untold(self, namespaces: Collection[str]) -> None:
        """Make the database refuse what happens to these tables and cannot be told to other nodes."""

    @property
    def shape_s(self) -> float:
        """How long a look at the shape is good for."""

    def shape(self) -> object:
        """Something that is another as soon as there is a new table or a new column."""

    def noted(self, tables: Sequence[Table]) -> set[str]:
        """The namespaces of those tables whose changes are noted, with all columns that they have now."""

    def adopting(self, tables: Sequence[Table]) -> AbstractContextManager[Collection[str]]:
        """From the end of the body on changes of these tables are noted, and together with them what they have that no
        message has told. In the body nobody else writes those whose namespaces are given: it has to tell their rows."""

    def view(self, directory: str) -> NodeView:
        """The database at this moment; an empty directory is there for it."""

    def close(self) -> None:
        """Let go of everything."""

    def close_to_users(self, namespaces: Collection[str]) -> None:
        """From now on only the node writes these tables; other programs get an error."""

    def open_to_users(self) -> None:
        """Everybody writes again."""

    def conflicts(self) -> list[Conflict]:
        """All in quarantine, in the order in which they were found."""

    def resolve(self, conflict: Conflict, keep: Keep) -> None:
        """Make one of the rows the newest there is, as a change of this node's own."""

    def give_way(self, conflicts: Collection[Conflict]) -> int:
        """Delete the rivals of newer messages, as a change of this node's own, and keep the conflicts; says how many
        rows were there."""


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
    def is_foreign(self) -> list[bool]:
        """Whether a node other than its own last wrote a row that it writes or moves away from."""
