"""Delta tables, written by the `deltalake` package: history by appending, current state by MERGE.

Each commit carries the offset it came up to as the version of an application transaction, which makes it effectively
once: a batch that is there already is not written again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds

from tailrace.adaptor.lake.columns import fitted_rows, lake_type, table_schema
from tailrace.adaptor.lake.history import history_rows, history_schema
from tailrace.adaptor.lake.loading import fits, load_files
from tailrace.adaptor.lake.merging import Merge
from tailrace.adaptor.lake.options import Keep
from tailrace.adaptor.lake.place import (
    attempt_directory,
    data_files,
    for_spark,
    make_directory,
    reaching,
    sync_files,
    table_directory,
)
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.message import Offset
from tailrace.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.deliver.frames import RowRanges

DELETED: Final = "~deleted"
UPDATED: Final = "~updated"
"""Columns of what is merged, beside those of the table."""
NO_COPY: Final = -1
LOG: Final = "_delta_log"
STAGING: Final = "_staging"


class DeltaLake:
    """One Delta table per namespace."""

    def __init__(self, path: str, keep: Keep, consumer: str) -> None:
        self._lake = path
        self._keep = keep
        self._consumer = consumer or "tailrace"
        self._copying = f"{self._consumer}/copy"

    @reaching()
    def applied(self, namespace: str) -> Offset | None:
        table = find_table(table_directory(self._lake, namespace))
        version = None if table is None else table.transaction_version(self._consumer)
        return None if version is None else Offset(version)

    @reaching()
    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        directory = table_directory(self._lake, target.namespace)
        make_directory(directory)
        table = find_table(directory)
        version = -1 if table is None else table.version()
        existing = None if table is None else schema_of(table)
        schema = (history_schema if self._keep is Keep.HISTORY else table_schema)(existing, target)
        if table is not None and existing is not None and not existing.equals(schema):
            table = self._reshaped(directory, table, existing, schema, frame.sparkSession)
        if self._keep is Keep.HISTORY:
            _append_rows(directory, history_rows(frame, target, schema), self._commit(upto, None))
        else:
            self._write_state(directory, table, Merge(target, schema, frame), target, upto)
        _sync_since(directory, version)

    @reaching()
    def load(self, target: Target, frame: DataFrame, ranges: RowRanges, upto: Offset) -> bool:
        directory = table_directory(self._lake, target.namespace)
        table = find_table(directory)
        existing = None if table is None else schema_of(table)
        schema = table_schema(existing, target)
        is_reshaped = existing is not None and not existing.equals(schema)
        is_current = self._keep is Keep.CURRENT and self._is_pristine(table, target)
        if not is_current or is_reshaped or not fits(ranges, schema):
            return False
        make_directory(directory)
        version = -1 if table is None else table.version()

        def stage(place: str) -> None:
            load_files(frame, ranges, place, target, schema)

        _append(directory, stage, schema, self._commit(upto, target.copy))
        _sync_since(directory, version)
        return True

    @reaching()
    def clear(self, namespace: str, upto: Offset) -> bool:
        if self._keep is Keep.HISTORY:
            return False
        directory = table_directory(self._lake, namespace)
        table = find_table(directory)
        if table is not None:
            version = table.version()
            table.delete(commit_properties=self._commit(upto, None))
            _sync_since(directory, version)
        return True

    def close(self) -> None:
        """There is nothing to let go of."""

    def _write_state(
        self, directory: str, table: DeltaTable | None, merge: Merge, target: Target, upto: Offset
    ) -> None:
        is_pristine = self._is_pristine(table, target)
        commit = self._commit(upto, target.copy if is_pristine else None)
        if is_pristine:
            _append_rows(directory, merge.inserted(), commit)
        elif table is None or not target.key:
            _append_rows(directory, merge.upserted(), commit)
        else:
            _merge(directory, table, target.key, merge, commit)

    def _is_pristine(self, table: DeltaTable | None, target: Target) -> bool:
        """Whether all that the table has, and all that comes, are rows of one copy, so that none is there twice."""
        copying = None if table is None else table.transaction_version(self._copying)
        return target.copy is not None and (table is None or copying == target.copy)

    def _reshaped(
        self, directory: str, table: DeltaTable, existing: pa.Schema, schema: pa.Schema, spark: SparkSession
    ) -> DeltaTable:
        """The table with other columns, in a version of its own. For wider types all rows are written anew: `deltalake`
        would cut new values to the type that the column had."""
        from deltalake import DeltaTable, write_deltalake

        if all(schema.field(entry.name).type == entry.type for entry in existing):
            write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
        else:
            with _stream_rows(directory, fitted_rows(self._read(spark, directory, table), schema)) as rows:
                write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")
        return DeltaTable(directory)

    def _read(self, spark: SparkSession, directory: str, table: DeltaTable) -> DataFrame:
        """All rows; what cannot be read as plain files, such as deletion vectors, is refused."""
        fragments: Any = table.to_pyarrow_dataset().get_fragments()
        files = for_spark(os.path.join(directory, fragment.path) for fragment in fragments)
        if not files:
            return spark.createDataFrame([], spark_schema(schema_of(table)))
        return spark.read.option("mergeSchema", "true").parquet(*files)

    def _commit(self, upto: Offset, copy: Offset | None) -> CommitProperties:
        """What is noted with a version: the offset, and the copy whose rows are all that the table has."""
        from deltalake import CommitProperties, Transaction

        noted = {self._consumer: int(upto), self._copying: NO_COPY if copy is None else int(copy)}
        return CommitProperties(app_transactions=[Transaction(app_id, version) for app_id, version in noted.items()])


def find_table(directory: str) -> DeltaTable | None:
    """The table in a directory, None when there is none."""
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        what = "Delta tables need the package deltalake"
        raise TailraceError("destination.unreachable", what, hint="pip install 'tailrace[delta]'") from error
    return DeltaTable(directory) if DeltaTable.is_deltatable(directory) else None


def schema_of(table: DeltaTable) -> pa.Schema:
    """The columns of a table."""
    told: Any = table.schema().to_arrow()
    return pa.schema([pa.field(entry.name, lake_type(entry.type)) for entry in pa.schema(told)])


@contextmanager
def _stream(directory: str, stage: Callable[[str], None], schema: pa.Schema) -> Iterator[pa.RecordBatchReader]:
    """Rows of any number, a few at a time: they are written beside the table, from where they are read."""
    staging = attempt_directory(os.path.join(directory, STAGING))
    stage(staging)
    files = [os.path.join(staging, name) for name in data_files(staging)]
    dataset = ds.dataset(files, schema=schema, format="parquet")
    try:
        yield dataset.scanner(batch_readahead=1, fragment_readahead=1).to_reader()
    finally:
        shutil.rmtree(os.path.dirname(staging), ignore_errors=True)


def _stream_rows(directory: str, rows: DataFrame) -> AbstractContextManager[pa.RecordBatchReader]:
    """The rows of a DataFrame, which Spark stages."""
    return _stream(directory, lambda place: rows.write.parquet(f"file://{place}"), arrow_schema(rows.schema))


def _append(directory: str, stage: Callable[[str], None], schema: pa.Schema, commit: CommitProperties) -> None:
    with _stream(directory, stage, schema) as stream:
        _append_stream(directory, stream, commit)


def _append_rows(directory: str, rows: DataFrame, commit: CommitProperties) -> None:
    with _stream_rows(directory, rows) as stream:
        _append_stream(directory, stream, commit)


def _append_stream(directory: str, stream: pa.RecordBatchReader, commit: CommitProperties) -> None:
    from deltalake import write_deltalake

    write_deltalake(directory, stream, mode="append", commit_properties=commit)


def _merge(directory: str, table: DeltaTable, key: tuple[str, ...], merge: Merge, commit: CommitProperties) -> None:
    """The last change of every key into the table."""
    with _stream_rows(directory, merge.changes(DELETED, UPDATED)) as changes:
        _merge_changes(table, key, changes, merge.absent, commit)


def _merge_changes(
    table: DeltaTable,
    key: tuple[str, ...],
    changes: pa.RecordBatchReader,
    absent: list[str],
    commit: CommitProperties,
) -> None:
    same = [f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key]
    names = [name for name in changes.schema.names if name not in (DELETED, UPDATED)]
    values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
    told = {_quoted(name): f"s.{_quoted(name)}" for name in names if name not in absent}
    is_there = f"NOT s.{_quoted(DELETED)}"
    merging = table.merge(
        changes, predicate=" AND ".join(same), source_alias="s", target_alias="t", commit_properties=commit
    )
    merging = merging.when_matched_delete(predicate=f"s.{_quoted(DELETED)}")
    if absent:
        merging = merging.when_matched_update(updates=told, predicate=f"s.{_quoted(UPDATED)}")
    merging = merging.when_matched_update(updates=values, predicate=is_there)
    merging.when_not_matched_insert(updates=values, predicate=is_there).execute()


def _sync_since(directory: str, version: int) -> None:
    """The versions after one are on disk when this returns (I3): their data files, then their entries in the log."""
    log = os.path.join(directory, LOG)
    entries: list[str] = []
    while os.path.exists(os.path.join(log, entry := f"{version + 1:020d}.json")):
        entries.append(entry)
        version += 1
    sync_files(directory, [path for entry in entries for path in _added(os.path.join(log, entry))])
    others = [f"{version:020d}.checkpoint.parquet", "_last_checkpoint"]
    sync_files(log, entries + [name for name in others if os.path.exists(os.path.join(log, name))])


def _added(entry: str) -> Iterator[str]:
    """The data files that came with a version, by its entry in the log."""
    with open(entry, "rb") as lines:
        for line in lines:
            if "add" in (action := json.loads(line)):
                yield unquote(action["add"]["path"])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
