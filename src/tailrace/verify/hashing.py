"""Hashes of values, the same on both sides: equal values have equal hashes, whatever type their columns have.

Numbers count by value (5 is 5.0 is true's 1), moments by the moment, text and binary by their bytes, nested values by
their JSON. A null has the hash 0, which is also that of a field that is not there.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.moments import time_texts, values
from tailrace.verify.plain import plain_json
from tailrace.verify.spans import Hashes, hash_spans, mix

_WHOLE: Final = np.uint64(0x1B873593CC9E2D51)
_FRACTION: Final = np.uint64(0x52DCE729DA3ED3A7)
_MOMENT: Final = np.uint64(0x38495AB5C2B2AE35)
_DAY: Final = np.uint64(0x27D4EB2F165667C5)
_SPAN: Final = np.uint64(0x165667B19E3779F9)
_SALTS: Final = {
    "text": np.uint64(0x94D049BB12345677),
    "binary": np.uint64(0x2545F4914F6CDD1D),
    "json": np.uint64(0x9FB21C651E98DF25),
    "digits": np.uint64(0xD6E8FEB86659FD93),
}
"""So that the same bytes of different classes differ."""
_INT64: Final = 1 << 63
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_TRUTHS: Final = {"true": 1, "false": 0}


def hash_column(column: pa.Array[Any], *, is_json: bool = False, is_loose: bool = False) -> Hashes:
    """The hash of every value. `is_json`: the text stands for its values; `is_loose`: text of a number is a number."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_dictionary(kind):
        return hash_column(column.cast(kind.value_type), is_json=is_json, is_loose=is_loose)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    found = _hash_by_type(column) if not is_json and not is_loose else None
    if found is None:
        return _hash_distinct(column, is_json=is_json, is_loose=is_loose)
    found[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def hash_values(values: Sequence[Any], *, is_loose: bool = False) -> Hashes:
    """Like `hash_column`, for values of any class."""
    found = np.zeros(len(values), np.uint64)
    classes: dict[str, list[tuple[int, Any]]] = {name: [] for name in ("whole", "fraction", *_SALTS)}
    for at, value in enumerate(values):
        if value is not None:
            group, member = _classified(value, is_loose)
            classes[group].append((at, member))
    for group, members in classes.items():
        if members:
            places = [at for at, _ in members]
            found[places] = _hash_class(group, [member for _, member in members])
    return found


def _hash_by_type(column: pa.Array[Any]) -> Hashes | None:
    """The hashes where one formula fits the whole column."""
    kind, types = column.type, pa.types
    if types.is_boolean(kind):
        return _hash_whole(_numbers(column.cast(pa.int8())))
    if types.is_integer(kind):
        return None if kind == pa.uint64() and _is_beyond_int64(column) else _hash_whole(_numbers(column))
    if types.is_floating(kind):
        return _hash_floats(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    if _is_text(kind) or _is_binary(kind):
        return hash_spans(column, _SALTS["text" if _is_text(kind) else "binary"])
    if types.is_timestamp(kind):
        return _hash_moments(column)
    if types.is_date(kind):
        return mix(_numbers(column.cast(pa.date32()).view(pa.int32())).view(np.uint64) ^ _DAY)
    if types.is_duration(kind):
        return mix(_numbers(column.cast(pa.duration("us"), safe=False).view(pa.int64())).view(np.uint64) ^ _SPAN)
    return None


def _hash_distinct(column: pa.Array[Any], *, is_json: bool, is_loose: bool) -> Hashes:
    """Value by value; of values that repeat only once."""
    kind, types = column.type, pa.types
    if types.is_time(kind):
        column = time_texts(column)
    if types.is_nested(kind):
        return hash_values(values(column), is_loose=is_loose)
    encoded: Any = pc.dictionary_encode(column)
    distinct = encoded.dictionary.to_pylist()
    if is_json:
        distinct = [None if text is None else _stood_for(text) for text in distinct]
    hashes = np.append(hash_values(distinct, is_loose=is_loose), np.uint64(0))
    places = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    return cast("Hashes", hashes[places])


def _classified(value: Any, is_loose: bool) -> tuple[str, Any]:
    if isinstance(value, bool | int):
        return ("whole", int(value)) if -_INT64 <= value < _INT64 else ("digits", str(value).encode())
    if isinstance(value, float):
        return "fraction", value
    if isinstance(value, Decimal):
        return _classified_decimal(value)
    if isinstance(value, str):
        if is_loose and (number := _as_number(value)) is not None:
            return _classified(number, False)
        return "text", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return "binary", bytes(value)
    return "json", plain_json(value).encode("utf-8", "surrogatepass")


def _classified_decimal(value: Decimal) -> tuple[str, Any]:
    if not value.is_finite():
        return "fraction", float(value)
    if value == value.to_integral_value():
        return _classified(int(value), False)
    near = float(value)
    return ("fraction", near) if Decimal(repr(near)) == value else ("digits", str(value.normalize()).encode())


def _hash_class(group: str, members: list[Any]) -> Hashes:
    if group == "whole":
        return _hash_whole(np.array(members, np.int64))
    if group == "fraction":
        return _hash_floats(np.array(members, np.float64))
    return hash_spans(pa.array(members, pa.large_binary()), _SALTS[group])


def _hash_whole(numbers: npt.NDArray[np.int64]) -> Hashes:
    return mix(numbers.view(np.uint64) ^ _WHOLE)


def _hash_floats(numbers: npt.NDArray[np.float64]) -> Hashes:
    """A float that is a whole number is that number."""
    is_whole = np.isfinite(numbers) & (np.trunc(numbers) == numbers) & (np.abs(numbers) < float(_INT64))
    whole = _hash_whole(np.where(is_whole, numbers, 0.0).astype(np.int64))
    bits = np.where(np.isnan(numbers), math.nan, numbers).view(np.uint64)
    return np.where(is_whole, whole, mix(bits ^ _FRACTION))


def _hash_moments(column: pa.Array[Any]) -> Hashes:
    if column.type.unit != "ns":
        return mix(_numbers(column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())).view(np.uint64) ^ _MOMENT)
    micros, rest = np.divmod(_numbers(column.view(pa.int64())), 1000)
    hashes = mix(micros.view(np.uint64) ^ _MOMENT)
    return np.where(rest == 0, hashes, mix(hashes ^ rest.view(np.uint64)))


def _numbers(column: pa.Array[Any]) -> npt.NDArray[np.int64]:
    filled: Any = column.cast(pa.int64()).fill_null(0)
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    is_plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return is_plain or types.is_binary_view(kind)


def _is_beyond_int64(column: pa.Array[Any]) -> bool:
    highest: Any = pc.max(column).as_py()
    return highest is not None and highest >= _INT64


def _as_number(text: str) -> int | float | None:
    if text in _TRUTHS:
        return _TRUTHS[text]
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isascii() and text.lstrip("+-").isdigit() else float(text)


def _stood_for(text: str) -> Any:
    """A value that JSON stands for; what JSON has no word for is an object with one field."""
    value = json.loads(text)
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        if name == "$binary" and isinstance(inner, str):
            return b64decode(inner)
        if name == "$real" and isinstance(inner, str):
            return float(inner)
    return value
