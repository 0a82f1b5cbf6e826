"""The columns of a read: those of every message, and the fields of one namespace where only one is read."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tailrace.deliver.schemas import schema_of, unified_struct
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP
from tailrace.log.reader import LogReader
from tailrace.message import Offset
from tailrace.pipeline.suggest import did_you_mean
from tailrace.spark.source_options import ReadOptions
from tailrace.spark.source_plan import wanted_frames
from tailrace.spark.source_wanted import Wanted
from tailrace.spark.types import spark_type

DOCUMENTS: Final = ("data", "before")
COLUMNS: Final[dict[str, pa.DataType]] = {
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "mode": pa.string(),
    "namespace": pa.string(),
    "op": pa.string(),
    "origin": pa.decimal128(20, 0),  # an unsigned number of 64 bits, which Spark has no other type for
    "lsn": pa.int64(),
    "tx": pa.string(),
    "data": pa.string(),
    "before": pa.string(),
}
"""All columns, in the JSON form."""


def schema_for(reader: LogReader, options: ReadOptions, start: Offset, end: Offset, wanted: Wanted) -> pa.Schema:
    """The columns that the options ask for."""
    columns = dict(COLUMNS)
    if options.namespace is not None:
        kind = _row_type(reader, options.namespace, start, end, wanted)
        columns |= dict.fromkeys(DOCUMENTS, kind)
    if not options.columns:
        return pa.schema(columns)
    chosen: dict[str, pa.DataType] = {}
    for name in options.columns:
        column, _, field = name.partition(".")
        if column in DOCUMENTS and field and options.namespace is not None:
            chosen[column] = _with_field(chosen.get(column), columns[column], field)
        elif name in columns:
            chosen[name] = columns[name]
        else:
            raise _unknown(name, columns)
    return pa.schema(chosen)


def picked(options: ReadOptions) -> frozenset[str]:
    """The columns of which the options name single fields: others are not missed there."""
    fields = (name.partition(".")[0] for name in options.columns if "." in name)
    return frozenset(fields).difference(options.columns)


def check_schema(schema: pa.Schema, options: ReadOptions) -> None:
    """Refuse a schema of the user's that no read can have."""
    for entry in schema:
        if entry.name not in COLUMNS:
            raise _unknown(entry.name, COLUMNS)
        if entry.name in DOCUMENTS and pa.types.is_struct(entry.type) and options.namespace is not None:
            continue
        if entry.type != COLUMNS[entry.name]:
            what = f"column {entry.name} cannot be {entry.type}, it is {COLUMNS[entry.name]}"
            hint = "correct the schema; data and before can be structs when the option namespace names one namespace"
            raise TailraceError("input.invalid", what, hint=hint)


def _row_type(reader: LogReader, namespace: str, start: Offset, end: Offset, wanted: Wanted) -> pa.DataType:
    """All fields of a namespace's rows in a range; in the whole log when there is none in the range."""
    found = _union(reader, start, end, wanted) or _union(reader, reader.oldest, reader.next_offset, wanted)
    if found is None:
        known = reader.view.last_offsets()
        what = f"option namespace: there is no message of {namespace!r} in the log{did_you_mean(namespace, known)}"
        raise TailraceError("input.invalid", what, hint="tailrace log stat; or say what is to come with .schema(...)")
    return spark_type(found)


def _union(reader: LogReader, start: Offset, end: Offset, wanted: Wanted) -> pa.StructType | None:
    """`data` and `before` are rows of one table: both have the fields of both."""
    union: pa.StructType | None = None
    latest: pa.Schema | None = None
    for segment, located in wanted_frames(reader.view, start, end, wanted):
        schema = schema_of(segment, located)
        if latest is not None and schema.equals(latest):
            continue
        latest = schema
        for name in DOCUMENTS:
            if name in schema.names:
                union = unified_struct(union or (), schema.field(name).type)
    return union


def _with_field(chosen: Any, all_fields: Any, name: str) -> pa.DataType:
    fields = {entry.name: entry for entry in all_fields}
    if name not in fields:
        what = f"option columns: there is no field {name!r}{did_you_mean(name, fields)}"
        raise TailraceError("input.invalid", what, hint=f"use some of {', '.join(fields)}")
    return pa.struct({entry.name: entry.type for entry in (*(chosen or ()), fields[name])})


def _unknown(name: str, columns: dict[str, pa.DataType]) -> TailraceError:
    what = f"there is no column {name!r}{did_you_mean(name, columns)}"
    return TailraceError("input.invalid", what, hint=f"use some of {', '.join(columns)}")
