"""Values of any kind as a column: of the type they had, if they still fit it, otherwise of the one they have now.

No value changes on the way. A field whose values have no type in common is kept as JSON text (see `log.documents`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tailrace.log.documents import NOT_COLUMNAR, is_json, json_field

Column = tuple["pa.Field[Any]", "pa.Array[Any]"]

_SAFE: Final[tuple[tuple[Callable[[Any], bool], type], ...]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_date32, date),
)
"""Types of columns, and the type of values that Arrow puts there unchanged or refuses."""
_INFERRED_SAFELY: Final = ({bool}, {int}, {float}, {str}, {bytes}, {date}, {Decimal}, {int, float})


class NoColumn(ValueError):
    """Values for which there is no column."""


def column_of(name: str, values: list[Any], was: pa.Field[Any] | None) -> Column:
    """A column of values, and the field that describes it; `was` is the field they were in before, if any."""
    if was is not None and is_json(was):
        return _in_json(name, values)
    kinds = set(map(type, values)) - {type(None)}
    if was is not None:
        column = _fitting(values, kinds, was.type)
        if column is not None:
            return was.with_nullable(was.nullable or column.null_count > 0), column
    column = _inferred(values, kinds)
    return _in_json(name, values) if column is None else (pa.field(name, column.type), column)


def _fitting(values: list[Any], kinds: set[type], kind: pa.DataType) -> pa.Array[Any] | None:
    """The values in a type, None when one of them would change."""
    try:
        column: pa.Array[Any] = pa.array(values, kind)
    except (*NOT_COLUMNAR, TypeError, ValueError):
        return None
    is_safe = not kinds or any(is_kind(kind) and kinds == {safe} for is_kind, safe in _SAFE)
    return column if is_safe or all(map(_is_kept, column.to_pylist(), values)) else None


def _inferred(values: list[Any], kinds: set[type]) -> pa.Array[Any] | None:
    """The values in the type that Arrow finds for them, None when there is none or one of them would change."""
    try:
        column: pa.Array[Any] = pa.array(values)
    except (*NOT_COLUMNAR, TypeError, ValueError):
        return None
    if not kinds or kinds in _INFERRED_SAFELY:
        return column
    return column if all(map(_is_same, column.to_pylist(), values)) else None


def _in_json(name: str, values: list[Any]) -> Column:
    texts = [None if value is None else _json_text(name, value) for value in values]
    return json_field(name), pa.array(texts, pa.string())


def _json_text(name: str, value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError) as error:
        raise NoColumn(f"field {name!r} has values of different types, and one has no JSON form: {error}") from error
    if not _is_same(json.loads(text), value):
        raise NoColumn(f"field {name!r} has values of different types, and one would change in JSON: {value!r:.80}")
    return text


def _is_kept(kept: Any, given: Any) -> bool:
    """Whether a value came back; fields that a document lacks are null in its column."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return kept.keys() >= given.keys() and all(_is_kept(kept[name], given.get(name)) for name in kept)
    if isinstance(given, list | tuple) and isinstance(kept, list | tuple):
        return len(kept) == len(given) and all(map(_is_kept, kept, given))
    if isinstance(kept, bool) != isinstance(given, bool):
        return False
    return bool(kept == given or (kept != kept and given != given))  # noqa: PLR0124  nan differs from itself


def _is_same(kept: Any, given: Any) -> bool:
    """Whether a value came back with neither a field more nor one less."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return kept.keys() == given.keys() and all(_is_same(kept[name], given[name]) for name in kept)
    if isinstance(given, list | tuple) and isinstance(kept, list | tuple):
        return len(kept) == len(given) and all(map(_is_same, kept, given))
    return _is_kept(kept, given)
