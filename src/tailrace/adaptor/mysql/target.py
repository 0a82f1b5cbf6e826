"""A table that is written: made, widened and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pymysql

from tailrace.adaptor.keys import no_unique_key
from tailrace.adaptor.mysql import catalog, writesql
from tailrace.adaptor.mysql.columntype import INTEGERS
from tailrace.adaptor.mysql.server import execute, is_mariadb, version
from tailrace.adaptor.mysql.types import ZONED
from tailrace.adaptor.sqltype import declared
from tailrace.errors import TailraceError
from tailrace.log.documents import is_json

KEY_LENGTH_MAX: Final = 768
"""An index of InnoDB has room for so many characters."""
_KEY_BYTES_MAX: Final = 3072
_CHARACTER_BYTES: Final = 4
_BITS: Final = re.compile(r"bit\((\d+)\)")
_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")
_DIGITS_MAX: Final = 65
_SCALE_MAX: Final = 30
_ARROW_DIGITS_MAX: Final = 38
_BITS_MAX: Final = 64
_FIXED_BYTES_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows of a namespace go."""

    database: str
    table: str
    key: tuple[str, ...]
    columns: Mapping[str, catalog.Column]
    has_other_uniques: bool
    """Whether rows can be the same by something else than the key."""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Making:
    """How tables are made."""

    collation: str
    """Under which texts of a key differ when they are not the same, letter by letter."""
    key_length: int


def making(connection: pymysql.Connection[Any], key_length: int) -> Making:
    """Most collations take `a` for `A`, and even binary ones `a` for `a `, but for those that do not pad."""
    if is_mariadb(connection):
        return Making("utf8mb4_nopad_bin", key_length)
    return Making("utf8mb4_0900_bin" if version(connection) >= (8, 0) else "utf8mb4_bin", key_length)


def place_of(namespace: str, database: str, default: str) -> tuple[str, str]:
    """The database and the table that a namespace goes to; all go to `database` when one is given."""
    head, _, rest = namespace.partition(".")
    found = (database or head, rest) if rest else (database or default, namespace)
    if not found[0]:
        what = f"{namespace} names no database"
        raise TailraceError("destination.refused", what, hint="say `into_database`, or put one into `url`")
    return found


def find(connection: pymysql.Connection[Any], database: str, table: str, key: tuple[str, ...]) -> Destination | None:
    """The table as it is, None when there is none."""
    found = catalog.find_table(connection, database, table)
    if found is None:
        return None
    columns = {column.name: column for column in found.columns}
    others = [unique for unique in found.uniques if set(unique) != set(key)]
    return Destination(database, table, key, columns, bool(others))


def missing(found: Destination, fields: pa.Schema, how: Making) -> list[str]:
    """The statements that add columns, and widen those that have no room for what comes."""
    statements = []
    for field in fields:
        column = found.columns.get(field.name)
        wanted = sql_type(field, how, key=found.key)
        if column is None:
            statements.append(writesql.add_column(found.database, found.table, field.name, wanted))
        elif not column.is_generated and (wide := _wider(column, wanted)) is not None:
            suffix = "" if column.is_nullable else " NOT NULL"
            statements.append(writesql.widen_column(found.database, found.table, field.name, wide + suffix))
    return statements


def create(
    connection: pymysql.Connection[Any], database: str, table: str, fields: pa.Schema, key: tuple[str, ...], how: Making
) -> None:
    """A table for these fields."""
    execute(connection, writesql.create_database(database))
    columns = {field.name: sql_type(field, how, key=key) for field in fields}
    execute(connection, writesql.create_table(database, table, columns, key))


def check_key(connection: pymysql.Connection[Any], found: Destination, namespace: str) -> None:
    """Refuse a table in which the key identifies nothing."""
    table = catalog.find_table(connection, found.database, found.table)
    if not found.key or (table is not None and any(set(unique) == set(found.key) for unique in table.uniques)):
        return
    cure = writesql.add_unique(found.database, found.table, found.key)
    raise no_unique_key(found.name, found.key, namespace, cure)


def sql_type(field: pa.Field[Any], how: Making, key: tuple[str, ...] = ()) -> str:
    """The type of a column for this field: what it was declared as, if MySQL has that, else what fits."""
    found = _declared_type(declared(field), field.type) or ("json" if is_json(field) else fitting(field.type))
    if field.name not in key:
        return found
    if found in ("longtext", "json"):
        room = _KEY_BYTES_MAX // _CHARACTER_BYTES // max(len(key), 1)
        return f"varchar({min(how.key_length, room)}) CHARACTER SET utf8mb4 COLLATE {how.collation}"
    return f"varbinary({min(how.key_length, _KEY_BYTES_MAX // max(len(key), 1))})" if found == "longblob" else found


