"""Arrow columns as the plainest values there are: those that SQLite can store.

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

from tailrace.adaptor.values import from_json
from tailrace.log.documents import is_json
from tailrace.moments import is_moment, texts, time_texts, values

_MICROSECOND = timedelta(microseconds=1)


def bindable(column: pa.Array[Any], field: pa.Field[Any]) -> list[Any]:
    """The values of a column, as `sqlite3` binds them."""
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
