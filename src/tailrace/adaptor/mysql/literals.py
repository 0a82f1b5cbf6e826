"""Arrow columns as literals of SQL, whole columns at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace import moments
from tailrace.adaptor.mysql.texts import time_text

_NULL: Final = b"NULL"


def as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a column as MySQL writes them; binary stays binary."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    type_, kind = column.type, pa.types
    if kind.is_dictionary(type_):
        return as_text(column.cast(type_.value_type))
    if is_binary(type_):
        return column.cast(pa.large_binary())
    if kind.is_boolean(type_):
        return column.cast(pa.int8()).cast(pa.large_string())
    if moments.is_moment(type_):
        return _moments(column)
    if kind.is_time(type_) or kind.is_duration(type_):
        return _each(_micros(column), time_text)
    if kind.is_decimal(type_):
        return _each(column, lambda value: format(value, "f"))
    if kind.is_floating(type_):
        return _each(column, _float)
    if kind.is_nested(type_):
        return _each(column, as_json, maps_as_pydicts="strict")
    return column.cast(pa.large_string())


def literals(column: pa.Array[Any], *, as_bits: bool = False) -> pa.Array[Any]:
    """The values of a column as they are written into a statement, as bytes. `as_bits`: a text of binary digits is the
    number that it stands for."""
    texts = as_text(column)
    if is_binary(texts.type):
        return _quoted(texts, b"_binary'")
    if as_bits:
        return _quoted(_bytes(texts), b"b'")
    if _is_number(column.type):
        return _or_null(_bytes(texts))
    return _quoted(_bytes(texts), b"'")


def is_binary(type_: pa.DataType) -> bool:
    kind = pa.types
    return bool(
        kind.is_binary(type_)
        or kind.is_large_binary(type_)
        or kind.is_fixed_size_binary(type_)
        or kind.is_binary_view(type_)
    )


def as_json(value: Any) -> str:
    """A nested value as JSON."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return time_text(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else str(value)


def _is_number(type_: pa.DataType) -> bool:
    kind = pa.types
    if kind.is_dictionary(type_):
        return _is_number(type_.value_type)
    return kind.is_integer(type_) or kind.is_floating(type_) or kind.is_decimal(type_) or kind.is_boolean(type_)


def _quoted(content: pa.Array[Any], head: bytes) -> pa.Array[Any]:
    escaped: Any = content
    for sign, instead in ((b"\\", b"\\\\"), (b"'", b"''"), (b"\0", b"\\0")):
        escaped = pc.replace_substring(escaped, pattern=sign, replacement=instead)
    kind = pa.large_binary()
    parts: Any = [pa.scalar(head, kind), escaped, pa.scalar(b"'", kind), pa.scalar(b"", kind)]
    return _or_null(pc.binary_join_element_wise(*parts))


def _or_null(content: Any) -> pa.Array[Any]:
    null: Any = pa.scalar(_NULL, pa.large_binary())
    found: pa.Array[Any] = pc.coalesce(content, null)
    return found


def _bytes(texts: pa.Array[Any]) -> pa.Array[Any]:
    return texts.cast(pa.large_binary())


def _moments(column: pa.Array[Any]) -> pa.Array[Any]:
    """In UTC, to the microsecond, as MySQL has no finer ones."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    texts: Any = moments.texts(column).cast(pa.large_string())
    plain: pa.Array[Any] = pc.replace_substring(pc.replace_substring(texts, "T", " "), "Z", "")
    return plain


def _micros(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_duration(column.type):
        return column.cast(pa.duration("us")).view(pa.int64())
    return column.cast(pa.time64("us")).view(pa.int64())


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"MySQL has no {value}")
    return repr(value)


def _each(column: pa.Array[Any], render: Callable[[Any], str], **options: Any) -> pa.Array[Any]:
    values: list[Any] = column.to_pylist(**options)
    return pa.array([None if value is None else render(value) for value in values], pa.large_string())
