"""Rows as the binary log has them, one value after the other, gathered by column.

What a copy would get from the server as text is put into the same text here, so that both are read alike.
"""

from __future__ import annotations

import json
import socket
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pymysqlreplication.json_binary import parse_json

from tailrace.adaptor.mysql import tablemap
from tailrace.adaptor.mysql.charsets import decoded
from tailrace.adaptor.mysql.columntype import ColumnType
from tailrace.adaptor.mysql.tablemap import Shape
from tailrace.adaptor.mysql.texts import time_text
from tailrace.adaptor.mysql.types import Kind

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads the value at a place; gives where the next one begins."""

_GROUP_DIGITS: Final = 9
_GROUP_BYTES: Final = 4
_LEFTOVER_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UTF8: Final = ("utf8mb4", "utf8mb3", "utf8", "ascii")


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of the rows of a table."""

    name: str
    kind: Kind
    read: Read
    gather: Callable[[Sequence[Any]], pa.Array[Any]]
    """Values that were read, as they travel."""
    is_wanted: bool = True


def cell(name: str, type_: ColumnType, kind: Kind, shape: Shape, *, is_wanted: bool = True) -> Cell:
    """How the values of a column are read."""
    return Cell(name, kind, _reader(type_, shape), _gatherer(type_, kind), is_wanted)


