"""Arrow columns as text that PostgreSQL reads, for the types that are not sent in binary."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.moments import INFINITY, MINUS_INFINITY, is_moment, texts, time_texts

_SPECIAL: Final = frozenset('{}",\\ \t\n\r\v\f')


def as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a column as text."""
    kind = pa.types
    type_ = column.type
    if kind.is_string(type_):
        return column
    if is_moment(type_):
        return _moments(column)
    if kind.is_time(type_):
        return time_texts(column)
    if kind.is_binary(type_) or kind.is_large_binary(type_) or kind.is_fixed_size_binary(type_):
        return _each(column, lambda value: "\\x" + value.hex())
    if kind.is_list(type_) or kind.is_large_list(type_) or kind.is_fixed_size_list(type_):
        return _arrays(column)
    if kind.is_struct(type_) or kind.is_map(type_):
        return _each(column, lambda value: json.dumps(value, ensure_ascii=False, default=str), maps_as_pydicts="strict")
    if kind.is_duration(type_):
        micros: Any = column.cast(pa.duration("us")).view(pa.int64())
        return _each(micros, lambda value: f"{value} microseconds")
    if kind.is_floating(type_):
        return _each(column, repr)
    return column.cast(pa.string())


def _each(column: pa.Array[Any], render: Callable[[Any], str], **options: Any) -> pa.Array[Any]:
    values: list[Any] = column.to_pylist(**options)
    return pa.array([None if value is None else render(value) for value in values], pa.string())


def _moments(column: pa.Array[Any]) -> pa.Array[Any]:
    """ISO 8601, but that PostgreSQL counts no year 0 and writes BC."""
    written = texts(column)
    is_ancient = pc.match_substring_regex(written, r"^(-\d|0000-)")
    return _each(written, _with_era) if pc.any(is_ancient).as_py() else written


def _with_era(text: str) -> str:
    if text in (INFINITY, MINUS_INFINITY):
        return text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    year, _, rest = digits.partition("-")
    number = int(f"{sign}{year}")
    return text if number > 0 else f"{1 - number:04d}-{rest} BC"


def _arrays(column: pa.Array[Any]) -> pa.Array[Any]:
    lists: Any = column
    inner: Any = lists.flatten()
    texts = as_text(inner) if not pa.types.is_nested(inner.type) or pa.types.is_struct(inner.type) else _arrays(inner)
    is_deep = pa.types.is_list(inner.type)
    values: list[Any] = texts.to_pylist()
    quoted = ["NULL" if value is None else value if is_deep else _quoted(value) for value in values]
    lengths: Any = pc.list_value_length(column)
    made: list[str | None] = []
    at = 0
    for length in lengths.to_pylist():
        if length is None:
            made.append(None)
            continue
        made.append("{" + ",".join(quoted[at : at + length]) + "}")
        at += length
    return pa.array(made, pa.string())


def _quoted(text: str) -> str:
    if text and text.upper() != "NULL" and not _SPECIAL.intersection(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
