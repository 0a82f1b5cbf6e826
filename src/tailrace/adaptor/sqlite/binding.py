"""Arrow columns as values that SQLite can store.

Booleans, whole numbers, floats, text and binary have a class of their own. What SQLite has no class for becomes text:
ISO 8601 for moments, dates, times and durations, plain digits for decimals, JSON for lists, structs and maps.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.sqlite.values import from_json, to_json
from tailrace.log.documents import is_json
from tailrace.moments import is_moment, texts, time_texts, values

_MICROSECOND = timedelta(microseconds=1)


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


def bindable(column: pa.Array[Any], field: pa.Field[Any]) -> list[Any]:
    """The values of a column as `sqlite3` binds them."""
    kind = pa.types
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if kind.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    type_ = column.type
    if is_json(field):
        return [_stood_for(text) for text in column.to_pylist()]
    if is_moment(type_):
        return texts(column).to_pylist()
    if kind.is_time(type_):
        return time_texts(column).to_pylist()
    if kind.is_decimal(type_):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if kind.is_duration(type_):
        return [None if value is None else _duration(value) for value in _micros(column)]
    if kind.is_nested(type_):
        found = values(column, maps_as_pydicts="strict")
        return [None if value is None else json.dumps(_plain(value), ensure_ascii=False) for value in found]
    return column.to_pylist()


def as_json(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """The values of a column as SQLite will have them, in JSON."""
    return pa.array([to_json(value) for value in bindable(column, field)], pa.string())


def _stood_for(text: str | None) -> Any:
    value = from_json(text)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _micros(column: pa.Array[Any]) -> list[Any]:
    return column.cast(pa.duration("us"), safe=False).to_pylist()


def _duration(value: timedelta) -> str:
    seconds, micros = divmod(abs(value) // _MICROSECOND, 1_000_000)
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{'-' if value < timedelta() else ''}PT{seconds}{fraction}S"


def _plain(value: Any) -> Any:
    """A nested value as JSON."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return {"$binary": b64encode(value).decode("ascii")}
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return _duration(value) if isinstance(value, timedelta) else value


def _is_binary(type_: pa.DataType) -> bool:
    kind = pa.types
    return bool(
        kind.is_binary(type_)
        or kind.is_large_binary(type_)
        or kind.is_fixed_size_binary(type_)
        or kind.is_binary_view(type_)
    )
