"""Merging messages into rows: the last message of every key decides."""

from __future__ import annotations

import functools
import os
from functools import cached_property
from operator import and_
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa

from tailrace.adaptor.lake.changes import with_moves
from tailrace.adaptor.lake.columns import fitted_fields, fitted_rows, quoted, struct_of
from tailrace.adaptor.lake.loading import null_key
from tailrace.adaptor.lake.place import for_spark
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.spark.tasks import marked
from tailrace.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FILES: Final = 4
"""What is merged goes into so many files."""
_FILE: Final = "file"


class Merge:
    """The messages of one batch, about to be merged into a table with the columns `schema`."""

    def __init__(self, target: Target, schema: pa.Schema, frame: DataFrame) -> None:
        self._target = target
        self._schema = schema
        self._frame = frame
        self._data = struct_of(frame, "data")
        self.absent = [name for name in schema.names if name not in self._data.names]
        """Columns of which the batch says nothing: an update leaves them as they are."""

    def inserted(self) -> DataFrame:
        """The rows, when every message is the first of its key."""
        return self._frame.select(*self._columns(self._frame))

    def upserted(self) -> DataFrame:
        """The rows that exist after the batch, among those it is about."""
        if not self._target.key:
            return self._only_inserts()
        return self._present.select(*self._columns(self._present))

    def changes(self, deleted: str, updated: str) -> DataFrame:
        """The last change of every key: its row and, in columns of these names, whether it is gone, and whether nothing
        but updates came."""
        last = self._last
        return last.select(
            *self._columns(last), (last["op"] == "delete").alias(deleted), last["is_update"].alias(updated)
        )

    def touched(self, files: list[str]) -> list[str]:
        """The files that hold a row which the batch is about."""
        from pyspark.sql import functions as sql

        if not self._target.key:
            return []
        rows = fitted_rows(self._read(files), self._key_schema).withColumn(_FILE, sql.input_file_name())
        names = [f"row_{at}" for at in range(len(self._target.key))]
        rows = rows.toDF(*names, _FILE)
        found = rows.join(sql.broadcast(self._keys), self._is_at(rows, names), "left_semi").select(_FILE).distinct()
        return [os.path.realpath(unquote(urlparse(row[_FILE]).path)) for row in found.collect()]

    def merged(self, files: list[str]) -> DataFrame:
        """The rows of some files after the batch."""
        if not files:
            return self.upserted()
        from pyspark.sql import functions as sql

        rows = fitted_rows(self._read(files), self._schema)
        if not self._target.key:
            return rows.unionByName(self.upserted()).coalesce(FILES)
        others = rows.join(sql.broadcast(self._keys), self._is_at(rows, self._target.key), "left_anti")
        return others.unionByName(self._completed(rows) if self.absent else self.upserted()).coalesce(FILES)

    def _completed(self, rows: DataFrame) -> DataFrame:
        """Like `upserted`; what the batch says nothing of is as it was in rows that are only updated."""
        from pyspark.sql import functions as sql

        present = self._present
        joined = present.join(rows, self._is_at(rows, self._target.key), "left_outer")
        columns = dict(zip(self._schema.names, self._columns(present), strict=True))
        for name in self.absent:
            columns[name] = sql.when(present["is_update"], rows[quoted(name)]).alias(name)
        return joined.select(*columns.values())

    @cached_property
    def _last(self) -> DataFrame:
        """The last message of every key: `op` and `data`, and whether nothing but updates came."""
        from pyspark.sql import functions as sql

        frame = with_moves(self._frame, self._target.key)
        names = self._key_names
        parts = self._columns(frame, self._key_schema)
        key = [part.alias(name) for name, part in zip(names, parts, strict=True)]
        rows = frame.select(*key, "offset", "op", "data")
        best = sql.max_by(sql.struct("op", "data"), sql.col("offset")).alias("best")
        last = rows.groupBy(*names).agg(best, sql.every(sql.col("op") == "update").alias("is_update"))
        return last.select(*names, "best.op", "best.data", "is_update")

    @cached_property
    def _present(self) -> DataFrame:
        """What is there after the batch."""
        return self._last.where(self._last["op"] != "delete")

    @cached_property
    def _keys(self) -> DataFrame:
        return self._last.select(*self._key_names)

    @property
    def _key_names(self) -> list[str]:
        """The columns of `_last` that hold the key; those of the table may be called like anything."""
        return [f"key_{at}" for at in range(len(self._target.key))]

    @property
    def _key_schema(self) -> pa.Schema:
        return pa.schema([self._schema.field(name) for name in self._target.key])

    def _is_at(self, rows: DataFrame, names: tuple[str, ...] | list[str]) -> Column:
        """Whether a row has a key that the batch is about."""
        equal = [rows[quoted(name)] == self._last[key] for name, key in zip(names, self._key_names, strict=True)]
        return functools.reduce(and_, equal)

    def _columns(self, frame: DataFrame, schema: pa.Schema | None = None) -> list[Column]:
        """The columns of the table, or some of them, from a frame with `data`."""
        wanted = self._schema if schema is None else schema
        columns = fitted_fields(frame["data"], self._data, spark_schema(wanted))
        key = self._target.key
        return [
            self._refusing_null(name, column) if name in key else column
            for name, column in zip(wanted.names, columns, strict=True)
        ]

    def _refusing_null(self, name: str, column: Column) -> Column:
        """A part of the key."""
        from pyspark.sql import functions as sql

        error = null_key(self._target.namespace, name)
        return sql.when(column.isNull(), sql.raise_error(sql.lit(marked(error)))).otherwise(column).alias(name)

    def _read(self, files: list[str]) -> DataFrame:
        return self._frame.sparkSession.read.parquet(*for_spark(files))

    def _only_inserts(self) -> DataFrame:
        """Without a key there is nothing that an update or a delete could refer to."""
        others = self._frame.where(self._frame["op"] != "insert").select("offset", "op")
        for other in others.orderBy("offset").limit(1).collect():
            raise TailraceError(
                "destination.refused",
                f"{self._target.namespace} has no key, so the {other['op']} at offset {other['offset']} finds no row",
                hint="give the reader a key, or keep: history",
            )
        return self.inserted()
