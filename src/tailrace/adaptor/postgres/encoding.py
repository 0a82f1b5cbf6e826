"""Arrow columns in PostgreSQL's binary form, whole columns at a time. What has no encoder here travels as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_EPOCH_US: Final = 946_684_800_000_000
_EPOCH_DAYS: Final = 10_957
_GROUP: Final = 10_000
"""A numeric is a row of digits to this base."""
_GROUP_DIGITS: Final = 4
_NUMERIC_DIGITS_MAX: Final = 18
"""So many fit 64 bits."""
_NEGATIVE: Final = 0x4000


@dataclass(frozen=True, slots=True)
class Encoded:
    """The values of a column: the bytes of each, one after the other."""

    lengths: npt.NDArray[np.int32]
    """-1 for null."""
    content: npt.NDArray[np.uint8]
    width: int | None = None
    """How many bytes every value has, where that is the same for all; nulls have theirs in `content` too."""


Encode = Callable[["pa.Array[Any]"], Encoded]


def encoder(column: pa.DataType, sql_type: str) -> Encode | None:
    """How values of an Arrow type are sent to a column of an SQL type, None when they are not sent in binary."""
    kind = pa.types
    if kind.is_boolean(column) and sql_type == "boolean":
        return _booleans
    if kind.is_integer(column) and not kind.is_uint64(column) and sql_type in _WHOLE:
        return _whole(_WHOLE[sql_type], column)
    if kind.is_floating(column) and sql_type == "double precision":
        return _numbers(">f8")
    if kind.is_float32(column) and sql_type == "real":
        return _numbers(">f4")
    if kind.is_string(column) and sql_type in ("text", "json", "character varying", "character"):
        return _texts
    if kind.is_string(column) and sql_type == "jsonb":
        return _jsonb
    if kind.is_string(column) and sql_type == "uuid":
        return _uuids
    if kind.is_binary(column) and sql_type == "bytea":
        return _texts
    if kind.is_date32(column) and sql_type == "date":
        return _shifted(">i4", _EPOCH_DAYS)
    if kind.is_timestamp(column) and column.unit == "us" and sql_type == _moment_type(column):
        return _shifted(">i8", _EPOCH_US)
    if kind.is_time64(column) and column.unit == "us" and sql_type == "time without time zone":
        return _shifted(">i8", 0)
    if isinstance(column, pa.Decimal128Type) and sql_type == "numeric":
        is_small = column.precision <= _NUMERIC_DIGITS_MAX and column.scale >= 0
        return _numerics(column.precision, column.scale) if is_small else None
    return None


_WHOLE: Final = {"smallint": ">i2", "integer": ">i4", "bigint": ">i8"}


def _moment_type(column: pa.DataType) -> str:
    zone: Any = column
    return "timestamp without time zone" if zone.tz is None else "timestamp with time zone"


def _fixed(column: pa.Array[Any], values: npt.NDArray[Any]) -> Encoded:
    width = values.dtype.itemsize if values.ndim == 1 else values.shape[1]
    lengths = np.full(len(column), width, np.int32)
    if column.null_count:
        lengths[~column.is_valid().to_numpy(zero_copy_only=False)] = -1
    return Encoded(lengths, values.reshape(-1).view(np.uint8), width)


def _plain(column: pa.Array[Any], fill: Any = 0) -> npt.NDArray[Any]:
    """The values; where there is none, something that is not looked at."""
    filled: Any = column.fill_null(fill) if column.null_count else column
    values: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return values


def _booleans(column: pa.Array[Any]) -> Encoded:
    return _fixed(column, _plain(column, False).astype(np.uint8))


def _numbers(form: str) -> Encode:
    return lambda column: _fixed(column, _plain(column).astype(form))


def _whole(form: str, kind: pa.DataType) -> Encode:
    """Whole numbers; Arrow's cast refuses what does not fit."""
    target = {">i2": pa.int16(), ">i4": pa.int32(), ">i8": pa.int64()}[form]

    def encode(column: pa.Array[Any]) -> Encoded:
        fitting = column if kind == target else column.cast(target)
        return _fixed(column, _plain(fitting).astype(form))

    return encode


def _shifted(form: str, epoch: int) -> Encode:
    """Dates, moments and times; the largest and the smallest number are infinities, which stay what they are."""
    counts = pa.int32() if form == ">i4" else pa.int64()

    def encode(column: pa.Array[Any]) -> Encoded:
        numbers = _plain(column.view(counts))
        limits = np.iinfo(numbers.dtype)
        is_infinite = (numbers == limits.max) | (numbers == limits.min)
        return _fixed(column, np.where(is_infinite, numbers, numbers - epoch).astype(form))

    return encode


def _texts(column: pa.Array[Any]) -> Encoded:
    offsets, content = _buffers(column)
    lengths = np.diff(offsets).astype(np.int32)
    if column.null_count:
        lengths[~column.is_valid().to_numpy(zero_copy_only=False)] = -1
    return Encoded(lengths, content[offsets[0] : offsets[-1]])


def _jsonb(column: pa.Array[Any]) -> Encoded:
    """Text after the number of its version."""
    versioned: Any = pc.binary_join_element_wise(pa.scalar("\x01"), column, pa.scalar(""))  # type: ignore[call-overload]
    return _texts(versioned)


def _uuids(column: pa.Array[Any]) -> Encoded:
    filled: Any = column.fill_null("0" * 32)
    digits: Any = pc.replace_substring_regex(filled, r"[-{}]", "")
    offsets, content = _buffers(digits)
    if (np.diff(offsets) != 32).any():
        raise ValueError("a text is no uuid")
    raw = bytes.fromhex(content[offsets[0] : offsets[-1]].tobytes().decode())
    return _fixed(column, np.frombuffer(raw, np.uint8).reshape(-1, 16))


def _numerics(precision: int, scale: int) -> Encode:
    """Always all groups that the type has room for; the server drops those that are zero."""
    whole_groups = max(1, -(-(precision - scale) // _GROUP_DIGITS))
    part_groups = -(-scale // _GROUP_DIGITS)
    groups = whole_groups + part_groups

    def encode(column: pa.Array[Any]) -> Encoded:
        raw: Any = column.buffers()[1]
        words = np.frombuffer(raw, "<i8")[2 * column.offset : 2 * (column.offset + len(column)) : 2]
        numbers = np.where(column.is_valid().to_numpy(zero_copy_only=False), words, 0)
        size = np.abs(numbers)
        whole, part = size // 10**scale, size % 10**scale * 10 ** (part_groups * _GROUP_DIGITS - scale)
        form = np.zeros((len(column), 4 + groups), ">u2")
        form[:, 0] = groups
        form[:, 1] = whole_groups - 1
        form[:, 2] = np.where(numbers < 0, _NEGATIVE, 0)
        form[:, 3] = scale
        for at in range(whole_groups):
            form[:, 3 + whole_groups - at] = whole % _GROUP
            whole = whole // _GROUP
        for at in range(part_groups):
            form[:, 3 + groups - at] = part % _GROUP
            part = part // _GROUP
        return _fixed(column, form.view(np.uint8).reshape(len(column), -1))

    return encode


def _buffers(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    buffers: Any = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[column.offset : column.offset + len(column) + 1]
    content = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    return offsets, content
