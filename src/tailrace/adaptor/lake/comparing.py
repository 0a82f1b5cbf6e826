"""Reading back the current state of a lake, to compare it with its source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptor.lake.columns import lake_type
from tailrace.adaptor.lake.current import CURRENT
from tailrace.adaptor.lake.delta import find_table
from tailrace.adaptor.lake.place import data_files, table_directory
from tailrace.deliver.conforming import plain_text
from tailrace.log.documents import is_json
from tailrace.verify.contract import Keeps, Piece, Stored


@dataclass(frozen=True, slots=True)
class ParquetReadBack:
    """The files of the versions that are current."""

    path: str

    def find(self, namespace: str, key: tuple[str, ...]) -> Stored | None:
        version = os.path.realpath(os.path.join(table_directory(self.path, namespace), CURRENT))
        files = [os.path.join(version, name) for name in data_files(version)]
        if not files:
            return None
        fields = {name: kept for path in files for name, kept in _kept(pq.read_schema(path)).items()}
        return Stored(fields, key, tuple({"file": path} for path in files))

    def read(self, piece: Piece, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(piece["file"]) as file:
            present = set(file.schema_arrow.names)
            yield from file.iter_batches(columns=[name for name in fields if name in present])

    def as_stored(self, column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
        return as_spark_stores(column, field)


@dataclass(frozen=True, slots=True)
class DeltaReadBack:
    """The files of the newest version of each Delta table."""

    path: str

    def find(self, namespace: str, key: tuple[str, ...]) -> Stored | None:
        directory = table_directory(self.path, namespace)
        table = find_table(directory)
        if table is None:
            return None
        dataset = table.to_pyarrow_dataset()
        count = sum(1 for _ in dataset.get_fragments())
        pieces = tuple({"table": directory, "version": table.version(), "part": part} for part in range(count))
        return Stored(_kept(dataset.schema), key, pieces)

    def read(self, piece: Piece, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from deltalake import DeltaTable

        dataset = DeltaTable(piece["table"], version=piece["version"]).to_pyarrow_dataset()
        names = [name for name in fields if name in dataset.schema.names]
        fragment = sorted(dataset.get_fragments(), key=lambda each: str(each.path))[piece["part"]]
        yield from fragment.to_batches(schema=dataset.schema, columns=names)

    def as_stored(self, column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
        return as_spark_stores(column, field)


def as_spark_stores(column: pa.Array[Any], field: pa.Field[Any]) -> tuple[pa.Array[Any], pa.Field[Any]]:
    """What Spark has no type for is text, durations are numbers. JSON that stands for values is text, too; of text
    without its quotes."""
    if is_json(field):
        return plain_text(column), pa.field(field.name, pa.string())
    wanted = lake_type(column.type)
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"), safe=False).cast(wanted)
    elif pa.types.is_string(wanted) or pa.types.is_timestamp(wanted):
        column = column.cast(wanted, safe=False)
    return column, pa.field(field.name, column.type)


def _kept(schema: pa.Schema) -> dict[str, Keeps]:
    return {entry.name: _keeps(entry.type) for entry in schema}


def _keeps(kind: pa.DataType) -> Keeps:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Keeps.TEXT
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    return Keeps.NUMBER if is_number else Keeps.ANYTHING
