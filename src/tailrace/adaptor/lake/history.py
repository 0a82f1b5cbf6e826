"""The history of every namespace: one row per message, in files that are only ever added.

A batch appears in three steps, of which the second can be repeated after a crash at any point:

1. Spark writes files to `_staging`, and a note says how they will be called.
2. They are moved into place, that with the table's columns first.
3. The note of the table's offset is renewed.

When a field has got a wider type the older files are written anew with it, in the same steps, for readers want one type
per column.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptor.lake.changes import with_moves
from tailrace.adaptor.lake.columns import fitted_fields, fitted_rows, struct_of, table_schema
from tailrace.adaptor.lake.loading import fits, load_files
from tailrace.adaptor.lake.place import (
    SUFFIX,
    attempt_directory,
    data_files,
    for_spark,
    log_of,
    reaching,
    read_note,
    sync_files,
    table_directory,
    write_note,
)
from tailrace.deliver.contract import Target
from tailrace.errors import Place, TailraceError
from tailrace.log.disk import Disk
from tailrace.message import Offset
from tailrace.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.deliver.frames import RowRanges

STAGING: Final = "_staging"
INTENT: Final = "_intent.json"
STATE: Final = "_tailrace.json"
COLUMNS: Final = "_common_metadata"
"""A file without rows, from which Spark and others learn the columns of all files."""
META: Final = {"_offset": pa.int64(), "_op": pa.string(), "_timestamp": pa.timestamp("us", "UTC"), "_lsn": pa.int64()}
"""These columns of a message precede its fields."""


class HistoryLake:
    """Tables that grow."""

    def __init__(self, path: str, consumer: str = "") -> None:
        self._lake = path
        self._log = log_of(consumer)

    @reaching()
    def applied(self, namespace: str) -> Offset | None:
        directory = table_directory(self._lake, namespace)
        self._finish(directory)
        state = read_note(os.path.join(directory, STATE))
        is_ours = state is not None and state.get("log") == self._log
        return Offset(state["offset"]) if state is not None and is_ours else None

    @reaching()
    def load(self, target: Target, frame: DataFrame, ranges: RowRanges, upto: Offset) -> bool:
        directory = table_directory(self._lake, target.namespace)
        self._finish(directory)
        schema, is_widened = self._columns(directory, target)
        if is_widened or not fits(ranges, schema):
            return False
        staging = attempt_directory(os.path.join(directory, STAGING))
        meta = {name: name.removeprefix("_") for name in META}
        load_files(frame, ranges, staging, replace(target, key=()), schema, meta)  # 1.
        self._put_in_place(directory, staging, schema, upto, [])
        return True

    @reaching()
    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        directory = table_directory(self._lake, target.namespace)
        self._finish(directory)
        staging = attempt_directory(os.path.join(directory, STAGING))
        schema, is_widened = self._columns(directory, target)
        old = data_files(directory) if is_widened else []
        rows = history_rows(frame, target, schema)
        if old:
            files = for_spark(os.path.join(directory, name) for name in old)
            older = frame.sparkSession.read.option("mergeSchema", "true").parquet(*files)
            rows = fitted_rows(older, schema).unionByName(rows)
        rows.write.parquet(f"file://{staging}")  # 1.
        self._put_in_place(directory, staging, schema, upto, old)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _columns(self, directory: str, target: Target) -> tuple[pa.Schema, bool]:
        """The columns that the table is to have, and whether one of those it has becomes wider."""
        columns = os.path.join(directory, COLUMNS)
        existing = pq.read_schema(columns) if os.path.exists(columns) else None
        schema = history_schema(existing, target)
        return schema, existing is not None and any(entry.type != schema.field(entry.name).type for entry in existing)

    def _put_in_place(self, directory: str, staging: str, schema: pa.Schema, upto: Offset, old: list[str]) -> None:
        """Files that were staged take the place of old ones, or come beside what is there."""
        pq.write_metadata(schema, os.path.join(staging, COLUMNS))
        written = data_files(staging)
        sync_files(staging, [*written, COLUMNS])
        Disk().sync_directory(os.path.dirname(staging))
        first = sum(name.startswith(f"{upto:020d}-") for name in data_files(directory))
        moves = {name: f"{upto:020d}-{first + at:04d}{SUFFIX}" for at, name in enumerate(written)}
        intent = {
            "log": self._log,
            "offset": upto,
            "staging": os.path.basename(staging),
            "moves": {COLUMNS: COLUMNS, **moves},
            "removes": old,
        }
        write_note(os.path.join(directory, INTENT), intent)
        self._finish(directory)

    def _finish(self, directory: str) -> None:
        intent = read_note(os.path.join(directory, INTENT))
        if intent is None:
            return
        staging = os.path.join(directory, STAGING, intent["staging"])
        moves: dict[str, Any] = intent["moves"]
        for old, new in moves.items():  # 2.
            staged, placed = os.path.join(staging, old), os.path.join(directory, new)
            if os.path.exists(staged):
                os.rename(staged, placed)
            elif not os.path.exists(placed):
                what = f"a file that was written up to offset {intent['offset']} is gone before it was in place"
                hint = "remove the table, write it anew"
                raise TailraceError("destination.refused", what, place=Place(staged), hint=hint)
        for name in intent["removes"]:
            if os.path.exists(os.path.join(directory, name)):
                os.remove(os.path.join(directory, name))
        Disk().sync_directory(directory)
        note = {"offset": intent["offset"], "log": intent["log"]}
        write_note(os.path.join(directory, STATE), note)  # 3.
        os.remove(os.path.join(directory, INTENT))
        shutil.rmtree(os.path.join(directory, STAGING), ignore_errors=True)


def history_schema(existing: pa.Schema | None, target: Target) -> pa.Schema:
    """The columns of a table of messages. A field that is called like one of ours is refused."""
    refuse_own_names(target.namespace, target.schema.names)
    fields = [] if existing is None else [entry for entry in existing if entry.name not in META]
    meta = [pa.field(name, kind) for name, kind in META.items()]
    return pa.schema([*meta, *table_schema(pa.schema(fields), target)])


def refuse_own_names(namespace: str, names: Iterable[str]) -> None:
    """Fields must not be called like the columns of a message."""
    for name in names:
        if name.lower() in META:
            what = f"field {name} of {namespace} is called like a column that a history has of its own"
            raise TailraceError("destination.refused", what, hint="rename it with a function")


def history_rows(frame: DataFrame, target: Target, schema: pa.Schema) -> DataFrame:
    """Messages as rows of a history: what happened when, and the fields. A row that moved has two, for its old key is
    gone; rows of a copy never do."""
    told = frame if target.copy is not None else with_moves(frame, target.key)
    fields = pa.schema([entry for entry in schema if entry.name not in META])
    meta = [told[name.removeprefix("_")].alias(name) for name in META]
    return told.select(*meta, *fitted_fields(told["data"], struct_of(told, "data"), spark_schema(fields)))
