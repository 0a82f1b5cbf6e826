"""What two nodes tell each other: which versions of which rows, the rows themselves, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

Key: TypeAlias = tuple[Any, ...]
"""The key of a row, a value for each of its columns."""

VersionId: TypeAlias = int | str
"""A last-changed time, or a hash."""

ANY_NODE: Final = -1
"""The node of a version when whoever tells of it does not say: then the version id alone counts."""

TIME_MAX: Final = 1 << 53
"""Milliseconds; what is later is no time, and could not be followed by anything."""

PAGE_LENGTH_MAX: Final = 4 << 20
"""Rows of which the texts and bytes are longer than this are not sent together."""

ROW_STAMP: Final = ("doorTime", "doorNode", "doorDeleted", "doorVersion")
"""What a row carries behind its own columns: when it was changed and where, whether it is gone, its version id."""


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
class RowBatch:
    """Rows of one table: its columns in order, and then those of `ROW_STAMP`. Of one that is gone the key counts."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    unknown: frozenset[str] = frozenset()
    """Columns that the sender has and the receiver has not."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_cut(self) -> bool:
        """Whether there may be fewer rows than were asked for only because they are large. Texts are all that counts,
        and their sum need not be exact: whoever asked in vain has lost nothing but a question."""
        return text_length(self.rows) > PAGE_LENGTH_MAX // 2


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of rows that came; those that it does not name are here now."""

    refused: list[Ack] = field(default_factory=list)
    """The receive view did not want them; they are in quarantine."""
    older: list[Tracker] = field(default_factory=list)
    """A newer version was here already."""
    left: list[Ack] = field(default_factory=list)
    """They cannot be taken, and there is no room in quarantine: their sender keeps them, and sends them again."""

    def extend(self, other: Receipt) -> None:
        self.refused.extend(other.refused)
        self.older.extend(other.older)
        self.left.extend(other.left)


def text_length(rows: Iterable[tuple[Any, ...]]) -> int:
    """How long all texts are together, and bytes as they are written."""
    length = 0
    for column in zip(*rows, strict=True):
        types = set(map(type, column))
        if types == {str}:
            length += sum(map(len, column))
        elif str in types or bytes in types:
            length += sum(len(value) for value in column if type(value) is str)
            length += sum(2 * len(value) for value in column if type(value) is bytes)
    return length
