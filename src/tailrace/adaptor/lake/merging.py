"""Merging messages into rows: the last message of every key decides."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa

from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.spark.types import spark_field, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

FILES: Final = 4
"""What is merged goes into so many files."""
_FILE: Final = "__file"


class Merge:
    """The messages of one batch, about to be merged."""

    def __init__(self, target: Target, frame: DataFrame) -> None:
        self._target = target
        self._frame = frame
        self._spark = frame.sparkSession
        self._last: DataFrame | None = None

    def inserted(self) -> DataFrame:
        """The rows, when every message is the first of its key."""
        return self._frame.select(*self._fields(self._frame["data"]))

    def upserted(self) -> DataFrame:
        """The rows that exist after the batch, among those it is about."""
        if not self._target.key:
            return self._only_inserts()
        last = self._last_changes()
        return last.where(last["op"] != "delete").select(*self._fields(last["data"]))

    def changes(self, deleted: str) -> DataFrame:
        """The last change of every key: its row, and whether it is gone, in a column of that name."""
        last = self._last_changes()
        others = [
            column
            for name, column in zip(self._wanted().names, self._fields(last["data"]), strict=True)
            if name not in self._target.key
        ]
        return last.select(*self._target.key, *others, (last["op"] == "delete").alias(deleted))

    def touched(self, files: list[str]) -> list[str]:
        """The files that hold a row which the batch is about."""
        from pyspark.sql import functions as sql

        if not self._target.key:
            return []
        rows = self._read(files)
        named = rows.select(*[rows[name] for name in self._target.key], sql.input_file_name().alias(_FILE))
        changed = self._last_changes().select(*self._target.key)
        found = named.join(sql.broadcast(changed), list(self._target.key), "left_semi").select(_FILE).distinct()
        return [os.path.realpath(unquote(urlparse(row[_FILE]).path)) for row in found.collect()]

    def merged(self, files: list[str]) -> DataFrame:
        """The rows of some files after the batch."""
        if not files:
            return self.upserted()
        from pyspark.sql import functions as sql

        rows = self._read(files)
        if self._target.key:
            changed = self._last_changes().select(*self._target.key)
            rows = rows.join(sql.broadcast(changed), list(self._target.key), "left_anti")
        return self._widened(rows).unionByName(self.upserted(), allowMissingColumns=True).coalesce(FILES)

    def _read(self, files: list[str]) -> DataFrame:
        return self._spark.read.parquet(*[f"file://{path}" for path in files])

    def _widened(self, rows: DataFrame) -> DataFrame:
        """Rows of older files with the types that the target has now."""
        wanted = self._wanted()
        columns = [
            rows[entry.name].cast(entry.dataType).alias(entry.name) if entry.name in rows.columns else _null(entry)
            for entry in wanted.fields
        ]
        others = [rows[name] for name in rows.columns if name not in wanted.names]
        return rows.select(*columns, *others)

    def _last_changes(self) -> DataFrame:
        """The last message of every key; a row that moved to another key is a delete of the old one."""
        if self._last is None:
            from pyspark.sql import functions as sql

            key = self._target.key
            frame = self._frame
            rows = frame.select(*[frame["data"].getField(name).alias(name) for name in key], "offset", "op", "data")
            if set(key) <= _fields_of(frame, "before"):
                moved = frame.where(frame["before"].isNotNull() & ~_same_key(frame, key) & (frame["op"] == "update"))
                rows = rows.unionByName(
                    moved.select(
                        *[moved["before"].getField(name).alias(name) for name in key],
                        "offset",
                        sql.lit("delete").alias("op"),
                        "data",
                    )
                )
            best = sql.max_by(sql.struct("op", "data"), sql.col("offset")).alias("best")
            last = rows.groupBy(*key).agg(best)
            self._last = last.select(*key, "best.op", "best.data")
        return self._last

    def _fields(self, data: Column) -> list[Column]:

        present = _fields_of(self._frame, "data")
        return [
            data.getField(entry.name).cast(entry.dataType).alias(entry.name) if entry.name in present else _null(entry)
            for entry in self._wanted().fields
        ]

    def _wanted(self) -> StructType:
        """What the table's rows look like from now on."""
        return spark_schema(pa.schema([spark_field(entry) for entry in self._target.schema]))

    def _only_inserts(self) -> DataFrame:
        """Without a key there is nothing that an update or a delete could refer to."""
        other = self._frame.where(self._frame["op"] != "insert").select("offset", "op").limit(1).collect()
        if other:
            raise TailraceError(
                "destination.refused",
                f"offset {other[0]['offset']} of {self._target.namespace} is an {other[0]['op']}, but the namespace has"
                " no key to find its row by",
                hint="give the reader a key, or keep: history",
            )
        return self.inserted()


def _same_key(frame: DataFrame, key: tuple[str, ...]) -> Column:
    equal = [frame["data"].getField(name).eqNullSafe(frame["before"].getField(name)) for name in key]
    return functools.reduce(lambda first, second: first & second, equal)


def _fields_of(frame: DataFrame, column: str) -> set[str]:
    """The names of the fields of a struct column."""
    kind: Any = frame.schema[column].dataType
    return set(kind.names)


def _null(entry: Any) -> Column:
    from pyspark.sql import functions as sql

    return sql.lit(None).cast(entry.dataType).alias(entry.name)
