"""Documents as JSON text that loses nothing."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.log.selection import SelectedFrame


def texts(column: pa.Array[Any]) -> pa.Array[Any]:
    """Each document of a struct column as JSON text.

    Numbers keep all their digits, what is not finite is NaN or Infinity as in Spark's own JSON, binary values are
    base64, moments and durations text.
    """
    stored = [entry.name for entry in column.type if (entry.metadata or {}).get(TYPE_METADATA) == JSON]
    exact = [entry.name for entry in column.type if _has_floats(entry.type)]
    rows: list[Any] = column.to_pylist()
    for row in rows:
        if row is None:
            continue
        for name in exact:
            row[name] = _exact(row[name])
        for name in stored:
            if row[name] is not None:
                row[name] = orjson.Fragment(row[name])
    found = [None if row is None else orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS) for row in rows]
    return pa.array(found, pa.binary()).cast(pa.string())


def plain_text(frame: SelectedFrame) -> str | None:
    """The document of a frame that Transporter wrote, exactly as it is."""
    document = frame.plain_data()  # raises when it is none
    raw = bytes(frame.body)
    return None if document is None else raw.decode(json.detect_encoding(raw), "surrogatepass")


def _has_floats(kind: Any) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))
    return pa.types.is_floating(kind)


def _exact(value: Any) -> Any:
    """The value with numbers that JSON does not have put in as they are: orjson would make them null."""
    if isinstance(value, float) and not math.isfinite(value):
        return orjson.Fragment(json.dumps(value))
    if isinstance(value, dict):
        return {name: _exact(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(inner) for inner in value]
    return value


def _plain(value: Any) -> Any:
    """What orjson has no form for."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
