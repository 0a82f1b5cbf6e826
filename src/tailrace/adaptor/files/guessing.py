"""The types of text: a column gets one only if none of its values says less by it."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_PATTERNS: Final[dict[pa.DataType, str]] = {
    pa.int64(): r"^(0|-?[1-9][0-9]{0,18})$",
    pa.float64(): r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
    pa.bool_(): r"^(true|false)$",
}
_EXACT_CHARACTERS: Final = 15
"""A double tells apart all decimal numbers of so many digits."""


def exact_type(column: pa.Array[Any]) -> pa.DataType:
    """The first of int64, double and bool that holds all values of a column exactly, otherwise text."""
    if column.null_count == len(column):
        return pa.string()
    return next((kind for kind in _PATTERNS if as_type(column, kind) is not None), pa.string())


def as_type(column: Any, kind: pa.DataType) -> pa.Array[Any] | None:
    """Text as one of the types that are guessed; None when a value would not be the same."""
    if kind not in _PATTERNS:
        return None
    if not _all(pc.match_substring_regex(column, _PATTERNS[kind])):
        return None
    try:
        typed: pa.Array[Any] = pc.cast(column, kind)
    except pa.ArrowInvalid:
        return None
    if kind == pa.float64():
        is_short = pc.less_equal(pc.utf8_length(column), pa.scalar(_EXACT_CHARACTERS, pa.int32()))
        is_same = pc.equal(pc.cast(typed, pa.string()), column)
        if not _all(pc.and_(pc.is_finite(typed), pc.or_(is_short, is_same))):
            return None
    return typed


def _all(conditions: pa.Array[Any]) -> bool:
    """Whether a condition holds wherever there is a value."""
    return bool(pc.all(conditions, min_count=0).as_py())
