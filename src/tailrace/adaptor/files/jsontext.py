"""Columns as JSON text, a whole column at a time.

Numbers read back as they were: doubles in their shortest form, decimals digit by digit. What JSON has no number for
(NaN, Infinity) is text. Moments and durations are ISO 8601, in UTC if they have a zone; bytes are base64; a field that
is kept as JSON text is that JSON.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.files.columns import is_json_text
from tailrace.moments import is_moment, texts, time_texts

_NULL: Final = "null"
_NAMES_OF_NO_NUMBER: Final = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def lines_of(text: pa.Array[Any]) -> memoryview:
    """Texts, each with its line end, as they are written; text without nulls."""
    return _bytes_of(joined(text, "\n"))


def json_of_struct(column: pa.StructArray) -> pa.Array[Any]:
    """Documents as JSON objects; those that are null as `null`."""
    if column.type.num_fields == 0:
        objects: Any = pa.repeat(pa.scalar("{}"), len(column))
    else:
        fields = list(column.type)
        objects = json_objects(
            {field.name: json_of(child, field) for field, child in zip(fields, column.flatten(), strict=True)}
        )
    objects = objects if column.null_count == 0 else pc.if_else(column.is_valid(), objects, _NULL)
    return cast("pa.Array[Any]", objects)


def json_objects(columns: dict[str, Any]) -> pa.Array[Any]:
    """Objects of which the values are JSON text already; a scalar is the same in all of them."""
    parts: list[Any] = []
    opening = "{"
    for name, column in columns.items():
        parts += [opening + orjson.dumps(name).decode() + ":", column]
        opening = ","
    return cast("pa.Array[Any]", joined(*parts, "}"))


def json_of(column: Any, field: pa.Field[Any] | None = None) -> pa.Array[Any]:
    """Any column as JSON; no value is left null."""
    kind = column.type
    if field is not None and is_json_text(field):
        text: Any = column
    elif pa.types.is_null(kind):
        return pa.repeat(pa.scalar(_NULL), len(column))
    elif pa.types.is_dictionary(kind):
        return json_of(column.dictionary_decode(), field)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = quoted(_escape(pc.cast(column, pa.string())))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = pc.cast(column, pa.string())
    elif pa.types.is_floating(kind):
        text = _floats(column)
    elif pa.types.is_struct(kind):
        return json_of_struct(column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        text = _lists(column)
    elif is_moment(kind):
        text = quoted(texts(column))
    elif pa.types.is_time(kind):
        text = quoted(time_texts(column))
    elif pa.types.is_map(kind):
        text = _maps(column)
    else:
        text = pa.array([None if value is None else _dumps(value) for value in column.to_pylist()], pa.string())
    return cast("pa.Array[Any]", pc.fill_null(text, _NULL) if text.null_count else text)


def quoted(column: Any) -> Any:
    """Text between quotes, which needs no escapes."""
    return joined('"', column, '"')


def joined(*parts: Any) -> Any:
    """Texts put together, row by row; null where a part is null."""
    join: Any = pc.binary_join_element_wise
    return join(*parts, "")


def _escape(column: Any) -> Any:
    """Text as it stands between quotes in JSON."""
    octets = np.frombuffer(_bytes_of(column), np.uint8)
    if (octets == ord("\\")).any():
        column = pc.replace_substring(column, "\\", "\\\\")
    if (octets == ord('"')).any():
        column = pc.replace_substring(column, '"', '\\"')
    for control in np.unique(octets[octets < 32]).tolist():
        escaped = orjson.dumps(chr(control)).decode()[1:-1]
        column = pc.replace_substring(column, chr(control), escaped)
    return column


def _floats(column: Any) -> Any:
    text = pc.cast(column, pa.string())
    text = pc.if_else(pc.match_substring_regex(text, "^-?[0-9]+$"), joined(text, ".0"), text)
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        for name, written in _NAMES_OF_NO_NUMBER.items():
            text = pc.if_else(pc.equal(text, pa.scalar(name)), written, text)
    return text


def _lists(column: Any) -> Any:
    items = json_of(column.flatten())
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    starts = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    contents = pc.binary_join(pa.ListArray.from_arrays(starts, items), ",")
    text = joined("[", contents, "]")
    return text if column.null_count == 0 else pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))


def _maps(column: Any) -> Any:
    """Maps with text for keys are objects, others are lists of pairs."""
    as_object = pa.types.is_string(column.type.key_type)
    maps = (None if value is None else dict(value) if as_object else value for value in column.to_pylist())
    return pa.array([None if value is None else _dumps(value) for value in maps], pa.string())


def _dumps(value: Any) -> str:
    return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS).decode()


def plain(value: Any) -> Any:
    """What orjson does not know."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return f"PT{Decimal(value // timedelta(microseconds=1)).scaleb(-6).normalize():f}S"
    return str(value)


def _bytes_of(column: Any) -> memoryview:
    """The text of all values of a string column without nulls, one after the other."""
    data, start = column.buffers(), column.offset
    if data[2] is None or not len(column):
        return memoryview(b"")
    offsets = np.frombuffer(data[1], np.int32, len(column) + 1, start * 4)
    return memoryview(data[2])[offsets[0] : offsets[-1]]
