"""The types of Avro and those of Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.files.columns import is_json_text
from tailrace.log.documents import JSON, TYPE_METADATA

Avro = Any
"""A type as a file's schema has it: a name, a list of alternatives or an object."""

TEXT: Final = "string"
_PLAIN: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    TEXT: pa.string(),
}
_MOMENTS: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WRITTEN: Final[dict[pa.DataType, Avro]] = {
    **{kind: name for name, kind in _PLAIN.items() if name != "null"},
    **{kind: {"type": name, "logicalType": logical} for (name, logical), kind in _MOMENTS.items()},
    **dict.fromkeys([pa.int8(), pa.int16(), pa.uint8(), pa.uint16()], "int"),
    **dict.fromkeys([pa.uint32()], "long"),
    **dict.fromkeys([pa.large_binary(), pa.binary_view()], "bytes"),
}


def arrow_schema(record: Mapping[str, Avro]) -> pa.Schema:
    """The columns of a record; one of which the values have no common type, or have themselves inside, is JSON text."""
    fields: list[pa.Field[Any]] = []
    names: dict[str, pa.DataType | None] = {record["name"]: None}
    for each in record["fields"]:
        kind = _arrow(each["type"], names)
        text = pa.field(each["name"], pa.string(), metadata={TYPE_METADATA: JSON})
        fields.append(text if kind is None else pa.field(each["name"], kind))
    return pa.schema(fields)


def as_stored(avro: Avro) -> Avro:
    """The schema by which moments are read as numbers and identifiers as text, which is how they are stored."""
    if isinstance(avro, list):
        return [as_stored(each) for each in avro]
    if not isinstance(avro, Mapping):
        return avro
    is_kept = avro.get("logicalType") == "decimal"
    return {key: as_stored(value) for key, value in avro.items() if key != "logicalType" or is_kept}


def avro_type(field: pa.Field[Any]) -> Avro:
    """The type as which a column is written; what Avro has no type for, or is nested, is text."""
    kind: Any = field.type
    if is_json_text(field):
        return TEXT
    if pa.types.is_timestamp(kind) and kind.tz:
        kind = pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _WRITTEN.get(kind, TEXT)


def _arrow(avro: Avro, names: dict[str, pa.DataType | None]) -> pa.DataType | None:
    """The type of a column, None when there is none. `names` has the named types so far; one that we are inside of has
    no type."""
    if isinstance(avro, list):
        others = [each for each in avro if each != "null"]
        return _arrow(others[0], names) if len(others) == 1 else None
    if isinstance(avro, str):
        return _PLAIN.get(avro) or names.get(avro)
    kind, logical = avro["type"], avro.get("logicalType", "")
    inner: Any
    if logical == "decimal":
        found = _decimal(avro["precision"], avro.get("scale", 0))
    elif kind == "record":
        names[avro["name"]] = None
        inner = {each["name"]: _arrow(each["type"], names) for each in avro["fields"]}
        found = None if None in inner.values() else pa.struct(inner)
    elif kind == "enum":
        found = pa.string()
    elif kind == "fixed":
        found = pa.binary(avro["size"])
    elif kind in ("array", "map"):
        inner = _arrow(avro.get("items", avro.get("values")), names)
        found = None if inner is None else pa.list_(inner) if kind == "array" else pa.map_(pa.string(), inner)
    else:
        found = _MOMENTS.get((str(kind), logical)) or _arrow(kind, names)
    if "name" in avro:
        names[avro["name"]] = found
    return found


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    if precision <= 38:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale) if precision <= 76 else None
