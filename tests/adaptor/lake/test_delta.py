"""Delta tables: what is in their versions, and that they are on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tailrace.log.disk import Disk
from tailrace.message import Op
from tests.adaptor.contract import FIELDS, Frames, row, write_of
from tests.adaptor.lake.lakes import DeltaHistoryLake, DeltaLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_of_a_copy_are_only_added(tmp_path: Path, spark: SparkSession) -> None:
    """A merge would look at the whole table for every batch of it."""
    lake = DeltaLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    for number in range(3):
        frames.deliver(write_of([(Op.INSERT, row(number))], first=number + 1), copy=0)
    told = DeltaTable(str(lake.directory("main.t"))).history()
    assert [entry["operation"] for entry in told] == ["WRITE", "WRITE", "WRITE"]
    assert len(lake.rows("main.t")) == 3


def test_what_was_written_is_on_disk(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package does not see to it."""
    synced: set[str] = set()
    sync = Disk.sync

    def noting(self: Disk, fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))
        sync(self, fd)

    monkeypatch.setattr(Disk, "sync", noting)
    lake = DeltaLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    wide = FIELDS.append(pa.field("note", pa.string()))
    frames.deliver(write_of([(Op.INSERT, row(1))]))
    frames.deliver(write_of([(Op.UPDATE, {**row(1), "note": "new"})], first=1, schema=wide))

    directory = lake.directory("main.t")
    versions = sorted((directory / "_delta_log").glob("*.json"))
    assert len(versions) == 3, "the new column is a version of its own"
    assert {str(path) for path in versions} <= synced
    assert set(DeltaTable(str(directory)).file_uris()) <= synced


def test_history(tmp_path: Path, spark: SparkSession) -> None:
    lake = DeltaHistoryLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    frames.deliver(write_of([(Op.INSERT, row(1)), (Op.UPDATE, row(2), row(1))]))
    wide = pa.schema([FIELDS.field("id"), pa.field("amount", pa.string()), pa.field("note", pa.string())])
    for _ in range(2):
        frames.deliver(write_of([(Op.DELETE, {"id": 2, "amount": "text", "note": "new"})], first=2, schema=wide))

    told = sorted((found["_offset"], found["_op"], found["id"], found["amount"]) for found in lake.rows("main.t"))
    assert told == [(0, "insert", 1, "1.5"), (1, "delete", 1, "1.5"), (1, "update", 2, "1.5"), (2, "delete", 2, "text")]
    assert lake.state("main.t", ("id",)) == []
