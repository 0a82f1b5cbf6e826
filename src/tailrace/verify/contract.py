"""What a destination must offer to be compared with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

Piece = Mapping[str, Any]
"""A part of what is stored that one task reads by itself, in the destination's own terms; plain JSON."""


class Keeps(StrEnum):
    """What a column of a destination makes of the values that are put into it."""

    TEXT = "text"
    """Numbers become text."""
    NUMBER = "number"
    """Text that looks like a number becomes one."""
    ANYTHING = "anything"
    """Values stay what they are."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A namespace as a destination has it."""

    fields: Mapping[str, Keeps]
    key: tuple[str, ...]
    """The columns by which its rows are found, none when nothing tells them apart."""
    pieces: tuple[Piece, ...] = ()
    """All of its rows, each in one piece."""


class ReadBack(Protocol):
    """Reads what a writer has written. It is made on the driver and travels to tasks."""

    def find(self, namespace: str, key: tuple[str, ...]) -> Stored | None:
        """What there is of a namespace whose messages have this key; None when there is nothing. For the driver."""

    def read(self, piece: Piece, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with these fields as far as they exist. For tasks."""

    def as_stored(self, column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
        """A column of messages as it would be read after it was written. For tasks."""


@runtime_checkable
class Readable(Protocol):
    """Options of a writer whose destination can be read."""

    def read_back(self) -> ReadBack | str:
        """A reader of what was written, or why there is none."""
