"""A log that is made anew counts from 0 again: what a destination has of the old one is not taken for it."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.adaptor.options import WriterOptions
from tailrace.adaptor.sqlite.options import SqliteWriterOptions
from tailrace.deliver.delivery import Delivery
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.message import Message, Micros, Mode, Op
from tailrace.pipeline.spec import WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def deliver(spark: SparkSession, directory: Path, options: WriterOptions, rows: list[dict[str, Any]]) -> None:
    """A copy of these rows in a new log, to a writer that is always called the same."""
    with CommitLog.open(directory) as log:
        log.append_messages([Message(Op.NOOP, Micros(1), "main.t", None)], Mode.COPY)
        for batch in batches_of([Message(Op.INSERT, Micros(1), "main.t", row) for row in rows], Mode.COPY):
            log.append([Batch("main.t", with_key(batch.rows, ("id",)), batch.mode)])
        spec = WriteSpec(name="w", adaptor="any", options=options)
        delivery = Delivery(spec, log, lambda: spark, stop=threading.Event(), report=print)
        delivery.open()
        delivery.until = log.next_offset
        while delivery.turn():
            pass
        delivery.close()


@pytest.mark.parametrize("kind", ["sqlite", "parquet", "delta"])
def test_a_new_log_to_an_old_destination(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    place: dict[str, Any] = {"path": str(tmp_path / "out")}
    lake: dict[str, Any] = {**place, "format": kind}
    options: WriterOptions = SqliteWriterOptions(**place) if kind == "sqlite" else LakeWriterOptions(**lake)
    deliver(spark, tmp_path / "old", options, [{"id": 1, "v": "old"}, {"id": 2, "v": "old"}])
    deliver(spark, tmp_path / "new", options, [{"id": 1, "v": "new"}, {"id": 3, "v": "new"}])
    assert rows(kind, tmp_path / "out") == [(1, "new"), (2, "old"), (3, "new")]


def rows(kind: str, path: Path) -> list[tuple[Any, ...]]:
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(path / "main.t").to_pyarrow_table()
    else:
        table = pq.read_table(path / "main.t" / "current")
    return sorted((row["id"], row["v"]) for row in table.to_pylist())
