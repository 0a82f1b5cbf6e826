"""Reading back what was written into a SQLite database, to compare it with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.binding import bindable
from tailrace.adaptor.sqlite import catalog, copying
from tailrace.adaptor.sqlite.binding import as_json
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.kinds import Kind, declared_kind
from tailrace.adaptor.sqlite.writer import table_name
from tailrace.log.documents import is_json, json_field
from tailrace.verify.contract import Keeps, Piece, Stored

_PIECE_ROWS: Final = 100_000
_NOT_SCALAR: Final = (
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_decimal,
    pa.types.is_duration,
    pa.types.is_nested,
)
"""SQLite has no class for these; they are written as text."""


@dataclass(frozen=True, slots=True)
class SqliteReadBack:
    """The tables of one file."""

    database: Database
    keys: Mapping[str, tuple[str, ...]]

    def find(self, namespace: str, key: tuple[str, ...]) -> Stored | None:
        if not self.database.exists():
            return None
        with self.database.reading(exact=True) as connection:
            table = catalog.find_table(connection, table_name(namespace))
            if table is None:
                return None
            kinds = catalog.kinds_of(connection, table)
            pieces = copying.plan(connection, table, kinds, _PIECE_ROWS)
        declared = {column.name: column.declared for column in table.columns if not column.generated}
        fields = {name: _keeps(declared[name]) for name in kinds if name in declared}
        return Stored(fields, self.keys.get(namespace, key), tuple(pieces))

    def read(self, piece: Piece, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Names of columns are the same to SQLite in upper and lower case; the caller's spelling counts."""
        for batch in copying.read(self.database, piece):
            data: Any = batch.rows.column("data")
            places = {entry.name.lower(): at for at, entry in enumerate(data.type)}
            found = [(name, places[name.lower()]) for name in fields if name.lower() in places]
            yield pa.RecordBatch.from_arrays(
                [data.field(at) for _, at in found],
                schema=pa.schema([data.type.field(at).with_name(name) for name, at in found]),
            )

    def as_stored(self, column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
        if is_json(field):
            return as_json(column, field), json_field(field.name)
        if any(is_kind(column.type) for is_kind in _NOT_SCALAR):
            column = pa.array(bindable(column, field), pa.string())
        elif pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)  # SQLite has no NaN
        return column, pa.field(field.name, column.type)


def _keeps(declared: str) -> Keeps:
    kind = declared_kind(declared)
    if kind in (Kind.INTEGER, Kind.REAL):
        return Keeps.NUMBER
    if kind is Kind.TEXT:
        return Keeps.TEXT
    is_typed = kind is None and declared.upper() not in ("", "ANY")
    return Keeps.NUMBER if is_typed else Keeps.ANYTHING
