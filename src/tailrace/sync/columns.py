"""Columns: the values of many rows, column by column. Of which types they are is asked often, and looked for once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

Types = frozenset[type]
Row = tuple[Any, ...]


class Columns:
    """Values of rows; all columns have the same length."""

    __slots__ = ("_types", "values")

    def __init__(self, values: Iterable[Sequence[Any]], types: Iterable[Types | None] = ()) -> None:
        """`types` are those of the values, where they are known."""
        self.values = list(values)
        self._types = list(types) or [None] * len(self.values)

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Columns:
        return cls(zip(*rows, strict=True))

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.values[0]) if self.values else 0

    def types(self, place: int) -> Types:
        """The types of a column's values."""
        found = self._types[place]
        if found is None:
            found = self._types[place] = frozenset(map(type, self.values[place]))
        return found

    def put(self, place: int, values: Iterable[Any]) -> None:
        """Let a column have other values."""
        self.values[place] = list(values)
        self._types[place] = None

    def picked(self, places: Iterable[int]) -> Columns:
        """Some of the columns."""
        chosen = list(places)
        return Columns([self.values[place] for place in chosen], [self._types[place] for place in chosen])

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """The rows of all parts, one behind the other."""
        if len(parts) == 1:
            return parts[0]
        values = [list(chain.from_iterable(each)) for each in zip(*(part.values for part in parts), strict=True)]
        return cls(values, [frozenset[type]().union(*(p.types(place) for p in parts)) for place in range(len(values))])

    def rows(self) -> list[Row]:
        return list(zip(*self.values, strict=True))

    def row(self, place: int) -> Row:
        return tuple(column[place] for column in self.values)

    def text_length(self) -> int:
        """How long all texts are together, and bytes as they are written."""
        length = 0
        for place, column in enumerate(self.values):
            types = self.types(place)
            if types == {str}:
                length += sum(map(len, column))
            elif str in types or bytes in types:
                length += sum(len(value) for value in column if type(value) is str)
                length += sum(2 * len(value) for value in column if type(value) is bytes)
        return length