def rows(content: bytes, at: int, images: Sequence[Sequence[Cell]]) -> Iterator[tuple[list[Any], ...]]:
    """The rows of an event. Each has one image after the other: of an update the old row, then the new one."""
    while at < len(content):
        row: list[list[Any]] = []
        for cells in images:
            nulls = int.from_bytes(content[at : at + (len(cells) + 7) // 8], "little")
            at += (len(cells) + 7) // 8
            values: list[Any] = []
            for each in cells:
                if nulls & 1:
                    value = None
                else:
                    value, at = each.read(content, at)
                nulls >>= 1
                values.append(value)
            row.append(values)
        yield tuple(row)


def _gatherer(type_: ColumnType, kind: Kind) -> Callable[[Sequence[Any]], pa.Array[Any]]:
    if kind.is_counted:
        return lambda values: pa.array(values, kind.arrow)
    if kind.is_binary:
        return lambda values: pa.array(values, pa.binary())
    if type_.is_text:
        return lambda values: kind.convert(_texts(values, type_.charset))
    return lambda values: kind.convert(pa.array(values, pa.string()))


def _texts(values: Sequence[bytes | None], charset: str) -> pa.Array[Any]:
    if charset in _UTF8:
        return pa.array(values, pa.binary()).cast(pa.string())
    return pa.array([None if value is None else decoded(value, charset) for value in values], pa.string())


def _reader(type_: ColumnType, shape: Shape) -> Read:
    code, detail = shape.code, shape.detail
    if code in _NUMBERS:
        signed, unsigned = _NUMBERS[code]
        return _number(unsigned if type_.is_unsigned else signed)
    if code == tablemap.INT24:
        return _int24(is_unsigned=type_.is_unsigned)
    if code in (tablemap.BLOB, tablemap.GEOMETRY, tablemap.JSON):
        content = _prefixed(detail)
        return _mapped(content, _json) if code == tablemap.JSON else content
    if code in (tablemap.VARCHAR, tablemap.STRING):
        return _string(type_, _prefixed(1 if detail < 256 else 2), detail)
    if code in (tablemap.ENUM, tablemap.SET):
        return _enum(type_.members, detail) if code == tablemap.ENUM else _set(type_.members, detail)
    if code == tablemap.NEWDECIMAL:
        return _decimal(detail & 0xFF, detail >> 8)
    if code == tablemap.BIT:
        return _bits((detail & 0xFF) + (detail >> 8) * 8)
    if code in _FRACTIONS:
        return _FRACTIONS[code](detail)
    return _OLD[code]


def _number(form: str) -> Read:
    packed = struct.Struct(form)
    unpack, size = packed.unpack_from, packed.size

    def read(content: bytes, at: int) -> tuple[Any, int]:
        return unpack(content, at)[0], at + size

    return read


def _int24(*, is_unsigned: bool) -> Read:
    return lambda content, at: (int.from_bytes(content[at : at + 3], "little", signed=not is_unsigned), at + 3)


def _prefixed(size: int) -> Read:
    """Bytes after their length."""

    def read(content: bytes, at: int) -> tuple[Any, int]:
        begin = at + size
        end = begin + int.from_bytes(content[at:begin], "little")
        return content[begin:end], end

    return read


def _mapped(read: Read, change: Callable[[Any], Any]) -> Read:
    def read_and_change(content: bytes, at: int) -> tuple[Any, int]:
        value, end = read(content, at)
        return change(value), end

    return read_and_change


def _string(type_: ColumnType, read: Read, length: int) -> Read:
    """The log leaves out zeros at the end of binary strings of a fixed length."""
    if type_.base == "binary":
        return _mapped(read, lambda value: value.ljust(length, b"\0"))
    if type_.base == "uuid":
        return _mapped(read, lambda value: str(uuid.UUID(bytes=value.ljust(16, b"\0"))))
    if type_.base in ("inet6", "inet4"):
        family = socket.AF_INET6 if type_.base == "inet6" else socket.AF_INET
        return _mapped(read, lambda value: socket.inet_ntop(family, value.ljust(length, b"\0")))
    return read


def _enum(members: Sequence[str], size: int) -> Read:
    """The number 0 is the empty text that stands for a value that was none of the members."""
    words = ("", *members)
    return lambda content, at: (words[int.from_bytes(content[at : at + size], "little")], at + size)


def _set(members: Sequence[str], size: int) -> Read:
    def read(content: bytes, at: int) -> tuple[Any, int]:
        bits = int.from_bytes(content[at : at + size], "little")
        return ",".join(member for number, member in enumerate(members) if bits >> number & 1), at + size

    return read


def _bits(count: int) -> Read:
    size = (count + 7) // 8
    return lambda content, at: (format(int.from_bytes(content[at : at + size], "big"), f"0{count}b"), at + size)


def _decimal(digits: int, scale: int) -> Read:
    """Groups of nine digits in four bytes each; what is left over comes first before the point, last behind it. The
    highest bit says that it is not negative; a negative one has all bits turned round."""
    groups, leading = divmod(digits - scale, _GROUP_DIGITS)
    small_groups, trailing = divmod(scale, _GROUP_DIGITS)
    widths = [
        *([(leading, _LEFTOVER_BYTES[leading])] if leading else []),
        *[(_GROUP_DIGITS, _GROUP_BYTES)] * (groups + small_groups),
        *([(trailing, _LEFTOVER_BYTES[trailing])] if trailing else []),
    ]
    size = sum(width for _, width in widths)
    flip = (1 << size * 8) - 1

    def read(content: bytes, at: int) -> tuple[Any, int]:
        number = int.from_bytes(content[at : at + size], "big") ^ 1 << size * 8 - 1
        is_negative = not content[at] & 0x80
        stored = (number ^ flip if is_negative else number).to_bytes(size, "big")
        written, place = "", 0
        for count, width in widths:
            written += f"{int.from_bytes(stored[place : place + width], 'big'):0{count}d}"
            place += width
        whole, part = (written[:-scale], written[-scale:]) if scale else (written, "")
        short = whole.lstrip("0") or "0"
        text = f"{short}.{part}" if scale else short
        return f"-{text}" if is_negative else text, at + size

    return read


def _fraction(content: bytes, at: int, digits: int) -> str:
    """The digits after the point of a second, with the point."""
    size = (digits + 1) // 2
    number = int.from_bytes(content[at : at + size], "big")
    return f".{number:0{size * 2}d}"[: digits + 1] if digits else ""


def _datetime2(digits: int) -> Read:
    size = 5 + (digits + 1) // 2

    def read(content: bytes, at: int) -> tuple[Any, int]:
        packed = int.from_bytes(content[at : at + 5], "big") - 0x8000000000
        day, time = packed >> 17, packed & 0x1FFFF
        year, month = divmod(day >> 5, 13)
        date = f"{year:04d}-{month:02d}-{day & 31:02d}"
        clock = f"{time >> 12:02d}:{time >> 6 & 63:02d}:{time & 63:02d}"
        return f"{date} {clock}{_fraction(content, at + 5, digits)}", at + size

    return read


def _timestamp2(digits: int) -> Read:
    size = 4 + (digits + 1) // 2

    def read(content: bytes, at: int) -> tuple[Any, int]:
        seconds = int.from_bytes(content[at : at + 4], "big")
        return _moment(seconds) + _fraction(content, at + 4, digits), at + size

    return read


def _time2(digits: int) -> Read:
    fraction_bytes = (digits + 1) // 2
    size, shift = 3 + fraction_bytes, 8 * fraction_bytes
    unit: int = 10 ** (6 - 2 * fraction_bytes)

    def read(content: bytes, at: int) -> tuple[Any, int]:
        packed = int.from_bytes(content[at : at + size], "big") - (0x800000 << shift)
        clock, fraction = abs(packed) >> shift, abs(packed) & (1 << shift) - 1
        seconds = (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
        micros = seconds * 1_000_000 + fraction * unit
        return time_text(-micros if packed < 0 else micros, digits), at + size

    return read


def _date(content: bytes, at: int) -> tuple[Any, int]:
    packed = int.from_bytes(content[at : at + 3], "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}", at + 3


def _year(content: bytes, at: int) -> tuple[Any, int]:
    return content[at] + 1900 if content[at] else 0, at + 1


def _old_datetime(content: bytes, at: int) -> tuple[Any, int]:
    written = f"{int.from_bytes(content[at : at + 8], 'little'):014d}"
    date = f"{written[:4]}-{written[4:6]}-{written[6:8]}"
    return f"{date} {written[8:10]}:{written[10:12]}:{written[12:]}", at + 8


def _old_time(content: bytes, at: int) -> tuple[Any, int]:
    packed = int.from_bytes(content[at : at + 3], "little", signed=True)
    rest, second = divmod(abs(packed), 100)
    hour, minute = divmod(rest, 100)
    return f"{'-' if packed < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}", at + 3


def _old_timestamp(content: bytes, at: int) -> tuple[Any, int]:
    return _moment(int.from_bytes(content[at : at + 4], "little")), at + 4


def _moment(seconds: int) -> str:
    if not seconds:
        return "0000-00-00 00:00:00"
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


def _json(content: bytes) -> str:
    """MySQL's own form of JSON, written as MySQL writes it."""
    value = parse_json(content[0], content[1:]) if content else None
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.decode()
    return float(value) if isinstance(value, Decimal) else value if isinstance(value, _JSON) else str(value)


_JSON: Final = (str, int, float, type(None))
_NUMBERS: Final = {
    tablemap.TINY: ("<b", "<B"),
    tablemap.SHORT: ("<h", "<H"),
    tablemap.LONG: ("<i", "<I"),
    tablemap.LONGLONG: ("<q", "<Q"),
    tablemap.FLOAT: ("<f", "<f"),
    tablemap.DOUBLE: ("<d", "<d"),
}
_FRACTIONS: Final = {tablemap.DATETIME2: _datetime2, tablemap.TIMESTAMP2: _timestamp2, tablemap.TIME2: _time2}
_OLD: Final[dict[int, Read]] = {
    tablemap.DATE: _date,
    tablemap.YEAR: _year,
    tablemap.DATETIME: _old_datetime,
    tablemap.TIME: _old_time,
    tablemap.TIMESTAMP: _old_timestamp,
}
