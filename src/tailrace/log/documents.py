"""Documents as Arrow columns and back, exactly as they were.

Arrow wants one type per column. A list whose elements differ (two kinds of value, documents with different fields) has
none, nor has a whole number beyond 64 bits: such a field is stored as JSON text, and its metadata says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace import moments
from tailrace.message import Row

TYPE_METADATA: Final = b"tailrace.type"
"""Field metadata: how the field's text is to be read."""
JSON: Final = b"json"

NOT_COLUMNAR: Final = (pa.ArrowException, OverflowError, UnicodeError)
"""What is raised for values that do not fit one column."""


def is_json(field: pa.Field[Any]) -> bool:
    """Whether a field's text is JSON that stands for its values."""
    return (field.metadata or {}).get(TYPE_METADATA) == JSON


def json_field(name: str) -> pa.Field[Any]:
    """A field whose text is JSON."""
    return pa.field(name, pa.string(), metadata={TYPE_METADATA: JSON})


def encode(rows: list[Row | None]) -> pa.Array[Any]:
    """Documents as a struct column; raises one of NOT_COLUMNAR when they do not come back as they were.

    A document by itself always has a form, unless a value in it has none in Arrow nor in JSON.
    """
    if all(row is None for row in rows):
        return pa.nulls(len(rows), pa.struct([]))
    if len(rows) == 1 and rows[0] is not None:
        return _encode_one(rows[0])
    documents: list[Any] = rows
    column: pa.Array[Any] = pa.array(documents)
    if not pa.types.is_struct(column.type) or not all(map(_same, column.to_pylist(), rows)):
        raise pa.ArrowTypeError("the documents differ in their fields or types")
    return column


def decode(column: pa.Array[Any]) -> list[Row | None]:
    """The documents of a struct column. Dates and moments that Python does not have come as text."""
    rows = _rows(column)
    in_json = [field.name for field in column.type if is_json(field)]
    for row in rows:
        for name in in_json:
            if row is not None and row[name] is not None:
                row[name] = json.loads(row[name])
    return rows


def _rows(column: pa.Array[Any]) -> list[Any]:
    if not moments.has_end_of_day(column):
        with suppress(OverflowError, ValueError):
            found: list[Any] = column.to_pylist()
            return found
    struct: Any = column
    fields = [moments.values(child) for child in struct.flatten()]
    names = [field.name for field in column.type]
    is_there = column.is_valid().to_pylist()
    rows = zip(is_there, zip(*fields, strict=True), strict=True)
    return [dict(zip(names, row, strict=True)) if there else None for there, row in rows]


def _encode_one(row: Row) -> pa.Array[Any]:
    if not isinstance(row, Mapping):
        raise pa.ArrowTypeError(f"{row!r:.40} is no document")
    columns: list[pa.Array[Any]] = []
    fields: list[pa.Field[Any]] = []
    for name, value in row.items():
        if not isinstance(name, str):
            raise pa.ArrowTypeError(f"field name {name!r} is not text")
        column = _encode_value(value)
        if column is None:
            column = pa.array([_json_text(name, value)], pa.string())
            fields.append(json_field(name))
        else:
            fields.append(pa.field(name, column.type))
        columns.append(column)
    if not columns:
        nothing: list[Any] = [{}]
        return pa.array(nothing, pa.struct([]))
    return pa.StructArray.from_arrays(columns, fields=fields)


def _encode_value(value: Any) -> pa.Array[Any] | None:
    """One value as a column, None when Arrow would change it."""
    try:
        column: pa.Array[Any] = pa.array([value])
    except NOT_COLUMNAR:
        return None
    return column if _equal(column.to_pylist()[0], value) else None


def _json_text(name: str, value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError) as error:
        raise pa.ArrowTypeError(f"field {name!r} mixes values for which there is no JSON either: {error}") from error
    if not _equal(json.loads(text), value):
        raise pa.ArrowTypeError(f"field {name!r} would not come back as it is")
    return text


def _same(kept: Any, given: Any) -> bool:
    """Whether a value came back as it was, its type included: Arrow widens numbers that share a column."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return kept.keys() == given.keys() and all(_same(kept[name], given[name]) for name in given)
    if isinstance(given, list | tuple) and isinstance(kept, list):
        return len(kept) == len(given) and all(map(_same, kept, given))
    return type(kept) is type(given) and (kept == given or repr(kept) == repr(given))


def _equal(kept: Any, given: Any) -> bool:
    """Whether a value by itself came back; numbers of other libraries come back as Python's."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return kept.keys() == given.keys() and all(_equal(kept[name], given[name]) for name in given)
    if isinstance(kept, list):
        plain = given.tolist() if isinstance(given, np.ndarray) else given
        return isinstance(plain, list | tuple) and len(kept) == len(plain) and all(map(_equal, kept, plain))
    return bool(kept == given or (kept != kept and given != given))  # noqa: PLR0124  nan differs from itself
