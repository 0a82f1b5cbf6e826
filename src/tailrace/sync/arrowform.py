"""Rows as an Arrow stream: the table's columns, and those of `ROW_STAMP`.

A column whose values are all of one plain type has that type. Any other one is text: the JSON of each value, and its
field says so. So exactly the same rows come out as with JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_BODY_BYTES_MAX, SYNC_ROWS_MAX, SYNC_VALUES_MAX
from tailrace.log.unpacked import unpacked_bytes
from tailrace.sync.arrowarray import KINDS, array_of
from tailrace.sync.arrowschema import check_schema_size
from tailrace.sync.columns import Columns, Types
from tailrace.sync.content import read_values
from tailrace.sync.exchange import ROW_STAMP, RowBatch
from tailrace.sync.wire import Wire, malformed

MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
_PYTHON: Final = {
    **{arrow: python for python, arrow in KINDS.items()},
    pa.int32(): int,
    pa.large_string(): str,
}
_ALLOWED: Final = (*KINDS.values(), pa.int32(), pa.large_string(), pa.null())
_JSON: Final = {b"tailrace": b"json"}


def as_arrow(batch: RowBatch) -> bytes:
    """Rows as a stream."""
    columns = batch.by_column
    gone = len(batch.columns) + ROW_STAMP.index("doorDeleted")
    if columns.types(gone) - {bool}:
        columns = Columns(columns.values)
        columns.put(gone, map(bool, columns.values[gone]))
    return as_stream((*batch.columns, *ROW_STAMP), columns)


def as_stream(names: Sequence[str], columns: Columns) -> bytes:
    """Columns with names as a stream."""
    made = [_column(name, columns.values[place], columns.types(place)) for place, name in enumerate(names)]
    rows = pa.record_batch([array for _, array in made], schema=pa.schema([field for field, _ in made]))
    stream = pa.BufferOutputStream()
    with ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    return stream.getvalue().to_pybytes()


def read_arrow(wire: Wire, body: bytes) -> RowBatch:
    """The inverse, with the names that columns have here."""
    return _as_batch(wire, read_stream(body))


def read_stream(body: bytes) -> pa.Table:
    """A stream as a table. Nothing that is claimed is believed before it is checked."""
    try:
        check_schema_size(body)
        if unpacked_bytes(body) > SYNC_BODY_BYTES_MAX:
            what = f"rows take more than {SYNC_BODY_BYTES_MAX >> 20} MB when they are unpacked"
            raise TailraceError("sync.too_large", what, hint="send fewer rows at a time")
        with ipc.open_stream(pa.py_buffer(body)) as reader:
            _check_schema(reader.schema)
            table = _read_batches(reader)
            table.validate(full=True)
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        raise malformed(f"a body is no Arrow stream: {str(error)[:200]}") from None
    return table


def values_of(field: pa.Field[Any], column: pa.ChunkedArray[Any]) -> list[Any]:
    """The values of a column."""
    values: list[Any] = column.to_pylist()
    if dict(field.metadata or {}).items() >= _JSON.items():
        if not pa.types.is_string(field.type):
            raise malformed(f"column {field.name!r} is said to be JSON, and is no text")
        return read_values(values)
    return values


def _column(name: str, values: Sequence[Any], of: Types) -> tuple[pa.Field[Any], pa.Array[Any]]:
    types, has_none = of - {type(None)}, type(None) in of
    if not types:
        return pa.field(name, pa.null()), pa.nulls(len(values))
    kind = next(iter(types))
    if len(types) == 1 and kind in KINDS:
        return pa.field(name, KINDS[kind]), array_of(values, kind, has_none=has_none)
    told = [None if value is None else orjson.dumps(value).decode() for value in values]
    return pa.field(name, pa.string(), metadata=_JSON), array_of(told, str, has_none=has_none)


def _check_schema(schema: pa.Schema) -> None:
    if len(set(schema.names)) != len(schema.names):
        raise malformed("a body has two columns of the same name")
    for field in schema:
        if field.type not in _ALLOWED:
            raise malformed(f"a body has a column of the type {field.type}, which is none of rows' types")


def _read_batches(reader: ipc.RecordBatchStreamReader) -> pa.Table:
    batches, count = [], 0
    for batch in reader:
        count += batch.num_rows
        if count > SYNC_ROWS_MAX or count * batch.num_columns > SYNC_VALUES_MAX:  # columns of nothing take no bytes
            what = f"there are more than {SYNC_ROWS_MAX} rows or {SYNC_VALUES_MAX} values in a body"
            raise TailraceError("sync.too_large", what, hint="send fewer rows at a time")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _as_batch(wire: Wire, table: pa.Table) -> RowBatch:
    found: dict[str, list[Any]] = {}
    types: dict[str, Types | None] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        own = wire.own_name(field.name)
        if own is not None and (own not in found or field.name == own):
            found[own] = values_of(field, column)
            types[own] = _types(field, column)
    columns = tuple(name for name in wire.shape.column_names if name in found)
    absent = [None] * table.num_rows
    times, nodes, flags = (found.get(name, absent) for name in ROW_STAMP[:3])
    if any(type(flag) not in (bool, type(None)) for flag in flags):
        raise malformed("a row's doorDeleted is neither true nor false")
    gone = list(map(bool, flags))
    made = found.get(wire.shape.entity.version, absent)
    versions = list(map(wire.read_version, times, nodes, gone, made)) if any(gone) else made
    values = [*(found[name] for name in columns), times, nodes, gone, versions]
    known = [*map(types.get, (*columns, *ROW_STAMP[:2])), None, None]
    return RowBatch(columns, Columns(values, known), wire.unknown(table.schema.names))


def _types(field: pa.Field[Any], column: pa.ChunkedArray[Any]) -> Types | None:
    """The types of a column's values, if they follow from its own."""
    kind = _PYTHON.get(field.type)
    if kind is None or column.null_count or not len(column) or field.metadata:
        return None
    return frozenset((kind,))
