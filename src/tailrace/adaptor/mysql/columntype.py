"""Types of columns, whether the catalog describes them or the binary log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace.adaptor.mysql import tablemap
from tailrace.adaptor.mysql.charsets import BINARY, decoded
from tailrace.adaptor.mysql.tablemap import Shape

INTEGERS: Final = {
    "tinyint": tablemap.TINY,
    "smallint": tablemap.SHORT,
    "mediumint": tablemap.INT24,
    "int": tablemap.LONG,
    "bigint": tablemap.LONGLONG,
}
TEXTS: Final = {"tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4}
"""With the number of bytes that a value's length has."""
BLOBS: Final = {"tinyblob": 1, "blob": 2, "mediumblob": 3, "longblob": 4}
MOMENTS: Final = {
    "datetime": (tablemap.DATETIME2, tablemap.DATETIME),
    "timestamp": (tablemap.TIMESTAMP2, tablemap.TIMESTAMP),
    "time": (tablemap.TIME2, tablemap.TIME),
}
"""Each as it is stored now, and as tables have it that were made long ago."""
_PLAIN: Final = {
    "float": (tablemap.FLOAT, 4),
    "double": (tablemap.DOUBLE, 8),
    "year": (tablemap.YEAR, 0),
    "date": (tablemap.DATE, 0),
    "json": (tablemap.JSON, 4),
    "geometry": (tablemap.GEOMETRY, 4),
    "uuid": (tablemap.STRING, 16),
    "inet6": (tablemap.STRING, 16),
    "inet4": (tablemap.STRING, 4),
}
_GEOMETRIES: Final = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type, with what belongs to it."""

    base: str
    """Its name without lengths: `int`, `varchar`; all of geometry is `geometry`."""
    is_unsigned: bool = False
    length: int = 0
    """Bytes of a string at most, bits of a `bit`."""
    digits: int = 0
    scale: int = 0
    """Digits after the point, of a decimal or of seconds."""
    charset: str = ""
    members: tuple[str, ...] = ()
    is_json: bool = False
    """Whether it is MariaDB's JSON, which is text that is checked."""

    @property
    def is_text(self) -> bool:
        return self.base in TEXTS or self.base in ("char", "varchar")

    @property
    def is_binary(self) -> bool:
        return self.base in BLOBS or self.base in ("binary", "varbinary", "geometry")

    @property
    def storage(self) -> tuple[int, int]:
        """How the binary log stores it, as `Shape` has it."""
        if self.base in INTEGERS:
            return INTEGERS[self.base], 0
        if self.base in MOMENTS:
            return MOMENTS[self.base][0], self.scale
        if self.base in TEXTS or self.base in BLOBS:
            return tablemap.BLOB, {**TEXTS, **BLOBS}[self.base]
        if self.base in ("varchar", "varbinary"):
            return tablemap.VARCHAR, self.length
        if self.base in ("char", "binary"):
            return tablemap.STRING, self.length
        if self.base == "decimal":
            return tablemap.NEWDECIMAL, self.digits | self.scale << 8
        if self.base == "bit":
            return tablemap.BIT, self.length % 8 | self.length // 8 << 8
        if self.base == "enum":
            return tablemap.ENUM, 1 if len(self.members) < 256 else 2
        if self.base == "set":
            size = (len(self.members) + 7) // 8
            return tablemap.SET, size if size <= 4 else 8
        return _PLAIN.get(self.base, (0, 0))

    def fits(self, shape: Shape, charsets: Mapping[int, str]) -> bool:
        """Whether a column that is described so can be of this type."""
        code, detail = self.storage
        is_old = self.base in MOMENTS and shape.code == MOMENTS[self.base][1] and self.scale == 0
        if not is_old and (code, detail) != (shape.code, shape.detail):
            return False
        if shape.is_unsigned is not None and self.base in INTEGERS and shape.is_unsigned != self.is_unsigned:
            return False
        if shape.collation is not None and charsets.get(shape.collation) != (self.charset or BINARY):
            return False
        return shape.members is None or _members(shape, charsets) == self.members


def from_catalog(row: Mapping[str, Any], *, is_json: bool = False) -> ColumnType:
    """The type of a row of information_schema.COLUMNS."""
    base, whole = row["DATA_TYPE"].lower(), row["COLUMN_TYPE"]
    base = "geometry" if base in _GEOMETRIES else base
    members = _MEMBER.findall(whole) if base in ("enum", "set") else []
    bits = int(row["NUMERIC_PRECISION"] or 0) if base == "bit" else 0
    is_fraction = base in MOMENTS
    return ColumnType(
        base=base,
        is_unsigned="unsigned" in whole and base in INTEGERS,
        length=bits or (int(row["CHARACTER_OCTET_LENGTH"] or 0) if base in _WITH_LENGTH else 0),
        digits=int(row["NUMERIC_PRECISION"] or 0) if base == "decimal" else 0,
        scale=int((row["DATETIME_PRECISION"] if is_fraction else row["NUMERIC_SCALE"]) or 0)
        if is_fraction or base == "decimal"
        else 0,
        charset=row["CHARACTER_SET_NAME"] or "",
        members=tuple(member.replace("''", "'") for member in members),
        is_json=is_json,
    )


_WITH_LENGTH: Final = ("char", "varchar", "binary", "varbinary")


def from_shape(shape: Shape, charsets: Mapping[int, str]) -> ColumnType | None:
    """The type that a description in the binary log stands for, None when it does not say enough."""
    code, detail = shape.code, shape.detail
    for base, stored in INTEGERS.items():
        if code == stored:
            return None if shape.is_unsigned is None else ColumnType(base, is_unsigned=shape.is_unsigned)
    for base, stored_as in MOMENTS.items():
        if code in stored_as:
            return ColumnType(base, scale=detail)
    if code == tablemap.NEWDECIMAL:
        return ColumnType("decimal", digits=detail & 0xFF, scale=detail >> 8)
    if code == tablemap.BIT:
        return ColumnType("bit", length=(detail & 0xFF) + (detail >> 8) * 8)
    if code in (tablemap.FLOAT, tablemap.DOUBLE, tablemap.YEAR, tablemap.DATE, tablemap.JSON, tablemap.GEOMETRY):
        return ColumnType(next(base for base, (stored, _) in _PLAIN.items() if stored == code))
    charset = None if shape.collation is None else charsets.get(shape.collation)
    if charset is None:
        return None
    if code in (tablemap.ENUM, tablemap.SET):
        if shape.members is None:
            return None
        return ColumnType(
            "enum" if code == tablemap.ENUM else "set", members=_members(shape, charsets), charset=charset
        )
    return _string(code, detail, charset)


def _string(code: int, detail: int, charset: str) -> ColumnType | None:
    is_binary = charset == BINARY
    told = "" if is_binary else charset
    if code == tablemap.BLOB:
        sizes = BLOBS if is_binary else TEXTS
        return ColumnType(next(base for base, size in sizes.items() if size == detail), charset=told)
    if code == tablemap.VARCHAR:
        return ColumnType("varbinary" if is_binary else "varchar", length=detail, charset=told)
    if code == tablemap.STRING:
        return ColumnType("binary" if is_binary else "char", length=detail, charset=told)
    return None


def _members(shape: Shape, charsets: Mapping[int, str]) -> tuple[str, ...]:
    charset = charsets.get(shape.collation, "utf8mb4") if shape.collation is not None else "utf8mb4"
    return tuple(member.decode() if charset == BINARY else decoded(member, charset) for member in shape.members or ())
