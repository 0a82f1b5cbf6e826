"""What two nodes tell each other: which versions of which rows, the rows themselves, and what became of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, overload

from tailrace.limits import SYNC_AHEAD_S
from tailrace.sync.columns import Columns

Key: TypeAlias = tuple[Any, ...]
"""The key of a row, a value for each of its columns."""

VersionId: TypeAlias = int | str
"""A last-changed time, or a hash."""

ANY_NODE: Final = -1
"""The node of a version when whoever tells of it does not say: then the version id alone counts."""

AHEAD_MS: Final = int(SYNC_AHEAD_S * 1000)
"""What an application says is later than this from now is not the time of a change."""

PAGE_LENGTH_MAX: Final = 4 << 20
"""Rows of which the texts and bytes are longer than this are not sent together."""

ROW_STAMP: Final = ("doorTime", "doorNode", "doorDeleted", "doorVersion")
"""What a row carries behind its own columns: when it was changed and where, whether it is gone, its version id."""


class Part(StrEnum):
    """Which of the rows that are pending."""

    ALL = "all"
    ROWS = "rows"
    """Those that are not gone."""
    DELETIONS = "deletions"


class Pending(NamedTuple):
    """The tables of which a node has something for another one."""

    tables: list[int]
    empty: list[int]
    """Those of which it never had a row."""
    gone: frozenset[int] | None = None
    """Of the first those of which it has nothing but deletions; None if it does not say, and knows nothing of parts."""

    def but_deletions(self, of: Collection[int]) -> set[int]:
        """The tables of which there is something else than deletions, where only these are left out."""
        return {*self.tables} - ((self.gone or frozenset()) & {*of})


class Tracker(NamedTuple):
    """One version of one row."""

    key: Key
    version: VersionId
    node: int = ANY_NODE
    """Where that version was made. Two nodes may change a row at the same time."""


class Ack(NamedTuple):
    """A node has got a version, or has refused it for good."""

    tracker: Tracker
    refused: str | None = None
    """Why it does not want it."""


@dataclass(frozen=True, slots=True)
class Known:
    """Of versions that a node was asked about those that are the ones there."""

    trackers: list[Tracker]
    count: int | None = None
    """How often that node has exchanged something with the one that asks; None if it does not say."""


class Acks(Sequence[Ack]):
    """Acknowledgements, column by column."""

    __slots__ = ("keys", "nodes", "refused", "versions")

    def __init__(
        self,
        keys: Sequence[Sequence[Any]],
        versions: Sequence[VersionId],
        nodes: Sequence[int],
        refused: Mapping[int, str] | None = None,
    ) -> None:
        """`keys` has each column of the key, `refused` by their places why some are not wanted."""
        self.keys = keys
        self.versions = versions
        self.nodes = nodes
        self.refused = refused or {}

    @classmethod
    def of(cls, acks: Sequence[Ack]) -> Acks:
        """The same acknowledgements."""
        if isinstance(acks, Acks):
            return acks
        if not acks:
            return cls((), (), ())
        keys, versions, nodes = zip(*(tracker for tracker, _ in acks), strict=True)
        refused = {place: why for place, (_, why) in enumerate(acks) if why is not None}
        return cls(list(zip(*keys, strict=True)), versions, nodes, refused)

    @classmethod
    def of_rows(cls, rows: RowBatch, key: Sequence[str], refused: Mapping[int, str] | None = None) -> Acks:
        """For each row one, in their order."""
        values = rows.by_column.values
        return cls([values[rows.columns.index(name)] for name in key], values[-1], values[-3], refused)

    def without(self, places: Collection[int]) -> Acks:
        """All but some."""
        if not places:
            return self
        kept = [place for place in range(len(self)) if place not in places]
        refused = {new: self.refused[place] for new, place in enumerate(kept) if place in self.refused}
        keys = [[column[place] for place in kept] for column in self.keys]
        return Acks(keys, [self.versions[place] for place in kept], [self.nodes[place] for place in kept], refused)

    def __len__(self) -> int:
        return len(self.versions)

    @overload
    def __getitem__(self, place: int) -> Ack: ...
    @overload
    def __getitem__(self, place: slice) -> list[Ack]: ...
    def __getitem__(self, place: int | slice) -> Ack | list[Ack]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        key = tuple(column[place] for column in self.keys)
        return Ack(Tracker(key, self.versions[place], self.nodes[place]), self.refused.get(place))


class RowBatch:
    """Rows of one table: its columns in order, and then those of `ROW_STAMP`. Of one that is gone the key counts.

    It is made of rows or of columns, and gives both.
    """

    __slots__ = ("_by_column", "_rows", "columns", "count", "unknown", "was_cut")

    def __init__(
        self,
        columns: tuple[str, ...],
        rows: list[tuple[Any, ...]] | Columns,
        unknown: frozenset[str] = frozenset(),
        *,
        was_cut: bool = False,
    ) -> None:
        """`unknown`: columns that the sender has and the receiver has not. `was_cut`: there may be more rows."""
        self.columns = columns
        self.count: int | None = None
        """How often the sender has exchanged something with the receiver; None if it does not say."""
        self.unknown = unknown
        self.was_cut = was_cut
        self._by_column = rows if isinstance(rows, Columns) else None
        self._rows = None if isinstance(rows, Columns) else rows

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        if self._rows is None:
            self._rows = self.by_column.rows()
        return self._rows

    @property
    def is_even(self) -> bool:
        """Whether all rows have as many values as they should."""
        return self._rows is None or set(map(len, self._rows)) <= {len(self.columns) + len(ROW_STAMP)}

    @property
    def by_column(self) -> Columns:
        """Raises `ValueError` if rows have not as many values as others."""
        if self._by_column is None:
            empty = [()] * (len(self.columns) + len(ROW_STAMP))
            self._by_column = Columns.of_rows(self.rows) if self.rows else Columns(empty)
        return self._by_column

    def __len__(self) -> int:
        return len(self.by_column) if self._rows is None else len(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowBatch):
            return NotImplemented
        return (self.columns, self.rows, self.unknown) == (other.columns, other.rows, other.unknown)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RowBatch({self.columns}, {self.rows}, {self.unknown})"

    def parted(self, place: int) -> tuple[RowBatch, RowBatch]:
        """The rows up to one of them, and the others."""
        first, second = self.rows[:place], self.rows[place:]
        parts = (
            RowBatch(self.columns, first, self.unknown, was_cut=self.was_cut or bool(second)),
            RowBatch(self.columns, second, self.unknown, was_cut=self.was_cut),
        )
        for part in parts:
            part.count = self.count
        return parts

    def key_at(self, place: int, key: Sequence[str]) -> Key:
        """The key of a row."""
        return tuple(self.by_column.values[self.columns.index(name)][place] for name in key)

    @property
    def is_cut(self) -> bool:
        """Whether there may be fewer rows than were asked for only because they are large. Not every node says so; then
        texts are all that counts: whoever asked in vain has lost nothing but a question."""
        return self.was_cut or self.by_column.text_length() > PAGE_LENGTH_MAX // 2


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of rows that came; those that it does not name are here now."""

    refused: list[Ack] = field(default_factory=list)
    """The receive view did not want them; they are in quarantine."""
    older: list[Tracker] = field(default_factory=list)
    """A newer version was here already."""
    left: list[Ack] = field(default_factory=list)
    """They can be neither taken nor kept, mostly for want of room: their sender keeps them, and sends them again."""
    aside: list[Ack] = field(default_factory=list)
    """They are too large, so their sender has put them aside."""
    count: int | None = field(default=None, compare=False)
    """How often who has taken them has exchanged something with their sender; None if it does not say."""

    def extend(self, other: Receipt) -> None:
        self.refused.extend(other.refused)
        self.older.extend(other.older)
        self.left.extend(other.left)
        self.aside.extend(other.aside)
