"""Originals: the values of fields that have several types, kept beside a DataFrame in which they are text.

Functions get text, for Spark wants one type. A field that they leave as it is gets its values back: Spark's metadata
of the field names the original, whatever the field is called now, and the text shows that no value was changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.conforming import plain_text
from tailrace.deliver.messages import Messages
from tailrace.log.documents import is_json, json_field

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMN: Final = "_originals"
_SIDES: Final = ("data", "before")
_MARK: Final = "tailrace.original"
"""Metadata of a field in Spark: which original its text comes from."""

_IN_JSON: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_nested,
)

Marks = Mapping[str, Mapping[str, str]]
"""For `data` and `before` the fields that have originals, and which."""


def originals_type(messages: Messages) -> pa.StructType | None:
    """The type of the column with the originals, None when no field needs it."""
    sides = [(side, column) for side in _SIDES if (column := getattr(messages, side)) is not None]
    names = [f"{side}.{entry.name}" for side, column in sides for entry in column.type if is_json(entry)]
    return pa.struct([(name, pa.string()) for name in names]) if names else None


def in_json(messages: Messages, kind: pa.StructType) -> Messages:
    """Messages whose fields that have originals are JSON, as they are where values of several types meet in a batch."""
    names = {entry.name for entry in kind}
    for side in _SIDES:
        column: Any = getattr(messages, side)
        if column is None or not any(f"{side}.{entry.name}" in names for entry in column.type):
            continue
        made = [
            _in_json(entry, child) if f"{side}.{entry.name}" in names else (entry, child)
            for entry, child in zip(column.type, column.flatten(), strict=True)
        ]
        fields, columns = [field for field, _ in made], [child for _, child in made]
        struct = pa.StructArray.from_arrays(columns, fields=fields, mask=column.is_null())
        messages = messages.with_column(side, struct)
    return messages


def _in_json(entry: pa.Field[Any], column: pa.Array[Any]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """A field as JSON; one of a type that JSON has not stays, and is text for good."""
    if is_json(entry) or not any(is_kind(entry.type) for is_kind in _IN_JSON):
        return entry, column
    values = [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
    return json_field(entry.name), pa.array(values, pa.string())


def originals(messages: Messages, kind: pa.StructType) -> pa.StructArray:
    """The column with the originals of messages, which may have fewer than `kind` says."""
    columns: list[pa.Array[Any]] = [_original(messages, *entry.name.split(".", 1)) for entry in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _original(messages: Messages, side: str, name: str) -> pa.Array[Any]:
    column: pa.StructArray | None = getattr(messages, side)
    at = -1 if column is None else column.type.get_field_index(name)
    if column is None or not (at >= 0 and is_json(column.type.field(at))):
        return pa.nulls(len(messages), pa.string())
    child: pa.Array[Any] = pc.struct_field(column, [at])
    return child


def mark(schema: StructType, kind: pa.StructType) -> StructType:
    """A schema of Spark's in which the fields that have originals say so."""
    from pyspark.sql.types import StructField, StructType

    names = {entry.name for entry in kind}

    def marked(side: str, entry: StructField) -> StructField:
        name = f"{side}.{entry.name}"
        metadata = {_MARK: name} if name in names else None
        return StructField(entry.name, entry.dataType, entry.nullable, metadata)

    fields: list[StructField] = []
    for entry in schema.fields:
        inner: Any = entry.dataType
        if entry.name in _SIDES:
            inner = StructType([marked(entry.name, each) for each in inner.fields])
        fields.append(StructField(entry.name, inner, entry.nullable))
    return StructType(fields)


def marks_of(schema: StructType) -> Marks:
    """Which fields of a frame still have originals."""
    from pyspark.sql.types import StringType

    if COLUMN not in schema.names:
        return {}
    kept: Any = schema[COLUMN].dataType
    found: dict[str, dict[str, str]] = {}
    for side in _SIDES:
        fields: Any = schema[side].dataType
        found[side] = {
            entry.name: entry.metadata[_MARK]
            for entry in fields.fields
            if entry.metadata.get(_MARK) in kept.names and isinstance(entry.dataType, StringType)
        }
    return found


def restored(batch: pa.RecordBatch, side: str, marks: Marks) -> pa.Array[Any]:
    """`data` or `before` of a batch with the original values where the text is still theirs."""
    names = marks.get(side, {})
    if not names:
        return batch.column(side)
    column: Any = batch.column(side)
    kept = batch.column(COLUMN)
    fields = [json_field(entry.name) if entry.name in names else entry for entry in column.type]
    columns = [
        _restored(texts, pc.struct_field(kept, [names[entry.name]])) if entry.name in names else texts
        for entry, texts in zip(column.type, column.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=column.is_null())


def _restored(texts: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    equal: Any = pc.equal(texts, plain_text(values))
    is_same: Any = pc.fill_null(equal, False)
    changed = [
        None if text is None or same else orjson.dumps(text).decode()
        for text, same in zip(texts.to_pylist(), is_same.to_pylist(), strict=True)
    ]
    chosen: pa.Array[Any] = pc.if_else(is_same, values, pa.array(changed, pa.string()))
    return chosen
