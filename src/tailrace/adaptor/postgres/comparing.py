"""Reading back what was written into a PostgreSQL database, to compare it with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.postgres import catalog, copying
from tailrace.adaptor.postgres.catalog import Column
from tailrace.adaptor.postgres.literals import as_text
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.target import place_of
from tailrace.adaptor.postgres.types import Choices
from tailrace.adaptor.sqltype import declared
from tailrace.log.documents import is_json, json_field
from tailrace.verify.contract import Keeps, Piece, Stored

_PIECE_ROWS: Final = 100_000
_JSON: Final = ("json", "jsonb")
_NUMBERS: Final = ("smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean", "oid")
_HOUR_US: Final = 3_600_000_000
_MINUTE_US: Final = 60_000_000
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PostgresReadBack:
    """The tables of one database."""

    server: Server
    keys: Mapping[str, tuple[str, ...]]
    schema: str

    def find(self, namespace: str, key: tuple[str, ...]) -> Stored | None:
        schema, table = place_of(namespace, self.schema)
        with self.server.session() as connection:
            found = catalog.find_table(connection, catalog.load_kinds(connection, Choices()), schema, table)
            if found is None:
                return None
            pieces = copying.plan(connection, found, _PIECE_ROWS)
        fields = {column.name: _keeps(column) for column in found.columns}
        return Stored(fields, self.keys.get(namespace, key), tuple(pieces))

    def read(self, piece: Piece, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in copying.read(self.server, Choices(), piece):
            data: Any = batch.rows.column("data")
            found = [data.type.field(name) for name in fields if data.type.get_field_index(name) >= 0]
            yield pa.RecordBatch.from_arrays(
                [data.field(field.name) for field in found],
                schema=pa.schema([json_field(field.name) if _is_json(field) else field for field in found]),
            )

    def as_stored(self, column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
        if _is_json(field) or pa.types.is_struct(column.type) or pa.types.is_map(column.type):
            return as_text(column), json_field(field.name)
        if pa.types.is_duration(column.type):
            micros: Any = column.cast(pa.duration("us")).view(pa.int64())
            texts = [None if value is None else interval(value) for value in micros.to_pylist()]
            column = pa.array(texts, pa.string())
        return column, pa.field(field.name, column.type)


def interval(micros: int) -> str:
    """A duration as PostgreSQL writes an interval in ISO 8601."""
    if micros == 0:
        return "PT0S"
    sign = -1 if micros < 0 else 1
    hours, rest = divmod(abs(micros), _HOUR_US)
    minutes, rest = divmod(rest, _MINUTE_US)
    seconds, part = divmod(rest, _SECOND_US)
    fraction = f".{part:06d}".rstrip("0") if part else ""
    minus = "-" if sign < 0 else ""
    told = [f"{minus}{hours}H" if hours else "", f"{minus}{minutes}M" if minutes else ""]
    return "PT" + "".join(told) + (f"{minus}{seconds}{fraction}S" if seconds or part else "")


def _is_json(field: pa.Field[Any]) -> bool:
    return is_json(field) or declared(field) in _JSON


def _keeps(column: Column) -> Keeps:
    if column.type_name in _NUMBERS:
        return Keeps.NUMBER
    return Keeps.TEXT if column.type_name in ("text", "character varying", "character") else Keeps.ANYTHING
