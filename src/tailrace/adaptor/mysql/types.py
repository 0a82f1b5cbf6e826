"""Types: what becomes of each of MySQL's types in Arrow. `docs/reference/adaptors/mysql.md` has the same as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.converting import Convert, cast_to
from tailrace.adaptor.mysql import texts
from tailrace.adaptor.mysql.columntype import INTEGERS, ColumnType
from tailrace.adaptor.sqltype import with_declared

DECIMAL_DIGITS: Final = 38
"""More digits have no room in the decimals that Spark and Parquet know."""
ZONED: Final = "timestamp with time zone"
"""What a TIMESTAMP is marked with: the database keeps it in UTC and shows it in the zone of the session."""


class ZeroDates(StrEnum):
    """How dates are read that are none, such as 0000-00-00 or 2024-02-00."""

    ERROR = "error"
    """They stop the pipeline, naming the column."""
    NULL = "null"
    TEXT = "text"
    """All dates, datetimes and timestamps are read as text, as the server writes them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of a column travel."""

    arrow: pa.DataType
    convert: Convert
    """From what the server writes."""
    declared: str | None = None
    """The SQL type, where the Arrow type does not say it."""
    ask: str = "{}"
    """How a copy asks for it."""
    is_binary: bool = False
    """Whether the server writes bytes and not text."""
    is_counted: bool = False
    """Whether the binary log has numbers that need no conversion."""

    def field(self, name: str) -> pa.Field[Any]:
        return with_declared(pa.field(name, self.arrow), self.declared)


@lru_cache(maxsize=4096)
def kind_of(type_: ColumnType, zero_dates: ZeroDates = ZeroDates.ERROR) -> Kind | None:
    """How a column of this type travels, None when nobody knows."""
    if type_.base in INTEGERS:
        return _counted(_INTEGERS[type_.base][type_.is_unsigned])
    if type_.base in ("date", "datetime", "timestamp"):
        return _moment(type_.base, zero_dates)
    if type_.base == "decimal":
        return _decimal(type_)
    if type_.base == "bit":
        digits = f"LPAD(BIN({{}} + 0), {type_.length}, '0')"
        return Kind(pa.string(), cast_to(pa.string()), declared=f"bit({type_.length})", ask=digits)
    if type_.is_text or type_.base == "json":
        is_json = type_.is_json or type_.base == "json"
        return Kind(pa.string(), cast_to(pa.string()), declared="json" if is_json else None)
    if type_.is_binary:
        return Kind(pa.binary(), cast_to(pa.binary()), is_binary=True)
    return _KINDS.get(type_.base)


def _counted(arrow: pa.DataType, declared: str | None = None) -> Kind:
    return Kind(arrow, cast_to(arrow), declared=declared, is_counted=True)


def _moment(base: str, zero_dates: ZeroDates) -> Kind:
    if zero_dates is ZeroDates.TEXT:
        return Kind(pa.string(), cast_to(pa.string()))
    arrow, declared = _MOMENTS[base]
    return Kind(arrow, texts.moments(arrow, nulls=zero_dates is ZeroDates.NULL), declared=declared)


def _decimal(type_: ColumnType) -> Kind:
    if type_.digits > DECIMAL_DIGITS:
        return Kind(pa.string(), cast_to(pa.string()), declared=f"numeric({type_.digits},{type_.scale})")
    arrow = pa.decimal128(type_.digits, type_.scale)
    return Kind(arrow, cast_to(arrow))


_INTEGERS: Final = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
}
_MOMENTS: Final[dict[str, tuple[pa.DataType, str | None]]] = {
    "date": (pa.date32(), None),
    "datetime": (pa.timestamp("us"), None),
    "timestamp": (pa.timestamp("us", "UTC"), ZONED),
}
_KINDS: Final[dict[str, Kind]] = {
    # Asked for as they are, floats come with six digits only.
    "float": Kind(pa.float32(), texts.singles, ask="{} * 1e0", is_counted=True),
    "double": _counted(pa.float64()),
    "year": _counted(pa.int16(), "year"),
    "time": Kind(pa.duration("us"), texts.durations),
    "enum": Kind(pa.string(), cast_to(pa.string())),
    "set": Kind(pa.string(), cast_to(pa.string())),
    "uuid": Kind(pa.string(), cast_to(pa.string()), declared="uuid"),
    "inet4": Kind(pa.string(), cast_to(pa.string()), declared="inet"),
    "inet6": Kind(pa.string(), cast_to(pa.string()), declared="inet"),
}
