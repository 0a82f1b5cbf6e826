"""A table that is written: made, widened and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql

from tailrace.adaptor.keys import no_unique_key
from tailrace.adaptor.postgres import writesql
from tailrace.adaptor.sqltype import declared
from tailrace.log.documents import is_json

RECEIVE_VIEW: Final = "_ReceiveView"
_SAFE_TYPE: Final = re.compile(r"[a-z_][a-z0-9_]*( [a-z]+)*(\(\d+(,-?\d+)?\))?(\[\])?")
"""What a type that a source has named may look like. It is looked up before it is used, but first of all this."""
_DECIMAL_DIGITS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """A column of a destination."""

    kind: str
    """Its type, without length or precision."""
    type_name: tuple[str, str]
    """Schema and name of its type, for casts: `bit` by name has no length of 1, as the word has."""
    whole: str
    """Its type, with length and precision."""
    is_generated: bool


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows of a namespace go."""

    schema: str
    table: str
    into: sql.Composable
    """The table, or its receive view."""
    delete_from: sql.Composable
    is_view: bool
    key: tuple[str, ...]
    columns: Mapping[str, Place]

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


def place_of(namespace: str, schema: str = "") -> tuple[str, str]:
    """The schema and the table that a namespace goes to; all go to `schema` when one is given."""
    head, _, rest = namespace.partition(".")
    return (schema or head, rest) if rest else (schema or "public", namespace)


def find(connection: psycopg.Connection[Any], schema: str, table: str, key: tuple[str, ...]) -> Destination | None:
    """The table as it is, None when there is none."""
    columns = _columns(connection, schema, table)
    view = table + RECEIVE_VIEW
    through = _columns(connection, schema, view)
    if not columns and not through:
        return None
    named, viewed = sql.Identifier(schema, table), sql.Identifier(schema, view)
    deletes = bool(through) and (not columns or _deletes(connection, viewed))
    return Destination(
        schema=schema,
        table=table,
        into=viewed if through else named,
        delete_from=viewed if deletes else named,
        is_view=bool(through),
        key=key,
        columns=through or columns,
    )


def create(
    connection: psycopg.Connection[Any], schema: str, table: str, fields: pa.Schema, key: tuple[str, ...]
) -> None:
    """A table for these fields."""
    connection.execute(writesql.create_schema(schema))
    columns = {field.name: sql_type(connection, field) for field in fields}
    connection.execute(writesql.create_table(schema, table, columns, key))


def extend(connection: psycopg.Connection[Any], found: Destination, fields: pa.Schema, *, widens: bool = True) -> None:
    """Add the columns that are missing, and widen those that have no room for what comes, if that is wished."""
    for field in fields:
        column = found.columns.get(field.name)
        wanted = sql_type(connection, field)
        if column is None:
            connection.execute(writesql.add_column(found.schema, found.table, field.name, wanted))
        elif widens and not column.is_generated and (wide := _wider(column.whole, wanted)) is not None:
            connection.execute(writesql.widen_column(found.schema, found.table, field.name, wide))


def uniques(connection: psycopg.Connection[Any], schema: str, table: str) -> list[tuple[str, ...]]:
    """The columns of each unique index."""
    return [tuple(columns) for (columns,) in connection.execute(writesql.UNIQUES, (schema, table))]


def check_key(connection: psycopg.Connection[Any], found: Destination, namespace: str) -> None:
    """Refuse a table in which the key identifies nothing."""
    if found.is_view or not found.key:
        return
    if any(set(columns) == set(found.key) for columns in uniques(connection, found.schema, found.table)):
        return
    cure = writesql.add_unique(found.schema, found.table, found.key).as_string()
    raise no_unique_key(found.name, found.key, namespace, cure)


def sql_type(connection: psycopg.Connection[Any], field: pa.Field[Any]) -> str:
    """The type of a column for this field: what it was declared as, if the destination knows that, else what fits."""
    said = declared(field)
    if (
        said is not None
        and _SAFE_TYPE.fullmatch(said)
        and connection.execute(writesql.IS_TYPE, (said,)).fetchone() == (True,)
    ):
        return said
    return "jsonb" if is_json(field) else fitting(field.type)


def fitting(type_: pa.DataType) -> str:
    """The type that holds all values of an Arrow type."""
    kind = pa.types
    for is_it, name in _FITTING:
        if is_it(type_):
            return name
    detail: Any = type_
    if kind.is_decimal(type_):
        return f"numeric({detail.precision},{detail.scale})"
    if kind.is_timestamp(type_):
        return "timestamp without time zone" if detail.tz is None else "timestamp with time zone"
    if kind.is_list(type_) or kind.is_large_list(type_) or kind.is_fixed_size_list(type_):
        inner = fitting(detail.value_type)
        return inner if inner.endswith("[]") else f"{inner}[]"
    if kind.is_dictionary(type_):
        return fitting(detail.value_type)
    return "jsonb" if kind.is_nested(type_) else "text"


_FITTING: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_uint32, "bigint"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint64, "numeric(20,0)"),
    (pa.types.is_float16, "real"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time without time zone"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (pa.types.is_fixed_size_binary, "bytea"),
)
_WIDER: Final = {
    "smallint": ("integer", "bigint", "numeric", "text"),
    "integer": ("bigint", "numeric", "text"),
    "bigint": ("numeric", "text"),
    "real": ("double precision", "text"),
    "double precision": ("text",),
    "boolean": ("text",),
    "date": ("timestamp without time zone", "timestamp with time zone", "text"),
    "numeric": ("text",),
}


def _wider(present: str, wanted: str) -> str | None:
    """The type that a column must get to hold what comes, None when it can stay."""
    if present == wanted:
        return None
    head, wanted_head = present.partition("(")[0], wanted.partition("(")[0]
    if head == wanted_head == "numeric":
        return _wider_numeric(present, wanted)
    return wanted if wanted_head in _WIDER.get(head, ()) else None


def _wider_numeric(present: str, wanted: str) -> str | None:
    if "(" not in present:
        return None
    if "(" not in wanted:
        return wanted
    (digits, scale), (more, finer) = _digits(present), _digits(wanted)
    whole, part = max(digits - scale, more - finer), max(scale, finer)
    if (whole, part) == (digits - scale, scale):
        return None
    return f"numeric({whole + part},{part})" if whole + part <= _DECIMAL_DIGITS_MAX else "numeric"


def _digits(kind: str) -> tuple[int, int]:
    inside = kind.partition("(")[2].rstrip(")").split(",")
    return int(inside[0]), int(inside[1]) if len(inside) > 1 else 0


def _columns(connection: psycopg.Connection[Any], schema: str, table: str) -> dict[str, Place]:
    found = connection.execute(writesql.COLUMNS, (schema, table)).fetchall()
    return {
        name: Place(kind, (type_schema, type_name), whole, generated)
        for name, kind, type_schema, type_name, generated, whole in found
    }


def _deletes(connection: psycopg.Connection[Any], view: sql.Identifier) -> bool:
    found = connection.execute(writesql.DELETES_THROUGH, (view.as_string(connection),)).fetchone()
    return found == (True,)
