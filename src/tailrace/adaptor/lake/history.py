"""The history of every namespace: one row per message, in files that are only ever added.

A batch appears in three steps, of which the second can be repeated after a crash at any point:

1. Spark writes files to `_staging`, and a note says how they will be called.
2. They are moved into place.
3. The note of the table's offset is renewed.

When a field has got a wider type the older files are written anew with it, in the same steps, for readers want one type
per column.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

from tailrace.adaptor.lake.place import SUFFIX, data_files, read_note, sync_files, table_directory, write_note
from tailrace.deliver.contract import Target
from tailrace.log.disk import Disk
from tailrace.message import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGING: Final = "_staging"
INTENT: Final = "_intent.json"
STATE: Final = "_tailrace.json"
META: Final = ("offset", "op", "timestamp", "lsn")
"""These columns of a message precede its fields, with a leading underscore."""


class HistoryLake:
    """Tables that grow."""

    def __init__(self, path: str) -> None:
        self._lake = path

    def applied(self, namespace: str) -> Offset | None:
        directory = table_directory(self._lake, namespace)
        self._finish(directory)
        state = read_note(os.path.join(directory, STATE))
        return None if state is None else Offset(state["offset"])

    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        directory = table_directory(self._lake, target.namespace)
        staging = os.path.join(directory, STAGING)
        os.makedirs(directory, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        fields = {entry.name: str(entry.type) for entry in target.schema}
        known: dict[str, str] = (read_note(os.path.join(directory, STATE)) or {}).get("fields", {})
        is_widened = any(fields.get(name, kind) != kind for name, kind in known.items())
        old = data_files(directory) if is_widened else []
        rows = history_rows(frame)
        if old:
            rows = _with_types_of(self._read(frame, directory, old), rows).unionByName(rows, allowMissingColumns=True)
        rows.write.parquet(f"file://{staging}")  # 1.
        sync_files(staging)
        moves = {name: f"{upto:020d}-{at:04d}{SUFFIX}" for at, name in enumerate(data_files(staging))}
        intent = {"offset": upto, "fields": {**known, **fields}, "moves": moves, "removes": old}
        write_note(os.path.join(directory, INTENT), intent)
        self._finish(directory)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _read(self, frame: DataFrame, directory: str, names: list[str]) -> DataFrame:
        paths = [f"file://{os.path.join(directory, name)}" for name in names]
        return frame.sparkSession.read.option("mergeSchema", "true").parquet(*paths)

    def _finish(self, directory: str) -> None:
        intent = read_note(os.path.join(directory, INTENT))
        if intent is None:
            return
        moves: dict[str, Any] = intent["moves"]
        for old, new in moves.items():  # 2.
            staged = os.path.join(directory, STAGING, old)
            if os.path.exists(staged):
                os.rename(staged, os.path.join(directory, new))
        for name in intent["removes"]:
            if os.path.exists(os.path.join(directory, name)):
                os.remove(os.path.join(directory, name))
        Disk().sync_directory(directory)
        state = {"offset": intent["offset"], "fields": intent["fields"]}
        write_note(os.path.join(directory, STATE), state)  # 3.
        os.remove(os.path.join(directory, INTENT))
        shutil.rmtree(os.path.join(directory, STAGING), ignore_errors=True)


def history_rows(frame: DataFrame) -> DataFrame:
    """Messages as rows of a history: what happened when, and the fields of the message."""
    meta = [frame[name].alias(f"_{name}") for name in META]
    return frame.select(*meta, "data.*")


def _with_types_of(rows: DataFrame, like: DataFrame) -> DataFrame:
    types = {entry.name: entry.dataType for entry in like.schema.fields}
    return rows.select(
        *[rows[name].cast(types[name]).alias(name) if name in types else rows[name] for name in rows.columns]
    )
