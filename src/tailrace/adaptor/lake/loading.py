"""Loading: rows of a copy into new files, each by a task, as Arrow columns; Spark's SQL engine has no part in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.adaptor.lake.place import SUFFIX
from tailrace.deliver.contract import Target
from tailrace.deliver.frames import RowRanges
from tailrace.deliver.task import DeliverItem
from tailrace.errors import TailraceError
from tailrace.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.spark.tasks import Receipt


@dataclass(frozen=True, slots=True)
class LoadFile:
    """Writes the rows of a range into one file."""

    ranges: RowRanges
    directory: str
    target: Target
    schema: pa.Schema
    """The columns of the table."""
    meta: Mapping[str, str]
    """Columns of the table that are no fields: what of a message each holds."""

    def __call__(self, item: DeliverItem) -> Receipt:
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, f"part-{item.start:020d}{SUFFIX}")
        with pq.ParquetWriter(path, self.schema, store_schema=False) as file:
            for rows in self.ranges.rows(item):
                file.write_batch(self._columns(rows))
        return {}

    def _columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        data: Any = rows.column("data")
        columns: list[Any] = []
        for field in self.schema:
            if field.name in self.meta:
                columns.append(rows.column(self.meta[field.name]))
            elif (at := data.type.get_field_index(field.name)) >= 0:
                columns.append(pc.struct_field(data, [at]))
            else:
                columns.append(pa.nulls(len(rows), field.type))
            if field.name in self.target.key and columns[-1].null_count:
                raise null_key(self.target.namespace, field.name)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def load_files(
    frame: DataFrame,
    ranges: RowRanges,
    directory: str,
    target: Target,
    schema: pa.Schema,
    meta: Mapping[str, str] | None = None,
) -> None:
    """Write all ranges into files of a new directory."""
    work = LoadFile(ranges, directory, target, schema, meta or {})
    run_tasks(frame.sparkSession, ranges.label, work, ranges.items).all()


def fits(ranges: RowRanges, schema: pa.Schema) -> bool:
    """Whether the fields of the rows have the very types of the table's columns."""
    fields: Any = ranges.schema.field("data").type
    return all(schema.field(field.name).type == field.type for field in fields if field.name in schema.names)


def null_key(namespace: str, name: str) -> TailraceError:
    """A row that nothing can refer to."""
    what = f"{namespace} has NULL in its key column {name}, so it names no row"
    hint = "give the row a key in the source, or keep: history"
    return TailraceError("destination.refused", what, hint=hint)
