"""The tables of a flatbuffer, in which Arrow says what a message has. They come from outside: what points outside of
them is a `struct.error` or `ValueError`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

_PAIR: Final = struct.Struct("<qq")


class Table:
    """A table of a flatbuffer."""

    def __init__(self, content: bytes, place: int) -> None:
        self._content = content
        self._place = place
        (back,) = struct.unpack_from("<i", content, place)
        self._fields = place - back
        (self._size,) = struct.unpack_from("<H", content, _inside(self._fields))

    @classmethod
    def root(cls, content: bytes) -> Table:
        """The table in which all others are."""
        return cls(content, _at(content, 0))

    def number(self, field: int, form: str) -> int:
        place = self._field(field)
        return int(struct.unpack_from(form, self._content, place)[0]) if place else 0

    def table(self, field: int) -> Table | None:
        place = self._field(field)
        return Table(self._content, _at(self._content, place)) if place else None

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structures, each of two long numbers."""
        place = self._field(field)
        if not place:
            return
        begin = _at(self._content, place)
        (count,) = struct.unpack_from("<I", self._content, begin)
        for number in range(count):
            yield _PAIR.unpack_from(self._content, begin + 4 + number * _PAIR.size)

    def tables(self, field: int) -> Iterator[Table]:
        """A vector of tables."""
        place = self._field(field)
        begin = _at(self._content, place) if place else 0
        for number in range(self.length(field)):
            yield Table(self._content, _at(self._content, begin + 4 + number * 4))

    def length(self, field: int) -> int:
        """How many parts a vector has, or bytes a text."""
        place = self._field(field)
        return int(struct.unpack_from("<I", self._content, _at(self._content, place))[0]) if place else 0

    def _field(self, field: int) -> int:
        """Where a field is; 0 when there is none."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        (offset,) = struct.unpack_from("<H", self._content, _inside(self._fields + entry))
        return self._place + int(offset) if offset else 0


def _at(content: bytes, place: int) -> int:
    """Where an offset leads that is kept at a place."""
    (offset,) = struct.unpack_from("<I", content, place)
    return place + int(offset)


def _inside(place: int) -> int:
    if place < 0:
        raise ValueError("a message of Arrow's points before itself")
    return place
