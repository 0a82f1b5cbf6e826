"""Columns of SQLite: how they are declared, and what their values are in JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.adaptor.binding import bindable
from tailrace.adaptor.values import to_json
from tailrace.log.documents import is_json


def declared_type(field: pa.Field[Any]) -> str:
    """The type that a column made for this field is declared with; none where values of any class come."""
    kind = pa.types
    type_ = field.type
    if is_json(field) or kind.is_null(type_):
        return ""
    if kind.is_boolean(type_):
        return "BOOLEAN"
    if kind.is_integer(type_):
        return "INTEGER"
    if kind.is_floating(type_):
        return "REAL"
    return "BLOB" if _is_binary(type_) else "TEXT"


def as_json(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """The values of a column as SQLite will have them, in JSON."""
    return pa.array([to_json(value) for value in bindable(column, field)], pa.string())


def _is_binary(type_: pa.DataType) -> bool:
    kind = pa.types
    return bool(
        kind.is_binary(type_)
        or kind.is_large_binary(type_)
        or kind.is_fixed_size_binary(type_)
        or kind.is_binary_view(type_)
    )
