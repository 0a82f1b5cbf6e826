"""The columns of a lake's tables, and how the fields of messages and the columns of older files become them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailrace.deliver.contract import Target
from tailrace.deliver.evolution import wider
from tailrace.errors import TailraceError
from tailrace.spark.tasks import marked
from tailrace.spark.types import spark_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_EPOCH: Final = "timestamp_seconds(0)"


def table_schema(existing: pa.Schema | None, target: Target) -> pa.Schema:
    """The columns that a table is to have: its own and the fields of the target, each with a type that holds both. A
    field that never had a value is none yet, for nobody knows its type."""
    columns = {} if existing is None else {entry.name: _column(entry) for entry in existing}
    for entry in target.schema:
        if not pa.types.is_null(entry.type) or entry.name in target.key:
            was = columns.get(entry.name)
            columns[entry.name] = _column(entry) if was is None else _column(wider(was, _column(entry)))
    return pa.schema(list(columns.values()) or [_column(entry) for entry in target.schema])


def lake_type(kind: pa.DataType) -> pa.DataType:
    """A type as a lake has it: Spark's, but for durations, which few readers of files know."""
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([_column(entry) for entry in kind])
    if pa.types.is_map(kind):
        return pa.map_(lake_type(kind.key_type), lake_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(lake_type(kind.value_type))
    return spark_type(kind)


def quoted(name: str) -> str:
    """A column's name as Spark takes it for nothing else."""
    return "`" + name.replace("`", "``") + "`"


def struct_of(frame: DataFrame, column: str) -> StructType:
    """The type of a struct column."""
    kind: Any = frame.schema[column].dataType
    found: StructType = kind
    return found


def fitted_rows(rows: DataFrame, wanted: pa.Schema) -> DataFrame:
    """Rows of older files with the columns that their table has now."""
    columns = {name: rows[quoted(name)] for name in rows.columns}
    return rows.select(*_all_fitted(columns, rows.schema, spark_schema(wanted)))


def fitted_fields(struct: Column, have: StructType, want: StructType) -> list[Column]:
    """The fields of a struct as columns of other types."""
    return _all_fitted({name: struct.getField(name) for name in have.names}, have, want)


def _all_fitted(columns: dict[str, Column], have: StructType, want: StructType) -> list[Column]:
    return [
        (
            _fitted(columns[entry.name], have[entry.name].dataType, entry.dataType, entry.name)
            if entry.name in columns
            else _null(entry.dataType)
        ).alias(entry.name)
        for entry in want.fields
    ]


def _fitted(column: Column, have: Any, want: Any, name: str) -> Column:
    """A column with another type, which must hold its values: one that would change stops the writer."""
    from pyspark.sql import functions as sql
    from pyspark.sql import types as kinds

    if have == want:
        return column
    if isinstance(have, kinds.StructType) and isinstance(want, kinds.StructType):
        return sql.when(column.isNotNull(), sql.struct(*fitted_fields(column, have, want)))
    if isinstance(have, kinds.ArrayType) and isinstance(want, kinds.ArrayType):
        return sql.transform(column, lambda part: _fitted(part, have.elementType, want.elementType, name))
    if isinstance(have, kinds.MapType) and isinstance(want, kinds.MapType):
        return sql.transform_values(column, lambda _, part: _fitted(part, have.valueType, want.valueType, name))
    if isinstance(have, kinds.StructType | kinds.ArrayType | kinds.MapType):
        return sql.to_json(column, {"ignoreNullFields": "false"})
    if isinstance(have, kinds.DayTimeIntervalType) and isinstance(want, kinds.LongType):
        return sql.unix_micros(sql.expr(_EPOCH) + column)
    cast = column.cast(want)
    if isinstance(have, kinds.IntegralType) and isinstance(want, kinds.FractionalType):
        is_kept = column.isNull() | column.eqNullSafe(cast.try_cast(have))
        return sql.when(is_kept, cast).otherwise(sql.raise_error(sql.lit(marked(_does_not_fit(name, want)))))
    return cast


def _does_not_fit(name: str, kind: DataType) -> TailraceError:
    what = f"field {name} has whole numbers that its new type, {kind.simpleString()}, cannot hold"
    return TailraceError("schema.changed", what, hint="change the field's type with a function")


def _null(kind: DataType) -> Column:
    from pyspark.sql import functions as sql

    return sql.lit(None).cast(kind)


def _column(entry: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(entry.name, lake_type(entry.type))