def fitting(type_: pa.DataType) -> str:
    """The type that holds all values of an Arrow type."""
    kind = pa.types
    for is_it, name in _FITTING:
        if is_it(type_):
            return name
    detail: Any = type_
    if kind.is_decimal(type_):
        fits = 0 <= detail.scale <= min(_SCALE_MAX, detail.precision) and detail.precision <= _DIGITS_MAX
        return f"decimal({detail.precision},{detail.scale})" if fits else "longtext"
    if kind.is_fixed_size_binary(type_):
        return f"binary({detail.byte_width})" if 0 < detail.byte_width <= _FIXED_BYTES_MAX else "longblob"
    if kind.is_dictionary(type_):
        return fitting(detail.value_type)
    return "json" if kind.is_nested(type_) else "longtext"


_FITTING: Final = (
    (pa.types.is_boolean, "tinyint(1)"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_uint8, "tinyint unsigned"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint16, "smallint unsigned"),
    (pa.types.is_int32, "int"),
    (pa.types.is_uint32, "int unsigned"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint64, "bigint unsigned"),
    (pa.types.is_float16, "float"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
    (pa.types.is_time, "time(6)"),
    (pa.types.is_duration, "time(6)"),
    (pa.types.is_binary, "longblob"),
    (pa.types.is_large_binary, "longblob"),
    (pa.types.is_binary_view, "longblob"),
)


def _declared_type(said: str | None, arrow: pa.DataType) -> str | None:
    if said is None:
        return None
    is_text = pa.types.is_string(arrow) or pa.types.is_large_string(arrow)
    if said == ZONED and pa.types.is_timestamp(arrow):
        return "timestamp(6) NULL DEFAULT NULL"
    if said == "year" and pa.types.is_integer(arrow):
        return "year"
    if not is_text:
        return None
    if said in ("json", "jsonb"):
        return "json"
    if said == "uuid":
        return "char(36) CHARACTER SET ascii"
    if (bits := _BITS.fullmatch(said)) and 0 < int(bits[1]) <= _BITS_MAX:
        return f"bit({bits[1]})"
    if numeric := _NUMERIC.fullmatch(said):
        digits, scale = int(numeric[1]), int(numeric[2])
        # One of fewer digits came as text because it may be NaN, for which a decimal has no room.
        if _ARROW_DIGITS_MAX < digits <= _DIGITS_MAX and scale <= _SCALE_MAX:
            return f"decimal({digits},{scale})"
    return None


_WIDTHS: Final = {name: width for width, name in enumerate(INTEGERS)}
_WIDER: Final = {
    **dict.fromkeys(INTEGERS, ("decimal", "longtext")),
    "float": ("double", "longtext"),
    "double": ("longtext",),
    "decimal": ("longtext",),
    "date": ("datetime", "longtext"),
    "datetime": ("longtext",),
    "time": ("longtext",),
    "year": ("smallint", "int", "bigint", "longtext"),
    "bit": ("longtext",),
    "binary": ("longblob",),
}


def _wider(column: catalog.Column, wanted: str) -> str | None:
    """The type that a column must get to hold what comes, None when it can stay."""
    base = re.split(r"[ (]", wanted, maxsplit=1)[0]
    present = column.type
    if present.base in INTEGERS and base in INTEGERS:
        return _wider_integer(present.base, present.is_unsigned, base, "unsigned" in wanted)
    if present.base == base == "decimal":
        return _wider_decimal(present.digits, present.scale, wanted)
    return wanted if base in _WIDER.get(present.base, ()) else None


def _wider_integer(present: str, is_unsigned: bool, wanted: str, wants_unsigned: bool) -> str | None:
    widest = max(present, wanted, key=lambda name: _WIDTHS[name])
    sign = " unsigned" if is_unsigned and wants_unsigned else ""
    if is_unsigned == wants_unsigned:
        return None if widest == present else widest + sign
    unsigned, signed = (present, wanted) if is_unsigned else (wanted, present)
    if _WIDTHS[signed] > _WIDTHS[unsigned]:
        return None if not is_unsigned else signed
    order = list(INTEGERS)
    above = order[_WIDTHS[unsigned] + 1 :]
    return above[0] if above else "decimal(20,0)"


def _wider_decimal(digits: int, scale: int, wanted: str) -> str | None:
    more, finer = (int(part) for part in wanted.partition("(")[2].rstrip(")").split(","))
    whole, part = max(digits - scale, more - finer), max(scale, finer)
    if (whole, part) == (digits - scale, scale):
        return None
    return f"decimal({whole + part},{part})" if whole + part <= _DIGITS_MAX and part <= _SCALE_MAX else "longtext"
