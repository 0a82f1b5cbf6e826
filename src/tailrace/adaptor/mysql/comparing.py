"""Reading back what was written into a MySQL or MariaDB server, to compare it with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.mysql import catalog, copying
from tailrace.adaptor.mysql.catalog import Column
from tailrace.adaptor.mysql.columntype import INTEGERS
from tailrace.adaptor.mysql.literals import as_text
from tailrace.adaptor.mysql.server import Server
from tailrace.adaptor.mysql.target import place_of
from tailrace.adaptor.mysql.types import ZeroDates
from tailrace.adaptor.sqltype import declared
from tailrace.log.documents import is_json, json_field
from tailrace.verify.contract import Keeps, Piece, Stored

_PIECE_ROWS: Final = 100_000
_JSON: Final = ("json", "jsonb")
_NUMBERS: Final = (*INTEGERS, "float", "double", "decimal", "year")


@dataclass(frozen=True, slots=True)
class MysqlReadBack:
    """The tables of one server."""

    server: Server
    keys: Mapping[str, tuple[str, ...]]
    database: str

    def find(self, namespace: str, key: tuple[str, ...]) -> Stored | None:
        database, table = place_of(namespace, self.database, self.server.database)
        with self.server.session() as connection:
            found = catalog.find_table(connection, database, table)
            if found is None:
                return None
            pieces = copying.plan(connection, found, _PIECE_ROWS)
        fields = {column.name: _keeps(column) for column in found.read_columns}
        return Stored(fields, self.keys.get(namespace, key), tuple(pieces))

    def read(self, piece: Piece, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in copying.read(self.server, ZeroDates.NULL, piece):
            data: Any = batch.rows.column("data")
            found = [data.type.field(name) for name in fields if data.type.get_field_index(name) >= 0]
            yield pa.RecordBatch.from_arrays(
                [data.field(field.name) for field in found],
                schema=pa.schema([json_field(field.name) if _is_json(field) else field for field in found]),
            )

    def as_stored(self, column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
        if _is_json(field) or pa.types.is_nested(column.type):
            return as_text(column).cast(pa.string()), json_field(field.name)
        if pa.types.is_time(column.type):
            micros: Any = column.cast(pa.time64("us")).view(pa.int64())
            column = micros.view(pa.duration("us"))
        return column, pa.field(field.name, column.type)


def _is_json(field: pa.Field[Any]) -> bool:
    return is_json(field) or declared(field) in _JSON


def _keeps(column: Column) -> Keeps:
    if column.type.base in _NUMBERS:
        return Keeps.NUMBER
    return Keeps.TEXT if column.type.is_text and not column.type.is_json else Keeps.ANYTHING
