"""Arrow types as Spark has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_DECIMAL_DIGITS_MAX: Final = 38
_AS: Final[dict[pa.DataType, pa.DataType]] = {
    pa.null(): pa.string(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type nearest to `kind` that Spark knows and that holds all its values; text when there is none."""
    if kind in _AS:
        return _AS[kind]
    if pa.types.is_struct(kind):
        return pa.struct([spark_field(entry) for entry in kind])
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    is_known = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    is_known = is_known or pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_duration(kind)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS_MAX and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    return kind if is_known else pa.string()


def spark_field(entry: pa.Field[Any]) -> pa.Field[Any]:
    """A field as Spark has it."""
    return pa.field(entry.name, spark_type(entry.type))


def spark_schema(schema: pa.Schema) -> StructType:
    """A schema whose types Spark knows, as Spark's own."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's schema as Arrow's."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
