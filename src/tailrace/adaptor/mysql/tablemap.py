"""Table maps: how the binary log describes a table, before each statement's rows.

What is always there is how values are stored. Names, signs, character sets and the members of enums come as well with
`binlog_row_metadata = FULL`, some of them with `MINIMAL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 11, 12, 13, 15, 16, 17, 18, 19
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
_DETAIL_BYTES: Final = {
    **dict.fromkeys((TINY, SHORT, LONG, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR), 0),
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED), 1),
    **dict.fromkeys((VARCHAR, BIT, NEWDECIMAL, ENUM, SET, VAR_STRING, STRING, VARCHAR_COMPRESSED), 2),
}
_NUMBERS: Final = (TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR)
_CHARACTERS: Final = (STRING, VAR_STRING, VARCHAR, BLOB)
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_MEMBERS_DEFAULT_CHARSET, _MEMBERS_CHARSETS = 10, 11
_HEAD_BYTES: Final = 8
_LENGTHS: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}


class UnknownStorage(ValueError):
    """A column is stored in a way that is not known, so no row of its table can be read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One column: how its values are stored, and whatever else was told."""

    code: int
    detail: int
    """Two bytes that depend on the code: lengths, digits, bits."""
    name: str | None = None
    is_unsigned: bool | None = None
    collation: int | None = None
    members: tuple[bytes, ...] | None = None
    """Of an enum or a set."""


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table as it was when the rows that follow were written."""

    schema: str
    table: str
    shapes: tuple[Shape, ...]


def table_id(body: bytes) -> int:
    """The number by which rows refer to a map. Rows have it at the same place."""
    return int.from_bytes(body[:6], "little")


def table_name(body: bytes) -> tuple[str, str]:
    """Database and name of the table that a map is of."""
    rest = Bytes(body, _HEAD_BYTES)
    schema = rest.take(rest.number(1)).decode()
    rest.take(1)
    return schema, rest.take(rest.number(1)).decode()


def read_table_map(body: bytes, *, is_mariadb: bool) -> TableMap:
    """A map from the body of its event. Raises `UnknownStorage`."""
    rest = Bytes(body, _HEAD_BYTES)
    schema = rest.take(rest.number(1)).decode()
    rest.take(1)
    table = rest.take(rest.number(1)).decode()
    rest.take(1)
    codes = rest.take(rest.length())
    details = Bytes(rest.take(rest.length()))
    columns = [_storage(code, details) for code in codes]
    rest.take((len(codes) + 7) // 8)  # which columns may be null
    told = _Told([code for code, _ in columns], is_mariadb)
    while not rest.is_done():
        kind = rest.number(1)
        told.read(kind, Bytes(rest.take(rest.length())))
    shapes = tuple(told.shape(number, code, detail) for number, (code, detail) in enumerate(columns))
    return TableMap(schema, table, shapes)


def _storage(code: int, details: Bytes) -> tuple[int, int]:
    if code not in _DETAIL_BYTES:
        raise UnknownStorage(f"a column is stored in a way that is not known ({code})")
    size = _DETAIL_BYTES[code]
    if code not in (STRING, VAR_STRING, ENUM, SET):
        return code, details.number(size) if size else 0
    real, length = details.number(1), details.number(1)
    if real in (ENUM, SET):
        return real, length
    return STRING, length | (((real & 0x30) ^ 0x30) << 4)


class _Told:
    """What was told beyond how values are stored."""

    def __init__(self, codes: list[int], is_mariadb: bool) -> None:
        characters = (*_CHARACTERS, GEOMETRY) if is_mariadb else _CHARACTERS
        self._numbers = [at for at, code in enumerate(codes) if code in _NUMBERS]
        self._characters = [at for at, code in enumerate(codes) if code in characters]
        self._enums = [at for at, code in enumerate(codes) if code == ENUM]
        self._sets = [at for at, code in enumerate(codes) if code == SET]
        self._with_members = sorted([*self._enums, *self._sets])
        self._names: list[str] = []
        self._signs: dict[int, bool] = {}
        self._collations: dict[int, int] = {}
        self._members: dict[int, tuple[bytes, ...]] = {}

    def read(self, kind: int, value: Bytes) -> None:
        readers: dict[int, Callable[[Bytes], None]] = {
            _SIGNS: self._read_signs,
            _DEFAULT_CHARSET: lambda value: self._read_default_charset(self._characters, value),
            _CHARSETS: lambda value: self._read_charsets(self._characters, value),
            _MEMBERS_DEFAULT_CHARSET: lambda value: self._read_default_charset(self._with_members, value),
            _MEMBERS_CHARSETS: lambda value: self._read_charsets(self._with_members, value),
            _NAMES: self._read_names,
            _SETS: lambda value: self._read_members(self._sets, value),
            _ENUMS: lambda value: self._read_members(self._enums, value),
        }
        if kind in readers:
            readers[kind](value)

    def shape(self, number: int, code: int, detail: int) -> Shape:
        return Shape(
            code=code,
            detail=detail,
            name=self._names[number] if number < len(self._names) else None,
            is_unsigned=self._signs.get(number),
            collation=self._collations.get(number),
            members=self._members.get(number),
        )

    def _read_signs(self, value: Bytes) -> None:
        bits = value.rest()
        for place, number in enumerate(self._numbers):
            self._signs[number] = bool(bits[place // 8] & (0x80 >> place % 8))

    def _read_default_charset(self, numbers: list[int], value: Bytes) -> None:
        default = value.length()
        self._collations.update(dict.fromkeys(numbers, default))
        while not value.is_done():
            place = value.length()
            self._collations[numbers[place]] = value.length()

    def _read_charsets(self, numbers: list[int], value: Bytes) -> None:
        for number in numbers:
            self._collations[number] = value.length()

    def _read_names(self, value: Bytes) -> None:
        while not value.is_done():
            self._names.append(value.take(value.length()).decode())

    def _read_members(self, numbers: list[int], value: Bytes) -> None:
        for number in numbers:
            self._members[number] = tuple(value.take(value.length()) for _ in range(value.length()))


class Bytes:
    """Bytes that are read from the begin to the end."""

    __slots__ = ("_content", "at")

    def __init__(self, content: bytes, at: int = 0) -> None:
        self._content = content
        self.at = at

    def is_done(self) -> bool:
        return self.at >= len(self._content)

    def take(self, size: int) -> bytes:
        begin, self.at = self.at, self.at + size
        if self.at > len(self._content):
            raise UnknownStorage("an event of the binary log is shorter than it says")
        return self._content[begin : self.at]

    def rest(self) -> bytes:
        return self.take(len(self._content) - self.at)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def length(self) -> int:
        """A number that says itself how long it is."""
        first = self.number(1)
        return self.number(_LENGTHS[first]) if first in _LENGTHS else first


def present(bitmap: bytes, count: int) -> Iterator[bool]:
    """The bits of a bitmap, the lowest first."""
    return (bool(bitmap[number >> 3] & (1 << (number & 7))) for number in range(count))
